// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a sector holds: four words made of the seed, the sector's number and the tag of
 * the write, and their sum, repeated with the place of each added. So any torn,
 * moved or stale piece of a sector is seen, and says where it is from.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crash.h"

#define WORDS		(SECTOR_BYTES / sizeof(u64))
#define MAGIC		0xc0515a90c4a54c07ULL
#define STEP		0x9e3779b97f4a7c15ULL

static const char * const kind_names[NR_OP_KINDS] = {
	"none", "fill", "write", "discard", "zeroes", "fsync", "create", "delete", "open", "close",
	"merge", "merged", "grow", "restart", "commit", "look", "track",
};

u64 next_random(u64 *state)
{
	u64 z = (*state += STEP);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

u32 below(u64 *state, u32 limit)
{
	return limit ? next_random(state) % limit : 0;
}

bool chance(u64 *state, u32 percent)
{
	return below(state, 100) < percent;
}

static void sector_header(u64 header[4], u32 sector, u32 tag)
{
	header[0] = MAGIC ^ run.set.seed;
	header[1] = sector;
	header[2] = tag;
	header[3] = (header[0] + sector + tag) * STEP;
}

void fill_sectors(u8 *buf, u32 sector, u32 count, u32 tag)
{
	u64 *words = (u64 *)buf;
	u64 header[4];
	size_t i;

	for (; count; count--, sector++, words += WORDS) {
		sector_header(header, sector, tag);
		for (i = 0; i < WORDS; i++)
			words[i] = header[i & 3] + (i >> 2) * STEP;
	}
}

bool sector_is_zero(const u8 *buf)
{
	return !buf[0] && !memcmp(buf, buf + 1, SECTOR_BYTES - 1);
}

/* The write that the sector is from, whole and in its place; or BAD_TAG. */
u32 sector_tag(const u8 *buf, u32 sector)
{
	const u64 *words = (const u64 *)buf;
	u64 header[4];
	size_t i;

	if (!words[0] && sector_is_zero(buf))
		return 0;
	sector_header(header, sector, words[2]);
	for (i = 0; i < WORDS; i++)
		if (words[i] != header[i & 3] + (i >> 2) * STEP)
			return BAD_TAG;
	return words[2] && words[2] < 2 * MAX_OPS ? words[2] : BAD_TAG;
}

static const char *view_name(u32 view)
{
	static char name[48];

	if (view == ORIGIN_VIEW)
		return "origin";
	snprintf(name, sizeof(name), "snapshot %u (id %u)", view, run.views[view].id);
	return name;
}

static void print_place(u32 event)
{
	if (event == NEVER)
		printf("   ..");
	else
		printf("%5u", event);
}

void print_op(u32 tag)
{
	const struct op *op;

	if (!tag || tag >= run.nr_ops) {
		printf("#   %s\n", tag ? "no operation" : "zeros");
		return;
	}
	op = &run.ops[tag];
	printf("#   events ");
	print_place(op->begin);
	printf("-");
	print_place(op->ack);
	printf("  op %-5u %-7s %s", tag, kind_names[op->kind], view_name(op->view));
	if (op->count)
		printf(" sectors %u+%u", op->sector, op->count);
	printf("%s\n", op->dsync ? " dsync" : "");
}

static void print_words(const u64 *words, size_t first)
{
	u64 step = (first >> 2) * STEP;
	u64 tag = words[first + 2] - step;

	printf("# got (byte %zu on): ", first * sizeof(u64));
	if (words[first] - step != (MAGIC ^ run.set.seed)) {
		printf("not this run's content: %016" PRIx64 " %016" PRIx64 "\n",
		       words[first], words[first + 1]);
		return;
	}
	printf("sector %" PRIu64 " of:\n", words[first + 1] - step);
	if (tag < run.nr_ops)
		print_op(tag);
	else
		printf("#   a write after the cut\n");
}

void print_content(const u8 *buf)
{
	const u64 *words = (const u64 *)buf;
	size_t i;

	if (sector_is_zero(buf)) {
		printf("# got: zeros\n");
		return;
	}
	print_words(words, 0);
	for (i = 4; i < WORDS; i += 4) {
		if (words[i] - (i >> 2) * STEP == words[0] &&
		    words[i + 2] - (i >> 2) * STEP == words[2])
			continue;
		printf("# the sector is torn\n");
		print_words(words, i);
		return;
	}
}

/* All that touched the sector, between what was done to whole devices. */
void print_history(u32 sector)
{
	const struct op *op;
	u32 tag;

	printf("# history of sector %u:\n", sector);
	for (tag = 1; tag < run.nr_ops; tag++) {
		op = &run.ops[tag];
		if (op->kind == OP_LOOK || (op->kind == OP_FSYNC && op->view != ORIGIN_VIEW))
			continue;
		if (op->kind > OP_ZERO || sector - op->sector < op->count)
			print_op(tag);
	}
}

void *allocate(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (!p)
		fail("no memory for %zu bytes", bytes);
	return p;
}

void *aligned(size_t bytes)
{
	void *p;

	if (posix_memalign(&p, 4096, bytes))
		fail("no memory for %zu bytes", bytes);
	return p;
}

void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("# FAILED: ");
	vprintf(fmt, ap);
	printf("\n");
	va_end(ap);
	fflush(stdout);
	_exit(1);
}

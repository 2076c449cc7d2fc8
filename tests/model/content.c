// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a sector holds, and the history that explains it.
 *
 * A sector is 64 words: magic and seed, its own number, the tag of the write,
 * and a sum of the three, repeated with the place of each word added. So any
 * torn, moved or stale piece of a sector is seen, and says where it is from.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model.h"

#define WORDS		(SECTOR_BYTES / sizeof(u64))
#define MAGIC		0xc0515a90c0515a90ULL
#define STEP		0x9e3779b97f4a7c15ULL

static const char * const kind_names[NR_OP_KINDS] = {
	"fill", "write", "zeroout", "discard", "read", "fsync", "control",
};

static struct op *history;
static u64 history_capacity;
static atomic_ulong history_next = 1;	/* 0 is the tag of zeros */

u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

void history_init(u64 capacity)
{
	history = calloc(capacity, sizeof(*history));
	if (!history)
		fail("no memory for a history of %" PRIu64 " operations", capacity);
	history_capacity = capacity;
}

u64 history_add(enum op_kind kind, int view, int thread, u64 sector, u32 count)
{
	u64 tag = atomic_fetch_add(&history_next, 1);
	struct op *op;

	if (tag >= history_capacity)
		fail("the history is full at %" PRIu64 " operations", tag);
	op = &history[tag];
	op->kind = kind;
	op->view = view;
	op->thread = thread;
	op->sector = sector;
	op->count = count;
	op->start_ns = now_ns();
	return tag;
}

void history_end(u64 tag)
{
	__atomic_store_n(&history[tag].end_ns, now_ns(), __ATOMIC_RELEASE);
	__atomic_fetch_add(&nr_counted[history[tag].kind], 1, __ATOMIC_RELAXED);
}

struct op *history_op(u64 tag)
{
	return &history[tag];
}

u64 history_used(void)
{
	return atomic_load(&history_next);
}

void note_control(int view, const char *note)
{
	u64 tag = history_add(OP_CONTROL, view, opt.threads, 0, 0);

	snprintf(history[tag].note, sizeof(history[tag].note), "%s", note);
	history_end(tag);
}

static void sector_header(u64 header[4], u64 sector, u64 tag)
{
	header[0] = MAGIC ^ opt.seed;
	header[1] = sector;
	header[2] = tag;
	header[3] = (header[0] + sector + tag) * STEP;
}

static void fill_sector(u64 *words, u64 sector, u64 tag)
{
	u64 header[4];
	size_t i;

	sector_header(header, sector, tag);
	for (i = 0; i < WORDS; i++)
		words[i] = header[i & 3] + (i >> 2) * STEP;
}

void fill_sectors(u8 *buf, u64 sector, u32 count, u64 tag)
{
	u32 i;

	for (i = 0; i < count; i++)
		fill_sector((u64 *)(buf + (size_t)i * SECTOR_BYTES), sector + i, tag);
}

bool sector_holds(const u8 *buf, u64 sector, u64 tag)
{
	const u64 *words = (const u64 *)buf;
	u64 header[4] = { 0 };
	u64 step = 0;
	size_t i;

	if (tag) {
		sector_header(header, sector, tag);
		step = STEP;
	}
	for (i = 0; i < WORDS; i++)
		if (words[i] != header[i & 3] + (i >> 2) * step)
			return false;
	return true;
}

static void print_op(u64 tag)
{
	const struct op *op = &history[tag];

	fprintf(stderr, "# %12.6f..%12.6f  op %-6" PRIu64 " %-7s %-10s",
		op->start_ns / 1e9, op->end_ns / 1e9, tag, kind_names[op->kind],
		views[op->view].name);
	if (op->kind == OP_CONTROL)
		fprintf(stderr, " %s\n", op->note);
	else
		fprintf(stderr, " sectors %" PRIu64 "+%u thread %d%s\n", op->sector,
			op->count, op->thread, op->end_ns ? "" : " (still going)");
}

/* The first thread with bad news keeps the floor: the run ends with its words. */
static void take_floor(void)
{
	static pthread_mutex_t floor = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

	pthread_mutex_lock(&floor);
}

void report_unfinished(u64 tag)
{
	if (!history[tag].end_ns)
		print_op(tag);
}

/* Everything that ever touched a sector, between the acts of the controller. */
void report_history(u64 sector)
{
	u64 used = history_used();
	const struct op *op;
	u64 tag;

	take_floor();
	fprintf(stderr, "# history of sector %" PRIu64 ":\n", sector);
	for (tag = 1; tag < used; tag++) {
		op = &history[tag];
		if (op->kind == OP_CONTROL ||
		    (sector >= op->sector && sector - op->sector < op->count))
			print_op(tag);
	}
}

static void print_word_origin(const u64 *words, size_t first)
{
	u64 step = (first >> 2) * STEP;
	u64 sector = words[first + 1] - step;
	u64 tag = words[first + 2] - step;

	fprintf(stderr, "# got (byte %zu on): ", first * sizeof(u64));
	if (words[first] - step != (MAGIC ^ opt.seed)) {
		fprintf(stderr, "not this run's content: %016" PRIx64 " %016" PRIx64 "\n",
			words[first], words[first + 1]);
		return;
	}
	fprintf(stderr, "sector %" PRIu64 " of:\n", sector);
	if (tag < history_used())
		print_op(tag);
}

static void print_content(const u8 *buf, u64 sector)
{
	const u64 *words = (const u64 *)buf;
	size_t i;

	if (sector_holds(buf, sector, 0)) {
		fprintf(stderr, "# got: zeros\n");
		return;
	}
	print_word_origin(words, 0);
	for (i = 4; i < WORDS; i += 4) {
		if (words[i + 2] - (i >> 2) * STEP == words[2])
			continue;
		fprintf(stderr, "# the sector is torn\n");
		print_word_origin(words, i);
		return;
	}
}

void report_mismatch(const struct view *v, u64 sector, const u8 *got)
{
	u64 tag = v->tag[sector];
	size_t i;

	take_floor();
	fprintf(stderr, "# MISMATCH on %s, sector %" PRIu64, v->name, sector);
	if (v->index != ORIGIN_VIEW)
		fprintf(stderr, " (chunk %" PRIu64 " of %u sectors)",
			sector / v->chunk_sectors, v->chunk_sectors);
	fprintf(stderr, ", seed %" PRIu64 "\n# expected: %s\n", opt.seed,
		tag ? "" : "zeros");
	if (tag)
		print_op(tag);
	for (i = 0; v->unsettled && v->unsettled[sector] && i < v->window.nr; i++)
		print_op(v->window.tags[i]);
	print_content(got, sector);
	report_history(sector);
}

void fail(const char *fmt, ...)
{
	va_list ap;

	take_floor();
	va_start(ap, fmt);
	fprintf(stderr, "# FAILED: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(1);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is fuzzed: a store is opened, checked, repaired and checked again. Beyond
 * not touching memory that is not theirs, the tools have to keep their word:
 *
 *   - what check calls clean repair leaves alone, to the byte;
 *   - what repair calls mended check calls clean;
 *   - what repair leaves damaged is data, and a second repair finds nothing more;
 *   - with --invalidate nothing is left;
 *   - whatever a disk does, a snapshot alive after repair shows what it showed before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/check.h"
#include "../../tools/repair.h"
#include "target.h"

struct memory {
	struct io io;
	uint8_t *data;
	unsigned long writes;
};

struct target_counts target_counts;

static struct memory *memory_of(struct io *io)
{
	return (struct memory *)((char *)io - offsetof(struct memory, io));
}

static int memory_read(struct io *io, uint64_t offset, void *data, size_t len)
{
	memcpy(data, memory_of(io)->data + offset, len);
	return 0;
}

static int memory_write(struct io *io, uint64_t offset, const void *data, size_t len)
{
	memcpy(memory_of(io)->data + offset, data, len);
	memory_of(io)->writes++;
	return 0;
}

static int memory_sync(struct io *io)
{
	(void)io;
	return 0;
}

static char last_line[512];

static void remember(struct report *r, const char *text)
{
	(void)r;
	snprintf(last_line, sizeof(last_line), "%s", text);
}

static void broken(const char *promise)
{
	fprintf(stderr, "broken: %s; last said: %s\n", promise, last_line);
	abort();
}

/* -1: cannot be opened; else the number of problems. */
static long check(struct memory *m, bool data)
{
	struct report r = { .line = remember };
	struct store s;

	if (store_open(&s, &m->io) != STORE_OK)
		return -1;
	if (store_load(&s))
		broken("there is memory");
	if (data && exceptions_verify(&s))
		broken("there is memory");
	check_store(&s, &r);
	store_close(&s);
	return r.lines;
}

static enum repair_result repair(struct memory *m, bool invalidate, bool dry)
{
	struct repair_options o = { .invalidate = invalidate, .dry = dry };
	struct report r = { .line = remember };
	enum repair_result result;
	struct store s;

	if (store_open(&s, &m->io) != STORE_OK)
		broken("a store that could be opened can be opened");
	if (store_load(&s) || exceptions_verify(&s))
		broken("there is memory");
	result = repair_store(&s, &o, &r);
	store_close(&s);
	return result;
}

static void try_left(struct memory *m)
{
	target_counts.left++;
	m->writes = 0;
	if (repair(m, false, false) != REPAIR_LEFT || m->writes)
		broken("a second repair finds nothing to do");
	if (repair(m, true, false) != REPAIR_DONE)
		broken("with --invalidate nothing is left");
	if (check(m, true))
		broken("what repair --invalidate calls mended is clean");
}

static void try_repair(struct memory *m, long problems)
{
	if (repair(m, false, true) == REPAIR_NOTHING && problems)
		broken("repair -n sees what check sees");
	if (m->writes)
		broken("repair -n writes nothing");
	switch (repair(m, false, false)) {
	case REPAIR_NOTHING:
		target_counts.clean++;
		if (problems || m->writes)
			broken("only what is clean is left alone");
		break;
	case REPAIR_DONE:
		target_counts.repaired++;
		if (!problems)
			broken("what is clean needs no repair");
		if (check(m, true))
			broken("what repair calls mended is clean");
		break;
	case REPAIR_LEFT:
		if (!problems)
			broken("what is clean has no damaged data");
		try_left(m);
		break;
	case REPAIR_FAILED:
		target_counts.failed++;
		break;
	}
}

static void memory_init(struct memory *m, const uint8_t *data, size_t size)
{
	memset(m, 0, sizeof(*m));
	m->io.bytes = size & ~(size_t)511;
	m->io.read = memory_read;
	m->io.write = memory_write;
	m->io.sync = memory_sync;
	m->data = malloc(size + !size);
	if (!m->data)
		broken("there is memory");
	memcpy(m->data, data, size);
}

/* ---- what snapshots show ---- */

/* Which version of @chunk the snapshot of @epoch sees; NULL: the origin's. */
static const struct entry *seen_by(const struct store *s, u64 epoch, u64 chunk)
{
	const struct entry *e, *found = NULL;
	size_t i;

	for (i = 0; i < s->nr_order; i++) {
		e = &s->entry[s->order[i]];
		if (e->chunk != chunk || e->marks & ENTRY_DEAD)
			continue;
		if (exception_is_private(e) ? e->epoch == epoch :
		    e->older < epoch && epoch <= e->epoch)
			found = e;
	}
	return found;
}

static void compare_views(const struct store *before, const struct store *after, u64 epoch)
{
	const struct entry *e, *now;
	size_t i;

	for (i = 0; i < before->nr_order; i++) {
		e = seen_by(before, epoch, before->entry[before->order[i]].chunk);
		if (!e)
			continue;
		now = seen_by(after, epoch, e->chunk);
		if (!now || now->place != e->place || now->crc != e->crc ||
		    now->kind != e->kind)
			broken("a snapshot shows what it showed, or is not alive");
	}
	for (i = 0; i < after->nr_order; i++)
		if (seen_by(after, epoch, after->entry[after->order[i]].chunk) &&
		    !seen_by(before, epoch, after->entry[after->order[i]].chunk))
			broken("a snapshot shows nothing that it did not show");
}

static bool was_live(const struct store *s, const struct record *now)
{
	size_t i;

	for (i = 0; i < s->nr_records; i++)
		if (s->record[i].id == now->id && s->record[i].epoch == now->epoch)
			return record_live(&s->record[i]);
	return false;
}

static void compare_stores(struct memory *whole, struct memory *m)
{
	struct store before, after;
	size_t i;

	if (store_open(&before, &whole->io) != STORE_OK || store_load(&before) ||
	    store_open(&after, &m->io) != STORE_OK || store_load(&after))
		broken("both stores can be opened");
	for (i = 0; i < after.nr_records; i++) {
		if (!record_live(&after.record[i]))
			continue;
		if (!was_live(&before, &after.record[i]))
			broken("no snapshot comes to life");
		compare_views(&before, &after, after.record[i].epoch);
	}
	store_close(&before);
	store_close(&after);
}

void target_keeps_views(const uint8_t *whole, size_t whole_size, const uint8_t *data,
			size_t size)
{
	struct memory a, b;

	memory_init(&a, whole, whole_size);
	memory_init(&b, data, size);
	if (check(&b, false) >= 0 && repair(&b, false, false) != REPAIR_FAILED)
		compare_stores(&a, &b);
	free(a.data);
	free(b.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct memory m;
	long problems;

	memory_init(&m, data, size);
	check(&m, false);
	problems = check(&m, true);
	if (problems < 0)
		target_counts.refused++;
	else
		try_repair(&m, problems);
	free(m.data);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is fuzzed: a store is opened, checked, repaired and checked again. Beyond
 * not touching memory that is not theirs, the tools have to keep their word:
 *
 *   - what check calls clean repair leaves alone, to the byte;
 *   - what repair calls mended check calls clean;
 *   - what repair leaves damaged is data, and a second repair finds nothing more;
 *   - with --invalidate nothing is left;
 *   - whatever a disk does, a snapshot alive after repair shows what it showed before;
 *   - nor does it show anything else if repair is interrupted by a power cut, and the
 *     kernel opens the store, or repair is run again;
 *   - what check calls clean the kernel opens without a complaint, and sees the same;
 *   - diff says all that differs, or that it cannot;
 *   - an origin that is sealed or opened has what it had, wherever the power goes, and is not taken
 *     for one that has no seal while it lacks any of that;
 *   - nobody sees anything of what was redirected being brought home, wherever that stops.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/check.h"
#include "../../tools/diff.h"
#include "../../tools/repair.h"
#include "../../tools/seal.h"
#include "../../tools/settle.h"
#include "kernel.h"
#include "target.h"

#define SECTOR 512

/* More writes than that without a flush, and the first of them count as durable. */
#define UNDO_MAX	256

/* What a write replaced, as long as it is not durable. */
struct undo {
	uint64_t offset;
	size_t len;
	uint8_t *old;
};

struct memory {
	struct io io;
	uint8_t *data;
	uint8_t *lost;
	unsigned long writes;
	unsigned long limit;	/* the writes after that many go nowhere */
	unsigned long failing;	/* that write fails; 0: none does */
	struct memory *other;	/* another device that loses its power with it, or NULL */
	struct undo undo[UNDO_MAX];
	unsigned int nr_undo;
};

struct target_counts target_counts;

static struct memory *memory_of(struct io *io)
{
	return (struct memory *)((char *)io - offsetof(struct memory, io));
}

static int memory_read(struct io *io, uint64_t offset, void *data, size_t len)
{
	struct memory *m = memory_of(io);
	uint64_t sector;

	for (sector = offset / SECTOR; sector * SECTOR < offset + len; sector++)
		if (m->lost[sector])
			return -1;
	memcpy(data, m->data + offset, len);
	return 0;
}

/* Writes to all devices that lose their power at once. */
static unsigned long all_writes(const struct memory *m)
{
	return m->writes + (m->other ? m->other->writes : 0);
}

static int memory_sync(struct io *io)
{
	struct memory *m = memory_of(io);

	if (all_writes(m) <= m->limit)
		while (m->nr_undo)
			free(m->undo[--m->nr_undo].old);
	return 0;
}

static void keep_old(struct memory *m, uint64_t offset, size_t len)
{
	struct undo *u;

	if (m->limit == ~0UL)
		return;
	if (m->nr_undo == UNDO_MAX) {
		free(m->undo[0].old);
		memmove(m->undo, m->undo + 1, --m->nr_undo * sizeof(*m->undo));
	}
	u = &m->undo[m->nr_undo++];
	u->offset = offset;
	u->len = len;
	u->old = malloc(len);
	if (!u->old)
		abort();
	memcpy(u->old, m->data + offset, len);
}

static int memory_write(struct io *io, uint64_t offset, const void *data, size_t len)
{
	struct memory *m = memory_of(io);

	m->writes++;
	if (m->failing && all_writes(m) == m->failing)
		return -1;
	if (all_writes(m) > m->limit)
		return 0;
	keep_old(m, offset, len);
	memcpy(m->data + offset, data, len);
	/* A sector that is written whole can be read again. */
	memset(m->lost + offset / SECTOR, 0, len / SECTOR);
	return 0;
}

/* The power goes: of what was not flushed each write is there or not. */
static void memory_cut(struct memory *m, uint64_t seed)
{
	struct rng r = { .state = seed };
	struct undo *u;

	while (m->nr_undo) {
		u = &m->undo[--m->nr_undo];
		if (rng_next(&r) & 1)
			memcpy(m->data + u->offset, u->old, u->len);
		free(u->old);
	}
	m->limit = ~0UL;
	m->failing = 0;
	m->writes = 0;
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

/* Told to go on where data of the origin may be lost. */
static bool lose_redirected;

static enum repair_result repair(struct memory *m, bool invalidate, bool dry)
{
	struct repair_options o = { .invalidate = invalidate, .dry = dry,
				    .lose_redirected = lose_redirected };
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

/* Has the origin data that cannot be read? No repair helps against that. */
static bool origin_has_hole(struct memory *m)
{
	struct store s;
	bool has = false;
	size_t i;

	if (store_open(&s, &m->io) != STORE_OK || store_load(&s) || exceptions_verify(&s))
		broken("a store that could be opened can be opened");
	for (i = 0; i < s.nr_order; i++)
		has |= s.entry[s.order[i]].until == EPOCH_NOW &&
		       s.entry[s.order[i]].marks & ENTRY_BAD_DATA;
	store_close(&s);
	return has;
}

static void try_left(struct memory *m)
{
	target_counts.left++;
	m->writes = 0;
	if (repair(m, false, false) != REPAIR_LEFT || m->writes)
		broken("a second repair finds nothing to do");
	if (origin_has_hole(m)) {
		repair(m, true, false);
		m->writes = 0;
		if (repair(m, true, false) != REPAIR_LEFT || m->writes)
			broken("with --invalidate only data of the origin is left");
		return;
	}
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

/* What it does not do without being told it does when it is. */
static void try_repairs(struct memory *m, long problems)
{
	unsigned long failed = target_counts.failed;

	try_repair(m, problems);
	if (failed == target_counts.failed)
		return;
	if (m->writes)
		broken("what is not repaired is left alone");
	lose_redirected = true;
	try_repair(m, problems);
	lose_redirected = false;
	target_counts.lost += target_counts.failed == failed + 1;
}

static void memory_init(struct memory *m, const struct target_image *image)
{
	size_t sectors = image->size / SECTOR;

	memset(m, 0, sizeof(*m));
	m->io.bytes = sectors * SECTOR;
	m->io.read = memory_read;
	m->io.write = memory_write;
	m->io.sync = memory_sync;
	m->limit = ~0UL;
	m->data = malloc(image->size + 1);
	m->lost = calloc(1, sectors + 1);
	if (!m->data || !m->lost)
		broken("there is memory");
	memcpy(m->data, image->data, image->size);
	if (image->lost)
		memcpy(m->lost, image->lost, sectors);
}

static void memory_free(struct memory *m)
{
	free(m->data);
	free(m->lost);
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
		    e->older < epoch && epoch <= e->until)
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
			broken("a snapshot, or the origin, shows what it showed, or is not alive");
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
	compare_views(&before, &after, EPOCH_NOW);
	store_close(&before);
	store_close(&after);
}

void target_keeps_views(const struct target_image *whole, const struct target_image *image)
{
	struct memory a, b;

	memory_init(&a, whole);
	memory_init(&b, image);
	if (check(&b, false) >= 0 && repair(&b, false, false) != REPAIR_FAILED)
		compare_stores(&a, &b);
	memory_free(&a);
	memory_free(&b);
}

/* ---- what the kernel makes of it ---- */

/* Looking at all of them takes too long where there are many. */
#define SNAPS_LOOKED_AT	4

static const struct kernel_snap *same_snap(const struct kernel_view *v,
					   const struct kernel_snap *snap)
{
	size_t i;

	for (i = 0; i < v->nr_snaps; i++)
		if (v->snap[i].id == snap->id && v->snap[i].epoch == snap->epoch)
			return &v->snap[i];
	return NULL;
}

static void compare_chunk(const struct kernel_view *whole, const struct kernel_snap *was,
			  const struct kernel_view *v, const struct kernel_snap *snap, u64 chunk)
{
	const struct kernel_slot *before, *now;
	bool error, had_error;

	before = kernel_read(whole, was, chunk, &had_error);
	now = kernel_read(v, snap, chunk, &error);
	if (error || (before && before->unsure))
		return;
	if (had_error)
		broken("no snapshot comes to life");
	if (!before != !now || (now && (now->place != before->place || now->crc != before->crc ||
					now->kind != before->kind)))
		broken("the kernel believes what it believed, or gives an error");
}

/* The origin has no errors to give: it is refused. */
static void compare_origin(const struct kernel_view *whole, const struct kernel_view *v, u64 chunk)
{
	const struct kernel_slot *before = kernel_read_now(whole, chunk);
	const struct kernel_slot *now = kernel_read_now(v, chunk);

	if (before && before->unsure)
		return;
	if (!before != !now || (now && now->place != before->place))
		broken("the origin has what it had");
}

static void compare_kernel(const struct kernel_view *whole, struct memory *m, bool highest_only,
			   uint64_t seed)
{
	const struct kernel_snap *snap, *was;
	struct rng r = { .state = seed };
	struct kernel_view v;
	size_t i, j;

	kernel_open(m->data, m->io.bytes, m->lost, highest_only, &v);
	for (j = 0; !v.refused && j < whole->nr_slots; j++)
		compare_origin(whole, &v, whole->slot[j].chunk);
	for (j = 0; !v.refused && j < v.nr_slots; j++)
		compare_origin(whole, &v, v.slot[j].chunk);
	for (i = 0; !v.refused && v.nr_snaps && i < SNAPS_LOOKED_AT; i++) {
		snap = &v.snap[rng_below(&r, v.nr_snaps)];
		was = same_snap(whole, snap);
		if (!was)
			broken("there is no snapshot that there was not");
		for (j = 0; j < whole->nr_slots; j++)
			compare_chunk(whole, was, &v, snap, whole->slot[j].chunk);
		for (j = 0; j < v.nr_slots; j++)
			compare_chunk(whole, was, &v, snap, v.slot[j].chunk);
	}
	kernel_close(&v);
}

/* ---- what differs ---- */

static bool is_listed(const struct chunk_list *list, u64 chunk)
{
	size_t i;

	for (i = 0; i < list->nr; i++)
		if (list->chunk[i] == chunk)
			return true;
	return false;
}

/* The last record of a log may have been lost: a damaged one looks like one never written. */
static bool may_be_gone(const struct kernel_slot *slot, const struct kernel_view *v)
{
	size_t i;

	if (!slot || !slot->unsure)
		return false;
	for (i = 0; i < v->nr_slots; i++)
		if (v->slot[i].place == slot->place && v->slot[i].chunk == slot->chunk)
			return false;
	return true;
}

static void compare_diff(const struct kernel_view *whole, const struct kernel_view *v,
			 const struct diff *d, const struct chunk_list *list)
{
	const struct kernel_snap a = { .id = d->a.id, .epoch = d->a.epoch };
	const struct kernel_snap b = { .id = d->b.id, .epoch = d->b.epoch };
	const struct kernel_snap *was_a = same_snap(whole, &a);
	const struct kernel_snap *was_b = d->b.now ? NULL : same_snap(whole, &b);
	bool error_a, error_b = false;
	size_t i;

	if (!was_a || !(was_b || d->b.now))
		broken("diff compares no snapshot that there was not");
	for (i = 0; i < whole->nr_slots; i++) {
		u64 chunk = whole->slot[i].chunk;
		const struct kernel_slot *x = kernel_read(whole, was_a, chunk, &error_a);
		const struct kernel_slot *y = was_b ?
			kernel_read(whole, was_b, chunk, &error_b) : kernel_read_now(whole, chunk);

		if (error_a || error_b)
			broken("diff compares no snapshot that was not alive");
		if (may_be_gone(x, v) || may_be_gone(y, v))
			continue;
		if (whole->slot[i].kind != COWSNAP_SLOT_RECORDS && x != y &&
		    !is_listed(list, chunk))
			broken("diff says all that differs");
	}
}

static void try_diff(const struct kernel_view *whole, const struct kernel_view *v,
		     const struct store *s, const char *a, const char *b)
{
	struct chunk_list list = { 0 };
	struct diff d = { 0 };

	if (!diff_side(&d, s, a, &d.a) && !diff_side(&d, s, b, &d.b)) {
		target_counts.diffs++;
		if (diff_collect(&d, s, &list) || diff_finish(&d, &list))
			broken("there is memory");
		/* The model does not know what trackers say. */
		if (!d.a.tracker && !d.b.tracker)
			compare_diff(whole, v, &d, &list);
	}
	chunk_list_free(&list);
	diff_free(&d);
}

void target_misses_nothing(const struct target_image *whole, const struct target_image *image)
{
	struct kernel_view was, is;
	struct memory m;
	struct store s;
	char a[8], b[8];
	size_t i;

	memory_init(&m, image);
	kernel_open(whole->data, whole->size, NULL, false, &was);
	kernel_open(m.data, m.io.bytes, m.lost, false, &is);
	if (store_open(&s, &m.io) == STORE_OK) {
		if (store_load(&s))
			broken("there is memory");
		for (i = 0; i < was.nr_snaps && i < SNAPS_LOOKED_AT; i++) {
			snprintf(a, sizeof(a), "%u", was.snap[i].id);
			snprintf(b, sizeof(b), "%u", was.snap[was.nr_snaps - 1 - i].id);
			try_diff(&was, &is, &s, a, "now");
			try_diff(&was, &is, &s, a, b);
		}
	}
	store_close(&s);
	kernel_close(&is);
	kernel_close(&was);
	memory_free(&m);
}

void target_interrupted(const struct target_image *whole, const struct target_image *image,
			uint64_t seed)
{
	struct rng r = { .state = seed };
	struct kernel_view before;
	struct memory m;

	memory_init(&m, image);
	kernel_open(whole->data, whole->size, NULL, false, &before);
	if (before.refused)
		broken("what was made up the kernel opens");
	if (check(&m, false) >= 0) {
		m.limit = rng_below(&r, 2) ? rng_below(&r, 6) : rng_below(&r, 40);
		repair(&m, false, false);
		target_counts.cuts += m.writes > m.limit;
		memory_cut(&m, rng_next(&r));
		compare_kernel(&before, &m, false, rng_next(&r));
		compare_kernel(&before, &m, true, rng_next(&r));
		if (check(&m, false) >= 0)
			repair(&m, false, false);
		compare_kernel(&before, &m, false, rng_next(&r));
		compare_kernel(&before, &m, true, rng_next(&r));
	}
	kernel_close(&before);
	memory_free(&m);
}

/* ---- the seal ---- */

struct sealed {
	struct memory store, home;
	struct store s;
	uint8_t *content;	/* what the origin begins with */
	uint8_t *older;		/* home, with an earlier seal */
	size_t len;
	struct rng r;
};

/* It did not end: what was not flushed is there, or not. */
static bool sealed_cut(struct sealed *t)
{
	bool cut = all_writes(&t->store) > t->store.limit;

	memory_cut(&t->store, rng_next(&t->r));
	memory_cut(&t->home, rng_next(&t->r));
	target_counts.seal_cuts += cut;
	return cut;
}

static void sealed_limit(struct sealed *t)
{
	u64 pieces = t->len / 4096;

	t->store.limit = rng_below(&t->r, 4) ? rng_below(&t->r, 3 * pieces + 12) : ~0UL - 1;
	t->home.limit = t->store.limit;
	t->store.writes = 0;
	t->home.writes = 0;
}

/* As the kernel, or the command, opens what a power cut left. */
static void sealed_look(struct sealed *t)
{
	const char *refused;
	const uint8_t *at;
	size_t len;

	if (kernel_takes_bare(t->home.data, t->home.io.bytes) &&
	    memcmp(t->home.data, t->content, t->len))
		broken("an origin without a seal has everything");
	kernel_settle_seal(t->store.data, t->store.io.bytes, t->home.data,
			   rng_below(&t->r, t->len / SECTOR + 1), &at, &len);
	if (kernel_takes_bare(t->home.data, t->home.io.bytes) &&
	    memcmp(t->home.data, t->content, t->len))
		broken("so it has while the kernel opens it");
	refused = kernel_settle_seal(t->store.data, t->store.io.bytes, t->home.data, ~0UL, &at,
				     &len);
	if (refused)
		broken("after a power cut the kernel opens it");
	if (memcmp(at, t->content, t->len))
		broken("the origin has what it had");
}

static bool sealed_open(struct sealed *t)
{
	store_close(&t->s);
	if (store_open(&t->s, &t->store.io) != STORE_OK || store_load(&t->s))
		broken("the store can be opened");
	return cowsnap_is_sealed(&t->s.super);
}

static void sealed_on(struct sealed *t)
{
	const char *why;

	sealed_limit(t);
	if (seal_on(&t->s, &t->home.io, rng_below(&t->r, 1000), &why))
		broken("it can be sealed");
	if (sealed_cut(t))
		sealed_look(t);
	else if (kernel_takes_bare(t->home.data, t->home.io.bytes))
		broken("a sealed origin is not taken for another one");
}

/* As the kernel writes it while it is in use. */
static void sealed_write(struct sealed *t)
{
	u64 start = le64toh(t->s.super.seal_start) << t->s.geo.chunk_shift, n;

	if (t->s.super.seal_state != COWSNAP_SEAL_SEALED)
		return;
	for (n = 0; n < 20; n++)
		t->content[rng_below(&t->r, t->len)] = rng_next(&t->r);
	memcpy(t->store.data + start * SECTOR, t->content, t->len);
}

/*
 * Home is as it was before the last seal, or another device: whatever the store says, it does not
 * forget the content, and nothing is written.
 */
static enum seal_keep sealed_wrong_home(struct sealed *t)
{
	u8 *before = malloc(t->len);
	const uint8_t *at;
	const char *why;
	unsigned int nr;
	size_t len, i;

	if (!before)
		broken("there is memory");
	if (rng_below(&t->r, 2))
		memcpy(t->home.data, t->older, t->len);
	else
		for (i = 0; i < t->len; i++)
			t->home.data[i] = rng_next(&t->r);
	memcpy(before, t->home.data, t->len);
	if (!kernel_settle_seal(t->store.data, t->store.io.bytes, t->home.data, ~0UL, &at, &len))
		broken("the kernel does not open another origin");
	if (!seal_off(&t->s, &t->home.io, SEAL_KEEP_NONE, &nr, &why))
		broken("nor does the command");
	if (memcmp(before, t->home.data, t->len) || !cowsnap_is_sealed(&t->s.super))
		broken("neither of them writes anything then");
	free(before);
	return SEAL_KEEP_STORE;
}

/* A sector under the seals is bad: it can be written, and the content is in the store. */
static enum seal_keep sealed_bad_sector(struct sealed *t)
{
	u64 sector = rng_below(&t->r, t->len / SECTOR);
	const char *why;
	unsigned int nr;

	t->home.lost[sector] = 1;
	if (!seal_off(&t->s, &t->home.io, SEAL_KEEP_NONE, &nr, &why) ||
	    !seal_off(&t->s, &t->home.io, SEAL_KEEP_HOME, &nr, &why))
		broken("what cannot be read is not passed over");
	return SEAL_KEEP_STORE;
}

/* Zeroes at home, which is what the content is then, or not. */
static enum seal_keep sealed_foreign(struct sealed *t)
{
	u64 sector = rng_below(&t->r, t->len / SECTOR);
	const uint8_t *at;
	size_t len;

	if (!rng_below(&t->r, 4))
		return sealed_wrong_home(t);
	if (!rng_below(&t->r, 4))
		return sealed_bad_sector(t);
	if (t->s.super.seal_state != COWSNAP_SEAL_SEALED || rng_below(&t->r, 3))
		return SEAL_KEEP_NONE;
	memset(t->home.data + sector * SECTOR, 0, SECTOR);
	if (!kernel_settle_seal(t->store.data, t->store.io.bytes, t->home.data, ~0UL, &at, &len))
		broken("a foreign write is noticed");
	if (rng_below(&t->r, 2))
		return SEAL_KEEP_STORE;
	memset(t->content + sector * SECTOR, 0, SECTOR);
	return SEAL_KEEP_HOME;
}

/* Seals of an earlier time are all that is left of this one. */
static void sealed_before(struct sealed *t)
{
	unsigned int nr;
	const char *why;
	size_t at;

	if (seal_on(&t->s, &t->home.io, 1, &why))
		broken("it can be sealed the first time");
	memcpy(t->older, t->home.data, t->len);
	if (seal_off(&t->s, &t->home.io, SEAL_KEEP_NONE, &nr, &why) ||
	    memcmp(t->home.data, t->content, t->len))
		broken("it can be opened the first time");
	/* The store still has that content. */
	for (at = 0; at < t->len; at += SECTOR)
		t->content[at] ^= 0xff;
	memcpy(t->home.data, t->content, t->len);
}

static void sealed_off(struct sealed *t)
{
	enum seal_keep keep = sealed_foreign(t);
	unsigned int nr;
	const char *why;
	bool cut;
	int r;

	sealed_limit(t);
	r = seal_off(&t->s, &t->home.io, keep, &nr, &why);
	cut = sealed_cut(t);
	/* Without power it may see seals, which it believes to have overwritten. */
	if (r && !cut)
		broken("it can be opened");
	/* Whoever wrote it is asked again, until it is known what counts. */
	if (cut && keep != SEAL_KEEP_NONE && sealed_open(t) &&
	    seal_off(&t->s, &t->home.io, keep, &nr, &why))
		broken("it can be opened after a power cut");
	sealed_look(t);
	if (!sealed_open(t))
		return;
	if (seal_off(&t->s, &t->home.io, SEAL_KEEP_NONE, &nr, &why))
		broken("what the kernel would open the command opens");
}

static void sealed_init(struct sealed *t, const struct target_image *whole)
{
	uint64_t *word;

	memory_init(&t->store, whole);
	sealed_open(t);
	t->len = (size_t)cowsnap_seal_sectors(&t->s.geo) * SECTOR;
	t->content = malloc(t->len);
	t->older = malloc(t->len);
	if (!t->content || !t->older)
		broken("there is memory");
	for (word = (uint64_t *)t->content; word < (uint64_t *)(t->content + t->len); word++)
		*word = rng_next(&t->r);
	memory_init(&t->home, &(struct target_image){ .data = t->content, .size = t->len });
	t->store.other = &t->home;
	t->home.other = &t->store;
}

void target_sealed(const struct target_image *whole, uint64_t seed)
{
	struct sealed t = { .r.state = seed };

	sealed_init(&t, whole);
	/* What it has no room for it has not: the store looks at the length alone. */
	t.home.io.bytes = le64toh(t.s.super.origin_sectors) * SECTOR;
	if (!cowsnap_is_sealed(&t.s.super) && !seal_hinders(&t.s, &t.home.io)) {
		t.home.io.bytes = t.len;
		target_counts.seals++;
		sealed_before(&t);
		sealed_on(&t);
		if (sealed_open(&t)) {
			sealed_write(&t);
			sealed_off(&t);
		}
		if (memcmp(t.home.data, t.content, t.len))
			broken("in the end the origin has what it had");
	}
	store_close(&t.s);
	memory_free(&t.store);
	memory_free(&t.home);
	free(t.content);
	free(t.older);
}

/* ---- what was redirected comes home ---- */

/* Large stores are not cut off at each write. */
#define SETTLED_WRITES	100

/* All that somebody sees: snapshots, and last the origin. */
#define VIEWS	(SNAPS_LOOKED_AT + 1)

struct settled {
	struct memory store, home;
	struct cowsnap_super super;
	struct cowsnap_geometry geo;
	size_t len;		/* of the origin */
	uint8_t *view[VIEWS];	/* NULL: there is no such snapshot */
	uint8_t *now;		/* one of these, as it is by now */
	struct kernel_snap snap[VIEWS];
	struct rng r;
};

/* Where @chunk is of which no snapshot has a version. */
static const uint8_t *at_home(const struct settled *t, u64 chunk)
{
	u64 bytes = t->geo.chunk_sectors * SECTOR;

	return chunk >= cowsnap_seal_chunks(&t->geo) ? t->home.data + chunk * bytes :
	       t->store.data + (le64toh(t->super.seal_start) + chunk) * bytes;
}

static void see_chunk(const struct settled *t, const struct kernel_slot *s, u64 chunk, uint8_t *view)
{
	u64 bytes = t->geo.chunk_sectors * SECTOR, at = chunk * bytes;
	size_t len = t->len - at < bytes ? t->len - at : bytes;

	if (!s)
		memcpy(view + at, at_home(t, chunk), len);
	else if (s->kind == COWSNAP_SLOT_ZERO || s->kind == COWSNAP_SLOT_PRIVATE_ZERO ||
		 s->kind == COWSNAP_SLOT_CURRENT_ZERO)
		memset(view + at, 0, len);
	else
		memcpy(view + at, t->store.data + s->place * bytes, len);
}

static void see(const struct settled *t, const struct kernel_view *v, int i, uint8_t *view)
{
	u64 chunk, end = (t->len + t->geo.chunk_sectors * SECTOR - 1) /
			 (t->geo.chunk_sectors * SECTOR);
	bool error = false;

	for (chunk = 0; chunk < end; chunk++) {
		see_chunk(t, i == VIEWS - 1 ? kernel_read_now(v, chunk) :
			  kernel_read(v, &t->snap[i], chunk, &error), chunk, view);
		if (error)
			broken("a snapshot that lives can be read");
	}
}

static void settled_open(struct settled *t, struct kernel_view *v)
{
	kernel_open(t->store.data, t->store.io.bytes, NULL, false, v);
	if (v->refused || v->damaged)
		broken("the kernel opens it without a complaint");
}

/* Everybody sees what they saw, and nothing is damaged. */
static void settled_look(struct settled *t)
{
	struct kernel_view v;
	int i;

	if (check(&t->store, true))
		broken("whatever settling leaves is clean");
	settled_open(t, &v);
	for (i = 0; i < VIEWS; i++) {
		if (!t->view[i])
			continue;
		see(t, &v, i, t->now);
		if (memcmp(t->now, t->view[i], t->len))
			broken(i == VIEWS - 1 ? "the origin has what it had while it is settled" :
			       "a snapshot sees what it saw while its origin is settled");
	}
	kernel_close(&v);
}

/* False: it stopped. */
static bool settled_run(struct settled *t)
{
	struct settle settle = { .home = &t->home.io, .batch = rng_below(&t->r, 6) };
	struct store s;
	bool cut;
	int r;

	if (store_open(&s, &t->store.io) != STORE_OK || store_load(&s))
		broken("the store can be opened");
	settle.s = &s;
	if (settle_hinders(&settle))
		broken("it can be settled");
	r = settle_all(&settle);
	if (settle.done > settle.chunks)
		broken("no more comes home than was said");
	store_close(&s);
	cut = all_writes(&t->store) > t->store.limit;
	if (r && !t->store.failing && strncmp(settle.why, "the store has no room", 21))
		broken("what nothing is wrong with is settled");
	target_counts.settle_cuts += cut;
	target_counts.settle_errors += r && t->store.failing;
	memory_cut(&t->store, rng_next(&t->r));
	memory_cut(&t->home, rng_next(&t->r));
	settled_look(t);
	return !r && !cut;
}

/* Now and then it is let run to its end. */
static bool settled_step(struct settled *t)
{
	unsigned long at = 1 + rng_below(&t->r, rng_below(&t->r, 2) ? 8 : 40);

	switch (rng_below(&t->r, 8)) {
	case 0:
		break;
	case 1:
	case 2:
		t->store.failing = at;
		break;
	default:
		t->store.limit = at;
		break;
	}
	t->home.failing = t->store.failing;
	t->home.limit = t->store.limit;
	return settled_run(t);
}

static void settled_end(struct settled *t)
{
	struct store s;

	if (store_open(&s, &t->store.io) != STORE_OK || store_load(&s))
		broken("the store can be opened");
	if (!current_is_there(&s)) {
		target_counts.settles++;
		if ((!s.super.redirect && may_have_current(&s)) || may_have_zeroes(&s))
			broken("in the end the feature is gone");
	}
	store_close(&s);
}

/* Seals where they belong, and else anything. */
static void settled_fill_home(struct settled *t)
{
	struct cowsnap_seal seal = { .generation = t->super.seal_generation };
	u32 sector;
	size_t i;

	for (i = 0; i < t->len; i++)
		t->home.data[i] = rng_next(&t->r);
	memcpy(seal.magic, COWSNAP_SEAL_MAGIC, sizeof(seal.magic));
	memcpy(seal.uuid, t->super.uuid, sizeof(seal.uuid));
	for (sector = 0; sector < cowsnap_seal_sectors(&t->geo); sector++) {
		seal.crc = htole32(cowsnap_seal_crc(&seal, sector));
		memcpy(t->home.data + sector * SECTOR, &seal, SECTOR);
	}
}

static void settled_first_look(struct settled *t)
{
	struct kernel_view v;
	int i, nr = 0;
	size_t n;

	settled_open(t, &v);
	for (n = 0; n < v.nr_snaps && nr < SNAPS_LOOKED_AT; n++)
		if (v.snap[n].state == COWSNAP_RECORD_LIVE && rng_below(&t->r, v.nr_snaps - n) <
		    (u64)(SNAPS_LOOKED_AT - nr))
			t->snap[nr++] = v.snap[n];
	for (i = 0; i < VIEWS; i++) {
		if (i >= nr && i < VIEWS - 1)
			continue;
		t->view[i] = malloc(t->len);
		if (!t->view[i])
			broken("there is memory");
		see(t, &v, i, t->view[i]);
	}
	kernel_close(&v);
}

static void settled_init(struct settled *t, const struct target_image *whole)
{
	memory_init(&t->store, whole);
	memcpy(&t->super, t->store.data, sizeof(t->super));
	cowsnap_geometry_init(&t->geo, le32toh(t->super.block_bytes), le32toh(t->super.chunk_sectors));
	t->len = le64toh(t->super.origin_sectors) * SECTOR;
	t->now = calloc(1, t->len);
	if (!t->now)
		broken("there is memory");
	memory_init(&t->home, &(struct target_image){ .data = t->now, .size = t->len });
	t->store.other = &t->home;
	t->home.other = &t->store;
}

/* Once the power goes, or a write fails, at each write in turn, always with the same store. */
static void settled_at_each(struct settled *t)
{
	uint8_t *home = malloc(t->len), *store = malloc(t->store.io.bytes);
	unsigned long at = 0;
	bool stopped = true;

	if (!home || !store)
		broken("there is memory");
	memcpy(home, t->home.data, t->len);
	memcpy(store, t->store.data, t->store.io.bytes);
	while (stopped && at++ < SETTLED_WRITES) {
		t->store.limit = rng_below(&t->r, 3) ? at - 1 : ~0UL;
		t->store.failing = t->store.limit == ~0UL ? at : 0;
		t->home.limit = t->store.limit;
		t->home.failing = t->store.failing;
		stopped = !settled_run(t);
		memcpy(t->home.data, home, t->len);
		memcpy(t->store.data, store, t->store.io.bytes);
	}
	free(home);
	free(store);
}

void target_settled(const struct target_image *whole, uint64_t seed)
{
	struct settled t = { .r.state = seed };
	int i;

	settled_init(&t, whole);
	if (t.super.incompat & htole64(COWSNAP_INCOMPAT_CURRENT)) {
		settled_fill_home(&t);
		settled_first_look(&t);
		if (!rng_below(&t.r, 4))
			settled_at_each(&t);
		for (i = 0; i < 20 && !settled_step(&t); i++)
			;
		settled_run(&t);
		settled_end(&t);
	}
	for (i = 0; i < VIEWS; i++)
		free(t.view[i]);
	memory_free(&t.store);
	memory_free(&t.home);
	free(t.now);
}

static void compare_sights(struct memory *m, const struct kernel_view *v)
{
	const struct kernel_slot *k;
	const struct entry *e;
	struct store s;
	bool error;
	size_t i, j;

	if (store_open(&s, &m->io) != STORE_OK || store_load(&s))
		broken("it can be opened once more");
	for (j = 0; j < v->nr_slots; j++) {
		k = kernel_read_now(v, v->slot[j].chunk);
		e = seen_by(&s, EPOCH_NOW, v->slot[j].chunk);
		if (v->slot[j].kind != COWSNAP_SLOT_RECORDS && v->slot[j].kind != COWSNAP_SLOT_TRACK &&
		    (!k != !e || (k && k->place != e->place)))
			broken("tools and kernel have the same for the origin");
	}
	for (i = 0; i < v->nr_snaps && i < SNAPS_LOOKED_AT; i++)
		for (j = 0; j < v->nr_slots; j++) {
			k = kernel_read(v, &v->snap[i], v->slot[j].chunk, &error);
			if (error || v->slot[j].kind == COWSNAP_SLOT_RECORDS ||
			    v->slot[j].kind == COWSNAP_SLOT_TRACK)
				continue;
			e = seen_by(&s, v->snap[i].epoch, v->slot[j].chunk);
			if (!k != !e || (k && k->place != e->place))
				broken("tools and kernel see the same");
		}
	store_close(&s);
}

static void ask_kernel(struct memory *m)
{
	struct kernel_view v;

	kernel_open(m->data, m->io.bytes, m->lost, false, &v);
	if (v.refused || v.damaged) {
		snprintf(last_line, sizeof(last_line), "the kernel: %s",
			 v.refused ? v.refused : v.damaged);
		broken("what check calls clean the kernel opens without a complaint");
	}
	compare_sights(m, &v);
	kernel_close(&v);
}

void target_try(const struct target_image *image)
{
	struct memory m;
	long problems;

	memory_init(&m, image);
	check(&m, false);
	problems = check(&m, true);
	if (!problems)
		ask_kernel(&m);
	if (problems < 0)
		target_counts.refused++;
	else
		try_repairs(&m, problems);
	target_counts.unreadable += image->lost != NULL;
	memory_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct target_image image = { .data = data, .size = size };

	target_try(&image);
	return 0;
}

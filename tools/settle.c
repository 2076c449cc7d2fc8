// SPDX-License-Identifier: GPL-2.0-only
/*
 * What writes have redirected to the store is brought home.
 *
 * In this order, each line durable before the next (docs/design.md says why nobody sees anything of
 * it), 3 to 6 for a batch of chunks at a time:
 *
 *   0  if home was written without its store, and that is to count for nothing: snapshots become
 *      invalid, and it is sealed anew
 *   1  superblocks: dumps that were made before are older than the store
 *   2  slots of current versions that are dead are freed
 *   3  where a live snapshot sees home, that is copied to the store
 *   4  older current versions become copied ones, of the epoch of the next
 *   5  the newest is written home
 *   6  and its slot is freed
 *   7  superblocks: without the feature, if the option is off
 *
 * Slots are written into blocks as part of the last durable commit, so that they are believed. A
 * slot and what it becomes are in one block: no cut leaves both, or none.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "seal.h"
#include "settle.h"

#define SECTOR 512

/* Chunks of one batch have so much data, and are so many at least. */
#define BATCH_BYTES	(64U << 20)
#define BATCH_CHUNKS	16U

/* So much of it is read in the order of places, then written in that of home. */
#define MOVE_BYTES	(16U << 20)
/* One read covers at most so much, and holes in it at most so much. */
#define SPAN_BYTES	(1U << 20)
#define HOLE_BYTES	(64U << 10)

struct move {
	u64 chunk, place;
	bool zero;
};

static int fail(struct settle *t, const char *why)
{
	t->why = why;
	return -1;
}

static size_t chunk_bytes(const struct settle *t)
{
	return (size_t)t->s->geo.chunk_sectors * SECTOR;
}

/* ---- chunks that have current versions ---- */

static struct entry *entry_at(const struct settle *t, size_t in_order)
{
	return &t->s->entry[t->s->order[in_order]];
}

/* The next such chunk behind @g, below @to. */
static bool next_chunk(const struct settle *t, struct chunk_group *g, u64 to)
{
	const struct store *s = t->s;

	while (g->end < s->nr_order && entry_at(t, g->end)->chunk < to) {
		exceptions_group(s, g->end, g);
		if (g->current < g->private)
			return true;
	}
	return false;
}

/* The same of the batch. Settled chunks in front of it have none. */
static bool next_of_batch(const struct settle *t, struct chunk_group *g)
{
	return next_chunk(t, g, t->to);
}

/* Home is what those see for whom nothing else is there: none above the first current version. */
static bool home_is_seen(const struct settle *t, const struct chunk_group *g)
{
	return group_is_seen(t->s, g, group_copied_epoch(t->s, g), entry_at(t, g->current)->epoch);
}

/* ---- what there is to do, and whether it can be done ---- */

static void count(struct settle *t)
{
	struct chunk_group g = { 0 };

	t->chunks = 0;
	t->copies = 0;
	while (next_chunk(t, &g, EPOCH_NOW)) {
		t->chunks++;
		t->copies += home_is_seen(t, &g);
	}
}

static const char *store_hinders(const struct store *s)
{
	unsigned int z;
	u64 nr;

	if (!cowsnap_is_sealed(&s->super) || s->super.seal_state != COWSNAP_SEAL_SEALED)
		return "the store has no sealed origin; nothing is redirected without";
	for (z = 0; z < COWSNAP_ZONES; z++)
		if (cowsnap_zone_in_use(&s->super.zone[z]))
			return "the store was not closed; open it with the module, and close it";
	for (nr = 0; nr < s->nr_read; nr++)
		if (s->block[nr].marks & BLOCK_UNSURE)
			return "the store was not closed; open it with the module, and close it";
	if (le32toh(s->super.merge_id) != COWSNAP_NO_MERGE)
		return "a rollback is under way; start it with the module, so that it ends";
	return NULL;
}

static const char *seal_is_other(const struct store *s, const struct cowsnap_seal *seal)
{
	if (memcmp(seal->uuid, s->super.uuid, sizeof(seal->uuid)))
		return "the origin is sealed by another store";
	if (seal->generation != s->super.seal_generation)
		return "origin and store have different seals: one of them is an old copy";
	return NULL;
}

/* Nothing of the store is read where it is sealed, so this does not fail. */
static bool seals_are_missing(const struct settle *t)
{
	struct seal_look l;

	return seal_look(t->s, t->home, &l) || l.missing;
}

static const char *origin_hinders(const struct settle *t)
{
	const struct store *s = t->s;
	struct cowsnap_seal seal;
	int found = seal_find(t->home, &seal);
	const char *why = found > 0 ? seal_is_other(s, &seal) : NULL;

	if (t->home->bytes / SECTOR < le64toh(s->super.origin_sectors))
		return "the store was made for a longer origin";
	if (found < 0)
		return "the origin cannot be read";
	if (why)
		return why;
	if (seals_are_missing(t) && !t->keep_store)
		return "seals are missing: the origin was written without its store, or is another one; "
		       "--keep-store takes what the store has, and gives the snapshots up";
	return NULL;
}

const char *settle_hinders(struct settle *t)
{
	const char *why = store_hinders(t->s);

	if (!why)
		why = origin_hinders(t);
	count(t);
	return why;
}

/* ---- slots ---- */

static void free_slot(struct settle *t, struct entry *e)
{
	store_dirty(t->s, e->place);
	e->kind = COWSNAP_SLOT_FREE;
}

/* Entries by place, each place once. */
static void tidy(struct store *s)
{
	size_t i, nr = 0;

	for (i = 0; i < s->nr_entries; i++)
		if (s->entry[i].kind != COWSNAP_SLOT_FREE && !(s->entry[i].marks & ENTRY_GONE))
			s->entry[nr++] = s->entry[i];
	s->nr_entries = nr;
	store_sort_entries(s);
}

/* What was changed goes to the disk, durably. */
static int write_slots(struct settle *t)
{
	tidy(t->s);
	if (store_write_blocks(t->s))
		return fail(t, "the store cannot be written");
	return exceptions_judge(t->s) ? fail(t, "out of memory") : 0;
}

static int write_supers(struct settle *t)
{
	return store_write_supers(t->s) ? fail(t, "the store cannot be written") : 0;
}

static int free_dead(struct settle *t)
{
	size_t i;

	for (i = 0; i < t->s->nr_order; i++)
		if (exception_is_current(entry_at(t, i)) && entry_at(t, i)->marks & ENTRY_DEAD)
			free_slot(t, entry_at(t, i));
	return write_slots(t);
}

/* ---- free places ---- */

static int by_place(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return (x->place > y->place) - (x->place < y->place);
}

/* Is what @place has of no use to anybody? Entries that were added stand behind the first @nr. */
static bool place_is_free(struct settle *t, u64 place, size_t nr)
{
	const struct store *s = t->s;
	const struct entry key = { .place = place };
	struct entry *e = nr ? bsearch(&key, s->entry, nr, sizeof(key), by_place) : NULL;

	if (cowsnap_seal_has(&s->geo, &s->super, place))
		return false;
	if (!e)
		return true;
	if (!entry_is_exception(e) || !(e->marks & ENTRY_DEAD))
		return false;
	/* Its kind stays: the order of its chunk goes by that. */
	e->marks |= ENTRY_GONE;
	return true;
}

/* Does a block that is ready describe it? A place in a table becomes the first one behind that. */
static bool place_is_ready(const struct store *s, u64 *place)
{
	struct cowsnap_segment seg;

	cowsnap_get_segment(&s->geo, cowsnap_find_segment(&s->geo, *place), &seg);
	if (*place < seg.data)
		*place = seg.data;
	return *place < s->nr_chunks && store_block_of(s, *place) < s->blocks;
}

/* From where the last one was found, once around for each batch. False: there is none. */
static bool take_place(struct settle *t, size_t nr, u64 *place)
{
	u64 at;

	for (at = t->next; ; at++) {
		if (!place_is_ready(t->s, &at)) {
			if (t->around)
				return false;
			t->around = true;
			at = 0;
			place_is_ready(t->s, &at);
		}
		if (t->around && at >= t->begin)
			return false;
		if (place_is_free(t, at, nr))
			break;
	}
	*place = at;
	t->next = at + 1;
	return true;
}

/* More table blocks, as the kernel makes them: empty, durable, and then the superblock says so. */
static int make_ready(struct settle *t)
{
	struct store *s = t->s;
	u64 nr = s->blocks, end = nr + COWSNAP_COMMIT_BLOCKS;

	if (end > s->nr_blocks)
		end = s->nr_blocks;
	if (end <= nr)
		return fail(t, "the store has no room for what snapshots see at home; delete one, or let "
			       "it grow");
	if (store_grow_blocks(s, end))
		return fail(t, "out of memory");
	for (; nr < end; nr++)
		s->block[nr] = (struct block){ .marks = BLOCK_DIRTY };
	s->blocks = end;
	s->nr_read = end;
	return write_slots(t) || write_supers(t) ? -1 : 0;
}

/* ---- data ---- */

/* How much of @chunk the origin has: it may have grown since the store was told. */
static size_t bytes_of(const struct settle *t, u64 chunk)
{
	u64 end = t->home->bytes, at = chunk * chunk_bytes(t);

	return end - at < chunk_bytes(t) ? end - at : chunk_bytes(t);
}

static u32 data_crc(const struct settle *t, u64 place)
{
	return crc32c(cowsnap_seed(t->s->super.uuid, chunk_sector(t->s, place)), t->data,
		      chunk_bytes(t));
}

static int read_store(struct settle *t, u64 place, u8 *data)
{
	return io_read(t->s->io, chunk_sector(t->s, place) * SECTOR, data, chunk_bytes(t)) ?
	       fail(t, "the store cannot be read") : 0;
}

/* ---- 3: old content of home ---- */

/* Behind the end of the origin a copy has zeroes. */
static int copy_home(struct settle *t, size_t nr, struct entry e)
{
	memset(t->data, 0, chunk_bytes(t));
	if (io_read(t->home, e.chunk * chunk_bytes(t), t->data, bytes_of(t, e.chunk)))
		return fail(t, "the origin cannot be read");
	if (!take_place(t, nr, &e.place)) {
		/* The batch ends before it. */
		t->to = e.chunk;
		return 0;
	}
	e.kind = COWSNAP_SLOT_COPIED;
	e.crc = data_crc(t, e.place);
	e.marks = 0;
	if (io_write_soon(t->s->io, chunk_sector(t->s, e.place) * SECTOR, t->data, chunk_bytes(t)))
		return fail(t, "the store cannot be written");
	if (store_add_entry(t->s, &e))
		return fail(t, "out of memory");
	store_dirty(t->s, e.place);
	return 0;
}

static int copy_homes(struct settle *t)
{
	size_t nr = t->s->nr_entries;
	struct chunk_group g = { 0 };

	t->begin = t->next;
	t->around = false;
	while (next_of_batch(t, &g))
		if (home_is_seen(t, &g) && copy_home(t, nr, *entry_at(t, g.current)))
			return -1;
	return write_slots(t);
}

/* ---- 4: older current versions ---- */

static int turn(struct settle *t, struct entry *e)
{
	bool zero = exception_is_zero(e);

	if (!zero && read_store(t, e->place, t->data))
		return -1;
	e->kind = zero ? COWSNAP_SLOT_ZERO : COWSNAP_SLOT_COPIED;
	e->epoch = e->until;
	e->crc = zero ? 0 : data_crc(t, e->place);
	store_dirty(t->s, e->place);
	return 0;
}

/* The oldest of each chunk. The next of the same chunk is turned when these are durable. */
static int turn_oldest(struct settle *t, bool *any)
{
	struct chunk_group g = { 0 };

	*any = false;
	while (next_of_batch(t, &g)) {
		if (g.private - g.current < 2)
			continue;
		if (turn(t, entry_at(t, g.current)))
			return -1;
		*any = true;
	}
	return *any ? write_slots(t) : 0;
}

static int turn_older(struct settle *t)
{
	bool any;
	int r;

	do {
		r = turn_oldest(t, &any);
	} while (!r && any);
	return r;
}

/* ---- 5 and 6: the newest goes home ---- */

static size_t moves_max(const struct settle *t)
{
	return chunk_bytes(t) < MOVE_BYTES ? MOVE_BYTES / chunk_bytes(t) : 1;
}

static int by_place_of_move(const void *a, const void *b)
{
	const struct move *const *x = a, *const *y = b;

	return ((*x)->place > (*y)->place) - ((*x)->place < (*y)->place);
}

static u8 *data_of(const struct settle *t, const struct move *m)
{
	return t->moved + (m - t->move) * chunk_bytes(t);
}

/* How many of these, which are in the order of places, are read at a time? */
static size_t span_of(const struct settle *t, struct move **m, size_t nr)
{
	size_t i;

	for (i = 1; i < nr; i++)
		if ((m[i]->place - m[i - 1]->place - 1) * chunk_bytes(t) > HOLE_BYTES ||
		    (m[i]->place + 1 - m[0]->place) * chunk_bytes(t) > SPAN_BYTES)
			break;
	return i;
}

/* What cannot be read in one of its holes is nobody's loss. */
static int read_span(struct settle *t, struct move **m, size_t nr)
{
	size_t i, len = (m[nr - 1]->place + 1 - m[0]->place) * chunk_bytes(t);

	if (nr > 1 && !io_read(t->s->io, chunk_sector(t->s, m[0]->place) * SECTOR, t->span, len)) {
		for (i = 0; i < nr; i++)
			memcpy(data_of(t, m[i]),
			       t->span + (m[i]->place - m[0]->place) * chunk_bytes(t), chunk_bytes(t));
		return 0;
	}
	for (i = 0; i < nr; i++)
		if (read_store(t, m[i]->place, data_of(t, m[i])))
			return -1;
	return 0;
}

/* Those that have data. The data of the others is made. */
static size_t moves_to_read(const struct settle *t, struct move **in_order, size_t nr)
{
	size_t i, to_read = 0;

	for (i = 0; i < nr; i++) {
		if (t->move[i].zero)
			memset(data_of(t, &t->move[i]), 0, chunk_bytes(t));
		else
			in_order[to_read++] = &t->move[i];
	}
	qsort(in_order, to_read, sizeof(*in_order), by_place_of_move);
	return to_read;
}

static int read_moves(struct settle *t, size_t nr)
{
	struct move **in_order = malloc(nr * sizeof(*in_order));
	size_t i, part, to_read;
	int r = 0;

	if (!in_order)
		return fail(t, "out of memory");
	to_read = moves_to_read(t, in_order, nr);
	for (i = 0; i < to_read && !r; i += part) {
		part = span_of(t, in_order + i, to_read - i);
		r = read_span(t, in_order + i, part);
	}
	free(in_order);
	return r;
}

static int write_moves(struct settle *t, size_t nr)
{
	const struct move *m;

	for (m = t->move; m < t->move + nr; m++) {
		if (io_write_soon(t->home, m->chunk * chunk_bytes(t), data_of(t, m),
				  bytes_of(t, m->chunk)))
			return fail(t, "the origin cannot be written");
		t->done++;
		if (t->show)
			t->show(t);
	}
	return 0;
}

static int write_home(struct settle *t)
{
	struct chunk_group g = { 0 };
	size_t nr;

	do {
		for (nr = 0; nr < moves_max(t) && next_of_batch(t, &g); nr++)
			t->move[nr] = (struct move){
				.chunk = entry_at(t, g.current)->chunk,
				.place = entry_at(t, g.current)->place,
				.zero = exception_is_zero(entry_at(t, g.current)),
			};
		if (nr && (read_moves(t, nr) || write_moves(t, nr)))
			return -1;
	} while (nr);
	return io_sync(t->home) ? fail(t, "the origin cannot be written") : 0;
}

static int free_settled(struct settle *t)
{
	struct chunk_group g = { 0 };

	while (next_of_batch(t, &g))
		free_slot(t, entry_at(t, g.current));
	return write_slots(t);
}

/* ---- all of it ---- */

/* False: nothing is left. */
static bool begin_batch(struct settle *t)
{
	u64 chunks = t->batch ? t->batch : BATCH_BYTES / chunk_bytes(t);
	struct chunk_group g = { 0 };

	if (!next_chunk(t, &g, EPOCH_NOW))
		return false;
	if (!t->batch && chunks < BATCH_CHUNKS)
		chunks = BATCH_CHUNKS;
	t->from = entry_at(t, g.first)->chunk;
	do {
		t->to = entry_at(t, g.first)->chunk + 1;
	} while (--chunks && next_chunk(t, &g, EPOCH_NOW));
	return true;
}

static int settle_batch(struct settle *t)
{
	if (copy_homes(t))
		return -1;
	/* What was brought home before has made room, but for the first. */
	if (t->to == t->from)
		return make_ready(t);
	return turn_older(t) || write_home(t) || free_settled(t) ? -1 : 0;
}

static int settle_batches(struct settle *t)
{
	while (begin_batch(t))
		if (settle_batch(t))
			return -1;
	t->s->super.incompat &= ~htole64(COWSNAP_INCOMPAT_ZEROES);
	if (!t->s->super.redirect)
		t->s->super.incompat &= ~htole64(COWSNAP_INCOMPAT_CURRENT);
	return write_supers(t);
}

/* Somebody wrote home: what snapshots see there cannot be believed. */
static int make_whole(struct settle *t)
{
	if (!t->keep_store || !seals_are_missing(t))
		return 0;
	if (seal_make_whole(t->s, t->home, &t->lost, &t->why))
		return -1;
	return records_judge(t->s) || exceptions_judge(t->s) ? fail(t, "out of memory") : 0;
}

static void free_memory(struct settle *t)
{
	free(t->data);
	free(t->move);
	free(t->moved);
	free(t->span);
	t->data = NULL;
	t->move = NULL;
	t->moved = NULL;
	t->span = NULL;
}

static bool take_memory(struct settle *t)
{
	t->data = malloc(chunk_bytes(t));
	t->move = malloc(moves_max(t) * sizeof(*t->move));
	t->moved = malloc(moves_max(t) * chunk_bytes(t));
	t->span = malloc(SPAN_BYTES);
	return t->data && t->move && t->moved && t->span;
}

int settle_all(struct settle *t)
{
	int r;

	if (!take_memory(t))
		r = fail(t, "out of memory");
	else
		r = make_whole(t) || write_supers(t) || free_dead(t) || settle_batches(t) ? -1 : 0;
	free_memory(t);
	return r;
}

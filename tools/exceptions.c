// SPDX-License-Identifier: GPL-2.0-only
/* Versions of chunks: which are alive, which contradict others, whose data is right. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "store.h"

#define SECTOR 512

const char *kind_name(unsigned int kind)
{
	static const char *const names[COWSNAP_SLOT_KINDS] = {
		"free", "copied", "zero", "private", "private-zero", "records",
		"track", "current", "current-zero",
	};

	return kind < COWSNAP_SLOT_KINDS ? names[kind] : "unknown";
}

bool exception_has_crc(const struct entry *e)
{
	return e->kind == COWSNAP_SLOT_COPIED;
}

bool entry_is_exception(const struct entry *e)
{
	return !(e->marks & ENTRY_BAD_KIND) && e->kind != COWSNAP_SLOT_FREE &&
	       e->kind != COWSNAP_SLOT_RECORDS && e->kind != COWSNAP_SLOT_TRACK;
}

bool exception_is_private(const struct entry *e)
{
	return e->kind == COWSNAP_SLOT_PRIVATE || e->kind == COWSNAP_SLOT_PRIVATE_ZERO;
}

bool exception_is_current(const struct entry *e)
{
	return cowsnap_kind_is_current(e->kind);
}

bool exception_is_zero(const struct entry *e)
{
	return e->kind == COWSNAP_SLOT_ZERO || e->kind == COWSNAP_SLOT_PRIVATE_ZERO ||
	       e->kind == COWSNAP_SLOT_CURRENT_ZERO;
}

bool exception_has_data(const struct entry *e)
{
	return entry_is_exception(e) && !exception_is_zero(e);
}

static size_t first_live_above(const struct store *s, u64 older)
{
	size_t low = 0, high = s->nr_live;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (s->live[mid] > older)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

bool epochs_live(const struct store *s, u64 older, u64 epoch)
{
	size_t i = first_live_above(s, older);

	return i < s->nr_live && s->live[i] <= epoch;
}

/* ---- data ---- */

/*
 * ENTRY_VERIFIED or ENTRY_BAD_DATA, with the reason. What has no crc can still be unreadable; that
 * of a current version counts while it is in doubt.
 */
static u16 judge_data(struct store *s, const struct entry *e, u8 *buffer)
{
	bool has_crc = exception_has_crc(e) || (exception_is_current(e) && e->marks & ENTRY_FRESH);
	u64 sector = chunk_sector(s, e->place);
	size_t len = (size_t)s->geo.chunk_sectors * SECTOR;

	if (io_read(s->io, sector * SECTOR, buffer, len))
		return ENTRY_BAD_DATA | ENTRY_UNREADABLE;
	if (has_crc &&
	    crc32c(cowsnap_seed(s->super.uuid, sector), buffer, len) != e->crc)
		return ENTRY_BAD_DATA;
	return ENTRY_VERIFIED;
}

int exceptions_verify(struct store *s)
{
	const u16 skip = ENTRY_DOUBTED | ENTRY_DEAD | ENTRY_BEYOND | ENTRY_VERIFIED;
	u8 *buffer = malloc((size_t)s->geo.chunk_sectors * SECTOR);
	struct entry *e;
	size_t i;

	if (!buffer)
		return -1;
	for (i = 0; i < s->nr_entries; i++) {
		e = &s->entry[i];
		if (exception_has_data(e) && !(e->marks & skip))
			e->marks |= judge_data(s, e, buffer);
	}
	free(buffer);
	return 0;
}

/* ---- the commit that was under way ---- */

/*
 * Home has nothing to say of what was redirected: with other data its record had not ended. One
 * that is believed is in doubt no more, also if it cannot be read.
 */
static void judge_redirected(struct store *s, struct entry *e, u8 *buffer)
{
	u16 found = judge_data(s, e, buffer);

	if (found & (ENTRY_VERIFIED | ENTRY_UNREADABLE))
		e->marks = (e->marks & ~ENTRY_FRESH) | found;
	else
		e->marks |= ENTRY_DOUBTED;
}

/*
 * Where the data of a fresh slot is not there, the commit had not ended, and the origin
 * still has that data; or it had, and the data was lost since. Only the kernel can tell, by
 * the origin: nothing here may write such a slot as one to be believed, or free it.
 */
static void judge_fresh(struct store *s, struct entry *e, u8 *buffer)
{
	u16 found;

	/* A slot that cannot be is no commit's. */
	if (e->marks & (ENTRY_BEYOND | ENTRY_BAD_KIND | ENTRY_BAD_CHUNK | ENTRY_BAD_EPOCH))
		return;
	if (exception_is_current(e)) {
		judge_redirected(s, e, buffer);
		return;
	}
	if (!exception_has_crc(e))
		return;
	found = judge_data(s, e, buffer);
	e->marks |= found & ENTRY_VERIFIED ? found :
		    ENTRY_DOUBTED | (found & ENTRY_UNREADABLE);
}

bool exception_is_unsure(const struct store *s, const struct entry *e)
{
	u64 nr = store_block_of(s, e->place);

	if (e->marks & ENTRY_LOGGED)
		return e->marks & ENTRY_FRESH;
	return e->marks & ENTRY_FRESH && nr < s->nr_read && s->block[nr].marks & BLOCK_UNSURE;
}

int exceptions_doubt(struct store *s)
{
	u8 *buffer = malloc((size_t)s->geo.chunk_sectors * SECTOR);
	size_t i;

	if (!buffer)
		return -1;
	for (i = 0; i < s->nr_entries; i++)
		if (exception_is_unsure(s, &s->entry[i]))
			judge_fresh(s, &s->entry[i], buffer);
	free(buffer);
	return 0;
}

/* ---- order ---- */

enum sort { SORT_COPIED, SORT_CURRENT, SORT_PRIVATE };

static enum sort sort_of(const struct entry *e)
{
	return exception_is_private(e) ? SORT_PRIVATE :
	       exception_is_current(e) ? SORT_CURRENT : SORT_COPIED;
}

static int compare(const struct entry *x, const struct entry *y)
{
	if (x->chunk != y->chunk)
		return x->chunk > y->chunk ? 1 : -1;
	if (sort_of(x) != sort_of(y))
		return sort_of(x) > sort_of(y) ? 1 : -1;
	if (x->epoch != y->epoch)
		return x->epoch > y->epoch ? 1 : -1;
	return (x->place > y->place) - (x->place < y->place);
}

static int by_chunk(const void *a, const void *b, void *entries)
{
	const struct entry *entry = entries;

	return compare(entry + *(const size_t *)a, entry + *(const size_t *)b);
}

bool exceptions_alike(const struct entry *x, const struct entry *y)
{
	return x->chunk == y->chunk && sort_of(x) == sort_of(y);
}

static bool counts(const struct entry *e)
{
	return !(e->marks & ENTRY_DOUBTED) && entry_is_exception(e);
}

static int sort_exceptions(struct store *s)
{
	size_t i;

	free(s->order);
	s->nr_order = 0;
	s->order = calloc(s->nr_entries + 1, sizeof(*s->order));
	if (!s->order)
		return -1;
	for (i = 0; i < s->nr_entries; i++)
		if (counts(&s->entry[i]))
			s->order[s->nr_order++] = i;
	qsort_r(s->order, s->nr_order, sizeof(*s->order), by_chunk, s->entry);
	return 0;
}

static void judge_exception(struct store *s, struct entry *e, struct entry *before)
{
	bool same = before && exceptions_alike(before, e);

	e->marks &= ~(ENTRY_DEAD | ENTRY_TWICE);
	e->older = 0;
	e->until = e->epoch;
	if (exception_is_private(e))
		e->older = e->epoch ? e->epoch - 1 : 0;
	else if (same)
		e->older = before->epoch == e->epoch ? before->older : before->epoch;
	if (e->epoch > s->epoch)
		e->marks |= ENTRY_BAD_EPOCH;
	if (!exception_is_current(e) && !epochs_live(s, e->older, e->epoch)) {
		e->marks |= ENTRY_DEAD;
		return;
	}
	if (same && before->epoch == e->epoch) {
		before->marks |= ENTRY_TWICE;
		e->marks |= ENTRY_TWICE;
	}
}

/* Is one of the private versions [@from, @to) of a chunk of @epoch? */
static bool private_of(const struct store *s, size_t from, size_t to, u64 epoch)
{
	size_t end = to;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if (s->entry[s->order[mid]].epoch < epoch)
			from = mid + 1;
		else
			to = mid;
	}
	return from < end && s->entry[s->order[from]].epoch == epoch;
}

bool group_is_seen(const struct store *s, const struct chunk_group *g, u64 older, u64 until)
{
	size_t i = first_live_above(s, older);

	for (; i < s->nr_live && s->live[i] <= until; i++)
		if (!private_of(s, g->private, g->end, s->live[i]))
			return true;
	return false;
}

u64 group_copied_epoch(const struct store *s, const struct chunk_group *g)
{
	return g->first < g->current ? s->entry[s->order[g->current - 1]].epoch : 0;
}

void exceptions_group(const struct store *s, size_t first, struct chunk_group *g)
{
	u64 chunk = s->entry[s->order[first]].chunk;
	const struct entry *e;

	*g = (struct chunk_group){ first, first, first, first };
	for (; g->end < s->nr_order; g->end++) {
		e = &s->entry[s->order[g->end]];
		if (e->chunk != chunk)
			break;
		g->current += sort_of(e) < SORT_CURRENT;
		g->private += sort_of(e) < SORT_PRIVATE;
	}
}

/* A copied version is dead as well if all snapshots that would see it have one of their own. */
static void judge_hidden(struct store *s, struct entry *e, const struct chunk_group *g)
{
	if (group_is_seen(s, g, e->older, e->epoch))
		return;
	e->marks &= ~ENTRY_TWICE;
	e->marks |= ENTRY_DEAD;
}

/*
 * Current version @i is seen from its epoch on, up to the next one's, by those that no copied version
 * hides it from. The origin has the newest.
 */
static void judge_current(struct store *s, size_t i, const struct chunk_group *g)
{
	struct entry *e = &s->entry[s->order[i]];
	u64 copied = group_copied_epoch(s, g);

	e->older = copied > e->epoch ? copied : e->epoch;
	e->until = EPOCH_NOW;
	for (; i < g->private && e->until == EPOCH_NOW; i++)
		if (s->entry[s->order[i]].epoch > e->epoch)
			e->until = s->entry[s->order[i]].epoch;
	if (!(e->marks & ENTRY_TWICE) && e->until != EPOCH_NOW &&
	    !group_is_seen(s, g, e->older, e->until))
		e->marks |= ENTRY_DEAD;
}

static void judge_chunk(struct store *s, const struct chunk_group *g)
{
	size_t i;

	for (i = g->first; g->private < g->end && i < g->current; i++)
		judge_hidden(s, &s->entry[s->order[i]], g);
	for (i = g->current; i < g->private; i++)
		judge_current(s, i, g);
}

static void judge_chunks(struct store *s)
{
	struct chunk_group g = { 0 };

	while (g.end < s->nr_order) {
		exceptions_group(s, g.end, &g);
		judge_chunk(s, &g);
	}
}

int exceptions_judge(struct store *s)
{
	struct entry *before = NULL, *e;
	size_t i;

	if (sort_exceptions(s))
		return -1;
	for (i = 0; i < s->nr_order; i++) {
		e = &s->entry[s->order[i]];
		judge_exception(s, e, before);
		before = e;
	}
	judge_chunks(s);
	return 0;
}

/* Those that the tables lack. */
static u64 lost_in_tables(const struct store *s)
{
	const u16 nonsense = ENTRY_BAD_KIND | ENTRY_BAD_CHUNK | ENTRY_BAD_EPOCH;
	u32 bad = 0, mark = 0;
	u64 nr;
	size_t i;

	if (s->blocks < 2 || s->blocks > s->nr_blocks)
		return ~0ULL;
	for (i = 0; i < s->nr_entries; i++)
		if (s->entry[i].marks & nonsense && !(s->entry[i].marks & ENTRY_DOUBTED) &&
		    s->entry[i].kind != COWSNAP_SLOT_RECORDS)
			return ~0ULL;
	for (nr = 0; nr < s->nr_read; nr++) {
		if (!(s->block[nr].marks & BLOCK_BAD))
			continue;
		bad++;
		mark = cowsnap_damage_mark(mark, nr);
	}
	if (!bad)
		return 0;
	/* When the kernel knows of these already, what it copied since is safe. */
	if (bad == le32toh(s->super.damaged_blocks) && mark == le32toh(s->super.damage_mark))
		return le64toh(s->super.damage_epoch);
	return ~0ULL;
}

u64 exceptions_lost_epoch(const struct store *s)
{
	u64 tables = lost_in_tables(s), log = le64toh(s->super.lost_epoch);

	if (s->lost_records || s->bad_zones)
		return ~0ULL;
	return tables > log ? tables : log;
}

/* ---- data of the origin ---- */

bool may_have_current(const struct store *s)
{
	return le64toh(s->super.incompat) & COWSNAP_INCOMPAT_CURRENT;
}

bool may_have_zeroes(const struct store *s)
{
	return le64toh(s->super.incompat) & COWSNAP_INCOMPAT_ZEROES;
}

bool current_fits(const struct store *s, const struct entry *e)
{
	if (exception_is_zero(e) && !may_have_zeroes(s))
		return false;
	return may_have_current(s) && cowsnap_is_sealed(&s->super) && !s->bad_seal &&
	       s->super.seal_state == COWSNAP_SEAL_SEALED &&
	       e->chunk >= cowsnap_seal_chunks(&s->geo);
}

bool current_is_there(const struct store *s)
{
	size_t i;

	for (i = 0; i < s->nr_entries; i++)
		if (exception_is_current(&s->entry[i]))
			return true;
	return false;
}

bool current_is_lost(const struct store *s)
{
	const u16 nonsense = ENTRY_BAD_KIND | ENTRY_BAD_CHUNK | ENTRY_BAD_EPOCH | ENTRY_BEYOND;
	const struct entry *e;
	size_t i;
	u64 nr;

	if (!may_have_current(s))
		return false;
	if (s->blocks < 2 || s->blocks > s->nr_blocks || s->lost_records || s->bad_zones)
		return true;
	for (nr = 0; nr < s->nr_read; nr++)
		if (s->block[nr].marks & BLOCK_BAD)
			return true;
	for (i = 0; i < s->nr_entries; i++) {
		e = &s->entry[i];
		if (!(e->marks & ENTRY_DOUBTED) &&
		    e->marks & (nonsense | (exception_is_current(e) ? ENTRY_TWICE : 0)))
			return true;
	}
	return false;
}

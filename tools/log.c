// SPDX-License-Identifier: GPL-2.0-only
/* The commit log: records are found, judged, and put in the place of slots that tables lack. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "log.h"

#define SECTOR 512

/* ---- what records say ---- */

static int add_logged(struct store *s, const struct entry *e)
{
	if (s->nr_logged == s->max_logged) {
		size_t max = s->max_logged ? 2 * s->max_logged : 64;
		struct entry *more = realloc(s->logged, max * sizeof(*more));

		if (!more)
			return -1;
		s->logged = more;
		s->max_logged = max;
	}
	s->logged[s->nr_logged++] = *e;
	return 0;
}

static bool decode(const struct store *s, const u8 *at, u64 place, struct entry *e)
{
	struct cowsnap_slot slot;

	memcpy(&slot, at, sizeof(slot));
	memset(e, 0, sizeof(*e));
	e->crc = cowsnap_slot_crc(&slot);
	e->chunk = cowsnap_slot_chunk(&slot);
	e->epoch = cowsnap_slot_epoch(&slot);
	e->kind = cowsnap_slot_kind(&slot);
	e->place = place;
	return (e->kind == COWSNAP_SLOT_COPIED || e->kind == COWSNAP_SLOT_ZERO ||
		(e->kind == COWSNAP_SLOT_CURRENT && current_fits(s, e))) &&
	       e->epoch && e->epoch <= COWSNAP_MAX_EPOCH && e->chunk < s->nr_origin_chunks;
}

struct zone_walk {
	const struct cowsnap_zone *zone;
	u64 start;
	u32 chunks, chunk;
	u32 next;		/* the least index that may come */
	u32 durable;
	bool mended;
	u8 block[COWSNAP_MAX_BLOCK_BYTES];
};

static bool slots_make_sense(const struct store *s, const struct zone_walk *w, u32 nr)
{
	const u8 *at = w->block + sizeof(struct cowsnap_log_record);
	struct entry e;
	u32 i;

	for (i = 0; i < nr; i++)
		if (!decode(s, at + i * sizeof(struct cowsnap_slot), w->start + w->chunk + 1 + i,
			    &e))
			return false;
	return true;
}

/* A right checksum, or one that one wrong bit explains. */
static bool crc_right(const struct store *s, struct zone_walk *w, u64 sector)
{
	struct cowsnap_log_record record;
	u32 difference;

	memcpy(&record, w->block, sizeof(record));
	difference = le32toh(record.crc) ^
		     cowsnap_log_crc(s->super.uuid, sector, w->block, s->geo.block_bytes);
	if (!difference)
		return true;
	w->mended = crc32c_mend(w->block + sizeof(record.crc),
				s->geo.block_bytes - sizeof(record.crc), difference);
	return w->mended;
}

/* Is there a record, in *@record? One that there was, or may have been, is counted as lost. */
static bool find_record(struct store *s, struct zone_walk *w, struct cowsnap_log_record *record)
{
	u64 sector = cowsnap_log_sector(&s->geo, w->start + w->chunk);
	u64 series = cowsnap_zone_series(w->zone);
	u64 mark = cowsnap_log_mark(s->super.uuid, sector, series);

	if (io_read(s->io, sector * SECTOR, w->block, s->geo.block_bytes)) {
		s->lost_records++;
		return false;
	}
	w->mended = false;
	memcpy(record, w->block, sizeof(*record));
	if (!cowsnap_log_mark_is_near(le64toh(record->mark), mark))
		return false;
	if (crc_right(s, w, sector)) {
		memcpy(record, w->block, sizeof(*record));
		if (le64toh(record->mark) == mark && le64toh(record->series) == series &&
		    cowsnap_log_makes_sense(&s->geo, record, w->chunks - w->chunk) &&
		    le32toh(record->index) >= w->next &&
		    slots_make_sense(s, w, le16toh(record->nr)))
			return true;
	}
	s->lost_records++;
	return false;
}

/* ---- a zone ---- */

/* Indexes below "durable" that were not found. Called in order of indexes. */
static void count_missing(struct store *s, const struct zone_walk *w, u32 from, u32 to)
{
	if (to > w->durable)
		to = w->durable;
	if (from < to)
		s->lost_records += to - from;
}

/* The index of a record is kept in ->older until it is known what is durable. */
static int take_record(struct store *s, struct zone_walk *w,
		       const struct cowsnap_log_record *record)
{
	const u8 *at = w->block + sizeof(*record);
	struct entry e;
	u32 i;

	for (i = 0; i < le16toh(record->nr); i++) {
		decode(s, at + i * sizeof(struct cowsnap_slot), w->start + w->chunk + 1 + i, &e);
		e.older = le32toh(record->index);
		if (add_logged(s, &e))
			return -1;
	}
	w->next = le32toh(record->index) + 1;
	if (le32toh(record->durable) > w->durable)
		w->durable = le32toh(record->durable);
	w->chunk += le16toh(record->nr);
	s->mended_records += w->mended;
	return 0;
}

static void mark_doubtful(struct store *s, const struct zone_walk *w, size_t from)
{
	u32 next = 0;
	size_t i;

	for (i = from; i < s->nr_logged; i++) {
		struct entry *e = &s->logged[i];

		count_missing(s, w, next, (u32)e->older);
		next = (u32)e->older + 1;
		e->marks = ENTRY_LOGGED;
		if (e->older >= w->durable && e->kind != COWSNAP_SLOT_ZERO)
			e->marks |= ENTRY_FRESH;
		e->older = 0;
	}
	count_missing(s, w, next, w->durable);
}

static int read_zone(struct store *s, const struct cowsnap_zone *zone)
{
	struct zone_walk *w = calloc(1, sizeof(*w));
	struct cowsnap_log_record record;
	size_t from = s->nr_logged;
	int r = 0;

	if (!w)
		return -1;
	w->zone = zone;
	w->start = cowsnap_zone_start(zone);
	w->chunks = le32toh(zone->chunks);
	w->durable = cowsnap_zone_durable(zone);
	for (; !r && w->chunk + 1 < w->chunks; w->chunk++)
		if (find_record(s, w, &record))
			r = take_record(s, w, &record);
	mark_doubtful(s, w, from);
	free(w);
	return r;
}

int log_read(struct store *s)
{
	u32 blocks = le32toh(s->super.blocks);
	int i, r = 0;

	log_free(s);
	s->lost_records = 0;
	s->mended_records = 0;
	s->bad_zones = !cowsnap_zones_fit(&s->geo, s->super.zone, s->nr_chunks,
					  blocks < s->nr_blocks ? blocks : (u32)s->nr_blocks);
	for (i = 0; i < (int)COWSNAP_ZONES && !r && !s->bad_zones; i++)
		if (cowsnap_zone_in_use(&s->super.zone[i]))
			r = read_zone(s, &s->super.zone[i]);
	return r;
}

void log_free(struct store *s)
{
	free(s->logged);
	s->logged = NULL;
	s->nr_logged = 0;
	s->max_logged = 0;
}

/* ---- beside the tables ---- */

static int by_place(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return (x->place > y->place) - (x->place < y->place);
}

/* A slot of the table is the record's own, or later. What a lost table had is lost. */
static bool table_is_right(const struct store *s, size_t nr, const struct entry *e)
{
	u64 block = store_block_of(s, e->place);

	return block >= s->nr_read || s->block[block].marks & BLOCK_BAD ||
	       (nr && bsearch(e, s->entry, nr, sizeof(*e), by_place));
}

int log_merge(struct store *s)
{
	size_t nr = s->nr_entries, i;

	for (i = 0; i < s->nr_logged; i++) {
		if (table_is_right(s, nr, &s->logged[i]))
			continue;
		/* The tables' own stay in front, by place, until all have been looked at. */
		if (store_add_entry(s, &s->logged[i]))
			return -1;
		s->log_unsure |= s->logged[i].marks & ENTRY_FRESH;
	}
	if (s->nr_entries > nr)
		qsort(s->entry, s->nr_entries, sizeof(*s->entry), by_place);
	return 0;
}

/* ---- what it was ---- */

u64 log_series(const struct store *s)
{
	u64 a = cowsnap_zone_series(&s->super.zone[0]), b = cowsnap_zone_series(&s->super.zone[1]);

	return a > b ? a : b;
}

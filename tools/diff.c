// SPDX-License-Identifier: GPL-2.0-only
/* What differs between two epochs of a store: see diff.h. */
#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diff.h"
#include "track.h"

#define SECTOR 512
#define MAX_SECTORS	((u64)INT64_MAX / SECTOR)

int diff_fail(struct diff *d, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(d->error, sizeof(d->error), format, args);
	va_end(args);
	return -1;
}

void diff_free(struct diff *d)
{
	extents_free(&d->changed);
}

/* ---- the two ends ---- */

static const struct record *find_record(const struct store *s, u32 id)
{
	size_t i;

	for (i = 0; i < s->nr_records; i++)
		if (s->record[i].id == id)
			return &s->record[i];
	return NULL;
}

/* What is being merged is neither what home has nor what the snapshot was. */
static int refuse_merge(struct diff *d, const struct store *s)
{
	u32 id = le32toh(s->super.merge_id);

	if (id == COWSNAP_NO_MERGE)
		return 0;
	return diff_fail(d, "snapshot %u is being merged into the origin; wait for the end of that",
			 id);
}

int diff_complete(struct diff *d, const struct store *s, u64 epoch)
{
	u64 lost = exceptions_lost_epoch(s), damage = le64toh(s->super.damage_epoch);

	if (epoch > lost && epoch > damage)
		return 0;
	return diff_fail(d, "tables of the store are damaged, so that nobody knows what has "
			    "changed; see cowsnap check, and make a full copy");
}

/* -1: it is no id. */
static long read_id(const char *word)
{
	char *end;
	unsigned long id = strtoul(word, &end, 10);

	return *word < '0' || *word > '9' || *end || id >= COWSNAP_MAX_SNAPSHOTS ? -1 : (long)id;
}

static int snapshot_side(struct diff *d, const struct store *s, long id, struct diff_side *side)
{
	const struct record *r = find_record(s, id);

	if (!r)
		return diff_fail(d, "the store has no snapshot %ld; cowsnap check -v lists those "
				    "it has",
				 id);
	if (r->marks)
		return diff_fail(d, "the record of snapshot %ld is damaged; see cowsnap check", id);
	if (!record_live(r) && !record_is_tracker(r))
		return diff_fail(d, "snapshot %ld is %s: what it had is lost; make a new one and "
				    "a full copy",
				 id, record_state_name(r->state));
	if (r->sectors > MAX_SECTORS)
		return diff_fail(d, "snapshot %ld is longer than a device can be", id);
	*side = (struct diff_side){ .id = id, .epoch = r->epoch, .sectors = r->sectors,
				    .time = r->time, .tracker = record_is_tracker(r) };
	if (side->tracker)
		return track_is_whole(s, r) ? 0 :
		       diff_fail(d, "tracker %ld is damaged; make a snapshot and a full copy", id);
	return diff_complete(d, s, r->epoch);
}

int diff_side(struct diff *d, const struct store *s, const char *word, struct diff_side *side)
{
	long id;

	d->chunk_bytes = (u64)s->geo.chunk_sectors * SECTOR;
	memcpy(d->uuid, s->super.uuid, sizeof(d->uuid));
	memcpy(d->from_uuid, s->super.uuid, sizeof(d->from_uuid));
	if (refuse_merge(d, s))
		return -1;
	if (!strcmp(word, "now")) {
		*side = (struct diff_side){ .now = true, .epoch = DIFF_NOW,
					    .sectors = le64toh(s->super.origin_sectors) };
		return side->sectors <= MAX_SECTORS ? 0 :
		       diff_fail(d, "the origin is longer than a device can be");
	}
	id = read_id(word);
	if (id < 0)
		return diff_fail(d, "\"%s\" is no id of a snapshot (0 to %u), nor \"now\"", word,
				 COWSNAP_MAX_SNAPSHOTS - 1);
	return snapshot_side(d, s, id, side);
}

/* ---- what differs ---- */

static const struct diff_side *older_side(const struct diff *d)
{
	return d->a.epoch < d->b.epoch ? &d->a : &d->b;
}

static bool differs(const struct diff *d, const struct entry *e)
{
	u64 low = d->a.epoch < d->b.epoch ? d->a.epoch : d->b.epoch;
	u64 high = d->a.epoch < d->b.epoch ? d->b.epoch : d->a.epoch;

	if (!entry_is_exception(e))
		return false;
	if (exception_is_private(e))
		return e->epoch == low || e->epoch == high;
	/* A tracker says for itself what has changed since. */
	if (older_side(d)->tracker)
		return false;
	/* Copied before a write, or written: in both cases while this was the newest epoch. */
	return e->epoch >= low && e->epoch < high;
}

static int add_tracked(void *context, u64 chunk)
{
	return chunk_list_add(context, chunk);
}

static int collect_tracked(struct diff *d, const struct store *s, const struct diff_side *side,
			   struct chunk_list *list)
{
	const struct record *r = find_record(s, side->id);
	int ret;

	if (!side->tracker)
		return 0;
	ret = r && record_is_tracker(r) ?
		  track_read(s, r, !d->settled, add_tracked, list) : 1;

	if (ret > 0)
		return diff_fail(d, "tracker %u is damaged: make a snapshot and a full copy", side->id);
	return ret ? diff_fail(d, "out of memory") : 0;
}

/*
 * Slots in doubt count, and so do dead ones: what is said to differ may be alike, but what
 * differs is said to. A tracker has the chunks that were written to its snapshot, too, so the
 * newer one is asked as well.
 */
int diff_collect(struct diff *d, const struct store *s, struct chunk_list *list)
{
	size_t i;

	for (i = 0; i < s->nr_entries; i++)
		if (differs(d, &s->entry[i]) && chunk_list_add(list, s->entry[i].chunk))
			return diff_fail(d, "out of memory");
	if (d->a.epoch == d->b.epoch)
		return 0;
	return collect_tracked(d, s, &d->a, list) || collect_tracked(d, s, &d->b, list) ? -1 : 0;
}

static u64 min_u64(u64 a, u64 b)
{
	return a < b ? a : b;
}

/* Chunks from here on are in one of the images only in part, or not at all. */
static u64 first_unlike(const struct diff *d)
{
	u64 shorter = min_u64(d->a.sectors, d->b.sectors);

	return d->a.sectors == d->b.sectors ? DIFF_NOW : shorter * SECTOR / d->chunk_bytes;
}

int diff_finish(struct diff *d, struct chunk_list *list)
{
	u64 bytes = d->b.sectors * SECTOR, unlike = first_unlike(d), at;
	size_t i;

	chunk_list_sort(list);
	for (i = 0; i < list->nr && list->chunk[i] < unlike; i++) {
		at = list->chunk[i] * d->chunk_bytes;
		if (at < bytes &&
		    extents_add(&d->changed, at, min_u64(d->chunk_bytes, bytes - at)))
			return diff_fail(d, "out of memory");
	}
	if (unlike == DIFF_NOW || unlike * d->chunk_bytes >= bytes)
		return 0;
	at = unlike * d->chunk_bytes;
	if (extents_add(&d->changed, at, bytes - at))
		return diff_fail(d, "out of memory");
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: trackers in memory: which chunks have changed since an epoch */
#ifndef DM_COWSNAP_STORE_TRACK_H
#define DM_COWSNAP_STORE_TRACK_H

#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/types.h>

#include "dm-cowsnap.h"

struct cow_snap;
struct cow_store;

/* Every write looks at all trackers of the origin, so there are not many. */

/*
 * A snapshot that was given up. A chunk whose bit is set has changed, and the disk knows it: the
 * chunk's bit is set there as well, or the mark of its region. Bits are never taken away.
 *
 * Writers set bits of marked regions under RCU, without a lock. All else is under
 * store->track_lock.
 */
struct cow_tracker {
	struct list_head node;		/* store->trackers: RCU; track_lock and state_lock */
	struct cow_snap *snap;
	struct cow_store *store;
	u32 series;
	struct cowsnap_track_layout layout;
	u64 nr_chunks;
	u64 nr_blocks;
	u32 page_blocks;		/* blocks that are written together */
	u64 nr_pages;			/* of so many; the last may have fewer */
	u64 nr_pieces;
	u64 *place;			/* of each piece in the store; 0: it has none */
	unsigned long *bits;		/* a chunk has changed */
	/* Regions. */
	unsigned long *marked;		/* on the disk: all of it may have changed */
	unsigned long *wanted;		/* to be marked */
	unsigned long *marking;		/* being marked; track_lock */
	unsigned long *used;		/* since it was last looked at */
	u64 settle_at;			/* the page to go on with; track_lock */
};

static inline u64 cow_tracker_regions(const struct cow_tracker *t)
{
	return t->nr_blocks * t->layout.regions;
}

/* The regions of a page; the last may have fewer. */
static inline u64 cow_tracker_page_regions(const struct cow_tracker *t)
{
	return (u64)t->page_blocks * t->layout.regions;
}

/* The regions of @page: [*@first, end), and the end. */
static inline u64 cow_tracker_page(const struct cow_tracker *t, u64 page, u64 *first)
{
	*first = page * cow_tracker_page_regions(t);
	return min(*first + cow_tracker_page_regions(t), cow_tracker_regions(t));
}

static inline u64 cow_tracker_bits(const struct cow_tracker *t)
{
	return t->nr_blocks * t->layout.chunks;
}

/* With nothing set, for @snap. NULL: no memory. May sleep. */
struct cow_tracker *cow_tracker_alloc(struct cow_snap *snap,
				      const struct cowsnap_geometry *geometry, u32 series);

/* No writer looks at it any more. May sleep. */
void cow_tracker_free(struct cow_tracker *tracker);

/*
 * Writers look at it from now on; those that do not yet have passed when this returns. It may
 * sleep. store->track_lock held.
 */
void cow_tracker_hook(struct cow_tracker *tracker);

/* And no longer. The same. */
void cow_tracker_unhook(struct cow_tracker *tracker);

/*
 * A write to [@start, @end), in sectors, is about to go home. False: a region has to be
 * marked first, see cow_tracker_want(). RCU held, any context.
 */
bool cow_tracker_note(struct cow_tracker *tracker, sector_t start, sector_t end);

/* Ask for the marks that it lacks. Any context. */
void cow_tracker_want(struct cow_tracker *tracker, sector_t start, sector_t end);

/* What waits for marks decides again. */
void cow_track_release(struct cow_store *store);

/* These chunks have changed, as is known from elsewhere. Their regions are marked. */
void cow_tracker_set(struct cow_tracker *tracker, u64 chunk, u64 nr);

#endif

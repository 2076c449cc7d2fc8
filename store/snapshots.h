/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the list of a store's snapshots */
#ifndef DM_COWSNAP_STORE_SNAPSHOTS_H
#define DM_COWSNAP_STORE_SNAPSHOTS_H

#include <linux/list.h>
#include <linux/types.h>

struct cow_store;
struct cow_tracker;

/* In the order in which a snapshot goes through them; see cow_snap_set_state(). */
enum cow_snap_state {
	COW_SNAP_LOADED,	/* a table names it, none has been resumed yet */
	COW_SNAP_LIVE,
	COW_SNAP_MERGING,	/* on its way back into the origin */
	COW_SNAP_MERGED,
	COW_SNAP_TRACKER,	/* given up: what has changed since is known */
	COW_SNAP_OVERFLOWED,	/* the store was full */
	COW_SNAP_DROPPED,	/* given up to make room */
	COW_SNAP_INVALID,	/* an error cost it its contents */
};

/* Does the record of a snapshot say that it may have private versions? */
enum cow_snap_mark {
	COW_MARK_NONE,
	COW_MARK_WANTED,
	COW_MARK_WRITTEN,
};

/* The origin as it was at one instant; shared by all tables that name it. */
struct cow_snap {
	struct list_head node;		/* store->snaps, by epoch once it has one */
	struct cow_store *store;
	unsigned int nr_tables;		/* references, under registry_mutex */
	unsigned int id;
	unsigned int record;		/* number of its record in a persistent store */
	u32 epoch;			/* 0 until live */
	sector_t nr_sectors;
	u64 time;			/* of creation, seconds since 1970 */
	u32 series;			/* of its blocks, once it is a tracker; else 0 */
	struct cow_tracker *tracker;	/* admin/track.c; admin_lock and track_lock */
	bool overflow_apart;		/* NO, PO: report Overflow */
	enum cow_snap_state state;	/* written under origin->state_lock */
	enum cow_snap_mark mark;	/* from NONE to WANTED under origin->state_lock */
};

/* Is the snapshot in a state to be read and written, perhaps by way of its merge? Any context. */
static inline bool cow_snap_can_be_used(const struct cow_snap *snap, bool via_merge)
{
	enum cow_snap_state state = READ_ONCE(snap->state);

	return state == COW_SNAP_LIVE || (state == COW_SNAP_MERGING && via_merge);
}

/* The snapshot with this id, or NULL. registry_mutex or origin->admin_lock held. */
struct cow_snap *cow_snap_find(struct cow_store *store, unsigned int id);

/*
 * A snapshot in memory alone, of @state, in @store. NULL: no memory, or the id is
 * taken. registry_mutex or origin->admin_lock held.
 */
struct cow_snap *cow_snap_add(struct cow_store *store, unsigned int id,
			      enum cow_snap_state state);

/* Put the snapshots that loading has found in order of their epochs. */
void cow_store_sort_snaps(struct cow_store *store);

/* Free all of them. The store is not used any more. */
void cow_snaps_free(struct cow_store *store);

#endif

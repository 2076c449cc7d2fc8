/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: superblocks, and changes of them and of the records of snapshots */
#ifndef DM_COWSNAP_DISK_SUPER_H
#define DM_COWSNAP_DISK_SUPER_H

#include <linux/types.h>

#include "store/options.h"
#include "store/snapshots.h"
#include "store/store.h"

struct cow_store;

/*
 * A change of a store's superblocks and, if @snap is not NULL, of the record of one snapshot.
 *
 *	struct cow_change change;
 *
 *	cow_change_begin(&change, store, snap);
 *	change.state = COW_SNAP_MERGING;
 *	change.merging = snap;
 *	change.merge_chunk = 0;
 *	r = cow_change_end(&change);
 *
 * cow_change_begin() fills in the values in memory and keeps others from writing metadata.
 * cow_change_end() writes the values that the caller has set, durably, and lets the others
 * go on. Memory follows only when the disk has it:
 *
 *   0      the disk has the new values, and then memory got them: snap->state (through
 *          cow_snap_set_state()), ->mark, ->epoch, ->nr_sectors, ->time, ->series,
 *          store->merging, ->merge_chunk, ->origin_sectors, ->options, ->space.blocks,
 *          ->has_tracked, ->zone_name, ->seal_state. The caller sets none of these.
 *   -errno memory has the old values, and they have been written once more over what may
 *          have got to the disk. If that failed as well, it is unknown what the disk has.
 *          Then the store is fenced: its live snapshots become invalid, and it commits
 *          nothing more until it is opened again. If the old and the new values are equally
 *          true until the caller goes on, it sets ->either: the store is not fenced, and
 *          the caller tries again, or accepts either.
 *
 * Only a live snapshot can become merging or a tracker. If it is not live any more, nothing is
 * written and -EIO is returned, whatever the caller has seen before.
 *
 * A superblock counts as written when one of its two copies is: the other one has a lower
 * sequence. A record beyond the first COWSNAP_SUPER_RECORDS stands in a block of its own,
 * which is written before the superblocks if both change. A crash between the two leaves
 * the new record and the old superblock: a record "merging" that no superblock names
 * counts as live, a record "merged" counts whatever the superblock says. A change that
 * needs the other order is made in two. If the store has no metadata, or is not formatted
 * yet, only memory changes.
 *
 * Context: may sleep. Between the two: no other function that writes metadata. Neither
 * origin->state_lock nor registry_mutex is needed, and no change is made under meta->blocks_lock.
 */
struct cow_change {
	struct cow_store *store;
	struct cow_snap *snap;
	/* Its record. */
	enum cow_snap_state state;
	enum cow_snap_mark mark;	/* only goes up */
	u32 epoch;
	sector_t nr_sectors;
	u64 time;
	u32 series;
	bool drop;			/* it becomes free */
	/* The superblock. */
	struct cow_snap *merging;
	u64 merge_chunk;
	sector_t origin_sectors;
	u32 blocks;
	struct cow_options options;
	u32 invalid_epoch;
	bool has_tracked;
	struct cow_zone_name zone[COWSNAP_ZONES];
	enum cowsnap_seal_state seal_state;

	bool either;			/* see above */
	enum cow_snap_state was;	/* ->state as memory had it; not the caller's */
};

void cow_change_begin(struct cow_change *change, struct cow_store *store,
		      struct cow_snap *snap);
int cow_change_end(struct cow_change *change);

/*
 * Write the superblocks (or the block of @snap's record, if it is not in there) as memory
 * has it. May sleep.
 */
int cow_super_write(struct cow_store *store, struct cow_snap *snap);

/*
 * Write to the superblock that all live snapshots have become @state: one write, whatever
 * becomes of records in blocks of their own. Then, whether it succeeded or not,
 * cow_store_let_go() is called, before others can write metadata. May sleep.
 */
void cow_super_invalidate(struct cow_store *store, enum cow_snap_state state);

/*
 * Write the records that the superblock overrules since cow_super_invalidate(). Tries all, and
 * returns the first error. May sleep.
 */
int cow_super_settle(struct cow_store *store);

/* Write block @number of records, counted over all chunks, durably. May sleep. */
int cow_super_write_records(struct cow_store *store, u64 number);

/* What memory has. records_lock held, so that it cannot change meanwhile. */
void cow_change_fill(struct cow_change *change, struct cow_store *store,
		     struct cow_snap *snap);

/* Nothing but the caller writes metadata until cow_super_unlock(). May sleep. */
void cow_super_lock(struct cow_store *store);
void cow_super_unlock(struct cow_store *store);

/*
 * It is unknown what the disk has: commit nothing more, and have the snapshots marked as
 * invalid. With the superblocks locked.
 */
void cow_store_fence(struct cow_store *store);

/* cow_change_end() for a caller that has locked the superblocks itself. */
int cow_change_make(const struct cow_change *change);

#endif

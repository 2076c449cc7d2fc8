/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * struct cow_origin: a device that snapshots are made of, shared by all tables that name it
 *
 * The files named beside the fields change them, under the lock that is named. Others may
 * read @bdev, @wq, @engine and @rotational, which stay as they are, and READ_ONCE where that
 * is said; and they may walk @stores under RCU or the state_lock.
 */
#ifndef DM_COWSNAP_ORIGIN_ORIGIN_H
#define DM_COWSNAP_ORIGIN_ORIGIN_H

#include <linux/completion.h>
#include <linux/percpu-refcount.h>
#include <linux/rbtree.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "dm-cowsnap.h"
#include "origin/flush.h"
#include "origin/pace.h"

struct cow_ahead;
struct cow_around;
struct cow_bio;
struct cow_engine;
struct cow_merge;
struct cow_store;

/* 8 MiB, the largest chunk; in sectors. */
#define COW_REGION_SHIFT	14

#define COW_REGIONS		128U

/* After so many first writes in a row the next write is taken for one. */
#define COW_FIRSTS		16U

/*
 * What every write looks at stands first, and is seldom written. What first writes and
 * completions write has cache lines of its own.
 */
struct cow_origin {
	struct block_device *bdev;
	struct list_head stores;	/* those in force: RCU; state_lock */
	/* Writes on their way home. Killed while a snapshot is created: origin/gate.c. */
	struct percpu_ref gate;
	struct cow_merge *merge;	/* state_lock; READ_ONCE with the gate held */
	/* It has part of what the origin shows: disk/current.c; state_lock, READ_ONCE. */
	struct cow_store *redirects_to;
	struct cow_ahead *ahead;	/* io/ahead.c */
	struct cow_around *around;	/* io/around.c */
	unsigned int nr_absent;		/* stores that went away: origin/absent.c; READ_ONCE */
	unsigned int nr_trackers;	/* in the stores in force; state_lock; READ_ONCE */
	u64 identity;			/* what those stores know it by */
	bool rotational;		/* the device is */
	unsigned long used;		/* jiffies, if it redirects: the last I/O; READ_ONCE */
	struct cow_losses losses;	/* origin/flush.c */
	/* Up to here the origin is in a store: origin/seal.h; admin_lock, READ_ONCE. */
	sector_t sealed_end;
	sector_t sealed_at;		/* where in the store its first sector is */
	struct block_device *sealed_bdev;	/* the store's */

	/* The registry, under cow_registry_mutex. */
	unsigned int refs;		/* tables and stores */
	struct list_head node;
	struct list_head all_stores;	/* with those not in force yet */
	/* With those that are being opened or closed: cow_registry_mutex, RCU. */
	struct list_head flush_stores;

	/* Set up in admin/origin.c. */
	struct list_head tables;	/* struct cow_table: origin/tables.c */
	struct workqueue_struct *wq;	/* all that may wait for the engine */
	struct workqueue_struct *room_wq;	/* what waits for work on that one as well */
	struct cow_engine *engine;
	struct bio_set pieces;		/* io/bio.c */
	struct mutex admin_lock;	/* one creation, growth, merge or close at a time */
	struct delayed_work decide_work;	/* held and deferred bios: io/decide.c */
	struct work_struct writeback_work;	/* io/decide.c */
	void (*decide_again)(struct cow_bio *cb);	/* see cow_bio_decide_again() */
	struct completion writes_drained;	/* origin/gate.c; admin_lock */
	atomic_t nr_gathering;		/* tables that are loaded, or were and not resumed yet */
	bool spread_owed;		/* one of them has gone: origin/gate.c; READ_ONCE */
	atomic_t nr_users;		/* bios that a merge waits for: at work, or for a copy */
	wait_queue_head_t quiet;	/* where it does */

	/* Guards what follows, and pendings, room and states of the stores. */
	spinlock_t state_lock ____cacheline_aligned_in_smp;
	/* What each first write looks at stands in the line of the lock. */
	unsigned int nr_pendings;
	unsigned int nr_waited_for;	/* of these, by bios that are parked; READ_ONCE */
	unsigned int nr_spare_pendings;
	unsigned int nr_suspending;	/* tables being suspended: no bio waits for room */
	struct list_head spare_pendings;	/* copy/pending.c */
	struct list_head deferred;	/* struct cow_bio, until memory is freed */
	bool holding;			/* the gate is shut: bios go to @held */
	struct list_head held;		/* struct cow_bio, until the gate opens */
	struct bio_list writeback;	/* decided, to be submitted by writeback_work */
	u64 nr_deferrals;		/* READ_ONCE without the lock */

	/*
	 * Pendings that are in the map already but whose tracked reads still
	 * run, counted for the regions that they touch (some share a counter).
	 * Raised before the map changes, lowered after the pending left the
	 * tree, so that a write that finds the map changed finds this raised.
	 * copy/publish.c.
	 */
	atomic_t publishing[COW_REGIONS] ____cacheline_aligned_in_smp;
	/*
	 * So many writes in a row, COW_FIRSTS at most, needed a copy: a guess that the next one
	 * does as well. state_lock to raise it; READ_ONCE. Written only when it changes.
	 */
	unsigned int nr_firsts;

	/* Guards what completions touch. irqs off. */
	spinlock_t reads_lock ____cacheline_aligned_in_smp;
	struct rb_root_cached reads;	/* tracked reads: struct cow_bio */
	struct list_head drained;	/* published pendings whose tracked reads have ended */
	struct list_head finished;	/* pendings whose data needed no engine */
	struct list_head meta_work;	/* struct cow_meta with something to do */
	struct cow_pace pace;		/* origin/pace.c */

	/* Pendings that the map had no memory for: copy/publish.c. Engine's worker only. */
	struct list_head unmapped ____cacheline_aligned_in_smp;
	unsigned long map_again;	/* jiffies when to try these */
	unsigned long map_delay;	/* jiffies between two tries */

	/* Counted for the status. */
	atomic64_t held_writes;		/* held while a snapshot was created */
	atomic64_t parked_writes;
	atomic64_t skipped_discards;
};

/*
 * How much of [@start, @end) the origin has. What lies behind its end reads as zeroes. All of it
 * if the origin ends at @start or before: its disk is gone (size 0), and reading has to fail.
 */
static inline sector_t cow_origin_has(const struct cow_origin *origin, sector_t start,
				      sector_t end)
{
	sector_t size = bdev_nr_sectors(origin->bdev);

	return size > start ? min(end, size) - start : end - start;
}

/* It is read or written: what was redirected stays where it is for a while. Any context. */
static inline void cow_origin_note_use(struct cow_origin *origin)
{
	unsigned long now = jiffies;

	/* A line that all processors look at is written once a tick. */
	if (READ_ONCE(origin->used) != now)
		WRITE_ONCE(origin->used, now);
}

/* May a pending of these sectors be published and not drained yet? Any context. */
static inline bool cow_publishing(const struct cow_origin *origin, sector_t start,
				  sector_t end)
{
	u64 region = start >> COW_REGION_SHIFT;
	u64 last = min_t(u64, (end - 1) >> COW_REGION_SHIFT, region + COW_REGIONS - 1);

	for (; region <= last; region++)
		if (atomic_read(&origin->publishing[region % COW_REGIONS]))
			return true;
	return false;
}

#endif

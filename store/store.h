/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * struct cow_store: a device that keeps old chunks of one origin
 *
 * admin/store.c and disk/load.c set all of it up, while no other file sees it. From then on the
 * files named beside the fields, or above them, change them, under the lock that is named;
 * state_lock, admin_lock and reads_lock are those of the origin. Others may read @origin,
 * @bdev, @chunk_sectors, @chunk_shift, @persistence, @writable and @meta, which stay as they
 * are while the store is open, and READ_ONCE where that is said.
 */
#ifndef DM_COWSNAP_STORE_STORE_H
#define DM_COWSNAP_STORE_STORE_H

#include <linux/blkdev.h>
#include <linux/list.h>
#include <linux/mempool.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "dm-cowsnap-exception.h"
#include "origin/flush.h"
#include "store/known.h"
#include "store/options.h"
#include "store/snapshots.h"
#include "store/space.h"
#include "store/zones.h"

struct cow_loader;
struct cow_merge;

/* Chunks that a snapshot still has to merge, as they were counted: admin/merge.c. */
struct cow_left {
	struct mutex lock;		/* of what follows */
	u32 epoch;			/* of the snapshot; 0: not counted yet */
	unsigned long counted;		/* jiffies */
	u64 from;			/* chunk: those that follow it are counted */
	u64 nr;
};

struct cow_meta;
struct cow_origin;

/* Why writes that need a copy have to wait for the whole store. */
enum cow_store_blocked {
	COW_STORE_OPEN,
	COW_STORE_PREPARING,	/* table blocks are made ready, or a snapshot is marked */
	COW_STORE_FULL,		/* on_full is carried out, or room is reclaimed */
	COW_STORE_FAILING,	/* the mark "invalid" is written */
};

/* A zone of the log as the superblock names it; @nr 0: it is not in use. */
struct cow_zone_name {
	u64 start;
	u64 series;
	u64 nr;
};

/* Does the superblock say that CURRENT versions may be zeroes without data? */
enum cow_zeroes {
	COW_ZEROES_NONE,
	COW_ZEROES_WANTED,		/* the next one will */
	COW_ZEROES_MARKED,
	COW_ZEROES_ARE_DATA,		/* it could not be written: there are none */
};

/* How far settling has come. The work item's own, but for what is said. */
enum cow_settle_pass {
	COW_SETTLE_NOTHING,		/* there is nothing to do */
	COW_SETTLE_UNSEEN,		/* what needs no copy of home */
	COW_SETTLE_SEEN,		/* the rest */
};

struct cow_settle {
	enum cow_settle_pass pass;
	u64 next;			/* chunk: where the pass goes on */
	bool progress;			/* something came home since the first pass began */
	bool blocked;			/* something was in the way, or missing, that passes */
	bool starved;			/* nothing was done for want of memory */
	bool unread;			/* a table block cannot be read */
	bool waits_for_zones;		/* or a zone, which is to be left */
	/* Under state_lock. */
	unsigned int jobs;		/* under way */
	bool wanted;			/* a write waits for a run of the batch */
	bool stopped;			/* the store is closed */
	bool again;			/* something has changed: there may be more to do */
	u64 asked;			/* by a message: so many chunks are to come home now */
	bool heard;			/* the passes have begun since then */
	bool in_vain;			/* nothing came home the last time */
};

struct cow_store {
	/* What every write to the origin looks at; seldom written. */
	struct list_head node;		/* origin->stores: RCU; state_lock */
	struct cow_live __rcu *live;	/* store/epochs.c; state_lock */
	/* Of the origin; only grows: admin/activate.c; state_lock, READ_ONCE. */
	sector_t protect_sectors;
	struct cow_known known;
	unsigned int chunk_sectors;
	unsigned int chunk_shift;
	struct cow_origin *origin;

	/* The registry, under cow_registry_mutex. */
	struct list_head all_node;	/* origin->all_stores */
	struct list_head flush_node;	/* origin->flush_stores: RCU */
	unsigned int refs;		/* tables */
	unsigned int users;		/* messages: the last table waits; READ_ONCE */

	struct block_device *bdev;
	struct cow_losses losses;	/* origin/flush.c */
	char persistence;		/* 'N' or 'P' */
	bool writable;
	bool log_is_due;		/* cow_store_begin_log(); READ_ONCE */
	bool keeps_tables;		/* opened for a merge: what is read of them stays */
	bool meets_late;		/* see cow_store_meet_origin(); admin_lock */
	bool is_new;			/* never in force: no more than made; admin_lock */
	struct list_head snaps;		/* store/snapshots.c; admin_lock and state_lock */
	struct xarray ids;		/* id -> struct cow_snap; as @snaps */
	struct list_head tables;	/* struct cow_table: origin/tables.c */
	struct cow_options options;	/* disk/super.c, admin/tuning.c; state_lock; READ_ONCE */
	struct work_struct event_work;	/* origin/tables.c */

	/* The map of completed exceptions, which first writes change. */
	struct cow_map map ____cacheline_aligned_in_smp;
	u32 epoch;	/* last one given out: admin/activate.c, admin/track.c; admin_lock */

	/* Persistent stores only. */
	struct cow_meta *meta;		/* NULL: transient */
	struct cow_loader *loader;	/* what is in doubt: disk/load.c; admin_lock */
	u32 damage_epoch;		/* see the format; 0: all tables could be read */
	u32 damaged_blocks;
	u32 damage_mark;		/* which */
	u32 lost_epoch;			/* the same for records of the log */
	u32 lost_records;		/* found when it was opened */

	/* Superblocks and records: disk/super.c, under records_lock. */
	struct mutex records_lock;
	atomic_t super_waiters;		/* for that lock */
	struct xarray records;		/* number of a record -> struct cow_snap */
	struct xarray record_chunks;	/* number of a chunk of records -> place + 1 */
	u64 super_sequence;		/* of the last one written, here or in disk/records.c */
	u32 invalid_epoch;		/* the superblock overrules records up to it; 0: none */
	enum cow_snap_state invalid_state;	/* with this state */
	sector_t origin_sectors;	/* as the superblock has it */
	u64 said_durable;		/* cow_meta_progress() of the superblock; READ_ONCE */
	u64 noted_durable;		/* what it was a second ago; note_work alone */
	struct cow_zone_name zone_name[COWSNAP_ZONES];	/* as the superblock has them */
	u64 zone_series;		/* the last one given out; disk/checkpoint.c */
	/* Does it have CURRENT versions, or may it soon? disk/load.c, disk/super.c; state_lock. */
	bool has_current;
	enum cow_zeroes zeroes;		/* disk/current.c; state_lock; READ_ONCE */
	u64 seal_start;			/* chunk: what the origin begins with; disk/seal.c */
	u32 seal_generation;
	enum cowsnap_seal_state seal_state;
	struct work_struct extend_work;	/* disk/prepare.c, these four */
	struct work_struct mark_work;
	struct delayed_work note_work;
	struct delayed_work alone_work;
	struct work_struct fail_work;

	struct delayed_work zone_work;	/* disk/checkpoint.c */
	struct delayed_work current_work;	/* disk/current.c */

	/* What was redirected is brought home: admin/settle.c. */
	struct delayed_work settle_work;
	struct cow_settle settle;
	/* Dead CURRENT versions leave the map and then the disk: admin/reclaim.c. */
	struct mutex dead_lock;
	bool dead_left;			/* the disk may have some that the map has not; READ_ONCE */

	/* A merge: admin/merge.c. */
	struct cow_snap *merging;	/* as the superblock has it; state_lock, READ_ONCE */
	u64 merge_chunk;		/* what is below is merged, durably; READ_ONCE */
	struct cow_left left;
	struct cow_merge *merge;	/* at work on it; admin_lock */
	struct workqueue_struct *merge_wq;	/* NULL before the first one; admin_lock */

	/* Trackers: admin/track.c. */
	struct list_head trackers;	/* struct cow_tracker: RCU; track_lock and state_lock */
	struct mutex track_lock;	/* and what is written of them */
	struct list_head track_waiting;	/* struct cow_bio, for a mark; state_lock */
	struct work_struct track_work;	/* marks regions */
	struct delayed_work track_idle_work;	/* takes marks away */
	void *track_page;		/* blocks that are written or read; track_lock */
	bool has_tracked;		/* what INCOMPAT_TRACK says; records_lock */
	bool lost_unsaid;		/* the disk was not told of a lost one; track_lock */

	/* Reads that are under way: store/readers.c. */
	atomic_t nr_reads[2];
	unsigned int read_turn;		/* where new ones are counted; reclaim_work alone */

	/* Reads that are verified: disk/verify.c. */
	struct list_head checks;	/* struct cow_bio; reads_lock */
	struct work_struct check_work;
	mempool_t check_pool;
	atomic64_t unverified;		/* reads of parts of large chunks */
	atomic64_t bad_checksums;

	/* Transient stores, copies kept in memory: copy/undo.c, under state_lock. */
	struct list_head undo;		/* their struct cow_job; not those being written */
	sector_t sectors_in_undo;	/* of these, in whole pages */
	struct rb_root_cached kept;	/* all of them */
	unsigned int nr_undo;		/* READ_ONCE without the lock */
	sector_t undo_sectors;
	unsigned int undo_reserved;	/* KiB; admin_lock */
	unsigned int undo_closed;	/* times: nothing more is kept */
	unsigned int undo_rests;	/* so many copies are not kept */
	sector_t undo_timed;		/* so much is still being written, and is timed */
	u64 undo_until_ns;		/* it is slow from then on; ktime_get_ns() */
	struct delayed_work undo_work;

	/* Under state_lock. */
	struct cow_space space ____cacheline_aligned_in_smp;
	struct rb_root_cached pendings;	/* copy/pending.c */
	unsigned int nr_pendings;	/* copy/pending.c, copy/publish.c */
	unsigned int nr_needed;		/* of these, without those of settling; READ_ONCE */
	unsigned int nr_long;		/* long ones that writes need: copy/pending.c; READ_ONCE */
	enum cow_store_blocked blocked;	/* store/state.c; READ_ONCE */
	struct list_head waiting;	/* struct cow_bio, while it is blocked */
	enum cow_snap_state fail_state;	/* what the snapshots become */
	u64 nr_current;			/* chunks of CURRENT versions; READ_ONCE */
	u64 redirected;			/* chunks that became such since it was opened */
	u64 settled;			/* chunks that were brought home since then */
	unsigned int nr_settling;	/* pendings of copies that settling needs */
	bool current_failed;		/* one could not be written: READ_ONCE */
	struct list_head current_waiting;	/* struct cow_bio, for a note: disk/current.c */
	bool invalid_not_on_disk;	/* the disk could not be told of it */
	bool extend_failed;		/* no table blocks were made ready, at the last try */
	bool extend_waited;		/* it is blocked until some are, or cannot be; READ_ONCE */
	bool extend_hurried;		/* it will be soon; READ_ONCE */
	bool closing;			/* READ_ONCE */
	struct cow_zone zone[COWSNAP_ZONES];	/* of the log: store/zones.c */
	u64 zone_segment;		/* where the next one is looked for */
	bool zones_ending;		/* they are to be left, since the store is full */
	bool zones_stuck;		/* and cannot be, for now */
	bool below_water;		/* not at low_water yet: store/room.c, admin/tuning.c */
	unsigned int nr_snaps;		/* store/snapshots.c, admin/snapshots.c */
	u64 reclaims_wanted;		/* runs of reclaim_work asked for */
	u64 reclaims_done;		/* the last request that has been dealt with */
	/* Writes in place of a dropped snapshot: admin/full.c, admin/reclaim.c; admin_lock. */
	bool own_to_end;
	unsigned int own_turn;		/* counter that new private pendings are in */
	unsigned int nr_own[2];		/* private pendings; see reclaim_await_own() */
	struct delayed_work reclaim_work;	/* admin/reclaim.c */
	struct delayed_work full_work;	/* admin/full.c */
	/* By the engine's worker; READ_ONCE. */
	u64 zero_chunks;		/* all-zero ones, not written */
	u64 copied_chunks;		/* copied for the sake of the origin */
	u64 freed_chunks;		/* by reclaim; state_lock */
	wait_queue_head_t idle;		/* pendings or reads have gone, or nothing may rest */
};

/* Is it persistent, and has it got superblocks yet? Any context. */
static inline bool cow_store_is_formatted(const struct cow_store *store)
{
	return store->meta && READ_ONCE(store->space.blocks);
}

/* Snapshots up to this epoch may lack versions; 0: none. Any context. */
static inline u32 cow_store_damage(const struct cow_store *store)
{
	return max(READ_ONCE(store->damage_epoch), READ_ONCE(store->lost_epoch));
}

/* Are copies, and writes that are redirected, committed by a log? Any context. */
static inline bool cow_store_logs(const struct cow_store *store)
{
	unsigned int mode = READ_ONCE(store->options.log);

	return mode == COWSNAP_LOG_ON ||
	       (mode == COWSNAP_LOG_REDIRECTED && READ_ONCE(store->options.redirect));
}

/*
 * How large a region is copied around a write, in sectors. Nothing where writes are redirected:
 * what is copied before it is written is written home, where else it would go to the log.
 */
static inline sector_t cow_store_around(const struct cow_store *store)
{
	if (READ_ONCE(store->options.redirect))
		return 0;
	return (sector_t)READ_ONCE(store->options.copy_around) << (10 - SECTOR_SHIFT);
}

/* How far this store may be copied to ahead of a writer, in sectors. As above. */
static inline sector_t cow_store_ahead(const struct cow_store *store)
{
	if (READ_ONCE(store->options.redirect))
		return 0;
	return (sector_t)READ_ONCE(store->options.copy_ahead) << (10 - SECTOR_SHIFT);
}

static inline sector_t cow_chunk_to_sector(const struct cow_store *store, u64 chunk)
{
	return (sector_t)chunk << store->chunk_shift;
}

static inline u64 cow_sector_to_chunk(const struct cow_store *store, sector_t sector)
{
	return sector >> store->chunk_shift;
}

/* The chunks of @store that sectors of the origin touch and a snapshot covers. Any context. */
static inline u64 cow_covered_chunks(const struct cow_store *store, sector_t sector,
				     sector_t nr_sectors, u64 *first)
{
	sector_t end = min(sector + nr_sectors, READ_ONCE(store->protect_sectors));

	if (sector >= end)
		return 0;
	*first = cow_sector_to_chunk(store, sector);
	return cow_sector_to_chunk(store, end - 1) - *first + 1;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: contracts between the module's own files.
 *
 * Grouped by the file that keeps each contract. Everything here is private to
 * the module; the tables, status lines and messages users see are in README.md.
 *
 * Lock order, outermost first:
 *
 *   registry_mutex      list of origins, references on origin/store/snapshot
 *   origin->admin       create, delete, grow and close: one at a time for an origin
 *   store->records_lock superblocks and records of snapshots on disk
 *   meta->lock          blocks of tables in memory
 *   map->writer         changes of the map of completed exceptions
 *   origin->lock        pending exceptions, parked bios, room, states
 *   origin->end_lock    tracked reads, their rests, what ends of bios move (irqs off)
 *   engine->lock        queues and pages of the copy engine (interrupts off)
 *
 * The map of completed exceptions is read under RCU with no lock at all.
 */
#ifndef DM_COWSNAP_H
#define DM_COWSNAP_H

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/device-mapper.h>
#include <linux/list.h>
#include <linux/maple_tree.h>
#include <linux/mempool.h>
#include <linux/mutex.h>
#include <linux/percpu-refcount.h>
#include <linux/rbtree.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "uapi/dm-cowsnap-format.h"

#define COWSNAP_VERSION "0.2.0"

#define DM_MSG_PREFIX "cowsnap"

/* Words for ti->error, with values in them. Context: any. */
__printf(2, 3) void cow_fail(char **error, const char *format, ...);

/* Largest chunk, in sectors (8 MiB), and so the least room of the copy engine. */
#define COW_MAX_CHUNK_SECTORS	16384U

/* A run of chunks copied as one job is no longer than this unless one chunk is. */
#define COW_RUN_SECTORS		2048U

/* Most chunks in one run: one bit each says which of them are all zero. */
#define COW_RUN_CHUNKS		256U

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-exception.c: which version of a chunk is where
 * ---------------------------------------------------------------------------
 */

/* Order matters: versions from COW_PRIVATE on belong to one epoch alone. */
enum cow_kind {
	COW_COPIED,		/* old data of the origin, in the store */
	COW_ZERO,		/* old data of the origin, all zero, not written */
	COW_PRIVATE,		/* written through a snapshot, in the store */
	COW_PRIVATE_ZERO,	/* zeroed through a snapshot, not written */
	COW_HOME,		/* no exception: the origin itself (never stored) */
};

static inline bool cow_kind_is_private(enum cow_kind kind)
{
	return kind == COW_PRIVATE || kind == COW_PRIVATE_ZERO;
}

/* Is there data at its place? */
static inline bool cow_kind_has_data(enum cow_kind kind)
{
	return kind == COW_COPIED || kind == COW_PRIVATE;
}

/* Epochs count from 1 in memory; 0 means "none". 28 bits of them fit an entry. */
#define COW_EPOCH_MAX	COWSNAP_MAX_EPOCH

/* Highest number of chunks that a store can have, and the origin of a transient one. */
#define COW_CHUNKS_MAX	BIT_ULL(COWSNAP_CHUNK_BITS)

/* Of the origin of a persistent one. */
#define COW_WIDE_MAX	BIT_ULL(COWSNAP_WIDE_BITS)

static inline u64 cow_origin_chunks_max(char persistence)
{
	return persistence == 'P' ? COW_WIDE_MAX : COW_CHUNKS_MAX;
}

struct cow_map {
	struct maple_tree leaves;	/* first chunk .. last chunk -> struct cow_leaf */
	struct mutex writer;		/* one at a time changes the map */
	u64 nr_entries;			/* packed entries */
	u64 nr_chunks;			/* exceptions: chunks times versions */
	u64 nr_bytes;			/* memory of the leaves */
	bool alone;			/* nobody reads it yet: leaves change where they are */
};

/* A run of chunks that one exception, or home, answers for. */
struct cow_extent {
	u64 chunk;		/* first chunk */
	u64 nr;			/* how many chunks follow in order, at least 1 */
	u64 place;		/* chunk in the store of the first one; see cow_placeless() */
	u32 epoch;		/* newest epoch that the version belongs to */
	enum cow_kind kind;
};

/*
 * The place of a version without one: zeroes in a transient store. (In a persistent store
 * every version has a slot, and with it a place.) The number of the chunk is part of it,
 * so that runs of such versions are runs of places, too.
 */
static inline u64 cow_placeless(u64 chunk)
{
	return COW_CHUNKS_MAX + chunk;
}

/* Does the version have a chunk of the store? */
static inline bool cow_has_place(const struct cow_extent *ext)
{
	return ext->kind != COW_HOME && ext->place < COW_CHUNKS_MAX;
}

/* Epochs of the live snapshots of a store, ascending. Replaced whole under RCU. */
struct cow_live {
	struct rcu_head rcu;
	unsigned int nr;
	u32 epoch[];
};

int cow_exception_init(void);
void cow_exception_exit(void);

void cow_map_init(struct cow_map *map);
/* No reader may be left. May sleep. */
void cow_map_destroy(struct cow_map *map);

/*
 * May an origin write touch @chunk without a copy, because no epoch in @live
 * still sees it at home? Returns for how many chunks, from 1 to @nr, the answer
 * is the same.
 * Context: any; takes the RCU read lock itself. @live under RCU or held.
 */
u64 cow_map_preserved(struct cow_map *map, const struct cow_live *live,
		      u64 chunk, u64 nr, bool *preserved);

/*
 * What the snapshot of @epoch sees at @chunk and, in the same run, after it (at
 * most @nr chunks). Always fills @ext: kind COW_HOME where there is no exception.
 * Context: any; takes the RCU read lock itself.
 */
void cow_map_lookup(struct cow_map *map, u64 chunk, u64 nr, u32 epoch,
		    struct cow_extent *ext);

/*
 * Add the run @ext. A version of the same epoch and of the same sort (private or
 * not) is replaced; where @taken_over is not 0 the copied version of that epoch
 * goes away in the same step. Readers see each leaf before or after, never between.
 * Context: may sleep. 0, or -ENOMEM with nothing lost: the first part of the run may be
 * added already. @ext becomes what is left to add, which the caller tries again.
 */
int cow_map_insert(struct cow_map *map, struct cow_extent *ext, u32 taken_over);

/*
 * Take versions that no epoch of @live falls on out of the leaf at @chunk (of those
 * with epochs up to @up_to: what is newer than @live is left alone), and tell @freed of
 * each run. Returns the chunk after the leaf, 0 after the last one. Without memory
 * nothing happens and the leaf is left for another time.
 * Context: as cow_map_insert(); @live (NULL: none) must stay.
 */
u64 cow_map_reclaim(struct cow_map *map, const struct cow_live *live, u32 up_to,
		    u64 chunk, void (*freed)(void *context, const struct cow_extent *ext),
		    void *context);

/*
 * How many chunks of the store does each epoch of @live alone keep, from the leaf at
 * @chunk? Adds to @owned, an array like @live->epoch. Returns as cow_map_reclaim().
 */
u64 cow_map_owned(struct cow_map *map, const struct cow_live *live, u64 chunk,
		  u64 *owned);

/*
 * For how many chunks, from the first of @ext on, does no epoch of @live (NULL: none) but
 * @epoch fall on the copied version @ext? At most @ext->nr.
 * Context: any; takes the RCU read lock itself. @live must stay.
 */
u64 cow_map_sole(struct cow_map *map, const struct cow_live *live,
		 const struct cow_extent *ext, u32 epoch);

/*
 * The next chunk from @chunk on for which @epoch has a version. False: no more.
 * Context: process; takes the RCU read lock itself.
 */
bool cow_map_next(struct cow_map *map, u64 chunk, u32 epoch, struct cow_extent *ext);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-known.c: chunks known to be preserved
 * ---------------------------------------------------------------------------
 */

/* 64 KiB; with chunks of 4 KiB they speak of 1 GiB. */
#define COW_KNOWN_WORDS	8192U
#define COW_KNOWN_BITS	32U

struct cow_known {
	u64 *word;			/* NULL: no memory, so nothing is known */
};

void cow_known_init(struct cow_known *known);
void cow_known_exit(struct cow_known *known);
/*
 * These chunks are preserved for all live snapshots, and no tracked read of them is
 * left. Any context; the origin's gate held open.
 */
void cow_known_add(struct cow_known *known, u64 first, u64 nr);
/* A snapshot is being made. The gate is shut. */
void cow_known_forget(struct cow_known *known);

/* Bits for those of @nr chunks from @first on that share its word. */
static inline u32 cow_known_mask(u64 first, u64 nr)
{
	unsigned int low = first % COW_KNOWN_BITS;
	u64 high = min_t(u64, low + nr, COW_KNOWN_BITS);

	return GENMASK(high - 1, low);
}

/* Are all of these known? At least one. Any context. */
static inline bool cow_known_all(const struct cow_known *known, u64 first, u64 nr)
{
	u64 end = first + nr;

	if (unlikely(!known->word))
		return false;
	do {
		u64 number = first / COW_KNOWN_BITS;
		u32 mask = cow_known_mask(first, end - first);
		/* Before the write that it allows; pairs with word_add(). */
		u64 word = smp_load_acquire(&known->word[number % COW_KNOWN_WORDS]);

		if (word >> 32 != number || ~(u32)word & mask)
			return false;
		first = (number + 1) * COW_KNOWN_BITS;
	} while (first < end);
	return true;
}

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-kcopyd.c: the copy engine
 * ---------------------------------------------------------------------------
 */

struct cow_engine;
struct cow_job;

/* A buffer page of the engine. */
struct cow_page {
	struct page *page;
	struct cow_page *next;
};

/* A chain of them; with @nr 0 the pointers mean nothing. */
struct cow_pages {
	struct cow_page *first, *last;
	unsigned int nr;
};

struct cow_job_ops {
	/*
	 * The source is in memory: issue writes with cow_job_write(). Called even
	 * if reading failed (job->read_status). Context: the engine's worker. May
	 * sleep.
	 */
	void (*ready)(struct cow_job *job);
	/* Every write has ended; the job is the caller's again. Same context. */
	void (*done)(struct cow_job *job);
};

/* Around each bio of the engine. */
struct cow_io {
	struct cow_job *job;
	blk_status_t *status;		/* gets what goes wrong */
	struct bio bio;
};

/* One read, any number of writes. Embedded in what it is for. */
struct cow_job {
	struct list_head node;		/* a queue of the engine */
	const struct cow_job_ops *ops;
	struct cow_engine *engine;
	struct block_device *bdev;	/* source; NULL reads as zeroes */
	sector_t sector;
	unsigned int nr_sectors;
	unsigned int pad_sectors;	/* zeroes after what is read */
	blk_status_t read_status;
	bool written;			/* stage: reading, then writing */
	bool urgent;			/* goes first, whatever the throttle says */
	bool speculative;		/* nobody waits for it yet; engine->lock once queued */
	bool queued;			/* waits for pages; engine->lock */
	bool patient;			/* may wait for others to be written with */
	bool keep;			/* with its pages, until it is resumed or dropped */
	atomic_t ios;			/* bios under way, plus one while issuing */
	ktime_t begun, ended;		/* reading or writing; begun 0: nothing to write */
	struct cow_io io;		/* for what lies in one page, if nothing else has it */
	struct bio_vec vec;
	bool io_busy;
	struct cow_pages pages;
	/* Where the last walk through the pages stood: walks go forward. */
	struct cow_page *cursor;
	unsigned int cursor_index;
};

struct cow_engine_stats {
	u64 jobs;			/* read */
	u64 read_sectors;
	u64 written_sectors;
	u64 page_waits;			/* jobs put back for lack of pages */
	u64 throttled;			/* pauses taken for throttle */
	u64 kib;			/* memory in pages now; no counter */
};

/*
 * An engine for the origin on @bdev. If that rotates, the way to the store may cost more
 * than writing there. The worker, a work item on a workqueue of its own, calls @hook once
 * a round, between the end of old copies and the start of new ones. Nothing that runs in
 * the worker may wait for the engine. May sleep. ERR_PTR on failure.
 */
struct cow_engine *cow_engine_create(struct block_device *bdev,
				     void (*hook)(void *context), void *context);
/* No job may be left. May sleep. */
void cow_engine_destroy(struct cow_engine *engine);
/*
 * Have room for at least one job of @sectors. origin->admin held, may sleep. 0, or -ENOMEM
 * with nothing changed.
 */
int cow_engine_reserve(struct cow_engine *engine, unsigned int sectors);
/*
 * Jobs may keep pages for so many sectors more, or (negative) fewer: then the worker frees
 * pages as they come back. May sleep. 0, or -ENOMEM with nothing changed.
 */
int cow_engine_buffer(struct cow_engine *engine, long sectors);
/*
 * Go on with @nr jobs that were kept, a list by their nodes, which is empty after that:
 * ->ready is called again. Any context.
 */
void cow_engine_resume(struct cow_engine *engine, struct list_head *jobs, unsigned int nr);
/* Somebody waits for a job that was speculative, queued or not. Any context. */
void cow_engine_need(struct cow_engine *engine, struct cow_job *job);
/* What was kept is not needed. Any context. */
void cow_engine_drop(struct cow_engine *engine, struct cow_job *job);
/* Longest job, in sectors, that the pages of the engine can hold. Any context. */
unsigned int cow_engine_job_sectors(struct cow_engine *engine);
/* Queue a job. Context: any, never sleeps. */
void cow_engine_submit(struct cow_engine *engine, struct cow_job *job);
/* Run the worker once more, for owners that share its context. Any context. */
void cow_engine_kick(struct cow_engine *engine);
/* The same after @delay jiffies from now; a delay before that no longer counts. Any context. */
void cow_engine_kick_later(struct cow_engine *engine, unsigned long delay);
/* Wait until the worker has run. May sleep. */
void cow_engine_flush(struct cow_engine *engine);
/* Percent of time that may be spent copying, 1 to 100; 100 is no limit. */
void cow_engine_set_throttle(struct cow_engine *engine, unsigned int percent);
unsigned int cow_engine_throttle(struct cow_engine *engine);
/* Is the store memory: did the last write end while it was submitted? Any context. */
bool cow_engine_writes_at_once(struct cow_engine *engine);
/* Copy without rest while the caller, who rests himself, keeps others waiting. */
void cow_engine_set_hurry(struct cow_engine *engine, bool hurry);
void cow_engine_read_stats(struct cow_engine *engine, struct cow_engine_stats *out);
void cow_engine_reset_stats(struct cow_engine *engine);

/*
 * Only from ->ready. Write part of the job, with REQ_ flags @flags; @status gets
 * the first error.
 */
void cow_job_write(struct cow_job *job, unsigned int offset_sectors,
		   unsigned int nr_sectors, struct block_device *bdev,
		   sector_t sector, blk_opf_t flags, blk_status_t *status);
/* Only from ->ready. crc32c of part of the job, on top of @seed. */
u32 cow_job_crc(struct cow_job *job, unsigned int offset_sectors,
		unsigned int nr_sectors, u32 seed);
/* Only from ->ready. Copy what lies @offset_sectors into the job to all of @bio. */
void cow_job_copy_to_bio(struct cow_job *job, unsigned int offset_sectors,
			 struct bio *bio);
/* Only from ->ready. Is this part of the job all zero? */
bool cow_job_is_zero(struct cow_job *job, unsigned int offset_sectors,
		     unsigned int nr_sectors);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-space.c: the room of a store
 * ---------------------------------------------------------------------------
 */

struct cow_space {
	struct xarray segments;		/* number -> bitmap of chunks in use */
	const struct cowsnap_geometry *geometry;	/* NULL: no tables */
	u64 nr_chunks;			/* of the device */
	u64 total;			/* of them, can hold something */
	u64 used;
	u64 table_chunks;		/* tables of the segments reached so far */
	u64 table_end;			/* chunk where the next such segment begins */
	u64 nr_segments;		/* how many there are before it */
	u32 blocks;			/* table blocks made ready */
	u32 max_blocks;			/* of all tables on the device */
	u64 cursor_segment;		/* where to look next */
	u32 cursor_slot;
};

void cow_space_init(struct cow_space *space, const struct cowsnap_geometry *geometry,
		    u64 nr_chunks);
void cow_space_destroy(struct cow_space *space);
void cow_space_resize(struct cow_space *space, u64 nr_chunks);
/*
 * Up to @nr chunks in a row from *@place on. Returns how many; 0: none that is
 * ready, or no memory. origin->lock held.
 */
u32 cow_space_alloc(struct cow_space *space, u32 nr, u64 *place);
/* Give chunks back. origin->lock held. */
void cow_space_free(struct cow_space *space, u64 place, u32 nr);
/* This chunk holds something. -ERANGE, -EEXIST, -ENOMEM. Only while loading. */
int cow_space_take(struct cow_space *space, u64 place);
/* Chunks that can hold something now, used ones included. */
u64 cow_space_ready(const struct cow_space *space);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-store.c: stores and the snapshots in them
 * ---------------------------------------------------------------------------
 */

struct cow_origin;
struct cow_bio;
struct cow_pending;
struct cow_meta;
struct cow_merge;
struct cow_loader;

/* In the order in which a snapshot goes through them; see cow_snap_set_state(). */
enum cow_snap_state {
	COW_SNAP_LOADED,	/* a table names it, none has been resumed yet */
	COW_SNAP_LIVE,
	COW_SNAP_MERGING,	/* on its way back into the origin */
	COW_SNAP_MERGED,
	COW_SNAP_OVERFLOWED,	/* the store was full */
	COW_SNAP_DROPPED,	/* given up to make room */
	COW_SNAP_INVALID,	/* an error cost it its contents */
};

/* Options of a store; in a persistent one they last. 0 in a table: not given. */
struct cow_options {
	unsigned int on_full;		/* enum cowsnap_on_full; in a table plus one */
	unsigned int wait_timeout;	/* seconds, 1 to 119 */
	unsigned int throttle;		/* percent of time, 1 to 100 */
	unsigned int low_water;		/* percent used, 1 to 100 */
	unsigned int copy_ahead;	/* KiB, 0 to COW_AHEAD_MAX; in a table plus one */
	unsigned int copy_around;	/* KiB, 0 or a power of two from 32 on; the same */
	unsigned int undo_buffer;	/* KiB, 0 to COW_UNDO_MAX; the same */
};

#define COW_UNDO_MAX		1048576U
#define COW_AROUND_MIN		32U
#define COW_AROUND_MAX		1024U
#define COW_AHEAD_MAX		65536U

#define COW_WAIT_TIMEOUT	60U

/* What a table says of a snapshot. */
struct cow_snap_args {
	char persistence;		/* 'N' or 'P', 0: as the store has it */
	bool overflow_apart;		/* 'O' followed it */
	bool writable;			/* the table is, so the store must be */
	bool create;			/* make this id */
	bool merge;			/* to merge it, not to use it */
	bool takes_over;		/* from a device that has it and is suspended */
	unsigned int chunk_sectors;	/* 0: as the store has it */
	unsigned int id;
	sector_t nr_sectors;
};

/* Has the disk been told that a snapshot may have versions of its own? */
enum cow_snap_mark {
	COW_MARK_NONE,
	COW_MARK_WANTED,
	COW_MARK_WRITTEN,
};

/* One view of the origin at one instant; shared by all tables that name it. */
struct cow_snap {
	struct list_head node;		/* store->snaps, by epoch once it has one */
	struct cow_store *store;
	unsigned int nr_tables;		/* references, under registry_mutex */
	unsigned int id;
	unsigned int record;		/* number of its record in a persistent store */
	u32 epoch;			/* 0 until live */
	sector_t nr_sectors;
	u64 time;			/* of creation, seconds since 1970 */
	bool overflow_apart;		/* NO, PO: report Overflow */
	enum cow_snap_state state;	/* written under origin->lock */
	enum cow_snap_mark mark;	/* from NONE to WANTED under origin->lock */
};

/* Why writes that need a copy have to wait for the whole store. */
enum cow_store_blocked {
	COW_STORE_OPEN,
	COW_STORE_PREPARING,	/* table blocks are made ready, a snapshot is marked */
	COW_STORE_FULL,		/* for on_full to do what it says */
	COW_STORE_FAILING,	/* for the mark "invalid" to be on disk */
};

/* A device that keeps old chunks of one origin. */
struct cow_store {
	struct list_head node;		/* origin->stores: RCU, under origin->lock */
	struct list_head all_node;	/* origin->all_stores, under registry_mutex */
	struct cow_origin *origin;
	struct block_device *bdev;
	unsigned int refs;		/* tables, under registry_mutex */
	struct list_head snaps;		/* changed under origin->admin and ->lock */
	struct xarray ids;		/* id -> struct cow_snap, as snaps */
	struct list_head tables;	/* struct snap_target; see dm-cowsnap.c */
	char persistence;		/* 'N' or 'P' */
	unsigned int chunk_sectors;
	unsigned int chunk_shift;
	bool writable;
	bool early;			/* opened before its origin had a length */
	struct cow_options options;	/* under origin->lock */

	struct cow_map map;
	struct cow_known known;
	struct cow_live __rcu *live;	/* replaced under origin->lock */
	sector_t protect_sectors;	/* of the origin; grows under origin->lock */
	u32 epoch;			/* last one given out */

	/* Persistent stores only. */
	struct cow_meta *meta;		/* NULL: transient */
	struct mutex records_lock;	/* superblocks and records on disk */
	struct xarray records;		/* number of a record -> struct cow_snap */
	struct xarray record_chunks;	/* number of a chunk of records -> place + 1 */
	u64 super_sequence;		/* of the last superblock or record written */
	u32 invalid_epoch;		/* records up to it may not say so; 0: they do */
	enum cow_snap_state invalid_state;	/* what they should say */
	sector_t origin_sectors;	/* as the superblock has it */
	struct cow_snap *merging;
	struct cow_merge *merge;	/* at work on it */
	struct workqueue_struct *merge_wq;	/* NULL before the first one */
	u64 merge_chunk;		/* what is below is merged, durably */
	u32 damage_epoch;		/* see the format; 0: all tables could be read */
	u32 damaged_blocks;
	u32 damage_mark;		/* which */
	struct cow_loader *loader;	/* what is not settled yet: see cow_load_settle() */
	struct work_struct extend_work;
	struct work_struct mark_work;
	struct delayed_work note_work;	/* see cow_super_note() */
	u64 said_durable;		/* what the superblock says; records_lock */
	u64 noted_durable;		/* what it was a second ago; note_work */
	struct work_struct fail_work;
	struct list_head checks;	/* reads to be verified; origin->end_lock */
	struct work_struct check_work;
	atomic64_t unverified;		/* reads of parts of large chunks */
	atomic64_t bad_checksums;

	/* Transient stores: copies kept in memory. */
	struct list_head undo;		/* their struct cow_job; not those being written */
	unsigned int nr_in_undo;	/* on that list */
	struct rb_root_cached kept;	/* all of them */
	unsigned int nr_undo;		/* READ_ONCE without the lock */
	sector_t undo_sectors;
	unsigned int undo_reserved;	/* KiB; origin->admin */
	unsigned int undo_closed;
	struct delayed_work undo_work;

	/* Under origin->lock. */
	struct cow_space space;
	struct rb_root_cached pendings;
	unsigned int nr_pendings;
	enum cow_store_blocked blocked;
	enum cow_snap_state fail_state;	/* what the snapshots become */
	bool unmarked;			/* the disk could not be told of it */
	bool extend_failed;		/* no table blocks were made ready, at the last try */
	bool closing;
	u64 reclaims_wanted;		/* runs of reclaim_work asked for */
	u64 reclaims_done;		/* the last request that has been dealt with */
	unsigned int own_turn;		/* counter that new private pendings are in */
	unsigned int nr_own[2];		/* private pendings; see reclaim_await_own() */
	bool below_water;		/* low_water not crossed yet */
	unsigned int nr_snaps;
	struct work_struct reclaim_work;
	struct list_head waiting;	/* bios, while it is blocked */
	struct delayed_work full_work;
	u64 zero_chunks;		/* all-zero ones, not written */
	u64 copied_chunks;		/* copied for the sake of the origin */
	u64 freed_chunks;		/* by reclaim */
	wait_queue_head_t idle;		/* a pending has gone */
	struct work_struct event_work;
};

/*
 * Find or make the store on @bdev for @origin; takes a reference. NULL with words
 * for ti->error in @error. Context: may sleep (a persistent store is read),
 * registry_mutex held.
 */
struct cow_store *cow_store_get(struct cow_origin *origin, struct block_device *bdev,
				const struct cow_snap_args *args, char **error);
/* Drop one. Waits for the last pendings. Context: as cow_store_get(). */
void cow_store_put(struct cow_store *store);
/*
 * LVM opens stores before the device of the origin has its first table. Now it has:
 * take from it, and check, what could not be before. origin->admin held.
 */
int cow_store_meet_origin(struct cow_store *store);
/* Find snapshot args->id of @store, or prepare to make it; takes a reference. */
struct cow_snap *cow_snap_get(struct cow_store *store, const struct cow_snap_args *args,
			      char **error);
/* Drop it. Context: may sleep, registry_mutex held. */
void cow_snap_put(struct cow_snap *snap);
/* The snapshot with this id, or NULL. registry_mutex or origin->admin held. */
struct cow_snap *cow_snap_find(struct cow_store *store, unsigned int id);
/*
 * A snapshot in memory alone, of @state, in @store. NULL: no memory, or the id is
 * taken. registry_mutex or origin->admin held.
 */
struct cow_snap *cow_snap_add(struct cow_store *store, unsigned int id,
			      enum cow_snap_state state);
/* Is it persistent, and has it got superblocks yet? Any context. */
static inline bool cow_store_is_formatted(const struct cow_store *store)
{
	return store->meta && READ_ONCE(store->space.blocks);
}

/* The one place where a snapshot's state changes. origin->lock held. */
void cow_snap_set_state(struct cow_snap *snap, enum cow_snap_state state);
/* Protect what is in the store from now on. Context: may sleep. */
int cow_store_activate(struct cow_store *store);
/*
 * Make @snap live, or give it its new length, as of one instant of the origin.
 * Context: may sleep.
 */
int cow_snap_activate(struct cow_snap *snap, sector_t nr_sectors);
/* The messages. Context: may sleep. Negative errno, said in the log as well. */
int cow_store_create_snap(struct cow_store *store, unsigned int id);
int cow_store_delete_snap(struct cow_store *store, unsigned int id);
int cow_store_set_options(struct cow_store *store, const struct cow_options *given);

/* Take in that the device has grown. Context: may sleep. */
void cow_store_resize(struct cow_store *store);

/*
 * One funnel for all that ends a store's snapshots: they get @state (a persistent
 * store is told first), the origin stops caring for them, the log gets a line,
 * waiters get an event.
 * Context: any but irq; the second with origin->lock held.
 */
void cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			  const char *why);
void __cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			    const char *why);
/*
 * Room for up to @nr chunks in a row at *@place. Returns how many, or 0.
 * origin->lock held.
 */
u32 cow_store_room(struct cow_store *store, u32 nr, u64 *place);
/*
 * After cow_store_room() found nothing: do what has to be done about it. Then, if
 * store->blocked, bios have to wait for the store; else, if it is full, it is what
 * @must says: its snapshots are gone, or a snapshot's own write finds no room
 * (-ENOSPC); else memory is short (-ENOMEM). origin->lock held.
 */
int cow_store_no_room(struct cow_store *store, bool must);
/* What waited for the store decides again. origin->lock held. */
void cow_store_unblock(struct cow_store *store);
/* Without waiting any longer: the origin is about to be suspended. */
void cow_store_stop_waiting(struct cow_store *store);
/* Versions may have lost their last epoch: give back what nobody needs. Any context. */
void cow_store_reclaim(struct cow_store *store);
/* Does anybody see what is in the store? Any context. */
bool cow_store_has_readers(const struct cow_store *store);
/*
 * For how many chunks of @ext, a copied version, is @epoch the only live one that falls on
 * it? origin->lock held.
 */
u64 cow_store_sole_owner(struct cow_store *store, const struct cow_extent *ext, u32 epoch);
/*
 * Does a snapshot's own write wait for the store? If not, and the store is blocked, it is
 * full. origin->lock held.
 */
bool cow_store_makes_wait(const struct cow_store *store);
/* Put the snapshots that loading has found in order of their epochs. */
void cow_store_sort_snaps(struct cow_store *store);
/* May @snap be shown what it finds here, or was something lost? Any context. */
bool cow_store_trusts(const struct cow_store *store, const struct cow_snap *snap,
		      const struct cow_extent *ext);
/* The epoch that a copy asked for now will carry. @live under RCU or held. */
u32 cow_store_copy_epoch(const struct cow_store *store, const struct cow_live *live);
/*
 * The epochs whose versions have to be kept; the caller frees them with kvfree().
 * NULL: no memory. origin->admin held.
 */
struct cow_live *cow_store_kept_epochs(struct cow_store *store);
/* Room for the epochs of all its snapshots. NULL: no memory. origin->admin held. */
struct cow_live *cow_store_alloc_live(struct cow_store *store);
/* Replace store->live by what the snapshots' states say, in @live. origin->admin held. */
void cow_store_take_live(struct cow_store *store, struct cow_live *live);
/* The same with room of its own. May sleep; -ENOMEM. */
int cow_store_renew_live(struct cow_store *store);
/* Take @snap away, from memory alone. May sleep, registry_mutex held. */
void cow_snap_forget(struct cow_snap *snap);
void cow_snaps_init(struct cow_store *store);
/* Wait for all works of the store. May sleep. */
void cow_snaps_exit(struct cow_store *store);
/* Put what @pending has ready into the map. Engine's worker. */
int cow_store_publish(struct cow_pending *pending);
extern const struct cow_job_ops cow_store_job_ops;

/* How large a region is copied around a write, in sectors. */
static inline sector_t cow_store_around(const struct cow_store *store)
{
	return (sector_t)READ_ONCE(store->options.copy_around) << (10 - SECTOR_SHIFT);
}

/* How far this store may be copied to ahead of a writer, in sectors. */
static inline sector_t cow_store_ahead(const struct cow_store *store)
{
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

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-meta.c: tables of a persistent store, and commits
 * ---------------------------------------------------------------------------
 */

struct cow_meta_stats {
	u64 commits;
	u64 block_writes;		/* bios with table blocks */
};

int cow_meta_init(void);
void cow_meta_exit(void);
/* For a store with these sizes. NULL: no memory. May sleep. */
struct cow_meta *cow_meta_create(struct cow_store *store, unsigned int block_bytes);
void cow_meta_destroy(struct cow_meta *meta);
const struct cowsnap_geometry *cow_meta_geometry(const struct cow_meta *meta);
unsigned int cow_meta_block_bytes(const struct cow_meta *meta);
/* The uuid, from then on the seed of all checksums. */
void cow_meta_set_uuid(struct cow_meta *meta, const u8 *uuid);
const u8 *cow_meta_uuid(const struct cow_meta *meta);
/* Where loading found the numbers of commits to stand: the last one, and D. */
void cow_meta_set_sequence(struct cow_meta *meta, u64 sequence, u64 durable);
u64 cow_meta_durable(const struct cow_meta *meta);
void cow_meta_read_stats(const struct cow_meta *meta, struct cow_meta_stats *out);

/* The seed for what stands at @sector of the store. Any context. */
u32 cow_meta_seed(const struct cow_meta *meta, sector_t sector);
/*
 * Read or write @bytes of kmalloc or vmalloc memory, and wait. Returns 0 or a negative
 * errno of the device: it never fails for want of memory. May sleep, but needs no memory
 * beyond the module's own reserve.
 */
int cow_meta_io(struct block_device *bdev, blk_opf_t opf, sector_t sector, void *buffer,
		size_t bytes);
/* Fill in header and crc of table block @number in @data. */
void cow_meta_seal(const struct cow_meta *meta, u64 number, sector_t sector, void *data,
		   u64 sequence, u64 durable);

/*
 * Enter what @pending will be into the tables and have it committed together with
 * its data; it is published when both are durable. @job has the data (NULL: it is
 * durable already). False: on failure pending->status is set and the caller goes on;
 * without memory for table blocks (with @job alone) pending->again is set, and what
 * @job has read is not to be written: cow_meta_data_done() has it copied again
 * when there is memory. Without @job, joining itself is tried again.
 * Engine's worker.
 */
bool cow_meta_join(struct cow_pending *pending, struct cow_job *job);
/* The data of a pending that joined has ended, well or not. Engine's worker. */
void cow_meta_data_done(struct cow_pending *pending);
/* Take the first off origin->meta_work; NULL if it is empty. origin->end_lock held. */
struct cow_meta *cow_meta_pop(struct list_head *list);
/* Take @meta off that list, if it is on it. origin->end_lock held. */
void cow_meta_unlist(struct cow_meta *meta);
/* Go on with commits. Engine's worker. */
void cow_meta_work(struct cow_meta *meta);
/* Nothing but the caller writes metadata until cow_meta_release(). May sleep. */
void cow_meta_acquire(struct cow_meta *meta);
void cow_meta_release(struct cow_meta *meta);
/* The metadata acquired: memory for one block, the caller's until the release. */
void *cow_meta_scratch(struct cow_meta *meta);
/*
 * With the metadata acquired: write the slot of @place now and durably. On failure memory
 * has the old one, and the disk may have either (-ENOMEM: nothing was written). May sleep.
 */
int cow_meta_write_slot(struct cow_meta *meta, u64 place, enum cowsnap_slot_kind kind,
			u64 chunk);
/*
 * With the metadata acquired: write both superblocks, one after the other. 0 if at least one
 * of them is durable; else the disk may have either, and later commits write the
 * old one. Changes the scratch. May sleep.
 */
int cow_meta_write_super(struct cow_meta *meta, const struct cowsnap_super *super);
/* Commit nothing more. Any context. */
void cow_meta_fence(struct cow_meta *meta);
bool cow_meta_is_fenced(const struct cow_meta *meta);
/*
 * While loading, with the metadata acquired: free the slots of @nr chunks, ascending in
 * @place. Each of their blocks is written once and says of its other slots, and of itself,
 * what it said before. Not flushed. Returns 0 or a negative errno. May sleep.
 */
int cow_meta_free_slots(struct cow_meta *meta, const u64 *place, size_t nr);
/*
 * Has this table block the right crc, perhaps after turning back one flipped bit?
 * Any context.
 */
bool cow_meta_mend_block(const struct cow_meta *meta, u64 number, sector_t sector,
			 void *data);
/* Something stands in block @number: it cannot be taken for empty. While loading. */
void cow_meta_note_used(struct cow_meta *meta, u64 number);
/* The table block as loading has found it (numbers 0 and 1 only). */
void cow_meta_keep_block(struct cow_meta *meta, u64 number, const void *data);
/* A new store: what stands after the superblocks, in their blocks, is empty. */
void cow_meta_seal_super_blocks(struct cow_meta *meta);
/* The slot of @place. May sleep; -EIO, -EBADMSG, -ENOMEM. */
int cow_meta_read_slot(struct cow_meta *meta, u64 place, struct cowsnap_slot *slot);
/* REQ_FUA if that is how writes to this store become durable, else 0. */
blk_opf_t cow_meta_fua(const struct cow_meta *meta);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-super.c: superblocks, and the records of snapshots
 * ---------------------------------------------------------------------------
 */

/* Make a new store on a device of zeroes. May sleep. */
int cow_super_format(struct cow_store *store);

/*
 * A change of what a store says of itself: of its superblocks and, where @snap is not
 * NULL, of the record of one snapshot.
 *
 *	struct cow_change change;
 *
 *	cow_change_begin(&change, store, snap);
 *	change.state = COW_SNAP_MERGING;
 *	change.merging = snap;
 *	change.merge_chunk = 0;
 *	r = cow_change_end(&change);
 *
 * cow_change_begin() fills in what memory says and keeps all others from writing
 * metadata. cow_change_end() writes the values that the caller has put there, durably,
 * and lets the others go on. Memory follows only when the disk has it:
 *
 *   0      the disk has the new values, and then memory got them: snap->state (through
 *          cow_snap_set_state()), ->mark, ->epoch, ->nr_sectors, ->time, store->merging,
 *          ->merge_chunk, ->origin_sectors, ->options, ->space.blocks. The caller sets
 *          none of these himself.
 *   -errno memory has the old values, and they have been written once more over what may
 *          have got to the disk. If that failed, too, nobody knows what the disk says.
 *          Then the store is fenced: its live snapshots become invalid, and it commits
 *          nothing more until it is opened again. A caller for whom the old and the new
 *          values are equally true as long as he keeps still sets ->either: the store is
 *          not fenced, and he tries again, or lives with either.
 *
 * A superblock counts as written when one of its two copies is: the other one has a lower
 * sequence. A record beyond the first COWSNAP_SUPER_RECORDS stands in a block of its own,
 * which is written before the superblocks if both change. A crash between the two leaves
 * the new record and the old superblock: a record "merging" that no superblock names
 * counts as live, a record "merged" counts whatever the superblock says. A change that
 * needs the other order is made in two. Of a store without metadata, or not formatted
 * yet, only memory changes.
 *
 * Context: may sleep. Between the two: no other function that writes metadata. Neither
 * origin->lock nor registry_mutex is needed, and no change is made under meta->lock.
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
	bool drop;			/* it becomes free */
	/* The superblock. */
	struct cow_snap *merging;
	u64 merge_chunk;
	sector_t origin_sectors;
	u32 blocks;
	struct cow_options options;
	u32 invalid_epoch;

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
 * Tell the disk that all live snapshots have become @state: one write, whatever becomes of
 * records in blocks of their own. Then, whether it could be told or not, @let_go is called with
 * origin->lock held, before anybody else can write metadata. May sleep.
 */
void cow_super_invalidate(struct cow_store *store, enum cow_snap_state state,
			  void (*let_go)(struct cow_store *store, enum cow_snap_state state));
/*
 * Write the records that a superblock still has to overrule since cow_super_invalidate().
 * The first error, after all have been tried. May sleep.
 */
int cow_super_settle(struct cow_store *store);
/* Find a place for a record, in a new chunk if need be. May sleep, admin held. */
int cow_super_add_record(struct cow_store *store, struct cow_snap *snap);
/* The disk does not know @snap: its place, if it has one, is free. May sleep, admin held. */
void cow_super_forget_record(struct cow_store *store, struct cow_snap *snap);
/* @snap is gone: its record is free. May sleep, admin held. */
int cow_super_drop_record(struct cow_store *store, struct cow_snap *snap);
/*
 * Read chunk @index of records. Numbers of blocks that are damaged, or cannot be read, go
 * to @lost. Returns 0, or a negative errno with words in *@error. May sleep.
 */
int cow_super_read_records(struct cow_store *store, u64 index, struct xarray *lost,
			   char **error);
/* Write block @number of records, counted over all chunks, durably. May sleep. */
int cow_super_write_records(struct cow_store *store, u64 number);
/* A snapshot as a record has it. Words in *@error. */
int cow_super_add_snap(struct cow_store *store, unsigned int number,
		       const struct cowsnap_record *record, char **error);
/* Chunks of records in the store. */
u64 cow_super_record_chunks(const struct cow_store *store);
/*
 * A commit is durable: once the store has been idle for a second the superblocks say
 * so, and nothing of it is doubted after a crash. Any context.
 */
void cow_super_note(struct cow_store *store);
void cow_super_note_work(struct work_struct *work);
void cow_super_extend_work(struct work_struct *work);
void cow_super_mark_work(struct work_struct *work);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-mend.c: metadata that a disk returns with an error or with a wrong bit
 * ---------------------------------------------------------------------------
 */

/*
 * Read @nr units of @unit_bytes each from @sector on, at once or, if that fails, one by
 * one. Those that cannot be read are zeroed and have their bits set in @unreadable. May sleep.
 */
void cow_read_units(struct block_device *bdev, sector_t sector, void *data,
		    unsigned int unit_bytes, unsigned int nr, unsigned long *unreadable);
/*
 * @data was to have the crc in @stored and has @crc: can one flipped bit explain this? Then it
 * is turned back, in one or the other. False: no, and nothing has changed. Any context.
 */
bool cow_crc_mend(void *data, size_t bytes, u32 crc, __le32 *stored);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-probe.c: what stands at the start of a device
 * ---------------------------------------------------------------------------
 */

enum cow_content {
	COW_CONTENT_NEW,		/* zeroes */
	COW_CONTENT_STORE,		/* ours */
	COW_CONTENT_DM_SNAPSHOT,	/* a store of dm-snapshot */
	COW_CONTENT_DAMAGED,		/* ours, but no superblock is whole */
	COW_CONTENT_FOREIGN,		/* something else */
	COW_CONTENT_UNREADABLE,
	COW_CONTENT_NO_MEMORY,
};

/*
 * What stands at the start of @bdev? *@super is filled in for COW_CONTENT_STORE; from
 * COW_CONTENT_DM_SNAPSHOT on there are words in *@error. May sleep.
 */
enum cow_content cow_probe(struct block_device *bdev, struct cowsnap_super *super,
			   char **error);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-load.c: opening a store
 * ---------------------------------------------------------------------------
 */

/*
 * Read it all. store->meta exists. Where the origin has a length it is settled as well; else
 * store->loader keeps what is in doubt. Returns 0, or a negative errno with words in
 * *@error. May sleep.
 */
int cow_load(struct cow_store *store, const struct cowsnap_super *super, char **error);
/*
 * Settle what is in doubt, now that the origin can be asked, and have the store say that
 * nothing is. Returns 0 (also if nothing was left to do) or a negative errno; after
 * that the store cannot be used until it is opened again. May sleep; nobody uses the store.
 */
int cow_load_settle(struct cow_store *store);
/* Forget what is in doubt, settled or not: the disk still has it. */
void cow_load_end(struct cow_store *store);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-verify.c: checksums of what snapshots read
 * ---------------------------------------------------------------------------
 */

int cow_verify_init(void);
void cow_verify_exit(void);
/*
 * @bio reads copied chunks and is about to be sent to the store. Returns how many of its
 * sectors, from its start, can be read in one way.
 */
u64 cow_verify_front(struct cow_store *store, const struct bio *bio);
/*
 * Send @cb, cut as cow_verify_front() said, to @place. DM_MAPIO_REMAPPED,
 * DM_MAPIO_SUBMITTED or -ENOMEM. Context: process, never sleeps.
 */
int cow_verify_read(struct cow_bio *cb, struct cow_store *store, u64 first, u64 place);
/* A read that is to be checked has come back. Any context. */
void cow_verify_queue(struct cow_bio *cb);
void cow_verify_work(struct work_struct *work);
/* Is the chunk at @place what is in the job? Engine's worker. */
blk_status_t cow_verify_job(struct cow_store *store, struct cow_job *job, u64 place);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-merge.c: a snapshot back into its origin
 * ---------------------------------------------------------------------------
 */

/*
 * Begin merging @snap, or try again if that failed. May sleep, origin->admin held.
 * 0: under way, or ended; else negative errno, said in the log, and nothing has changed.
 */
int cow_merge_activate(struct cow_snap *snap);
/*
 * A store is opened that was closed while @snap was being merged: get all that
 * cow_merge_start() needs. ERR_PTR, said in the log but for -ENOMEM. May sleep,
 * origin->admin held.
 */
struct cow_merge *cow_merge_prepare(struct cow_snap *snap);
/* Go on where the store says. Cannot fail. The origin is frozen. */
void cow_merge_start(struct cow_merge *merge);
/* Or forget it. @merge may be NULL or an ERR_PTR. May sleep. */
void cow_merge_discard(struct cow_merge *merge);
/*
 * Is a snapshot, of whatever store, being merged into @origin? Then the log gets a line.
 * origin->admin held.
 */
bool cow_merge_stands_in_the_way(const struct cow_origin *origin);
/* The throttle has changed: the merge need not rest for longer than that says. Any context. */
void cow_merge_hurry(struct cow_origin *origin);
/*
 * The store is closed. Stop for now, and wait until no bio uses the merge or is under way
 * to the store. May sleep, without a limit of time.
 */
void cow_merge_stop(struct cow_store *store);
/*
 * What becomes of a bio on the origin while a merge is under way, or of a flush (a bio
 * without sectors) that is meant for the merging store? As cow_origin_decide().
 */
int cow_merge_decide(struct cow_bio *cb, struct cow_bio **part);
/* Chunks still to be merged. */
u64 cow_merge_left(const struct cow_snap *snap);
/* Did it fail? */
bool cow_merge_failed(const struct cow_snap *snap);
/*
 * A bio treated as the snapshot's found no room: it waits for the merge. False: the merge
 * has failed, so that there will be none. Any context, the origin's gate held.
 */
bool cow_merge_park(struct cow_bio *cb);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-pending.c: pending exceptions, and the reads they wait for
 * ---------------------------------------------------------------------------
 */

/* How a pending exception comes by its data. */
enum cow_pending_mode {
	COW_BY_COPY,		/* the engine copies it into the store */
	COW_BY_BIO,		/* a snapshot's write brings whole chunks itself */
	COW_BY_MARK,		/* no data to move: only the map changes */
};

/*
 * A run of chunks on its way into the map. Owned by the store's tree from
 * cow_pending_add() until the copy worker takes it out; bios parked on it are
 * its own until they are released.
 */
struct cow_pending {
	struct rb_node rb;		/* store->pendings, under origin->lock */
	u64 first, last, subtree_last;	/* chunks, both inclusive */
	struct cow_store *store;
	struct list_head node;		/* on a job, then on a list of the origin */
	struct list_head parked;	/* struct cow_bio */
	struct list_head sharers;	/* of the leader: pendings its job serves */
	struct cow_pending *leader;	/* whose job brings the data, while it is under way */
	struct cow_job job;		/* used by the leader of the job alone */
	u64 place;			/* in the store, of the first chunk */
	u32 epoch;			/* of the version that it will be */
	u32 taken_over;			/* epoch of the version taken over, or 0 */
	u32 nr_zero;
	u32 nr_room;			/* chunks at place that are given back if it fails */
	unsigned int offset_sectors;	/* where the run begins in its job */
	enum cow_kind kind;
	enum cow_pending_mode mode;
	bool own;			/* a snapshot's, counted in store->nr_own[turn] */
	u8 turn;
	bool publishing;		/* counted in origin->nr_publishing */
	bool needed;			/* a write waited for part of it from the start, */
	bool exact;			/* or for all of it, and for all that its job reads */
	bool unread;			/* reading it failed */
	bool check_source;		/* the copy is of a chunk with a checksum */
	bool kept;			/* in the undo buffer */
	/* In a commit: engine's worker only. */
	struct list_head member;	/* meta->members */
	u64 ticket;			/* it is durable when this one is */
	bool joined, data_done, in_commit;
	bool again;			/* no memory to join: to be copied once more */
	blk_status_t status;
	struct cow_bio *carrier;	/* mode COW_BY_BIO: the write itself */
	unsigned long zero[BITS_TO_LONGS(COW_RUN_CHUNKS)];
	unsigned long mapped[BITS_TO_LONGS(COW_RUN_CHUNKS)];	/* in the map already */
};

int cow_pending_init(void);
void cow_pending_exit(void);
/* Context: may sleep. */
int cow_pending_pool_init(mempool_t *pool);

/* The first pending that overlaps these chunks, if any. origin->lock held. */
struct cow_pending *cow_pending_overlap(struct cow_store *store, u64 first, u64 last);
/*
 * A new pending in the tree, nothing started; @nr_room chunks from @place on are its
 * own. NULL: no memory just now. origin->lock held.
 */
struct cow_pending *cow_pending_add(struct cow_store *store, u64 first, u64 nr,
				    enum cow_kind kind, u64 place, u32 nr_room);
/*
 * Start the copy that @leader and all on its list of sharers wait for: of @nr_sectors,
 * and zeroes after them. Any context.
 */
void cow_pending_copy(struct cow_pending *leader, struct block_device *bdev,
		      sector_t sector, sector_t nr_sectors, sector_t pad_sectors);
/* Somebody waits for @pending now: its copy comes first. origin->lock held. */
void cow_pending_need(struct cow_pending *pending);
/* The copy of one that keeps old data of the origin, by itself. Engine's worker. */
void cow_pending_copy_again(struct cow_pending *pending);
/* Data that took no job has been dealt with: have it published. Any context. */
void cow_pending_finished(struct cow_pending *pending);
/* Write what @job has read to the room of @pending, but for zeroes. From ->ready. */
void cow_pending_write(struct cow_pending *pending, struct cow_job *job);
/* One whose data is kept and to be seen already, if any is here. origin->lock held. */
struct cow_pending *cow_pending_kept(struct cow_store *store, u64 first, u64 last);
/* It is no longer. origin->lock held. */
void cow_pending_forget_kept(struct cow_pending *pending);
/* The data of @pending is dealt with, or failed: publish it. Engine's worker. */
void cow_pending_publish(struct cow_pending *pending);
/* The engine's hook: what was finished or drained elsewhere. @context: the origin. */
void cow_pending_work(void *context);

/* From here on writes to what @cb reads at home wait for it. Any context. */
void cow_track_read(struct cow_bio *cb);
void cow_untrack_read(struct cow_bio *cb);

static inline sector_t cow_pending_sector(const struct cow_pending *pending)
{
	return cow_chunk_to_sector(pending->store, pending->first);
}

static inline sector_t cow_pending_end_sector(const struct cow_pending *pending)
{
	return cow_chunk_to_sector(pending->store, pending->last + 1);
}

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-undo.c: the undo buffer of transient stores
 * ---------------------------------------------------------------------------
 */

/* What a new store keeps, in KiB. */
unsigned int cow_undo_default(void);
/* Shall the copy that @job has read stay in memory for now? Engine's worker. */
bool cow_undo_keep(struct cow_pending *pending, struct cow_job *job);
/* It is in the map, and no longer pending. origin->lock held. */
void cow_undo_add(struct cow_pending *pending);
/* It did not get there. origin->lock held, let go and taken again. Engine's worker. */
void cow_undo_drop(struct cow_pending *pending);
/* If any of these chunks is kept: have it written, @cb waits. origin->lock held. */
bool cow_undo_wait(struct cow_bio *cb, u64 first, u64 nr);
/* Memory is short: have everything written. origin->lock held. */
void cow_undo_kick(struct cow_origin *origin);
/* Wait until all is written; nothing is kept before cow_undo_open(). May sleep. */
void cow_undo_flush(struct cow_store *store);
void cow_undo_open(struct cow_store *store);
/* Nobody will read it any more: forget all. May sleep. */
void cow_undo_close(struct cow_store *store);
void cow_undo_work(struct work_struct *work);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-origin.c: the origin, its gate, and the life of a write
 * ---------------------------------------------------------------------------
 */

enum cow_discard {
	COW_DISCARD_SKIP,	/* pass the preserved parts down, leave the rest */
	COW_DISCARD_PRESERVE,	/* copy first, then pass all down */
	COW_DISCARD_NONE,	/* not offered */
};

/*
 * What the module knows of a bio: in dm's per-bio data for bios from above, in
 * front of the bio for pieces cut off in a worker. Owner: map until it returns,
 * then the list it stands on, then the device below, then end_io.
 */
struct cow_bio {
	struct list_head node;		/* parked, held or deferred */
	struct bio *bio;
	struct cow_origin *origin;
	struct cow_snap *snap;		/* NULL: a write to the origin, bound for it */
	struct cow_pending *carries;	/* the pending whose data this bio brings */
	/* Tracked read: sectors of the origin, in origin->reads. */
	struct rb_node rb;
	sector_t start, last, subtree_last;
	/* A read to be verified: what is read, and from which chunk of the store. */
	struct bvec_iter iter;
	u64 place;
	struct cow_bio *rest;		/* of a bio that was cut: the piece that is left */
	struct bvec_iter left;		/* what is served after this, if its size is not 0 */
	struct work_struct work;	/* set up when it is queued */
	enum cow_discard discard;	/* as the table has it */
	bool passdown;			/* a snapshot's discard goes on to the origin */
	bool full_is_end;		/* in dm-snapshot's place: invalid if it finds no room */
	bool in_map;			/* dm may still cut it */
	bool gated;			/* counted in origin->gate */
	bool tracked;
	bool check;			/* verify when it comes back */
	bool merging;			/* the merge's own write */
	bool via_merge;			/* an origin's, treated as the merged snapshot's */
	bool piece;			/* of a bio that was cut in a worker */
	bool exact;			/* copy for it only what it needs: more was unreadable */
};

/* Somebody who writes one chunk after the other. Sectors; see dm-cowsnap-ahead.c. */
struct cow_stream {
	sector_t begin, next, done;
	u64 used;			/* cow_ahead.clock then */
};

#define COW_STREAMS	8U

struct cow_ahead {
	struct cow_stream stream[COW_STREAMS];
	u64 clock;
	sector_t most;			/* of what the stores allow */
	u64 copied;			/* all that was copied, sectors, once for a store */
	u64 copied_ahead;		/* of that, ahead of writers */
	u64 wasted;			/* of that, not come to by the stream */
};

/* See dm-cowsnap-around.c. */
struct cow_around_copied {
	u64 region;			/* its number plus one */
	u64 used;			/* a bit for each part that was written since */
};

#define COW_AROUND_SEEN_BITS	10
#define COW_AROUND_COPIED_BITS	10

struct cow_around {
	sector_t sectors;		/* of a region; 0: off */
	unsigned int shift;
	sector_t most;			/* that may be there unused */
	u64 unused;			/* sectors copied around and not written since */
	u64 copied_around;		/* all of them */
	u64 seen[1 << COW_AROUND_SEEN_BITS];	/* regions plus one: have had a first write */
	struct cow_around_copied copied[1 << COW_AROUND_COPIED_BITS];
};

/* See dm-cowsnap-pace.c. */
struct cow_pace {
	unsigned long written;		/* jiffies when the origin was, last; READ_ONCE */
	unsigned int reads;		/* under way */
	u64 busy_ns;			/* some were, in this slice, until @begun */
	ktime_t begun;
	ktime_t rest_until;
	struct list_head waiting;	/* struct cow_bio */
	struct delayed_work work;
	u64 nr_waited;
};

/* How long creating a snapshot waits for writes that the device does not finish. */
#define COW_DRAIN_JIFFIES	(60 * HZ)

struct cow_origin {
	struct list_head node;		/* registry */
	unsigned int refs;		/* registry_mutex */
	struct block_device *bdev;
	bool rotates;			/* what it is on does */
	struct workqueue_struct *wq;
	struct cow_engine *engine;
	mempool_t pending_pool;
	struct bio_set pieces;

	/* Writes on their way home; killed while a snapshot is being created. */
	struct percpu_ref gate;
	struct completion writes_drained;
	struct mutex admin;		/* one creation, growth or close at a time */

	struct list_head stores;	/* RCU; changed under lock */
	struct list_head all_stores;	/* with those not live yet; registry_mutex */
	struct list_head tables;	/* struct cow_target; see dm-cowsnap.c */

	spinlock_t lock;		/* what follows, and stores' pendings and room */
	bool suspending;		/* a table is: nobody may wait for room */
	bool holding;			/* the gate is shut: writes go to held */
	struct list_head held;		/* struct cow_bio */
	struct list_head deferred;	/* no memory just now: tried when some frees */
	unsigned int nr_pendings;

	/*
	 * Pendings that are in the map already but whose tracked reads still
	 * run. Raised before the map changes, lowered after the pending left the
	 * tree, so that a write that finds the map changed finds this raised.
	 */
	atomic_t nr_publishing;

	spinlock_t end_lock;		/* what ends of bios touch; irqs off */
	struct rb_root_cached reads;	/* tracked reads: struct cow_bio */
	struct list_head draining;	/* published pendings waiting for such reads */
	struct list_head drained;	/* those whose reads have ended */
	struct list_head finished;	/* pendings whose data needed no engine */
	struct list_head unmapped;	/* those the map had no memory for: worker only */
	unsigned long map_again;	/* jiffies when to try these; worker only */
	unsigned long map_delay;	/* then wait so long; worker only */
	struct list_head meta_work;	/* struct cow_meta with something to do */

	struct delayed_work decide_work;	/* held and deferred bios */

	struct cow_ahead ahead;		/* under lock; READ_ONCE in map */
	struct cow_around around;	/* the same */
	struct cow_merge *merge;	/* under lock; READ_ONCE in map */
	struct cow_pace pace;		/* under end_lock */
	unsigned int nr_absent;		/* stores that went away; see cow_absent_add() */

	atomic64_t held_writes;		/* held while a snapshot was created */
	atomic64_t parked_writes;
	atomic64_t skipped_discards;
};

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-ahead.c: copying ahead of sequential writers
 * ---------------------------------------------------------------------------
 */

/*
 * The origin is written from @start to @end. Returns to which sector what is not
 * preserved is to be copied: @end, or one behind it. origin->lock held.
 */
sector_t cow_ahead_note(struct cow_origin *origin, sector_t start, sector_t end);
/* The same for a write that needs no copy: is it time for cow_ahead_note()? Any context. */
bool cow_ahead_due(struct cow_origin *origin, sector_t start, sector_t end);
/* What a new store allows, in KiB. */
unsigned int cow_ahead_default(void);
/* Stores, or what they allow, have changed. origin->lock held. */
void cow_ahead_limit(struct cow_origin *origin);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-around.c: copying around writes to regions that prove hot
 * ---------------------------------------------------------------------------
 */

/* The size, in KiB, that comes nearest to @kib from below; 0 for too little. */
unsigned int cow_around_size(unsigned int kib);
/* What a new store of this origin allows, in KiB. */
unsigned int cow_around_default(struct block_device *origin);
/*
 * A write from *@start to *@end needs a copy: if it is its region's second, make them
 * those of the region and return true. origin->lock held.
 */
bool cow_around_note(struct cow_origin *origin, sector_t *start, sector_t *end);
/* The first write to what was preserved before. Process context. */
void cow_around_used(struct cow_origin *origin, sector_t start, sector_t end);
/* Stores, or what they allow, have changed. origin->lock held. */
void cow_around_limit(struct cow_origin *origin);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-pace.c: reading a snapshot beside those who write to its origin
 * ---------------------------------------------------------------------------
 */

void cow_pace_init(struct cow_pace *pace);
/* Does the read @cb of what is at home have to wait? Then it will be decided again. */
bool cow_pace_wait(struct cow_bio *cb);
/* Such a read is under way; it has ended. origin->end_lock held. */
void cow_pace_begin(struct cow_origin *origin);
void cow_pace_end(struct cow_origin *origin);
void cow_pace_work(struct work_struct *work);

/* The origin is written. Any context. */
static inline void cow_pace_note_write(struct cow_origin *origin)
{
	struct cow_pace *pace = &origin->pace;
	unsigned long now = jiffies;

	/* A line that all processors look at is written once a tick. */
	if (origin->rotates && READ_ONCE(pace->written) != now)
		WRITE_ONCE(pace->written, now);
}

extern struct mutex cow_registry_mutex;

/* Find or make. Context: may sleep, registry_mutex held. */
struct cow_origin *cow_origin_get(struct block_device *bdev, char **error);
void cow_origin_put(struct cow_origin *origin);
/* The origin on @bdev, or the store on it, if there is one. registry_mutex held. */
struct cow_origin *cow_origin_find(struct block_device *bdev);
struct cow_store *cow_store_find(struct block_device *bdev);

/*
 * A store with snapshots goes away while its origin may stay in use: remember
 * whether the origin is written, or has been, without the store knowing of it.
 * cow_absent_take() forgets it and says so.
 * Context: may sleep, registry_mutex held.
 */
void cow_absent_add(struct cow_origin *origin, const u8 *uuid, bool written);
bool cow_absent_take(struct cow_origin *origin, const u8 *uuid);
void cow_absent_exit(void);

/*
 * Decide on a bio that came to map: DM_MAPIO_REMAPPED (send it where it points
 * now), DM_MAPIO_SUBMITTED (parked, or done) or DM_MAPIO_KILL.
 * Context: process; never sleeps.
 */
int cow_bio_map(struct cow_bio *cb);
/*
 * A bio came back; a read that may have met new data becomes an error in *@status.
 * DM_ENDIO_DONE, or DM_ENDIO_INCOMPLETE if it is kept until
 * what it wrote is in the map. Context: any.
 */
int cow_bio_ended(struct cow_bio *cb, blk_status_t *status);

/*
 * The two decisions. *@part is what the answer is about: @cb, or, in a worker, a
 * piece cut off its front; then the caller goes on with the rest in @cb.
 * Context: process; never sleeps.
 */
int cow_origin_decide(struct cow_bio *cb, struct cow_bio **part);
int cow_snap_decide(struct cow_bio *cb, struct cow_bio **part);
/* Is the snapshot of @cb in a state to be read and written? Any context. */
bool cow_snap_can_be_used(const struct cow_bio *cb);

/*
 * Hold the gate open; the caller has a reference of it. False if it is shut: @cb waits for
 * it and will be decided again. Context: process.
 */
bool cow_origin_enter(struct cow_bio *cb);
/* Take a bio that has waited all the way, in pieces if need be. Worker. */
void cow_bio_run(struct cow_bio *cb);
/* No memory: decide again when some is free. Context: process. */
void cow_bio_defer(struct cow_bio *cb);
/* Have a worker take @cb. Sets @part to it, returns DM_MAPIO_SUBMITTED. Any context. */
int cow_bio_hand_over(struct cow_bio *cb, struct cow_bio **part);
/* End a bio that goes nowhere. Returns DM_MAPIO_SUBMITTED. */
int cow_bio_finish(struct cow_bio *cb, blk_status_t status);
/*
 * The first @nr_sectors of a bio: all of it, or what dm or a piece makes of it. The
 * caller goes on with what comes back, and leaves the rest alone if that is not @cb.
 * NULL, in map only: it must not wait, so it is not cut: cow_bio_hand_over().
 */
struct cow_bio *cow_bio_front(struct cow_bio *cb, u64 nr_sectors);
/* Most chunks that one pending of @store may have. Any context. */
u64 cow_run_chunks_max(struct cow_store *store);

/*
 * Shut the gate of the origin: new writes are held, those sent home have ended
 * and are flushed. Context: may sleep, origin->admin held. -ETIMEDOUT, with the
 * gate open again, if the device does not finish its writes in time.
 */
int cow_origin_freeze(struct cow_origin *origin);
/*
 * The same without the flush, waiting for @timeout jiffies. MAX_SCHEDULE_TIMEOUT: for as
 * long as it takes; then it cannot fail.
 */
int cow_origin_drain(struct cow_origin *origin, unsigned long timeout);
void cow_origin_thaw(struct cow_origin *origin);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap.c: targets
 * ---------------------------------------------------------------------------
 */

/*
 * How long the origin is for those who use it, in sectors: the longest of its tables in
 * force; without one, of its snapshots' tables; without those, its device. May sleep.
 */
sector_t cow_origin_length(struct cow_origin *origin);
/* Wake dmsetup wait on every table of every snapshot in @store. May sleep. */
void cow_snap_event(struct cow_store *store);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-claim.c: in dm-snapshot's place
 * ---------------------------------------------------------------------------
 */

enum cow_target_kind {
	COW_TARGET_ORIGIN,
	COW_TARGET_SNAP,
	COW_TARGET_MERGE,
	COW_NR_TARGETS,
};

/* Does a table of this type stand in for one of dm-snapshot's? Any context. */
bool cow_target_is_claimed(const struct target_type *type);
/*
 * If the module was told to: register dm-snapshot's names for @own as well, all or
 * none of them. May sleep. -EBUSY, said in the log, if they are taken.
 */
int cow_claim_register(struct target_type * const own[COW_NR_TARGETS]);
void cow_claim_unregister(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: contracts between the module's own files.
 *
 * Grouped by the file that keeps each contract. Everything here is private to
 * the module; the tables, status lines and messages users see are in README.md.
 *
 * Lock order, outermost first:
 *
 *   registry_mutex    list of origins, references on origin/store/snapshot
 *   origin->admin     create, grow and close: one at a time for an origin
 *   origin->lock      pending exceptions, parked bios, space, states
 *   origin->end_lock  tracked reads, and pendings that ends of bios move (irqs off)
 *   engine->lock      queues and pages of the copy engine (interrupts off)
 *
 * The map of completed exceptions is written by the copy worker of the origin
 * alone, one at a time, and read under RCU with no lock at all.
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

#define COWSNAP_VERSION "0.1.0"

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
	COW_ZERO,		/* old data of the origin, all zero, no room taken */
	COW_PRIVATE,		/* written through a snapshot, in the store */
	COW_PRIVATE_ZERO,	/* zeroed through a snapshot, no room taken */
	COW_HOME,		/* no exception: the origin itself (never stored) */
};

static inline bool cow_kind_is_private(enum cow_kind kind)
{
	return kind == COW_PRIVATE || kind == COW_PRIVATE_ZERO;
}

static inline bool cow_kind_has_place(enum cow_kind kind)
{
	return kind == COW_COPIED || kind == COW_PRIVATE;
}

/* Epochs count from 1 in memory; 0 means "none". 28 bits of them fit an entry. */
#define COW_EPOCH_MAX	((1U << 28) - 2)

/* Highest number of chunks an origin or a store can have: 36 bits. */
#define COW_CHUNKS_MAX	BIT_ULL(36)

struct cow_map {
	struct maple_tree leaves;	/* first chunk .. last chunk -> struct cow_leaf */
	u64 nr_entries;			/* packed entries */
	u64 nr_chunks;			/* exceptions: chunks times versions */
	u64 nr_bytes;			/* memory of the leaves */
};

/* A run of chunks that one exception, or home, answers for. */
struct cow_extent {
	u64 chunk;		/* first chunk */
	u64 nr;			/* how many chunks follow in order, at least 1 */
	u64 place;		/* chunk in the store of the first one, if any */
	u32 epoch;		/* newest epoch that the version belongs to */
	enum cow_kind kind;
};

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
 * Context: may sleep; one writer at a time. Returns -ENOMEM with nothing lost
 * but part of the run possibly added: the caller invalidates or tries again.
 */
int cow_map_insert(struct cow_map *map, const struct cow_extent *ext,
		   u32 taken_over);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-kcopyd.c: the copy engine
 * ---------------------------------------------------------------------------
 */

struct cow_engine;
struct cow_job;

/* A buffer page of the engine; a job's pages hang together by @next. */
struct cow_page {
	struct page *page;
	struct cow_page *next;
};

struct cow_job_ops {
	/*
	 * The source is in memory: issue writes with cow_job_write(). Called even
	 * if reading failed (job->read_status). Context: the engine's worker.
	 */
	void (*ready)(struct cow_job *job);
	/* Every write has ended; the job is the caller's again. Same context. */
	void (*done)(struct cow_job *job);
};

/* One read, any number of writes. Embedded in what it is for. */
struct cow_job {
	struct list_head node;		/* a queue of the engine */
	const struct cow_job_ops *ops;
	struct cow_engine *engine;
	struct block_device *bdev;	/* source; NULL reads as zeroes */
	sector_t sector;
	unsigned int nr_sectors;
	blk_status_t read_status;
	bool written;			/* stage: reading, then writing */
	atomic_t ios;			/* bios under way, plus one while issuing */
	struct cow_page *pages;
	/* Where the last walk through the pages stood: walks go forward. */
	struct cow_page *cursor;
	unsigned int cursor_index;
};

struct cow_engine_stats {
	u64 jobs;			/* finished */
	u64 read_sectors;
	u64 written_sectors;
	u64 page_waits;			/* jobs put back for lack of pages */
	u64 throttled;			/* pauses taken for throttle */
};

/*
 * @wq runs the engine's worker; @hook is called in it once a pass, between the
 * end of old copies and the start of new ones. May sleep. ERR_PTR on failure.
 */
struct cow_engine *cow_engine_create(struct workqueue_struct *wq,
				     void (*hook)(void *context), void *context);
/* No job may be left. May sleep. */
void cow_engine_destroy(struct cow_engine *engine);
/* Have room for at least one job of @sectors. May sleep. */
int cow_engine_reserve(struct cow_engine *engine, unsigned int sectors);
/* Longest job, in sectors, that the pages of the engine can hold. Any context. */
unsigned int cow_engine_job_sectors(struct cow_engine *engine);
/* Queue a job. Context: any, never sleeps. */
void cow_engine_submit(struct cow_engine *engine, struct cow_job *job);
/* Run the worker once more, for owners that share its context. Any context. */
void cow_engine_kick(struct cow_engine *engine);
/* Percent of time that may be spent copying, 1 to 100; 100 is no limit. */
void cow_engine_set_throttle(struct cow_engine *engine, unsigned int percent);
unsigned int cow_engine_throttle(struct cow_engine *engine);
void cow_engine_read_stats(struct cow_engine *engine, struct cow_engine_stats *out);
void cow_engine_reset_stats(struct cow_engine *engine);

/* Only from ->ready. Write part of the job; @status gets the first error. */
void cow_job_write(struct cow_job *job, unsigned int offset_sectors,
		   unsigned int nr_sectors, struct block_device *bdev,
		   sector_t sector, blk_status_t *status);
/* Only from ->ready. Is this part of the job all zero? */
bool cow_job_is_zero(struct cow_job *job, unsigned int offset_sectors,
		     unsigned int nr_sectors);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap-store.c: stores and the snapshots in them
 * ---------------------------------------------------------------------------
 */

struct cow_origin;
struct cow_bio;
struct cow_pending;

/* In the order in which a snapshot goes through them; see snap_set_state(). */
enum cow_snap_state {
	COW_SNAP_LOADED,	/* a table names it, none has been resumed yet */
	COW_SNAP_LIVE,
	COW_SNAP_OVERFLOWED,	/* the store was full */
	COW_SNAP_INVALID,	/* an error cost it its contents */
};

/* What a table says of a snapshot. */
struct cow_snap_args {
	char persistence;		/* 'N' */
	bool overflow_apart;		/* 'O' followed it */
	bool writable;			/* the table is, so the store must be */
	unsigned int chunk_sectors;
	unsigned int id;
	sector_t nr_sectors;
};

/* One view of the origin at one instant; shared by all tables that name it. */
struct cow_snap {
	struct list_head node;		/* store->snaps, under registry_mutex */
	struct cow_store *store;
	unsigned int nr_tables;		/* references, under registry_mutex */
	unsigned int id;
	u32 epoch;			/* 0 until live */
	sector_t nr_sectors;
	bool overflow_apart;		/* NO, PO: report Overflow */
	enum cow_snap_state state;	/* written under origin->lock */
};

/* A device that keeps old chunks of one origin. */
struct cow_store {
	struct list_head node;		/* origin->stores: RCU, under origin->lock */
	struct list_head all_node;	/* origin->all_stores, under registry_mutex */
	struct cow_origin *origin;
	struct block_device *bdev;
	struct list_head snaps;		/* registry_mutex and origin->lock */
	struct list_head tables;	/* struct snap_target; see dm-cowsnap.c */
	char persistence;		/* 'N' */
	unsigned int chunk_sectors;
	unsigned int chunk_shift;

	struct cow_map map;
	struct cow_live __rcu *live;	/* replaced under origin->lock */
	sector_t protect_sectors;	/* of the origin; grows under origin->lock */
	u32 epoch;			/* last one given out */

	/* Under origin->lock. */
	struct rb_root_cached pendings;
	unsigned int nr_pendings;
	u64 nr_chunks;			/* room of the store */
	u64 used_chunks;
	u64 reserved_chunks;		/* promised to pending exceptions */
	u64 zero_chunks;		/* exceptions that needed no room */
	u64 copied_chunks;		/* copied for the sake of the origin */
	wait_queue_head_t idle;		/* nr_pendings came to 0 */
	struct work_struct event_work;
	bool writable;
};

/*
 * Find or make the store on @bdev for @origin, and snapshot @id in it.
 * Takes a reference on the snapshot. Returns NULL with words for ti->error in @error.
 * Context: may sleep, registry_mutex held.
 */
struct cow_snap *cow_snap_get(struct cow_origin *origin, struct block_device *bdev,
			      const struct cow_snap_args *args, char **error);
/* The snapshot with this id, or NULL. registry_mutex held. */
struct cow_snap *cow_snap_find(struct cow_store *store, unsigned int id);
/* Drop a reference. Context: as cow_snap_get(); waits for the last pendings. */
void cow_snap_put(struct cow_snap *snap);
/*
 * Make @snap live, or give it its new length, as of one instant of the origin.
 * Context: may sleep.
 */
int cow_snap_activate(struct cow_snap *snap, sector_t nr_sectors);

/* Take in that the device has grown. Context: may sleep. */
void cow_store_resize(struct cow_store *store);

/*
 * One funnel for all that ends a store's snapshots: they get @state, the origin
 * stops caring for them, the log gets a line, waiters get an event.
 * Context: any but irq; the second with origin->lock held.
 */
void cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			  const char *why);
void __cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			    const char *why);
/* Promise room for @nr chunks. origin->lock held. */
bool cow_store_reserve(struct cow_store *store, u64 nr);
/* Give back what was promised and not used. origin->lock held. */
void cow_store_unreserve(struct cow_store *store, u64 nr);
/* Turn a promise into @nr chunks in a row. origin->lock held. */
u64 cow_store_place(struct cow_store *store, u64 nr);
/* Is @epoch the only live one that falls on this copied version? origin->lock held. */
bool cow_store_sole_owner(struct cow_store *store, const struct cow_extent *ext,
			  u32 epoch);
/* Put what @pending has ready into the map. Engine's worker. */
int cow_store_publish(struct cow_pending *pending);
extern const struct cow_job_ops cow_store_job_ops;

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
	struct cow_job job;		/* used by the leader of the job alone */
	u64 place;
	u32 epoch;			/* of the version that it will be */
	u32 taken_over;			/* epoch of the version taken over, or 0 */
	u32 nr_zero;
	u32 nr_reserved;		/* chunks promised and not yet placed */
	unsigned int offset_sectors;	/* where the run begins in its job */
	enum cow_kind kind;
	enum cow_pending_mode mode;
	bool publishing;		/* counted in origin->nr_publishing */
	blk_status_t status;
	struct cow_bio *carrier;	/* mode COW_BY_BIO: the write itself */
	unsigned long zero[BITS_TO_LONGS(COW_RUN_CHUNKS)];
};

int cow_pending_init(void);
void cow_pending_exit(void);
/* Context: may sleep. */
int cow_pending_pool_init(mempool_t *pool);

/* The first pending that overlaps these chunks, if any. origin->lock held. */
struct cow_pending *cow_pending_overlap(struct cow_store *store, u64 first, u64 last);
/*
 * A new pending in the tree, nothing started; @reserve chunks of room are promised
 * to it. NULL: no memory just now. origin->lock held.
 */
struct cow_pending *cow_pending_add(struct cow_store *store, u64 first, u64 nr,
				    enum cow_kind kind, u32 reserve);
/* Start the copy that @leader and all on its list of sharers wait for. Any context. */
void cow_pending_copy(struct cow_pending *leader, struct block_device *bdev,
		      sector_t sector, sector_t nr_sectors);
/* Data that took no job has been dealt with: have it published. Any context. */
void cow_pending_finished(struct cow_pending *pending);
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
	enum cow_discard discard;	/* as the table has it */
	bool passdown;			/* a snapshot's discard goes on to the origin */
	bool in_map;			/* dm may still cut it */
	bool gated;			/* counted in origin->gate */
	bool tracked;
};

struct cow_origin {
	struct list_head node;		/* registry */
	unsigned int refs;		/* registry_mutex */
	struct block_device *bdev;
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

	spinlock_t lock;		/* what follows, and stores' pendings and room */
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

	struct delayed_work decide_work;	/* held and deferred bios */

	atomic64_t held_writes;		/* held while a snapshot was created */
	atomic64_t parked_writes;
	atomic64_t skipped_discards;
};

extern struct mutex cow_registry_mutex;

/* Find or make. Context: may sleep, registry_mutex held. */
struct cow_origin *cow_origin_get(struct block_device *bdev, char **error);
void cow_origin_put(struct cow_origin *origin);
/* The origin on @bdev, or the store on it, if there is one. registry_mutex held. */
struct cow_origin *cow_origin_find(struct block_device *bdev);
struct cow_store *cow_store_find(struct block_device *bdev);

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

/* Take a bio that has waited all the way, in parts if need be. Worker. */
void cow_bio_run(struct cow_bio *cb);
/* No memory: decide again when some is free. Context: process. */
void cow_bio_defer(struct cow_bio *cb);
/* End a bio that goes nowhere. Returns DM_MAPIO_SUBMITTED. */
int cow_bio_finish(struct cow_bio *cb, blk_status_t status);
/*
 * The first @nr_sectors of a bio: all of it, or what dm or a piece makes of it.
 * The caller goes on with the rest if what comes back is not @cb. NULL: no memory.
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
void cow_origin_thaw(struct cow_origin *origin);

/*
 * ---------------------------------------------------------------------------
 * dm-cowsnap.c: targets
 * ---------------------------------------------------------------------------
 */

/* Wake dmsetup wait on every table of every snapshot in @store. May sleep. */
void cow_snap_event(struct cow_store *store);

#endif

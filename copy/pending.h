/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: pending exceptions */
#ifndef DM_COWSNAP_COPY_PENDING_H
#define DM_COWSNAP_COPY_PENDING_H

#include <linux/rbtree.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "store/store.h"

struct cow_bio;
struct cow_log_write;

/* A copy that is longer goes by the tables; of it they cost little. */
#define COW_LONG_SECTORS	(256U << 10 >> SECTOR_SHIFT)

/* How a pending exception comes by its data. */
enum cow_pending_mode {
	COW_BY_COPY,		/* the engine copies it into the store */
	COW_BY_BIO,		/* a snapshot's write brings whole chunks itself */
	COW_BY_MARK,		/* no data to move: only the map changes */
	COW_BY_DATA,		/* a write to the origin is redirected: its data is copied */
};

/* How far a pending of a persistent store has come in its commit, in this order. */
enum cow_commit_place {
	COW_NOT_JOINED,			/* its slots are not in the tables, or it has left */
	COW_JOINED,			/* they are; its data is under way */
	COW_AWAITED,			/* the same, and the commit under way waits for the data */
	COW_DATA_DONE,			/* the data has ended: only the commit is missing */
};

/*
 * A run of chunks on its way into the map. Owned by the store's tree from
 * cow_pending_add() until cow_pending_release() takes it out, in the engine's worker. Then
 * it is freed, unless its data is kept in memory (->kept): then it stands in store->kept
 * and belongs to the undo buffer until the data is written (undo_end()). Bios parked on it
 * are its own until then.
 */
struct cow_pending {
	struct rb_node rb;		/* store->pendings, under origin->state_lock */
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
	bool spare;			/* of cow_pending_add_spare() */
	bool settles;			/* settling needs it: counted in store->nr_settling */
	bool publishing;		/* counted in origin->publishing */
	bool waited_for;		/* bios are parked on it, or were: cow_pending_park() */
	bool needed;			/* from the start a write waited for part of it */
	bool is_long;			/* a write needs it: counted in store->nr_long; READ_ONCE */
	bool in_stream;			/* it is short, and directly behind or before a long one */
	bool exact;			/* a write waited for all that its job reads */
	bool unread;			/* reading it failed */
	bool check_source;		/* the source is a version with a checksum, */
	u32 source_epoch;		/* of this epoch */
	bool kept;			/* in the undo buffer */
	/* In a commit: engine's worker only. */
	struct list_head member;	/* meta->members */
	u64 ticket;			/* it is durable when this ticket is */
	enum cow_commit_place commit;
	bool passed_over;		/* a commit did not make it durable */
	struct cow_log_write *record;	/* of the log, that commits it instead; or NULL */
	bool may_count;			/* a record or tables have its slots: perhaps the disk */
	bool again;			/* no memory to join: to be copied once more */
	unsigned int losses;		/* of the store, before its data was sent */
	blk_status_t status;
	struct cow_bio *carrier;	/* modes COW_BY_BIO and COW_BY_DATA: the write itself */
	unsigned long zero[BITS_TO_LONGS(COW_RUN_CHUNKS)];
	unsigned long mapped[BITS_TO_LONGS(COW_RUN_CHUNKS)];	/* in the map already */
};

static inline sector_t cow_pending_sector(const struct cow_pending *pending)
{
	return cow_chunk_to_sector(pending->store, pending->first);
}

static inline sector_t cow_pending_end_sector(const struct cow_pending *pending)
{
	return cow_chunk_to_sector(pending->store, pending->last + 1);
}

static inline u64 cow_pending_nr(const struct cow_pending *pending)
{
	return pending->last - pending->first + 1;
}

static inline bool cow_pending_has_length(const struct cow_pending *pending)
{
	return cow_pending_end_sector(pending) - cow_pending_sector(pending) > COW_LONG_SECTORS;
}

int cow_pending_init(void);
void cow_pending_exit(void);

/* Pendings that @origin always has. 0 or -ENOMEM; both may sleep. */
int cow_pending_reserve(struct cow_origin *origin);
void cow_pending_free_reserve(struct cow_origin *origin);

/* The first pending that overlaps these chunks, if any. origin->state_lock held. */
struct cow_pending *cow_pending_overlap(struct cow_store *store, u64 first, u64 last);

/*
 * A new pending in the tree, nothing started; @nr_room chunks from @place on are its
 * own. NULL: no memory just now. origin->state_lock held.
 */
struct cow_pending *cow_pending_add(struct cow_store *store, u64 first, u64 nr,
				    enum cow_kind kind, u64 place, u32 nr_room);

/* As above, for what can wait: NULL as well when only the reserve is left. */
struct cow_pending *cow_pending_add_spare(struct cow_store *store, u64 first, u64 nr,
					  enum cow_kind kind, u64 place, u32 nr_room);

/* @pending, of @origin, is on no tree and no list. origin->state_lock held. */
void cow_pending_free(struct cow_origin *origin, struct cow_pending *pending);

/* @cb waits until @pending is published. origin->state_lock held. */
void cow_pending_park(struct cow_pending *pending, struct cow_bio *cb);

/*
 * A write needs @pending, which is fresh: has its store's next commit to wait for it?
 * origin->state_lock held.
 */
void cow_pending_begin(struct cow_pending *pending);

/*
 * A write needs @pending, and @before is of the same request: its copy has not been submitted yet.
 * Is that a short piece in front of a long one? origin->state_lock held.
 */
void cow_pending_follow(struct cow_pending *pending, struct cow_pending *before);

/* No commit waits for @pending any more. Engine's worker; the first with state_lock held. */
void __cow_pending_uncount(struct cow_pending *pending);
void cow_pending_uncount(struct cow_pending *pending);

/* A bio waits for @pending now: its copy comes first. origin->state_lock held. */
void cow_pending_need(struct cow_pending *pending);

/* The data of @pending, which needed no job, is done: have it published. Any context. */
void cow_pending_finished(struct cow_pending *pending);

/* A published pending here whose data is still kept, or NULL. origin->state_lock held. */
struct cow_pending *cow_pending_kept(struct cow_store *store, u64 first, u64 last);

/* @pending is kept no longer. origin->state_lock held. */
void cow_pending_forget_kept(struct cow_pending *pending);

/* The limit for the chunks of one pending of @store. Any context. */
u64 cow_run_chunks_max(struct cow_store *store);

/* Out of the tree of pendings. origin->state_lock held. */
void cow_pending_remove(struct cow_pending *pending);

/*
 * It has left the tree of pendings, but its data is still to be written. origin->state_lock
 * held.
 */
void cow_pending_keep(struct cow_pending *pending);

#endif

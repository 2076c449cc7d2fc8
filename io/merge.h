/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: I/O to an origin while a snapshot is merged into it */
#ifndef DM_COWSNAP_IO_MERGE_H
#define DM_COWSNAP_IO_MERGE_H

#include <linux/bio.h>
#include <linux/list.h>
#include <linux/workqueue.h>

struct cow_bio;
struct cow_extent;
struct cow_places;
struct cow_slot_window;
struct cow_snap;
struct cow_store;

/* What the work item does next. */
enum cow_merge_phase {
	MERGE_CLOSE,
	MERGE_COPY,
	MERGE_NOTE,
	MERGE_FINISH,
	MERGE_DONE,
};

struct cow_merge {
	struct cow_store *store;
	struct cow_snap *snap;		/* may be deleted once it is merged */
	unsigned int id;		/* what is needed of it after that */
	u32 epoch;
	sector_t nr_sectors;
	u64 end;			/* chunks of the snapshot */
	u64 done, busy_end;		/* chunks; origin->state_lock */
	struct list_head parked;	/* until the next stretch is open; state_lock */
	unsigned long used;		/* by users, last: cow_note_now() */
	bool rotates;			/* the origin's device does, or the store's */
	bool stopped;			/* the work may not be queued; state_lock, READ_ONCE */
	bool failed;			/* nothing may wait for it; state_lock, READ_ONCE */
	struct delayed_work work;
	struct cow_merge *older;	/* ended; freed when the store is closed */

	/* The work item's own. */
	enum cow_merge_phase phase;
	unsigned int tries;
	bool retries;
	bool gentle;			/* the origin is in use: in small steps */
	bool forgets;			/* store->dead_lock is held, see admin/void.c */
	bool unread;			/* a table block could not be read, which was said */
	u64 busy_ns, ended_ns;		/* the last stretch: its duration, and when it ended */
	u64 waited_ns;			/* how long of that it waited for users */
	size_t spared;			/* bytes that may go to a rotational disk without waiting */

	/* What carries a stretch, see admin/carry.c; the work item's own, too. */
	struct bio_set bios;
	void *buffer;			/* the chunks from @base on, up to @limit */
	u64 base, limit;
	struct cow_extent *runs;	/* what the snapshot sees of them, or admin/void.c's */
	struct cow_extent *by_place;	/* the same, in the order of the store */
	unsigned int nr_runs;
	struct cow_places *places;	/* admin/void.c's, of these */
	struct cow_slot_window *slots;	/* of the runs' places, as read last */
	spinlock_t io_lock;		/* guards what follows; taken with irqs off */
	wait_queue_head_t io_wait;
	unsigned int nr_ios;		/* requests under way */
	unsigned int io_limit;		/* the work item waits for fewer than these */
	blk_status_t io_status;		/* an error of one of them */
};

/*
 * What becomes of a bio on the origin while a merge is under way, or of a flush (a bio
 * without sectors) that is meant for the merging store? As cow_origin_decide().
 */
int cow_merge_decide(struct cow_bio *cb, struct cow_bio **part);

/* Run the work item, now or after @delay jiffies. origin->state_lock held. */
void cow_merge_kick(struct cow_merge *merge, unsigned long delay);

/* What waited for the merge decides again. origin->state_lock held. */
void cow_merge_unpark(struct cow_merge *merge);

#endif

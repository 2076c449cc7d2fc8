/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: what the module knows of a bio */
#ifndef DM_COWSNAP_ORIGIN_BIO_H
#define DM_COWSNAP_ORIGIN_BIO_H

#include <linux/bio.h>
#include <linux/rbtree.h>
#include <linux/workqueue.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "origin/origin.h"
#include "trace/cowsnap.h"

struct cow_pending;
struct cow_snap;

enum cow_discard {
	COW_DISCARD_SKIP,	/* pass the preserved parts down, leave the rest */
	COW_DISCARD_PRESERVE,	/* copy first, then pass all down */
	COW_DISCARD_NONE,	/* not offered */
};

/*
 * For a bio from above this is dm's per-bio data; for a piece cut off in a worker it stands in
 * front of the bio. Owner: map until it returns, then the list it stands on, then the
 * device below, then its completion.
 */
struct cow_bio {
	struct list_head node;		/* see docs/design.md, "Lists a bio can be on" */
	struct bio *bio;
	struct cow_origin *origin;
	struct cow_snap *snap;		/* NULL: I/O of the origin */
	struct cow_pending *carries;	/* the pending whose data this bio brings */
	struct cow_losses *losses;	/* of whom it is to tell, if a user flushes with it */
	struct gendisk *flushed;	/* where it was sent to, if it flushes there */
	/* Tracked read: sectors of the origin, in origin->reads. */
	struct rb_node rb;
	sector_t start, last, subtree_last;
	struct list_head drains;	/* struct cow_pending that wait for it */
	/* A read to be verified: what is read, and from which chunk of the store. */
	struct bvec_iter iter;
	struct cow_version version;
	struct cow_bio *rest;		/* of a bio that was cut: the piece that is left */
	struct bvec_iter left;		/* of a shortened bio: what is served after this */
	struct work_struct work;	/* set up when it is queued */
	enum cow_discard discard;	/* as the table has it */
	bool passdown;			/* a snapshot's discard goes on to the origin */
	bool full_is_end;		/* as dm-snapshot: no room makes the snapshot invalid */
	bool in_map;			/* dm may still cut it */
	bool gated;			/* counted in origin->gate */
	bool user;			/* counted in origin->nr_users */
	bool going;			/* counted by the engine: cow_engine_going() */
	bool gathered;			/* and so was its copy */
	bool tracked;
	bool plain;			/* went home at once: its end needs nothing */
	bool reading;			/* counted in its store's nr_reads[read_turn] */
	bool verify_on_end;		/* verify when it comes back */
	bool merging;			/* the merge's own write */
	bool via_merge;			/* an origin's, treated as the merged snapshot's */
	bool then_home;			/* a flush of a merge's store; home comes next */
	bool home_at_last;		/* that one */
	bool piece;			/* of a bio that was cut in a worker */
	u8 read_turn;
	bool exact;			/* copy only what it needs: a larger run was unreadable */
};

/* End a bio that goes nowhere. Returns DM_MAPIO_SUBMITTED. Any context. */
static inline int cow_bio_finish(struct cow_bio *cb, blk_status_t status)
{
	cb->bio->bi_status = status;
	bio_endio(cb->bio);
	return DM_MAPIO_SUBMITTED;
}

/* The device that it points at is its next stop. Before it is sent there. Any context. */
static inline void cow_bio_sent(struct cow_bio *cb)
{
	cb->flushed = op_is_flush(cb->bio->bi_opf) ? cow_bio_disk(cb->bio) : NULL;
}

/* No copy waits for @cb any more. */
static inline void cow_bio_gone(struct cow_bio *cb, bool ended)
{
	if (cb->going) {
		cb->going = false;
		cow_engine_gone(cb->origin->engine, cb->gathered, ended);
	}
}

/* A merge that waits for users asks once more whether it is its turn. Any context. */
static inline void cow_wake_quiet(struct cow_origin *o)
{
	/* Its barrier pairs with that of wait_event_timeout() in users_first(). */
	if (wq_has_sleeper(&o->quiet))
		wake_up(&o->quiet);
}

/* @cb is no user of the disk any more: a merge need not wait for it. Any context. */
static inline void cow_bio_rests(struct cow_bio *cb)
{
	if (likely(!cb->user))
		return;
	cb->user = false;
	if (atomic_dec_and_test(&cb->origin->nr_users))
		cow_wake_quiet(cb->origin);
}

/* @cb waits on @list, for @wait. origin->state_lock held, which guards all these lists. */
static inline void cow_bio_park(struct cow_bio *cb, struct list_head *list,
				enum cow_wait wait)
{
	lockdep_assert_held(&cb->origin->state_lock);
	cow_bio_gone(cb, false);
	/* The disk may be making its copy. */
	if (wait != COW_WAIT_PENDING)
		cow_bio_rests(cb);
	list_add_tail(&cb->node, list);
	trace_cowsnap_park(cb->origin->bdev->bd_dev, cb->bio, cb->bio->bi_iter.bi_sector,
			   bio_sectors(cb->bio), wait);
}

/*
 * What @cb waited for has ended: it decides again, from the start. This is the one way from
 * below back up to the decision (cow_bio_run()). It goes through a pointer, set in
 * admin/origin.c, so that nothing below io/ names what is above. Context: process; never
 * sleeps.
 */
static inline void cow_bio_decide_again(struct cow_bio *cb)
{
	cb->origin->decide_again(cb);
}

#endif

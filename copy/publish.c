// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: an exception is published, and what waited for it goes on
 *
 * Promises kept here:
 *  I3  cow_pending_publish() puts a pending into the map first, cow_pending_release() takes
 *      it out of the tree last: a decision under origin->state_lock sees one or the other.
 *  I4  a published pending waits for the tracked reads that overlap it. Until it is
 *      released, cow_publishing() keeps writes near it off the fast path.
 *  I6  cow_pending_release() acknowledges a snapshot's whole-chunk write only if its data
 *      can be found in the map.
 *  I7  a pending that the map has no memory for waits, with the bios parked on it, and is
 *      tried again: its data is kept, so nothing is lost meanwhile.
 */
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "copy/data.h"
#include "copy/pending.h"
#include "copy/publish.h"
#include "copy/undo.h"
#include "disk/meta.h"
#include "origin/bio.h"
#include "origin/origin.h"
#include "origin/reads.h"
#include "store/epochs.h"
#include "store/known.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/space.h"
#include "store/state.h"
#include "trace/cowsnap.h"

/* When the map had no memory it is tried again after this delay, doubled each time. */
#define MAP_DELAY_MIN		DIV_ROUND_UP(HZ, 50)
#define MAP_DELAY_MAX		HZ

/* --------------------------------------------------------------- into the map */

/* Called again for the same run after a failure: its first part may be in the map. */
static int publish_run(struct cow_pending *p, u64 from, u64 to, enum cow_kind kind)
{
	bool placeless = !p->store->meta && kind == COW_ZERO;
	struct cow_extent ext = {
		.epoch = p->epoch,
		.kind = kind,
	};
	int r;

	from = find_next_zero_bit(p->mapped, to, from);
	ext.chunk = p->first + from;
	ext.place = (placeless ? cow_placeless(p->first) : p->place) + from;
	ext.nr = to - from;
	r = cow_map_insert(&p->store->map, &ext, p->taken_over);
	bitmap_set(p->mapped, from, to - from - ext.nr);
	return r;
}

/* A snapshot deleted while its copy was under way: the copy may have no reader left. */
static bool pending_may_be_dead(const struct cow_pending *p)
{
	const struct cow_live *live;
	bool dead;

	/* What the origin shows has got other content where it was. */
	if (cow_kind_is_current(p->kind) && !p->nr_room)
		return false;
	rcu_read_lock();
	live = rcu_dereference(p->store->live);
	/*
	 * Newer than all that is live, or older: in between some snapshot sees it. (Or, where it is
	 * what the origin shows, the one before it.)
	 */
	if (live)
		dead = cow_store_copy_epoch(p->store, live) < p->epoch ||
		       live->epoch[0] > p->epoch;
	else
		dead = cow_kind_is_current(p->kind);
	rcu_read_unlock();
	return dead;
}

static int pending_insert(struct cow_pending *p)
{
	u64 from = 0, to;
	int r = 0;

	if (p->kind == COW_HOME ||
	    (!cow_kind_is_current(p->kind) && !cow_store_has_readers(p->store))) {
		/* Chunks that are in the map already are given back by a reclaim. */
		if (!bitmap_empty(p->mapped, cow_pending_nr(p)))
			cow_store_reclaim(p->store);
		return -ENOENT;
	}
	if (!p->nr_zero) {
		r = publish_run(p, 0, cow_pending_nr(p), p->kind);
	} else {
		for (; !r && cow_pending_next_stretch(p, false, &from, &to); from = to)
			r = publish_run(p, from, to, p->kind);
		for (from = 0; !r && cow_pending_next_stretch(p, true, &from, &to); from = to)
			r = publish_run(p, from, to, COW_ZERO);
	}
	if (!r && pending_may_be_dead(p))
		cow_store_reclaim(p->store);
	return r;
}

/* ------------------------------------------------------------ out of the tree */

/* Chunks that did not get into the map need no room. */
static void pending_free_room(struct cow_pending *p)
{
	u32 from, to;

	if (!p->nr_room)
		return;
	if (cow_kind_is_current(p->kind))
		cow_store_current_gone(p->store, p->nr_room);
	/* A slot of the commit that failed may be on the disk, and name it. */
	if (p->status && cow_store_is_fenced(p->store))
		return;
	/* In a transient store zeroes have given theirs back already. */
	if (!p->store->meta && p->nr_zero)
		bitmap_or(p->mapped, p->mapped, p->zero, p->nr_room);
	for (to = 0; (from = find_next_zero_bit(p->mapped, p->nr_room, to)) < p->nr_room; ) {
		to = find_next_bit(p->mapped, p->nr_room, from);
		cow_space_free(&p->store->space, p->place + from, to - from);
	}
}

/*
 * The writes that wait for @p decide again at once: spare them the lookup in the map. It was
 * entered for the newest epoch, and that stays so while the lock is held: a later one forgets
 * what is known, under the same lock. Copies ahead of writers are left to the fast path, which
 * has to notice when a stream meets them.
 */
static void remember_preserved(struct cow_pending *p)
{
	struct cow_store *store = p->store;
	const struct cow_live *live;

	live = rcu_dereference_protected(store->live,
					 lockdep_is_held(&store->origin->state_lock));
	/* Without a place of its own left to give back it is in the map. */
	if (!cow_kind_is_current(p->kind) && p->exact && !p->nr_room && live &&
	    p->epoch == cow_store_copy_epoch(store, live))
		cow_known_add(&store->known, p->first, cow_pending_nr(p));
}

/* It has left the tree of pendings, but its data is still to be written. */
static void pending_keep(struct cow_pending *p)
{
	/* It did not get into the map, so its data is not needed. */
	if (p->nr_room) {
		cow_undo_drop(p);
		return;
	}
	cow_pending_keep(p);
	cow_undo_add(p);
}

/* Writes near @p have to take the slow path (@nr 1), or no longer (-1). */
static void count_publishing(struct cow_pending *p, int nr)
{
	u64 region = cow_pending_sector(p) >> COW_REGION_SHIFT;
	u64 last = (cow_pending_end_sector(p) - 1) >> COW_REGION_SHIFT;

	for (; region <= last; region++)
		atomic_add(nr, &p->store->origin->publishing[region % COW_REGIONS]);
}

/* Its data may have been written, but after an error no lookup would find it (I6). */
static void end_carrier(struct cow_bio *carrier, blk_status_t status)
{
	carrier->carries = NULL;
	if (status && !carrier->bio->bi_status)
		carrier->bio->bi_status = status;
	bio_endio(carrier->bio);
}

/* Whose writes end after an error: those of a snapshot's epoch, or of the origin (NOW). */
static u32 refused_epoch(const struct cow_pending *p)
{
	if (!p->status)
		return 0;
	if (cow_kind_is_current(p->kind))
		return COW_EPOCH_NOW;
	return cow_kind_is_private(p->kind) ? p->epoch : 0;
}

static bool is_refused(const struct cow_bio *cb, u32 refused)
{
	return refused && refused == (cb->snap ? cb->snap->epoch : COW_EPOCH_NOW);
}

/*
 * What was parked decides again. If its copy was @gathered, the next copies wait for it.
 * After an error the writes of epoch @refused end; those of another one have not been tried yet.
 */
static void let_go(struct cow_origin *o, struct list_head *parked, bool exact, bool gathered,
		   u32 refused)
{
	struct cow_bio *cb, *next;

	list_for_each_entry_safe(cb, next, parked, node) {
		list_del_init(&cb->node);
		cb->exact |= exact;
		if (is_refused(cb, refused)) {
			cow_bio_finish(cb, BLK_STS_IOERR);
			continue;
		}
		cb->gathered = gathered;
		cb->going = cow_engine_going(o->engine, bio_sectors(cb->bio), gathered);
		cow_bio_decide_again(cb);
	}
	if (gathered)
		cow_engine_let_go(o->engine);
}

/* Take a pending out and let go what waits for it. Engine's worker. */
void cow_pending_release(struct cow_pending *p)
{
	struct cow_store *store = p->store;
	struct cow_origin *o = store->origin;
	struct cow_bio *carrier = p->carrier;
	blk_status_t status = p->status;
	u32 refused = refused_epoch(p);
	bool exact = p->unread;
	bool gathered = p->job.going;
	bool none_waits = false;
	LIST_HEAD(parked);

	trace_cowsnap_release(store->bdev->bd_dev, p->first, cow_pending_nr(p), p->epoch,
			      blk_status_to_errno(status));
	spin_lock(&o->state_lock);
	cow_pending_remove(p);
	remember_preserved(p);
	pending_free_room(p);
	store->nr_own[p->turn] -= p->own;
	store->nr_settling -= p->settles;
	WRITE_ONCE(store->nr_needed, store->nr_needed - !p->spare);
	/* A bio may have come to need it since it was published. */
	__cow_pending_uncount(p);
	/* Not before: settling looks for what the map has. */
	if (cow_kind_is_current(p->kind))
		cow_store_settle(store);
	if (p->publishing)
		count_publishing(p, -1);
	if (p->waited_for) {
		WRITE_ONCE(o->nr_waited_for, o->nr_waited_for - 1);
		none_waits = !o->nr_waited_for;
	}
	list_splice_init(&p->parked, &parked);
	if (p->kept)
		pending_keep(p);
	else
		cow_pending_free(o, p);
	o->nr_pendings--;
	if (!list_empty(&o->deferred))
		mod_delayed_work(o->wq, &o->decide_work, 0);
	store->nr_pendings--;
	/* A waiter queues itself before it checks the counts, which it does under the lock. */
	if (waitqueue_active(&store->idle))
		wake_up(&store->idle);
	spin_unlock(&o->state_lock);

	if (carrier)
		end_carrier(carrier, status);
	let_go(o, &parked, exact, gathered, refused);
	if (none_waits)
		cow_engine_kick_aside(o->engine);
}

/* ----------------------------------------------------------------- in between */

/*
 * A write of the origin could not be redirected, and its record or its slot may be on the disk. So
 * it may count when the store is opened again: what was written home there would not last. The
 * store is fenced.
 */
static void current_failed(struct cow_store *store)
{
	if (READ_ONCE(store->current_failed))
		return;
	WRITE_ONCE(store->current_failed, true);
	DMERR("store %pg: what was written to %pg did not get there: now all writes of it fail",
	      store->bdev, store->origin->bdev);
	DMERR("store %pg: remove its tables and load them again", store->bdev);
}

static void pending_failed(struct cow_pending *p)
{
	/* A snapshot's own write fails alone: nothing old is lost with it. */
	if (cow_kind_is_private(p->kind))
		return;
	if (cow_kind_is_current(p->kind)) {
		if (p->may_count)
			current_failed(p->store);
		return;
	}
	/* Nothing is lost either while home is not written: the next write decides. */
	if (p->settles || (p->unread && !p->exact))
		return;
	cow_store_invalidate(p->store, COW_SNAP_INVALID,
			     p->unread ? "old data could not be read" :
			     "old data could not be written to the store");
}

/* There was no memory to put @p into the map: try again later. */
static void pending_map_later(struct cow_pending *p)
{
	struct cow_origin *o = p->store->origin;

	if (list_empty(&o->unmapped)) {
		o->map_delay = clamp_t(unsigned long, o->map_delay * 2, MAP_DELAY_MIN,
				       MAP_DELAY_MAX);
		o->map_again = jiffies + o->map_delay;
		cow_engine_kick_later(o->engine, o->map_delay);
		DMWARN_LIMIT("store %pg: no memory to remember an exception: writes wait for %u ms",
			     p->store->bdev, jiffies_to_msecs(o->map_delay));
	}
	list_add_tail(&p->node, &o->unmapped);
}

/* The data of @p is safe: put it into the map. */
static void pending_map(struct cow_pending *p)
{
	int r;

	/*
	 * Raised before the map changes, so that a write that finds the
	 * map changed finds this raised.
	 */
	if (!p->publishing)
		count_publishing(p, 1);
	p->publishing = true;
	/* Pairs with smp_rmb() in origin_write_is_free(), skip_discard(), snap_waits_for_data(). */
	smp_wmb();
	r = pending_insert(p);
	trace_cowsnap_publish(p->store->bdev->bd_dev, p->first, cow_pending_nr(p), p->epoch, r);
	if (r == -ENOMEM) {
		pending_map_later(p);
		return;
	}
	if (!r && p->kind == COW_CURRENT_ZERO && p->nr_room)
		cow_pending_settle_room(p);
	if (!r)
		p->nr_room = 0;
	else if (cow_kind_is_private(p->kind))
		p->status = BLK_STS_IOERR;
	/* Home does not change for what is redirected. */
	if (cow_kind_is_current(p->kind) || !cow_reads_wait(p))
		cow_pending_release(p);
}

void cow_pending_publish(struct cow_pending *p)
{
	cow_pending_uncount(p);
	if (!p->status) {
		pending_map(p);
		return;
	}
	pending_failed(p);
	cow_pending_release(p);
}

void cow_pending_map_again(struct cow_origin *o)
{
	struct cow_pending *p, *next;
	LIST_HEAD(again);

	if (list_empty(&o->unmapped) || time_before(jiffies, o->map_again))
		return;
	list_splice_init(&o->unmapped, &again);
	list_for_each_entry_safe(p, next, &again, node) {
		list_del_init(&p->node);
		/* One more failure is enough to know. */
		if (list_empty(&o->unmapped))
			pending_map(p);
		else
			list_add_tail(&p->node, &o->unmapped);
	}
	if (list_empty(&o->unmapped))
		o->map_delay = 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the origin, its gate, and the life of a write
 *
 * All that is written to an origin passes one decision: does any live snapshot
 * still see this at home?
 *
 *   +--> gate open? --no--> held (a snapshot is being made) --thaw--+
 *   |       | yes                                                   |
 *   |       v                                                       |
 *   |  preserved in every store? --yes--> home                      |
 *   |       | no                                                    |
 *   |       v                                                       |
 *   |  pending exceptions, bio parked on one                        |
 *   |       | engine: read home, write store                        |
 *   |       v                                                       |
 *   |  in the map, tracked reads drained: bio released              |
 *   +-------+-------------------------------------------------------+
 *
 * A bio that waits decides again when what it waited for has ended: nothing is
 * remembered about it, so whatever changed meanwhile is taken into account.
 *
 * Promises kept here:
 *  I1  cow_origin_decide() sends a write home only if every live epoch of every
 *      store is served by the map, seen with the gate held open.
 *  I4  the part of those who write: the fast path is open only while no published
 *      pending waits for reads; see dm-cowsnap-pending.c.
 *  I6  an acknowledged write is at home, never merely parked. Flushes pass down.
 *  I7  map takes memory from a pool without waiting; a bio that finds none is
 *      deferred and decides again when a pending exception is freed.
 *
 * Lock order: see dm-cowsnap.h.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-compat.h"
#include "dm-cowsnap.h"

/* One bio asks for at most this many at a time, then waits for the last. */
#define PENDING_PER_BIO		1024

/* A bio larger than this is cut, since it would wait for all of its copies. */
#define WRITE_MAX_SECTORS	(8U * COW_RUN_SECTORS)

/* A part of a bio that was cut in a worker, where dm can no longer do so. */
struct cow_piece {
	struct cow_bio cb;
	struct bio *whole;
	struct bio bio;
};

/* The list of origins, and references on origins, stores and snapshots. */
DEFINE_MUTEX(cow_registry_mutex);
static LIST_HEAD(origins);

/* --------------------------------------------------------- stores that went away */

/*
 * A persistent store that was closed while snapshots in it lived, by its uuid. If its
 * origin is written before it is opened again they are not whole any more. Kept
 * until the module goes; under absent_mutex but for @written.
 */
struct cow_absent {
	struct list_head node;
	u8 uuid[16];
	dev_t origin;
	bool written;
};

static LIST_HEAD(absents);

/* Entries never go, so that writers need no lock; those without origin are used again. */
static struct cow_absent *absent_alloc(void)
{
	struct cow_absent *a;

	list_for_each_entry(a, &absents, node)
		if (!a->origin)
			return a;
	a = kzalloc(sizeof(*a), GFP_KERNEL | __GFP_NOFAIL);
	list_add_tail_rcu(&a->node, &absents);
	return a;
}

/* Taken under origin->admin alone as well as under the registry's. */
static DEFINE_MUTEX(absent_mutex);

void cow_absent_add(struct cow_origin *o, const u8 *uuid, bool written)
{
	struct cow_absent *a;

	mutex_lock(&absent_mutex);
	a = absent_alloc();
	memcpy(a->uuid, uuid, sizeof(a->uuid));
	WRITE_ONCE(a->written, written);
	WRITE_ONCE(a->origin, o->bdev->bd_dev);
	WRITE_ONCE(o->nr_absent, o->nr_absent + 1);
	mutex_unlock(&absent_mutex);
}

bool cow_absent_take(struct cow_origin *o, const u8 *uuid)
{
	struct cow_absent *a;
	bool written = false;

	mutex_lock(&absent_mutex);
	list_for_each_entry(a, &absents, node) {
		if (!a->origin || memcmp(a->uuid, uuid, sizeof(a->uuid)))
			continue;
		written |= READ_ONCE(a->written);
		if (a->origin == o->bdev->bd_dev)
			WRITE_ONCE(o->nr_absent, o->nr_absent - 1);
		WRITE_ONCE(a->origin, 0);
	}
	mutex_unlock(&absent_mutex);
	return written;
}

static void absent_note_write(struct cow_origin *o)
{
	struct cow_absent *a;

	rcu_read_lock();
	list_for_each_entry_rcu(a, &absents, node)
		if (READ_ONCE(a->origin) == o->bdev->bd_dev && !READ_ONCE(a->written))
			WRITE_ONCE(a->written, true);
	rcu_read_unlock();
}

static unsigned int absent_count(dev_t origin)
{
	struct cow_absent *a;
	unsigned int nr = 0;

	mutex_lock(&absent_mutex);
	list_for_each_entry(a, &absents, node)
		nr += a->origin == origin;
	mutex_unlock(&absent_mutex);
	return nr;
}

void cow_absent_exit(void)
{
	struct cow_absent *a, *next;

	list_for_each_entry_safe(a, next, &absents, node)
		kfree(a);
}

/* ------------------------------------------------------------- parts of bios */

/*
 * In map dm cuts a bio, and has each part mapped by itself. In a worker it cannot: there a
 * bio that has to be cut becomes the whole of its pieces, and nothing more than that.
 *
 *   whole <-- front        the first cut makes two pieces
 *         <-- rest
 *         <-- front        each further one makes another of the rest
 *
 * A piece is decided, sent and ended like any bio. It has its own reference of the gate, is
 * tracked and checked and carries data for itself, so that none of this is held while
 * another piece waits. The whole counts its pieces with bio_inc_remaining(), keeps the first
 * error and ends with the last of them. A piece is never the whole of others.
 *
 * Without memory for pieces a bio is served one part after the other: see shorten().
 */

void cow_bio_defer(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	bool alone;

	spin_lock(&o->lock);
	list_add_tail(&cb->node, &o->deferred);
	cow_undo_kick(o);
	alone = !o->nr_pendings;
	spin_unlock(&o->lock);
	/* With no pending left to free, nothing else would try again. */
	if (alone)
		queue_delayed_work(o->wq, &o->decide_work, 1);
}

static void piece_endio(struct bio *bio)
{
	struct cow_piece *piece = container_of(bio, struct cow_piece, bio);
	struct bio *whole = piece->whole;

	if (cow_bio_ended(&piece->cb, &bio->bi_status) == DM_ENDIO_INCOMPLETE)
		return;
	if (bio->bi_status && !whole->bi_status)
		whole->bi_status = bio->bi_status;
	bio_put(bio);
	bio_endio(whole);
}

/* A piece as long as @cb is now, to be counted in @whole. NULL without memory. */
static struct cow_bio *piece_alloc(struct cow_bio *cb, struct bio *whole)
{
	struct cow_piece *piece;
	struct bio *bio;

	bio = bio_alloc_clone(cb->bio->bi_bdev, cb->bio, GFP_NOWAIT | __GFP_NOWARN,
			      &cb->origin->pieces);
	if (!bio)
		return NULL;
	bio->bi_end_io = piece_endio;
	piece = container_of(bio, struct cow_piece, bio);
	piece->whole = whole;
	piece->cb = *cb;
	piece->cb.bio = bio;
	piece->cb.piece = true;
	INIT_LIST_HEAD(&piece->cb.node);
	return &piece->cb;
}

static struct bio *whole_of(struct cow_bio *cb)
{
	return cb->piece ? container_of(cb, struct cow_piece, cb)->whole : cb->bio;
}

/* The bio of @cb is cut for the first time: from now on it waits for its pieces only. */
static struct cow_bio *become_whole(struct cow_bio *cb)
{
	cb->rest = piece_alloc(cb, cb->bio);
	if (cb->rest) {
		cb->snap = NULL;
		cb->via_merge = false;
		cb->gated = false;
	}
	return cb->rest;
}

/*
 * The first @bytes of @cb as a piece; the rest is a piece as well (@cb, if it is one).
 * What has been taken for @cb goes with the first. NULL without memory.
 */
static struct cow_bio *cut_piece(struct cow_bio *cb, unsigned int bytes)
{
	struct cow_bio *front, *rest = cb;

	front = piece_alloc(cb, whole_of(cb));
	if (!front)
		return NULL;
	if (!cb->piece)
		rest = become_whole(cb);
	if (!rest) {
		bio_put(front->bio);
		return NULL;
	}
	/* The rest is counted already: as the bio itself, until that was cut. */
	bio_inc_remaining(whole_of(front));
	front->bio->bi_iter.bi_size = bytes;
	bio_advance(rest->bio, bytes);
	rest->gated = false;
	return front;
}

/* Without memory for pieces: @cb ends after @bytes, and goes on from there when it does. */
static struct cow_bio *shorten(struct cow_bio *cb, unsigned int bytes)
{
	struct bvec_iter left = cb->bio->bi_iter;

	bio_advance_iter(cb->bio, &left, bytes);
	left.bi_size += cb->left.bi_size;
	cb->left = left;
	cb->bio->bi_iter.bi_size = bytes;
	return cb;
}

struct cow_bio *cow_bio_front(struct cow_bio *cb, u64 nr_sectors)
{
	unsigned int bytes = nr_sectors << SECTOR_SHIFT;
	struct cow_bio *front = NULL;

	if (nr_sectors >= bio_sectors(cb->bio))
		return cb;
	if (!cb->in_map) {
		if (!cb->left.bi_size)
			front = cut_piece(cb, bytes);
		return front ?: shorten(cb, bytes);
	}
	/* One part might be refused when others are on their way already. */
	if (cb->bio->bi_opf & REQ_NOWAIT)
		return NULL;
	dm_accept_partial_bio(cb->bio, nr_sectors);
	return cb;
}

static void bio_work(struct work_struct *work)
{
	struct cow_bio *cb = container_of(work, struct cow_bio, work);
	struct blk_plug plug;

	if (cb->left.bi_size) {
		cb->bio->bi_iter = cb->left;
		cb->left.bi_size = 0;
		bio_set_dev(cb->bio, cb->origin->bdev);
	}
	blk_start_plug(&plug);
	cow_bio_run(cb);
	blk_finish_plug(&plug);
}

int cow_bio_hand_over(struct cow_bio *cb, struct cow_bio **part)
{
	*part = cb;
	INIT_WORK(&cb->work, bio_work);
	queue_work(cb->origin->wq, &cb->work);
	return DM_MAPIO_SUBMITTED;
}

int cow_bio_finish(struct cow_bio *cb, blk_status_t status)
{
	cb->bio->bi_status = status;
	bio_endio(cb->bio);
	return DM_MAPIO_SUBMITTED;
}

/* ------------------------------------------------------------ writes to origin */

/* The chunks of @store that sectors of the origin touch and a snapshot covers. */
static u64 covered_chunks(const struct cow_store *store, sector_t sector,
			  sector_t nr_sectors, u64 *first)
{
	sector_t end = min(sector + nr_sectors, READ_ONCE(store->protect_sectors));

	if (sector >= end)
		return 0;
	*first = cow_sector_to_chunk(store, sector);
	return cow_sector_to_chunk(store, end - 1) - *first + 1;
}

/*
 * Is what begins at @sector preserved in every store? Returns for how many
 * sectors, up to @nr_sectors, the answer holds. RCU or origin->lock held.
 */
static sector_t preserved_run(struct cow_origin *o, sector_t sector,
			      sector_t nr_sectors, bool *preserved)
{
	struct cow_store *store;

	*preserved = true;
	list_for_each_entry_rcu(store, &o->stores, node, lockdep_is_held(&o->lock)) {
		const struct cow_live *live;
		u64 first, nr, run;
		bool here;

		live = rcu_dereference_check(store->live, lockdep_is_held(&o->lock));
		if (!live)
			continue;
		nr = covered_chunks(store, sector, nr_sectors, &first);
		if (!nr)
			continue;
		run = cow_map_preserved(&store->map, live, first, nr, &here);
		if (run < nr || !here)
			nr_sectors = min(nr_sectors,
					 cow_chunk_to_sector(store, first + run) - sector);
		if (!here) {
			*preserved = false;
			return nr_sectors;
		}
	}
	return nr_sectors;
}

/* The fastest: every store has answered for these chunks before. RCU held. */
static bool preserved_is_known(struct cow_origin *o, const struct bio *bio)
{
	struct cow_store *store;

	list_for_each_entry_rcu(store, &o->stores, node) {
		u64 first, nr;

		if (!rcu_access_pointer(store->live))
			continue;
		nr = covered_chunks(store, bio->bi_iter.bi_sector, bio_sectors(bio), &first);
		if (nr && !cow_known_all(&store->known, first, nr))
			return false;
	}
	return true;
}

/* Every store has just answered, and the gate has been open all along. RCU held. */
static void remember_preserved(struct cow_origin *o, const struct bio *bio)
{
	struct cow_store *store;

	list_for_each_entry_rcu(store, &o->stores, node) {
		u64 first, nr;

		nr = covered_chunks(store, bio->bi_iter.bi_sector, bio_sectors(bio), &first);
		if (nr && rcu_access_pointer(store->live))
			cow_known_add(&store->known, first, nr);
	}
}

struct cow_range {
	u64 first, end;			/* chunks, half open */
};

/* What one bio has asked for so far, over all stores. */
struct cow_request {
	sector_t start, end;		/* what the bio writes */
	sector_t copy_start, copy_end;	/* what is copied for it, and for later */
	bool around;			/* and why: for writes around it, not after it */
	bool exact;			/* each run read by itself: one of them may fail */
	struct list_head fresh;		/* pendings without a job yet */
	struct cow_pending *last;	/* one that the bio has to wait for */
	struct cow_store *blocked;	/* or a store */
	unsigned int nr;
	bool starved;
};

u64 cow_run_chunks_max(struct cow_store *store)
{
	unsigned int sectors = min(COW_RUN_SECTORS,
				   cow_engine_job_sectors(store->origin->engine));

	return clamp_t(u64, cow_sector_to_chunk(store, sectors), 1, COW_RUN_CHUNKS);
}

/*
 * A pending for up to @nr chunks from @at on. NULL: the request cannot go on; where
 * nobody @needs them, nothing else comes of that.
 */
static struct cow_pending *request_chunks(struct cow_request *rq, struct cow_store *store,
					  u64 at, u64 nr, bool needs)
{
	struct cow_pending *p = NULL;
	u64 place;
	u32 got;

	if (!store->writable && needs)
		__cow_store_invalidate(store, COW_SNAP_INVALID,
				       "it is read-only, and its origin is written");
	if (store->blocked && needs)
		rq->blocked = store;
	if (store->blocked || !store->writable)
		return NULL;
	got = cow_store_room(store, min(nr, cow_run_chunks_max(store)), &place);
	if (!got && needs) {
		switch (cow_store_no_room(store, true)) {
		case -EBUSY:
			rq->blocked = store;
			break;
		case -ENOMEM:
			rq->starved = true;
			break;
		}
	}
	if (!got)
		return NULL;
	if (rq->nr < PENDING_PER_BIO)
		p = cow_pending_add(store, at, got, COW_COPIED, place, got);
	if (!p) {
		cow_space_free(&store->space, place, got);
		rq->starved |= needs;
	}
	return p;
}

static bool request_is_stuck(const struct cow_request *rq)
{
	return rq->starved || rq->blocked;
}

/* Of a run that begins with what is needed some may be copied for later. */
static void count_copied(struct cow_request *rq, const struct cow_pending *p,
			 const struct cow_range *needed)
{
	const struct cow_store *store = p->store;
	struct cow_origin *o = store->origin;
	u64 from = max(p->first, needed->first), to = min(p->last + 1, needed->end);
	sector_t all = cow_chunk_to_sector(store, p->last - p->first + 1);
	sector_t more = all - (from < to ? cow_chunk_to_sector(store, to - from) : 0);

	o->ahead.copied += all;
	if (rq->around) {
		o->around.copied_around += more;
		o->around.unused += more;
	} else {
		o->ahead.copied_ahead += more;
	}
}

/* Does a bio that needs these chunks wait for @p? */
static bool is_needed(const struct cow_pending *p, const struct cow_range *needed)
{
	return p->first < needed->end && p->last >= needed->first;
}

/*
 * Ask for copies of what is not preserved in a stretch without pendings; the bio waits
 * for those of the @needed chunks. False: it cannot go on.
 */
static bool request_gap(struct cow_request *rq, struct cow_store *store,
			const struct cow_live *live, u64 at, u64 end,
			const struct cow_range *needed)
{
	while (at < end) {
		struct cow_pending *p;
		bool preserved;
		u64 nr = cow_map_preserved(&store->map, live, at, end - at, &preserved);

		if (preserved) {
			at += nr;
			continue;
		}
		p = request_chunks(rq, store, at, nr,
				   at < needed->end && at + nr > needed->first);
		if (!p && at + nr > needed->first)
			return false;
		/* What stands in front of what is needed can be left out. */
		if (!p) {
			at = needed->first;
			continue;
		}
		/*
		 * As of now: home cannot change before this is published as long as
		 * that epoch lives. A later one must not get this copy, since home
		 * may have changed between the end of this epoch and its beginning.
		 */
		p->epoch = cow_store_copy_epoch(store, live);
		list_add_tail(&p->node, &rq->fresh);
		count_copied(rq, p, needed);
		p->needed = is_needed(p, needed);
		p->exact = p->first >= needed->first && p->last < needed->end;
		if (p->needed)
			rq->last = p;
		rq->nr++;
		at = p->last + 1;
	}
	return true;
}

/* How many sectors may be copied for later: the last of the room is for what is needed. */
static sector_t store_room_ahead(const struct cow_store *store)
{
	const struct cow_space *space = &store->space;
	u64 kept = space->used + space->total / 8;

	if (store->blocked || kept >= space->total)
		return 0;
	return cow_chunk_to_sector(store, space->total - kept);
}

static void range_of(const struct cow_store *store, sector_t start, sector_t end,
		     struct cow_range *range)
{
	range->first = 0;
	range->end = covered_chunks(store, start, end - start, &range->first);
	range->end += range->first;
}

/* Chunks of @store that the bio writes, and those to be copied for it. */
static void request_range(struct cow_request *rq, struct cow_store *store,
			  struct cow_range *needed, struct cow_range *wanted)
{
	sector_t room = store_room_ahead(store);

	range_of(store, rq->start, rq->end, needed);
	*wanted = *needed;
	if (rq->around && room >= cow_store_around(store) && cow_store_around(store))
		range_of(store, rq->copy_start, rq->copy_end, wanted);
	else if (!rq->around && rq->copy_end > rq->end)
		range_of(store, rq->start,
			 min(rq->copy_end, rq->end + min(room, cow_store_ahead(store))),
			 wanted);
}

/* Ask one store for all that keeps the bio from going home, and for more. */
static void request_store(struct cow_request *rq, struct cow_store *store)
{
	const struct cow_live *live;
	struct cow_range needed, wanted;
	u64 at;

	live = rcu_dereference_protected(store->live,
					 lockdep_is_held(&store->origin->lock));
	request_range(rq, store, &needed, &wanted);
	at = wanted.first;
	while (live && at < wanted.end && !request_is_stuck(rq)) {
		struct cow_pending *p = cow_pending_overlap(store, at, wanted.end - 1);

		if (!request_gap(rq, store, live, at, p ? max(at, p->first) : wanted.end,
				 &needed))
			break;
		if (!p)
			break;
		if (is_needed(p, &needed)) {
			rq->last = p;
			cow_pending_need(p);
		}
		at = p->last + 1;
		/* The funnel may have closed the store. */
		live = rcu_dereference_protected(store->live,
						 lockdep_is_held(&store->origin->lock));
	}
}

/* What @leader's job, which reads [start, end), serves. */
static void request_share(struct cow_pending *leader, sector_t start, sector_t end)
{
	struct cow_pending *p;

	leader->job.speculative = true;
	list_for_each_entry(p, &leader->sharers, node) {
		WRITE_ONCE(p->leader, leader);
		p->offset_sectors = cow_pending_sector(p) - start;
		p->exact &= !p->offset_sectors && cow_pending_end_sector(p) == end;
		leader->job.speculative &= !p->needed;
	}
}

/* May one read of [*start, *end) serve @p as well? Then it grows to do so. */
static bool job_takes(struct cow_origin *o, const struct cow_pending *p,
		      sector_t *start, sector_t *end)
{
	sector_t from = min(*start, cow_pending_sector(p));
	sector_t to = max(*end, cow_pending_end_sector(p));

	if (cow_pending_sector(p) >= *end || cow_pending_end_sector(p) <= *start)
		return false;
	if (to - from > *end - *start &&
	    to - from > cow_engine_job_sectors(o->engine))
		return false;
	*start = from;
	*end = to;
	return true;
}

/* Make jobs of the fresh pendings: one read serves all stores that want a place. */
static void request_submit(struct cow_request *rq, struct cow_origin *o)
{
	sector_t origin_end = bdev_nr_sectors(o->bdev);
	struct cow_pending *leader, *p, *next;

	while (!list_empty(&rq->fresh)) {
		sector_t start, end;

		leader = list_first_entry(&rq->fresh, struct cow_pending, node);
		list_move(&leader->node, &leader->sharers);
		start = cow_pending_sector(leader);
		end = cow_pending_end_sector(leader);
		list_for_each_entry_safe(p, next, &rq->fresh, node)
			if (!rq->exact && job_takes(o, p, &start, &end))
				list_move_tail(&p->node, &leader->sharers);
		request_share(leader, start, end);
		/* Of the last chunk what is not there reads as zeroes. */
		cow_pending_copy(leader, o->bdev, start, min(end, origin_end) - start,
				 end - min(end, origin_end));
	}
}

static void copy_ahead(struct cow_origin *o, struct bio *bio)
{
	struct cow_request rq = { .fresh = LIST_HEAD_INIT(rq.fresh) };
	struct cow_store *store;

	spin_lock(&o->lock);
	rq.start = bio_end_sector(bio);
	rq.end = rq.start;
	rq.copy_start = rq.start;
	rq.copy_end = cow_ahead_note(o, bio->bi_iter.bi_sector, rq.end);
	list_for_each_entry(store, &o->stores, node)
		request_store(&rq, store);
	request_submit(&rq, o);
	spin_unlock(&o->lock);
}

/*
 * The fast path: no lock, nothing allocated, the bio whole. If not because of what is
 * under way, *@preserved says why not. Gate held open.
 */
static bool origin_write_is_free(struct cow_origin *o, struct bio *bio, bool *preserved)
{
	sector_t start = bio->bi_iter.bi_sector, end = bio_end_sector(bio);
	bool is_free;
	sector_t nr;

	*preserved = true;
	rcu_read_lock();
	if (preserved_is_known(o, bio)) {
		rcu_read_unlock();
		return true;
	}
	nr = preserved_run(o, start, end - start, preserved);
	*preserved = *preserved && nr == end - start;
	/* Pairs with the smp_wmb() in cow_pending_publish(). */
	smp_rmb();
	is_free = *preserved && !atomic_read(&o->nr_publishing);
	if (is_free)
		remember_preserved(o, bio);
	rcu_read_unlock();
	if (is_free) {
		cow_around_used(o, start, end);
		if (cow_ahead_due(o, start, end))
			copy_ahead(o, bio);
	}
	return is_free;
}

enum verdict { GO_HOME, PARKED, NO_MEMORY };

/* The whole truth, under the lock: start what is missing and park, or go home. */
static enum verdict origin_preserve(struct cow_origin *o, struct cow_bio *cb,
				    bool needs_copy)
{
	struct cow_request rq = { .fresh = LIST_HEAD_INIT(rq.fresh) };
	enum verdict verdict = GO_HOME;
	struct cow_store *store;

	spin_lock(&o->lock);
	rq.start = cb->bio->bi_iter.bi_sector;
	rq.end = bio_end_sector(cb->bio);
	rq.copy_start = rq.start;
	rq.copy_end = rq.end;
	rq.exact = cb->exact;
	if (needs_copy && !cb->merging && !cb->exact) {
		rq.copy_end = cow_ahead_note(o, rq.start, rq.end);
		rq.around = rq.copy_end == rq.end &&
			    cow_around_note(o, &rq.copy_start, &rq.copy_end);
	}
	list_for_each_entry(store, &o->stores, node)
		request_store(&rq, store);
	if (rq.blocked) {
		list_add_tail(&cb->node, &rq.blocked->waiting);
		verdict = PARKED;
	} else if (rq.last) {
		list_add_tail(&cb->node, &rq.last->parked);
		verdict = PARKED;
	} else if (rq.starved) {
		verdict = NO_MEMORY;
	}
	request_submit(&rq, o);
	spin_unlock(&o->lock);
	if (verdict == PARKED)
		atomic64_inc(&o->parked_writes);
	return verdict;
}

/* With the gate shut: wait for it. False if it has just opened. */
static bool origin_hold(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	bool holding;

	spin_lock(&o->lock);
	holding = o->holding;
	if (holding)
		list_add_tail(&cb->node, &o->held);
	spin_unlock(&o->lock);
	if (holding)
		atomic64_inc(&o->held_writes);
	return holding;
}

bool cow_origin_enter(struct cow_bio *cb)
{
	while (!percpu_ref_tryget_live(&cb->origin->gate))
		if (origin_hold(cb))
			return false;
	/*
	 * What was changed while the gate was shut is seen from here on. Pairs with the
	 * release of percpu_ref_resurrect() in cow_origin_thaw().
	 */
	smp_acquire__after_ctrl_dep();
	return true;
}

static int go_home(struct cow_bio *cb)
{
	cb->gated = true;
	return DM_MAPIO_REMAPPED;
}

/*
 * The slow path, with the gate held: home at once, or parked or deferred. @needs_copy:
 * it is the first write of something.
 */
static int preserve_or_go(struct cow_bio *cb, bool needs_copy)
{
	struct cow_origin *o = cb->origin;

	switch (origin_preserve(o, cb, needs_copy)) {
	case GO_HOME:
		return go_home(cb);
	case PARKED:
		break;
	case NO_MEMORY:
		cow_bio_defer(cb);
		break;
	}
	percpu_ref_put(&o->gate);
	return DM_MAPIO_SUBMITTED;
}

/* A discard is a hint: what a snapshot still needs at home is left alone. */
static int skip_discard(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	bool preserved;
	sector_t nr;

	rcu_read_lock();
	nr = preserved_run(o, cb->bio->bi_iter.bi_sector, bio_sectors(cb->bio),
			   &preserved);
	rcu_read_unlock();
	*part = cow_bio_front(cb, nr);
	if (!*part) {
		percpu_ref_put(&o->gate);
		return cow_bio_hand_over(cb, part);
	}
	if (!preserved) {
		percpu_ref_put(&o->gate);
		atomic64_inc(&o->skipped_discards);
		return cow_bio_finish(*part, BLK_STS_OK);
	}
	/* Pairs with the smp_wmb() in cow_pending_publish(). */
	smp_rmb();
	if (!atomic_read(&o->nr_publishing))
		return go_home(*part);
	/* A tracked read of this place may have to end first. */
	return preserve_or_go(*part, false);
}

int cow_origin_decide(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	struct bio *bio = cb->bio;
	bool preserved;

	cow_pace_note_write(o);
	if (!cow_origin_enter(cb))
		return DM_MAPIO_SUBMITTED;
	if (unlikely(READ_ONCE(o->nr_absent)))
		absent_note_write(o);
	if (bio_op(bio) == REQ_OP_DISCARD && cb->discard == COW_DISCARD_SKIP)
		return skip_discard(cb, part);
	if (origin_write_is_free(o, bio, &preserved))
		return go_home(cb);
	/* If it must not wait it is not cut: it is parked whole then. */
	if (cb->in_map)
		cow_bio_front(cb, WRITE_MAX_SECTORS);
	return preserve_or_go(cb, !preserved && bio_op(bio) != REQ_OP_DISCARD);
}

/* --------------------------------------------------------------- ways in, out */

static int decide(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;

	*part = cb;
	/* What an earlier decision left behind. */
	if (cb->gated) {
		cb->gated = false;
		percpu_ref_put(&o->gate);
	}
	if (cb->via_merge) {
		cb->via_merge = false;
		cb->snap = NULL;
		bio_set_dev(cb->bio, o->bdev);
	}
	if (cb->snap)
		return cow_snap_decide(cb, part);
	if (unlikely(READ_ONCE(o->merge) || !bio_sectors(cb->bio)))
		return cow_merge_decide(cb, part);
	if (bio_data_dir(cb->bio) == READ)
		return DM_MAPIO_REMAPPED;
	return cow_origin_decide(cb, part);
}

int cow_bio_map(struct cow_bio *cb)
{
	struct cow_bio *part;
	int r;

	cb->in_map = true;
	r = decide(cb, &part);
	return r == DM_MAPIO_KILL ? cow_bio_finish(part, BLK_STS_IOERR) : r;
}

void cow_bio_run(struct cow_bio *cb)
{
	struct cow_bio *part;
	bool more;

	/* Whoever waited is served without waiting for tags or polling. */
	cb->bio->bi_opf &= ~(REQ_NOWAIT | REQ_POLLED);
	cb->in_map = false;
	do {
		int r = decide(cb, &part);

		/* If it is not cut it may have ended by now. */
		more = part != cb;
		if (more && !cb->piece)
			cb = cb->rest;
		if (r == DM_MAPIO_REMAPPED)
			submit_bio_noacct(part->bio);
		else if (r == DM_MAPIO_KILL)
			cow_bio_finish(part, BLK_STS_IOERR);
	} while (more);
}

int cow_bio_ended(struct cow_bio *cb, blk_status_t *status)
{
	struct cow_bio *part;

	if (cb->tracked)
		cow_untrack_read(cb);
	if (cb->check && !*status) {
		cb->check = false;
		cow_verify_queue(cb);
		return DM_ENDIO_INCOMPLETE;
	}
	/*
	 * Writes wait for the reads of a live snapshot only, and what others have
	 * is given back. Of a snapshot that is merged only the gate keeps it here.
	 */
	if (cb->snap && bio_data_dir(cb->bio) == READ && !cow_snap_can_be_used(cb))
		*status = BLK_STS_IOERR;
	if (cb->gated) {
		cb->gated = false;
		percpu_ref_put(&cb->origin->gate);
	}
	if (cb->carries) {
		cb->carries->status = *status;
		cow_pending_finished(cb->carries);
		return DM_ENDIO_INCOMPLETE;
	}
	if (!cb->left.bi_size || *status)
		return DM_ENDIO_DONE;
	cow_bio_hand_over(cb, &part);
	return DM_ENDIO_INCOMPLETE;
}

/* Held and deferred bios decide again. */
static void origin_decide_work(struct work_struct *work)
{
	struct cow_origin *o = container_of(to_delayed_work(work), struct cow_origin,
					    decide_work);
	struct cow_bio *cb, *next;
	struct blk_plug plug;
	LIST_HEAD(bios);

	spin_lock(&o->lock);
	if (!o->holding)
		list_splice_init(&o->held, &bios);
	list_splice_tail_init(&o->deferred, &bios);
	spin_unlock(&o->lock);
	blk_start_plug(&plug);
	list_for_each_entry_safe(cb, next, &bios, node) {
		list_del_init(&cb->node);
		cow_bio_run(cb);
	}
	blk_finish_plug(&plug);
}

/* ------------------------------------------------------------------- the gate */

static void gate_drained(struct percpu_ref *ref)
{
	complete(&container_of(ref, struct cow_origin, gate)->writes_drained);
}

void cow_origin_thaw(struct cow_origin *o)
{
	lockdep_assert_held(&o->admin);
	percpu_ref_resurrect(&o->gate);
	spin_lock(&o->lock);
	o->holding = false;
	spin_unlock(&o->lock);
	mod_delayed_work(o->wq, &o->decide_work, 0);
}

int cow_origin_drain(struct cow_origin *o, unsigned long timeout)
{
	lockdep_assert_held(&o->admin);
	reinit_completion(&o->writes_drained);
	spin_lock(&o->lock);
	o->holding = true;
	spin_unlock(&o->lock);
	percpu_ref_kill(&o->gate);
	if (wait_for_completion_timeout(&o->writes_drained, timeout))
		return 0;
	DMERR("origin %pg: writes under way did not end within %lu s", o->bdev,
	      timeout / HZ);
	cow_origin_thaw(o);
	return -ETIMEDOUT;
}

int cow_origin_freeze(struct cow_origin *o)
{
	int r = cow_origin_drain(o, COW_DRAIN_JIFFIES);

	if (r)
		return r;
	r = blkdev_issue_flush(o->bdev);
	if (r) {
		DMERR("origin %pg: cannot be flushed (%d)", o->bdev, r);
		cow_origin_thaw(o);
	}
	return r;
}

/* ------------------------------------------------------------------- registry */

struct cow_origin *cow_origin_find(struct block_device *bdev)
{
	struct cow_origin *o;

	lockdep_assert_held(&cow_registry_mutex);
	list_for_each_entry(o, &origins, node)
		if (o->bdev->bd_dev == bdev->bd_dev)
			return o;
	return NULL;
}

struct cow_store *cow_store_find(struct block_device *bdev)
{
	struct cow_store *store;
	struct cow_origin *o;

	lockdep_assert_held(&cow_registry_mutex);
	list_for_each_entry(o, &origins, node)
		list_for_each_entry(store, &o->all_stores, all_node)
			if (store->bdev->bd_dev == bdev->bd_dev)
				return store;
	return NULL;
}

static void origin_free(struct cow_origin *o)
{
	percpu_ref_exit(&o->gate);
	if (!IS_ERR_OR_NULL(o->engine))
		cow_engine_destroy(o->engine);
	bioset_exit(&o->pieces);
	mempool_exit(&o->pending_pool);
	if (o->wq)
		destroy_workqueue(o->wq);
	kfree(o);
}

static int origin_init_resources(struct cow_origin *o)
{
	int r;

	r = percpu_ref_init(&o->gate, gate_drained, PERCPU_REF_ALLOW_REINIT, GFP_KERNEL);
	if (r)
		return r;
	r = cow_pending_pool_init(&o->pending_pool);
	if (r)
		return r;
	r = bioset_init(&o->pieces, 16, offsetof(struct cow_piece, bio), 0);
	if (r)
		return r;
	o->wq = alloc_workqueue("cowsnap-%u:%u", WQ_MEM_RECLAIM | WQ_UNBOUND, 0,
				MAJOR(o->bdev->bd_dev), MINOR(o->bdev->bd_dev));
	if (!o->wq)
		return -ENOMEM;
	o->engine = cow_engine_create(o->bdev, cow_pending_work, o);
	return PTR_ERR_OR_ZERO(o->engine);
}

static struct cow_origin *origin_create(struct block_device *bdev, char **error)
{
	struct cow_origin *o = kzalloc(sizeof(*o), GFP_KERNEL);

	if (!o) {
		*error = "Out of memory for an origin";
		return NULL;
	}
	o->bdev = bdev;
	o->rotates = bdev_rot(bdev);
	init_completion(&o->writes_drained);
	mutex_init(&o->admin);
	INIT_LIST_HEAD(&o->stores);
	INIT_LIST_HEAD(&o->all_stores);
	INIT_LIST_HEAD(&o->tables);
	spin_lock_init(&o->lock);
	INIT_LIST_HEAD(&o->held);
	INIT_LIST_HEAD(&o->deferred);
	spin_lock_init(&o->end_lock);
	o->reads = RB_ROOT_CACHED;
	INIT_LIST_HEAD(&o->draining);
	INIT_LIST_HEAD(&o->drained);
	INIT_LIST_HEAD(&o->finished);
	INIT_LIST_HEAD(&o->unmapped);
	INIT_LIST_HEAD(&o->meta_work);
	o->nr_absent = absent_count(bdev->bd_dev);
	INIT_DELAYED_WORK(&o->decide_work, origin_decide_work);
	cow_pace_init(&o->pace);
	if (origin_init_resources(o)) {
		*error = "Out of memory for an origin";
		origin_free(o);
		return NULL;
	}
	list_add_tail(&o->node, &origins);
	return o;
}

struct cow_origin *cow_origin_get(struct block_device *bdev, char **error)
{
	struct cow_origin *o = cow_origin_find(bdev);

	lockdep_assert_held(&cow_registry_mutex);
	if (o && o->bdev != bdev) {
		cow_fail(error, "Origin %pg was replaced by another device", bdev);
		return NULL;
	}
	if (!o && cow_store_find(bdev)) {
		cow_fail(error, "Origin %pg is in use as a store", bdev);
		return NULL;
	}
	if (!o)
		o = origin_create(bdev, error);
	if (o)
		o->refs++;
	return o;
}

void cow_origin_put(struct cow_origin *o)
{
	lockdep_assert_held(&cow_registry_mutex);
	if (--o->refs)
		return;
	list_del(&o->node);
	cancel_delayed_work_sync(&o->decide_work);
	cancel_delayed_work_sync(&o->pace.work);
	origin_free(o);
}

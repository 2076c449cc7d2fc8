// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the origin, its gate, and the life of a bio
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
 *  I3  cow_pending_publish() puts a pending into the map first and takes it out
 *      of the tree last; deciding under the lock looks at both.
 *  I4  snapshot reads on their way home stand in origin->reads from before their
 *      last lookup; publishing waits for those that overlap before writes go on.
 *  I6  an acknowledged write is at home or in the store, never merely parked; a
 *      snapshot's write is acknowledged once lookups find it. Flushes pass down.
 *  I7  map takes memory from a pool without waiting; a bio that finds none is
 *      deferred and decides again when a pending exception is freed.
 *
 * Lock order: see dm-cowsnap.h.
 */
#include <linux/interval_tree_generic.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "dm-cowsnap-compat.h"

/* Pending exceptions that are always there, and the most an origin may have. */
#define PENDING_RESERVE		64
#define PENDING_MAX		8192

/* One bio asks for at most this many at a time, then waits for the last. */
#define PENDING_PER_BIO		64

/* A bio larger than this is cut, since it would wait for all of its copies. */
#define WRITE_MAX_SECTORS		(8U * COW_RUN_SECTORS)

/* How long creating a snapshot waits for writes that the device does not finish. */
#define DRAIN_TIMEOUT_SECONDS	60

#define pending_start(p) ((p)->first)
#define pending_last(p) ((p)->last)
INTERVAL_TREE_DEFINE(struct cow_pending, rb, u64, subtree_last, pending_start,
		     pending_last, static __maybe_unused, pending_tree)

#define read_start(cb) ((cb)->start)
#define read_last(cb) ((cb)->last)
INTERVAL_TREE_DEFINE(struct cow_bio, rb, sector_t, subtree_last, read_start,
		     read_last, static __maybe_unused, read_tree)

/* A part cut off a bio in a worker, where dm can no longer cut it. */
struct cow_piece {
	struct cow_bio cb;
	struct bio *whole;
	struct bio bio;
};

/* The list of origins, and references on origins, stores and snapshots. */
DEFINE_MUTEX(cow_registry_mutex);
static LIST_HEAD(origins);
static struct kmem_cache *pending_cache;

static int decide(struct cow_bio *cb, struct cow_bio **part);
static void bio_run(struct cow_bio *cb);

/* ------------------------------------------------------------- parts of bios */

static void origin_defer(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;

	bool alone;

	spin_lock(&o->lock);
	list_add_tail(&cb->node, &o->deferred);
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

	if (cow_bio_ended(&piece->cb, bio->bi_status) == DM_ENDIO_INCOMPLETE)
		return;
	if (bio->bi_status && !whole->bi_status)
		whole->bi_status = bio->bi_status;
	bio_put(bio);
	bio_endio(whole);
}

/* The first @nr_sectors of @cb as a bio of its own. NULL without memory. */
static struct cow_bio *cut_piece(struct cow_bio *cb, unsigned int nr_sectors)
{
	struct cow_piece *piece;
	struct bio *bio;

	bio = bio_alloc_clone(cb->bio->bi_bdev, cb->bio, GFP_NOWAIT | __GFP_NOWARN,
			      &cb->origin->pieces);
	if (!bio)
		return NULL;
	piece = container_of(bio, struct cow_piece, bio);
	piece->whole = cb->bio;
	piece->cb = *cb;
	piece->cb.bio = bio;
	bio->bi_end_io = piece_endio;
	bio->bi_iter.bi_size = nr_sectors << SECTOR_SHIFT;
	bio_inc_remaining(cb->bio);
	bio_advance(cb->bio, nr_sectors << SECTOR_SHIFT);
	return &piece->cb;
}

/*
 * The first @nr_sectors of a bio: all of it, or what dm or a piece makes of it.
 * The caller goes on with the rest if what comes back is not @cb.
 */
static struct cow_bio *bio_front(struct cow_bio *cb, u64 nr_sectors)
{
	if (nr_sectors >= bio_sectors(cb->bio))
		return cb;
	if (!cb->in_map)
		return cut_piece(cb, nr_sectors);
	dm_accept_partial_bio(cb->bio, nr_sectors);
	return cb;
}

static int finish(struct cow_bio *cb, blk_status_t status)
{
	cb->bio->bi_status = status;
	bio_endio(cb->bio);
	return DM_MAPIO_SUBMITTED;
}

/* -------------------------------------------------------------- tracked reads */

static void track_read(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	unsigned long flags;

	cb->start = cb->bio->bi_iter.bi_sector;
	cb->last = bio_end_sector(cb->bio) - 1;
	cb->tracked = true;
	spin_lock_irqsave(&o->end_lock, flags);
	read_tree_insert(cb, &o->reads);
	spin_unlock_irqrestore(&o->end_lock, flags);
}

static bool reads_overlap(struct cow_origin *o, struct cow_pending *p)
{
	lockdep_assert_held(&o->end_lock);
	return read_tree_iter_first(&o->reads, cow_chunk_to_sector(p->store, p->first),
				    cow_chunk_to_sector(p->store, p->last + 1) - 1);
}

static void untrack_read(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	struct cow_pending *p, *next;
	unsigned long flags;
	bool drained = false;

	spin_lock_irqsave(&o->end_lock, flags);
	read_tree_remove(cb, &o->reads);
	cb->tracked = false;
	list_for_each_entry_safe(p, next, &o->draining, node) {
		if (!reads_overlap(o, p)) {
			list_move_tail(&p->node, &o->drained);
			drained = true;
		}
	}
	spin_unlock_irqrestore(&o->end_lock, flags);
	if (drained)
		cow_engine_kick(o->engine);
}

/* --------------------------------------------------------- pending exceptions */

static struct cow_pending *pending_overlap(struct cow_store *store, u64 first, u64 last)
{
	return pending_tree_iter_first(&store->pendings, first, last);
}

/* Room promised, in the tree, nothing started. NULL: no memory or no room. */
static struct cow_pending *pending_add(struct cow_store *store, u64 first, u64 nr,
				       enum cow_kind kind, u32 reserve)
{
	struct cow_origin *o = store->origin;
	struct cow_pending *p = NULL;

	lockdep_assert_held(&o->lock);
	if (o->nr_pendings < PENDING_MAX)
		p = mempool_alloc(&o->pending_pool, GFP_NOWAIT | __GFP_NOWARN);
	if (!p)
		return NULL;
	memset(p, 0, sizeof(*p));
	p->first = first;
	p->last = first + nr - 1;
	p->store = store;
	p->kind = kind;
	p->nr_reserved = reserve;
	INIT_LIST_HEAD(&p->node);
	INIT_LIST_HEAD(&p->parked);
	INIT_LIST_HEAD(&p->sharers);
	pending_tree_insert(p, &store->pendings);
	store->nr_pendings++;
	o->nr_pendings++;
	return p;
}

/* Data that took no job has been dealt with: let the worker publish it. */
static void pending_finished(struct cow_pending *p)
{
	struct cow_origin *o = p->store->origin;
	unsigned long flags;

	spin_lock_irqsave(&o->end_lock, flags);
	list_add_tail(&p->node, &o->finished);
	spin_unlock_irqrestore(&o->end_lock, flags);
	cow_engine_kick(o->engine);
}

/* Start the copy that @leader and all on its list of sharers wait for. */
static void pending_copy(struct cow_pending *leader, struct block_device *bdev,
			 sector_t sector, sector_t nr_sectors)
{
	leader->job.ops = &cow_store_job_ops;
	leader->job.bdev = bdev;
	leader->job.sector = sector;
	leader->job.nr_sectors = nr_sectors;
	cow_engine_submit(leader->store->origin->engine, &leader->job);
}

/* Take a pending out and let go what waits for it. Engine's worker. */
static void pending_release(struct cow_pending *p)
{
	struct cow_store *store = p->store;
	struct cow_origin *o = store->origin;
	struct cow_bio *carrier = p->carrier;
	bool refuse = p->status && cow_kind_is_private(p->kind);
	struct cow_bio *cb, *next;
	LIST_HEAD(parked);

	spin_lock(&o->lock);
	pending_tree_remove(p, &store->pendings);
	cow_store_unreserve(store, p->nr_reserved);
	if (p->publishing)
		atomic_dec(&o->nr_publishing);
	list_splice_init(&p->parked, &parked);
	mempool_free(p, &o->pending_pool);
	o->nr_pendings--;
	if (!list_empty(&o->deferred))
		mod_delayed_work(o->wq, &o->decide_work, 0);
	if (!--store->nr_pendings)
		wake_up(&store->idle);
	spin_unlock(&o->lock);

	if (carrier) {
		carrier->carries = NULL;
		bio_endio(carrier->bio);
	}
	list_for_each_entry_safe(cb, next, &parked, node) {
		list_del_init(&cb->node);
		if (refuse && cb->snap)
			finish(cb, BLK_STS_IOERR);
		else
			bio_run(cb);
	}
}

static void pending_failed(struct cow_pending *p)
{
	/* A snapshot's own write fails alone: nothing old is lost with it. */
	if (cow_kind_is_private(p->kind))
		return;
	cow_store_invalidate(p->store, COW_SNAP_INVALID,
			     p->job.read_status ? "old data could not be read" :
			     "old data could not be written to the store");
}

void cow_pending_publish(struct cow_pending *p)
{
	struct cow_origin *o = p->store->origin;
	bool wait = false;
	int r;

	if (p->status) {
		pending_failed(p);
	} else {
		/*
		 * Raised before the map changes, so that a write that finds the
		 * map changed finds this raised.
		 */
		p->publishing = true;
		atomic_inc(&o->nr_publishing);
		/* Pairs with smp_rmb() in origin_write_is_free() and skip_discard(). */
		smp_wmb();
		r = cow_store_publish(p);
		if (r == -ENOMEM)
			cow_store_invalidate(p->store, COW_SNAP_INVALID,
					     "no memory to remember an exception");
		spin_lock_irq(&o->end_lock);
		wait = reads_overlap(o, p);
		if (wait)
			list_add_tail(&p->node, &o->draining);
		spin_unlock_irq(&o->end_lock);
	}
	if (!wait)
		pending_release(p);
}

static struct cow_pending *pop_pending(struct cow_origin *o, struct list_head *list)
{
	struct cow_pending *p;

	spin_lock_irq(&o->end_lock);
	p = list_first_entry_or_null(list, struct cow_pending, node);
	if (p)
		list_del_init(&p->node);
	spin_unlock_irq(&o->end_lock);
	return p;
}

/* Runs in the engine's worker, which alone publishes. */
static void origin_publish(void *context)
{
	struct cow_origin *o = context;
	struct cow_pending *p;

	while ((p = pop_pending(o, &o->finished)))
		cow_pending_publish(p);
	while ((p = pop_pending(o, &o->drained)))
		pending_release(p);
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

/* The fast path: no lock, nothing allocated, the bio whole. Gate held open. */
static bool origin_write_is_free(struct cow_origin *o, struct bio *bio)
{
	bool preserved;
	sector_t nr;

	rcu_read_lock();
	nr = preserved_run(o, bio->bi_iter.bi_sector, bio_sectors(bio), &preserved);
	rcu_read_unlock();
	if (!preserved || nr < bio_sectors(bio))
		return false;
	/* Pairs with the smp_wmb() in cow_pending_publish(). */
	smp_rmb();
	return !atomic_read(&o->nr_publishing);
}

/* What one bio has asked for so far, over all stores. */
struct cow_request {
	struct list_head fresh;		/* pendings without a job yet */
	struct cow_pending *last;	/* one that the bio has to wait for */
	unsigned int nr;
	bool starved;
};

static u64 run_chunks_max(struct cow_store *store)
{
	unsigned int sectors = min(COW_RUN_SECTORS,
				   cow_engine_job_sectors(store->origin->engine));

	return clamp_t(u64, cow_sector_to_chunk(store, sectors), 1, COW_RUN_CHUNKS);
}

/* Ask for copies of what is not preserved in a stretch without pendings. */
static void request_gap(struct cow_request *rq, struct cow_store *store,
			const struct cow_live *live, u64 at, u64 end)
{
	while (at < end && !rq->starved) {
		struct cow_pending *p;
		bool preserved;
		u64 nr = cow_map_preserved(&store->map, live, at, end - at, &preserved);

		if (preserved) {
			at += nr;
			continue;
		}
		nr = min(nr, run_chunks_max(store));
		if (!cow_store_reserve(store, nr)) {
			__cow_store_invalidate(store, COW_SNAP_OVERFLOWED,
					       "the store is full");
			return;
		}
		p = rq->nr < PENDING_PER_BIO ?
		    pending_add(store, at, nr, COW_COPIED, nr) : NULL;
		if (!p) {
			cow_store_unreserve(store, nr);
			rq->starved = true;
			return;
		}
		list_add_tail(&p->node, &rq->fresh);
		rq->last = p;
		rq->nr++;
		at += nr;
	}
}

/* Ask one store for all that keeps the bio from going home. */
static void request_store(struct cow_request *rq, struct cow_store *store,
			  struct bio *bio)
{
	const struct cow_live *live;
	u64 at, end, nr;

	live = rcu_dereference_protected(store->live,
					 lockdep_is_held(&store->origin->lock));
	nr = covered_chunks(store, bio->bi_iter.bi_sector, bio_sectors(bio), &at);
	for (end = at + nr; live && nr && at < end && !rq->starved; ) {
		struct cow_pending *p = pending_overlap(store, at, end - 1);

		request_gap(rq, store, live, at, p ? max(at, p->first) : end);
		if (!p)
			break;
		rq->last = p;
		at = p->last + 1;
		/* The funnel may have closed the store. */
		live = rcu_dereference_protected(store->live,
						 lockdep_is_held(&store->origin->lock));
	}
}

static sector_t pending_sector(const struct cow_pending *p)
{
	return cow_chunk_to_sector(p->store, p->first);
}

static sector_t pending_end_sector(const struct cow_pending *p)
{
	return cow_chunk_to_sector(p->store, p->last + 1);
}

/* May one read of [*start, *end) serve @p as well? Then it grows to do so. */
static bool job_takes(struct cow_origin *o, const struct cow_pending *p,
		      sector_t *start, sector_t *end)
{
	sector_t from = min(*start, pending_sector(p));
	sector_t to = max(*end, pending_end_sector(p));

	if (pending_sector(p) >= *end || pending_end_sector(p) <= *start)
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
		start = pending_sector(leader);
		end = pending_end_sector(leader);
		list_for_each_entry_safe(p, next, &rq->fresh, node)
			if (job_takes(o, p, &start, &end))
				list_move_tail(&p->node, &leader->sharers);
		list_for_each_entry(p, &leader->sharers, node)
			p->offset_sectors = pending_sector(p) - start;
		pending_copy(leader, o->bdev, start, min(end, origin_end) - start);
	}
}

enum verdict { GO_HOME, PARKED, NO_MEMORY };

/* The whole truth, under the lock: start what is missing and park, or go home. */
static enum verdict origin_preserve(struct cow_origin *o, struct cow_bio *cb)
{
	struct cow_request rq = { .fresh = LIST_HEAD_INIT(rq.fresh) };
	enum verdict verdict = GO_HOME;
	struct cow_store *store;

	spin_lock(&o->lock);
	list_for_each_entry(store, &o->stores, node)
		request_store(&rq, store, cb->bio);
	if (rq.last) {
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
static bool origin_hold(struct cow_origin *o, struct cow_bio *cb)
{
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

static int go_home(struct cow_bio *cb)
{
	cb->gated = true;
	return DM_MAPIO_REMAPPED;
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
	*part = bio_front(cb, nr);
	if (!*part) {
		*part = cb;
		percpu_ref_put(&o->gate);
		origin_defer(cb);
		return DM_MAPIO_SUBMITTED;
	}
	if (!preserved) {
		percpu_ref_put(&o->gate);
		atomic64_inc(&o->skipped_discards);
		return finish(*part, BLK_STS_OK);
	}
	/* Pairs with the smp_wmb() in cow_pending_publish(). */
	smp_rmb();
	if (!atomic_read(&o->nr_publishing))
		return go_home(*part);
	/* Let a tracked read of this place end first. */
	switch (origin_preserve(o, *part)) {
	case GO_HOME:
		return go_home(*part);
	case PARKED:
		break;
	case NO_MEMORY:
		origin_defer(*part);
		break;
	}
	percpu_ref_put(&o->gate);
	return DM_MAPIO_SUBMITTED;
}

static int origin_decide(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	struct bio *bio = cb->bio;

	while (!percpu_ref_tryget_live(&o->gate))
		if (origin_hold(o, cb))
			return DM_MAPIO_SUBMITTED;
	bio_set_dev(bio, o->bdev);
	if (bio_op(bio) == REQ_OP_DISCARD && cb->discard == COW_DISCARD_SKIP)
		return skip_discard(cb, part);
	if (origin_write_is_free(o, bio))
		return go_home(cb);
	if (cb->in_map && bio_sectors(bio) > WRITE_MAX_SECTORS)
		dm_accept_partial_bio(bio, WRITE_MAX_SECTORS);
	switch (origin_preserve(o, cb)) {
	case GO_HOME:
		return go_home(cb);
	case PARKED:
		break;
	case NO_MEMORY:
		origin_defer(cb);
		break;
	}
	percpu_ref_put(&o->gate);
	return DM_MAPIO_SUBMITTED;
}

/* --------------------------------------------------------- I/O to a snapshot */

static u64 bio_chunks(const struct cow_store *store, const struct bio *bio, u64 *first)
{
	*first = cow_sector_to_chunk(store, bio->bi_iter.bi_sector);
	return cow_sector_to_chunk(store, bio_end_sector((struct bio *)bio) - 1) -
	       *first + 1;
}

/* How many sectors of @bio, from its start, lie in the @nr chunks from @first. */
static u64 bio_sectors_within(const struct cow_store *store, const struct bio *bio,
			      u64 first, u64 nr)
{
	return min_t(u64, bio_sectors(bio),
		     cow_chunk_to_sector(store, first + nr) - bio->bi_iter.bi_sector);
}

static void point_at_store(struct cow_store *store, struct bio *bio, u64 first, u64 place)
{
	bio_set_dev(bio, store->bdev);
	bio->bi_iter.bi_sector += cow_chunk_to_sector(store, place) -
				  cow_chunk_to_sector(store, first);
}

static int snap_defer(struct cow_bio *cb, struct cow_bio **part)
{
	*part = cb;
	origin_defer(cb);
	return DM_MAPIO_SUBMITTED;
}

static int snap_read_home(struct cow_bio *cb)
{
	struct cow_snap *snap = cb->snap;
	struct cow_extent ext;
	u64 first, nr;

	/*
	 * Be seen first, look again after: a write that found no tracked read
	 * here has changed the map before it looked (I4).
	 */
	track_read(cb);
	nr = bio_chunks(snap->store, cb->bio, &first);
	cow_map_lookup(&snap->store->map, first, nr, snap->epoch, &ext);
	if (ext.kind == COW_HOME && ext.nr == nr) {
		bio_set_dev(cb->bio, cb->origin->bdev);
		return DM_MAPIO_REMAPPED;
	}
	untrack_read(cb);
	if (cb->in_map)
		return -EAGAIN;
	bio_run(cb);
	return DM_MAPIO_SUBMITTED;
}

static int snap_read(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_snap *snap = cb->snap;
	struct cow_store *store = snap->store;
	struct cow_extent ext;
	u64 first, nr;
	int r;

	do {
		nr = bio_chunks(store, cb->bio, &first);
		cow_map_lookup(&store->map, first, nr, snap->epoch, &ext);
		*part = bio_front(cb, bio_sectors_within(store, cb->bio, first, ext.nr));
		if (!*part)
			return snap_defer(cb, part);
		if (cow_kind_has_place(ext.kind)) {
			point_at_store(store, (*part)->bio, first, ext.place);
			return DM_MAPIO_REMAPPED;
		}
		if (ext.kind != COW_HOME) {
			zero_fill_bio((*part)->bio);
			return finish(*part, BLK_STS_OK);
		}
		r = snap_read_home(*part);
	} while (r == -EAGAIN);
	return r;
}

static bool bio_zeroes(const struct bio *bio)
{
	return bio_op(bio) == REQ_OP_WRITE_ZEROES || bio_op(bio) == REQ_OP_DISCARD;
}

/* Can @bio be done without a change of the map? */
static bool snap_in_place(const struct cow_extent *ext, const struct bio *bio)
{
	if (ext->kind == COW_PRIVATE)
		return bio_op(bio) != REQ_OP_DISCARD;
	return ext->kind == COW_PRIVATE_ZERO && bio_zeroes(bio);
}

/* Whole chunks that @bio covers from its start on; 0 if it starts within one. */
static u64 bio_whole_chunks(const struct cow_snap *snap, const struct bio *bio)
{
	const struct cow_store *store = snap->store;
	sector_t start = bio->bi_iter.bi_sector;
	sector_t end = bio_end_sector((struct bio *)bio);
	u64 first = cow_sector_to_chunk(store, start);

	if (start != cow_chunk_to_sector(store, first))
		return 0;
	/* What lies behind the snapshot's end needs no preserving. */
	if (end == snap->nr_sectors)
		end = cow_chunk_to_sector(store, cow_sector_to_chunk(store, end - 1) + 1);
	return cow_sector_to_chunk(store, end) - first;
}

/* How a snapshot's write gets chunks of its own. */
struct snap_plan {
	enum cow_pending_mode mode;
	enum cow_kind kind;
	u64 nr;			/* chunks */
	u32 reserve;
};

static void snap_make_plan(struct cow_bio *cb, const struct cow_extent *ext,
			   struct snap_plan *plan)
{
	struct cow_store *store = cb->snap->store;
	u64 whole = min(bio_whole_chunks(cb->snap, cb->bio), ext->nr);

	plan->kind = COW_PRIVATE;
	plan->nr = min(ext->nr, run_chunks_max(store));
	plan->reserve = 0;
	if (bio_zeroes(cb->bio) && whole) {
		plan->mode = COW_BY_MARK;
		plan->kind = COW_PRIVATE_ZERO;
		plan->nr = min_t(u64, whole, COW_RUN_CHUNKS);
	} else if (ext->kind == COW_COPIED &&
		   cow_store_sole_owner(store, ext, cb->snap->epoch)) {
		plan->mode = COW_BY_MARK;
		/* Only the first chunk is known to be ours alone. */
		plan->nr = 1;
	} else if (whole) {
		plan->mode = COW_BY_BIO;
		plan->nr = min(whole, plan->nr);
		plan->reserve = plan->nr;
	} else {
		plan->mode = COW_BY_COPY;
		plan->nr = 1;
		plan->reserve = 1;
	}
}

static void snap_copy(struct cow_pending *p, const struct cow_extent *ext)
{
	struct cow_store *store = p->store;
	struct block_device *bdev = store->origin->bdev;
	sector_t sector = pending_sector(p);
	sector_t nr_sectors = min(pending_end_sector(p), bdev_nr_sectors(bdev)) - sector;

	if (ext->kind == COW_COPIED) {
		bdev = store->bdev;
		sector = cow_chunk_to_sector(store, ext->place);
		nr_sectors = store->chunk_sectors;
	} else if (ext->kind != COW_HOME) {
		bdev = NULL;
		nr_sectors = store->chunk_sectors;
	}
	pending_copy(p, bdev, sector, nr_sectors);
}

/* Carry the plan out for @part, the bio cut to fit it. origin->lock held. */
static int snap_start(struct cow_bio *part, const struct cow_extent *ext,
		      const struct snap_plan *plan, struct cow_pending *p)
{
	struct cow_store *store = p->store;

	p->mode = plan->mode;
	p->epoch = part->snap->epoch;
	if (plan->mode == COW_BY_BIO) {
		p->carrier = part;
		part->carries = p;
		p->place = cow_store_place(store, plan->nr);
		p->nr_reserved = 0;
		point_at_store(store, part->bio, p->first, p->place);
		return DM_MAPIO_REMAPPED;
	}
	list_add_tail(&part->node, &p->parked);
	if (plan->mode == COW_BY_COPY) {
		list_add(&p->node, &p->sharers);
		snap_copy(p, ext);
		return DM_MAPIO_SUBMITTED;
	}
	if (plan->kind == COW_PRIVATE) {
		p->taken_over = ext->epoch;
		p->place = ext->place;
	}
	pending_finished(p);
	return DM_MAPIO_SUBMITTED;
}

/* Give the first chunks of @cb a private version. origin->lock held. */
static int snap_privatize(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_snap *snap = cb->snap;
	struct cow_store *store = snap->store;
	struct cow_pending *p;
	struct cow_extent ext;
	struct snap_plan plan;
	u64 first, nr;

	if (snap->state != COW_SNAP_LIVE)
		return DM_MAPIO_KILL;
	nr = bio_chunks(store, cb->bio, &first);
	p = pending_overlap(store, first, first + nr - 1);
	if (p && p->first <= first) {
		list_add_tail(&cb->node, &p->parked);
		return DM_MAPIO_SUBMITTED;
	}
	/* With no pending in the way the map holds still under the lock. */
	cow_map_lookup(&store->map, first, p ? p->first - first : nr, snap->epoch, &ext);
	if (snap_in_place(&ext, cb->bio))
		return -EAGAIN;
	snap_make_plan(cb, &ext, &plan);
	if (!cow_store_reserve(store, plan.reserve))
		return -ENOSPC;
	*part = bio_front(cb, bio_sectors_within(store, cb->bio, first, plan.nr));
	p = *part ? pending_add(store, first, plan.nr, plan.kind, plan.reserve) : NULL;
	if (!p) {
		cow_store_unreserve(store, plan.reserve);
		return -ENOMEM;
	}
	return snap_start(*part, &ext, &plan, p);
}

/* A zeroed chunk is zero already; a discard may go on to the origin. */
static int snap_zero_is_done(struct cow_bio *part)
{
	if (bio_op(part->bio) == REQ_OP_DISCARD && part->passdown) {
		struct cow_bio *rest = part;

		part->snap = NULL;
		part->discard = COW_DISCARD_SKIP;
		if (part->in_map)
			return origin_decide(part, &rest);
		bio_run(part);
		return DM_MAPIO_SUBMITTED;
	}
	return finish(part, BLK_STS_OK);
}

static int snap_write(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_snap *snap = cb->snap;
	struct cow_store *store = snap->store;
	struct cow_extent ext;
	u64 first, nr;
	int r;

	do {
		nr = bio_chunks(store, cb->bio, &first);
		cow_map_lookup(&store->map, first, nr, snap->epoch, &ext);
		if (snap_in_place(&ext, cb->bio)) {
			*part = bio_front(cb, bio_sectors_within(store, cb->bio, first,
								 ext.nr));
			if (!*part)
				return snap_defer(cb, part);
			if (ext.kind == COW_PRIVATE_ZERO)
				return snap_zero_is_done(*part);
			point_at_store(store, (*part)->bio, first, ext.place);
			return DM_MAPIO_REMAPPED;
		}
		*part = cb;
		spin_lock(&snap->store->origin->lock);
		r = snap_privatize(cb, part);
		spin_unlock(&snap->store->origin->lock);
	} while (r == -EAGAIN);
	if (r == -ENOMEM)
		return snap_defer(*part ?: cb, part);
	if (r == -ENOSPC)
		return finish(cb, BLK_STS_NOSPC);
	return r;
}

/* Only whole chunks can be dropped: the ends of a discard are left as they are. */
static int snap_discard(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_store *store = cb->snap->store;
	struct bio *bio = cb->bio;
	u64 whole = bio_whole_chunks(cb->snap, bio);
	u64 first;

	if (whole) {
		*part = bio_front(cb, cow_chunk_to_sector(store, whole));
		if (!*part)
			return snap_defer(cb, part);
		if (*part == cb)
			return snap_write(cb, part);
		bio_run(*part);
		return DM_MAPIO_SUBMITTED;
	}
	bio_chunks(store, bio, &first);
	*part = bio_front(cb, bio_sectors_within(store, bio, first, 1));
	if (!*part)
		return snap_defer(cb, part);
	return finish(*part, BLK_STS_OK);
}

static int snap_decide(struct cow_bio *cb, struct cow_bio **part)
{
	if (READ_ONCE(cb->snap->state) != COW_SNAP_LIVE)
		return DM_MAPIO_KILL;
	switch (bio_op(cb->bio)) {
	case REQ_OP_READ:
		return snap_read(cb, part);
	case REQ_OP_DISCARD:
		return snap_discard(cb, part);
	default:
		return snap_write(cb, part);
	}
}

/* --------------------------------------------------------------- ways in, out */

static int decide(struct cow_bio *cb, struct cow_bio **part)
{
	*part = cb;
	return cb->snap ? snap_decide(cb, part) : origin_decide(cb, part);
}

int cow_bio_map(struct cow_bio *cb)
{
	struct cow_bio *part;

	cb->in_map = true;
	return decide(cb, &part);
}

/* Take a bio that has waited all the way, in parts if need be. Worker. */
static void bio_run(struct cow_bio *cb)
{
	struct cow_bio *part;

	/* Whoever waited is served without waiting for tags or polling. */
	cb->bio->bi_opf &= ~(REQ_NOWAIT | REQ_POLLED);
	cb->in_map = false;
	do {
		switch (decide(cb, &part)) {
		case DM_MAPIO_REMAPPED:
			submit_bio_noacct(part->bio);
			break;
		case DM_MAPIO_KILL:
			finish(part, BLK_STS_IOERR);
			break;
		}
	} while (part != cb);
}

int cow_bio_ended(struct cow_bio *cb, blk_status_t status)
{
	if (cb->gated) {
		cb->gated = false;
		percpu_ref_put(&cb->origin->gate);
	}
	if (cb->tracked)
		untrack_read(cb);
	if (cb->carries) {
		cb->carries->status = status;
		pending_finished(cb->carries);
		return DM_ENDIO_INCOMPLETE;
	}
	return DM_ENDIO_DONE;
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
		bio_run(cb);
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

int cow_origin_freeze(struct cow_origin *o)
{
	int r;

	lockdep_assert_held(&o->admin);
	reinit_completion(&o->writes_drained);
	spin_lock(&o->lock);
	o->holding = true;
	spin_unlock(&o->lock);
	percpu_ref_kill(&o->gate);
	if (!wait_for_completion_timeout(&o->writes_drained,
					 DRAIN_TIMEOUT_SECONDS * HZ)) {
		DMERR("origin %pg: writes under way did not end within %u s",
		      o->bdev, DRAIN_TIMEOUT_SECONDS);
		cow_origin_thaw(o);
		return -ETIMEDOUT;
	}
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
	r = mempool_init_slab_pool(&o->pending_pool, PENDING_RESERVE, pending_cache);
	if (r)
		return r;
	r = bioset_init(&o->pieces, 16, offsetof(struct cow_piece, bio), 0);
	if (r)
		return r;
	o->wq = alloc_workqueue("cowsnap-%u:%u", WQ_MEM_RECLAIM | WQ_UNBOUND, 0,
				MAJOR(o->bdev->bd_dev), MINOR(o->bdev->bd_dev));
	if (!o->wq)
		return -ENOMEM;
	o->engine = cow_engine_create(o->wq, origin_publish, o);
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
	init_completion(&o->writes_drained);
	mutex_init(&o->admin);
	INIT_LIST_HEAD(&o->stores);
	INIT_LIST_HEAD(&o->all_stores);
	spin_lock_init(&o->lock);
	INIT_LIST_HEAD(&o->held);
	INIT_LIST_HEAD(&o->deferred);
	spin_lock_init(&o->end_lock);
	o->reads = RB_ROOT_CACHED;
	INIT_LIST_HEAD(&o->draining);
	INIT_LIST_HEAD(&o->drained);
	INIT_LIST_HEAD(&o->finished);
	INIT_DELAYED_WORK(&o->decide_work, origin_decide_work);
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
	origin_free(o);
}

int cow_origin_init(void)
{
	pending_cache = kmem_cache_create("cowsnap_pending", sizeof(struct cow_pending),
					  0, 0, NULL);
	return pending_cache ? 0 : -ENOMEM;
}

void cow_origin_exit(void)
{
	WARN_ON(!list_empty(&origins));
	kmem_cache_destroy(pending_cache);
}

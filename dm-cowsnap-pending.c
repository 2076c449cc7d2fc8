// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: pending exceptions, and the reads they wait for
 *
 * A pending exception is a run of chunks on its way into the map. It stands in its
 * store's interval tree from when it is decided on until its exception can be
 * relied on by everybody; bios that need it are parked on it meanwhile.
 *
 *   added --> copied, carried or marked --> published --> drained --> released
 *             (kcopyd)(a bio) (nothing)     in the map    of reads    out of the tree
 *
 * Promises kept here:
 *  I3  cow_pending_publish() puts a pending into the map first, pending_release()
 *      takes it out of the tree last; whoever decides under origin->lock sees one.
 *  I4  snapshot reads on their way home stand in origin->reads from before their
 *      last lookup; a published pending waits for those that overlap it. Until it
 *      is released origin->nr_publishing keeps other writes off the fast path.
 *  I6  pending_release() acknowledges a snapshot's whole-chunk write only if what it
 *      wrote got into the map.
 *  I7  pendings come from a pool, and whoever finds none waits for one to be freed. One
 *      that the map has no memory for waits, with those parked on it, and tries again:
 *      its data is kept, so nothing is lost meanwhile.
 *
 * A copy that cannot be read costs the snapshots only if somebody is about to write all of
 * it (->exact). Else it is given up, and who waited for part of it decides again and asks
 * for no more than it needs.
 *
 * Lock order: see dm-cowsnap.h.
 */
#include <linux/interval_tree_generic.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"

/* Pending exceptions that are always there, and the most an origin may have. */
#define PENDING_RESERVE		64
#define PENDING_MAX		8192

/* Until the map is tried again when it had no memory: doubled from the first to the last. */
#define MAP_DELAY_MIN		DIV_ROUND_UP(HZ, 50)
#define MAP_DELAY_MAX		HZ

/* Where the way to the store takes longer than writing there. */
#define PATIENT_SECTORS		128U

#define pending_start(p) ((p)->first)
#define pending_last(p) ((p)->last)
INTERVAL_TREE_DEFINE(struct cow_pending, rb, u64, subtree_last, pending_start,
		     pending_last, static __maybe_unused, pending_tree)

#define read_start(cb) ((cb)->start)
#define read_last(cb) ((cb)->last)
INTERVAL_TREE_DEFINE(struct cow_bio, rb, sector_t, subtree_last, read_start,
		     read_last, static __maybe_unused, read_tree)

static struct kmem_cache *pending_cache;

/* -------------------------------------------------------------- tracked reads */

void cow_track_read(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	unsigned long flags;

	cb->start = cb->bio->bi_iter.bi_sector;
	cb->last = bio_end_sector(cb->bio) - 1;
	cb->tracked = true;
	spin_lock_irqsave(&o->end_lock, flags);
	read_tree_insert(cb, &o->reads);
	cow_pace_begin(o);
	spin_unlock_irqrestore(&o->end_lock, flags);
}

static bool reads_overlap(struct cow_origin *o, struct cow_pending *p)
{
	lockdep_assert_held(&o->end_lock);
	return read_tree_iter_first(&o->reads, cow_chunk_to_sector(p->store, p->first),
				    cow_chunk_to_sector(p->store, p->last + 1) - 1);
}

void cow_untrack_read(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	struct cow_pending *p, *next;
	unsigned long flags;
	bool drained = false;

	spin_lock_irqsave(&o->end_lock, flags);
	read_tree_remove(cb, &o->reads);
	cow_pace_end(o);
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

struct cow_pending *cow_pending_overlap(struct cow_store *store, u64 first, u64 last)
{
	return pending_tree_iter_first(&store->pendings, first, last);
}

struct cow_pending *cow_pending_add(struct cow_store *store, u64 first, u64 nr,
				    enum cow_kind kind, u64 place, u32 nr_room)
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
	p->place = place;
	p->nr_room = nr_room;
	p->own = cow_kind_is_private(kind);
	p->turn = store->own_turn;
	store->nr_own[p->turn] += p->own;
	INIT_LIST_HEAD(&p->member);
	INIT_LIST_HEAD(&p->node);
	INIT_LIST_HEAD(&p->parked);
	INIT_LIST_HEAD(&p->sharers);
	pending_tree_insert(p, &store->pendings);
	store->nr_pendings++;
	o->nr_pendings++;
	return p;
}

void cow_pending_finished(struct cow_pending *p)
{
	struct cow_origin *o = p->store->origin;
	unsigned long flags;

	/* Keeps the engine: @p may end as soon as it is on the list. */
	rcu_read_lock();
	spin_lock_irqsave(&o->end_lock, flags);
	list_add_tail(&p->node, &o->finished);
	spin_unlock_irqrestore(&o->end_lock, flags);
	cow_engine_kick(o->engine);
	rcu_read_unlock();
}

void cow_pending_copy(struct cow_pending *leader, struct block_device *bdev,
		      sector_t sector, sector_t nr_sectors, sector_t pad_sectors)
{
	leader->job.ops = &cow_store_job_ops;
	leader->job.bdev = bdev;
	leader->job.sector = sector;
	leader->job.nr_sectors = nr_sectors;
	leader->job.pad_sectors = pad_sectors;
	leader->job.urgent = false;
	/* What stays in memory for now is better published at once. */
	leader->job.patient = leader->store->meta && nr_sectors <= PATIENT_SECTORS;
	cow_engine_submit(leader->store->origin->engine, &leader->job);
}

void cow_pending_need(struct cow_pending *p)
{
	struct cow_pending *leader;

	lockdep_assert_held(&p->store->origin->lock);
	/* Pairs with the end of the job; the leader goes after that, under the lock. */
	leader = READ_ONCE(p->leader);
	if (leader)
		cow_engine_need(p->store->origin->engine, &leader->job);
}

void cow_pending_copy_again(struct cow_pending *p)
{
	struct block_device *bdev = p->store->origin->bdev;
	sector_t start = cow_pending_sector(p), end = cow_pending_end_sector(p);
	sector_t nr_sectors = min(end, bdev_nr_sectors(bdev)) - start;

	/* Perhaps it was copied with others before. */
	p->offset_sectors = 0;
	/* Without a leader nobody could say later that it is needed. */
	p->job.speculative = false;
	list_add_tail(&p->node, &p->sharers);
	cow_pending_copy(p, bdev, start, nr_sectors, end - start - nr_sectors);
}

/* What did not get into the map needs no room. */
static void pending_free_room(struct cow_pending *p)
{
	u32 from, to;

	if (!p->nr_room)
		return;
	/* Of a transient store, zeroes have given theirs back already. */
	if (!p->store->meta && p->nr_zero)
		bitmap_or(p->mapped, p->mapped, p->zero, p->nr_room);
	for (to = 0; (from = find_next_zero_bit(p->mapped, p->nr_room, to)) < p->nr_room; ) {
		to = find_next_bit(p->mapped, p->nr_room, from);
		cow_space_free(&p->store->space, p->place + from, to - from);
	}
}

struct cow_pending *cow_pending_kept(struct cow_store *store, u64 first, u64 last)
{
	struct cow_pending *p = pending_tree_iter_first(&store->kept, first, last);

	if (p)
		return p;
	p = pending_tree_iter_first(&store->pendings, first, last);
	while (p && !(p->kept && p->publishing))
		p = pending_tree_iter_next(p, first, last);
	return p;
}

void cow_pending_forget_kept(struct cow_pending *p)
{
	pending_tree_remove(p, &p->store->kept);
}

/* It has left the tree of pendings, but its data is still to be written. */
static void pending_keep(struct cow_pending *p)
{
	/* What did not get into the map has its room to give back. */
	if (p->nr_room) {
		cow_undo_drop(p);
		return;
	}
	pending_tree_insert(p, &p->store->kept);
	cow_undo_add(p);
}

/* Take a pending out and let go what waits for it. Engine's worker. */
static void pending_release(struct cow_pending *p)
{
	struct cow_store *store = p->store;
	struct cow_origin *o = store->origin;
	struct cow_bio *carrier = p->carrier;
	blk_status_t status = p->status;
	bool refuse = status && cow_kind_is_private(p->kind);
	bool exact = p->unread;
	struct cow_bio *cb, *next;
	LIST_HEAD(parked);

	spin_lock(&o->lock);
	pending_tree_remove(p, &store->pendings);
	pending_free_room(p);
	store->nr_own[p->turn] -= p->own;
	if (p->publishing)
		atomic_dec(&o->nr_publishing);
	list_splice_init(&p->parked, &parked);
	if (p->kept)
		pending_keep(p);
	else
		mempool_free(p, &o->pending_pool);
	o->nr_pendings--;
	if (!list_empty(&o->deferred))
		mod_delayed_work(o->wq, &o->decide_work, 0);
	store->nr_pendings--;
	/* Whoever waits is on the queue before he looks, which he does under the lock. */
	if (waitqueue_active(&store->idle))
		wake_up(&store->idle);
	spin_unlock(&o->lock);

	if (carrier) {
		carrier->carries = NULL;
		/* Its data may have been written, but nobody would find it there (I6). */
		if (status && !carrier->bio->bi_status)
			carrier->bio->bi_status = status;
		bio_endio(carrier->bio);
	}
	list_for_each_entry_safe(cb, next, &parked, node) {
		list_del_init(&cb->node);
		cb->exact |= exact;
		if (refuse && cb->snap)
			cow_bio_finish(cb, BLK_STS_IOERR);
		else
			cow_bio_run(cb);
	}
}

static void pending_failed(struct cow_pending *p)
{
	/* A snapshot's own write fails alone: nothing old is lost with it. */
	if (cow_kind_is_private(p->kind))
		return;
	/* Nor is anything while home is not written: the next write decides. */
	if (p->unread && !p->exact)
		return;
	cow_store_invalidate(p->store, COW_SNAP_INVALID,
			     p->unread ? "old data could not be read" :
			     "old data could not be written to the store");
}

/* There was no memory to put @p into the map. Wait until there may be some. */
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

/* Its data is safe: into the map with it. */
static void pending_map(struct cow_pending *p)
{
	struct cow_origin *o = p->store->origin;
	bool wait;
	int r;

	/*
	 * Raised before the map changes, so that a write that finds the
	 * map changed finds this raised.
	 */
	if (!p->publishing)
		atomic_inc(&o->nr_publishing);
	p->publishing = true;
	/* Pairs with smp_rmb() in origin_write_is_free() and skip_discard(). */
	smp_wmb();
	r = cow_store_publish(p);
	if (r == -ENOMEM) {
		pending_map_later(p);
		return;
	}
	if (!r)
		p->nr_room = 0;
	else if (cow_kind_is_private(p->kind))
		p->status = BLK_STS_IOERR;
	spin_lock_irq(&o->end_lock);
	wait = reads_overlap(o, p);
	if (wait)
		list_add_tail(&p->node, &o->draining);
	spin_unlock_irq(&o->end_lock);
	if (!wait)
		pending_release(p);
}

void cow_pending_publish(struct cow_pending *p)
{
	if (!p->status) {
		pending_map(p);
		return;
	}
	pending_failed(p);
	pending_release(p);
}

/* Those that the map had no memory for, when it is time. */
static void map_again(struct cow_origin *o)
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

/* Who puts something on a list wakes the worker after that: a look without the lock will do. */
static struct cow_pending *pop_pending(struct cow_origin *o, struct list_head *list)
{
	struct cow_pending *p;

	if (list_empty_careful(list))
		return NULL;
	spin_lock_irq(&o->end_lock);
	p = list_first_entry_or_null(list, struct cow_pending, node);
	if (p)
		list_del_init(&p->node);
	spin_unlock_irq(&o->end_lock);
	return p;
}

/* Data is where it belongs: in a persistent store that has to be written down. */
static void pending_commit(struct cow_pending *p)
{
	if (!p->store->meta || p->status || !cow_meta_join(p, NULL))
		cow_pending_publish(p);
}

static struct cow_meta *pop_meta(struct cow_origin *o)
{
	struct cow_meta *meta;

	if (list_empty_careful(&o->meta_work))
		return NULL;
	spin_lock_irq(&o->end_lock);
	meta = cow_meta_pop(&o->meta_work);
	spin_unlock_irq(&o->end_lock);
	return meta;
}

void cow_pending_work(void *context)
{
	struct cow_origin *o = context;
	struct cow_meta *meta;
	struct cow_pending *p;

	map_again(o);
	while ((p = pop_pending(o, &o->finished)))
		pending_commit(p);
	while ((meta = pop_meta(o)))
		cow_meta_work(meta);
	while ((p = pop_pending(o, &o->drained)))
		pending_release(p);
}

/* -------------------------------------------------------------- set up, down */

int cow_pending_pool_init(mempool_t *pool)
{
	return mempool_init_slab_pool(pool, PENDING_RESERVE, pending_cache);
}

int cow_pending_init(void)
{
	pending_cache = kmem_cache_create("cowsnap_pending", sizeof(struct cow_pending),
					  0, 0, NULL);
	return pending_cache ? 0 : -ENOMEM;
}

void cow_pending_exit(void)
{
	kmem_cache_destroy(pending_cache);
}

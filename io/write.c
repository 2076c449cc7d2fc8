// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: writes to the origin
 *
 * Each write to an origin passes one decision: does any live snapshot still see this at
 * home?
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
 *  I4  the part of writers: the fast path is open only while no published pending near by
 *      waits for reads; see origin/reads.c.
 *  I6  an acknowledged write is at home, never merely parked. Flushes pass down.
 *  I7  map takes memory from a pool without waiting; a bio that finds none is
 *      deferred and decides again when a pending exception is freed.
 */
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "io/ahead.h"
#include "io/around.h"
#include "io/bio.h"
#include "io/redirect.h"
#include "io/request.h"
#include "io/track.h"
#include "io/write.h"
#include "origin/absent.h"
#include "origin/bio.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "origin/pace.h"
#include "origin/seal.h"
#include "store/known.h"
#include "store/store.h"

/* A bio larger than this is cut, since it would wait for all of its copies. */
#define WRITE_MAX_SECTORS	(8U * COW_RUN_SECTORS)

/*
 * Is what begins at @sector preserved in every store? Returns for how many
 * sectors, up to @nr_sectors, the answer holds. RCU or origin->state_lock held.
 */
static sector_t preserved_run(struct cow_origin *o, sector_t sector,
			      sector_t nr_sectors, bool *preserved)
{
	struct cow_store *store;

	*preserved = true;
	list_for_each_entry_rcu(store, &o->stores, node, lockdep_is_held(&o->state_lock)) {
		const struct cow_live *live;
		u64 first, nr, run;
		bool here;

		live = rcu_dereference_check(store->live, lockdep_is_held(&o->state_lock));
		if (!live)
			continue;
		nr = cow_covered_chunks(store, sector, nr_sectors, &first);
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

/* The fastest way: every store has answered for these chunks before. RCU held. */
static bool preserved_is_known(struct cow_origin *o, const struct bio *bio)
{
	struct cow_store *store;

	list_for_each_entry_rcu(store, &o->stores, node) {
		u64 first, nr;

		if (!rcu_access_pointer(store->live))
			continue;
		nr = cow_covered_chunks(store, bio->bi_iter.bi_sector, bio_sectors(bio), &first);
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

		nr = cow_covered_chunks(store, bio->bi_iter.bi_sector, bio_sectors(bio), &first);
		if (nr && rcu_access_pointer(store->live))
			cow_known_add(&store->known, first, nr);
	}
}

/*
 * The fast path: no lock, no allocation, the bio is not cut. If it returns false, *@preserved
 * says that only pendings near by are in the way; it is false also where the map was not asked.
 * The gate is held.
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
	/*
	 * Most likely not: then the map is asked once, under the lock, not twice. A wrong guess
	 * may take a rewriter for the beginning of a stream, which would cost a disk seeks.
	 */
	if (READ_ONCE(o->nr_firsts) == COW_FIRSTS && !o->rotational) {
		rcu_read_unlock();
		*preserved = false;
		return false;
	}
	nr = preserved_run(o, start, end - start, preserved);
	*preserved = *preserved && nr == end - start;
	/* Pairs with smp_wmb() in pending_map(). */
	smp_rmb();
	is_free = *preserved && !cow_publishing(o, start, end);
	if (is_free)
		remember_preserved(o, bio);
	rcu_read_unlock();
	if (*preserved && READ_ONCE(o->nr_firsts))
		WRITE_ONCE(o->nr_firsts, 0);
	if (is_free) {
		cow_around_used(o, start, end);
		if (cow_ahead_due(o, start, end))
			cow_copy_ahead(o, bio);
	}
	return is_free;
}

static int go_home(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;

	if (unlikely(READ_ONCE(o->nr_trackers)) && !cow_track_write(cb)) {
		percpu_ref_put(&o->gate);
		return DM_MAPIO_SUBMITTED;
	}
	cow_bio_note_absent(o);
	cb->gated = true;
	cow_bio_go_home(o, cb->bio);
	return DM_MAPIO_REMAPPED;
}

/*
 * The slow path, with the gate held: home at once, or parked, or deferred. @needs_copy: some
 * chunk is written for the first time.
 */
static int preserve_or_go(struct cow_bio *cb, bool needs_copy)
{
	struct cow_origin *o = cb->origin;
	struct cow_bio *part;
	struct cow_job *here;
	enum cow_preserve verdict = cow_origin_preserve(o, cb, needs_copy, &here);

	switch (verdict) {
	case COW_GO_HOME:
		/* Nothing was missing or on its way, seen under the lock. */
		rcu_read_lock();
		remember_preserved(o, cb->bio);
		rcu_read_unlock();
		/* Now that it is known the fast path will not see it again. */
		cow_around_used(o, cb->bio->bi_iter.bi_sector, bio_end_sector(cb->bio));
		return go_home(cb);
	case COW_PARKED:
	case COW_REDIRECTED:
		break;
	case COW_NO_MEMORY:
		cow_bio_defer(cb);
		break;
	case COW_NO_ROOM:
		percpu_ref_put(&o->gate);
		return cow_bio_finish(cb, BLK_STS_NOSPC);
	}
	percpu_ref_put(&o->gate);
	if (verdict == COW_REDIRECTED)
		return cow_bio_hand_over(cb, &part);
	/* In map: the table keeps the origin, and the job its store. */
	if (here)
		cow_engine_read_here(here);
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
	/* Pairs with smp_wmb() in pending_map(). */
	smp_rmb();
	if (!cow_publishing(o, (*part)->bio->bi_iter.bi_sector, bio_end_sector((*part)->bio)))
		return go_home(*part);
	/* A tracked read of this place may have to end first. */
	return preserve_or_go(*part, false);
}

/*
 * What begins in the sealed part of an origin ends there: the first part of @cb does. NULL: it
 * could not be cut and is handed over. The gate is held.
 */
static struct cow_bio *cut_at_seal(struct cow_bio *cb, struct cow_bio **part)
{
	const struct bio *bio = cb->bio;
	sector_t nr = cow_home_run(cb->origin, bio->bi_iter.bi_sector, bio_sectors(bio));

	/* A worker can cut only once in a decision. */
	if (!cb->in_map && bio_op(bio) != REQ_OP_DISCARD)
		nr = min_t(sector_t, nr, WRITE_MAX_SECTORS);
	*part = cow_bio_front(cb, nr);
	if (*part)
		return *part;
	percpu_ref_put(&cb->origin->gate);
	cow_bio_hand_over(cb, part);
	return NULL;
}

int cow_origin_decide(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	struct bio *bio = cb->bio;
	struct cow_bio *front;
	bool preserved;

	if (o->rotational && !cb->merging)
		cow_pace_note_write(&o->pace);
	if (!cow_origin_enter(cb))
		return DM_MAPIO_SUBMITTED;
	if (cow_is_sealed(o, bio->bi_iter.bi_sector)) {
		cb = cut_at_seal(cb, part);
		if (!cb)
			return DM_MAPIO_SUBMITTED;
		bio = cb->bio;
		/* A hint: the store's device need not take it. */
		if (bio_op(bio) == REQ_OP_DISCARD) {
			percpu_ref_put(&o->gate);
			return cow_bio_finish(cb, BLK_STS_OK);
		}
	} else if (unlikely(READ_ONCE(o->redirects_to))) {
		int r = cow_redirect_write(cb, part);

		if (r != COW_NOT_REDIRECTED)
			return r;
	}
	if (bio_op(bio) == REQ_OP_DISCARD && cb->discard == COW_DISCARD_SKIP)
		return skip_discard(cb, part);
	if (origin_write_is_free(o, bio, &preserved))
		return go_home(cb);
	/* A REQ_NOWAIT bio is not cut; it is parked whole. */
	front = cow_bio_front(cb, WRITE_MAX_SECTORS);
	if (front) {
		cb = front;
		*part = front;
	}
	return preserve_or_go(cb, !preserved && bio_op(cb->bio) != REQ_OP_DISCARD);
}

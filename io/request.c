// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: what a write to the origin has copied before it may go home
 *
 * Under origin->state_lock, for each store: chunks that no live epoch finds in the map and
 * that are not on their way get room, a pending exception and a copy job. The bio
 * parks on the last pending that it needs. The run may be longer than the bio: ahead
 * of a stream (io/ahead.c), or around a write to a hot region (io/around.c).
 */
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "copy/copy.h"
#include "copy/pending.h"
#include "io/ahead.h"
#include "io/around.h"
#include "io/request.h"
#include "origin/bio.h"
#include "origin/origin.h"
#include "origin/seal.h"
#include "store/epochs.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/space.h"
#include "store/state.h"
#include "store/store.h"
#include "trace/cowsnap.h"

/* One bio asks for at most this many at a time, then waits for the last. */
#define PENDING_PER_BIO		1024

struct cow_range {
	u64 first, end;			/* chunks, half open */
};

/* What one bio has asked for so far, over all stores. */
struct cow_request {
	sector_t start, end;		/* what the bio writes */
	sector_t copy_start, copy_end;	/* what is copied for it, and for later */
	bool around;			/* and why: for writes around it, not after it */
	bool exact;			/* each run read by itself: one of them may fail */
	bool merging;			/* a merge's own */
	bool in_map;			/* the first read may be sent by the caller */
	struct cow_job *here;		/* which it is, once the lock is dropped */
	struct list_head fresh;		/* pendings without a job yet */
	struct cow_pending *last;	/* one that the bio has to wait for */
	struct cow_store *blocked;	/* or a store */
	unsigned int nr;
	bool starved;
	bool no_room;
	bool redirected;		/* something that the bio writes is not at home any more */
};

/*
 * The store is full. A user's write goes on at the cost of snapshots, as on_full says. A merge
 * can wait until there is room, unless the oldest snapshots are to go.
 */
static void request_no_room(struct cow_request *rq, struct cow_store *store)
{
	bool must = !rq->merging || store->options.on_full == COWSNAP_FULL_DROP_OLDEST;

	switch (cow_store_no_room(store, must)) {
	case -EBUSY:
		rq->blocked = store;
		break;
	case -ENOMEM:
		rq->starved = true;
		break;
	default:
		rq->no_room = !must;
		break;
	}
}

/*
 * A pending for up to @nr chunks from @at on. NULL: the request has to stop. If the bio does
 * not need these chunks (they are copied ahead), that is harmless.
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
	if (!got && needs)
		request_no_room(rq, store);
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
	return rq->starved || rq->blocked || rq->no_room || rq->redirected;
}

/* A run that begins with needed chunks may go on with chunks for later. */
static void count_copied(struct cow_request *rq, const struct cow_pending *p,
			 const struct cow_range *needed)
{
	const struct cow_store *store = p->store;
	struct cow_origin *o = store->origin;
	u64 from = max(p->first, needed->first), to = min(p->last + 1, needed->end);
	sector_t all = cow_chunk_to_sector(store, p->last - p->first + 1);
	sector_t more = all - (from < to ? cow_chunk_to_sector(store, to - from) : 0);

	cow_ahead_count(o, all, rq->around ? 0 : more);
	if (rq->around)
		cow_around_count(o, more);
}

/* Does a bio that needs these chunks wait for @p? */
static bool is_needed(const struct cow_pending *p, const struct cow_range *needed)
{
	return p->first < needed->end && p->last >= needed->first;
}

/* One copy reads from one device: how many of @nr chunks from @at on has that of the first? */
static u64 home_chunks(const struct cow_store *store, u64 at, u64 nr)
{
	u64 sectors = cow_home_run(store->origin, cow_chunk_to_sector(store, at),
				   cow_chunk_to_sector(store, nr));

	return cow_sector_to_chunk(store, sectors);
}

/* Home is never copied where the origin shows something else. Returns how many chunks it is. */
static u64 redirected_chunks(struct cow_store *store, u64 at, u64 *nr)
{
	struct cow_extent ext;

	if (likely(!store->has_current))
		return 0;
	cow_map_lookup(&store->map, at, *nr, COW_EPOCH_NOW, &ext);
	*nr = ext.nr;
	return cow_kind_is_current(ext.kind) ? ext.nr : 0;
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

		nr = home_chunks(store, at, nr);
		if (preserved) {
			at += nr;
			continue;
		}
		if (redirected_chunks(store, at, &nr)) {
			rq->redirected |= at < needed->end && at + nr > needed->first;
			if (rq->redirected)
				return false;
			at += nr;
			continue;
		}
		p = request_chunks(rq, store, at, nr,
				   at < needed->end && at + nr > needed->first);
		if (!p && at + nr > needed->first)
			return false;
		/* Chunks in front of the needed ones can be left out. */
		if (!p) {
			at = needed->first;
			continue;
		}
		/*
		 * The epoch of now: as long as it lives, home cannot change before this
		 * is published. A later epoch must not get this copy, since home may
		 * have changed between the end of this epoch and the start of that one.
		 */
		p->epoch = cow_store_copy_epoch(store, live);
		list_add_tail(&p->node, &rq->fresh);
		count_copied(rq, p, needed);
		p->needed = is_needed(p, needed);
		p->exact = p->first >= needed->first && p->last < needed->end;
		if (p->needed) {
			rq->last = p;
			cow_pending_begin(p);
			if (!list_is_first(&p->node, &rq->fresh))
				cow_pending_follow(p, list_prev_entry(p, node));
		}
		rq->nr++;
		at = p->last + 1;
	}
	return true;
}

/* How many sectors may be copied for later? The last eighth of the room is kept back. */
static sector_t store_room_ahead(const struct cow_store *store)
{
	const struct cow_space *space = &store->space;
	u64 kept = cow_space_filled(space) + space->total / 8;

	if (store->blocked || kept >= space->total)
		return 0;
	return cow_chunk_to_sector(store, space->total - kept);
}

static void range_of(const struct cow_store *store, sector_t start, sector_t end,
		     struct cow_range *range)
{
	range->first = 0;
	range->end = cow_covered_chunks(store, start, end - start, &range->first);
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

/* Ask for all copies in one store that the bio has to wait for, and for more. */
static void request_store(struct cow_request *rq, struct cow_store *store)
{
	const struct cow_live *live;
	struct cow_range needed, wanted;
	u64 at;

	live = rcu_dereference_protected(store->live,
					 lockdep_is_held(&store->origin->state_lock));
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
		/* __cow_store_invalidate() may have emptied it. */
		live = rcu_dereference_protected(store->live,
						 lockdep_is_held(&store->origin->state_lock));
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

/*
 * Runs of a store side by side that have their places apart, with tables in between: is it better
 * to read both at once? On a disk that turns, but for so much that part of it could be written
 * meanwhile. Short ones may go to the log.
 */
static bool is_read_with(struct cow_origin *o, const struct cow_pending *leader,
			 const struct cow_pending *p, sector_t from, sector_t to)
{
	const struct cow_store *store = leader->store;

	return o->rotational && store == p->store && store->meta && bdev_rot(store->bdev) &&
	       !store->options.redirect && leader->needed && p->needed &&
	       to - from <= COW_RUN_SECTORS &&
	       (cow_pending_has_length(leader) || cow_pending_has_length(p)) &&
	       cow_home_run(o, from, to - from) == to - from &&
	       cow_origin_has(o, from, to) == to - from;
}

/* May one read of [*start, *end), for @leader, serve @p as well? Then it grows to do so. */
static bool job_takes(struct cow_origin *o, const struct cow_pending *leader,
		      const struct cow_pending *p, sector_t *start, sector_t *end)
{
	sector_t from = min(*start, cow_pending_sector(p));
	sector_t to = max(*end, cow_pending_end_sector(p));

	if (cow_pending_sector(p) > *end || cow_pending_end_sector(p) < *start)
		return false;
	if ((cow_pending_sector(p) == *end || cow_pending_end_sector(p) == *start) &&
	    !is_read_with(o, leader, p, from, to))
		return false;
	if (to - from > *end - *start && !cow_engine_fits(o->engine, to - from))
		return false;
	*start = from;
	*end = to;
	return true;
}

/*
 * Make jobs of the fresh pendings: one read serves all stores that need the chunks, and runs beside
 * them. The first may become the caller's to send.
 */
static void request_submit(struct cow_request *rq, struct cow_origin *o)
{
	struct cow_pending *leader, *p, *next;

	while (!list_empty(&rq->fresh)) {
		struct block_device *home;
		sector_t start, end, has, pad;

		leader = list_first_entry(&rq->fresh, struct cow_pending, node);
		list_move(&leader->node, &leader->sharers);
		start = cow_pending_sector(leader);
		end = cow_pending_end_sector(leader);
		list_for_each_entry_safe(p, next, &rq->fresh, node)
			if (!rq->exact && job_takes(o, leader, p, &start, &end))
				list_move_tail(&p->node, &leader->sharers);
		request_share(leader, start, end);
		/* Behind the end of the origin the last chunk reads as zeroes. */
		has = cow_origin_has(o, start, end);
		pad = end - start - has;
		home = cow_home(o, &start);
		/* Whether the store's device would take such a read is not known. */
		if (!rq->in_map || home != o->bdev)
			cow_pending_copy(leader, home, start, has, pad);
		else if (cow_pending_copy_here(leader, home, start, has, pad))
			rq->here = &leader->job;
		rq->in_map = false;
	}
}

void cow_copy_ahead(struct cow_origin *o, struct bio *bio)
{
	struct cow_request rq = { .fresh = LIST_HEAD_INIT(rq.fresh) };
	struct cow_store *store;

	spin_lock(&o->state_lock);
	rq.start = bio_end_sector(bio);
	rq.end = rq.start;
	rq.copy_start = rq.start;
	rq.copy_end = cow_ahead_note(o, bio->bi_iter.bi_sector, rq.end);
	list_for_each_entry(store, &o->stores, node)
		request_store(&rq, store);
	request_submit(&rq, o);
	spin_unlock(&o->state_lock);
}

/* Has a write needed a copy? See origin_write_is_free(). */
static void note_first(struct cow_origin *o, bool first)
{
	/* The fast path sets it to 0 without the lock. */
	unsigned int was = READ_ONCE(o->nr_firsts);
	unsigned int nr = first ? min(was + 1, COW_FIRSTS) : 0;

	lockdep_assert_held(&o->state_lock);
	if (nr != was)
		WRITE_ONCE(o->nr_firsts, nr);
}

enum cow_preserve cow_origin_preserve(struct cow_origin *o, struct cow_bio *cb,
				      bool needs_copy, struct cow_job **here)
{
	struct cow_request rq = { .fresh = LIST_HEAD_INIT(rq.fresh) };
	enum cow_preserve verdict = COW_GO_HOME;
	struct cow_store *store;

	spin_lock(&o->state_lock);
	rq.start = cb->bio->bi_iter.bi_sector;
	rq.end = bio_end_sector(cb->bio);
	rq.copy_start = rq.start;
	rq.copy_end = rq.end;
	rq.exact = cb->exact;
	rq.merging = cb->merging;
	rq.in_map = cb->in_map;
	if (needs_copy && !cb->merging && !cb->exact) {
		rq.copy_end = cow_ahead_note(o, rq.start, rq.end);
		rq.around = rq.copy_end == rq.end &&
			    cow_around_note(o, &rq.copy_start, &rq.copy_end);
	}
	list_for_each_entry(store, &o->stores, node)
		request_store(&rq, store);
	if (rq.blocked) {
		cow_bio_park(cb, &rq.blocked->waiting, COW_WAIT_STORE);
		verdict = COW_PARKED;
	} else if (rq.last) {
		cow_pending_park(rq.last, cb);
		verdict = COW_PARKED;
	} else if (rq.starved) {
		verdict = COW_NO_MEMORY;
	} else if (rq.no_room) {
		verdict = COW_NO_ROOM;
	} else if (rq.redirected) {
		verdict = COW_REDIRECTED;
	}
	/* Copies ahead and around, rq.nr counts them too, say nothing of this write. */
	if (rq.last || verdict == COW_GO_HOME)
		note_first(o, rq.last);
	request_submit(&rq, o);
	spin_unlock(&o->state_lock);
	/* @cb may have been ended by now. */
	*here = rq.here;
	if (verdict == COW_PARKED)
		atomic64_inc(&o->parked_writes);
	return verdict;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: reading and writing a snapshot
 *
 * A snapshot sees a chunk at its own private version, else at the oldest copied version of its
 * epoch or a later one, else at the newest that was current before it, else at home. Reads go
 * where the map says, cut only where that changes. Writes go in place where the snapshot has a
 * private version; where it has none it gets one first, by the cheapest way:
 *
 *   seen by no other live snapshot   the copied version becomes private where it is; one
 *                                    copied as zeroes gets its data at its own place
 *   zeroing of whole chunks          a version that needs no data
 *   the bio covers whole chunks      the bio's own data, published when it is written
 *   else                             a copy, then the write in place
 *
 * Promises kept here:
 *  I4  snap_read_home() tracks a read before its last lookup; see origin/reads.c.
 *  I6  a write is acknowledged once it is where lookups find it.
 */
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap.h"
#include "copy/copy.h"
#include "copy/pending.h"
#include "copy/undo.h"
#include "disk/meta.h"
#include "disk/verify.h"
#include "io/bio.h"
#include "io/snapshot.h"
#include "io/write.h"
#include "origin/bio.h"
#include "origin/gate.h"
#include "origin/pace.h"
#include "origin/reads.h"
#include "origin/seal.h"
#include "store/epochs.h"
#include "store/readers.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/space.h"
#include "store/state.h"
#include "store/store.h"
#include "trace/cowsnap.h"

/* From here on no place that the map has is given to others, until snap_reads_elsewhere(). */
static void snap_reads_store(struct cow_bio *cb)
{
	cb->read_turn = cow_readers_enter(cb->snap->store);
	cb->reading = true;
}

/* @cb does not read from the store now. It may wait. */
static void snap_reads_elsewhere(struct cow_bio *cb)
{
	cb->reading = false;
	cow_readers_leave(cb->snap->store, cb->read_turn);
}

static int snap_defer(struct cow_bio *cb, struct cow_bio **part)
{
	*part = cb;
	cow_bio_defer(cb);
	return DM_MAPIO_SUBMITTED;
}

static int snap_read_home(struct cow_bio *cb)
{
	struct cow_snap *snap = cb->snap;
	struct cow_extent ext;
	u64 first, nr;

	/* Reads of an origin under merge are foreground I/O, not a backup: never paced. */
	if (!cb->via_merge && cow_pace_wait(cb))
		return DM_MAPIO_SUBMITTED;
	/*
	 * First be seen, then look again: a write that found no tracked read here has
	 * changed the map before it looked for one (I4).
	 */
	cow_track_read(cb);
	nr = cow_bio_chunks(snap->store, cb->bio, &first);
	cow_map_lookup(&snap->store->map, first, nr, snap->epoch, &ext);
	if (ext.kind == COW_HOME && ext.nr == nr) {
		cow_bio_go_home(cb->origin, cb->bio);
		return DM_MAPIO_REMAPPED;
	}
	cow_untrack_read(cb);
	if (cb->in_map)
		return -EAGAIN;
	cow_bio_decide_again(cb);
	return DM_MAPIO_SUBMITTED;
}

/* Part of a chunk, or whole ones, with a checksum. */
static int snap_read_copied(struct cow_bio *cb, struct cow_bio **part,
			    const struct cow_extent *ext)
{
	struct cow_version v = { .chunk = ext->chunk, .place = ext->place, .epoch = ext->epoch };
	int r = cow_verify_read(cb, cb->snap->store, &v);

	if (r != -ENOMEM)
		return r;
	snap_reads_elsewhere(cb);
	return snap_defer(cb, part);
}

/* The chunks of @cb have a place in the store: is their data still to be written there? */
static bool snap_waits_for_data(struct cow_bio *cb)
{
	struct cow_store *store = cb->snap->store;
	u64 first, nr = cow_bio_chunks(store, cb->bio, &first);
	bool waits;

	/*
	 * The lookup comes before reading nr_undo. Pairs with smp_wmb() in pending_map():
	 * nr_undo is raised before the exception is published.
	 */
	smp_rmb();
	if (likely(!READ_ONCE(store->nr_undo)))
		return false;
	spin_lock(&store->origin->state_lock);
	waits = cow_undo_wait(cb, first, nr);
	if (waits)
		snap_reads_elsewhere(cb);
	spin_unlock(&store->origin->state_lock);
	return waits;
}

static int snap_read(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_snap *snap = cb->snap;
	struct cow_store *store = snap->store;
	struct cow_extent ext;
	u64 first, nr, sectors;
	int r;

	do {
		nr = cow_bio_chunks(store, cb->bio, &first);
		snap_reads_store(cb);
		cow_map_lookup(&store->map, first, nr, snap->epoch, &ext);
		sectors = cow_bio_sectors_within(store, cb->bio, first, ext.nr);
		if (ext.kind == COW_COPIED)
			sectors = min(sectors, cow_verify_front(store, cb->bio));
		else if (ext.kind == COW_HOME)
			sectors = cow_home_run(cb->origin, cb->bio->bi_iter.bi_sector, sectors);
		*part = cow_bio_front(cb, sectors);
		if (!*part) {
			snap_reads_elsewhere(cb);
			return cow_bio_hand_over(cb, part);
		}
		if (!cow_store_trusts(store, snap, &ext))
			return cow_bio_finish(*part, BLK_STS_IOERR);
		if (ext.kind == COW_COPIED && store->meta)
			return snap_read_copied(*part, part, &ext);
		if (ext.kind == COW_COPIED && snap_waits_for_data(*part))
			return DM_MAPIO_SUBMITTED;
		if (cow_kind_has_data(ext.kind)) {
			cow_bio_point_at_store(store, (*part)->bio, first, ext.place);
			return DM_MAPIO_REMAPPED;
		}
		if (ext.kind != COW_HOME) {
			zero_fill_bio((*part)->bio);
			return cow_bio_finish(*part, BLK_STS_OK);
		}
		snap_reads_elsewhere(*part);
		r = snap_read_home(*part);
	} while (r == -EAGAIN);
	return r;
}

static bool bio_zeroes(const struct bio *bio)
{
	return bio_op(bio) == REQ_OP_WRITE_ZEROES || bio_op(bio) == REQ_OP_DISCARD;
}

/* Can @bio be done without a change of the map? */
static bool snap_in_place(const struct cow_snap *snap, const struct cow_extent *ext,
			  const struct bio *bio)
{
	if (ext->kind == COW_PRIVATE)
		return bio_op(bio) != REQ_OP_DISCARD;
	return bio_zeroes(bio) &&
	       (ext->kind == COW_PRIVATE_ZERO ||
		(ext->kind == COW_ZERO && cow_store_trusts(snap->store, snap, ext)));
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
	/* Sectors behind the snapshot's end need not be preserved. */
	if (end == snap->nr_sectors)
		end = cow_chunk_to_sector(store, cow_sector_to_chunk(store, end - 1) + 1);
	return cow_sector_to_chunk(store, end) - first;
}

/* How a snapshot's write gets chunks of its own. */
struct snap_plan {
	enum cow_pending_mode mode;
	enum cow_kind kind;
	u64 nr;			/* chunks */
	u64 place;		/* where they are, or will be */
	bool needs_room;
	u32 taken_over;		/* epoch of a copied version that becomes private */
};

/*
 * Whose is the version that the snapshot sees? A private one keeps its place, whatever it
 * becomes. A copied one that no other live snapshot sees is taken over with its place.
 */
static void plan_ownership(struct cow_bio *cb, const struct cow_extent *ext,
			   struct snap_plan *plan)
{
	u64 sole;

	plan->nr = ext->nr;
	plan->place = ext->place;
	plan->needs_room = true;
	/* What the origin shows, or has shown, stays what it is. */
	if (ext->kind == COW_HOME || cow_kind_is_current(ext->kind))
		return;
	if (!cow_kind_is_private(ext->kind)) {
		sole = cow_store_sole_owner(cb->snap->store, ext, cb->snap->epoch);
		if (!sole)
			return;
		plan->nr = sole;
		plan->taken_over = ext->epoch;
	}
	plan->needs_room = !cow_has_place(ext);
}

/* Whole chunks become zeroes, which takes no room in a transient store. */
static void plan_zeroes(struct cow_store *store, const struct cow_extent *ext, u64 whole,
			struct snap_plan *plan)
{
	plan->mode = COW_BY_MARK;
	plan->kind = COW_PRIVATE_ZERO;
	plan->nr = min3(plan->nr, whole, (u64)COW_RUN_CHUNKS);
	if (plan->needs_room && !store->meta) {
		plan->needs_room = false;
		plan->place = cow_placeless(ext->chunk);
	}
}

static void snap_make_plan(struct cow_bio *cb, const struct cow_extent *ext,
			   struct snap_plan *plan)
{
	struct cow_store *store = cb->snap->store;
	u64 whole = bio_whole_chunks(cb->snap, cb->bio);

	memset(plan, 0, sizeof(*plan));
	plan_ownership(cb, ext, plan);
	if (bio_zeroes(cb->bio) && whole) {
		plan_zeroes(store, ext, whole, plan);
		return;
	}
	plan->kind = COW_PRIVATE;
	plan->nr = whole ? min3(plan->nr, whole, cow_run_chunks_max(store)) : 1;
	if (ext->kind == COW_COPIED && plan->taken_over)
		/* The copy is verified before its checksum is given up. */
		plan->mode = store->meta && !whole ? COW_BY_COPY : COW_BY_MARK;
	else
		plan->mode = whole ? COW_BY_BIO : COW_BY_COPY;
}

static void snap_copy(struct cow_pending *p, const struct cow_extent *ext)
{
	struct cow_store *store = p->store;
	struct block_device *bdev = NULL;
	sector_t sector = cow_pending_sector(p);
	sector_t nr_sectors = cow_origin_has(store->origin, sector, cow_pending_end_sector(p));

	if (ext->kind == COW_HOME) {
		bdev = cow_home(store->origin, &sector);
	} else if (ext->kind == COW_COPIED || ext->kind == COW_CURRENT) {
		bdev = store->bdev;
		sector = cow_chunk_to_sector(store, ext->place);
		nr_sectors = store->chunk_sectors;
		p->check_source = store->meta && ext->kind == COW_COPIED;
		p->source_epoch = ext->epoch;
	} else {
		nr_sectors = store->chunk_sectors;
	}
	cow_pending_copy(p, bdev, sector, nr_sectors, store->chunk_sectors - nr_sectors);
}

/* Carry out the plan for @part, which was cut to fit it. origin->state_lock held. */
static int snap_start(struct cow_bio *part, const struct cow_extent *ext,
		      const struct snap_plan *plan, struct cow_pending *p)
{
	struct cow_store *store = p->store;

	lockdep_assert_held(&store->origin->state_lock);
	p->mode = plan->mode;
	p->losses = cow_losses(&store->losses);
	p->epoch = part->snap->epoch;
	p->taken_over = plan->taken_over;
	if (plan->mode == COW_BY_BIO) {
		p->carrier = part;
		part->carries = p;
		/* It cannot be refused any more. */
		part->bio->bi_opf &= ~REQ_NOWAIT;
		/* Its slot has no checksum: the data has to be durable first. */
		if (store->meta)
			part->bio->bi_opf |= REQ_FUA;
		cow_bio_point_at_store(store, part->bio, p->first, p->place);
		return DM_MAPIO_REMAPPED;
	}
	cow_pending_park(p, part);
	if (plan->mode == COW_BY_COPY) {
		list_add(&p->node, &p->sharers);
		snap_copy(p, ext);
		return DM_MAPIO_SUBMITTED;
	}
	cow_pending_finished(p);
	return DM_MAPIO_SUBMITTED;
}

/*
 * Room for the plan, perhaps for less of it. -EINPROGRESS: @cb waits for the store.
 * origin->state_lock held.
 */
static int snap_find_room(struct cow_bio *cb, struct snap_plan *plan)
{
	struct cow_store *store = cb->snap->store;
	u32 got;
	int r;

	lockdep_assert_held(&store->origin->state_lock);
	if (!plan->needs_room)
		return 0;
	if (cow_store_makes_wait(store)) {
		cow_bio_park(cb, &store->waiting, COW_WAIT_STORE);
		return -EINPROGRESS;
	}
	got = cow_store_room(store, plan->nr, &plan->place);
	if (got) {
		plan->nr = got;
		return 0;
	}
	r = store->blocked ? -ENOSPC : cow_store_no_room(store, false);
	if (r == -EBUSY) {
		cow_bio_park(cb, &store->waiting, COW_WAIT_STORE);
		return -EINPROGRESS;
	}
	return r;
}

/*
 * Before a snapshot of a persistent store gets its first private version, its record has to
 * say that it may have some. 0: it does. -EINPROGRESS: @cb waits for that.
 * origin->state_lock held.
 */
static int snap_mark(struct cow_bio *cb)
{
	struct cow_snap *snap = cb->snap;
	struct cow_store *store = snap->store;

	lockdep_assert_held(&store->origin->state_lock);
	if (!store->meta || READ_ONCE(snap->mark) == COW_MARK_WRITTEN)
		return 0;
	if (store->blocked && !cow_store_makes_wait(store))
		return -ENOSPC;
	if (store->blocked == COW_STORE_OPEN) {
		cow_store_set_blocked(store, COW_STORE_PREPARING);
		WRITE_ONCE(snap->mark, COW_MARK_WANTED);
		queue_work(store->origin->wq, &store->mark_work);
	}
	cow_bio_park(cb, &store->waiting, COW_WAIT_STORE);
	return -EINPROGRESS;
}

/* What snap_privatize() says of a bio, if it is none of DM_MAPIO_*. */
enum snap_outcome {
	SNAP_LOOK_AGAIN = -4,		/* the map has changed */
	SNAP_HAND_OVER,			/* a worker decides again */
	SNAP_NO_MEMORY,			/* the part decides again when there is some */
	SNAP_NO_ROOM,
};

/* Cut @cb to the plan, and carry it out. origin->state_lock held. */
static int snap_carry_out(struct cow_bio *cb, struct cow_bio **part, const struct cow_extent *ext,
			  const struct snap_plan *plan)
{
	struct cow_store *store = cb->snap->store;
	struct cow_pending *p = NULL;

	lockdep_assert_held(&store->origin->state_lock);
	*part = cow_bio_front(cb, cow_bio_sectors_within(store, cb->bio, ext->chunk, plan->nr));
	if (*part)
		p = cow_pending_add(store, ext->chunk, plan->nr, plan->kind, plan->place,
				    plan->needs_room ? plan->nr : 0);
	if (p)
		return snap_start(*part, ext, plan, p);
	if (plan->needs_room)
		cow_space_free(&store->space, plan->place, plan->nr);
	return *part ? SNAP_NO_MEMORY : SNAP_HAND_OVER;
}

/*
 * During a merge, writes may be in flight to a chunk of which the snapshot sees what the origin
 * has. A pending or a newer live snapshot keeps them away; find_part() saw one, but it may be gone
 * by now. Then the chunk must not be copied: the bio decides again.
 */
static bool origin_is_written(const struct cow_bio *cb, u64 chunk)
{
	struct cow_snap *snap = cb->snap;
	struct cow_extent ext;

	return cb->via_merge && cow_map_agrees(&snap->store->map, chunk, 1, snap->epoch, &ext) &&
	       !cow_store_newer_ones_live(snap->store, snap->epoch);
}

/* Give the first chunks of @cb a private version. origin->state_lock held. */
static int snap_privatize(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_snap *snap = cb->snap;
	struct cow_store *store = snap->store;
	struct cow_pending *p;
	struct cow_extent ext;
	struct snap_plan plan;
	u64 first, nr;
	int r;

	lockdep_assert_held(&store->origin->state_lock);
	/* Seen under the lock: a place that a failed commit gave up is not given out again. */
	if (!cow_snap_can_be_used(cb->snap, cb->via_merge) || cow_store_is_fenced(store))
		return DM_MAPIO_KILL;
	nr = cow_bio_chunks(store, cb->bio, &first);
	p = cow_pending_overlap(store, first, first + nr - 1);
	if (p && p->first <= first) {
		cow_pending_park(p, cb);
		cow_pending_need(p);
		return DM_MAPIO_SUBMITTED;
	}
	/* No pending is in the way, so the map does not change here under the lock. */
	cow_map_lookup(&store->map, first, p ? p->first - first : nr, snap->epoch, &ext);
	if (snap_in_place(snap, &ext, cb->bio))
		return SNAP_LOOK_AGAIN;
	if (!cow_store_trusts(store, snap, &ext))
		return DM_MAPIO_KILL;
	if (origin_is_written(cb, first))
		return SNAP_HAND_OVER;
	if (ext.kind == COW_COPIED && cow_undo_wait(cb, first, ext.nr))
		return DM_MAPIO_SUBMITTED;
	snap_make_plan(cb, &ext, &plan);
	r = snap_mark(cb) ?: snap_find_room(cb, &plan);
	if (r == -EINPROGRESS)
		return DM_MAPIO_SUBMITTED;
	if (r)
		return r == -ENOMEM ? SNAP_NO_MEMORY : SNAP_NO_ROOM;
	return snap_carry_out(cb, part, &ext, &plan);
}

/* A zeroed chunk is zero already; a discard may go on to the origin. */
static int snap_zero_is_done(struct cow_bio *part)
{
	/* One that was shortened still has to serve its rest as the snapshot's. */
	if (bio_op(part->bio) == REQ_OP_DISCARD && part->passdown && !part->left.bi_size) {
		struct cow_bio *rest = part;

		part->snap = NULL;
		part->discard = COW_DISCARD_SKIP;
		bio_set_dev(part->bio, part->origin->bdev);
		if (part->in_map)
			return cow_origin_decide(part, &rest);
		cow_bio_decide_again(part);
		return DM_MAPIO_SUBMITTED;
	}
	return cow_bio_finish(part, BLK_STS_OK);
}

/* -ENOSPC: it is for the merge to decide. */
static int snap_no_room(struct cow_bio *cb)
{
	struct cow_store *store = cb->snap->store;

	if (cb->via_merge)
		return -ENOSPC;
	if (!cb->full_is_end)
		return cow_bio_finish(cb, BLK_STS_NOSPC);
	spin_lock(&store->origin->state_lock);
	cow_store_lose_for_room(store, "the store is full");
	spin_unlock(&store->origin->state_lock);
	return DM_MAPIO_KILL;
}

static int snap_write(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_snap *snap = cb->snap;
	struct cow_store *store = snap->store;
	struct cow_extent ext;
	u64 first, nr;
	int r;

	do {
		nr = cow_bio_chunks(store, cb->bio, &first);
		cow_map_lookup(&store->map, first, nr, snap->epoch, &ext);
		if (snap_in_place(snap, &ext, cb->bio)) {
			*part = cow_bio_front(cb, cow_bio_sectors_within(store, cb->bio, first,
									 ext.nr));
			if (!*part)
				return cow_bio_hand_over(cb, part);
			if (ext.kind != COW_PRIVATE)
				return snap_zero_is_done(*part);
			cow_bio_point_at_store(store, (*part)->bio, first, ext.place);
			return DM_MAPIO_REMAPPED;
		}
		*part = cb;
		spin_lock(&snap->store->origin->state_lock);
		r = snap_privatize(cb, part);
		spin_unlock(&snap->store->origin->state_lock);
	} while (r == SNAP_LOOK_AGAIN);
	switch (r) {
	case SNAP_HAND_OVER:
		return cow_bio_hand_over(cb, part);
	case SNAP_NO_MEMORY:
		return snap_defer(*part, part);
	case SNAP_NO_ROOM:
		return snap_no_room(cb);
	}
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
		*part = cow_bio_front(cb, cow_chunk_to_sector(store, whole));
		if (!*part)
			return cow_bio_hand_over(cb, part);
		if (*part == cb)
			return snap_write(cb, part);
		cow_bio_decide_again(*part);
		return DM_MAPIO_SUBMITTED;
	}
	cow_bio_chunks(store, bio, &first);
	*part = cow_bio_front(cb, cow_bio_sectors_within(store, bio, first, 1));
	if (!*part)
		return cow_bio_hand_over(cb, part);
	return cow_bio_finish(*part, BLK_STS_OK);
}

static int snap_change(struct cow_bio *cb, struct cow_bio **part)
{
	/*
	 * After a commit has failed the disk may hold slots that the map does not. They are
	 * believed when the store is opened again, and would hide what is written now.
	 */
	if (cow_store_is_fenced(cb->snap->store))
		return cow_bio_finish(cb, BLK_STS_IOERR);
	return bio_op(cb->bio) == REQ_OP_DISCARD ? snap_discard(cb, part) : snap_write(cb, part);
}

/*
 * The place that a write finds stays its place until the write has completed: the gate is
 * shut before places are given back.
 */
static int snap_write_gated(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	bool passed_on;
	int r;

	if (!cow_origin_enter(cb))
		return DM_MAPIO_SUBMITTED;
	r = snap_change(cb, part);
	/* A discard that went on to the origin has the gate already. */
	passed_on = r == DM_MAPIO_REMAPPED && !(*part)->gated;
	if (passed_on)
		(*part)->gated = true;
	else
		percpu_ref_put(&o->gate);
	return r;
}

int cow_snap_decide(struct cow_bio *cb, struct cow_bio **part)
{
	if (!cow_snap_can_be_used(cb->snap, cb->via_merge))
		return DM_MAPIO_KILL;
	if (READ_ONCE(cb->origin->redirects_to))
		cow_origin_note_use(cb->origin);
	if (bio_op(cb->bio) == REQ_OP_READ)
		return snap_read(cb, part);
	return snap_write_gated(cb, part);
}

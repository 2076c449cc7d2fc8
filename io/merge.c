// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: I/O to an origin while a snapshot is merged into it
 *
 * The origin is in three parts: what is merged is the origin again; a stretch that is being merged
 * is closed, and bios wait; what is not merged yet is the snapshot. admin/merge.c
 * draws it. A write to the last part is a write to the snapshot. Where the snapshot
 * sees what the origin has, and no newer snapshot needs that, the write goes to the origin like
 * any other.
 *
 * Flushes: while a merge is under way, writes to the origin may have been acknowledged
 * by the store's device. A flush of the origin goes to both devices.
 *
 * Lifetime: a bio looks at origin->merge with the gate held. A merge is freed only
 * after it was taken away from there and the gate was drained.
 */
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap.h"
#include "copy/pending.h"
#include "disk/meta.h"
#include "io/bio.h"
#include "io/merge.h"
#include "io/redirect.h"
#include "io/snapshot.h"
#include "io/write.h"
#include "origin/bio.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "origin/pace.h"
#include "origin/seal.h"
#include "store/epochs.h"
#include "store/store.h"
#include "trace/cowsnap.h"

/* Run the work item, now or after @delay jiffies. origin->state_lock held. */
void cow_merge_kick(struct cow_merge *m, unsigned long delay)
{
	lockdep_assert_held(&m->store->origin->state_lock);
	if (!m->stopped)
		mod_delayed_work(m->store->merge_wq, &m->work, delay);
}

/* What waited for the merge decides again. origin->state_lock held. */
void cow_merge_unpark(struct cow_merge *m)
{
	struct cow_origin *o = m->store->origin;

	lockdep_assert_held(&o->state_lock);
	list_splice_tail_init(&m->parked, &o->deferred);
	mod_delayed_work(o->wq, &o->decide_work, 0);
}

/* @cb waits for @m, which may be waiting for users. origin->state_lock held. */
static void wait_for_merge(struct cow_merge *m, struct cow_bio *cb)
{
	cow_bio_park(cb, &m->parked, COW_WAIT_MERGE);
	cow_wake_quiet(m->store->origin);
}

enum merge_part {
	MERGED,
	BUSY,
	REFUSED,		/* the merge failed here, or the store: what is there is unknown */
	ORIGIN,			/* the snapshot sees what the origin has */
	SNAPSHOT,
};

/* The part that the first chunk of @bio lies in, and how many of its sectors do. */
static enum merge_part find_part(struct cow_merge *m, const struct bio *bio, u64 *sectors)
{
	struct cow_store *store = m->store;
	sector_t start = bio->bi_iter.bi_sector;
	sector_t end = bio_end_sector((struct bio *)bio);
	u64 first = cow_sector_to_chunk(store, start);
	u64 nr = cow_sector_to_chunk(store, end - 1) - first + 1;
	struct cow_pending *p = NULL;
	struct cow_extent ext;
	bool agrees = true;

	lockdep_assert_held(&store->origin->state_lock);
	*sectors = end - start;
	if (start >= m->nr_sectors)
		return MERGED;
	if (first < m->done) {
		nr = min(nr, m->done - first);
	} else if (first >= m->busy_end) {
		agrees = cow_map_agrees(&store->map, first, nr, m->epoch, &ext);
		nr = ext.nr;
		p = cow_pending_overlap(store, first, first + nr - 1);
		/* Chunks in front of the pending do not wait for it. */
		if (p && p->first > first) {
			nr = p->first - first;
			p = NULL;
		}
	}
	*sectors = min3(*sectors, (u64)cow_chunk_to_sector(store, first + nr) - start,
			(u64)m->nr_sectors - start);
	if (first < m->done)
		return MERGED;
	/* A stretch that stays closed is rolled back: it can be read, as what is merged. */
	if (first < m->busy_end && m->failed)
		return bio_data_dir(bio) == READ ? MERGED : REFUSED;
	if (first < m->busy_end)
		return BUSY;
	if (!agrees || p)
		return SNAPSHOT;
	if (bio_data_dir(bio) == WRITE && cow_store_newer_ones_live(store, m->epoch))
		return SNAPSHOT;
	/* The disk may have a version of it that the map lacks, of a commit that failed. */
	if (bio_data_dir(bio) == WRITE && cow_store_is_fenced(store))
		return REFUSED;
	return ORIGIN;
}

/*
 * What the origin has: home, but for what was redirected. The gate is held, until the bio has
 * ended, or decides again.
 */
static int read_origin(struct cow_bio *cb, struct cow_bio **part)
{
	const struct bio *bio = cb->bio;

	if (unlikely(READ_ONCE(cb->origin->redirects_to))) {
		cb->gated = true;
		return cow_redirect_read(cb, part);
	}
	*part = cow_bio_front(cb, cow_home_run(cb->origin, bio->bi_iter.bi_sector,
					       bio_sectors(bio)));
	if (!*part) {
		percpu_ref_put(&cb->origin->gate);
		return cow_bio_hand_over(cb, part);
	}
	cow_bio_go_home(cb->origin, (*part)->bio);
	(*part)->gated = true;
	return DM_MAPIO_REMAPPED;
}

/*
 * A bio treated as the snapshot's found no room: it waits for the merge. False: the merge has
 * failed, so that there will be none. The gate is held.
 */
static bool merge_park(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	struct cow_merge *m;
	bool waits = true;

	spin_lock(&o->state_lock);
	m = o->merge;
	if (!m) {
		cow_bio_park(cb, &o->deferred, COW_WAIT_MERGE);
		mod_delayed_work(o->wq, &o->decide_work, 0);
	} else if (!m->failed) {
		/* Only the merge can make room, so it must not rest. */
		wait_for_merge(m, cb);
		cow_merge_kick(m, 0);
	} else {
		waits = false;
	}
	spin_unlock(&o->state_lock);
	return waits;
}

/* Treat @cb as I/O of the snapshot. A read keeps the gate until it has completed. */
static int decide_as_snapshot(struct cow_merge *m, struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	int r;

	cb->snap = m->snap;
	cb->via_merge = true;
	if (bio_data_dir(cb->bio) == READ) {
		cb->gated = true;
		return cow_snap_decide(cb, part);
	}
	if (o->rotational)
		cow_pace_note_write(&o->pace);
	/* A discard is a hint, and the snapshot's data is wanted. */
	if (bio_op(cb->bio) == REQ_OP_DISCARD)
		r = cow_bio_finish(cb, BLK_STS_OK);
	else
		r = cow_snap_decide(cb, part);
	if (r == -ENOSPC)
		r = merge_park(cb) ? DM_MAPIO_SUBMITTED : cow_bio_finish(cb, BLK_STS_NOSPC);
	percpu_ref_put(&o->gate);
	return r;
}

/* The gate is held, so a stretch that is being closed waits for this bio. */
static int merge_decide(struct cow_merge *m, struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	enum merge_part where;
	u64 sectors;
	int r;

	spin_lock(&o->state_lock);
	where = find_part(m, cb->bio, &sectors);
	if (where == BUSY)
		wait_for_merge(m, cb);
	spin_unlock(&o->state_lock);
	if (where == BUSY) {
		percpu_ref_put(&o->gate);
		return DM_MAPIO_SUBMITTED;
	}
	*part = cow_bio_front(cb, sectors);
	if (*part != cb) {
		percpu_ref_put(&o->gate);
		if (!*part)
			return cow_bio_hand_over(cb, part);
		cow_bio_decide_again(*part);
		return DM_MAPIO_SUBMITTED;
	}
	if (where == SNAPSHOT)
		return decide_as_snapshot(m, cb, part);
	if (where == REFUSED) {
		percpu_ref_put(&o->gate);
		return cow_bio_finish(cb, BLK_STS_IOERR);
	}
	if (bio_data_dir(cb->bio) == READ)
		return read_origin(cb, part);
	r = cow_origin_decide(cb, part);
	percpu_ref_put(&o->gate);
	return r;
}

/* The store's device has acknowledged writes to the origin. The gate keeps it here. */
static int flush_store(struct cow_merge *m, struct cow_bio *cb)
{
	bio_set_dev(cb->bio, m->store->bdev);
	cb->gated = true;
	return DM_MAPIO_REMAPPED;
}

int cow_merge_decide(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	struct cow_merge *m;

	/* The store has been flushed, or had nothing to flush: no gate, as without a merge. */
	if (cb->home_at_last) {
		bio_set_dev(cb->bio, o->bdev);
		return DM_MAPIO_REMAPPED;
	}
	if (!cow_origin_enter(cb))
		return DM_MAPIO_SUBMITTED;
	m = READ_ONCE(o->merge);
	if (m && !bio_sectors(cb->bio))
		return flush_store(m, cb);
	if (m && !cb->merging) {
		cow_note_now(&m->used);
		if (m->rotates && !cb->user) {
			cb->user = true;
			atomic_inc(&o->nr_users);
		}
		return merge_decide(m, cb, part);
	}
	if (bio_sectors(cb->bio) && bio_data_dir(cb->bio) == READ)
		return read_origin(cb, part);
	percpu_ref_put(&o->gate);
	/*
	 * No merge: what the store had acknowledged of it is at home by now, durably. Not so of an
	 * origin that was redirected: that is sealed, and flush_is_mapped() sends all to its store.
	 */
	if (!bio_sectors(cb->bio))
		return cow_bio_finish(cb, BLK_STS_OK);
	return cow_origin_decide(cb, part);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: a snapshot back into its origin
 *
 * While snapshot k is being merged the origin is in three parts:
 *
 *   chunk 0          done            busy_end                              end
 *   +----------------+---------------+----------------------------------+
 *   | merged: as ever| being merged: | not yet: what snapshot k sees    |
 *   |                | bios wait     |                                  |
 *   +----------------+---------------+----------------------------------+
 *
 * So the origin shows the rolled-back data at once. io/merge.c decides on its bios,
 * and admin/stretch.c works through the chunks in order. Here merges begin, end and
 * are tried again.
 *
 * What a crash leaves: the superblock's merge_chunk is at or behind `done`. In the stretch in
 * between the origin has nothing but what was copied there, so copying it once more does no harm.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "admin/carry.h"
#include "admin/merge.h"
#include "admin/stretch.h"
#include "admin/void.h"
#include "disk/current.h"
#include "disk/meta.h"
#include "disk/super.h"
#include "io/merge.h"
#include "origin/bio.h"
#include "origin/flush.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "origin/pace.h"
#include "store/epochs.h"
#include "store/snapshots.h"
#include "store/store.h"

/* What is left is counted anew so long after it was. */
#define COUNT_JIFFIES	(10 * HZ)

/* After so long the processor, which may be the only one, is left to others. */
#define COUNT_PIECE	64U		/* between two looks at the time */
#define COUNT_NS	(100 * NSEC_PER_USEC)
#define COUNT_REST_US	20U

void cow_merge_hurry(struct cow_origin *o)
{
	spin_lock(&o->state_lock);
	if (o->merge)
		cow_merge_kick(o->merge, 0);
	spin_unlock(&o->state_lock);
}

static void merge_free(struct cow_merge *m)
{
	cow_void_exit(m);
	cow_carry_exit(m);
	kfree(m);
}

static int merge_alloc_wq(struct cow_store *store)
{
	/* Its own workqueue: a stretch waits for work on the origin's. */
	if (!store->merge_wq)
		store->merge_wq = alloc_ordered_workqueue("cowsnap-merge-%u:%u",
							  WQ_MEM_RECLAIM,
							  MAJOR(store->bdev->bd_dev),
							  MINOR(store->bdev->bd_dev));
	return store->merge_wq ? 0 : -ENOMEM;
}

static struct cow_merge *merge_alloc(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	struct cow_merge *m = kzalloc(sizeof(*m), GFP_KERNEL);

	if (!m)
		return NULL;
	m->store = store;
	m->snap = snap;
	m->id = snap->id;
	m->epoch = snap->epoch;
	m->nr_sectors = snap->nr_sectors;
	m->end = cow_sector_to_chunk(store, snap->nr_sectors + store->chunk_sectors - 1);
	INIT_LIST_HEAD(&m->parked);
	m->rotates = store->origin->rotational || bdev_rot(store->bdev);
	m->used = cow_long_ago();
	INIT_DELAYED_WORK(&m->work, cow_merge_work);
	if (merge_alloc_wq(store) || cow_carry_init(m) || cow_void_init(m)) {
		merge_free(m);
		return NULL;
	}
	return m;
}

/* Where chunks are missing, newer data would stay in the origin. */
static bool lacks_chunks(const struct cow_snap *snap)
{
	if (snap->epoch > cow_store_damage(snap->store))
		return false;
	DMERR("store %pg: it has damaged tables, snapshot %u cannot be merged: run cowsnap repair",
	      snap->store->bdev, snap->id);
	return true;
}

bool cow_merge_stands_in_the_way(const struct cow_origin *o)
{
	const struct cow_merge *m = o->merge;

	lockdep_assert_held(&o->admin_lock);
	if (!m)
		return false;
	DMERR("origin %pg: snapshot %u of store %pg is being merged: wait for its end",
	      o->bdev, m->id, m->store->bdev);
	return true;
}

struct cow_merge *cow_merge_prepare(struct cow_snap *snap)
{
	struct cow_merge *m;

	lockdep_assert_held(&snap->store->origin->admin_lock);
	if (cow_merge_stands_in_the_way(snap->store->origin))
		return ERR_PTR(-EBUSY);
	if (!snap->store->writable) {
		DMERR("store %pg is read-only: make it writable, snapshot %u is to be merged",
		      snap->store->bdev, snap->id);
		return ERR_PTR(-EROFS);
	}
	if (lacks_chunks(snap))
		return ERR_PTR(-EUCLEAN);
	if (cow_store_is_fenced(snap->store)) {
		DMERR("store %pg: a commit failed, snapshot %u cannot be merged: open it again",
		      snap->store->bdev, snap->id);
		return ERR_PTR(-EIO);
	}
	m = merge_alloc(snap);
	return m ?: ERR_PTR(-ENOMEM);
}

void cow_merge_discard(struct cow_merge *m)
{
	if (!IS_ERR_OR_NULL(m))
		merge_free(m);
}

void cow_merge_start(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_origin *o = store->origin;

	lockdep_assert_held(&o->admin_lock);
	m->done = store->merge_chunk;
	m->busy_end = m->done;
	m->phase = m->done < m->end ? MERGE_CLOSE : MERGE_FINISH;
	/* The work item of the one before may still be on its last lines. */
	m->older = store->merge;
	spin_lock(&o->state_lock);
	store->merge = m;
	WRITE_ONCE(o->merge, m);
	cow_merge_kick(m, 0);
	spin_unlock(&o->state_lock);
}

/* From LIVE to MERGING, durably. The origin is frozen. */
static int merge_write_begun(struct cow_snap *snap)
{
	struct cow_change change;

	cow_change_begin(&change, snap->store, snap);
	change.state = COW_SNAP_MERGING;
	/* Writes to the origin may become private versions from now on. */
	change.mark = COW_MARK_WRITTEN;
	change.merging = snap;
	change.merge_chunk = 0;
	return cow_change_end(&change);
}

/* The disk is written last of all that may fail; nothing that follows can. */
static int merge_begin(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_origin *o = store->origin;
	struct cow_live *live = cow_store_alloc_live(store);
	unsigned int noio;
	int r = -ENOMEM;

	if (!live)
		return r;
	r = cow_origin_freeze(o);
	if (r) {
		kvfree(live);
		return r;
	}
	/* Writes wait for this, and memory may wait for them. */
	noio = memalloc_noio_save();
	r = merge_write_begun(m->snap);
	if (!r) {
		cow_store_take_live(store, live);
		cow_merge_start(m);
	} else {
		kvfree(live);
	}
	memalloc_noio_restore(noio);
	cow_origin_thaw(o);
	return r;
}

/* Try again, after the devices were repaired. */
static void merge_retry(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	struct cow_merge *m = o->merge;

	if (!m || m->store != store || !m->failed)
		return;
	cow_engine_set_hurry(o->engine, m->busy_end > m->done);
	spin_lock(&o->state_lock);
	/* The work item does not touch the merge while it is marked as failed. */
	m->tries = 0;
	m->retries = false;
	WRITE_ONCE(m->failed, false);
	cow_merge_kick(m, 0);
	spin_unlock(&o->state_lock);
}

int cow_merge_activate(struct cow_snap *snap, bool claimed)
{
	struct cow_merge *m;
	int r;

	lockdep_assert_held(&snap->store->origin->admin_lock);
	if (snap->state == COW_SNAP_MERGING)
		merge_retry(snap->store);
	if (snap->state != COW_SNAP_LIVE)
		return 0;
	/* It may have begun since the table was loaded. */
	if (claimed && cow_current_is_used(snap->store)) {
		DMERR("store %pg redirects: settle it first, snapshot %u cannot be merged",
		      snap->store->bdev, snap->id);
		return -EBUSY;
	}
	m = cow_merge_prepare(snap);
	if (IS_ERR(m))
		return PTR_ERR(m);
	r = merge_begin(m);
	if (r) {
		DMERR("store %pg: merging snapshot %u cannot begin (%d)", snap->store->bdev,
		      snap->id, r);
		cow_merge_discard(m);
	}
	return r;
}

/* Take @m away from the origin, and wait for all bios that saw it there. */
static void merge_take_away(struct cow_merge *m)
{
	struct cow_origin *o = m->store->origin;

	mutex_lock(&o->admin_lock);
	/* Without a limit of time: bios on the store's device need the store. */
	cow_origin_drain(o, MAX_SCHEDULE_TIMEOUT);
	if (o->merge == m) {
		DMWARN("store %pg is closed while snapshot %u is being merged: name it in a table,",
		       m->store->bdev, m->id);
		DMWARN("before %pg is used again: until then it is only partly merged", o->bdev);
		/* Later flushes of the origin do not reach the store. */
		if (cow_flush(o, m->store->bdev))
			DMERR("store %pg: cannot be flushed", m->store->bdev);
		WRITE_ONCE(o->merge, NULL);
		cow_merge_leave_engine(o);
	}
	spin_lock(&o->state_lock);
	cow_merge_unpark(m);
	spin_unlock(&o->state_lock);
	cow_origin_thaw(o);
	cow_admin_unlock(o);
}

void cow_merge_stop(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	struct cow_merge *m = store->merge;

	if (m) {
		spin_lock(&o->state_lock);
		WRITE_ONCE(m->stopped, true);
		spin_unlock(&o->state_lock);
		cow_wake_quiet(o);
		cancel_delayed_work_sync(&m->work);
		merge_take_away(m);
	}
	store->merge = NULL;
	while (m) {
		struct cow_merge *older = m->older;

		cancel_delayed_work_sync(&m->work);
		merge_free(m);
		m = older;
	}
	if (store->merge_wq)
		destroy_workqueue(store->merge_wq);
	store->merge_wq = NULL;
}

static u64 count_differing(const struct cow_snap *snap, u64 from, u64 end)
{
	u64 since_ns = ktime_get_ns(), nr = 0;
	unsigned int looked_at = 0;
	struct cow_extent ext;

	while (cow_map_next_differing(&snap->store->map, from, end, snap->epoch, &ext)) {
		nr += ext.nr;
		from = ext.chunk + ext.nr;
		if (++looked_at % COUNT_PIECE || ktime_get_ns() - since_ns < COUNT_NS)
			continue;
		usleep_range(COUNT_REST_US, 4 * COUNT_REST_US);
		since_ns = ktime_get_ns();
	}
	return nr;
}

/*
 * Counting all of them takes 50 ns each. Whoever looks often has those counted that were merged
 * since, until it is so long ago that what was written meanwhile may matter. (Those that needed no
 * merging, since the snapshot has what redirected writes left at home, are not seen until then.)
 */
static u64 left_from(const struct cow_snap *snap, u64 at, u64 end)
{
	struct cow_left *left = &snap->store->left;
	u64 nr;

	mutex_lock(&left->lock);
	if (left->epoch != snap->epoch || at < left->from ||
	    time_after(jiffies, left->counted + COUNT_JIFFIES)) {
		left->nr = count_differing(snap, at, end);
		left->epoch = snap->epoch;
		left->counted = jiffies;
	} else {
		left->nr -= min(left->nr, count_differing(snap, left->from, at));
	}
	left->from = at;
	nr = left->nr;
	mutex_unlock(&left->lock);
	return nr;
}

u64 cow_merge_left(const struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	u64 end = cow_sector_to_chunk(store, snap->nr_sectors + store->chunk_sectors - 1);
	u64 at;

	if (snap->state != COW_SNAP_MERGING && snap->state != COW_SNAP_LIVE)
		return 0;
	/* While slots in doubt come into the map, nobody may read it: see cow_load_end(). */
	if (smp_load_acquire(&store->loader))
		return 1;
	at = snap->state == COW_SNAP_MERGING ? READ_ONCE(store->merge_chunk) : 0;
	/* LVM takes 0 for the end of the merge, which is still to be written. */
	return left_from(snap, at, end) ?: 1;
}

bool cow_merge_failed(const struct cow_snap *snap)
{
	const struct cow_merge *m = snap->store->merge;

	return m && m->snap == snap && READ_ONCE(m->failed);
}

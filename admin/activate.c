// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: a store and its snapshots come into force
 *
 * The first resumed table of a store hooks it into its origin: from then on it is
 * protected. The first resumed table of a snapshot makes it live: the gate is shut and
 * writes are flushed, the record is written, the epoch becomes live, the gate opens.
 *
 * What a crash leaves: the record is one durable write of one block. The snapshot
 * exists, or it does not.
 */
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "admin/activate.h"
#include "admin/merge.h"
#include "admin/store.h"
#include "admin/track.h"
#include "admin/tuning.h"
#include "disk/current.h"
#include "disk/meta.h"
#include "disk/places.h"
#include "disk/prepare.h"
#include "disk/seal.h"
#include "disk/super.h"
#include "io/ahead.h"
#include "io/around.h"
#include "origin/absent.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "store/epochs.h"
#include "store/known.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/state.h"
#include "store/store.h"
#include "trace/cowsnap.h"

/* No write is in flight: this is the instant that the snapshot shows. */
static void snap_go_live(struct cow_snap *snap, sector_t nr_sectors,
			 struct cow_live *live)
{
	struct cow_store *store = snap->store;
	struct cow_origin *origin = store->origin;

	spin_lock(&origin->state_lock);
	/* A new one is the newest. */
	if (snap->epoch == store->epoch)
		list_move_tail(&snap->node, &store->snaps);
	if (store->protect_sectors < nr_sectors)
		WRITE_ONCE(store->protect_sectors, nr_sectors);
	__cow_store_take_live(store, live);
	/* The snapshot may only have grown. */
	cow_known_forget(&store->known);
	spin_unlock(&origin->state_lock);
}

/* No record may be longer than the origin, so the origin's length is written first. */
static int origin_record(struct cow_store *store, sector_t nr_sectors)
{
	struct cow_change change;

	cow_change_begin(&change, store, NULL);
	change.origin_sectors = max(change.origin_sectors, nr_sectors);
	change.either = true;
	return cow_change_end(&change);
}

/* Give @snap an epoch and a record, or its new length. The origin is frozen. */
static int snap_record(struct cow_snap *snap, sector_t nr_sectors)
{
	struct cow_store *store = snap->store;
	struct cow_change change;
	int r = 0;

	if (store->meta && nr_sectors > store->origin_sectors)
		r = origin_record(store, nr_sectors);
	if (r)
		return r;
	cow_change_begin(&change, store, snap);
	if (change.state == COW_SNAP_LOADED) {
		/* An epoch is spent even if this fails. */
		change.epoch = ++store->epoch;
		change.time = ktime_get_real_seconds();
		change.state = COW_SNAP_LIVE;
	}
	change.nr_sectors = nr_sectors;
	return cow_change_end(&change);
}

static bool snap_is_up_to_date(const struct cow_snap *snap, sector_t nr_sectors)
{
	return snap->state > COW_SNAP_LIVE ||
	       (snap->state == COW_SNAP_LIVE && nr_sectors <= snap->nr_sectors);
}

/*
 * Can a snapshot of @nr_sectors become live, or as long as that? 0, or a negative errno after
 * a line in the log.
 */
static int may_activate(struct cow_store *store, sector_t nr_sectors)
{
	if (cow_sector_to_chunk(store, nr_sectors) >= cow_origin_chunks_max(store->persistence)) {
		DMERR("store %pg: %llu sectors are too many for chunks of %u: take larger chunks",
		      store->bdev, (u64)nr_sectors, store->chunk_sectors);
		return -EFBIG;
	}
	/*
	 * While a merge is under way home is not what the origin shows, so no snapshot can
	 * be made, in whatever store. One that was made before shows home as it was then.
	 */
	if (cow_merge_stands_in_the_way(store->origin))
		return -EBUSY;
	if (store->epoch >= COW_EPOCH_MAX - 1) {
		DMERR("store %pg: %u snapshots have been made in it: make a new one",
		      store->bdev, COW_EPOCH_MAX);
		return -EOVERFLOW;
	}
	if (store->meta && !store->writable) {
		DMERR("store %pg is read-only: make it writable and load its tables again",
		      store->bdev);
		return -EROFS;
	}
	if (store->meta && cow_meta_is_fenced(store->meta)) {
		DMERR("store %pg: it could not be written: remove its tables and load them again",
		      store->bdev);
		return -EIO;
	}
	return 0;
}

/* The store is active. */
static int snap_activate(struct cow_snap *snap, sector_t nr_sectors)
{
	struct cow_store *store = snap->store;
	struct cow_live *live;
	int r;

	lockdep_assert_held(&store->origin->admin_lock);
	cow_store_resize(store);
	if (snap_is_up_to_date(snap, nr_sectors))
		return 0;
	r = may_activate(store, nr_sectors);
	if (r)
		return r;
	live = cow_store_alloc_live(store);
	if (!live)
		return -ENOMEM;
	if (snap->state == COW_SNAP_LOADED)
		r = cow_super_add_record(store, snap);
	if (!r)
		r = cow_origin_freeze(store->origin);
	if (!r) {
		r = snap_record(snap, nr_sectors);
		if (!r)
			snap_go_live(snap, nr_sectors, live);
		cow_origin_thaw(store->origin);
	}
	trace_cowsnap_create(store->bdev->bd_dev, snap->id, snap->epoch, r);
	if (r) {
		DMERR("store %pg: snapshot %u cannot be made (%d)", store->bdev, snap->id, r);
		kvfree(live);
		if (snap->state == COW_SNAP_LOADED)
			cow_super_forget_record(store, snap);
	}
	return r;
}

/* The origin may have been written while the store was away. */
static void check_absence(struct cow_store *store)
{
	if (!store->meta || !cow_absent_take(store->origin, cow_meta_uuid(store->meta)))
		return;
	cow_trackers_lose(store, "the origin was written while the store was away");
	cow_store_invalidate(store, COW_SNAP_INVALID,
			     "the origin was written while the store was away");
	flush_work(&store->fail_work);
}

static void cover_snapshots(struct cow_store *store)
{
	struct cow_snap *snap;

	lockdep_assert_held(&store->origin->state_lock);
	list_for_each_entry(snap, &store->snaps, node)
		if (snap->nr_sectors > store->protect_sectors)
			WRITE_ONCE(store->protect_sectors, snap->nr_sectors);
}

/* The memory that a store in force holds. */
static int store_reserve(struct cow_store *store)
{
	int r = cow_engine_reserve(store->origin->engine, store->chunk_sectors);

	return r ?: cow_store_reserve_undo(store, store->options.undo_buffer);
}

void cow_store_prepare(struct cow_store *store)
{
	unsigned int noio;

	if (!cow_admin_try(store->origin, &noio))
		return;
	if (list_empty(&store->node))
		store_reserve(store);
	cow_admin_leave(store->origin, noio);
}

/* Do all that can fail. The origin is frozen if this succeeds. */
static int store_make_ready(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	int r;

	lockdep_assert_held(&o->admin_lock);
	if (store->meta && !cow_store_is_formatted(store)) {
		DMERR("store %pg is new and read-only: make it writable and load its tables again",
		      store->bdev);
		return -EROFS;
	}
	r = store_reserve(store);
	if (r)
		return r;
	cow_trackers_read(store);
	r = cow_origin_freeze(o);
	/* The engine keeps its pages, as many as its largest chunk needs. */
	if (r)
		cow_store_reserve_undo(store, 0);
	return r;
}

/* From now on writes to the origin look at the store. The origin is frozen. */
static void store_hook(struct cow_store *store)
{
	struct cow_origin *o = store->origin;

	lockdep_assert_held(&o->admin_lock);
	spin_lock(&o->state_lock);
	cover_snapshots(store);
	list_add_tail_rcu(&store->node, &o->stores);
	cow_current_hook(store);
	cow_ahead_limit(o);
	cow_around_limit(o);
	spin_unlock(&o->state_lock);
	if (store->options.throttle < 100)
		cow_engine_set_throttle(o->engine, store->options.throttle);
	store->is_new = false;
	WRITE_ONCE(store->log_is_due, store->meta);
}

/*
 * All or nothing: a store whose merge cannot go on must not be hooked into its origin, which
 * would show home instead of the snapshot.
 */
static int store_activate(struct cow_store *store)
{
	struct cow_merge *merge = NULL;
	int r;

	lockdep_assert_held(&store->origin->admin_lock);
	if (!list_empty(&store->node))
		return 0;
	r = cow_store_meet_origin(store);
	if (!r)
		r = cow_seal_settle(store);
	if (!r && store->merging) {
		merge = cow_merge_prepare(store->merging);
		r = PTR_ERR_OR_ZERO(merge);
	}
	if (!r)
		r = store_make_ready(store);
	if (r) {
		cow_merge_discard(merge);
		DMERR("store %pg: cannot be used (%d)", store->bdev, r);
		return r;
	}
	check_absence(store);
	cow_trackers_hook(store);
	store_hook(store);
	if (merge)
		cow_merge_start(merge);
	cow_origin_thaw(store->origin);
	return 0;
}

int cow_store_activate(struct cow_store *store)
{
	unsigned int noio = cow_admin_enter(store->origin);
	int r = store_activate(store);

	cow_admin_leave(store->origin, noio);
	return r;
}

void cow_store_begin_log(struct cow_store *store)
{
	if (!READ_ONCE(store->log_is_due))
		return;
	WRITE_ONCE(store->log_is_due, false);
	queue_delayed_work(store->origin->wq, &store->zone_work, 0);
}

int cow_snap_activate(struct cow_snap *snap, sector_t nr_sectors)
{
	struct cow_origin *o = snap->store->origin;
	unsigned int noio = cow_admin_enter(o);
	int r = store_activate(snap->store);

	if (!r)
		r = snap_activate(snap, nr_sectors);
	cow_admin_leave(o, noio);
	return r;
}

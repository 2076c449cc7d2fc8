// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: snapshots are given up to trackers
 *
 * A tracker is what remains of a snapshot whose data is not needed any more: which chunks have
 * changed since its epoch. Giving up goes in this order, while the snapshot still lives:
 *
 *   1  room for the blocks is taken and announced
 *   2  the blocks are written, with the marks of all regions; these are taken away later
 *   3  writes note what they change; all regions are marked, so none waits
 *   4  what the map has for the snapshot has changed before: these bits are set as well
 *   5  the record says "tracker", durably; now the snapshot is gone
 *   6  its room is given back
 *
 * What a crash leaves: up to 5 the snapshot, and blocks that nothing speaks of; then the
 * tracker. Regions that were being written are marked, so what a tracker knows after a crash
 * is a superset of what has changed.
 *
 * A tracker whose blocks cannot be written or read is lost: its record says so before writes
 * go on without it, if the device takes that; else as soon as it does (say_lost()).
 */
#include <linux/bitmap.h>
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap.h"
#include "admin/merge.h"
#include "admin/track.h"
#include "disk/commit.h"
#include "disk/current.h"
#include "disk/meta.h"
#include "disk/super.h"
#include "disk/track.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "origin/registry.h"
#include "store/epochs.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/state.h"
#include "store/store.h"
#include "store/track.h"

/* A region is exact on the disk again when it was left alone for one to two of these. */
#define IDLE_JIFFIES	(2 * HZ)

/* Pages that are settled in one RCU grace period. A write to one of them waits for that long. */
#define SETTLE_PAGES	64U

/* A group: so many regions (128 MiB) are marked together once there are writes in two of them. */
#define MARK_TOGETHER	16U

/* ----------------------------------------------------------------------- lost */

/* The disk could not be told that a tracker is lost: try again. */
static void say_lost(struct cow_store *store)
{
	struct cow_snap *snap;
	unsigned long number;
	int r = 0;

	lockdep_assert_held(&store->track_lock);
	if (!store->lost_unsaid)
		return;
	r = cow_super_write(store, NULL);
	mutex_lock(&store->records_lock);
	xa_for_each(&store->records, number, snap) {
		bool lost = snap->series && READ_ONCE(snap->state) == COW_SNAP_INVALID;

		mutex_unlock(&store->records_lock);
		if (lost && number >= COWSNAP_SUPER_RECORDS && !r)
			r = cow_super_write(store, snap);
		mutex_lock(&store->records_lock);
	}
	mutex_unlock(&store->records_lock);
	store->lost_unsaid = r || !store->writable;
}

/* It is lost: durably, if that is possible at all, before writes go on without it. */
static void tracker_is_lost(struct cow_tracker *t, const char *why)
{
	struct cow_store *store = t->store;
	struct cow_snap *snap = t->snap;
	struct cow_change change;

	lockdep_assert_held(&store->track_lock);
	DMERR("store %pg: tracker %u of %pg is lost: %s", store->bdev, snap->id,
	      store->origin->bdev, why);
	cow_change_begin(&change, store, snap);
	change.state = COW_SNAP_INVALID;
	change.either = true;
	if (!cow_change_end(&change)) {
		cow_tracker_free_room(t);
	} else {
		/* Its room stays taken, as the disk may still speak of it. */
		store->lost_unsaid = true;
		spin_lock(&store->origin->state_lock);
		cow_snap_set_state(snap, COW_SNAP_INVALID);
		spin_unlock(&store->origin->state_lock);
	}
	if (!list_empty(&t->node))
		cow_tracker_unhook(t);
	snap->tracker = NULL;
	cow_tracker_free(t);
	queue_work(store->origin->wq, &store->event_work);
}

/* ---------------------------------------------------------------------- marks */

/*
 * The marks of these regions are made now, those that are wanted. Where writes have come to two
 * of them they may come to all: then the rest are marked in the same write.
 */
static void group_begin(struct cow_tracker *t, u64 first, u64 end)
{
	u64 region;
	u32 nr = 0;

	for (region = first; region < end; region++)
		nr += test_bit(region, t->wanted) || test_bit(region, t->marked);
	for (region = first; region < end; region++)
		if (test_and_clear_bit(region, t->wanted) ||
		    (nr > 1 && !test_bit(region, t->marked)))
			set_bit(region, t->marking);
}

static void marks_begin(struct cow_tracker *t, u64 page)
{
	u64 first, end = cow_tracker_page(t, page, &first);

	for (; first < end; first += MARK_TOGETHER)
		group_begin(t, first, min(first + MARK_TOGETHER, end));
}

/* They could not be made, and are still wanted. */
static void marks_failed(struct cow_tracker *t, u64 page)
{
	u64 region, end = cow_tracker_page(t, page, &region);

	for (; region < end; region++)
		if (test_and_clear_bit(region, t->marking))
			set_bit(region, t->wanted);
}

/* They are durable. Only now a writer may rely on them. */
static void marks_end(struct cow_tracker *t, u64 page)
{
	u64 region, end = cow_tracker_page(t, page, &region);

	for (; region < end; region++) {
		if (!test_and_clear_bit(region, t->marking))
			continue;
		set_bit(region, t->used);
		set_bit(region, t->marked);
	}
}

static int make_marks(struct cow_tracker *t)
{
	u64 regions = cow_tracker_page_regions(t);
	u64 region = 0, nr = cow_tracker_regions(t), page;
	int r = 0;

	while (!r && (region = find_next_bit(t->wanted, nr, region)) < nr) {
		page = region / regions;
		marks_begin(t, page);
		r = cow_tracker_write(t, page, t->marking, REQ_FUA);
		if (r)
			marks_failed(t, page);
		else
			marks_end(t, page);
		region = (page + 1) * regions;
	}
	return r;
}

void cow_track_work(struct work_struct *work)
{
	struct cow_store *store = container_of(work, struct cow_store, track_work);
	struct cow_tracker *t, *next;

	mutex_lock(&store->track_lock);
	list_for_each_entry_safe(t, next, &store->trackers, node)
		if (make_marks(t))
			tracker_is_lost(t, "a region cannot be marked");
	say_lost(store);
	mutex_unlock(&store->track_lock);
	cow_track_release(store);
	queue_delayed_work(store->origin->wq, &store->track_idle_work, IDLE_JIFFIES);
}

/* ----------------------------------------------------------------- exact bits */

/* Regions that are marked together lose their marks together, when all were left alone. */
static bool take_group(struct cow_tracker *t, u64 first, u64 end, bool all)
{
	bool any = false, used = false;
	u64 region;

	for (region = first; region < end; region++)
		if (test_and_clear_bit(region, t->used))
			used = true;
	if (used && !all)
		return false;
	for (region = first; region < end; region++)
		if (test_and_clear_bit(region, t->marked))
			any = true;
	return any;
}

/* Take marks away, in memory: those of regions that were left alone, or @all. */
static bool take_marks(struct cow_tracker *t, u64 page, bool all)
{
	u64 first, end = cow_tracker_page(t, page, &first);
	bool any = false;

	for (; first < end; first += MARK_TOGETHER)
		if (take_group(t, first, min(first + MARK_TOGETHER, end), all))
			any = true;
	return any;
}

/* Settle the next SETTLE_PAGES; after the last comes the first. */
static int settle_some(struct cow_tracker *t, bool all)
{
	u64 page = t->settle_at;
	u32 i, nr = min_t(u64, SETTLE_PAGES, t->nr_pages - page);
	DECLARE_BITMAP(settled, SETTLE_PAGES);
	int r = 0;

	t->settle_at = page + nr < t->nr_pages ? page + nr : 0;
	bitmap_zero(settled, SETTLE_PAGES);
	for (i = 0; i < nr; i++)
		if (take_marks(t, page + i, all))
			__set_bit(i, settled);
	if (bitmap_empty(settled, nr))
		return 0;
	/* From here on, each writer that saw a mark in cow_tracker_note() has set its bits. */
	synchronize_rcu();
	for_each_set_bit(i, settled, nr) {
		r = cow_tracker_write(t, page + i, NULL, 0);
		if (r)
			break;
	}
	return r;
}

/*
 * Writes have waited for marks since track_lock was taken. After an error they wait on: the work
 * item, which is queued, tries again and deals with it.
 */
static int serve_waiting(struct cow_store *store)
{
	struct cow_tracker *t;
	int r = 0;

	lockdep_assert_held(&store->track_lock);
	list_for_each_entry(t, &store->trackers, node) {
		r = make_marks(t);
		if (r)
			return r;
	}
	cow_track_release(store);
	return 0;
}

/*
 * Writes that wait for a mark need track_lock. With @all they are served in between; otherwise
 * this ends, so that the work item serves them.
 */
static int settle(struct cow_tracker *t, bool all)
{
	bool serve = all;
	u64 done;
	int r = 0;

	lockdep_assert_held(&t->store->track_lock);
	/* Then no write has come yet, or the tracker would be lost. */
	if (!t->store->writable)
		return 0;
	for (done = 0; done < t->nr_pages && !r; done += SETTLE_PAGES) {
		if (!list_empty_careful(&t->store->track_waiting)) {
			if (!all)
				break;
			serve = serve && !serve_waiting(t->store);
		}
		r = settle_some(t, all);
		cond_resched();
	}
	return r;
}

static void settle_all(struct cow_store *store, bool all)
{
	struct cow_tracker *t, *next;

	lockdep_assert_held(&store->track_lock);
	list_for_each_entry_safe(t, next, &store->trackers, node)
		if (settle(t, all))
			tracker_is_lost(t, "it cannot be written");
	say_lost(store);
}

static bool has_marks(struct cow_store *store)
{
	struct cow_tracker *t;

	if (!store->writable)
		return false;
	list_for_each_entry(t, &store->trackers, node)
		if (find_first_bit(t->marked, cow_tracker_regions(t)) < cow_tracker_regions(t))
			return true;
	return store->lost_unsaid;
}

void cow_track_idle_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       track_idle_work);

	mutex_lock(&store->track_lock);
	settle_all(store, false);
	if (has_marks(store))
		queue_delayed_work(store->origin->wq, &store->track_idle_work, IDLE_JIFFIES);
	mutex_unlock(&store->track_lock);
	/* Writes that waited for a tracker that was lost. */
	cow_track_release(store);
}

/* Those of a store that is not in use yet have not even been read. state_lock held. */
static bool can_settle(const struct cow_store *store)
{
	const struct cow_snap *snap;

	lockdep_assert_held(&store->origin->state_lock);
	if (store->writable && !list_empty(&store->node))
		return true;
	list_for_each_entry(snap, &store->snaps, node)
		if (snap->state == COW_SNAP_TRACKER)
			return false;
	return true;
}

int cow_trackers_settle(struct cow_store *store)
{
	bool can;

	spin_lock(&store->origin->state_lock);
	can = can_settle(store);
	spin_unlock(&store->origin->state_lock);
	if (!can)
		return -EROFS;
	mutex_lock(&store->track_lock);
	settle_all(store, true);
	mutex_unlock(&store->track_lock);
	cow_track_release(store);
	return 0;
}

/* ---------------------------------------------------------------- open, close */

void cow_trackers_read(struct cow_store *store)
{
	struct cow_snap *snap;

	lockdep_assert_held(&store->origin->admin_lock);
	mutex_lock(&store->track_lock);
	list_for_each_entry(snap, &store->snaps, node)
		if (snap->tracker && list_empty(&snap->tracker->node) &&
		    cow_tracker_read(snap->tracker))
			tracker_is_lost(snap->tracker, "it cannot be read");
	say_lost(store);
	mutex_unlock(&store->track_lock);
}

void cow_trackers_lose(struct cow_store *store, const char *why)
{
	struct cow_snap *snap;

	lockdep_assert_held(&store->origin->admin_lock);
	mutex_lock(&store->track_lock);
	list_for_each_entry(snap, &store->snaps, node)
		if (snap->tracker)
			tracker_is_lost(snap->tracker, why);
	say_lost(store);
	mutex_unlock(&store->track_lock);
}

void cow_trackers_hook(struct cow_store *store)
{
	struct cow_snap *snap;

	lockdep_assert_held(&store->origin->admin_lock);
	mutex_lock(&store->track_lock);
	list_for_each_entry(snap, &store->snaps, node)
		if (snap->tracker && list_empty(&snap->tracker->node))
			cow_tracker_hook(snap->tracker);
	if (has_marks(store))
		queue_delayed_work(store->origin->wq, &store->track_idle_work, IDLE_JIFFIES);
	mutex_unlock(&store->track_lock);
}

bool cow_trackers_close(struct cow_store *store)
{
	struct cow_tracker *t, *next;

	cancel_work_sync(&store->track_work);
	cancel_delayed_work_sync(&store->track_idle_work);
	mutex_lock(&store->track_lock);
	settle_all(store, true);
	/* Else marks that are gone may come back: no flush is in front of the superblocks. */
	if (!list_empty(&store->trackers) && store->writable && cow_meta_fua(store->meta))
		cow_meta_flush(store->meta, cow_meta_losses(store->meta));
	list_for_each_entry_safe(t, next, &store->trackers, node)
		cow_tracker_unhook(t);
	mutex_unlock(&store->track_lock);
	return !store->lost_unsaid;
}

/* -------------------------------------------------------------------- give up */

/* A series of its own, and the feature that tells older versions to keep off. */
static int new_series(struct cow_store *store, u32 *series)
{
	struct cow_change change;
	int r;

	if (store->epoch >= COW_EPOCH_MAX - 1)
		return -EOVERFLOW;
	cow_change_begin(&change, store, NULL);
	*series = ++store->epoch;
	change.has_tracked = true;
	change.either = true;
	r = cow_change_end(&change);
	return r;
}

/* What the snapshot has of its own, or has a copy of, is what has changed so far. */
static void take_from_map(struct cow_tracker *t)
{
	struct cow_extent ext;
	u64 at = 0;

	while (cow_map_next(&t->store->map, at, t->nr_chunks, t->snap->epoch, &ext)) {
		cow_tracker_set(t, ext.chunk, ext.nr);
		at = ext.chunk + ext.nr;
	}
}

/*
 * Durably, with the marks of all regions, so that no write waits for any of it. Nobody else knows
 * the tracker yet: the lock is for what the blocks are made in, and writes may wait for another
 * tracker's mark.
 */
static int write_blocks(struct cow_tracker *t)
{
	struct cow_meta *meta = t->store->meta;
	unsigned int losses = cow_meta_losses(meta);
	u64 page;
	int r = 0;

	/* bitmap_fill() counts in unsigned int. */
	memset(t->marked, 0xff, BITS_TO_LONGS(cow_tracker_regions(t)) * sizeof(long));
	for (page = 0; page < t->nr_pages && !r; page++) {
		mutex_lock(&t->store->track_lock);
		r = cow_tracker_write(t, page, NULL, 0);
		mutex_unlock(&t->store->track_lock);
		cond_resched();
	}
	return r ?: cow_meta_flush(meta, losses);
}

/* From LIVE to TRACKER, durably, with all that it knows: its marks are on the disk. */
static int begin_to_track(struct cow_tracker *t)
{
	struct cow_change change;
	int r;

	lockdep_assert_held(&t->store->track_lock);
	cow_tracker_hook(t);
	take_from_map(t);
	cow_change_begin(&change, t->store, t->snap);
	change.state = COW_SNAP_TRACKER;
	change.series = t->series;
	r = cow_change_end(&change);
	if (r)
		cow_tracker_unhook(t);
	else
		t->snap->tracker = t;
	return r;
}

/* All the steps. A series is spent even if this fails. */
static int give_up(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	struct cow_tracker *t;
	u32 series;
	int r = new_series(store, &series);

	if (r)
		return r;
	t = cow_tracker_alloc(snap, cow_meta_geometry(store->meta), series);
	if (!t)
		return -ENOMEM;
	r = cow_tracker_take_room(t);
	if (r)
		goto free_tracker;
	r = write_blocks(t);
	if (r)
		goto free_room;
	mutex_lock(&store->track_lock);
	r = begin_to_track(t);
	mutex_unlock(&store->track_lock);
	cow_track_release(store);
	if (r)
		goto free_room;
	/* No region is in use as yet: the exact bits of all of them. */
	mod_delayed_work(store->origin->wq, &store->track_idle_work, 0);
	/* Without memory its epoch is served for a while longer. */
	cow_store_renew_live(store);
	cow_store_reclaim(store);
	return 0;

free_room:
	cow_tracker_free_room(t);
free_tracker:
	cow_tracker_free(t);
	return r;
}

static unsigned int nr_trackers(const struct cow_store *store)
{
	const struct cow_snap *snap;
	unsigned int nr = 0;

	list_for_each_entry(snap, &store->snaps, node)
		nr += snap->state == COW_SNAP_TRACKER;
	return nr;
}

/* Why it cannot be given up, or NULL. */
static const char *stands_in_the_way(const struct cow_store *store, const struct cow_snap *snap)
{
	if (snap->nr_tables)
		return "is in use: remove its device first";
	if (snap->state != COW_SNAP_LIVE)
		return "is not live";
	if (snap->epoch <= cow_store_damage(store))
		return "has lost chunks: run cowsnap repair";
	if (cow_current_is_used(store))
		return "is in a store that redirects: settle it first";
	if (nr_trackers(store) >= COWSNAP_MAX_TRACKERS)
		return "is one too many: delete a tracker first";
	if (!store->writable || cow_meta_is_fenced(store->meta) ||
	    READ_ONCE(store->blocked) == COW_STORE_FAILING)
		return "is in a store that cannot be written now";
	return NULL;
}

static int track_snap(struct cow_store *store, unsigned int id)
{
	struct cow_snap *snap = cow_snap_find(store, id);
	const char *why;
	int r;

	if (!snap) {
		DMERR("message track: snapshot %u does not exist", id);
		return -ENOENT;
	}
	if (!store->meta || list_empty(&store->node)) {
		DMERR("message track: store %pg is %s", store->bdev,
		      store->meta ? "not in use" : "transient");
		return -EINVAL;
	}
	if (cow_merge_stands_in_the_way(store->origin))
		return -EBUSY;
	why = stands_in_the_way(store, snap);
	if (why) {
		DMERR("message track: snapshot %u %s", id, why);
		return -EBUSY;
	}
	r = give_up(snap);
	if (r)
		DMERR("message track: snapshot %u cannot be given up (%d)%s", id, r,
		      r == -ENOSPC ? ": the store is full" : "");
	return r;
}

int cow_store_track_snap(struct cow_store *store, unsigned int id)
{
	unsigned int noio;
	int r;

	/* No table may take the snapshot meanwhile. */
	mutex_lock(&cow_registry_mutex);
	noio = cow_admin_enter(store->origin);
	r = track_snap(store, id);
	cow_admin_leave(store->origin, noio);
	mutex_unlock(&cow_registry_mutex);
	/* It has the exact bits at once, unless writes wait for marks. */
	if (!r)
		flush_delayed_work(&store->track_idle_work);
	return r;
}

void cow_tracker_drop(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	struct cow_tracker *t;

	lockdep_assert_held(&store->origin->admin_lock);
	mutex_lock(&store->track_lock);
	t = snap->tracker;
	snap->tracker = NULL;
	if (t && !list_empty(&t->node))
		cow_tracker_unhook(t);
	mutex_unlock(&store->track_lock);
	if (!t)
		return;
	cow_track_release(store);
	cow_tracker_free_room(t);
	cow_tracker_free(t);
}

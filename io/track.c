// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: a write to the origin and its trackers
 *
 * No write goes home before the disk knows, of each tracker, that its chunks may have changed.
 * Mostly it does: the bits are set, or may be set since the region is marked. Otherwise
 * the bio waits for the one write that marks its region, together with all others that came
 * meanwhile (admin/track.c).
 */
#include <linux/module.h>

#include "dm-cowsnap.h"
#include "io/track.h"
#include "origin/bio.h"
#include "origin/origin.h"
#include "store/store.h"
#include "store/track.h"

/* RCU held. */
static bool note_in_all(struct cow_origin *o, const struct bio *bio)
{
	sector_t start = bio->bi_iter.bi_sector, end = bio_end_sector(bio);
	struct cow_tracker *t;
	struct cow_store *store;

	list_for_each_entry_rcu(store, &o->stores, node)
		list_for_each_entry_rcu(t, &store->trackers, node)
			if (!cow_tracker_note(t, start, end))
				return false;
	return true;
}

/* Does some tracker of @store lack a mark for @bio? Then it is asked for. RCU held. */
static bool ask_for_marks(struct cow_store *store, const struct bio *bio)
{
	sector_t start = bio->bi_iter.bi_sector, end = bio_end_sector(bio);
	struct cow_tracker *t;
	bool lacks = false;

	list_for_each_entry_rcu(t, &store->trackers, node) {
		if (cow_tracker_note(t, start, end))
			continue;
		cow_tracker_want(t, start, end);
		lacks = true;
	}
	return lacks;
}

/*
 * The bio waits for one store; those of others are asked for as well. All under state_lock, so
 * that the work item either finds the bio or has made the marks before it was looked for them.
 */
static bool wait_for_marks(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	struct cow_store *store, *wait = NULL;

	spin_lock(&o->state_lock);
	rcu_read_lock();
	list_for_each_entry_rcu(store, &o->stores, node) {
		if (!ask_for_marks(store, cb->bio))
			continue;
		if (!wait)
			cow_bio_park(cb, &store->track_waiting, COW_WAIT_TRACKER);
		wait = store;
		queue_work(o->wq, &store->track_work);
	}
	rcu_read_unlock();
	spin_unlock(&o->state_lock);
	return wait;
}

bool cow_track_write(struct cow_bio *cb)
{
	bool known;

	rcu_read_lock();
	known = note_in_all(cb->origin, cb->bio);
	rcu_read_unlock();
	return known || !wait_for_marks(cb);
}

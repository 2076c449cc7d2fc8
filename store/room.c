// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: room in a store, and what happens when there is none
 *
 * Room is taken from store/space.c. When it is short the store is blocked: bios that
 * need a copy wait on store->waiting until table blocks are ready, until room was
 * reclaimed, or until on_full has been carried out.
 */
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap.h"
#include "origin/origin.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/space.h"
#include "store/state.h"
#include "store/store.h"
#include "store/zones.h"

/* What was redirected comes home at once when so many eighths of its share are used up. */
#define SHARE_EIGHTHS		7U

/* Else it is looked at when the origin may have been left alone for long enough. */
#define SETTLE_JIFFIES		(HZ / 2)

/* Table blocks are made ready well before the last one is needed: with so few left, */
#define READY_BLOCKS		(COWSNAP_COMMIT_BLOCKS / 2)
/* and, whoever else uses the disk, with so few. */
#define READY_BLOCKS_HURRIED	(COWSNAP_COMMIT_BLOCKS / 4)

/* Is there room left for fewer chunks than @blocks have slots? */
static bool ready_runs_out(const struct cow_store *store, u32 blocks)
{
	const struct cow_space *space = &store->space;

	return space->geometry && space->blocks < space->max_blocks &&
	       cow_space_ready(space) - space->used < (u64)blocks * space->geometry->block_slots;
}

/* Copies that find no long run go in pieces, and in the end they wait. */
static void make_ready(struct cow_store *store)
{
	if (!ready_runs_out(store, READY_BLOCKS))
		return;
	if (!store->extend_hurried && !store->extend_failed &&
	    ready_runs_out(store, READY_BLOCKS_HURRIED)) {
		WRITE_ONCE(store->extend_hurried, true);
		/* See cow_store_breathe(). */
		wake_up(&store->idle);
	}
	queue_work(store->origin->wq, &store->extend_work);
}

void cow_store_watch_low_water(struct cow_store *store)
{
	const struct cow_space *space = &store->space;
	u64 used = cow_space_filled(space) + space->table_chunks;

	lockdep_assert_held(&store->origin->state_lock);
	if (!store->options.low_water)
		return;
	if (used * 100 < (u64)store->options.low_water * space->nr_chunks) {
		store->below_water = true;
	} else if (store->below_water) {
		store->below_water = false;
		queue_work(store->origin->wq, &store->event_work);
	}
}

u32 cow_store_room(struct cow_store *store, u32 nr, u64 *place)
{
	u32 got;

	lockdep_assert_held(&store->origin->state_lock);
	got = cow_space_alloc(&store->space, nr, place);
	make_ready(store);
	cow_store_watch_low_water(store);
	return got;
}

bool cow_store_reclaim_is_due(const struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	return store->reclaims_wanted != store->reclaims_done;
}

bool cow_store_makes_wait(const struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	return store->blocked == COW_STORE_PREPARING || store->blocked == COW_STORE_FAILING ||
	       (store->blocked == COW_STORE_FULL && cow_store_reclaim_is_due(store));
}

/* There are chunks, but no table blocks for them: an error, or no memory, and not a full store. */
static bool has_no_tables(const struct cow_store *store)
{
	return store->space.geometry && store->space.blocks < store->space.max_blocks &&
	       store->extend_failed;
}

void cow_store_lose_for_room(struct cow_store *store, const char *why)
{
	lockdep_assert_held(&store->origin->state_lock);
	if (has_no_tables(store))
		__cow_store_invalidate(store, COW_SNAP_INVALID, "its tables could not be extended");
	else
		__cow_store_invalidate(store, COW_SNAP_OVERFLOWED, why);
}

static void store_is_full(struct cow_store *store)
{
	unsigned int seconds = 0;

	/* reclaim_ended() unblocks it. */
	if (cow_store_reclaim_is_due(store)) {
		cow_store_set_blocked(store, COW_STORE_FULL);
		return;
	}
	switch (store->options.on_full) {
	case COWSNAP_FULL_WAIT:
		seconds = store->options.wait_timeout;
		if (store->origin->nr_suspending)
			break;
		fallthrough;
	case COWSNAP_FULL_DROP_OLDEST:
		cow_store_set_blocked(store, COW_STORE_FULL);
		mod_delayed_work(store->origin->room_wq, &store->full_work, seconds * HZ);
		queue_work(store->origin->wq, &store->event_work);
		return;
	}
	cow_store_lose_for_room(store, "the store is full");
}

int cow_store_no_room(struct cow_store *store, bool must)
{
	const struct cow_space *space = &store->space;

	lockdep_assert_held(&store->origin->state_lock);
	if (store->blocked)
		return -EBUSY;
	if (space->used < cow_space_ready(space))
		return -ENOMEM;
	/* cow_store_room() tries an extension that failed again; that is not waited for. */
	if (space->geometry && space->blocks < space->max_blocks && !store->extend_failed) {
		cow_store_set_blocked(store, COW_STORE_PREPARING);
		WRITE_ONCE(store->extend_waited, true);
		/* See cow_store_breathe(). */
		wake_up(&store->idle);
		queue_work(store->origin->wq, &store->extend_work);
		return -EBUSY;
	}
	/* Nor is it full while zones of the log keep room back. */
	if (cow_zones_end(store)) {
		cow_store_set_blocked(store, COW_STORE_PREPARING);
		return -EBUSY;
	}
	if (!must && !cow_store_reclaim_is_due(store))
		return -ENOSPC;
	store_is_full(store);
	return store->blocked ? -EBUSY : -ENOSPC;
}

void cow_store_has_room_again(struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	cow_store_watch_low_water(store);
	if (store->blocked == COW_STORE_FULL && !cow_store_reclaim_is_due(store))
		cow_store_unblock(store);
}

void cow_store_resize(struct cow_store *store)
{
	u64 nr_chunks = bdev_nr_sectors(store->bdev) >> store->chunk_shift;
	struct cow_space_size size;

	if (READ_ONCE(store->space.nr_chunks) >= nr_chunks || nr_chunks >= COW_CHUNKS_MAX)
		return;
	cow_space_measure(&store->space, nr_chunks, &size);
	spin_lock(&store->origin->state_lock);
	/* Another may have come first. */
	if (store->space.nr_chunks < nr_chunks) {
		cow_space_resize(&store->space, &size);
		if (store->blocked == COW_STORE_FULL)
			cow_store_unblock(store);
		cow_store_watch_low_water(store);
		/* There may be room for copies of home. */
		cow_store_settle(store);
	}
	spin_unlock(&store->origin->state_lock);
}

void cow_store_overflow(struct cow_store *store, const char *why)
{
	lockdep_assert_held(&store->origin->state_lock);
	if (store->blocked != COW_STORE_FULL || cow_store_reclaim_is_due(store))
		return;
	cow_store_lose_for_room(store, why);
	/* If no snapshot is live that did nothing. */
	if (store->blocked == COW_STORE_FULL)
		cow_store_unblock(store);
}

void cow_store_stop_waiting(struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	if (store->options.on_full == COWSNAP_FULL_WAIT)
		cow_store_overflow(store, "the store is full, and its origin was suspended");
}

void cow_store_reclaim(struct cow_store *store)
{
	spin_lock(&store->origin->state_lock);
	if (!store->closing) {
		store->reclaims_wanted++;
		mod_delayed_work(store->origin->room_wq, &store->reclaim_work, 0);
	}
	spin_unlock(&store->origin->state_lock);
}

static bool share_is_used_up(const struct cow_store *store)
{
	u64 share = store->space.total * store->options.redirect;

	return share && store->nr_current * 100 * 8 >= share * SHARE_EIGHTHS;
}

bool cow_store_settles_in_haste(const struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	return store->settle.asked || store->options.settle == COWSNAP_SETTLE_NOW ||
	       (store->options.settle == COWSNAP_SETTLE_IDLE && share_is_used_up(store));
}

void cow_store_current_gone(struct cow_store *store, u64 nr)
{
	lockdep_assert_held(&store->origin->state_lock);
	store->nr_current -= nr;
	store->settle.asked = min(store->settle.asked, store->nr_current);
}

void cow_store_settle(struct cow_store *store)
{
	struct workqueue_struct *wq = store->origin->room_wq;

	lockdep_assert_held(&store->origin->state_lock);
	/* Of a store that is not in force much may be in doubt. */
	if (list_empty(&store->node) || !store->nr_current || !store->writable ||
	    store->settle.stopped)
		return;
	store->settle.again = true;
	if (cow_store_settles_in_haste(store) && !store->settle.in_vain)
		mod_delayed_work(wq, &store->settle_work, 0);
	else if (store->settle.asked || store->options.settle != COWSNAP_SETTLE_OFF)
		queue_delayed_work(wq, &store->settle_work, SETTLE_JIFFIES);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: options of a store change
 */
#include <linux/module.h>

#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "admin/merge.h"
#include "admin/tuning.h"
#include "copy/undo.h"
#include "disk/current.h"
#include "disk/prepare.h"
#include "disk/super.h"
#include "io/ahead.h"
#include "io/around.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "store/options.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/store.h"
#include "store/zones.h"

int cow_store_reserve_undo(struct cow_store *store, unsigned int kib)
{
	int r;

	lockdep_assert_held(&store->origin->admin_lock);
	r = cow_engine_buffer(store->origin->engine, store->undo_reserved, kib);
	if (!r)
		store->undo_reserved = kib;
	return r;
}

static int store_set_undo(struct cow_store *store, unsigned int kib)
{
	unsigned int noio;
	int r;

	if (store->meta) {
		DMERR("store %pg is persistent: undo_buffer is for transient ones",
		      store->bdev);
		return -EINVAL;
	}
	noio = cow_admin_enter(store->origin);
	/* A smaller buffer is in force once the copies beyond it are written. */
	spin_lock(&store->origin->state_lock);
	store->options.undo_buffer = min(kib, store->undo_reserved);
	spin_unlock(&store->origin->state_lock);
	if (kib < store->undo_reserved) {
		cow_undo_flush(store);
		cow_undo_open(store);
	}
	r = cow_store_reserve_undo(store, kib);
	if (!r) {
		spin_lock(&store->origin->state_lock);
		store->options.undo_buffer = kib;
		spin_unlock(&store->origin->state_lock);
	}
	cow_admin_leave(store->origin, noio);
	return r;
}

static bool is_given(const struct cow_given *given, enum cow_option_id id)
{
	return given->given & BIT(id);
}

/* What a store cannot have beside writes that are redirected, or NULL. */
static const char *stands_in_the_way(struct cow_store *store)
{
	struct cow_snap *snap;

	lockdep_assert_held(&store->origin->admin_lock);
	if (!store->meta)
		return "it is transient";
	if (store->seal_state != COWSNAP_SEAL_SEALED)
		return "its origin is not sealed: run cowsnap seal first";
	if (store->merging)
		return "a snapshot is being merged";
	if (store->damaged_blocks || cow_store_damage(store))
		return "it has lost chunks of snapshots: run cowsnap repair";
	list_for_each_entry(snap, &store->snaps, node)
		if (snap->state == COW_SNAP_TRACKER)
			return "it has trackers";
	return NULL;
}

/* Will there be a log beside writes that are redirected? */
static bool will_log(struct cow_store *store, const struct cow_given *given)
{
	unsigned int mode = is_given(given, COW_OPTION_LOG) ? given->value.log : store->options.log;

	return mode != COWSNAP_LOG_OFF;
}

/* Zones are left, or named: at once, unless cow_store_begin_log() is going to. */
static void look_at_zones(struct cow_store *store)
{
	if (!READ_ONCE(store->log_is_due))
		mod_delayed_work(store->origin->wq, &store->zone_work, 0);
}

/* The disk says that it redirects before it does. */
static int store_set_redirect(struct cow_store *store, const struct cow_given *given)
{
	unsigned int noio = cow_admin_enter(store->origin);
	unsigned int percent = given->value.redirect;
	const char *why = percent || !store->meta ? stands_in_the_way(store) : NULL;
	struct cow_change change;
	bool began = false;
	int r = 0;

	if (why) {
		DMERR("store %pg cannot redirect: %s", store->bdev, why);
		r = -EINVAL;
	} else if (percent && store->writable && will_log(store, given)) {
		/* Small zones would be full, and be left, all the time. */
		r = cow_super_extend(store, cow_zones_first_blocks(store));
		if (r)
			DMWARN("store %pg: no tables made ready (%d): what is redirected is slower",
			       store->bdev, r);
		r = 0;
	}
	if (!r) {
		cow_change_begin(&change, store, NULL);
		began = percent && !change.options.redirect;
		change.options.redirect = percent;
		change.either = true;
		r = cow_change_end(&change);
	}
	if (!r) {
		spin_lock(&store->origin->state_lock);
		cow_current_hook(store);
		if (began)
			cow_zones_outgrow(store);
		spin_unlock(&store->origin->state_lock);
		/* Whatever becomes of the other options. */
		look_at_zones(store);
	}
	cow_admin_leave(store->origin, noio);
	return r;
}

int cow_store_set_options(struct cow_store *store, const struct cow_given *given)
{
	struct cow_change change;
	int r = 0;

	if (is_given(given, COW_OPTION_LOG) && !store->meta) {
		DMERR("store %pg is transient: log is for persistent ones", store->bdev);
		return -EINVAL;
	}
	if (is_given(given, COW_OPTION_UNDO_BUFFER))
		r = store_set_undo(store, given->value.undo_buffer);
	if (!r && is_given(given, COW_OPTION_REDIRECT))
		r = store_set_redirect(store, given);
	if (r)
		return r;
	cow_change_begin(&change, store, NULL);
	cow_options_merge(&change.options, given);
	/* Whichever a crash leaves, it was asked for. */
	change.either = true;
	r = cow_change_end(&change);
	if (r)
		return r;
	spin_lock(&store->origin->state_lock);
	cow_around_limit(store->origin);
	cow_ahead_limit(store->origin);
	if (is_given(given, COW_OPTION_LOW_WATER)) {
		store->below_water = true;
		cow_store_watch_low_water(store);
	}
	if (is_given(given, COW_OPTION_SETTLE) || is_given(given, COW_OPTION_REDIRECT)) {
		store->settle.in_vain = false;
		cow_store_settle(store);
	}
	spin_unlock(&store->origin->state_lock);
	if (store->meta && is_given(given, COW_OPTION_LOG))
		look_at_zones(store);
	if (is_given(given, COW_OPTION_THROTTLE)) {
		cow_engine_set_throttle(store->origin->engine, given->value.throttle);
		cow_merge_hurry(store->origin);
	}
	return 0;
}

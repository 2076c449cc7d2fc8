// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: snapshots are named by tables, created and deleted
 *
 * What is on disk stays when tables go; a snapshot that only tables know goes with the
 * last of them. Creating writes a record while the origin is frozen
 * (admin/activate.c). Deleting frees the record; the room follows in the background
 * (admin/reclaim.c). Each is one durable write of one block: a crash leaves it done or
 * not done.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "admin/activate.h"
#include "admin/snapshots.h"
#include "admin/track.h"
#include "disk/current.h"
#include "disk/places.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "origin/registry.h"
#include "origin/tables.h"
#include "store/epochs.h"
#include "store/error.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/store.h"

/* An id is made by "create", or is the first one of a new store. */
static bool id_is_right(struct cow_store *store, const struct cow_snap_args *args,
			char **error)
{
	bool exists = cow_snap_find(store, args->id);
	bool first = !store->epoch && list_empty(&store->snaps) && cow_snap_may_be_first(args);

	if (exists && args->create)
		cow_fail(error,
			 "Snapshot %u exists already: leave out \"create\"",
			 args->id);
	else if (!exists && !args->create && !first)
		cow_fail(error,
			 "Snapshot %u does not exist: add \"create\" to make it",
			 args->id);
	else
		return true;
	return false;
}

/* If the last chunk of a snapshot is not whole, the snapshot cannot grow. */
static bool snap_agrees(struct cow_snap *snap, const struct cow_snap_args *args,
			char **error)
{
	u64 had = snap->nr_sectors, now = args->nr_sectors;

	if (snap->state == COW_SNAP_MERGING && !args->merge)
		cow_fail(error, "Snapshot %u is being merged into its origin", snap->id);
	else if (snap->state == COW_SNAP_MERGED && !args->merge)
		cow_fail(error, "Snapshot %u was merged into its origin: delete it", snap->id);
	else if (snap->state == COW_SNAP_TRACKER)
		cow_fail(error, "Snapshot %u was given up to a tracker: it has no data", snap->id);
	else if (args->merge && args->claimed && cow_current_is_used(snap->store))
		cow_fail(error,
			 "Store %pg redirects: settle it first, snapshot %u cannot be merged",
			 snap->store->bdev, snap->id);
	else if (args->merge && snap->nr_tables && snap->state == COW_SNAP_LIVE &&
		 !args->takes_over)
		cow_fail(error, "Snapshot %u is in use: remove its device before it is merged",
			 snap->id);
	else if (!snap->epoch || now == had || args->merge)
		return true;
	else if (now < had)
		cow_fail(error,
			 "Snapshot %u has %llu sectors, the table says %llu: it cannot shrink",
			 snap->id, had, now);
	else if (had % snap->store->chunk_sectors)
		cow_fail(error,
			 "Snapshot %u has %llu sectors, no whole number of chunks of %u: it cannot grow to %llu",
			 snap->id, had, snap->store->chunk_sectors, now);
	else
		return true;
	return false;
}

struct cow_snap *cow_snap_get(struct cow_store *store, const struct cow_snap_args *args,
			      char **error)
{
	struct cow_snap *snap;

	lockdep_assert_held(&cow_registry_mutex);
	if (!id_is_right(store, args, error))
		return ERR_PTR(-EINVAL);
	snap = cow_snap_find(store, args->id);
	if (snap && !snap_agrees(snap, args, error))
		return ERR_PTR(-EINVAL);
	if (!snap) {
		snap = cow_snap_add(store, args->id, COW_SNAP_LOADED);
		if (!snap) {
			*error = "Out of memory for a snapshot";
			return ERR_PTR(-ENOMEM);
		}
	}
	snap->overflow_apart |= args->overflow_apart;
	snap->nr_tables++;
	return snap;
}

void cow_snap_put(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;

	lockdep_assert_held(&cow_registry_mutex);
	if (--snap->nr_tables || (store->meta && snap->state != COW_SNAP_LOADED))
		return;
	cow_snap_forget(snap);
}

static struct cow_snap *message_new_snap(struct cow_store *store, unsigned int id)
{
	struct cow_snap *snap = NULL;

	mutex_lock(&cow_registry_mutex);
	if (!cow_snap_find(store, id)) {
		snap = cow_snap_add(store, id, COW_SNAP_LOADED);
		if (snap)
			snap->nr_tables++;
	}
	mutex_unlock(&cow_registry_mutex);
	return snap;
}

int cow_store_create_snap(struct cow_store *store, unsigned int id)
{
	struct cow_snap *snap;
	int r;

	if (!store->meta) {
		DMERR("store %pg is transient: make snapshots in it with a table",
		      store->bdev);
		return -EINVAL;
	}
	if (xa_load(&store->ids, id)) {
		DMERR("message create: snapshot %u exists already", id);
		return -EEXIST;
	}
	snap = message_new_snap(store, id);
	if (!snap)
		return -ENOMEM;
	r = cow_snap_activate(snap, cow_origin_length(store->origin));
	cow_store_begin_log(store);
	mutex_lock(&cow_registry_mutex);
	cow_snap_put(snap);
	mutex_unlock(&cow_registry_mutex);
	return r;
}

/* Take it off all lists. registry_mutex and origin->admin_lock held. */
static void snap_unlink(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	struct cow_live *live = cow_store_alloc_live(store);

	lockdep_assert_held(&cow_registry_mutex);
	lockdep_assert_held(&store->origin->admin_lock);
	spin_lock(&store->origin->state_lock);
	list_del(&snap->node);
	store->nr_snaps--;
	__cow_store_take_live(store, live);
	spin_unlock(&store->origin->state_lock);
	xa_erase(&store->ids, snap->id);
	kfree(snap);
}

void cow_snap_forget(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	unsigned int noio = cow_admin_enter(store->origin);

	snap_unlink(snap);
	cow_admin_leave(store->origin, noio);
	cow_store_reclaim(store);
}

int cow_store_delete_snap(struct cow_store *store, unsigned int id)
{
	struct cow_snap *snap;
	unsigned int noio;
	int r = 0;

	mutex_lock(&cow_registry_mutex);
	noio = cow_admin_enter(store->origin);
	snap = cow_snap_find(store, id);
	if (!snap) {
		DMERR("message delete: snapshot %u does not exist", id);
		r = -ENOENT;
	} else if (snap->nr_tables || snap->state == COW_SNAP_MERGING) {
		DMERR("message delete: snapshot %u is %s", id,
		      snap->nr_tables ? "in use: remove its device first" :
		      "being merged");
		r = -EBUSY;
	} else {
		r = cow_super_drop_record(store, snap);
		if (!r) {
			cow_tracker_drop(snap);
			snap_unlink(snap);
			/* From here on waiting writers rely on the room. */
			cow_store_reclaim(store);
		}
	}
	cow_admin_leave(store->origin, noio);
	mutex_unlock(&cow_registry_mutex);
	return r;
}

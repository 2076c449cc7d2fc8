// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the list of a store's snapshots
 *
 * In memory alone: the records on disk are in disk/records.c. The list is ordered by
 * epoch, with snapshots that have none yet at its end; an xarray finds a snapshot by
 * its id.
 */
#include <linux/list_sort.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "origin/origin.h"
#include "origin/registry.h"
#include "store/snapshots.h"
#include "store/store.h"
#include "store/track.h"

/* Snapshots come under one of these, and go under both. */
static void assert_life_held(const struct cow_store *store)
{
	lockdep_assert(lockdep_is_held(&cow_registry_mutex) ||
		       lockdep_is_held(&store->origin->admin_lock));
}

struct cow_snap *cow_snap_find(struct cow_store *store, unsigned int id)
{
	assert_life_held(store);
	return xa_load(&store->ids, id);
}

struct cow_snap *cow_snap_add(struct cow_store *store, unsigned int id,
			      enum cow_snap_state state)
{
	struct cow_snap *snap = kzalloc(sizeof(*snap), GFP_KERNEL);

	assert_life_held(store);
	if (!snap)
		return NULL;
	snap->store = store;
	snap->id = id;
	snap->state = state;
	if (xa_insert(&store->ids, id, snap, GFP_KERNEL)) {
		kfree(snap);
		return NULL;
	}
	spin_lock(&store->origin->state_lock);
	list_add_tail(&snap->node, &store->snaps);
	store->nr_snaps++;
	spin_unlock(&store->origin->state_lock);
	return snap;
}

void cow_snaps_free(struct cow_store *store)
{
	struct cow_snap *snap, *next;

	list_for_each_entry_safe(snap, next, &store->snaps, node) {
		list_del(&snap->node);
		cow_tracker_free(snap->tracker);
		kfree(snap);
	}
}

static int snap_by_epoch(void *priv, const struct list_head *a, const struct list_head *b)
{
	return list_entry(a, struct cow_snap, node)->epoch >
	       list_entry(b, struct cow_snap, node)->epoch;
}

void cow_store_sort_snaps(struct cow_store *store)
{
	list_sort(NULL, &store->snaps, snap_by_epoch);
}

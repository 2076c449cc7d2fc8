// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the origins and stores in use, found by their devices
 *
 * The list holds one origin for each device that a table names as one; each origin
 * lists its stores. cow_registry_mutex guards these lists and all references on
 * origins, stores and snapshots.
 */
#include <linux/module.h>

#include "origin/origin.h"
#include "origin/registry.h"
#include "store/store.h"

/* The list of origins, and references on origins, stores and snapshots. */
DEFINE_MUTEX(cow_registry_mutex);
static LIST_HEAD(origins);

void cow_registry_add(struct cow_origin *o)
{
	lockdep_assert_held(&cow_registry_mutex);
	list_add_tail(&o->node, &origins);
}

void cow_registry_del(struct cow_origin *o)
{
	lockdep_assert_held(&cow_registry_mutex);
	list_del(&o->node);
}

struct cow_origin *cow_origin_find(struct block_device *bdev)
{
	struct cow_origin *o;

	lockdep_assert_held(&cow_registry_mutex);
	list_for_each_entry(o, &origins, node)
		if (o->bdev->bd_dev == bdev->bd_dev)
			return o;
	return NULL;
}

struct cow_store *cow_store_find(struct block_device *bdev)
{
	struct cow_store *store;
	struct cow_origin *o;

	lockdep_assert_held(&cow_registry_mutex);
	list_for_each_entry(o, &origins, node)
		list_for_each_entry(store, &o->all_stores, all_node)
			if (store->bdev->bd_dev == bdev->bd_dev)
				return store;
	return NULL;
}

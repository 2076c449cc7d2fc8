// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the message that lists stores and snapshots
 *
 * Status lines are about devices. Most snapshots have none, and a store never has one, so
 * a program asks the origin.
 */
#include <linux/device-mapper.h>

#include "dm-cowsnap.h"
#include "origin/origin.h"
#include "origin/registry.h"
#include "store/snapshots.h"
#include "store/store.h"
#include "target/list.h"
#include "target/options.h"
#include "target/status.h"

static const char * const state_words[] = {
	[COW_SNAP_LOADED] = "loaded",
	[COW_SNAP_LIVE] = "live",
	[COW_SNAP_MERGING] = "merging",
	[COW_SNAP_MERGED] = "merged",
	[COW_SNAP_TRACKER] = "tracker",
	[COW_SNAP_OVERFLOWED] = "overflowed",
	[COW_SNAP_DROPPED] = "dropped",
	[COW_SNAP_INVALID] = "invalid",
};

static void emit_snap(const struct cow_snap *snap, char *result, unsigned int maxlen,
		      unsigned int *size)
{
	unsigned int sz = *size;

	DMEMIT("snapshot %u %s epoch %u sectors %llu time %llu tables %u\n", snap->id,
	       state_words[snap->state], snap->epoch, (u64)snap->nr_sectors, snap->time,
	       snap->nr_tables);
	*size = sz;
}

static void emit_store(struct cow_store *store, char *result, unsigned int maxlen,
		       unsigned int *size)
{
	dev_t dev = store->bdev->bd_dev;
	struct cow_snap *snap;
	unsigned int sz = *size;

	lockdep_assert_held(&store->origin->state_lock);
	DMEMIT("store %u:%u %c chunk %u ", MAJOR(dev), MINOR(dev), store->persistence,
	       store->chunk_sectors);
	cow_store_emit_room(store, result, maxlen, &sz);
	cow_emit_options(&store->options, result, maxlen, &sz);
	if (store->meta)
		DMEMIT(" sealed %u redirected %llu unsettled %llu",
		       store->seal_state == COWSNAP_SEAL_SEALED, READ_ONCE(store->redirected),
		       READ_ONCE(store->nr_current));
	DMEMIT("\n");
	/* What does not fit is not wanted: dm asks for a larger buffer. */
	list_for_each_entry(snap, &store->snaps, node) {
		emit_snap(snap, result, maxlen, &sz);
		if (sz >= maxlen)
			break;
	}
	*size = sz;
}

void cow_origin_list(struct cow_origin *o, char *result, unsigned int maxlen)
{
	struct cow_store *store;
	unsigned int sz = 0;

	result[0] = '\0';
	mutex_lock(&cow_registry_mutex);
	spin_lock(&o->state_lock);
	list_for_each_entry(store, &o->all_stores, all_node)
		emit_store(store, result, maxlen, &sz);
	spin_unlock(&o->state_lock);
	mutex_unlock(&cow_registry_mutex);
}

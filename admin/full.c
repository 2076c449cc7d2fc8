// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: a full store drops its oldest snapshot, or gives up waiting for room
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap.h"
#include "admin/full.h"
#include "disk/super.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "store/epochs.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/store.h"

/* The oldest live snapshot that is the only one to keep some chunk; else the oldest. */
static struct cow_snap *pick_victim(struct cow_store *store, const struct cow_live *live,
				    const u64 *owned)
{
	struct cow_snap *snap, *victim = NULL;
	u32 i = 0;

	/* Both lists are in order of epochs. */
	spin_lock(&store->origin->state_lock);
	list_for_each_entry(snap, &store->snaps, node) {
		if (snap->state != COW_SNAP_LIVE)
			continue;
		victim = victim ?: snap;
		while (i < live->nr && live->epoch[i] < snap->epoch)
			i++;
		if (i < live->nr && live->epoch[i] == snap->epoch && owned[i]) {
			victim = snap;
			break;
		}
	}
	spin_unlock(&store->origin->state_lock);
	return victim;
}

static struct cow_snap *find_victim(struct cow_store *store)
{
	struct cow_live *live = cow_store_kept_epochs(store);
	struct cow_snap *victim = NULL;
	u64 *owned, chunk = 0;

	owned = live ? kvcalloc(live->nr + 1, sizeof(*owned), GFP_KERNEL) : NULL;
	/* The last snapshot is not dropped: the store overflows. */
	if (!owned || live->nr < 2)
		goto free;
	do {
		chunk = cow_map_owned(&store->map, live, chunk, owned);
		cond_resched();
	} while (chunk);
	victim = pick_victim(store, live, owned);
free:
	kvfree(owned);
	kvfree(live);
	return victim;
}

static bool drop_one(struct cow_store *store)
{
	struct cow_snap *victim = find_victim(store);
	struct cow_change change;
	struct cow_live *live;

	if (!victim)
		return false;
	DMWARN("store %pg is full: snapshot %u of %pg is dropped to make room",
	       store->bdev, victim->id, store->origin->bdev);
	cow_change_begin(&change, store, victim);
	change.state = COW_SNAP_DROPPED;
	if (cow_change_end(&change))
		return false;
	/* Its own writes have to complete before their places are given to others. */
	if (cow_origin_drain(store->origin, COW_DRAIN_JIFFIES))
		return false;
	live = cow_store_alloc_live(store);
	cow_store_take_live(store, live);
	cow_origin_thaw(store->origin);
	queue_work(store->origin->wq, &store->event_work);
	cow_store_reclaim(store);
	return true;
}

void cow_store_full_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       full_work);
	/* Writers wait for this, and memory may wait for them. */
	unsigned int noio = memalloc_noio_save();
	struct cow_origin *o = store->origin;
	bool drop, done = false;

	mutex_lock(&o->admin_lock);
	spin_lock(&o->state_lock);
	drop = store->blocked == COW_STORE_FULL && !cow_store_reclaim_is_due(store) &&
	       store->options.on_full == COWSNAP_FULL_DROP_OLDEST;
	spin_unlock(&o->state_lock);
	if (drop)
		done = drop_one(store);
	mutex_unlock(&o->admin_lock);

	spin_lock(&o->state_lock);
	if (!done)
		cow_store_overflow(store, drop ? "the store is full" :
				   "the store stayed full for too long");
	spin_unlock(&o->state_lock);
	memalloc_noio_restore(noio);
}

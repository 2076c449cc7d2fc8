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

/* -ENOSPC: there is none. The last snapshot is not dropped: the store overflows. */
static int find_victim(struct cow_store *store, struct cow_snap **victim)
{
	struct cow_live *live = cow_store_kept_epochs(store);
	u64 *owned, chunk = 0;

	owned = live ? kvcalloc(live->nr + 1, sizeof(*owned), GFP_KERNEL) : NULL;
	*victim = NULL;
	if (owned && live->nr >= 2) {
		do {
			chunk = cow_map_owned(&store->map, live, chunk, owned);
			cond_resched();
		} while (chunk);
		*victim = pick_victim(store, live, owned);
	}
	kvfree(owned);
	kvfree(live);
	if (!owned)
		return -ENOMEM;
	return *victim ? 0 : -ENOSPC;
}

static int drop_one(struct cow_store *store)
{
	struct cow_change change;
	struct cow_snap *victim;
	int r;

	r = find_victim(store, &victim);
	if (r)
		return r;
	DMWARN("store %pg is full: snapshot %u of %pg is dropped to make room",
	       store->bdev, victim->id, store->origin->bdev);
	cow_change_begin(&change, store, victim);
	change.state = COW_SNAP_DROPPED;
	r = cow_change_end(&change);
	if (r)
		return r;
	/* Its own writes have to complete before their places are given to others. */
	store->own_to_end = true;
	cow_store_renew_live(store);
	queue_work(store->origin->wq, &store->event_work);
	cow_store_reclaim(store);
	return 0;
}

void cow_store_full_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       full_work);
	/* Writers wait for this, and memory may wait for them. */
	unsigned int noio = memalloc_noio_save();
	struct cow_origin *o = store->origin;
	bool drop;
	int r = -ENOSPC;

	mutex_lock(&o->admin_lock);
	spin_lock(&o->state_lock);
	drop = store->blocked == COW_STORE_FULL && !cow_store_reclaim_is_due(store) &&
	       store->options.on_full == COWSNAP_FULL_DROP_OLDEST;
	spin_unlock(&o->state_lock);
	if (drop)
		r = drop_one(store);
	cow_admin_unlock(o);

	spin_lock(&o->state_lock);
	if (r == -ENOMEM && !store->closing)
		queue_delayed_work(o->room_wq, &store->full_work, HZ);
	else if (r)
		cow_store_overflow(store, drop ? "the store is full" :
				   "the store stayed full for too long");
	spin_unlock(&o->state_lock);
	memalloc_noio_restore(noio);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the live epochs of a store
 *
 * Each snapshot has an epoch. store->live lists those that live, ascending; writers
 * read it under RCU and ask the map whether all of them are served. It is replaced
 * whole.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "origin/origin.h"
#include "origin/registry.h"
#include "store/epochs.h"
#include "store/known.h"
#include "store/snapshots.h"
#include "store/store.h"

struct cow_live *cow_store_alloc_live(struct cow_store *store)
{
	unsigned int nr = READ_ONCE(store->nr_snaps) + 1;
	struct cow_live *live = kvzalloc(struct_size(live, epoch, nr), GFP_KERNEL);

	lockdep_assert(lockdep_is_held(&store->origin->admin_lock) ||
		       lockdep_is_held(&cow_registry_mutex));
	if (live)
		live->nr = nr;
	return live;
}

/*
 * Fill @live with the epochs of all live snapshots, ascending; if @kept, also with that of
 * the snapshot being merged: its versions are needed, new copies for it are not. Returns how
 * many, or -1 if @live is too small.
 */
static int live_fill(struct cow_store *store, struct cow_live *live, bool kept)
{
	unsigned int nr = 0, room = live ? live->nr : 0;
	struct cow_snap *snap;

	lockdep_assert_held(&store->origin->state_lock);
	list_for_each_entry(snap, &store->snaps, node) {
		if (snap->state != COW_SNAP_LIVE && !(kept && snap->state == COW_SNAP_MERGING))
			continue;
		if (nr == room)
			return -1;
		live->epoch[nr++] = snap->epoch;
	}
	if (live)
		live->nr = nr;
	return nr;
}

/*
 * Swap @live in; it is freed if no snapshot lives. If @live is NULL (no memory), the epoch of
 * a snapshot that is gone is still served, until the last snapshot is gone. That costs
 * copies, which are never read.
 */
void __cow_store_take_live(struct cow_store *store, struct cow_live *live)
{
	struct cow_live *old;
	int nr = live_fill(store, live, false);

	if (nr <= 0) {
		/* Large ones may not be freed under a spinlock. */
		if (live)
			kvfree_rcu(live, rcu);
		live = NULL;
	}
	if (nr < 0)
		return;
	old = rcu_replace_pointer(store->live, live,
				  lockdep_is_held(&store->origin->state_lock));
	if (live && (!old || live->epoch[live->nr - 1] > old->epoch[old->nr - 1]))
		cow_known_forget(&store->known);
	if (old)
		kvfree_rcu(old, rcu);
}

struct cow_live *cow_store_kept_epochs(struct cow_store *store)
{
	struct cow_live *live = cow_store_alloc_live(store);

	if (live) {
		spin_lock(&store->origin->state_lock);
		live_fill(store, live, true);
		spin_unlock(&store->origin->state_lock);
	}
	return live;
}

void cow_store_take_live(struct cow_store *store, struct cow_live *live)
{
	spin_lock(&store->origin->state_lock);
	__cow_store_take_live(store, live);
	spin_unlock(&store->origin->state_lock);
}

int cow_store_renew_live(struct cow_store *store)
{
	struct cow_live *live = cow_store_alloc_live(store);

	cow_store_take_live(store, live);
	return live ? 0 : -ENOMEM;
}

bool cow_store_has_readers(const struct cow_store *store)
{
	return rcu_access_pointer(store->live) || READ_ONCE(store->merging);
}

bool cow_store_newer_ones_live(struct cow_store *store, u32 epoch)
{
	const struct cow_live *live;
	bool newer;

	rcu_read_lock();
	live = rcu_dereference(store->live);
	newer = live && live->epoch[live->nr - 1] > epoch;
	rcu_read_unlock();
	return newer;
}

/* Does @epoch see this version, too? */
static bool epoch_sees(struct cow_store *store, const struct cow_extent *ext, u32 epoch)
{
	struct cow_extent other;

	cow_map_lookup(&store->map, ext->chunk, 1, epoch, &other);
	return other.kind == ext->kind && other.epoch == ext->epoch;
}

u64 cow_store_sole_owner(struct cow_store *store, const struct cow_extent *ext, u32 epoch)
{
	const struct cow_snap *merging = store->merging;
	const struct cow_live *live;

	live = rcu_dereference_protected(store->live,
					 lockdep_is_held(&store->origin->state_lock));
	if (merging && merging->epoch != epoch && epoch_sees(store, ext, merging->epoch))
		return 0;
	return cow_map_sole(&store->map, live, ext, epoch);
}

bool cow_store_trusts(const struct cow_store *store, const struct cow_snap *snap,
		      const struct cow_extent *ext)
{
	u32 damaged = cow_store_damage(store);

	if (!damaged || snap->epoch > damaged || cow_kind_is_private(ext->kind))
		return true;
	/*
	 * Versions between the snapshot's epoch and a later one may be missing, and so may its
	 * own version in front of a copied one.
	 */
	return ext->kind != COW_HOME && ext->epoch == snap->epoch &&
	       READ_ONCE(snap->mark) == COW_MARK_NONE;
}

u32 cow_store_copy_epoch(const struct cow_store *store, const struct cow_live *live)
{
	u32 epoch = live->epoch[live->nr - 1], damaged = cow_store_damage(store);

	lockdep_assert(rcu_read_lock_held() || lockdep_is_held(&store->origin->state_lock));
	return max(epoch, damaged ? damaged + 1 : 0);
}

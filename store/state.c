// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the states of a store and of its snapshots
 *
 *   LOADED --resume--> LIVE ----full----> OVERFLOWED
 *                       | |----error----> INVALID
 *                       | '----room needed (on_full drop_oldest)--> DROPPED
 *                       |--cowsnap-merge--> MERGING --> MERGED
 *                       '--track--> TRACKER --error--> INVALID
 *
 * Promises kept here:
 *  I1  the half about failing: __cow_store_invalidate() has the mark written while writes
 *      that need a copy wait (COW_STORE_FAILING); cow_store_let_go() takes the epochs out
 *      of store->live before these writes decide again.
 *  I7  an exception that cannot be remembered ends its snapshots; it is not forgotten.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "origin/origin.h"
#include "store/snapshots.h"
#include "store/state.h"
#include "store/store.h"

void cow_snap_set_state(struct cow_snap *snap, enum cow_snap_state state)
{
	lockdep_assert_held(&snap->store->origin->state_lock);
	WRITE_ONCE(snap->state, state);
}

void cow_store_set_blocked(struct cow_store *store, enum cow_store_blocked blocked)
{
	lockdep_assert_held(&store->origin->state_lock);
	WRITE_ONCE(store->blocked, blocked);
}

void cow_store_unblock(struct cow_store *store)
{
	struct cow_origin *o = store->origin;

	lockdep_assert_held(&o->state_lock);
	cow_store_set_blocked(store, COW_STORE_OPEN);
	WRITE_ONCE(store->extend_waited, false);
	list_splice_tail_init(&store->waiting, &o->deferred);
	mod_delayed_work(o->wq, &o->decide_work, 0);
}

void cow_store_let_go(struct cow_store *store, enum cow_snap_state state)
{
	struct cow_live *old;
	struct cow_snap *snap;

	lockdep_assert_held(&store->origin->state_lock);
	/* First the state: reads that writes no longer wait for have to see it. */
	list_for_each_entry(snap, &store->snaps, node)
		if (snap->state == COW_SNAP_LIVE)
			cow_snap_set_state(snap, state);
	old = rcu_replace_pointer(store->live, NULL,
				  lockdep_is_held(&store->origin->state_lock));
	if (old)
		kvfree_rcu(old, rcu);
	cow_store_unblock(store);
	queue_work(store->origin->wq, &store->event_work);
}

void __cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			    const char *why)
{
	lockdep_assert_held(&store->origin->state_lock);
	if (store->blocked == COW_STORE_FAILING || !rcu_access_pointer(store->live))
		return;
	DMERR_LIMIT("store %pg: its snapshots of %pg are invalid: %s", store->bdev,
		    store->origin->bdev, why);
	if (!store->meta) {
		cow_store_let_go(store, state);
		return;
	}
	store->fail_state = state;
	cow_store_set_blocked(store, COW_STORE_FAILING);
	queue_work(store->origin->wq, &store->fail_work);
}

void cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			  const char *why)
{
	spin_lock(&store->origin->state_lock);
	__cow_store_invalidate(store, state, why);
	spin_unlock(&store->origin->state_lock);
}

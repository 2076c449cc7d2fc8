// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: room that deleted snapshots left is given back
 *
 * Only reclaim gives back the places of versions. Each deletion asks for a run
 * (cow_store_reclaim()). A place may still be used by a snapshot's own writes: writes
 * in place hold the gate, which drop_one() shuts; private pendings are waited for
 * here.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "admin/reclaim.h"
#include "copy/undo.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "store/epochs.h"
#include "store/room.h"
#include "store/space.h"
#include "store/state.h"
#include "store/store.h"

static void give_back(void *context, const struct cow_extent *ext)
{
	struct cow_store *store = context;

	if (!cow_has_place(ext))
		return;
	spin_lock(&store->origin->state_lock);
	cow_space_free(&store->space, ext->place, ext->nr);
	store->freed_chunks += ext->nr;
	spin_unlock(&store->origin->state_lock);
}

/*
 * This run deals with all requests so far. Later ones need another run, since this one may
 * have passed their chunks already.
 */
static u64 reclaim_begin(struct cow_store *store)
{
	u64 run;

	spin_lock(&store->origin->state_lock);
	run = store->reclaims_wanted;
	spin_unlock(&store->origin->state_lock);
	return run;
}

/* If no run is to come, waiting bios decide again: there is room, or on_full is next. */
static void reclaim_ended(struct cow_store *store, u64 run)
{
	struct cow_origin *o = store->origin;

	spin_lock(&o->state_lock);
	store->reclaims_done = run;
	cow_store_watch_low_water(store);
	if (store->blocked == COW_STORE_FULL && !cow_store_reclaim_is_due(store))
		cow_store_unblock(store);
	spin_unlock(&o->state_lock);
}

static bool own_have_ended(struct cow_store *store, unsigned int turn)
{
	bool ended;

	spin_lock(&store->origin->state_lock);
	ended = !store->nr_own[turn];
	spin_unlock(&store->origin->state_lock);
	return ended;
}

/*
 * Wait for the private pendings that exist now. Those of deleted snapshots are among them,
 * since a pending is only made for a snapshot that can be used. The versions that they use (a
 * copied one that they read or take over, a private one whose place they keep) may be given
 * back once they are over. New ones are counted in the other turn, so the wait ends.
 */
static void reclaim_await_own(struct cow_store *store)
{
	unsigned int turn;

	spin_lock(&store->origin->state_lock);
	turn = store->own_turn;
	store->own_turn = !turn;
	spin_unlock(&store->origin->state_lock);
	wait_event(store->idle, own_have_ended(store, turn));
}

/*
 * An invalid snapshot's write in place may still be in flight to a chunk that is about to be
 * given back. Creating a snapshot shuts the gate, which ends it, before the chunk is used again;
 * but beside a merge the merging snapshot's writes take chunks as well.
 */
static bool own_writes_have_ended(struct cow_store *store)
{
	lockdep_assert_held(&store->origin->admin_lock);
	if (!store->merging)
		return true;
	if (cow_origin_drain(store->origin, COW_DRAIN_JIFFIES))
		return false;
	cow_origin_thaw(store->origin);
	return true;
}

void cow_store_reclaim_work(struct work_struct *work)
{
	struct cow_store *store = container_of(work, struct cow_store, reclaim_work);
	unsigned int noio = memalloc_noio_save();
	u64 run = reclaim_begin(store);
	struct cow_live *live;
	u64 chunk = 0;
	u32 up_to = 0;

	cow_undo_flush(store);
	/*
	 * Snapshots may be deleted from here on. Then this pass frees too little, and the next
	 * one frees the rest.
	 */
	mutex_lock(&store->origin->admin_lock);
	live = cow_store_kept_epochs(store);
	if (live && own_writes_have_ended(store))
		up_to = store->epoch;
	mutex_unlock(&store->origin->admin_lock);
	reclaim_await_own(store);
	while (up_to) {
		chunk = cow_map_reclaim(&store->map, live, up_to, chunk, give_back, store);
		if (!chunk || READ_ONCE(store->closing))
			break;
		cond_resched();
	}
	kvfree(live);
	cow_undo_open(store);
	reclaim_ended(store, run);
	memalloc_noio_restore(noio);
}

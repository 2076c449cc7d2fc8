// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: room that deleted snapshots left is given back
 *
 * Only reclaim gives back the places of versions. Each deletion asks for a run
 * (cow_store_reclaim()). A place may still be used by a snapshot's own writes: writes
 * in place hold the gate, which is shut here; private pendings are waited for. Reads that found a
 * place before it was taken out of the map are waited for as well, before it is free. A run that
 * cannot free all of it now is made again later, and bios that need the room wait for it.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "dm-cowsnap-exception.h"
#include "admin/reclaim.h"
#include "copy/undo.h"
#include "disk/free.h"
#include "disk/super.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "store/epochs.h"
#include "store/readers.h"
#include "store/room.h"
#include "store/space.h"
#include "store/state.h"
#include "store/store.h"
#include "store/zones.h"

/* How many runs of places are gathered before reads are waited for; more if a chunk needs it. */
#define TAKEN_OUT_RUNS	1024U

/* A run shuts the gate for as long as hold_timeout says: it is open for a while in between. */
#define RETRY_JIFFIES	(20 * HZ)

/* What was taken out of the map: the reads that found it there may not have ended yet. */
struct taken_out {
	struct cow_places *runs;
	size_t nr;
	size_t max;
	u64 nr_current;			/* chunks that were CURRENT */
};

static int taken_out_init(struct taken_out *t, size_t max)
{
	t->nr = 0;
	t->nr_current = 0;
	t->max = max;
	t->runs = kvmalloc_array(max, sizeof(t->runs[0]), GFP_NOIO);
	return t->runs ? 0 : -ENOMEM;
}

static void take_out(void *context, const struct cow_extent *ext)
{
	struct taken_out *t = context;
	struct cow_places *last = t->nr ? &t->runs[t->nr - 1] : NULL;
	bool redirected = cow_kind_is_current(ext->kind);

	if (!cow_has_place(ext))
		return;
	if (redirected)
		t->nr_current += ext->nr;
	/* Commits stand still while the slots of one run are freed. */
	if (last && last->first + last->nr == ext->place && last->redirected == redirected &&
	    !(redirected && last->nr + ext->nr > COW_RUN_CHUNKS)) {
		last->nr += ext->nr;
		return;
	}
	t->runs[t->nr++] = (struct cow_places){
		.first = ext->place, .nr = ext->nr, .redirected = redirected,
	};
}

/* Those that were CURRENT first, each kind by place. */
static int compare_runs(const void *a, const void *b)
{
	const struct cow_places *x = a, *y = b;

	if (x->redirected != y->redirected)
		return x->redirected ? -1 : 1;
	return cow_places_compare(a, b);
}

/* Records of the log have them, until its zone is left. */
static void note_dead_in_zones(struct cow_store *store, const struct cow_places *runs, size_t nr)
{
	unsigned int i, zones = 0;

	lockdep_assert_held(&store->dead_lock);
	spin_lock(&store->origin->state_lock);
	while (nr--)
		zones |= cow_zones_have(store, runs[nr].first, runs[nr].nr);
	for (i = 0; i < COWSNAP_ZONES; i++)
		store->zone[i].has_dead |= zones & BIT(i);
	spin_unlock(&store->origin->state_lock);
}

/*
 * A dead CURRENT version leaves the disk before its place is given to others: it would count again
 * when the later one, because of which it is dead, is brought home.
 */
static void free_dead_current(struct cow_store *store, struct taken_out *t)
{
	size_t nr = 0;

	/* One that is only read does not bring anything home. */
	if (!t->nr_current || !store->writable)
		return;
	sort(t->runs, t->nr, sizeof(t->runs[0]), compare_runs, NULL);
	while (nr < t->nr && t->runs[nr].redirected)
		nr++;
	cow_slots_free_dead(store, t->runs, nr);
	note_dead_in_zones(store, t->runs, nr);
}

static void give_back(struct cow_store *store, struct taken_out *t)
{
	size_t i;

	free_dead_current(store, t);
	cow_readers_await(store);
	for (i = 0; i < t->nr; i++) {
		spin_lock(&store->origin->state_lock);
		cow_space_free(&store->space, t->runs[i].first, t->runs[i].nr);
		store->freed_chunks += t->runs[i].nr;
		spin_unlock(&store->origin->state_lock);
	}
	t->nr = 0;
	spin_lock(&store->origin->state_lock);
	cow_store_current_gone(store, t->nr_current);
	spin_unlock(&store->origin->state_lock);
	t->nr_current = 0;
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
	cow_store_has_room_again(store);
	/* Without the epochs that are gone less may be in the way. */
	cow_store_settle(store);
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

/* Not all was freed (@r says why): what waits for the room goes on waiting. */
static void reclaim_later(struct cow_store *store, int r)
{
	struct cow_origin *o = store->origin;

	spin_lock(&o->state_lock);
	/* Does nothing if a request came meanwhile: that is carried out at once. */
	if (!store->closing)
		queue_delayed_work(o->room_wq, &store->reclaim_work,
				   r == -ENOMEM ? HZ : RETRY_JIFFIES);
	spin_unlock(&o->state_lock);
}

/*
 * A dropped snapshot's write in place may still be in flight to a chunk that is about to be
 * given back. So may an invalid one's: creating a snapshot shuts the gate, which ends it, before
 * the chunk is used again; but beside a merge the merging snapshot's writes take chunks as well.
 */
static int end_own_writes(struct cow_store *store)
{
	int r;

	lockdep_assert_held(&store->origin->admin_lock);
	if (!store->merging && !store->own_to_end)
		return 0;
	r = cow_origin_drain(store->origin, cow_hold_timeout());
	if (r)
		return r;
	store->own_to_end = false;
	cow_origin_thaw(store->origin);
	return 0;
}

/*
 * The epochs whose versions are kept, up to now. Snapshots may be deleted from here on. Then
 * this run frees too little, and the next one frees the rest.
 */
static int reclaim_prepare(struct cow_store *store, struct cow_live **live, u32 *up_to)
{
	int r;

	mutex_lock(&store->origin->admin_lock);
	*live = cow_store_kept_epochs(store);
	*up_to = store->epoch;
	r = *live ? end_own_writes(store) : -ENOMEM;
	cow_admin_unlock(store->origin);
	return r;
}

/* The next leaf has more dead versions than @t has room for. */
static int make_room(struct cow_store *store, struct taken_out *t)
{
	struct taken_out larger;
	int r;

	if (t->nr) {
		give_back(store, t);
		return 0;
	}
	r = taken_out_init(&larger, 2 * t->max);
	if (r)
		return r;
	kvfree(t->runs);
	*t = larger;
	return 0;
}

/* The dead versions of the leaf at *@chunk. Without room for them the run ends: *@chunk is 0. */
static int take_leaf_out(struct cow_store *store, const struct cow_live *live, u32 up_to,
			 u64 *chunk, struct taken_out *t)
{
	int r;

	while ((r = cow_map_reclaim(&store->map, live, up_to, t->max - t->nr, chunk, take_out,
				    t)) == -ENOBUFS) {
		r = make_room(store, t);
		if (r) {
			*chunk = 0;
			break;
		}
	}
	return r;
}

/* What there is no memory for now does not keep the rest from being freed. */
static int reclaim(struct cow_store *store, const struct cow_live *live, u32 up_to)
{
	struct taken_out t;
	u64 chunk = 0;
	int r = taken_out_init(&t, TAKEN_OUT_RUNS);

	if (r)
		return r;
	mutex_lock(&store->dead_lock);
	do {
		r = take_leaf_out(store, live, up_to, &chunk, &t) ?: r;
		cond_resched();
	} while (chunk && !READ_ONCE(store->closing));
	give_back(store, &t);
	mutex_unlock(&store->dead_lock);
	kvfree(t.runs);
	return r;
}

/*
 * What is in doubt since the store was read is settled when it comes into force, and the dead are
 * dropped by that: from the snapshots that there are by then.
 */
static bool is_in_doubt(struct cow_store *store)
{
	bool is;

	mutex_lock(&store->origin->admin_lock);
	is = store->loader;
	cow_admin_unlock(store->origin);
	return is;
}

static int reclaim_all(struct cow_store *store)
{
	struct cow_live *live;
	u32 up_to;
	int r;

	cow_undo_flush(store);
	r = reclaim_prepare(store, &live, &up_to);
	reclaim_await_own(store);
	if (!r)
		r = reclaim(store, live, up_to);
	kvfree(live);
	cow_undo_open(store);
	return r;
}

void cow_store_reclaim_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       reclaim_work);
	unsigned int noio = memalloc_noio_save();
	u64 run = reclaim_begin(store);
	int r = is_in_doubt(store) ? 0 : reclaim_all(store);

	if (r)
		reclaim_later(store, r);
	else
		reclaim_ended(store, run);
	memalloc_noio_restore(noio);
}

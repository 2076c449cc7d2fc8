// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the life of snapshots, and what a store does when it is full
 *
 *   LOADED --resume--> LIVE ----full----> OVERFLOWED
 *                       | |----error----> INVALID
 *                       | '----room needed (on_full drop_oldest)--> DROPPED
 *                       '--cowsnap-merge--> MERGING --> MERGED
 *
 * Creating: the origin's gate is shut and its writes are flushed, the record is written,
 * the epoch becomes live, the gate opens. Deleting: the record is freed, the epoch is no
 * longer live, and what no other falls on is given back in the background. Each of
 * them is one durable write of one block; a crash leaves it done or not done.
 *
 * Only reclaim gives back places of versions. A place may still be in use by what a
 * snapshot writes itself: by writes in place, which hold the gate (drop_one() shuts it; of a
 * snapshot that is deleted no device is left), and by private pendings, which reclaim waits
 * for (reclaim_await_own()).
 *
 * Promises kept here:
 *  I1  the half about failing: __cow_store_invalidate() has the mark written while
 *      writes that need a copy wait (COW_STORE_FAILING), and takes the epochs
 *      out of store->live before they are let go.
 *  I7  an exception that cannot be remembered ends its snapshots; it is not forgotten.
 */
#include <linux/ktime.h>
#include <linux/list_sort.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"

/* --------------------------------------------------------------- live epochs */

static struct cow_live *live_alloc(struct cow_store *store)
{
	unsigned int nr = READ_ONCE(store->nr_snaps) + 1;
	struct cow_live *live = kvzalloc(struct_size(live, epoch, nr), GFP_KERNEL);

	if (live)
		live->nr = nr;
	return live;
}

/*
 * The epochs of all that live, ascending; for what has to be @kept also of the one that
 * is being merged, for which no new copies are made. How many; -1: no room for them.
 */
static int live_fill(struct cow_store *store, struct cow_live *live, bool kept)
{
	unsigned int nr = 0, room = live ? live->nr : 0;
	struct cow_snap *snap;

	lockdep_assert_held(&store->origin->lock);
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
 * Swap @live in; frees it if no snapshot lives. Without one (no memory) an epoch
 * that is gone goes on being served, which costs copies that nobody reads, until the
 * last has gone.
 */
static void live_replace(struct cow_store *store, struct cow_live *live)
{
	struct cow_live *old;
	int nr = live_fill(store, live, false);

	if (nr <= 0) {
		kvfree(live);
		live = NULL;
	}
	if (nr < 0)
		return;
	old = rcu_replace_pointer(store->live, live,
				  lockdep_is_held(&store->origin->lock));
	if (live && (!old || live->epoch[live->nr - 1] > old->epoch[old->nr - 1]))
		cow_known_forget(&store->known);
	if (old)
		kvfree_rcu(old, rcu);
}

struct cow_live *cow_store_kept_epochs(struct cow_store *store)
{
	struct cow_live *live = live_alloc(store);

	if (live) {
		spin_lock(&store->origin->lock);
		live_fill(store, live, true);
		spin_unlock(&store->origin->lock);
	}
	return live;
}

struct cow_live *cow_store_alloc_live(struct cow_store *store)
{
	return live_alloc(store);
}

void cow_store_take_live(struct cow_store *store, struct cow_live *live)
{
	spin_lock(&store->origin->lock);
	live_replace(store, live);
	spin_unlock(&store->origin->lock);
}

int cow_store_renew_live(struct cow_store *store)
{
	struct cow_live *live = live_alloc(store);

	cow_store_take_live(store, live);
	return live ? 0 : -ENOMEM;
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

bool cow_store_has_readers(const struct cow_store *store)
{
	return rcu_access_pointer(store->live) || READ_ONCE(store->merging);
}

/* Does @epoch fall on this version, too? */
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
					 lockdep_is_held(&store->origin->lock));
	if (merging && merging->epoch != epoch && epoch_sees(store, ext, merging->epoch))
		return 0;
	return cow_map_sole(&store->map, live, ext, epoch);
}

bool cow_store_trusts(const struct cow_store *store, const struct cow_snap *snap,
		      const struct cow_extent *ext)
{
	u32 damaged = READ_ONCE(store->damage_epoch);

	if (!damaged || snap->epoch > damaged || cow_kind_is_private(ext->kind))
		return true;
	/*
	 * Between the snapshot's epoch and that of a later one some may be missing, and
	 * in front of a copied one its own.
	 */
	return ext->kind != COW_HOME && ext->epoch == snap->epoch &&
	       READ_ONCE(snap->mark) == COW_MARK_NONE;
}

u32 cow_store_copy_epoch(const struct cow_store *store, const struct cow_live *live)
{
	u32 epoch = live->epoch[live->nr - 1];

	return store->damage_epoch ? max(epoch, store->damage_epoch + 1) : epoch;
}

/* --------------------------------------------------- waiting for the whole store */

void cow_store_unblock(struct cow_store *store)
{
	struct cow_origin *o = store->origin;

	lockdep_assert_held(&o->lock);
	store->blocked = COW_STORE_OPEN;
	list_splice_tail_init(&store->waiting, &o->deferred);
	mod_delayed_work(o->wq, &o->decide_work, 0);
}

/* ------------------------------------------------------------ the one funnel */

void cow_snap_set_state(struct cow_snap *snap, enum cow_snap_state state)
{
	lockdep_assert_held(&snap->store->origin->lock);
	WRITE_ONCE(snap->state, state);
}

/*
 * The snapshots are gone, on disk too if it could be told. One that is being merged
 * is not: it needs no more copies, and the origin needs it.
 */
static void store_let_go(struct cow_store *store, enum cow_snap_state state)
{
	struct cow_live *old;
	struct cow_snap *snap;

	lockdep_assert_held(&store->origin->lock);
	/* First the state, so that reads that writes no longer wait for see it. */
	list_for_each_entry(snap, &store->snaps, node)
		if (snap->state == COW_SNAP_LIVE)
			cow_snap_set_state(snap, state);
	old = rcu_replace_pointer(store->live, NULL,
				  lockdep_is_held(&store->origin->lock));
	if (old)
		kvfree_rcu(old, rcu);
	cow_store_unblock(store);
	queue_work(store->origin->wq, &store->event_work);
}

void __cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			    const char *why)
{
	lockdep_assert_held(&store->origin->lock);
	if (store->blocked == COW_STORE_FAILING || !rcu_access_pointer(store->live))
		return;
	DMERR_LIMIT("store %pg: its snapshots of %pg are invalid: %s", store->bdev,
		    store->origin->bdev, why);
	if (!store->meta) {
		store_let_go(store, state);
		return;
	}
	store->fail_state = state;
	WRITE_ONCE(store->blocked, COW_STORE_FAILING);
	queue_work(store->origin->wq, &store->fail_work);
}

void cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			  const char *why)
{
	spin_lock(&store->origin->lock);
	__cow_store_invalidate(store, state, why);
	spin_unlock(&store->origin->lock);
}

/* Tell the disk, let go what waits, and only then go through the records. */
static void store_fail_work(struct work_struct *work)
{
	struct cow_store *store = container_of(work, struct cow_store, fail_work);

	cow_super_invalidate(store, store->fail_state, store_let_go);
	if (cow_super_settle(store))
		DMWARN_LIMIT("store %pg: some records cannot be written: a superblock overrules",
			     store->bdev);
}

static void store_event_work(struct work_struct *work)
{
	cow_snap_event(container_of(work, struct cow_store, event_work));
}

/* ----------------------------------------------------------------------- room */

/* Make more table blocks ready well before the last one is needed. */
static bool ready_runs_out(const struct cow_store *store)
{
	const struct cow_space *space = &store->space;

	return space->geometry && space->blocks < space->max_blocks &&
	       cow_space_ready(space) - space->used <
	       (u64)COWSNAP_COMMIT_BLOCKS / 4 * space->geometry->block_slots;
}

static void watch_low_water(struct cow_store *store)
{
	const struct cow_space *space = &store->space;
	u64 used = space->used + space->table_chunks;

	if (!store->options.low_water)
		return;
	if (used * 100 < (u64)store->options.low_water * space->nr_chunks) {
		store->below_water = true;
	} else if (store->below_water) {
		store->below_water = false;
		queue_work(store->origin->wq, &store->event_work);
	}
}

u32 cow_store_room(struct cow_store *store, u32 nr, u64 *place)
{
	u32 got;

	lockdep_assert_held(&store->origin->lock);
	got = cow_space_alloc(&store->space, nr, place);
	if (ready_runs_out(store))
		queue_work(store->origin->wq, &store->extend_work);
	watch_low_water(store);
	return got;
}

/* Is what deleted snapshots left on its way? */
static bool reclaim_is_due(const struct cow_store *store)
{
	return store->reclaims_wanted != store->reclaims_done;
}

bool cow_store_makes_wait(const struct cow_store *store)
{
	lockdep_assert_held(&store->origin->lock);
	return store->blocked == COW_STORE_PREPARING || store->blocked == COW_STORE_FAILING ||
	       (store->blocked == COW_STORE_FULL && reclaim_is_due(store));
}

static void store_is_full(struct cow_store *store)
{
	unsigned int seconds = 0;

	/* Until reclaim_ended(). */
	if (reclaim_is_due(store)) {
		store->blocked = COW_STORE_FULL;
		return;
	}
	switch (store->options.on_full) {
	case COWSNAP_FULL_WAIT:
		seconds = store->options.wait_timeout;
		if (store->origin->suspending)
			break;
		fallthrough;
	case COWSNAP_FULL_DROP_OLDEST:
		store->blocked = COW_STORE_FULL;
		mod_delayed_work(store->origin->wq, &store->full_work, seconds * HZ);
		queue_work(store->origin->wq, &store->event_work);
		return;
	}
	__cow_store_invalidate(store, COW_SNAP_OVERFLOWED, "the store is full");
}

int cow_store_no_room(struct cow_store *store, bool must)
{
	const struct cow_space *space = &store->space;

	lockdep_assert_held(&store->origin->lock);
	if (store->blocked)
		return -EBUSY;
	if (space->used < cow_space_ready(space))
		return -ENOMEM;
	/* What failed is tried again in the background: here nobody waits for it twice. */
	if (space->geometry && space->blocks < space->max_blocks && !store->extend_failed) {
		store->blocked = COW_STORE_PREPARING;
		queue_work(store->origin->wq, &store->extend_work);
		return -EBUSY;
	}
	if (!must && !reclaim_is_due(store))
		return -ENOSPC;
	store_is_full(store);
	return store->blocked ? -EBUSY : -ENOSPC;
}

void cow_store_resize(struct cow_store *store)
{
	u64 nr_chunks = bdev_nr_sectors(store->bdev) >> store->chunk_shift;

	spin_lock(&store->origin->lock);
	if (store->space.nr_chunks < nr_chunks && nr_chunks < COW_CHUNKS_MAX) {
		cow_space_resize(&store->space, nr_chunks);
		if (store->blocked == COW_STORE_FULL)
			cow_store_unblock(store);
		watch_low_water(store);
	}
	spin_unlock(&store->origin->lock);
}

void cow_store_stop_waiting(struct cow_store *store)
{
	lockdep_assert_held(&store->origin->lock);
	if (store->blocked == COW_STORE_FULL && !reclaim_is_due(store) &&
	    store->options.on_full == COWSNAP_FULL_WAIT) {
		store->blocked = COW_STORE_OPEN;
		__cow_store_invalidate(store, COW_SNAP_OVERFLOWED,
				       "the store is full, and its origin was suspended");
		if (!store->blocked)
			cow_store_unblock(store);
	}
}

/* -------------------------------------------------------------------- reclaim */

static void give_back(void *context, const struct cow_extent *ext)
{
	struct cow_store *store = context;

	if (!cow_has_place(ext))
		return;
	spin_lock(&store->origin->lock);
	cow_space_free(&store->space, ext->place, ext->nr);
	store->freed_chunks += ext->nr;
	spin_unlock(&store->origin->lock);
}

/*
 * Begin to deal with all that is asked for so far; what is asked for from now on takes
 * another run, since this one may not see it any more.
 */
static u64 reclaim_begin(struct cow_store *store)
{
	u64 run;

	spin_lock(&store->origin->lock);
	run = store->reclaims_wanted;
	spin_unlock(&store->origin->lock);
	return run;
}

/* With no run to come those who wait decide again: there is room, or on_full has its say. */
static void reclaim_ended(struct cow_store *store, u64 run)
{
	struct cow_origin *o = store->origin;

	spin_lock(&o->lock);
	store->reclaims_done = run;
	watch_low_water(store);
	if (store->blocked == COW_STORE_FULL && !reclaim_is_due(store))
		cow_store_unblock(store);
	spin_unlock(&o->lock);
}

static bool own_have_ended(struct cow_store *store, unsigned int turn)
{
	bool ended;

	spin_lock(&store->origin->lock);
	ended = !store->nr_own[turn];
	spin_unlock(&store->origin->lock);
	return ended;
}

/*
 * Wait for the private pendings of now: those of snapshots that are gone are among them,
 * since a pending begins only for one that can be used. What they use (a copied version
 * that they read or take over, a private one whose place they keep) may be given back when
 * they have ended, well or not. New ones count in the other turn, so the wait ends.
 */
static void reclaim_await_own(struct cow_store *store)
{
	unsigned int turn;

	spin_lock(&store->origin->lock);
	turn = store->own_turn;
	store->own_turn = !turn;
	spin_unlock(&store->origin->lock);
	wait_event(store->idle, own_have_ended(store, turn));
}

static void store_reclaim_work(struct work_struct *work)
{
	struct cow_store *store = container_of(work, struct cow_store, reclaim_work);
	unsigned int noio = memalloc_noio_save();
	u64 run = reclaim_begin(store);
	struct cow_live *live;
	u64 chunk = 0;
	u32 up_to = 0;

	cow_undo_flush(store);
	/* Of the epochs up to that some may go meanwhile: then too little is freed. */
	mutex_lock(&store->origin->admin);
	live = cow_store_kept_epochs(store);
	if (live)
		up_to = store->epoch;
	mutex_unlock(&store->origin->admin);
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

void cow_store_reclaim(struct cow_store *store)
{
	spin_lock(&store->origin->lock);
	if (!store->closing) {
		store->reclaims_wanted++;
		queue_work(store->origin->wq, &store->reclaim_work);
	}
	spin_unlock(&store->origin->lock);
}

/* ------------------------------------------------------------------ drop_oldest */

/* The oldest live snapshot that alone keeps anything; else the oldest. */
static struct cow_snap *pick_victim(struct cow_store *store, const struct cow_live *live,
				    const u64 *owned)
{
	struct cow_snap *snap, *victim = NULL;
	u32 i = 0;

	/* Both go by epoch. */
	spin_lock(&store->origin->lock);
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
	spin_unlock(&store->origin->lock);
	return victim;
}

static struct cow_snap *find_victim(struct cow_store *store)
{
	struct cow_live *live = cow_store_kept_epochs(store);
	struct cow_snap *victim = NULL;
	u64 *owned, chunk = 0;

	owned = live ? kvcalloc(live->nr + 1, sizeof(*owned), GFP_KERNEL) : NULL;
	/* The last one is not dropped: the store overflows. */
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
	/* Its own writes under way end before what they write to is given to others. */
	if (cow_origin_freeze(store->origin))
		return false;
	live = live_alloc(store);
	spin_lock(&store->origin->lock);
	live_replace(store, live);
	spin_unlock(&store->origin->lock);
	cow_origin_thaw(store->origin);
	queue_work(store->origin->wq, &store->event_work);
	cow_store_reclaim(store);
	return true;
}

/* Full: time is up, or the next oldest has to go. */
static void store_full_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       full_work);
	/* Writers wait for this, and memory may wait for them. */
	unsigned int noio = memalloc_noio_save();
	struct cow_origin *o = store->origin;
	bool drop, done = false;

	mutex_lock(&o->admin);
	spin_lock(&o->lock);
	drop = store->blocked == COW_STORE_FULL && !reclaim_is_due(store) &&
	       store->options.on_full == COWSNAP_FULL_DROP_OLDEST;
	spin_unlock(&o->lock);
	if (drop)
		done = drop_one(store);
	mutex_unlock(&o->admin);

	spin_lock(&o->lock);
	if (!done && store->blocked == COW_STORE_FULL && !reclaim_is_due(store)) {
		store->blocked = COW_STORE_OPEN;
		__cow_store_invalidate(store, COW_SNAP_OVERFLOWED,
				       drop ? "the store is full" :
				       "the store stayed full for too long");
		if (!store->blocked)
			cow_store_unblock(store);
	}
	spin_unlock(&o->lock);
	memalloc_noio_restore(noio);
}

/* --------------------------------------------------------------------- create */

/* As of now, with no write under way: the instant that the snapshot shows. */
static void snap_go_live(struct cow_snap *snap, sector_t nr_sectors,
			 struct cow_live *live)
{
	struct cow_store *store = snap->store;
	struct cow_origin *origin = store->origin;

	spin_lock(&origin->lock);
	/* A new one is the newest. */
	if (snap->epoch == store->epoch)
		list_move_tail(&snap->node, &store->snaps);
	if (store->protect_sectors < nr_sectors)
		WRITE_ONCE(store->protect_sectors, nr_sectors);
	live_replace(store, live);
	/* It may only have got longer. */
	cow_known_forget(&store->known);
	spin_unlock(&origin->lock);
}

/* No record may be longer than its origin: that is said first. */
static int origin_record(struct cow_store *store, sector_t nr_sectors)
{
	struct cow_change change;

	cow_change_begin(&change, store, NULL);
	change.origin_sectors = max(change.origin_sectors, nr_sectors);
	change.either = true;
	return cow_change_end(&change);
}

/* Frozen: give @snap an epoch and a record, or its new length. */
static int snap_record(struct cow_snap *snap, sector_t nr_sectors)
{
	struct cow_store *store = snap->store;
	struct cow_change change;
	int r = 0;

	if (store->meta && nr_sectors > store->origin_sectors)
		r = origin_record(store, nr_sectors);
	if (r)
		return r;
	cow_change_begin(&change, store, snap);
	if (change.state == COW_SNAP_LOADED) {
		/* An epoch is spent even if this fails. */
		change.epoch = ++store->epoch;
		change.time = ktime_get_real_seconds();
		change.state = COW_SNAP_LIVE;
	}
	change.nr_sectors = nr_sectors;
	return cow_change_end(&change);
}

static bool snap_is_up_to_date(const struct cow_snap *snap, sector_t nr_sectors)
{
	return snap->state > COW_SNAP_LIVE ||
	       (snap->state == COW_SNAP_LIVE && nr_sectors <= snap->nr_sectors);
}

/* origin->admin held, the store active. */
static int snap_activate(struct cow_snap *snap, sector_t nr_sectors)
{
	struct cow_store *store = snap->store;
	struct cow_live *live;
	int r = 0;

	cow_store_resize(store);
	if (snap_is_up_to_date(snap, nr_sectors))
		return 0;
	if (cow_sector_to_chunk(store, nr_sectors) >= cow_origin_chunks_max(store->persistence)) {
		DMERR("store %pg: %llu sectors are too many for chunks of %u: take larger chunks",
		      store->bdev, (u64)nr_sectors, store->chunk_sectors);
		return -EFBIG;
	}
	/*
	 * Whatever store it would be in: what is at home is not what the origin shows. A
	 * snapshot that was made before the merge keeps home as it was then.
	 */
	if (cow_merge_stands_in_the_way(store->origin))
		return -EBUSY;
	if (store->epoch >= COW_EPOCH_MAX - 1) {
		DMERR("store %pg: %u snapshots have been made in it: make a new one",
		      store->bdev, COW_EPOCH_MAX);
		return -EOVERFLOW;
	}
	if (store->meta && !store->writable) {
		DMERR("store %pg is read-only: make it writable and load its tables again",
		      store->bdev);
		return -EROFS;
	}
	if (store->meta && cow_meta_is_fenced(store->meta)) {
		DMERR("store %pg: it could not be written: remove its tables and load them again",
		      store->bdev);
		return -EIO;
	}
	live = live_alloc(store);
	if (!live)
		return -ENOMEM;
	if (snap->state == COW_SNAP_LOADED)
		r = cow_super_add_record(store, snap);
	if (!r)
		r = cow_origin_freeze(store->origin);
	if (!r) {
		r = snap_record(snap, nr_sectors);
		if (!r)
			snap_go_live(snap, nr_sectors, live);
		cow_origin_thaw(store->origin);
	}
	if (r) {
		DMERR("store %pg: snapshot %u cannot be made (%d)", store->bdev, snap->id, r);
		kvfree(live);
		if (snap->state == COW_SNAP_LOADED)
			cow_super_forget_record(store, snap);
	}
	return r;
}

/* The origin may have been written while the store was away. */
static void check_absence(struct cow_store *store)
{
	if (!store->meta || !cow_absent_take(store->origin, cow_meta_uuid(store->meta)))
		return;
	cow_store_invalidate(store, COW_SNAP_INVALID,
			     "the origin was written while the store was away");
	flush_work(&store->fail_work);
}

static void cover_snapshots(struct cow_store *store)
{
	struct cow_snap *snap;

	lockdep_assert_held(&store->origin->lock);
	list_for_each_entry(snap, &store->snaps, node)
		if (snap->nr_sectors > store->protect_sectors)
			WRITE_ONCE(store->protect_sectors, snap->nr_sectors);
}

/* Pages for an undo buffer of @kib. origin->admin held. */
static int store_reserve_undo(struct cow_store *store, unsigned int kib)
{
	long more = (long)kib - (long)store->undo_reserved;
	int r = cow_engine_buffer(store->origin->engine, more * (1024 >> SECTOR_SHIFT));

	if (!r)
		store->undo_reserved = kib;
	return r;
}

/* All that can fail. origin->admin held; the origin is frozen if this succeeds. */
static int store_make_ready(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	int r;

	r = cow_engine_reserve(o->engine, store->chunk_sectors);
	if (!r)
		r = store_reserve_undo(store, store->options.undo_buffer);
	if (r)
		return r;
	if (store->meta && !cow_store_is_formatted(store))
		r = store->writable ? cow_super_format(store) : -EROFS;
	if (!r)
		r = cow_origin_freeze(o);
	/* The pages of the engine stay: it has as many as its largest chunk needs. */
	if (r)
		store_reserve_undo(store, 0);
	return r;
}

/* The origin's writes meet the store from now on. The origin is frozen. */
static void store_hook(struct cow_store *store)
{
	struct cow_origin *o = store->origin;

	spin_lock(&o->lock);
	cover_snapshots(store);
	list_add_tail_rcu(&store->node, &o->stores);
	cow_ahead_limit(o);
	cow_around_limit(o);
	spin_unlock(&o->lock);
	if (store->options.throttle < 100)
		cow_engine_set_throttle(o->engine, store->options.throttle);
}

/*
 * All or nothing: a store whose merge cannot go on must not be hooked, or the origin would
 * show what is at home. origin->admin held.
 */
static int store_activate(struct cow_store *store)
{
	struct cow_merge *merge = NULL;
	int r;

	if (!list_empty(&store->node))
		return 0;
	r = cow_store_meet_origin(store);
	if (!r && store->merging) {
		merge = cow_merge_prepare(store->merging);
		r = PTR_ERR_OR_ZERO(merge);
	}
	if (!r)
		r = store_make_ready(store);
	if (r) {
		cow_merge_discard(merge);
		DMERR("store %pg: cannot be used (%d)", store->bdev, r);
		return r;
	}
	check_absence(store);
	store_hook(store);
	if (merge)
		cow_merge_start(merge);
	cow_origin_thaw(store->origin);
	return 0;
}

int cow_store_activate(struct cow_store *store)
{
	int r;

	mutex_lock(&store->origin->admin);
	r = store_activate(store);
	mutex_unlock(&store->origin->admin);
	return r;
}

int cow_snap_activate(struct cow_snap *snap, sector_t nr_sectors)
{
	int r;

	mutex_lock(&snap->store->origin->admin);
	r = store_activate(snap->store);
	if (!r)
		r = snap_activate(snap, nr_sectors);
	mutex_unlock(&snap->store->origin->admin);
	return r;
}

/* ------------------------------------------------------------------- messages */

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
	mutex_lock(&cow_registry_mutex);
	cow_snap_put(snap);
	mutex_unlock(&cow_registry_mutex);
	return r;
}

/* Take it off all lists. registry_mutex and origin->admin held. */
static void snap_unlink(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	struct cow_live *live = live_alloc(store);

	lockdep_assert_held(&cow_registry_mutex);
	spin_lock(&store->origin->lock);
	list_del(&snap->node);
	store->nr_snaps--;
	live_replace(store, live);
	spin_unlock(&store->origin->lock);
	xa_erase(&store->ids, snap->id);
	kfree(snap);
}

void cow_snap_forget(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;

	mutex_lock(&store->origin->admin);
	snap_unlink(snap);
	mutex_unlock(&store->origin->admin);
	cow_store_reclaim(store);
}

int cow_store_delete_snap(struct cow_store *store, unsigned int id)
{
	struct cow_snap *snap;
	int r = 0;

	mutex_lock(&cow_registry_mutex);
	mutex_lock(&store->origin->admin);
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
			snap_unlink(snap);
			/* From here on writers count on the room. */
			cow_store_reclaim(store);
		}
	}
	mutex_unlock(&store->origin->admin);
	mutex_unlock(&cow_registry_mutex);
	return r;
}

static int store_set_undo(struct cow_store *store, unsigned int kib)
{
	int r;

	if (store->meta) {
		DMERR("store %pg is persistent: undo_buffer is for transient ones",
		      store->bdev);
		return -EINVAL;
	}
	mutex_lock(&store->origin->admin);
	/* Less is in force once what is kept beyond it is written. */
	spin_lock(&store->origin->lock);
	store->options.undo_buffer = min(kib, store->undo_reserved);
	spin_unlock(&store->origin->lock);
	if (kib < store->undo_reserved) {
		cow_undo_flush(store);
		cow_undo_open(store);
	}
	r = store_reserve_undo(store, kib);
	if (!r) {
		spin_lock(&store->origin->lock);
		store->options.undo_buffer = kib;
		spin_unlock(&store->origin->lock);
	}
	mutex_unlock(&store->origin->admin);
	return r;
}

/* What is given of @given. */
static void options_merge(struct cow_options *opt, const struct cow_options *given)
{
	if (given->on_full)
		opt->on_full = given->on_full - 1;
	if (given->wait_timeout)
		opt->wait_timeout = given->wait_timeout;
	if (given->throttle)
		opt->throttle = given->throttle;
	if (given->copy_around)
		opt->copy_around = cow_around_size(given->copy_around - 1);
	if (given->copy_ahead)
		opt->copy_ahead = given->copy_ahead - 1;
	if (given->low_water)
		opt->low_water = given->low_water;
}

int cow_store_set_options(struct cow_store *store, const struct cow_options *given)
{
	struct cow_change change;
	int r = 0;

	if (given->undo_buffer)
		r = store_set_undo(store, given->undo_buffer - 1);
	if (r)
		return r;
	cow_change_begin(&change, store, NULL);
	options_merge(&change.options, given);
	/* Whichever a crash leaves, somebody has asked for it. */
	change.either = true;
	r = cow_change_end(&change);
	if (r)
		return r;
	spin_lock(&store->origin->lock);
	cow_around_limit(store->origin);
	cow_ahead_limit(store->origin);
	if (given->low_water) {
		store->below_water = true;
		watch_low_water(store);
	}
	spin_unlock(&store->origin->lock);
	if (given->throttle) {
		cow_engine_set_throttle(store->origin->engine, given->throttle);
		cow_merge_hurry(store->origin);
	}
	return 0;
}

/* -------------------------------------------------------------- set up, down */

void cow_snaps_init(struct cow_store *store)
{
	INIT_WORK(&store->event_work, store_event_work);
	INIT_WORK(&store->fail_work, store_fail_work);
	INIT_WORK(&store->reclaim_work, store_reclaim_work);
	INIT_DELAYED_WORK(&store->full_work, store_full_work);
}

void cow_snaps_exit(struct cow_store *store)
{
	WRITE_ONCE(store->closing, true);
	flush_work(&store->fail_work);
	cancel_work_sync(&store->extend_work);
	cancel_work_sync(&store->mark_work);
	cancel_delayed_work_sync(&store->note_work);
	cancel_delayed_work_sync(&store->full_work);
	cancel_work_sync(&store->reclaim_work);
	cancel_work_sync(&store->event_work);
	flush_work(&store->check_work);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: stores and the snapshots in them
 *
 * A store is a device that keeps old chunks of one origin for any number of
 * snapshots; each snapshot is an epoch of the store. This file finds and makes
 * both, gives out room, writes what the copy engine has read, puts it into the
 * map, and ends snapshots that can no longer be kept.
 *
 *   LOADED ──resume──► LIVE ──full──► OVERFLOWED
 *                        └────error──► INVALID
 *
 * Promises kept here:
 *  I1  the half about failing: the funnel __cow_store_invalidate() takes the
 *      epochs out of store->live before any parked write is let go.
 *  I7  an exception that cannot be remembered ends its snapshots; it is not forgotten.
 *
 * A transient store ("N") holds nothing that outlives its tables: a crash leaves
 * a device full of old chunks that nothing refers to.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "dm-cowsnap-compat.h"

/* ---------------------------------------------------------------------- room */

bool cow_store_reserve(struct cow_store *store, u64 nr)
{
	lockdep_assert_held(&store->origin->lock);
	if (store->nr_chunks - store->used_chunks - store->reserved_chunks < nr)
		return false;
	store->reserved_chunks += nr;
	return true;
}

void cow_store_unreserve(struct cow_store *store, u64 nr)
{
	lockdep_assert_held(&store->origin->lock);
	store->reserved_chunks -= nr;
}

u64 cow_store_place(struct cow_store *store, u64 nr)
{
	u64 place = store->used_chunks;

	lockdep_assert_held(&store->origin->lock);
	store->reserved_chunks -= nr;
	store->used_chunks += nr;
	return place;
}

/* ------------------------------------------------------------- from copy to map */

static u64 pending_nr(const struct cow_pending *p)
{
	return p->last - p->first + 1;
}

/* How many sectors chunk @i of the run has in the job: the last may be short. */
static unsigned int pending_part(const struct cow_pending *p, const struct cow_job *job,
				 u64 i, u64 nr)
{
	unsigned int begin = p->offset_sectors + cow_chunk_to_sector(p->store, i);

	return min_t(u64, cow_chunk_to_sector(p->store, nr), job->nr_sectors - begin);
}

static void find_zero_chunks(struct cow_pending *p, struct cow_job *job)
{
	u64 i;

	bitmap_zero(p->zero, COW_RUN_CHUNKS);
	p->nr_zero = 0;
	if (p->kind != COW_COPIED)
		return;
	for (i = 0; i < pending_nr(p); i++) {
		if (cow_job_is_zero(job, p->offset_sectors +
				    cow_chunk_to_sector(p->store, i),
				    pending_part(p, job, i, 1))) {
			__set_bit(i, p->zero);
			p->nr_zero++;
		}
	}
}

static void pending_take_room(struct cow_pending *p)
{
	struct cow_origin *o = p->store->origin;
	u64 nr = pending_nr(p) - p->nr_zero;

	spin_lock(&o->lock);
	cow_store_unreserve(p->store, p->nr_reserved - nr);
	p->place = cow_store_place(p->store, nr);
	p->nr_reserved = 0;
	p->store->zero_chunks += p->nr_zero;
	if (p->kind == COW_COPIED)
		p->store->copied_chunks += pending_nr(p);
	spin_unlock(&o->lock);
}

/* The next stretch of the run, from @from on, that is not zero. False at its end. */
static bool next_data(const struct cow_pending *p, u64 *from, u64 *to)
{
	u64 nr = pending_nr(p);

	*from = find_next_zero_bit(p->zero, nr, *from);
	if (*from >= nr)
		return false;
	*to = find_next_bit(p->zero, nr, *from);
	return true;
}

static void pending_write(struct cow_pending *p, struct cow_job *job)
{
	struct cow_store *store = p->store;
	u64 place = p->place;
	u64 from = 0, to;

	for (; next_data(p, &from, &to); from = to) {
		cow_job_write(job, p->offset_sectors + cow_chunk_to_sector(store, from),
			      pending_part(p, job, from, to - from), store->bdev,
			      cow_chunk_to_sector(store, place), &p->status);
		place += to - from;
	}
}

static void store_job_ready(struct cow_job *job)
{
	struct cow_pending *leader = container_of(job, struct cow_pending, job);
	struct cow_pending *p;

	list_for_each_entry(p, &leader->sharers, node) {
		p->status = job->read_status;
		/* Without a live snapshot the data has no reader. */
		if (p->status || !rcu_access_pointer(p->store->live))
			continue;
		find_zero_chunks(p, job);
		pending_take_room(p);
		pending_write(p, job);
	}
}

static void store_job_done(struct cow_job *job)
{
	struct cow_pending *leader = container_of(job, struct cow_pending, job);
	struct cow_pending *p, *next;
	LIST_HEAD(sharers);

	/* The leader may be freed before the last of its sharers. */
	list_splice_init(&leader->sharers, &sharers);
	list_for_each_entry_safe(p, next, &sharers, node) {
		list_del_init(&p->node);
		cow_pending_publish(p);
	}
}

const struct cow_job_ops cow_store_job_ops = {
	.ready = store_job_ready,
	.done = store_job_done,
};

static int publish_run(struct cow_pending *p, u64 from, u64 to, u64 place,
		       enum cow_kind kind)
{
	struct cow_extent ext = {
		.chunk = p->first + from,
		.nr = to - from,
		.place = place,
		.epoch = p->epoch,
		.kind = kind,
	};

	return cow_map_insert(&p->store->map, &ext, p->taken_over);
}

int cow_store_publish(struct cow_pending *p)
{
	u64 nr = pending_nr(p), place = p->place;
	u64 from = 0, to;
	int r = 0;

	if (!rcu_access_pointer(p->store->live))
		return -ENOENT;
	if (p->kind == COW_PRIVATE_ZERO)
		return publish_run(p, 0, nr, 0, COW_PRIVATE_ZERO);
	for (; !r && next_data(p, &from, &to); from = to) {
		r = publish_run(p, from, to, place, p->kind);
		place += to - from;
	}
	for (from = 0; !r && p->nr_zero; from = to) {
		from = find_next_bit(p->zero, nr, from);
		if (from >= nr)
			break;
		to = find_next_zero_bit(p->zero, nr, from);
		r = publish_run(p, from, to, 0, COW_ZERO);
	}
	return r;
}

/* --------------------------------------------------------------- live epochs */

static struct cow_live *live_alloc(struct cow_store *store)
{
	unsigned int nr = 1;
	struct cow_snap *snap;
	struct cow_live *live;

	list_for_each_entry(snap, &store->snaps, node)
		nr++;
	live = kzalloc(struct_size(live, epoch, nr), GFP_KERNEL);
	if (live)
		live->nr = nr;
	return live;
}

/*
 * Fill @live with the epochs of all that live; swap it in. Frees it if none do.
 * Without one (no memory) an epoch that is gone goes on being served, which costs
 * copies that nobody reads, until the last has gone.
 */
static void live_replace(struct cow_store *store, struct cow_live *live)
{
	struct cow_live *old;
	struct cow_snap *snap;
	unsigned int nr = 0;

	lockdep_assert_held(&store->origin->lock);
	list_for_each_entry(snap, &store->snaps, node) {
		unsigned int i = nr;

		if (snap->state != COW_SNAP_LIVE)
			continue;
		if (!live)
			return;
		for (; i && live->epoch[i - 1] > snap->epoch; i--)
			live->epoch[i] = live->epoch[i - 1];
		live->epoch[i] = snap->epoch;
		nr++;
	}
	if (live)
		live->nr = nr;
	if (!nr) {
		kfree(live);
		live = NULL;
	}
	old = rcu_replace_pointer(store->live, live,
				  lockdep_is_held(&store->origin->lock));
	if (old)
		kfree_rcu(old, rcu);
}

bool cow_store_sole_owner(struct cow_store *store, const struct cow_extent *ext,
			  u32 epoch)
{
	const struct cow_live *live;
	unsigned int i;

	live = rcu_dereference_protected(store->live,
					 lockdep_is_held(&store->origin->lock));
	if (!live)
		return false;
	for (i = 0; i < live->nr && live->epoch[i] <= ext->epoch; i++) {
		struct cow_extent other;

		if (live->epoch[i] == epoch)
			continue;
		cow_map_lookup(&store->map, ext->chunk, 1, live->epoch[i], &other);
		if (other.kind == ext->kind && other.epoch == ext->epoch)
			return false;
	}
	return true;
}

/* ------------------------------------------------------------ the one funnel */

/* All changes of a snapshot's state. origin->lock held. */
static void snap_set_state(struct cow_snap *snap, enum cow_snap_state state)
{
	lockdep_assert_held(&snap->store->origin->lock);
	WRITE_ONCE(snap->state, state);
}

void __cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			    const char *why)
{
	struct cow_live *old;
	struct cow_snap *snap;

	lockdep_assert_held(&store->origin->lock);
	if (!rcu_access_pointer(store->live))
		return;
	/* First the state, so that reads that writes no longer wait for see it. */
	list_for_each_entry(snap, &store->snaps, node)
		if (snap->state == COW_SNAP_LIVE)
			snap_set_state(snap, state);
	old = rcu_replace_pointer(store->live, NULL,
				  lockdep_is_held(&store->origin->lock));
	kfree_rcu(old, rcu);
	DMERR_LIMIT("store %pg: its snapshots of %pg are invalid: %s", store->bdev,
		    store->origin->bdev, why);
	queue_work(store->origin->wq, &store->event_work);
}

void cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			  const char *why)
{
	spin_lock(&store->origin->lock);
	__cow_store_invalidate(store, state, why);
	spin_unlock(&store->origin->lock);
}

static void store_event_work(struct work_struct *work)
{
	cow_snap_event(container_of(work, struct cow_store, event_work));
}

/* --------------------------------------------------------------- open, close */

/* What stands at the start of dm-snapshot's persistent stores. */
static const char dm_snapshot_magic[4] = "SnAp";

/* A store that holds somebody's snapshots must not be written over. */
static bool store_is_foreign(struct block_device *bdev, char **error)
{
	struct page *page = alloc_page(GFP_KERNEL);
	struct bio_vec vec;
	struct bio bio;
	bool foreign = true;

	if (!page) {
		*error = "Out of memory reading the store";
		return true;
	}
	bio_init(&bio, bdev, &vec, 1, REQ_OP_READ);
	__bio_add_page(&bio, page, bdev_logical_block_size(bdev), 0);
	if (submit_bio_wait(&bio))
		cow_fail(error, "Cannot read the store %pg: use another device", bdev);
	else if (!memcmp(page_address(page), dm_snapshot_magic, sizeof(dm_snapshot_magic)))
		cow_fail(error,
			 "Store %pg holds a snapshot of dm-snapshot: remove that first, or zero its first 4 KiB",
			 bdev);
	else
		foreign = false;
	bio_uninit(&bio);
	__free_page(page);
	return foreign;
}

static bool store_fits(struct cow_origin *origin, struct block_device *bdev,
		       const struct cow_snap_args *args, char **error)
{
	unsigned int block_bytes = max(bdev_logical_block_size(origin->bdev),
				       bdev_logical_block_size(bdev));
	unsigned int chunk_bytes = args->chunk_sectors << SECTOR_SHIFT;
	sector_t chunk = args->chunk_sectors;

	if (chunk_bytes < block_bytes)
		cow_fail(error,
			 "Chunk of %u sectors is smaller than a block of %u of the devices",
			 args->chunk_sectors, block_bytes >> SECTOR_SHIFT);
	else if (bdev_nr_sectors(bdev) < chunk)
		cow_fail(error,
			 "Store %pg of %llu sectors is smaller than one chunk of %u",
			 bdev, (u64)bdev_nr_sectors(bdev), args->chunk_sectors);
	else if (bdev_nr_sectors(origin->bdev) / chunk >= COW_CHUNKS_MAX ||
		 bdev_nr_sectors(bdev) / chunk >= COW_CHUNKS_MAX)
		cow_fail(error,
			 "More than %llu chunks of %u sectors: take larger chunks",
			 COW_CHUNKS_MAX, args->chunk_sectors);
	else if (args->writable && bdev_read_only(bdev))
		cow_fail(error,
			 "Store %pg is read-only: make it writable, or create the snapshot with -r",
			 bdev);
	else
		return true;
	return false;
}

static struct cow_store *store_create(struct cow_origin *origin,
				      struct block_device *bdev,
				      const struct cow_snap_args *args, char **error)
{
	struct cow_store *store;

	if (cow_origin_find(bdev)) {
		cow_fail(error, "Store %pg is in use as an origin", bdev);
		return NULL;
	}
	if (!store_fits(origin, bdev, args, error) || store_is_foreign(bdev, error))
		return NULL;
	store = kzalloc(sizeof(*store), GFP_KERNEL);
	if (!store) {
		*error = "Out of memory for a store";
		return NULL;
	}
	INIT_LIST_HEAD(&store->node);
	INIT_LIST_HEAD(&store->snaps);
	INIT_LIST_HEAD(&store->tables);
	store->origin = origin;
	store->bdev = bdev;
	store->persistence = args->persistence;
	store->chunk_sectors = args->chunk_sectors;
	store->chunk_shift = ilog2(args->chunk_sectors);
	store->nr_chunks = bdev_nr_sectors(bdev) >> store->chunk_shift;
	store->pendings = RB_ROOT_CACHED;
	store->writable = !bdev_read_only(bdev);
	init_waitqueue_head(&store->idle);
	INIT_WORK(&store->event_work, store_event_work);
	cow_map_init(&store->map);

	origin->refs++;
	list_add_tail(&store->all_node, &origin->all_stores);
	return store;
}

static bool store_is_idle(struct cow_store *store)
{
	bool idle;

	spin_lock(&store->origin->lock);
	idle = !store->nr_pendings;
	spin_unlock(&store->origin->lock);
	return idle;
}

/* The last table is gone: no snapshot is live, so no new pending can come. */
static void store_close(struct cow_store *store)
{
	struct cow_origin *origin = store->origin;

	wait_event(store->idle, store_is_idle(store));
	spin_lock(&origin->lock);
	if (!list_empty(&store->node))
		list_del_rcu(&store->node);
	spin_unlock(&origin->lock);
	cancel_work_sync(&store->event_work);
	synchronize_rcu();
	list_del(&store->all_node);
	cow_map_destroy(&store->map);
	kfree(store);
	cow_origin_put(origin);
}

static bool store_agrees(struct cow_store *store, struct cow_origin *origin,
			 struct block_device *bdev, const struct cow_snap_args *args,
			 char **error)
{
	if (store->origin != origin)
		cow_fail(error,
			 "Store %pg is in use for origin %pg, not for %pg",
			 bdev, store->origin->bdev, origin->bdev);
	else if (store->bdev != bdev)
		cow_fail(error, "Store %pg was replaced by another device", bdev);
	else if (store->persistence != args->persistence)
		cow_fail(error,
			 "Store %pg is open as %c, the table says %c",
			 bdev, store->persistence, args->persistence);
	else if (store->chunk_sectors != args->chunk_sectors)
		cow_fail(error,
			 "Store %pg has chunks of %u sectors, the table says %u",
			 bdev, store->chunk_sectors, args->chunk_sectors);
	else if (args->writable && !store->writable)
		cow_fail(error,
			 "Store %pg is read-only: make it writable, or use -r",
			 bdev);
	else
		return true;
	return false;
}

struct cow_snap *cow_snap_find(struct cow_store *store, unsigned int id)
{
	struct cow_snap *snap;

	list_for_each_entry(snap, &store->snaps, node)
		if (snap->id == id)
			return snap;
	return NULL;
}

/* The last chunk of a snapshot may hold less than a chunk: it cannot get more. */
static bool snap_may_have_length(struct cow_snap *snap, sector_t nr_sectors, char **error)
{
	if (!snap->epoch || nr_sectors == snap->nr_sectors)
		return true;
	if (nr_sectors < snap->nr_sectors)
		cow_fail(error,
			 "Snapshot %u has %llu sectors, the table says %llu: it cannot shrink",
			 snap->id, (u64)snap->nr_sectors, (u64)nr_sectors);
	else if (snap->nr_sectors % snap->store->chunk_sectors)
		cow_fail(error,
			 "Snapshot %u has %llu sectors, no whole number of chunks of %u: it cannot grow to %llu",
			 snap->id, (u64)snap->nr_sectors, snap->store->chunk_sectors,
			 (u64)nr_sectors);
	else
		return true;
	return false;
}

static struct cow_snap *snap_create(struct cow_store *store,
				    const struct cow_snap_args *args, char **error)
{
	struct cow_snap *snap = kzalloc(sizeof(*snap), GFP_KERNEL);

	if (!snap) {
		*error = "Out of memory for a snapshot";
		return NULL;
	}
	snap->store = store;
	snap->id = args->id;
	snap->overflow_apart = args->overflow_apart;
	snap->state = COW_SNAP_LOADED;
	spin_lock(&store->origin->lock);
	list_add_tail(&snap->node, &store->snaps);
	spin_unlock(&store->origin->lock);
	return snap;
}

struct cow_snap *cow_snap_get(struct cow_origin *origin, struct block_device *bdev,
			      const struct cow_snap_args *args, char **error)
{
	struct cow_store *store = cow_store_find(bdev);
	struct cow_snap *snap;

	lockdep_assert_held(&cow_registry_mutex);
	if (store) {
		if (!store_agrees(store, origin, bdev, args, error))
			return NULL;
	} else {
		store = store_create(origin, bdev, args, error);
		if (!store)
			return NULL;
	}
	snap = cow_snap_find(store, args->id);
	if (snap && !snap_may_have_length(snap, args->nr_sectors, error))
		snap = NULL;
	else if (!snap)
		snap = snap_create(store, args, error);
	if (snap)
		snap->nr_tables++;
	else if (list_empty(&store->snaps))
		store_close(store);
	return snap;
}

void cow_snap_put(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	struct cow_live *live;

	lockdep_assert_held(&cow_registry_mutex);
	if (--snap->nr_tables)
		return;
	mutex_lock(&store->origin->admin);
	live = live_alloc(store);
	spin_lock(&store->origin->lock);
	list_del(&snap->node);
	live_replace(store, live);
	spin_unlock(&store->origin->lock);
	mutex_unlock(&store->origin->admin);
	kfree(snap);
	if (list_empty(&store->snaps))
		store_close(store);
}

/* -------------------------------------------------------------------- create */

/* As of now, with no write under way: the instant that the snapshot shows. */
static void snap_go_live(struct cow_snap *snap, sector_t nr_sectors,
			 struct cow_live *live)
{
	struct cow_store *store = snap->store;
	struct cow_origin *origin = store->origin;

	spin_lock(&origin->lock);
	if (snap->state == COW_SNAP_LOADED) {
		snap->epoch = ++store->epoch;
		snap_set_state(snap, COW_SNAP_LIVE);
	}
	snap->nr_sectors = nr_sectors;
	if (store->protect_sectors < nr_sectors)
		WRITE_ONCE(store->protect_sectors, nr_sectors);
	live_replace(store, live);
	if (list_empty(&store->node))
		list_add_tail_rcu(&store->node, &origin->stores);
	spin_unlock(&origin->lock);
}

void cow_store_resize(struct cow_store *store)
{
	u64 nr_chunks = bdev_nr_sectors(store->bdev) >> store->chunk_shift;

	spin_lock(&store->origin->lock);
	if (store->nr_chunks < nr_chunks && nr_chunks < COW_CHUNKS_MAX)
		store->nr_chunks = nr_chunks;
	spin_unlock(&store->origin->lock);
}

static int snap_activate(struct cow_snap *snap, sector_t nr_sectors)
{
	struct cow_store *store = snap->store;
	struct cow_live *live;
	int r;

	cow_store_resize(store);
	if (snap->state > COW_SNAP_LIVE ||
	    (snap->state == COW_SNAP_LIVE && nr_sectors <= snap->nr_sectors))
		return 0;
	if (store->epoch == COW_EPOCH_MAX) {
		DMERR("store %pg: %u snapshots since it was opened: close it once",
		      store->bdev, COW_EPOCH_MAX);
		return -EOVERFLOW;
	}
	live = live_alloc(store);
	if (!live)
		return -ENOMEM;
	r = cow_engine_reserve(store->origin->engine, store->chunk_sectors);
	if (!r)
		r = cow_origin_freeze(store->origin);
	if (r) {
		kfree(live);
		return r;
	}
	snap_go_live(snap, nr_sectors, live);
	cow_origin_thaw(store->origin);
	return 0;
}

int cow_snap_activate(struct cow_snap *snap, sector_t nr_sectors)
{
	int r;

	mutex_lock(&snap->store->origin->admin);
	r = snap_activate(snap, nr_sectors);
	mutex_unlock(&snap->store->origin->admin);
	return r;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: stores, opened and closed
 *
 * A store is a device that keeps old chunks of one origin for any number of
 * snapshots; each snapshot is an epoch of the store. All tables that name the store, or a
 * snapshot in it, share it by reference. A transient store ("N") has the snapshots that
 * tables name and nothing that outlives them; a persistent one ("P") has those that
 * are recorded in it, whether a table names them or not.
 *
 * What a crash leaves: of a transient store a device full of old chunks that nothing
 * refers to; of a persistent one what dm-cowsnap-format.h describes.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "dm-cowsnap-compat.h"

/* ---------------------------------------------------------------- what fits together */

static bool chunk_fits(struct cow_origin *origin, struct block_device *bdev,
		       char persistence, unsigned int chunk_sectors, char **error)
{
	u64 most = cow_origin_chunks_max(persistence);
	unsigned int block_bytes = max(bdev_logical_block_size(origin->bdev),
				       bdev_logical_block_size(bdev));

	if (chunk_sectors << SECTOR_SHIFT < block_bytes)
		cow_fail(error,
			 "Chunk of %u sectors is smaller than a block of %u of the devices",
			 chunk_sectors, block_bytes >> SECTOR_SHIFT);
	else if (bdev_nr_sectors(bdev) < chunk_sectors)
		cow_fail(error,
			 "Store %pg of %llu sectors is smaller than one chunk of %u",
			 bdev, (u64)bdev_nr_sectors(bdev), chunk_sectors);
	else if (bdev_nr_sectors(origin->bdev) / chunk_sectors >= most)
		cow_fail(error,
			 "Origin %pg has more than %llu chunks of %u sectors: take larger chunks",
			 origin->bdev, most, chunk_sectors);
	else if (bdev_nr_sectors(bdev) / chunk_sectors >= COW_CHUNKS_MAX)
		cow_fail(error,
			 "Store %pg has more than %llu chunks of %u sectors: take larger chunks",
			 bdev, COW_CHUNKS_MAX, chunk_sectors);
	else
		return true;
	return false;
}

static bool store_is_usable(struct cow_origin *origin, struct block_device *bdev,
			    const struct cow_snap_args *args, char **error)
{
	if (cow_origin_find(bdev))
		cow_fail(error, "Store %pg is in use as an origin", bdev);
	else if (args->writable && bdev_read_only(bdev))
		cow_fail(error,
			 "Store %pg is read-only: make it writable, or create the snapshot with -r",
			 bdev);
	else
		return true;
	return false;
}

/*
 * A transient store may be written over whatever no longer matters: not over somebody's
 * snapshots, nor over what may be such.
 */
static bool may_be_transient(struct block_device *bdev, struct cowsnap_super *super,
			     char **error)
{
	switch (cow_probe(bdev, super, error)) {
	case COW_CONTENT_NEW:
	case COW_CONTENT_FOREIGN:
		return true;
	case COW_CONTENT_STORE:
		cow_fail(error, "Store %pg is persistent, the table says N: use P, or zero 4 KiB",
			 bdev);
		return false;
	default:
		return false;
	}
}

/* ----------------------------------------------------------------- open, close */

static struct cow_store *store_alloc(struct cow_origin *origin, struct block_device *bdev,
				     char persistence, unsigned int chunk_sectors)
{
	struct cow_store *store = kzalloc(sizeof(*store), GFP_KERNEL);

	if (!store)
		return NULL;
	INIT_LIST_HEAD(&store->node);
	INIT_LIST_HEAD(&store->snaps);
	INIT_LIST_HEAD(&store->tables);
	INIT_LIST_HEAD(&store->waiting);
	INIT_LIST_HEAD(&store->checks);
	INIT_LIST_HEAD(&store->undo);
	xa_init(&store->ids);
	xa_init_flags(&store->records, XA_FLAGS_ALLOC);
	xa_init(&store->record_chunks);
	mutex_init(&store->records_lock);
	store->origin = origin;
	store->bdev = bdev;
	store->persistence = persistence;
	store->chunk_sectors = chunk_sectors;
	store->chunk_shift = ilog2(chunk_sectors);
	store->pendings = RB_ROOT_CACHED;
	store->kept = RB_ROOT_CACHED;
	store->writable = !bdev_read_only(bdev);
	store->below_water = true;
	store->options.on_full = COWSNAP_FULL_INVALIDATE;
	store->options.wait_timeout = COW_WAIT_TIMEOUT;
	store->options.throttle = 100;
	store->options.copy_ahead = cow_ahead_default();
	store->options.copy_around = cow_around_default(origin->bdev);
	store->early = !bdev_nr_sectors(origin->bdev);
	if (persistence == 'N')
		store->options.undo_buffer = cow_undo_default();
	init_waitqueue_head(&store->idle);
	cow_snaps_init(store);
	INIT_WORK(&store->extend_work, cow_super_extend_work);
	INIT_WORK(&store->mark_work, cow_super_mark_work);
	INIT_DELAYED_WORK(&store->note_work, cow_super_note_work);
	INIT_WORK(&store->check_work, cow_verify_work);
	INIT_DELAYED_WORK(&store->undo_work, cow_undo_work);
	cow_map_init(&store->map);
	cow_known_init(&store->known);
	cow_space_init(&store->space, NULL, bdev_nr_sectors(bdev) >> store->chunk_shift);
	return store;
}

/* Nothing of the store is in the engine's hands. */
static void store_quiesce(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	int i;

	/* The end of a commit's last bio may still be about to put it on the list. */
	if (store->meta)
		synchronize_rcu();
	/* Twice: what runs now may put it on the list once more. */
	for (i = 0; i < 2 && store->meta; i++) {
		spin_lock_irq(&o->end_lock);
		cow_meta_unlist(store->meta);
		spin_unlock_irq(&o->end_lock);
		cow_engine_flush(o->engine);
	}
}

static void free_snaps(struct cow_store *store)
{
	struct cow_snap *snap, *next;

	list_for_each_entry_safe(snap, next, &store->snaps, node) {
		list_del(&snap->node);
		kfree(snap);
	}
}

static void store_free(struct cow_store *store)
{
	free_snaps(store);
	kvfree(rcu_dereference_protected(store->live, true));
	cow_map_destroy(&store->map);
	cow_known_exit(&store->known);
	cow_space_destroy(&store->space);
	xa_destroy(&store->ids);
	xa_destroy(&store->records);
	xa_destroy(&store->record_chunks);
	cow_load_end(store);
	if (store->meta)
		cow_meta_destroy(store->meta);
	kfree(store);
}

/* Blocks as large as the device's tear unit, as far as the format goes. */
static unsigned int pick_block_bytes(struct cow_store *store)
{
	return clamp(bdev_physical_block_size(store->bdev), COWSNAP_MIN_BLOCK_BYTES,
		     COWSNAP_MAX_BLOCK_BYTES);
}

/* A block that straddles two physical ones is not written as a whole. */
static void warn_misaligned(struct cow_store *store)
{
	unsigned int physical = bdev_physical_block_size(store->bdev);

	if (physical > bdev_logical_block_size(store->bdev) &&
	    bdev_alignment_offset(store->bdev))
		DMWARN("store %pg straddles its device's blocks of %u bytes: use an aligned volume",
		       store->bdev, physical);
}

static bool open_tables(struct cow_store *store, unsigned int block_bytes, char **error)
{
	if (block_bytes > store->chunk_sectors << SECTOR_SHIFT) {
		cow_fail(error,
			 "Chunk of %u sectors is smaller than the blocks of %u bytes that store %pg writes: take larger chunks",
			 store->chunk_sectors, block_bytes, store->bdev);
		return false;
	}
	if (!is_power_of_2(block_bytes) || block_bytes < COWSNAP_MIN_BLOCK_BYTES ||
	    block_bytes > COWSNAP_MAX_BLOCK_BYTES) {
		cow_fail(error, "Store %pg says that its blocks have %u bytes: run cowsnap repair",
			 store->bdev, block_bytes);
		return false;
	}
	if (block_bytes < bdev_logical_block_size(store->bdev)) {
		cow_fail(error,
			 "Store %pg was made with blocks of %u bytes, its device now writes no less than %u: move it to a device that writes %u",
			 store->bdev, block_bytes, bdev_logical_block_size(store->bdev),
			 block_bytes);
		return false;
	}
	warn_misaligned(store);
	store->meta = cow_meta_create(store, block_bytes);
	if (!store->meta) {
		*error = "Out of memory for a store";
		return false;
	}
	cow_space_init(&store->space, cow_meta_geometry(store->meta),
		       bdev_nr_sectors(store->bdev) >> store->chunk_shift);
	if (!store->space.total) {
		cow_fail(error, "Store %pg of %llu sectors is too small for chunks of %u",
			 store->bdev, (u64)bdev_nr_sectors(store->bdev),
			 store->chunk_sectors);
		return false;
	}
	return true;
}

static bool features_allow(struct cow_store *store, const struct cowsnap_super *super,
			   char **error)
{
	u64 incompat = le64_to_cpu(super->incompat) & ~COWSNAP_INCOMPAT_KNOWN;
	u64 ro_compat = le64_to_cpu(super->ro_compat) & ~COWSNAP_RO_COMPAT_KNOWN;

	if (le32_to_cpu(super->version) != COWSNAP_FORMAT)
		cow_fail(error, "Store %pg has format %u, this version knows %u: use a newer one",
			 store->bdev, le32_to_cpu(super->version), COWSNAP_FORMAT);
	else if (incompat)
		cow_fail(error, "Store %pg needs features %#llx: use a newer version",
			 store->bdev, incompat);
	else if (ro_compat && store->writable)
		cow_fail(error,
			 "Store %pg may only be read, since it has features %#llx: make its device read-only, or use a newer version",
			 store->bdev, ro_compat);
	else
		return true;
	return false;
}

static bool open_persistent(struct cow_store *store, const struct cow_snap_args *args,
			    enum cow_content content, const struct cowsnap_super *super,
			    char **error)
{
	if (content == COW_CONTENT_NEW) {
		store->origin_sectors = bdev_nr_sectors(store->origin->bdev);
		return open_tables(store, pick_block_bytes(store), error);
	}
	return features_allow(store, super, error) &&
	       open_tables(store, le32_to_cpu(super->block_bytes), error) &&
	       !cow_load(store, super, error);
}

/* Chunk size and kind may be left to the store, if it is one. */
static bool complete_args(struct block_device *bdev, struct cow_snap_args *args,
			  enum cow_content content, const struct cowsnap_super *super,
			  char **error)
{
	unsigned int chunk_sectors = le32_to_cpu(super->chunk_sectors);

	if (content == COW_CONTENT_NEW && !args->chunk_sectors) {
		cow_fail(error, "Store %pg is new: make a snapshot in it first", bdev);
		return false;
	}
	if (content == COW_CONTENT_NEW)
		return true;
	if (!is_power_of_2(chunk_sectors) || chunk_sectors > COW_MAX_CHUNK_SECTORS) {
		cow_fail(error, "Store %pg: chunks of %u sectors cannot be: run cowsnap repair",
			 bdev, chunk_sectors);
		return false;
	}
	if (args->chunk_sectors && args->chunk_sectors != chunk_sectors) {
		cow_fail(error, "Store %pg has chunks of %u sectors, the table says %u",
			 bdev, chunk_sectors, args->chunk_sectors);
		return false;
	}
	args->chunk_sectors = chunk_sectors;
	return true;
}

/* @super has room for what is read. */
static struct cow_store *store_read(struct cow_origin *origin, struct block_device *bdev,
				    struct cow_snap_args *args, struct cowsnap_super *super,
				    char **error)
{
	enum cow_content content = COW_CONTENT_NEW;
	struct cow_store *store;
	bool opened;

	if (args->persistence == 'P') {
		content = cow_probe(bdev, super, error);
		if ((content != COW_CONTENT_NEW && content != COW_CONTENT_STORE) ||
		    !complete_args(bdev, args, content, super, error))
			return NULL;
	}
	if (!chunk_fits(origin, bdev, args->persistence, args->chunk_sectors, error))
		return NULL;
	store = store_alloc(origin, bdev, args->persistence, args->chunk_sectors);
	if (!store) {
		*error = "Out of memory for a store";
		return NULL;
	}
	opened = args->persistence == 'N' ? may_be_transient(bdev, super, error) :
		 open_persistent(store, args, content, super, error);
	if (!opened) {
		store_quiesce(store);
		store_free(store);
		return NULL;
	}
	return store;
}

static struct cow_store *store_open(struct cow_origin *origin, struct block_device *bdev,
				    struct cow_snap_args args, char **error)
{
	struct cowsnap_super *super;
	struct cow_store *store;

	if (!args.persistence)
		args.persistence = 'P';
	if (!store_is_usable(origin, bdev, &args, error))
		return NULL;
	super = kzalloc(sizeof(*super), GFP_KERNEL);
	if (!super) {
		*error = "Out of memory for a store";
		return NULL;
	}
	store = store_read(origin, bdev, &args, super, error);
	kfree(super);
	if (store) {
		origin->refs++;
		list_add_tail(&store->all_node, &origin->all_stores);
	}
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

/* No write looks at the store any more; those that wait for it go on. */
static bool store_unhook(struct cow_store *store)
{
	struct cow_origin *origin = store->origin;
	struct cow_live *live;
	bool active;

	spin_lock(&origin->lock);
	active = !list_empty(&store->node);
	if (active)
		list_del_rcu(&store->node);
	live = rcu_replace_pointer(store->live, NULL, lockdep_is_held(&origin->lock));
	if (store->blocked == COW_STORE_FULL || store->blocked == COW_STORE_PREPARING)
		cow_store_unblock(store);
	spin_unlock(&origin->lock);
	synchronize_rcu();
	kvfree(live);
	return active && live;
}

/* The last words of a persistent store: where its commits stand. */
static int store_checkpoint(struct cow_store *store)
{
	int r;

	if (!cow_store_is_formatted(store))
		return 0;
	if (!store->writable)
		return store->unmarked ? -EROFS : 0;
	r = cow_super_write(store, NULL);
	if (!r)
		cow_super_settle(store);
	if (r)
		DMERR("store %pg: cannot be closed properly (%d)%s", store->bdev, r,
		      store->unmarked ?
		      ": its snapshots are invalid, but it does not say so" : "");
	return r;
}

/* The last table is gone. */
static void store_close(struct cow_store *store)
{
	struct cow_origin *origin = store->origin;
	bool kept;

	cow_merge_stop(store);
	kept = store_unhook(store);
	if (kept && store->meta)
		cow_absent_add(origin, cow_meta_uuid(store->meta), false);
	wait_event(store->idle, store_is_idle(store));
	cow_undo_close(store);
	cow_engine_buffer(origin->engine, -(long)store->undo_reserved * (1024 >> SECTOR_SHIFT));
	cow_snaps_exit(store);
	/* The disk says that they are live: this module at least knows better. */
	if (store_checkpoint(store) && store->unmarked)
		cow_absent_add(origin, cow_meta_uuid(store->meta), true);
	store_quiesce(store);
	list_del(&store->all_node);
	store_free(store);
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
	else if (args->persistence && store->persistence != args->persistence)
		cow_fail(error,
			 "Store %pg is open as %c, the table says %c",
			 bdev, store->persistence, args->persistence);
	else if (args->chunk_sectors && store->chunk_sectors != args->chunk_sectors)
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

struct cow_store *cow_store_get(struct cow_origin *origin, struct block_device *bdev,
				const struct cow_snap_args *args, char **error)
{
	struct cow_store *store = cow_store_find(bdev);

	lockdep_assert_held(&cow_registry_mutex);
	if (store && !store_agrees(store, origin, bdev, args, error))
		return NULL;
	if (!store)
		store = store_open(origin, bdev, *args, error);
	if (store)
		store->refs++;
	return store;
}

void cow_store_put(struct cow_store *store)
{
	lockdep_assert_held(&cow_registry_mutex);
	if (!--store->refs)
		store_close(store);
}

int cow_store_meet_origin(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	char *error;
	int r;

	if (!store->early)
		return 0;
	if (!chunk_fits(o, store->bdev, store->persistence, store->chunk_sectors, &error)) {
		DMERR("%s", error);
		return -EINVAL;
	}
	if (!cow_store_is_formatted(store)) {
		store->origin_sectors = bdev_nr_sectors(o->bdev);
		store->options.copy_around = cow_around_default(o->bdev);
	} else if (store->origin_sectors > bdev_nr_sectors(o->bdev)) {
		DMERR("store %pg is for an origin of %llu sectors, %pg has %llu: use that one",
		      store->bdev, (u64)store->origin_sectors, o->bdev,
		      (u64)bdev_nr_sectors(o->bdev));
		return -EINVAL;
	}
	r = cow_load_settle(store);
	if (r) {
		DMERR("store %pg cannot be opened (error %d)", store->bdev, r);
		return r;
	}
	store->early = false;
	return 0;
}

/* ----------------------------------------------------------------- its snapshots */

struct cow_snap *cow_snap_find(struct cow_store *store, unsigned int id)
{
	return xa_load(&store->ids, id);
}

struct cow_snap *cow_snap_add(struct cow_store *store, unsigned int id,
			      enum cow_snap_state state)
{
	struct cow_snap *snap = kzalloc(sizeof(*snap), GFP_KERNEL);

	if (!snap)
		return NULL;
	snap->store = store;
	snap->id = id;
	snap->state = state;
	if (xa_insert(&store->ids, id, snap, GFP_KERNEL)) {
		kfree(snap);
		return NULL;
	}
	spin_lock(&store->origin->lock);
	list_add_tail(&snap->node, &store->snaps);
	store->nr_snaps++;
	spin_unlock(&store->origin->lock);
	return snap;
}

/* An id is made by "create", or is the first one of a new store. */
static bool id_is_right(struct cow_store *store, const struct cow_snap_args *args,
			char **error)
{
	bool exists = cow_snap_find(store, args->id);
	bool first = !args->id && list_empty(&store->snaps) && !store->epoch && !args->merge;

	if (exists && args->create)
		cow_fail(error,
			 "Snapshot %u exists already: leave out \"create\"",
			 args->id);
	else if (!exists && !args->create && !first)
		cow_fail(error,
			 "Snapshot %u does not exist: add \"create\" to make it",
			 args->id);
	else
		return true;
	return false;
}

/* The last chunk of a snapshot may hold less than a chunk: it cannot get more. */
static bool snap_agrees(struct cow_snap *snap, const struct cow_snap_args *args,
			char **error)
{
	u64 had = snap->nr_sectors, now = args->nr_sectors;

	if (snap->state == COW_SNAP_MERGING && !args->merge)
		cow_fail(error, "Snapshot %u is being merged into its origin", snap->id);
	else if (snap->state == COW_SNAP_MERGED && !args->merge)
		cow_fail(error, "Snapshot %u was merged into its origin: delete it", snap->id);
	else if (args->merge && snap->nr_tables && snap->state == COW_SNAP_LIVE &&
		 !args->takes_over)
		cow_fail(error, "Snapshot %u is in use: remove its device before it is merged",
			 snap->id);
	else if (!snap->epoch || now == had || args->merge)
		return true;
	else if (now < had)
		cow_fail(error,
			 "Snapshot %u has %llu sectors, the table says %llu: it cannot shrink",
			 snap->id, had, now);
	else if (had % snap->store->chunk_sectors)
		cow_fail(error,
			 "Snapshot %u has %llu sectors, no whole number of chunks of %u: it cannot grow to %llu",
			 snap->id, had, snap->store->chunk_sectors, now);
	else
		return true;
	return false;
}

struct cow_snap *cow_snap_get(struct cow_store *store, const struct cow_snap_args *args,
			      char **error)
{
	struct cow_snap *snap;

	lockdep_assert_held(&cow_registry_mutex);
	if (!id_is_right(store, args, error))
		return NULL;
	snap = cow_snap_find(store, args->id);
	if (snap && !snap_agrees(snap, args, error))
		return NULL;
	if (!snap) {
		snap = cow_snap_add(store, args->id, COW_SNAP_LOADED);
		if (!snap) {
			*error = "Out of memory for a snapshot";
			return NULL;
		}
	}
	snap->overflow_apart |= args->overflow_apart;
	snap->nr_tables++;
	return snap;
}

/* What is on disk stays; what only tables knew of goes with the last of them. */
void cow_snap_put(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;

	lockdep_assert_held(&cow_registry_mutex);
	if (--snap->nr_tables || (store->meta && snap->state != COW_SNAP_LOADED))
		return;
	cow_snap_forget(snap);
}

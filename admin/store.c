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
 * What a crash leaves: of a transient store, a device full of old chunks that nothing refers
 * to; of a persistent one, what dm-cowsnap-format.h describes.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "admin/full.h"
#include "admin/merge.h"
#include "admin/origin.h"
#include "admin/reclaim.h"
#include "admin/settle.h"
#include "admin/snapshots.h"
#include "admin/store.h"
#include "admin/track.h"
#include "copy/pending.h"
#include "copy/undo.h"
#include "disk/checkpoint.h"
#include "disk/commit.h"
#include "disk/current.h"
#include "disk/load.h"
#include "disk/log.h"
#include "disk/meta.h"
#include "disk/prepare.h"
#include "disk/probe.h"
#include "disk/seal.h"
#include "disk/super.h"
#include "disk/verify.h"
#include "io/ahead.h"
#include "io/around.h"
#include "origin/absent.h"
#include "origin/origin.h"
#include "origin/registry.h"
#include "origin/tables.h"
#include "store/error.h"
#include "store/known.h"
#include "store/options.h"
#include "store/snapshots.h"
#include "store/space.h"
#include "store/state.h"
#include "store/store.h"
#include "store/track.h"

/* --------------------------------------------------------- what fits together */

/* With so many sectors of the origin. */
static bool chunk_fits(struct cow_origin *origin, sector_t nr_sectors,
		       struct block_device *bdev, char persistence,
		       unsigned int chunk_sectors, char **error)
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
	else if (nr_sectors / chunk_sectors >= most)
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
 * A transient store may overwrite data that is not needed, but no snapshots, and nothing
 * that could be snapshots.
 */
static int check_transient(struct block_device *bdev, struct cowsnap_super *super,
			   char **error)
{
	switch (cow_probe(bdev, super, error)) {
	case COW_CONTENT_NEW:
	case COW_CONTENT_FOREIGN:
		return 0;
	case COW_CONTENT_STORE:
		cow_fail(error, "Store %pg is persistent, the table says N: use P, or zero 4 KiB",
			 bdev);
		return -EINVAL;
	case COW_CONTENT_NO_MEMORY:
		return -ENOMEM;
	default:
		return -EINVAL;
	}
}

/* ----------------------------------------------------------------------- open */

static void init_work(struct cow_store *store)
{
	INIT_WORK(&store->event_work, cow_store_event_work);
	INIT_WORK(&store->fail_work, cow_super_fail_work);
	INIT_DELAYED_WORK(&store->reclaim_work, cow_store_reclaim_work);
	INIT_DELAYED_WORK(&store->full_work, cow_store_full_work);
	INIT_WORK(&store->extend_work, cow_super_extend_work);
	INIT_WORK(&store->mark_work, cow_super_mark_work);
	INIT_DELAYED_WORK(&store->note_work, cow_super_note_work);
	INIT_DELAYED_WORK(&store->alone_work, cow_commit_alone_work);
	INIT_DELAYED_WORK(&store->zone_work, cow_zone_work);
	INIT_DELAYED_WORK(&store->current_work, cow_current_work);
	INIT_DELAYED_WORK(&store->settle_work, cow_settle_work);
	INIT_WORK(&store->check_work, cow_verify_work);
	INIT_DELAYED_WORK(&store->undo_work, cow_undo_work);
	INIT_WORK(&store->track_work, cow_track_work);
	INIT_DELAYED_WORK(&store->track_idle_work, cow_track_idle_work);
}

/* What a new store does by default depends on its origin's device. */
static void look_at_origin(struct cow_store *store)
{
	struct block_device *bdev = store->origin->bdev;

	store->options.copy_ahead = cow_ahead_default(bdev, store->chunk_sectors);
	store->options.copy_around = cow_around_default(bdev);
}

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
	INIT_LIST_HEAD(&store->trackers);
	INIT_LIST_HEAD(&store->track_waiting);
	INIT_LIST_HEAD(&store->current_waiting);
	mutex_init(&store->track_lock);
	mutex_init(&store->dead_lock);
	xa_init(&store->ids);
	xa_init_flags(&store->records, XA_FLAGS_ALLOC);
	xa_init(&store->record_chunks);
	mutex_init(&store->records_lock);
	mutex_init(&store->left.lock);
	store->origin = origin;
	store->bdev = bdev;
	store->persistence = persistence;
	store->chunk_sectors = chunk_sectors;
	store->chunk_shift = ilog2(chunk_sectors);
	store->pendings = RB_ROOT_CACHED;
	store->kept = RB_ROOT_CACHED;
	store->writable = !bdev_read_only(bdev);
	store->below_water = true;
	cow_options_init(&store->options);
	look_at_origin(store);
	store->meets_late = !bdev_nr_sectors(origin->bdev);
	if (persistence == 'N')
		store->options.undo_buffer = cow_undo_default();
	else
		store->options.log = cow_log_default(bdev);
	init_waitqueue_head(&store->idle);
	init_work(store);
	cow_map_init(&store->map);
	cow_known_init(&store->known);
	cow_space_init(&store->space, NULL, bdev_nr_sectors(bdev) >> store->chunk_shift,
		       &origin->state_lock);
	list_add_tail_rcu(&store->flush_node, &origin->flush_stores);
	return store;
}

/* Wait for all work items of the store. */
static void stop_works(struct cow_store *store)
{
	spin_lock(&store->origin->state_lock);
	WRITE_ONCE(store->closing, true);
	spin_unlock(&store->origin->state_lock);
	wake_up(&store->idle);
	flush_work(&store->fail_work);
	cancel_work_sync(&store->mark_work);
	cancel_delayed_work_sync(&store->note_work);
	cancel_delayed_work_sync(&store->alone_work);
	cancel_delayed_work_sync(&store->zone_work);
	/* Zones that are taken ask for more tables. */
	cancel_work_sync(&store->extend_work);
	cancel_delayed_work_sync(&store->current_work);
	cancel_delayed_work_sync(&store->full_work);
	cancel_delayed_work_sync(&store->reclaim_work);
	cancel_work_sync(&store->event_work);
	flush_work(&store->check_work);
}

/* Expedited, as device-mapper's own: who removes a table may have suspended the origin. */
static void wait_for_readers(void)
{
	synchronize_rcu_expedited();
}

/* Afterwards the engine's worker does not touch the store any more. */
static void store_quiesce(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	int i;

	/* The completion of a commit's last bio may be about to put the store on the list. */
	if (store->meta)
		wait_for_readers();
	/* Twice: a round that is running now may put it on the list once more. */
	for (i = 0; i < 2 && store->meta; i++) {
		spin_lock_irq(&o->reads_lock);
		cow_meta_unlist(store->meta);
		spin_unlock_irq(&o->reads_lock);
		cow_engine_flush(o->engine);
	}
}

static void store_free(struct cow_store *store)
{
	list_del_rcu(&store->flush_node);
	/* A flush of another store that fails right now walks the list. */
	wait_for_readers();
	cow_snaps_free(store);
	kvfree(rcu_dereference_protected(store->live, true));
	cow_map_destroy(&store->map);
	cow_known_exit(&store->known);
	cow_space_destroy(&store->space);
	xa_destroy(&store->ids);
	xa_destroy(&store->records);
	xa_destroy(&store->record_chunks);
	cow_load_end(store);
	kfree(store->track_page);
	if (store->meta)
		cow_meta_destroy(store->meta);
	cow_verify_close(store);
	kfree(store);
}

/* As large as the device's physical block, within the limits of the format. */
static unsigned int pick_block_bytes(struct cow_store *store)
{
	return clamp(bdev_physical_block_size(store->bdev), COWSNAP_MIN_BLOCK_BYTES,
		     COWSNAP_MAX_BLOCK_BYTES);
}

/* A block that straddles two physical blocks can be torn. */
static void warn_misaligned(struct cow_store *store)
{
	unsigned int physical = bdev_physical_block_size(store->bdev);

	if (physical > bdev_logical_block_size(store->bdev) &&
	    bdev_alignment_offset(store->bdev))
		DMWARN("store %pg straddles its device's blocks of %u bytes: use an aligned volume",
		       store->bdev, physical);
}

static int open_tables(struct cow_store *store, unsigned int block_bytes, char **error)
{
	if (block_bytes > store->chunk_sectors << SECTOR_SHIFT) {
		cow_fail(error,
			 "Chunk of %u sectors is smaller than the blocks of %u bytes that store %pg writes: take larger chunks",
			 store->chunk_sectors, block_bytes, store->bdev);
		return -EINVAL;
	}
	if (!is_power_of_2(block_bytes) || block_bytes < COWSNAP_MIN_BLOCK_BYTES ||
	    block_bytes > COWSNAP_MAX_BLOCK_BYTES) {
		cow_fail(error, "Store %pg says that its blocks have %u bytes: run cowsnap repair",
			 store->bdev, block_bytes);
		return -EINVAL;
	}
	if (block_bytes < bdev_logical_block_size(store->bdev)) {
		cow_fail(error,
			 "Store %pg was made with blocks of %u bytes, its device now writes no less than %u: move it to a device that writes %u",
			 store->bdev, block_bytes, bdev_logical_block_size(store->bdev),
			 block_bytes);
		return -EINVAL;
	}
	warn_misaligned(store);
	store->meta = cow_meta_create(store, block_bytes);
	store->track_page = kmalloc(COWSNAP_MAX_BLOCK_BYTES, GFP_KERNEL);
	if (!store->meta || !store->track_page || cow_verify_open(store)) {
		*error = "Out of memory for a store";
		return -ENOMEM;
	}
	cow_space_init(&store->space, cow_meta_geometry(store->meta),
		       bdev_nr_sectors(store->bdev) >> store->chunk_shift,
		       &store->origin->state_lock);
	if (!store->space.total) {
		cow_fail(error, "Store %pg of %llu sectors is too small for chunks of %u",
			 store->bdev, (u64)bdev_nr_sectors(store->bdev),
			 store->chunk_sectors);
		return -EINVAL;
	}
	return 0;
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

/*
 * A store that has never had a snapshot, whatever it was made for, takes its origin as it is now.
 * That of one that is not there yet is as long as the table says, until they meet.
 */
static void take_origin(struct cow_store *store, const struct cow_snap_args *args)
{
	if (store->epoch || store->seal_state != COWSNAP_SEAL_OPEN)
		return;
	store->is_new = true;
	store->origin_sectors = bdev_nr_sectors(store->origin->bdev) ?: args->nr_sectors;
}

static int open_old(struct cow_store *store, const struct cow_snap_args *args,
		    const struct cowsnap_super *super, char **error)
{
	int r;

	if (!features_allow(store, super, error))
		return -EINVAL;
	r = open_tables(store, le32_to_cpu(super->block_bytes), error);
	store->keeps_tables = args->merge;
	return r ?: cow_load(store, super, error);
}

/*
 * Before anybody suspends the origin to make the first snapshot. A table that cannot make one is
 * going to be refused, and leaves a new device as it is.
 */
static int format(struct cow_store *store, const struct cow_snap_args *args, char **error)
{
	unsigned int noio;
	int r;

	if (!store->writable || !store->is_new || !cow_snap_may_be_first(args))
		return 0;
	/* Others may have suspended what memory would wait for. */
	noio = memalloc_noio_save();
	r = cow_super_format(store);
	memalloc_noio_restore(noio);
	if (r)
		cow_fail(error, "Store %pg cannot be written (error %d)", store->bdev, r);
	return r;
}

static int open_persistent(struct cow_store *store, const struct cow_snap_args *args,
			   enum cow_content content, const struct cowsnap_super *super,
			   char **error)
{
	int r = content == COW_CONTENT_NEW ? open_tables(store, pick_block_bytes(store), error) :
		open_old(store, args, super, error);

	if (r)
		return r;
	take_origin(store, args);
	return format(store, args, error);
}

/* A table may leave the size of chunks to the store. */
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
	if (!is_power_of_2(chunk_sectors) || chunk_sectors > COWSNAP_MAX_CHUNK_SECTORS) {
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
	int r;

	if (args->persistence == 'P') {
		content = cow_probe(bdev, super, error);
		if (content == COW_CONTENT_NO_MEMORY)
			return ERR_PTR(-ENOMEM);
		if ((content != COW_CONTENT_NEW && content != COW_CONTENT_STORE) ||
		    !complete_args(bdev, args, content, super, error))
			return ERR_PTR(-EINVAL);
	}
	if (!chunk_fits(origin, bdev_nr_sectors(origin->bdev) ?: args->nr_sectors, bdev,
			args->persistence, args->chunk_sectors, error))
		return ERR_PTR(-EINVAL);
	store = store_alloc(origin, bdev, args->persistence, args->chunk_sectors);
	if (!store) {
		*error = "Out of memory for a store";
		return ERR_PTR(-ENOMEM);
	}
	if (args->persistence == 'N')
		r = check_transient(bdev, super, error);
	else
		r = open_persistent(store, args, content, super, error) ?:
		    cow_seal_alone(store, error);
	if (r) {
		stop_works(store);
		store_quiesce(store);
		store_free(store);
		return ERR_PTR(r);
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
		return ERR_PTR(-EINVAL);
	super = kzalloc(sizeof(*super), GFP_KERNEL);
	if (!super) {
		*error = "Out of memory for a store";
		return ERR_PTR(-ENOMEM);
	}
	store = store_read(origin, bdev, &args, super, error);
	kfree(super);
	if (IS_ERR(store))
		return store;
	origin->refs++;
	list_add_tail(&store->all_node, &origin->all_stores);
	return store;
}

/* ---------------------------------------------------------------------- close */

static bool store_is_idle(struct cow_store *store)
{
	struct cow_pending *p;
	bool idle;

	spin_lock(&store->origin->state_lock);
	idle = !store->nr_pendings;
	/*
	 * Else those that were copied ahead wait while others need copies. The next one is looked
	 * for when this one has woken us.
	 */
	p = idle ? NULL : cow_pending_overlap(store, 0, U64_MAX);
	if (p)
		cow_pending_need(p);
	spin_unlock(&store->origin->state_lock);
	return idle;
}

/* Writes look at the store no more, and those that wait for it decide again. */
static void store_unhook(struct cow_store *store)
{
	struct cow_origin *origin = store->origin;
	struct cow_live *live;

	spin_lock(&origin->state_lock);
	if (!list_empty(&store->node))
		list_del_rcu(&store->node);
	live = rcu_replace_pointer(store->live, NULL, lockdep_is_held(&origin->state_lock));
	if (store->blocked == COW_STORE_FULL || store->blocked == COW_STORE_PREPARING)
		cow_store_unblock(store);
	spin_unlock(&origin->state_lock);
	wait_for_readers();
	kvfree(live);
}

/* A persistent store leaves the zones of its log and notes its last commit before it is closed. */
static int store_checkpoint(struct cow_store *store)
{
	int r;

	/* One that has not met its origin was read, and no more; or it was made, and no more. */
	if (!cow_store_is_formatted(store) || store->meets_late || store->is_new)
		return 0;
	if (!store->writable)
		return store->invalid_not_on_disk ? -EROFS : 0;
	cow_zones_close(store);
	r = cow_super_write(store, NULL);
	if (!r)
		cow_super_settle(store);
	if (r)
		DMERR("store %pg: cannot be closed properly (%d)%s", store->bdev, r,
		      store->invalid_not_on_disk ?
		      ": its snapshots are invalid, but it does not say so" : "");
	return r;
}

/* The last table is gone. */
static void store_close(struct cow_store *store)
{
	struct cow_origin *origin = store->origin;
	bool said;

	cow_merge_stop(store);
	cow_settle_stop(store);
	/* Before it is unhooked: no write may miss both. */
	if (store->meta && !list_empty(&store->node) &&
	    (rcu_access_pointer(store->live) || !list_empty(&store->trackers)))
		cow_absent_add(origin, cow_meta_uuid(store->meta), false);
	store_unhook(store);
	cow_track_release(store);
	cow_engine_set_closing(origin->engine, true);
	wait_event(store->idle, store_is_idle(store));
	cow_undo_close(store);
	cow_engine_set_closing(origin->engine, false);
	cow_engine_buffer(origin->engine, store->undo_reserved, 0);
	stop_works(store);
	said = cow_trackers_close(store);
	/* One that was lost has queued it once more. */
	cancel_work_sync(&store->event_work);
	if (store_checkpoint(store) && store->invalid_not_on_disk)
		said = false;
	/* On disk the snapshots are still live: at least this module remembers better. */
	if (!said)
		cow_absent_add(origin, cow_meta_uuid(store->meta), true);
	store_quiesce(store);
	cow_current_unhook(store);
	cow_seal_forget(store);
	list_del(&store->all_node);
	store_free(store);
	cow_origin_put(origin);
}

/* ----------------------------------------------------------------- references */

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
		return ERR_PTR(-EINVAL);
	if (!store)
		store = store_open(origin, bdev, *args, error);
	if (!IS_ERR(store))
		store->refs++;
	return store;
}

void cow_store_use(struct cow_store *store)
{
	lockdep_assert_held(&cow_registry_mutex);
	WRITE_ONCE(store->users, store->users + 1);
}

void cow_store_unuse(struct cow_store *store)
{
	lockdep_assert_held(&cow_registry_mutex);
	WRITE_ONCE(store->users, store->users - 1);
	wake_up(&store->idle);
}

/*
 * The last table holds the store's device, so it waits for the messages that use the store.
 * These may need the registry meanwhile, and another table may come.
 */
void cow_store_put(struct cow_store *store)
{
	lockdep_assert_held(&cow_registry_mutex);
	while (store->refs == 1 && store->users) {
		mutex_unlock(&cow_registry_mutex);
		wait_event(store->idle, !READ_ONCE(store->users));
		mutex_lock(&cow_registry_mutex);
	}
	if (!--store->refs)
		store_close(store);
}

/* 0, or a negative errno after a line in the log. */
static int check_late(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	char *error;

	if (!chunk_fits(o, bdev_nr_sectors(o->bdev), store->bdev, store->persistence,
			store->chunk_sectors, &error)) {
		DMERR("%s", error);
		return -EINVAL;
	}
	/* A transient one is always new. */
	if (store->is_new || !store->meta) {
		look_at_origin(store);
		store->origin_sectors = bdev_nr_sectors(o->bdev);
	} else if (store->origin_sectors > bdev_nr_sectors(o->bdev)) {
		DMERR("store %pg is for an origin of %llu sectors, %pg has %llu: use that one",
		      store->bdev, (u64)store->origin_sectors, o->bdev,
		      (u64)bdev_nr_sectors(o->bdev));
		return -EINVAL;
	}
	return 0;
}

static int settle_late(struct cow_store *store)
{
	int r = cow_load_settle(store);

	if (r)
		DMERR("store %pg cannot be opened (%d): %s", store->bdev, r,
		      r == -ENOMEM ? "resume its tables again" :
		      "remove its tables and load them again");
	else
		store->meets_late = false;
	return r;
}

/*
 * Whether they belong together is not looked at while the table is loaded: then the origin's device
 * may be suspended, and whoever reads it would wait with the registry in his hand.
 */
int cow_store_meet_origin(struct cow_store *store)
{
	char *error;
	int r;

	lockdep_assert_held(&store->origin->admin_lock);
	r = store->meets_late ? check_late(store) : 0;
	if (r)
		return r;
	r = cow_seal_check(store, &error);
	if (r) {
		DMERR("%s", error);
		return r;
	}
	return store->meets_late ? settle_late(store) : 0;
}

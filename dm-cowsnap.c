// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the targets
 *
 * This file takes tables into force, hands each bio to the decision in io/decide.c,
 * and has the module's entry points. Tables are read in target/table.c, status and
 * messages are answered in target/status.c and target/message.c. All state lives in
 * origin, store and snapshot, which every table that names them shares: a reload has
 * two tables for a moment and one state.
 *
 * Protection of a snapshot begins when its table is resumed (preresume), whatever was
 * created or resumed before, and ends when its last table goes (dtr).
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "dm-cowsnap-compat.h"
#include "dm-cowsnap-exception.h"
#include "dm-cowsnap.h"
#include "admin/activate.h"
#include "admin/merge.h"
#include "admin/origin.h"
#include "admin/snapshots.h"
#include "admin/store.h"
#include "admin/tuning.h"
#include "copy/pending.h"
#include "disk/seal.h"
#include "disk/verify.h"
#include "io/bio.h"
#include "io/decide.h"
#include "origin/absent.h"
#include "origin/bio.h"
#include "origin/flush.h"
#include "origin/gate.h"
#include "origin/registry.h"
#include "origin/seal.h"
#include "origin/tables.h"
#include "store/error.h"
#include "store/room.h"
#include "target/claim.h"
#include "target/device.h"
#include "target/message.h"
#include "target/status.h"
#include "target/table.h"
#include "target/target.h"

/* Last: the headers above must not be read with this defined. */
#define CREATE_TRACE_POINTS
#include "trace/cowsnap.h"

/* --------------------------------------------------------- tables come and go */

static struct cow_target *target_alloc(struct dm_target *ti)
{
	struct cow_target *ct = kzalloc(sizeof(*ct), GFP_KERNEL);

	if (!ct) {
		ti->error = "Out of memory for a table";
		return NULL;
	}
	INIT_LIST_HEAD(&ct->table.store_node);
	INIT_LIST_HEAD(&ct->table.origin_node);
	ct->table.ti = ti;
	ct->claimed = cow_target_is_claimed(ti->type);
	return ct;
}

static void target_free(struct dm_target *ti, struct cow_target *ct)
{
	if (ct->store_dev)
		dm_put_device(ti, ct->store_dev);
	if (ct->origin_dev)
		dm_put_device(ti, ct->origin_dev);
	kfree(ct);
}

/*
 * Take a reference on the origin. It may be frozen when the table is resumed: what that needs has
 * the time until then that it takes to open a store.
 */
static int origin_attach(struct dm_target *ti, struct cow_target *ct)
{
	struct cow_origin *o;

	mutex_lock(&cow_registry_mutex);
	o = cow_origin_get(ct->origin_dev->bdev, &ti->error);
	mutex_unlock(&cow_registry_mutex);
	if (IS_ERR(o))
		return PTR_ERR(o);
	ct->origin = o;
	ct->gathers = cow_gate_gather(o);
	return 0;
}

/* Take references on the rest of what the table names, and list it. */
static int target_attach(struct dm_target *ti, struct cow_target *ct,
			 const struct cow_snap_args *args, bool has_snap)
{
	int r;

	lockdep_assert_held(&cow_registry_mutex);
	if (!ct->store_dev)
		goto add;
	ct->store = cow_store_get(ct->origin, ct->store_dev->bdev, args, &ti->error);
	r = PTR_ERR_OR_ZERO(ct->store);
	if (r)
		return r;
	if (has_snap) {
		ct->snap = cow_snap_get(ct->store, args, &ti->error);
		r = PTR_ERR_OR_ZERO(ct->snap);
		if (r)
			goto put_store;
	}
add:
	ct->table.snap = ct->snap;
	cow_table_add(&ct->table, ct->origin, ct->store);
	return 0;

put_store:
	cow_store_put(ct->store);
	return r;
}

/* It was resumed, is refused or gone. */
static void table_prepared(struct cow_target *ct)
{
	if (ct->gathers)
		cow_gate_let_go(ct->origin);
	ct->gathers = false;
}

/* It is loaded, and may be resumed soon: what need not wait for that is begun. */
static int table_prepare(struct dm_target *ti, struct cow_target *ct,
			 const struct cow_snap_args *args, bool has_snap)
{
	int r = origin_attach(ti, ct);

	if (r)
		return r;
	mutex_lock(&cow_registry_mutex);
	r = target_attach(ti, ct, args, has_snap);
	mutex_unlock(&cow_registry_mutex);
	if (!r) {
		if (ct->store)
			cow_store_prepare(ct->store);
		return 0;
	}
	table_prepared(ct);
	mutex_lock(&cow_registry_mutex);
	cow_origin_put(ct->origin);
	mutex_unlock(&cow_registry_mutex);
	return r;
}

/* It is in force, or cannot be: what its resumption need not wait for is begun. */
static void table_resumed(struct cow_target *ct)
{
	table_prepared(ct);
	if (ct->store)
		cow_store_begin_log(ct->store);
}

/* It is in use again, or gone: dm removes a device without resuming it. */
static void table_unsuspend(struct cow_target *ct)
{
	spin_lock(&ct->origin->state_lock);
	ct->origin->nr_suspending -= ct->table.suspending;
	ct->table.suspending = false;
	spin_unlock(&ct->origin->state_lock);
}

static void target_dtr(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;

	table_unsuspend(ct);
	table_prepared(ct);
	mutex_lock(&cow_registry_mutex);
	cow_table_del(&ct->table);
	if (ct->snap)
		cow_snap_put(ct->snap);
	if (ct->store)
		cow_store_put(ct->store);
	cow_origin_put(ct->origin);
	mutex_unlock(&cow_registry_mutex);
	target_free(ti, ct);
}

/*
 * What a table without a store shows is home, which has no more than a seal where the origin
 * begins if that is sealed. Once for each table, unless home could not be read: and not while it is
 * loaded, when home may be suspended.
 */
static int check_bare(struct cow_target *ct)
{
	char *error;
	int r;

	if (ct->store)
		return 0;
	/* Since then its store has come into force. */
	if (READ_ONCE(ct->origin->sealed_end)) {
		DMERR("origin %pg is sealed by a store in use: name that with the feature store",
		      ct->origin->bdev);
		return -EINVAL;
	}
	if (ct->not_sealed || !bdev_nr_sectors(ct->origin_dev->bdev))
		return 0;
	r = cow_seal_bare(ct->origin_dev->bdev, &ct->not_sealed, &error);
	if (r)
		DMERR("%s", error);
	return r;
}

static int resume_target(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;
	int r;

	/* See cow_check_length(). */
	if (cow_comes_early(ti, ct) && ti->len > bdev_nr_sectors(ct->origin_dev->bdev)) {
		DMERR("origin %s has %llu sectors, less than the %llu of the table",
		      ct->origin_dev->name, (u64)bdev_nr_sectors(ct->origin_dev->bdev),
		      (u64)ti->len);
		return -EINVAL;
	}
	r = check_bare(ct);
	if (!r && ct->store)
		r = cow_store_activate(ct->store);
	if (!r && ct->options.given)
		r = cow_store_set_options(ct->store, &ct->options);
	if (!r)
		cow_table_resumed(&ct->table);
	return r;
}

static int resume_noio(struct dm_target *ti)
{
	/* Others may be suspended, with their filesystems: memory must not wait for them. */
	unsigned int noio = memalloc_noio_save();
	int r = resume_target(ti);

	memalloc_noio_restore(noio);
	return r;
}

static int origin_preresume(struct dm_target *ti)
{
	int r = resume_noio(ti);

	table_resumed(ti->private);
	return r;
}

/* ----------------------------------------------------------------------- bios */

/* Its sectors are the target's from now on. */
static struct cow_bio *bio_of(struct dm_target *ti, struct bio *bio)
{
	bio->bi_iter.bi_sector = dm_target_offset(ti, bio->bi_iter.bi_sector);
	return dm_per_bio_data(bio, sizeof(struct cow_bio));
}

/* The fields that end_io reads, for bios that need nothing else. */
static void bio_begin(struct cow_bio *cb)
{
	cb->plain = false;
	cb->snap = NULL;
	cb->gated = false;
	cb->going = false;
	cb->user = false;
	cb->tracked = false;
	cb->reading = false;
	cb->verify_on_end = false;
	cb->via_merge = false;
	cb->merging = false;
	cb->losses = NULL;
	cb->flushed = NULL;
	cb->piece = false;
	cb->left.bi_size = 0;
	cb->exact = false;
	cb->carries = NULL;
	cb->then_home = false;
	cb->home_at_last = false;
}

/* Whoever hears that it cannot be done now, or that there is no room, takes nothing for lost. */
static bool may_tell(blk_status_t error)
{
	return error != BLK_STS_AGAIN && error != BLK_STS_NOSPC;
}

static int target_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	struct cow_bio *cb = dm_per_bio_data(bio, sizeof(*cb));
	int r;

	if (cb->plain)
		return DM_ENDIO_DONE;
	r = cow_bio_ended(cb, error);
	/* A user who was told by an error of this flush needs no other. */
	if (r == DM_ENDIO_DONE && cb->losses && may_tell(*error) &&
	    cow_flush_tells_user(cb->losses, bio->bi_opf) && !*error)
		*error = BLK_STS_IOERR;
	return r;
}

static int target_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn,
				  void *data)
{
	struct cow_target *ct = ti->private;
	int r = fn(ti, ct->origin_dev, 0, ti->len, data);

	if (!r && ct->store_dev)
		r = fn(ti, ct->store_dev, 0, bdev_nr_sectors(ct->store_dev->bdev), data);
	return r;
}

/* ------------------------------------------------------------- cowsnap-origin */

static int origin_open(struct dm_target *ti, struct cow_target *ct, const char *path,
		       const char *store)
{
	struct cow_snap_args args = {
		.writable = dm_table_get_mode(ti->table) & BLK_OPEN_WRITE,
	};
	int r = cow_open_device(ti, path, dm_table_get_mode(ti->table), &ct->origin_dev);

	if (!r)
		r = cow_check_length(ti, ct);
	if (!r && store)
		r = cow_open_store(ti, ct, store);
	return r ?: table_prepare(ti, ct, &args, false);
}

/*
 * Two devices may have acknowledged writes: the origin's, and the store of a sealed origin, or of a
 * merge that is under way, which the table need not name. So flushes come here even if the devices
 * of the table have no cache. A table without a store never shows a sealed origin: it has
 * one bio, which goes to both devices during a merge, one after the other.
 */
static void origin_take_flushes(struct dm_target *ti, const struct cow_target *ct)
{
	ti->num_flush_bios = ct->table.bare ? 1 : 2;
	ti->flush_supported = true;
}

static int origin_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { .argc = argc, .argv = argv };
	const char *path, *store = NULL;
	struct cow_target *ct;
	int r = -EINVAL;

	if (!argc) {
		ti->error = "A word is missing: <origin_dev> [<#features> <feature>...]";
		return r;
	}
	ct = target_alloc(ti);
	if (!ct)
		return -ENOMEM;
	ct->table.shows_origin = true;
	path = dm_shift_arg(&as);
	r = cow_read_origin_features(ti, &as, ct, &store);
	if (!r)
		r = origin_open(ti, ct, path, store);
	if (r) {
		target_free(ti, ct);
		return r;
	}
	ti->private = ct;
	ti->per_io_data_size = sizeof(struct cow_bio);
	origin_take_flushes(ti, ct);
	ti->num_write_zeroes_bios = 1;
	ti->num_discard_bios = ct->discard != COW_DISCARD_NONE;
	return 0;
}

/*
 * An empty flush: the first of the two is for the origin's device. The store of a sealed origin is
 * held by the table. That of a merge is not: then it is for the merge to decide. The only bio of a
 * table without a store is for the merge's store first, and then for home.
 */
static bool flush_is_mapped(struct cow_target *ct, struct cow_bio *cb, int *r)
{
	bool is_first = !dm_bio_get_target_bio_nr(cb->bio);
	struct cow_origin *o = ct->origin;

	if (is_first)
		cow_flush_begins(&o->losses);
	if (ct->table.bare && READ_ONCE(o->merge)) {
		cb->then_home = true;
		return false;
	}
	/* Pairs with smp_store_release() in tell_origin(). */
	if (!is_first && !smp_load_acquire(&o->sealed_end)) {
		if (READ_ONCE(o->merge))
			return false;
		bio_endio(cb->bio);
		*r = DM_MAPIO_SUBMITTED;
		return true;
	}
	if (!is_first)
		bio_set_dev(cb->bio, o->sealed_bdev);
	cow_bio_sent(cb);
	*r = DM_MAPIO_REMAPPED;
	return true;
}

static int origin_map(struct dm_target *ti, struct bio *bio)
{
	struct cow_target *ct = ti->private;
	struct cow_bio *cb = bio_of(ti, bio);
	int r;

	bio_set_dev(bio, ct->origin_dev->bdev);
	if (bio_data_dir(bio) == READ && !READ_ONCE(ct->origin->merge) &&
	    !READ_ONCE(ct->origin->redirects_to) &&
	    !cow_is_sealed(ct->origin, bio->bi_iter.bi_sector)) {
		cb->plain = true;
		return DM_MAPIO_REMAPPED;
	}
	bio_begin(cb);
	cb->origin = ct->origin;
	cb->bio = bio;
	if (op_is_flush(bio->bi_opf))
		cb->losses = &ct->origin->losses;
	if (!bio_sectors(bio) && flush_is_mapped(ct, cb, &r))
		return r;
	cb->discard = ct->discard;
	return cow_bio_map(cb);
}

/* Freezing the filesystem, which is next, waits for writers that wait for room. */
static void origin_presuspend(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;
	struct cow_origin *o = ct->origin;
	struct cow_store *store;

	spin_lock(&o->state_lock);
	o->nr_suspending += !ct->table.suspending;
	ct->table.suspending = true;
	list_for_each_entry(store, &o->stores, node)
		cow_store_stop_waiting(store);
	spin_unlock(&o->state_lock);
}

static void origin_unsuspend(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;

	table_unsuspend(ct);
}

/* -------------------------------------------------- cowsnap and cowsnap-merge */

static int snap_open(struct dm_target *ti, struct cow_target *ct, const char *origin,
		     const char *store, struct cow_snap_args *args)
{
	int r = cow_open_device(ti, origin, args->merge ? dm_table_get_mode(ti->table) :
			    BLK_OPEN_READ, &ct->origin_dev);

	if (!r)
		r = cow_open_store(ti, ct, store);
	if (!r)
		r = cow_check_length(ti, ct);
	if (r)
		return r;
	/* LVM's order: merge loaded, snapshot suspended, merge resumed, which looks again. */
	args->takes_over = cow_comes_early(ti, ct);
	return table_prepare(ti, ct, args, true);
}

static int snap_or_merge_ctr(struct dm_target *ti, unsigned int argc, char **argv, bool merge)
{
	struct dm_arg_set as = { .argc = argc, .argv = argv };
	struct cow_snap_args args = {
		.writable = dm_table_get_mode(ti->table) & BLK_OPEN_WRITE,
		.nr_sectors = ti->len,
		.merge = merge,
	};
	const char *origin, *store;
	struct cow_target *ct;
	int r;

	if (argc < 4) {
		cow_fail(&ti->error,
			 "%u words are missing: <origin> <store> <%s> <chunk>",
			 4 - argc, merge ? "P|PO" : "P|PO|N|NO");
		return -EINVAL;
	}
	ct = target_alloc(ti);
	if (!ct)
		return -ENOMEM;
	ct->table.shows_origin = merge;
	args.claimed = ct->claimed;
	origin = dm_shift_arg(&as);
	store = dm_shift_arg(&as);
	r = cow_read_snap_table(ti, &as, ct, &args);
	if (!r)
		r = snap_open(ti, ct, origin, store, &args);
	if (r) {
		target_free(ti, ct);
		return r;
	}
	ti->private = ct;
	ti->per_io_data_size = sizeof(struct cow_bio);
	ti->num_flush_bios = 1;
	if (merge)
		origin_take_flushes(ti, ct);
	ti->num_write_zeroes_bios = 1;
	ti->num_discard_bios = merge || ct->discard_zeroes_cow;
	ti->discards_supported = ct->discard_zeroes_cow;
	return 0;
}

static int snap_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	return snap_or_merge_ctr(ti, argc, argv, false);
}

static int merge_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	return snap_or_merge_ctr(ti, argc, argv, true);
}

static int snap_preresume(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;
	int r = resume_noio(ti);

	if (!r)
		r = cow_snap_activate(ct->snap, ti->len);
	if (!r)
		WRITE_ONCE(ct->table.shows_snap, true);
	table_resumed(ct);
	return r;
}

static void snap_postsuspend(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;

	WRITE_ONCE(ct->table.shows_snap, false);
}

static int merge_begin(struct cow_target *ct)
{
	unsigned int noio;
	int r;

	if (cow_snap_is_shown(ct->snap)) {
		DMERR("store %pg: snapshot %u has a device: suspend it before it is merged",
		      ct->store->bdev, ct->snap->id);
		return -EBUSY;
	}
	noio = cow_admin_enter(ct->origin);
	r = cow_merge_activate(ct->snap, ct->claimed);
	cow_admin_leave(ct->origin, noio);
	return r;
}

static int merge_preresume(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;
	int r = resume_noio(ti);

	if (!r)
		r = merge_begin(ct);
	table_resumed(ct);
	return r;
}

static int snap_map(struct dm_target *ti, struct bio *bio)
{
	struct cow_target *ct = ti->private;
	struct cow_bio *cb = bio_of(ti, bio);

	bio_begin(cb);
	cb->bio = bio;
	cb->origin = ct->origin;
	if (op_is_flush(bio->bi_opf))
		cb->losses = &ct->store->losses;
	if (!bio_sectors(bio)) {
		cow_flush_begins(&ct->store->losses);
		bio_set_dev(bio, ct->store_dev->bdev);
		cow_bio_sent(cb);
		return DM_MAPIO_REMAPPED;
	}
	cb->snap = ct->snap;
	cb->passdown = ct->discard_passdown_origin;
	cb->full_is_end = ct->claimed;
	return cow_bio_map(cb);
}

static void snap_io_hints(struct dm_target *ti, struct queue_limits *limits)
{
	struct cow_target *ct = ti->private;
	unsigned int chunk_sectors = ct->store->chunk_sectors;

	if (!ct->discard_zeroes_cow)
		return;
	limits->discard_granularity = chunk_sectors << SECTOR_SHIFT;
	limits->max_hw_discard_sectors = round_down(UINT_MAX >> SECTOR_SHIFT,
						    chunk_sectors);
	limits->max_discard_sectors = limits->max_hw_discard_sectors;
}

/* --------------------------------------------------------------------- module */

static struct target_type origin_target_type = {
	.name = "cowsnap-origin",
	.version = COWSNAP_TARGET_VERSION,
	.features = DM_TARGET_NOWAIT,
	.module = THIS_MODULE,
	.ctr = origin_ctr,
	.dtr = target_dtr,
	.map = origin_map,
	.end_io = target_end_io,
	.presuspend = origin_presuspend,
	.presuspend_undo = origin_unsuspend,
	.preresume = origin_preresume,
	.resume = origin_unsuspend,
	.status = cow_origin_status,
	.message = cow_target_message,
	.iterate_devices = target_iterate_devices,
};

static struct target_type snap_target_type = {
	.name = "cowsnap",
	.version = COWSNAP_TARGET_VERSION,
	.features = DM_TARGET_NOWAIT,
	.module = THIS_MODULE,
	.ctr = snap_ctr,
	.dtr = target_dtr,
	.map = snap_map,
	.end_io = target_end_io,
	.preresume = snap_preresume,
	.postsuspend = snap_postsuspend,
	.status = cow_snap_status,
	.message = cow_target_message,
	.iterate_devices = target_iterate_devices,
	.io_hints = snap_io_hints,
};

static struct target_type merge_target_type = {
	.name = "cowsnap-merge",
	.version = COWSNAP_TARGET_VERSION,
	.features = DM_TARGET_NOWAIT,
	.module = THIS_MODULE,
	.ctr = merge_ctr,
	.dtr = target_dtr,
	.map = origin_map,
	.end_io = target_end_io,
	.presuspend = origin_presuspend,
	.presuspend_undo = origin_unsuspend,
	.preresume = merge_preresume,
	.resume = origin_unsuspend,
	.status = cow_merge_status,
	.message = cow_target_message,
	.iterate_devices = target_iterate_devices,
};

static struct target_type * const target_types[COW_NR_TARGETS] = {
	[COW_TARGET_ORIGIN] = &origin_target_type,
	[COW_TARGET_SNAP] = &snap_target_type,
	[COW_TARGET_MERGE] = &merge_target_type,
};

static void unregister_targets(unsigned int nr)
{
	while (nr--)
		dm_unregister_target(target_types[nr]);
}

static int register_targets(void)
{
	unsigned int i;
	int r;

	for (i = 0; i < ARRAY_SIZE(target_types); i++) {
		r = dm_register_target(target_types[i]);
		if (r) {
			unregister_targets(i);
			return r;
		}
	}
	return 0;
}

static int __init cowsnap_init(void)
{
	int r;

	r = cow_exception_init();
	if (r)
		return r;
	r = cow_pending_init();
	if (r)
		goto exit_exception;
	r = cow_verify_init();
	if (r)
		goto exit_pending;
	r = cow_claim_register(target_types);
	if (r)
		goto exit_verify;
	r = register_targets();
	if (r)
		goto unclaim;
	return 0;

unclaim:
	cow_claim_unregister();
exit_verify:
	cow_verify_exit();
exit_pending:
	cow_pending_exit();
exit_exception:
	cow_exception_exit();
	return r;
}

static void __exit cowsnap_exit(void)
{
	unregister_targets(ARRAY_SIZE(target_types));
	cow_claim_unregister();
	cow_absent_exit();
	cow_verify_exit();
	cow_pending_exit();
	cow_exception_exit();
}

module_init(cowsnap_init);
module_exit(cowsnap_exit);

MODULE_DESCRIPTION("device-mapper snapshots with shared copy-on-write stores");
MODULE_AUTHOR("The dm-cowsnap developers");
MODULE_LICENSE("GPL");
MODULE_VERSION(COWSNAP_VERSION);
MODULE_ALIAS("dm-cowsnap-origin");
MODULE_ALIAS("dm-cowsnap-merge");

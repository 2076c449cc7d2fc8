// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the targets
 *
 *   0 <len> cowsnap-origin <origin_dev> [<#features> <feature>...]
 *   0 <len> cowsnap <origin_dev> <store_dev> <P|PO|N|NO> <chunk_sectors> [<#features> ...]
 *   0 <len> cowsnap-merge <origin_dev> <store_dev> <P|PO> <chunk_sectors> [<#features> ...]
 *
 * This file reads tables, opens devices, answers status and messages, and hands
 * each bio to the decision in dm-cowsnap-origin.c. All state lives in origin,
 * store and snapshot, which every table that names them shares: a reload has two
 * tables for a moment and one state, handed over.
 *
 * Protection of a snapshot begins when its table is resumed (preresume), whatever
 * was created or resumed before, and ends when its last table goes (dtr).
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "dm-cowsnap-compat.h"

/* What all three targets have; a cowsnap-origin has no store, or no snapshot. */
struct cow_target {
	struct list_head node;		/* store->tables, under table_mutex */
	struct list_head origin_node;	/* origin->tables, the same */
	struct dm_target *ti;
	struct dm_dev *origin_dev;
	struct dm_dev *store_dev;
	struct cow_origin *origin;
	struct cow_store *store;
	struct cow_snap *snap;
	enum cow_discard discard;
	struct cow_options options;	/* as given */
	bool claimed;			/* in dm-snapshot's place */
	bool resumed;			/* a snapshot that may be read and written */
	bool shows_origin;		/* cowsnap-origin, cowsnap-merge */
	bool in_force;			/* was resumed, may be suspended; table_mutex */
	bool discard_given;
	bool id_given;
	bool discard_zeroes_cow;
	bool discard_passdown_origin;
};

/* Guards store->tables, who gets events, and origin->tables. */
static DEFINE_MUTEX(table_mutex);

void cow_fail(char **error, const char *format, ...)
{
	/* dm prints ti->error right after ctr: a few buffers in turn will do. */
	static char words[8][192];
	static atomic_t turn;
	unsigned int i = atomic_inc_return(&turn);
	va_list args;

	*error = words[i % ARRAY_SIZE(words)];
	va_start(args, format);
	vscnprintf(*error, sizeof(words[0]), format, args);
	va_end(args);
}

/* ---------------------------------------------------------------- reading tables */

static int read_number(char **error, const char *what, const char *word,
		       unsigned int min, unsigned int max, unsigned int *value)
{
	if (!word)
		cow_fail(error, "%s: the number is missing", what);
	else if (kstrtouint(word, 10, value))
		cow_fail(error, "%s: \"%s\" is not a number", what, word);
	else if (*value < min || *value > max)
		cow_fail(error, "%s: %u is not between %u and %u", what, *value, min, max);
	else
		return 0;
	return -EINVAL;
}

static const char * const on_full_words[] = {
	[COWSNAP_FULL_INVALIDATE] = "invalidate",
	[COWSNAP_FULL_DROP_OLDEST] = "drop_oldest",
	[COWSNAP_FULL_WAIT] = "wait",
};

/* An option of the store, in a table or a message. -ENOENT: it is none. */
static int read_option(char **error, const char *name, const char *word,
		       struct cow_options *options)
{
	int i;

	if (!strcmp(name, "throttle"))
		return read_number(error, name, word, 1, 100, &options->throttle);
	if (!strcmp(name, "low_water"))
		return read_number(error, name, word, 1, 100, &options->low_water);
	if (!strcmp(name, "wait_timeout"))
		return read_number(error, name, word, 1, 119, &options->wait_timeout);
	if (!strcmp(name, "copy_ahead")) {
		int r = read_number(error, name, word, 0, COW_AHEAD_MAX, &options->copy_ahead);

		options->copy_ahead++;
		return r;
	}
	if (!strcmp(name, "copy_around")) {
		int r = read_number(error, name, word, 0, COW_AROUND_MAX, &options->copy_around);

		if (!r && options->copy_around != cow_around_size(options->copy_around)) {
			cow_fail(error, "copy_around: %u is not 0 or 2^n from %u to %u",
				 options->copy_around, COW_AROUND_MIN, COW_AROUND_MAX);
			r = -EINVAL;
		}
		options->copy_around++;
		return r;
	}
	if (!strcmp(name, "undo_buffer")) {
		int r = read_number(error, name, word, 0, COW_UNDO_MAX, &options->undo_buffer);

		options->undo_buffer++;
		return r;
	}
	if (strcmp(name, "on_full"))
		return -ENOENT;
	i = match_string(on_full_words, ARRAY_SIZE(on_full_words), word ?: "");
	if (i < 0) {
		cow_fail(error, "on_full: \"%s\" is none of invalidate, drop_oldest, wait",
			 word ?: "");
		return -EINVAL;
	}
	options->on_full = i + 1;
	return 0;
}

/* The count in front of the features; it has to be the number of what follows. */
static int read_feature_count(struct dm_target *ti, struct dm_arg_set *as)
{
	unsigned int count;
	int r;

	if (!as->argc)
		return 0;
	r = read_number(&ti->error, "Number of features", dm_shift_arg(as), 0, 64, &count);
	if (r)
		return r;
	if (count > as->argc) {
		cow_fail(&ti->error, "Number of features is %u, but only %u words follow",
			 count, as->argc);
		return -EINVAL;
	}
	if (count < as->argc) {
		cow_fail(&ti->error, "Number of features is %u, so \"%s\" is one word too many",
			 count, as->argv[count]);
		return -EINVAL;
	}
	return 0;
}

static int open_device(struct dm_target *ti, const char *path, blk_mode_t mode,
		       struct dm_dev **dev)
{
	int r = dm_get_device(ti, path, mode, dev);

	if (r == -EBUSY)
		cow_fail(&ti->error,
			 "Device %s is in use: unmount it, or free its partitions",
			 path);
	else if (r == -EACCES || r == -EROFS || r == -EPERM)
		cow_fail(&ti->error,
			 "Device %s is read-only: make it writable, or use -r",
			 path);
	else if (r == -ENODEV || r == -ENXIO || r == -ENOENT || r == -EINVAL)
		cow_fail(&ti->error, "Device %s does not exist", path);
	else if (r)
		cow_fail(&ti->error, "Device %s cannot be opened (error %d)", path, r);
	return r;
}

/*
 * LVM loads tables before those of the devices below are in force: what depends on these
 * is looked at when the table is resumed.
 */
static bool comes_early(struct dm_target *ti, struct cow_target *ct)
{
	return ct->claimed || MAJOR(ct->origin_dev->bdev->bd_dev) ==
		MAJOR(disk_devt(dm_disk(dm_table_get_md(ti->table))));
}

static int check_length(struct dm_target *ti, struct cow_target *ct)
{
	u64 has = bdev_nr_sectors(ct->origin_dev->bdev);

	if (ti->len <= has || comes_early(ti, ct))
		return 0;
	cow_fail(&ti->error, "Length of %llu sectors is more than origin %s has: %llu",
		 (u64)ti->len, ct->origin_dev->name, has);
	return -EINVAL;
}

static int refuse_feature(struct dm_target *ti, const char *word)
{
	cow_fail(&ti->error, "Unknown feature \"%s\"", word);
	return -EINVAL;
}

/* 0: there is no such device. */
static dev_t device_number(const char *name)
{
	unsigned int major, minor;
	dev_t dev;

	if (sscanf(name, "%u:%u", &major, &minor) == 2)
		return MKDEV(major, minor);
	return lookup_bdev(name, &dev) ? 0 : dev;
}

/* Old chunks are written even under a read-only table, if the device lets us. */
static int open_store(struct dm_target *ti, struct cow_target *ct, const char *path)
{
	bool writable = dm_table_get_mode(ti->table) & BLK_OPEN_WRITE;
	int r;

	/* Not once it is open: opened again to be written it is another dm_dev. */
	if (device_number(path) == ct->origin_dev->bdev->bd_dev) {
		cow_fail(&ti->error, "Origin and store are the same device %s", path);
		return -EINVAL;
	}
	r = open_device(ti, path, BLK_OPEN_READ | BLK_OPEN_WRITE, &ct->store_dev);
	if (!writable && (r == -EACCES || r == -EROFS || r == -EPERM))
		r = open_device(ti, path, BLK_OPEN_READ, &ct->store_dev);
	return r;
}

/* -------------------------------------------------------------- tables come and go */

static struct cow_target *target_alloc(struct dm_target *ti)
{
	struct cow_target *ct = kzalloc(sizeof(*ct), GFP_KERNEL);

	if (!ct) {
		ti->error = "Out of memory for a table";
		return NULL;
	}
	INIT_LIST_HEAD(&ct->node);
	INIT_LIST_HEAD(&ct->origin_node);
	ct->ti = ti;
	ct->claimed = cow_target_is_claimed(ti->type);
	return ct;
}

/* Devices that were opened, and the rest of the table. */
static void target_free(struct dm_target *ti, struct cow_target *ct)
{
	if (ct->store_dev)
		dm_put_device(ti, ct->store_dev);
	if (ct->origin_dev)
		dm_put_device(ti, ct->origin_dev);
	kfree(ct);
}

/* References on what the table names, and a place among those who get events. */
static int target_attach(struct dm_target *ti, struct cow_target *ct,
			 const struct cow_snap_args *args, bool has_snap)
{
	lockdep_assert_held(&cow_registry_mutex);
	ct->origin = cow_origin_get(ct->origin_dev->bdev, &ti->error);
	if (!ct->origin)
		return -EINVAL;
	if (!ct->store_dev)
		goto add;
	ct->store = cow_store_get(ct->origin, ct->store_dev->bdev, args, &ti->error);
	if (!ct->store)
		goto put_origin;
	if (has_snap) {
		ct->snap = cow_snap_get(ct->store, args, &ti->error);
		if (!ct->snap)
			goto put_store;
	}
add:
	mutex_lock(&table_mutex);
	if (ct->store)
		list_add_tail(&ct->node, &ct->store->tables);
	list_add_tail(&ct->origin_node, &ct->origin->tables);
	mutex_unlock(&table_mutex);
	return 0;

put_store:
	cow_store_put(ct->store);
put_origin:
	cow_origin_put(ct->origin);
	return -EINVAL;
}

static void target_dtr(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;

	mutex_lock(&cow_registry_mutex);
	mutex_lock(&table_mutex);
	list_del(&ct->node);
	list_del(&ct->origin_node);
	mutex_unlock(&table_mutex);
	if (ct->snap)
		cow_snap_put(ct->snap);
	if (ct->store)
		cow_store_put(ct->store);
	cow_origin_put(ct->origin);
	mutex_unlock(&cow_registry_mutex);
	target_free(ti, ct);
}

static int target_preresume(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;
	const struct cow_options *given = &ct->options;
	int r = 0;

	/* See check_length(). */
	if (comes_early(ti, ct) && ti->len > bdev_nr_sectors(ct->origin_dev->bdev)) {
		DMERR("origin %s has %llu sectors, less than the %llu of the table",
		      ct->origin_dev->name, (u64)bdev_nr_sectors(ct->origin_dev->bdev),
		      (u64)ti->len);
		return -EINVAL;
	}
	if (ct->store)
		r = cow_store_activate(ct->store);
	if (!r && (given->on_full || given->wait_timeout || given->throttle ||
		   given->low_water || given->copy_ahead || given->copy_around ||
		   given->undo_buffer))
		r = cow_store_set_options(ct->store, given);
	if (!r) {
		mutex_lock(&table_mutex);
		ct->in_force = true;
		mutex_unlock(&table_mutex);
	}
	return r;
}

/* What end_io looks at, for bios that need nothing else. */
static struct cow_bio *bio_begin(struct dm_target *ti, struct bio *bio)
{
	struct cow_bio *cb = dm_per_bio_data(bio, sizeof(*cb));

	cb->snap = NULL;
	cb->gated = false;
	cb->tracked = false;
	cb->check = false;
	cb->via_merge = false;
	cb->merging = false;
	cb->piece = false;
	cb->left.bi_size = 0;
	cb->exact = false;
	cb->carries = NULL;
	bio->bi_iter.bi_sector = dm_target_offset(ti, bio->bi_iter.bi_sector);
	return cb;
}

static int target_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	return cow_bio_ended(dm_per_bio_data(bio, sizeof(struct cow_bio)), error);
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

sector_t cow_origin_length(struct cow_origin *o)
{
	const struct cow_target *ct;
	sector_t origin = 0, snaps = 0;

	mutex_lock(&table_mutex);
	list_for_each_entry(ct, &o->tables, origin_node) {
		if (ct->in_force && ct->shows_origin)
			origin = max(origin, ct->ti->len);
		else if (ct->in_force)
			snaps = max(snaps, ct->ti->len);
	}
	mutex_unlock(&table_mutex);
	return origin ?: snaps ?: bdev_nr_sectors(o->bdev);
}

void cow_snap_event(struct cow_store *store)
{
	struct cow_target *ct;

	mutex_lock(&table_mutex);
	list_for_each_entry(ct, &store->tables, node)
		dm_table_event(ct->ti->table);
	mutex_unlock(&table_mutex);
}

static void emit_copy_stats(struct cow_origin *o, char *result, unsigned int maxlen,
			    unsigned int *size)
{
	struct cow_engine_stats stats;
	unsigned int sz = *size;

	cow_engine_read_stats(o->engine, &stats);
	DMEMIT(" copies %llu read_sectors %llu written_sectors %llu", stats.jobs,
	       stats.read_sectors, stats.written_sectors);
	DMEMIT(" page_waits %llu pauses %llu throttle %u copy_memory %llu", stats.page_waits,
	       stats.throttled, cow_engine_throttle(o->engine), stats.kib);
	*size = sz;
}

/* ------------------------------------------------------------------ cowsnap-origin */

static const char * const discard_words[] = {
	[COW_DISCARD_SKIP] = "skip",
	[COW_DISCARD_PRESERVE] = "preserve",
	[COW_DISCARD_NONE] = "none",
};

static int origin_read_discard(struct dm_target *ti, struct dm_arg_set *as,
			       struct cow_target *ct)
{
	const char *word = as->argc ? dm_shift_arg(as) : "";
	int i = match_string(discard_words, ARRAY_SIZE(discard_words), word);

	if (i < 0) {
		cow_fail(&ti->error,
			 "discard: \"%s\" is none of skip, preserve, none",
			 word);
		return -EINVAL;
	}
	ct->discard = i;
	ct->discard_given = true;
	return 0;
}

static int origin_read_store(struct dm_target *ti, struct dm_arg_set *as, const char **store)
{
	if (!as->argc) {
		ti->error = "store: one device has to follow";
		return -EINVAL;
	}
	if (*store) {
		cow_fail(&ti->error,
			 "store: %s is there already: only once, give the other one a table of its own",
			 *store);
		return -EINVAL;
	}
	*store = dm_shift_arg(as);
	return 0;
}

static int origin_read_features(struct dm_target *ti, struct dm_arg_set *as,
				struct cow_target *ct, const char **store)
{
	int r = read_feature_count(ti, as);

	while (!r && as->argc) {
		const char *word = dm_shift_arg(as);

		if (!ct->claimed && !strcmp(word, "discard"))
			r = origin_read_discard(ti, as, ct);
		else if (!ct->claimed && !strcmp(word, "store"))
			r = origin_read_store(ti, as, store);
		else
			r = refuse_feature(ti, word);
	}
	return r;
}

static int origin_open(struct dm_target *ti, struct cow_target *ct, const char *path,
		       const char *store)
{
	struct cow_snap_args args = {
		.writable = dm_table_get_mode(ti->table) & BLK_OPEN_WRITE,
	};
	int r = open_device(ti, path, dm_table_get_mode(ti->table), &ct->origin_dev);

	if (!r)
		r = check_length(ti, ct);
	if (!r && store)
		r = open_store(ti, ct, store);
	if (r)
		return r;
	mutex_lock(&cow_registry_mutex);
	r = target_attach(ti, ct, &args, false);
	mutex_unlock(&cow_registry_mutex);
	return r;
}

/*
 * Two devices may have acknowledged writes: that of the origin, and the store of a merge
 * that is under way, which the table need not name. So flushes come here even if the devices
 * of the table have no cache.
 */
static void origin_take_flushes(struct dm_target *ti)
{
	ti->num_flush_bios = 2;
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
	ct->shows_origin = true;
	path = dm_shift_arg(&as);
	r = origin_read_features(ti, &as, ct, &store);
	if (!r)
		r = origin_open(ti, ct, path, store);
	if (r) {
		target_free(ti, ct);
		return r;
	}
	ti->private = ct;
	ti->per_io_data_size = sizeof(struct cow_bio);
	origin_take_flushes(ti);
	ti->num_write_zeroes_bios = 1;
	ti->num_discard_bios = ct->discard != COW_DISCARD_NONE;
	return 0;
}

/* The first of the two is for the origin's device. */
static bool flush_has_no_store(const struct cow_target *ct, const struct bio *bio)
{
	return dm_bio_get_target_bio_nr(bio) && !READ_ONCE(ct->origin->merge);
}

static int origin_map(struct dm_target *ti, struct bio *bio)
{
	struct cow_target *ct = ti->private;
	struct cow_bio *cb = bio_begin(ti, bio);

	bio_set_dev(bio, ct->origin_dev->bdev);
	if (bio_data_dir(bio) == READ && !READ_ONCE(ct->origin->merge))
		return DM_MAPIO_REMAPPED;
	if (!bio_sectors(bio) && flush_has_no_store(ct, bio)) {
		bio_endio(bio);
		return DM_MAPIO_SUBMITTED;
	}
	if (!bio_sectors(bio) && !dm_bio_get_target_bio_nr(bio))
		return DM_MAPIO_REMAPPED;
	cb->bio = bio;
	cb->origin = ct->origin;
	cb->discard = ct->discard;
	return cow_bio_map(cb);
}

/* The filesystem is frozen next, which waits for writers that wait for room. */
static void origin_presuspend(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;
	struct cow_origin *o = ct->origin;
	struct cow_store *store;

	spin_lock(&o->lock);
	o->suspending = true;
	list_for_each_entry(store, &o->stores, node)
		cow_store_stop_waiting(store);
	spin_unlock(&o->lock);
}

static void origin_unsuspend(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;

	spin_lock(&ct->origin->lock);
	ct->origin->suspending = false;
	spin_unlock(&ct->origin->lock);
}

static void origin_counts(struct cow_origin *o, unsigned int *nr_stores,
			  unsigned int *nr_snaps)
{
	struct cow_store *store;
	struct cow_snap *snap;

	*nr_stores = 0;
	*nr_snaps = 0;
	spin_lock(&o->lock);
	list_for_each_entry(store, &o->stores, node) {
		(*nr_stores)++;
		list_for_each_entry(snap, &store->snaps, node)
			if (snap->state == COW_SNAP_LIVE)
				(*nr_snaps)++;
	}
	spin_unlock(&o->lock);
}

static void origin_status(struct dm_target *ti, status_type_t type,
			  unsigned int flags, char *result, unsigned int maxlen)
{
	struct cow_target *ct = ti->private;
	struct cow_origin *o = ct->origin;
	unsigned int nr_stores, nr_snaps;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		if (ct->claimed)
			break;
		origin_counts(o, &nr_stores, &nr_snaps);
		DMEMIT("stores %u snapshots %u held %lld", nr_stores, nr_snaps,
		       atomic64_read(&o->held_writes));
		DMEMIT(" parked %lld skipped_discards %lld",
		       atomic64_read(&o->parked_writes),
		       atomic64_read(&o->skipped_discards));
		DMEMIT(" copied_ahead %llu wasted_ahead %llu", READ_ONCE(o->ahead.copied_ahead),
		       READ_ONCE(o->ahead.wasted));
		DMEMIT(" copied_around %llu unused_around %llu",
		       READ_ONCE(o->around.copied_around), READ_ONCE(o->around.unused));
		DMEMIT(" read_rests %llu", READ_ONCE(o->pace.nr_waited));
		emit_copy_stats(o, result, maxlen, &sz);
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s", ct->origin_dev->name);
		if (ct->discard_given || ct->store)
			DMEMIT(" %u", 2 * ct->discard_given + 2 * !!ct->store);
		if (ct->store)
			DMEMIT(" store %s", ct->store_dev->name);
		if (ct->discard_given)
			DMEMIT(" discard %s", discard_words[ct->discard]);
		break;
	case STATUSTYPE_IMA:
		DMEMIT_TARGET_NAME_VERSION(ti->type);
		DMEMIT(",origin_dev_name=%s;", ct->origin_dev->name);
		break;
	}
}

/* ------------------------------------------------------------------------ messages */

static void reset_stats(struct cow_origin *o)
{
	cow_engine_reset_stats(o->engine);
	atomic64_set(&o->held_writes, 0);
	atomic64_set(&o->parked_writes, 0);
	atomic64_set(&o->skipped_discards, 0);
	spin_lock(&o->lock);
	o->ahead.copied_ahead = 0;
	o->ahead.wasted = 0;
	o->around.copied_around = 0;
	spin_unlock(&o->lock);
	WRITE_ONCE(o->pace.nr_waited, 0);
}

/* The store a message is for: the one that is named, the table's, or the only one. */
static struct cow_store *message_find_store(struct cow_target *ct, const char *name)
{
	struct list_head *stores = &ct->origin->all_stores;
	struct cow_store *store;
	dev_t dev;

	lockdep_assert_held(&cow_registry_mutex);
	if (!name && ct->store)
		return ct->store;
	if (!name)
		return list_is_singular(stores) ?
		       list_first_entry(stores, struct cow_store, all_node) : NULL;
	dev = device_number(name);
	list_for_each_entry(store, stores, all_node)
		if (store->bdev->bd_dev == dev)
			return store;
	return NULL;
}

/* Takes a reference. */
static struct cow_store *message_get_store(struct cow_target *ct, const char *name)
{
	struct cow_store *store;

	mutex_lock(&cow_registry_mutex);
	store = message_find_store(ct, name);
	if (store)
		store->refs++;
	mutex_unlock(&cow_registry_mutex);
	if (!store)
		DMERR("message: %s%s", name ? "no store of this origin is " :
		      "the origin has no store, or several: name it as the last word",
		      name ?: "");
	return store;
}

static int message_set(struct cow_store *store, char **argv)
{
	struct cow_options options = {};
	char *error = NULL;
	int r = read_option(&error, argv[1], argv[2], &options);

	if (r == -ENOENT) {
		DMERR("message set: \"%s\" is no option of a store", argv[1]);
		return -EINVAL;
	}
	if (r) {
		DMERR("message set %s", error);
		return r;
	}
	return cow_store_set_options(store, &options);
}

static int message_id(char **argv, unsigned int *id)
{
	char *error;
	int r = read_number(&error, argv[0], argv[1], 0, COWSNAP_MAX_SNAPSHOTS - 1, id);

	if (r)
		DMERR("message %s", error);
	return r;
}

static int message_commit(struct cow_store *store)
{
	/* Whatever was acknowledged is committed; this is where that stands. */
	return store->meta ? cow_super_write(store, NULL) : 0;
}

static int store_message(struct cow_store *store, char **argv)
{
	unsigned int id;
	int r;

	if (!strcmp(argv[0], "set"))
		return message_set(store, argv);
	if (!strcmp(argv[0], "commit"))
		return message_commit(store);
	if (!strcmp(argv[0], "resize")) {
		cow_store_resize(store);
		return 0;
	}
	r = message_id(argv, &id);
	if (r)
		return r;
	return !strcmp(argv[0], "create") ? cow_store_create_snap(store, id) :
	       cow_store_delete_snap(store, id);
}

static const struct {
	const char *word;
	unsigned int argc;
} store_messages[] = {
	{ "set", 3 }, { "create", 2 }, { "delete", 2 }, { "resize", 1 }, { "commit", 1 },
};

static int target_message(struct dm_target *ti, unsigned int argc, char **argv,
			  char *result, unsigned int maxlen)
{
	struct cow_target *ct = ti->private;
	struct cow_store *store;
	unsigned int i, words;
	int r;

	if (argc == 1 && !strcmp(argv[0], "reset_stats")) {
		reset_stats(ct->origin);
		return 0;
	}
	/* The throttle is the origin's, so that it needs no store. */
	if (argc == 3 && !strcmp(argv[0], "set") && !strcmp(argv[1], "throttle") &&
	    !ct->store && list_empty(&ct->origin->all_stores)) {
		struct cow_options options = {};
		char *error;

		r = read_option(&error, argv[1], argv[2], &options);
		if (r)
			DMERR("message set %s", error);
		else
			cow_engine_set_throttle(ct->origin->engine, options.throttle);
		return r;
	}
	for (i = 0; i < ARRAY_SIZE(store_messages); i++)
		if (!strcmp(argv[0], store_messages[i].word))
			break;
	if (i == ARRAY_SIZE(store_messages)) {
		DMERR("unknown message \"%s\"", argv[0]);
		return -EINVAL;
	}
	words = store_messages[i].argc;
	if (argc != words && argc != words + 1) {
		DMERR("message %s: %u words, not %u", argv[0], argc, words);
		return -EINVAL;
	}
	store = message_get_store(ct, argc > words ? argv[words] : NULL);
	if (!store)
		return -EINVAL;
	r = store_message(store, argv);
	mutex_lock(&cow_registry_mutex);
	cow_store_put(store);
	mutex_unlock(&cow_registry_mutex);
	return r;
}

/* ------------------------------------------------------- cowsnap and cowsnap-merge */

static int snap_read_persistence(struct dm_target *ti, const char *word,
				 struct cow_snap_args *args)
{
	bool transient = !strcmp(word, "N") || !strcmp(word, "NO");

	if (strcmp(word, "P") && strcmp(word, "PO") && (!transient || args->merge)) {
		cow_fail(&ti->error, "Persistence \"%s\" is none of %s", word,
			 args->merge ? "P, PO: only what is persistent can be merged" :
			 "P, N, PO, NO");
		return -EINVAL;
	}
	args->persistence = word[0];
	args->overflow_apart = word[1] == 'O';
	return 0;
}

static int snap_read_chunk(struct dm_target *ti, const char *word,
			   struct cow_snap_args *args)
{
	int r = read_number(&ti->error, "Chunk size", word, 0, UINT_MAX, &args->chunk_sectors);

	if (!r && args->chunk_sectors > COW_MAX_CHUNK_SECTORS) {
		cow_fail(&ti->error,
			 "Chunk size: %u sectors, at most %u can be: take a smaller one",
			 args->chunk_sectors, COW_MAX_CHUNK_SECTORS);
		return -EINVAL;
	}
	if (!r && !is_power_of_2(args->chunk_sectors)) {
		cow_fail(&ti->error,
			 "Chunk size: %u is not a power of two sectors",
			 args->chunk_sectors);
		r = -EINVAL;
	}
	return r;
}

/* Those that dm-snapshot has as well. */
static bool snap_read_discard(struct cow_target *ct, const char *word)
{
	if (!strcmp(word, "discard_zeroes_cow"))
		ct->discard_zeroes_cow = true;
	else if (!strcmp(word, "discard_passdown_origin"))
		ct->discard_passdown_origin = true;
	else
		return false;
	return true;
}

static int snap_read_feature(struct dm_target *ti, struct dm_arg_set *as,
			     struct cow_target *ct, struct cow_snap_args *args)
{
	const char *word = dm_shift_arg(as);
	int r;

	if (ct->claimed)
		return snap_read_discard(ct, word) ? 0 : refuse_feature(ti, word);
	if (!strcmp(word, "id")) {
		ct->id_given = true;
		return read_number(&ti->error, "id", as->argc ? dm_shift_arg(as) : NULL, 0,
				   COWSNAP_MAX_SNAPSHOTS - 1, &args->id);
	}
	if (args->merge)
		return refuse_feature(ti, word);
	if (!strcmp(word, "create")) {
		args->create = true;
	} else if (!snap_read_discard(ct, word)) {
		r = read_option(&ti->error, word, as->argc ? as->argv[0] : NULL,
				&ct->options);
		if (r == -ENOENT)
			return refuse_feature(ti, word);
		if (r)
			return r;
		dm_shift_arg(as);
	}
	return 0;
}

static int snap_read_table(struct dm_target *ti, struct dm_arg_set *as,
			   struct cow_target *ct, struct cow_snap_args *args)
{
	int r;

	r = snap_read_persistence(ti, dm_shift_arg(as), args);
	if (!r)
		r = snap_read_chunk(ti, dm_shift_arg(as), args);
	if (!r)
		r = read_feature_count(ti, as);
	while (!r && as->argc)
		r = snap_read_feature(ti, as, ct, args);
	if (!r && ct->discard_passdown_origin && !ct->discard_zeroes_cow) {
		ti->error = "discard_passdown_origin needs discard_zeroes_cow";
		r = -EINVAL;
	}
	return r;
}

static int snap_open(struct dm_target *ti, struct cow_target *ct, const char *origin,
		     const char *store, struct cow_snap_args *args)
{
	int r = open_device(ti, origin, args->merge ? dm_table_get_mode(ti->table) :
			    BLK_OPEN_READ, &ct->origin_dev);

	if (!r)
		r = open_store(ti, ct, store);
	if (!r)
		r = check_length(ti, ct);
	if (r)
		return r;
	/* LVM's order: merge loaded, snapshot suspended, merge resumed, which looks again. */
	args->takes_over = comes_early(ti, ct);
	mutex_lock(&cow_registry_mutex);
	r = target_attach(ti, ct, args, true);
	mutex_unlock(&cow_registry_mutex);
	return r;
}

static int construct(struct dm_target *ti, unsigned int argc, char **argv, bool merge)
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
	ct->shows_origin = merge;
	origin = dm_shift_arg(&as);
	store = dm_shift_arg(&as);
	r = snap_read_table(ti, &as, ct, &args);
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
		origin_take_flushes(ti);
	ti->num_write_zeroes_bios = 1;
	ti->num_discard_bios = merge || ct->discard_zeroes_cow;
	ti->discards_supported = ct->discard_zeroes_cow;
	return 0;
}

static int snap_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	return construct(ti, argc, argv, false);
}

static int merge_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	return construct(ti, argc, argv, true);
}

static int snap_preresume(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;
	int r = target_preresume(ti);

	if (!r)
		r = cow_snap_activate(ct->snap, ti->len);
	if (!r)
		WRITE_ONCE(ct->resumed, true);
	return r;
}

static void snap_postsuspend(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;

	WRITE_ONCE(ct->resumed, false);
}

/* Does a device show the snapshot that @ct is to merge? */
static bool snap_is_shown(const struct cow_target *ct)
{
	const struct cow_target *other;
	bool shown = false;

	mutex_lock(&table_mutex);
	list_for_each_entry(other, &ct->store->tables, node)
		shown |= other->snap == ct->snap && READ_ONCE(other->resumed);
	mutex_unlock(&table_mutex);
	return shown;
}

static int merge_preresume(struct dm_target *ti)
{
	struct cow_target *ct = ti->private;
	int r = target_preresume(ti);

	if (r)
		return r;
	if (snap_is_shown(ct)) {
		DMERR("store %pg: snapshot %u has a device: suspend it before it is merged",
		      ct->store->bdev, ct->snap->id);
		return -EBUSY;
	}
	mutex_lock(&ct->origin->admin);
	r = cow_merge_activate(ct->snap);
	mutex_unlock(&ct->origin->admin);
	return r;
}

static int snap_map(struct dm_target *ti, struct bio *bio)
{
	struct cow_target *ct = ti->private;
	struct cow_bio *cb = bio_begin(ti, bio);

	if (!bio_sectors(bio)) {
		bio_set_dev(bio, ct->store_dev->bdev);
		return DM_MAPIO_REMAPPED;
	}
	cb->bio = bio;
	cb->origin = ct->origin;
	cb->snap = ct->snap;
	cb->passdown = ct->discard_passdown_origin;
	cb->full_is_end = ct->claimed;
	return cow_bio_map(cb);
}

/* The one word of a snapshot that is no more, or NULL. */
static const char *snap_last_word(const struct cow_target *ct, bool merge)
{
	const struct cow_snap *snap = ct->snap;

	switch (READ_ONCE(snap->state)) {
	case COW_SNAP_OVERFLOWED:
	case COW_SNAP_DROPPED:
		if (!merge)
			return snap->overflow_apart ? "Overflow" : "Invalid";
		fallthrough;
	case COW_SNAP_INVALID:
		return merge ? "Merge failed" : "Invalid";
	default:
		return merge && cow_merge_failed(snap) ? "Merge failed" : NULL;
	}
}

static u64 metadata_sectors(struct cow_store *store)
{
	if (!store->meta)
		return 0;
	return cow_chunk_to_sector(store, store->space.table_chunks +
				   cow_super_record_chunks(store));
}

static u64 used_sectors(struct cow_store *store)
{
	u64 chunks = store->space.used + (store->meta ? store->space.table_chunks : 0);

	return cow_chunk_to_sector(store, chunks);
}

static void emit_meta_stats(struct cow_store *store, char *result, unsigned int maxlen,
			    unsigned int *size)
{
	struct cow_meta_stats stats;
	unsigned int sz = *size;

	if (!store->meta)
		return;
	cow_meta_read_stats(store->meta, &stats);
	DMEMIT(" commits %llu table_writes %llu", stats.commits, stats.block_writes);
	DMEMIT(" unverified %lld bad_checksums %lld damaged %u",
	       atomic64_read(&store->unverified), atomic64_read(&store->bad_checksums),
	       store->damaged_blocks);
	*size = sz;
}

/* origin->lock held. */
static void emit_store_stats(struct cow_store *store, char *result, unsigned int maxlen,
			     unsigned int *size)
{
	const struct cow_options *opt = &store->options;
	unsigned int sz = *size;

	DMEMIT(" exceptions %llu copied %llu zero %llu", store->map.nr_chunks,
	       store->copied_chunks, store->zero_chunks);
	DMEMIT(" pending %u memory %llu freed %llu", store->nr_pendings,
	       store->map.nr_bytes, store->freed_chunks);
	DMEMIT(" on_full %s wait_timeout %u low_water %u copy_ahead %u",
	       on_full_words[opt->on_full], opt->wait_timeout, opt->low_water,
	       opt->copy_ahead);
	DMEMIT(" copy_around %u undo_buffer %u buffered %llu", opt->copy_around,
	       opt->undo_buffer, (u64)store->undo_sectors);
	*size = sz;
}

static void snap_emit_info(struct cow_target *ct, bool merge, char *result,
			   unsigned int maxlen)
{
	const char *last_word = snap_last_word(ct, merge);
	struct cow_snap *snap = ct->snap;
	struct cow_store *store = ct->store;
	unsigned int sz = 0;
	u64 used, left;

	if (last_word) {
		DMEMIT("%s", last_word);
		return;
	}
	left = merge ? cow_chunk_to_sector(store, cow_merge_left(snap)) : 0;
	spin_lock(&ct->origin->lock);
	used = merge ? metadata_sectors(store) + left : used_sectors(store);
	DMEMIT("%llu/%llu %llu", used,
	       (u64)cow_chunk_to_sector(store, store->space.nr_chunks),
	       metadata_sectors(store));
	if (!ct->claimed) {
		DMEMIT(" id %u epoch %u", snap->id, snap->epoch);
		emit_store_stats(store, result, maxlen, &sz);
	}
	spin_unlock(&ct->origin->lock);
	if (ct->claimed)
		return;
	emit_meta_stats(store, result, maxlen, &sz);
	emit_copy_stats(ct->origin, result, maxlen, &sz);
}

static void emit_options(const struct cow_options *options, char *result,
			 unsigned int maxlen, unsigned int *size)
{
	unsigned int sz = *size;

	if (options->on_full)
		DMEMIT(" on_full %s", on_full_words[options->on_full - 1]);
	if (options->wait_timeout)
		DMEMIT(" wait_timeout %u", options->wait_timeout);
	if (options->throttle)
		DMEMIT(" throttle %u", options->throttle);
	if (options->low_water)
		DMEMIT(" low_water %u", options->low_water);
	if (options->copy_ahead)
		DMEMIT(" copy_ahead %u", options->copy_ahead - 1);
	if (options->copy_around)
		DMEMIT(" copy_around %u", options->copy_around - 1);
	if (options->undo_buffer)
		DMEMIT(" undo_buffer %u", options->undo_buffer - 1);
	*size = sz;
}

static void snap_emit_table(struct cow_target *ct, char *result, unsigned int maxlen)
{
	const struct cow_options *opt = &ct->options;
	unsigned int count = 2 * (ct->id_given + !!opt->on_full + !!opt->wait_timeout +
				  !!opt->throttle + !!opt->low_water + !!opt->copy_ahead +
				  !!opt->copy_around + !!opt->undo_buffer) +
			     ct->discard_zeroes_cow + ct->discard_passdown_origin;
	unsigned int sz = 0;

	DMEMIT("%s %s %c%s %u", ct->origin_dev->name, ct->store_dev->name,
	       ct->store->persistence, ct->snap->overflow_apart ? "O" : "",
	       ct->store->chunk_sectors);
	if (count)
		DMEMIT(" %u", count);
	if (ct->id_given)
		DMEMIT(" id %u", ct->snap->id);
	emit_options(opt, result, maxlen, &sz);
	if (ct->discard_zeroes_cow)
		DMEMIT(" discard_zeroes_cow");
	if (ct->discard_passdown_origin)
		DMEMIT(" discard_passdown_origin");
}

static void emit_status(struct dm_target *ti, status_type_t type, bool merge, char *result,
			unsigned int maxlen)
{
	struct cow_target *ct = ti->private;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		snap_emit_info(ct, merge, result, maxlen);
		break;
	case STATUSTYPE_TABLE:
		snap_emit_table(ct, result, maxlen);
		break;
	case STATUSTYPE_IMA:
		DMEMIT_TARGET_NAME_VERSION(ti->type);
		DMEMIT(",origin_dev_name=%s,store_dev_name=%s,id=%u;",
		       ct->origin_dev->name, ct->store_dev->name, ct->snap->id);
		break;
	}
}

static void snap_status(struct dm_target *ti, status_type_t type, unsigned int flags,
			char *result, unsigned int maxlen)
{
	emit_status(ti, type, false, result, maxlen);
}

static void merge_status(struct dm_target *ti, status_type_t type, unsigned int flags,
			 char *result, unsigned int maxlen)
{
	emit_status(ti, type, true, result, maxlen);
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

/* -------------------------------------------------------------------------- module */

static struct target_type origin_target_type = {
	.name = "cowsnap-origin",
	.version = { 0, 2, 0 },
	.features = DM_TARGET_NOWAIT,
	.module = THIS_MODULE,
	.ctr = origin_ctr,
	.dtr = target_dtr,
	.map = origin_map,
	.end_io = target_end_io,
	.presuspend = origin_presuspend,
	.presuspend_undo = origin_unsuspend,
	.preresume = target_preresume,
	.resume = origin_unsuspend,
	.status = origin_status,
	.message = target_message,
	.iterate_devices = target_iterate_devices,
};

static struct target_type snap_target_type = {
	.name = "cowsnap",
	.version = { 0, 2, 0 },
	.features = DM_TARGET_NOWAIT,
	.module = THIS_MODULE,
	.ctr = snap_ctr,
	.dtr = target_dtr,
	.map = snap_map,
	.end_io = target_end_io,
	.preresume = snap_preresume,
	.postsuspend = snap_postsuspend,
	.status = snap_status,
	.message = target_message,
	.iterate_devices = target_iterate_devices,
	.io_hints = snap_io_hints,
};

static struct target_type merge_target_type = {
	.name = "cowsnap-merge",
	.version = { 0, 2, 0 },
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
	.status = merge_status,
	.message = target_message,
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
	r = cow_meta_init();
	if (r)
		goto exit_pending;
	r = cow_verify_init();
	if (r)
		goto exit_meta;
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
exit_meta:
	cow_meta_exit();
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
	cow_meta_exit();
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

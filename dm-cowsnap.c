// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the targets
 *
 *   0 <len> cowsnap-origin <origin_dev> [<#features> <feature>...]
 *   0 <len> cowsnap <origin_dev> <store_dev> <N|NO> <chunk_sectors> [<#features> <feature>...]
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

struct origin_target {
	struct dm_dev *dev;
	struct cow_origin *origin;
	enum cow_discard discard;
	bool discard_given;
};

struct snap_target {
	struct list_head node;		/* store->tables, under table_mutex */
	struct dm_target *ti;
	struct dm_dev *origin_dev;
	struct dm_dev *store_dev;
	struct cow_origin *origin;
	struct cow_snap *snap;
	unsigned int throttle;		/* 0: not given */
	bool id_given;
	bool create;
	bool discard_zeroes_cow;
	bool discard_passdown_origin;
};

/* Guards store->tables: who gets events. */
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

static int read_number(struct dm_target *ti, const char *what, const char *word,
		       unsigned int min, unsigned int max, unsigned int *value)
{
	if (!word)
		cow_fail(&ti->error, "%s: the number is missing", what);
	else if (kstrtouint(word, 10, value))
		cow_fail(&ti->error, "%s: \"%s\" is not a number", what, word);
	else if (*value < min || *value > max)
		cow_fail(&ti->error,
			 "%s: %u is not between %u and %u",
			 what, *value, min, max);
	else
		return 0;
	return -EINVAL;
}

/* The count in front of the features; it has to be the number of what follows. */
static int read_feature_count(struct dm_target *ti, struct dm_arg_set *as)
{
	unsigned int count;
	int r;

	if (!as->argc)
		return 0;
	r = read_number(ti, "Number of features", dm_shift_arg(as), 0, 64, &count);
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

static int check_length(struct dm_target *ti, const char *path, struct dm_dev *dev)
{
	if (ti->len <= bdev_nr_sectors(dev->bdev))
		return 0;
	cow_fail(&ti->error, "Length of %llu sectors is more than origin %s has: %llu",
		 (u64)ti->len, path, (u64)bdev_nr_sectors(dev->bdev));
	return -EINVAL;
}

static int refuse_feature(struct dm_target *ti, const char *word)
{
	cow_fail(&ti->error, "Unknown feature \"%s\"", word);
	return -EINVAL;
}

/* ------------------------------------------------------------------ cowsnap-origin */

static const char * const discard_words[] = {
	[COW_DISCARD_SKIP] = "skip",
	[COW_DISCARD_PRESERVE] = "preserve",
	[COW_DISCARD_NONE] = "none",
};

static int origin_read_discard(struct dm_target *ti, struct dm_arg_set *as,
			       struct origin_target *ot)
{
	const char *word = as->argc ? dm_shift_arg(as) : "";
	int i = match_string(discard_words, ARRAY_SIZE(discard_words), word);

	if (i < 0) {
		cow_fail(&ti->error,
			 "discard: \"%s\" is none of skip, preserve, none",
			 word);
		return -EINVAL;
	}
	ot->discard = i;
	ot->discard_given = true;
	return 0;
}

static int origin_read_features(struct dm_target *ti, struct dm_arg_set *as,
				struct origin_target *ot)
{
	int r = read_feature_count(ti, as);

	while (!r && as->argc) {
		const char *word = dm_shift_arg(as);

		if (!strcmp(word, "discard"))
			r = origin_read_discard(ti, as, ot);
		else
			r = refuse_feature(ti, word);
	}
	return r;
}

static int origin_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { .argc = argc, .argv = argv };
	struct origin_target *ot;
	const char *path;
	int r = -EINVAL;

	if (!argc) {
		ti->error = "A word is missing: <origin_dev> [<#features> <feature>...]";
		return r;
	}
	ot = kzalloc(sizeof(*ot), GFP_KERNEL);
	if (!ot) {
		ti->error = "Out of memory for a table";
		return -ENOMEM;
	}
	path = dm_shift_arg(&as);
	r = origin_read_features(ti, &as, ot);
	if (r)
		goto free_target;
	r = open_device(ti, path, dm_table_get_mode(ti->table), &ot->dev);
	if (r)
		goto free_target;
	r = check_length(ti, path, ot->dev);
	if (r)
		goto put_device;

	mutex_lock(&cow_registry_mutex);
	ot->origin = cow_origin_get(ot->dev->bdev, &ti->error);
	mutex_unlock(&cow_registry_mutex);
	if (!ot->origin) {
		r = -EINVAL;
		goto put_device;
	}
	ti->private = ot;
	ti->per_io_data_size = sizeof(struct cow_bio);
	ti->num_flush_bios = 1;
	ti->num_write_zeroes_bios = 1;
	ti->num_discard_bios = ot->discard != COW_DISCARD_NONE;
	return 0;

put_device:
	dm_put_device(ti, ot->dev);
free_target:
	kfree(ot);
	return r;
}

static void origin_dtr(struct dm_target *ti)
{
	struct origin_target *ot = ti->private;

	mutex_lock(&cow_registry_mutex);
	cow_origin_put(ot->origin);
	mutex_unlock(&cow_registry_mutex);
	dm_put_device(ti, ot->dev);
	kfree(ot);
}

/* What end_io looks at, for bios that need nothing else. */
static struct cow_bio *bio_begin(struct dm_target *ti, struct bio *bio)
{
	struct cow_bio *cb = dm_per_bio_data(bio, sizeof(*cb));

	cb->gated = false;
	cb->tracked = false;
	cb->carries = NULL;
	bio->bi_iter.bi_sector = dm_target_offset(ti, bio->bi_iter.bi_sector);
	return cb;
}

static int origin_map(struct dm_target *ti, struct bio *bio)
{
	struct origin_target *ot = ti->private;
	struct cow_bio *cb = bio_begin(ti, bio);

	bio_set_dev(bio, ot->dev->bdev);
	if (bio_data_dir(bio) == READ || !bio_sectors(bio))
		return DM_MAPIO_REMAPPED;
	cb->bio = bio;
	cb->origin = ot->origin;
	cb->snap = NULL;
	cb->discard = ot->discard;
	return cow_bio_map(cb);
}

static int target_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	return cow_bio_ended(dm_per_bio_data(bio, sizeof(struct cow_bio)), error);
}

static void emit_copy_stats(struct cow_origin *o, char *result, unsigned int maxlen,
			    unsigned int *size)
{
	struct cow_engine_stats stats;
	unsigned int sz = *size;

	cow_engine_read_stats(o->engine, &stats);
	DMEMIT(" copies %llu read_sectors %llu written_sectors %llu", stats.jobs,
	       stats.read_sectors, stats.written_sectors);
	DMEMIT(" page_waits %llu pauses %llu throttle %u", stats.page_waits,
	       stats.throttled, cow_engine_throttle(o->engine));
	*size = sz;
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
	struct origin_target *ot = ti->private;
	struct cow_origin *o = ot->origin;
	unsigned int nr_stores, nr_snaps;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		origin_counts(o, &nr_stores, &nr_snaps);
		DMEMIT("stores %u snapshots %u held %lld", nr_stores, nr_snaps,
		       atomic64_read(&o->held_writes));
		DMEMIT(" parked %lld skipped_discards %lld",
		       atomic64_read(&o->parked_writes),
		       atomic64_read(&o->skipped_discards));
		emit_copy_stats(o, result, maxlen, &sz);
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s", ot->dev->name);
		if (ot->discard_given)
			DMEMIT(" 2 discard %s", discard_words[ot->discard]);
		break;
	case STATUSTYPE_IMA:
		DMEMIT_TARGET_NAME_VERSION(ti->type);
		DMEMIT(",origin_dev_name=%s;", ot->dev->name);
		break;
	}
}

static int origin_iterate_devices(struct dm_target *ti,
				  iterate_devices_callout_fn fn, void *data)
{
	struct origin_target *ot = ti->private;

	return fn(ti, ot->dev, 0, ti->len, data);
}

/* ------------------------------------------------------------------------ messages */

static int message_set(struct cow_origin *o, unsigned int argc, char **argv)
{
	unsigned int percent;

	if (argc != 3 || strcmp(argv[1], "throttle")) {
		DMERR("message set: only \"set throttle <percent>\" is known");
		return -EINVAL;
	}
	if (kstrtouint(argv[2], 10, &percent) || !percent || percent > 100) {
		DMERR("message set throttle: \"%s\" is not between 1 and 100", argv[2]);
		return -EINVAL;
	}
	cow_engine_set_throttle(o->engine, percent);
	return 0;
}

static void reset_stats(struct cow_origin *o)
{
	cow_engine_reset_stats(o->engine);
	atomic64_set(&o->held_writes, 0);
	atomic64_set(&o->parked_writes, 0);
	atomic64_set(&o->skipped_discards, 0);
}

static int origin_message(struct dm_target *ti, unsigned int argc, char **argv,
			  char *result, unsigned int maxlen)
{
	struct origin_target *ot = ti->private;

	if (!strcmp(argv[0], "set"))
		return message_set(ot->origin, argc, argv);
	if (argc == 1 && !strcmp(argv[0], "reset_stats")) {
		reset_stats(ot->origin);
		return 0;
	}
	DMERR("unknown message \"%s\"", argv[0]);
	return -EINVAL;
}

static int snap_message(struct dm_target *ti, unsigned int argc, char **argv,
			char *result, unsigned int maxlen)
{
	struct snap_target *st = ti->private;

	if (!strcmp(argv[0], "set"))
		return message_set(st->origin, argc, argv);
	if (argc == 1 && !strcmp(argv[0], "reset_stats")) {
		reset_stats(st->origin);
		return 0;
	}
	if (argc == 1 && !strcmp(argv[0], "resize")) {
		cow_store_resize(st->snap->store);
		return 0;
	}
	DMERR("unknown message \"%s\"", argv[0]);
	return -EINVAL;
}

/* ------------------------------------------------------------------------- cowsnap */

static int snap_read_persistence(struct dm_target *ti, const char *word,
				 struct cow_snap_args *args)
{
	if (!strcmp(word, "P") || !strcmp(word, "PO")) {
		cow_fail(&ti->error,
			 "Persistence \"%s\": this version keeps transient stores only, N or NO",
			 word);
		return -EINVAL;
	}
	if (strcmp(word, "N") && strcmp(word, "NO")) {
		cow_fail(&ti->error, "Persistence \"%s\" is none of P, N, PO, NO", word);
		return -EINVAL;
	}
	args->persistence = word[0];
	args->overflow_apart = word[1] == 'O';
	return 0;
}

static int snap_read_chunk(struct dm_target *ti, const char *word,
			   struct cow_snap_args *args)
{
	int r = read_number(ti, "Chunk size", word, 1, COW_MAX_CHUNK_SECTORS,
			    &args->chunk_sectors);

	if (!r && !is_power_of_2(args->chunk_sectors)) {
		cow_fail(&ti->error,
			 "Chunk size: %u is not a power of two sectors",
			 args->chunk_sectors);
		r = -EINVAL;
	}
	return r;
}

static int snap_read_feature(struct dm_target *ti, struct dm_arg_set *as,
			     struct snap_target *st, struct cow_snap_args *args)
{
	const char *word = dm_shift_arg(as);

	if (!strcmp(word, "id")) {
		st->id_given = true;
		return read_number(ti, "id", as->argc ? dm_shift_arg(as) : NULL, 0, 65535,
				   &args->id);
	}
	if (!strcmp(word, "throttle"))
		return read_number(ti, "throttle", as->argc ? dm_shift_arg(as) : NULL, 1,
				   100, &st->throttle);
	if (!strcmp(word, "create"))
		st->create = true;
	else if (!strcmp(word, "discard_zeroes_cow"))
		st->discard_zeroes_cow = true;
	else if (!strcmp(word, "discard_passdown_origin"))
		st->discard_passdown_origin = true;
	else
		return refuse_feature(ti, word);
	return 0;
}

static int snap_read_table(struct dm_target *ti, struct dm_arg_set *as,
			   struct snap_target *st, struct cow_snap_args *args)
{
	int r;

	r = snap_read_persistence(ti, dm_shift_arg(as), args);
	if (!r)
		r = snap_read_chunk(ti, dm_shift_arg(as), args);
	if (!r)
		r = read_feature_count(ti, as);
	while (!r && as->argc)
		r = snap_read_feature(ti, as, st, args);
	if (!r && st->discard_passdown_origin && !st->discard_zeroes_cow) {
		ti->error = "discard_passdown_origin needs discard_zeroes_cow";
		r = -EINVAL;
	}
	return r;
}

/* Old chunks are written even under a read-only table, if the device lets us. */
static int snap_open_store(struct dm_target *ti, struct snap_target *st, const char *path,
			   bool writable)
{
	int r = open_device(ti, path, BLK_OPEN_READ | BLK_OPEN_WRITE, &st->store_dev);

	if (!writable && (r == -EACCES || r == -EROFS || r == -EPERM))
		r = open_device(ti, path, BLK_OPEN_READ, &st->store_dev);
	return r;
}

static int snap_open(struct dm_target *ti, struct snap_target *st, const char *origin,
		     const char *store, bool writable)
{
	int r = open_device(ti, origin, BLK_OPEN_READ, &st->origin_dev);

	if (r)
		return r;
	r = snap_open_store(ti, st, store, writable);
	if (r)
		goto put_origin;
	r = check_length(ti, origin, st->origin_dev);
	if (r)
		goto put_store;
	if (st->origin_dev->bdev == st->store_dev->bdev) {
		cow_fail(&ti->error, "Origin and store are the same device %s", store);
		r = -EINVAL;
		goto put_store;
	}
	return 0;

put_store:
	dm_put_device(ti, st->store_dev);
put_origin:
	dm_put_device(ti, st->origin_dev);
	return r;
}

/* An id is made by "create", or is the first one of a new store. */
static bool snap_id_is_right(struct snap_target *st, struct cow_snap_args *args,
			     char **error)
{
	struct cow_store *store = cow_store_find(st->store_dev->bdev);
	bool exists = store && cow_snap_find(store, args->id);

	if (exists && st->create)
		cow_fail(error,
			 "Snapshot %u exists already: leave out \"create\"",
			 args->id);
	else if (!exists && !st->create && (store || args->id))
		cow_fail(error,
			 "Snapshot %u does not exist: add \"create\" to make it",
			 args->id);
	else
		return true;
	return false;
}

static int snap_attach(struct dm_target *ti, struct snap_target *st,
		       struct cow_snap_args *args)
{
	int r = -EINVAL;

	mutex_lock(&cow_registry_mutex);
	st->origin = cow_origin_get(st->origin_dev->bdev, &ti->error);
	if (!st->origin)
		goto unlock;
	if (snap_id_is_right(st, args, &ti->error))
		st->snap = cow_snap_get(st->origin, st->store_dev->bdev, args, &ti->error);
	if (!st->snap) {
		cow_origin_put(st->origin);
		goto unlock;
	}
	mutex_lock(&table_mutex);
	list_add_tail(&st->node, &st->snap->store->tables);
	mutex_unlock(&table_mutex);
	r = 0;
unlock:
	mutex_unlock(&cow_registry_mutex);
	return r;
}

static int snap_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { .argc = argc, .argv = argv };
	struct cow_snap_args args = {
		.writable = dm_table_get_mode(ti->table) & BLK_OPEN_WRITE,
		.nr_sectors = ti->len,
	};
	const char *origin, *store;
	struct snap_target *st;
	int r = -EINVAL;

	if (argc < 4) {
		cow_fail(&ti->error, "%u words are missing: <origin> <store> <N|NO> <chunk>",
			 4 - argc);
		return r;
	}
	st = kzalloc(sizeof(*st), GFP_KERNEL);
	if (!st) {
		ti->error = "Out of memory for a table";
		return -ENOMEM;
	}
	st->ti = ti;
	origin = dm_shift_arg(&as);
	store = dm_shift_arg(&as);
	r = snap_read_table(ti, &as, st, &args);
	if (r)
		goto free_target;
	r = snap_open(ti, st, origin, store, args.writable);
	if (r)
		goto free_target;
	r = snap_attach(ti, st, &args);
	if (r)
		goto put_devices;

	ti->private = st;
	ti->per_io_data_size = sizeof(struct cow_bio);
	ti->num_flush_bios = 1;
	ti->num_write_zeroes_bios = 1;
	if (st->discard_zeroes_cow) {
		ti->num_discard_bios = 1;
		ti->discards_supported = true;
	}
	return 0;

put_devices:
	dm_put_device(ti, st->store_dev);
	dm_put_device(ti, st->origin_dev);
free_target:
	kfree(st);
	return r;
}

static void snap_dtr(struct dm_target *ti)
{
	struct snap_target *st = ti->private;

	mutex_lock(&cow_registry_mutex);
	mutex_lock(&table_mutex);
	list_del(&st->node);
	mutex_unlock(&table_mutex);
	cow_snap_put(st->snap);
	cow_origin_put(st->origin);
	mutex_unlock(&cow_registry_mutex);
	dm_put_device(ti, st->store_dev);
	dm_put_device(ti, st->origin_dev);
	kfree(st);
}

static int snap_preresume(struct dm_target *ti)
{
	struct snap_target *st = ti->private;

	if (st->throttle)
		cow_engine_set_throttle(st->origin->engine, st->throttle);
	return cow_snap_activate(st->snap, ti->len);
}

static int snap_map(struct dm_target *ti, struct bio *bio)
{
	struct snap_target *st = ti->private;
	struct cow_bio *cb = bio_begin(ti, bio);

	if (!bio_sectors(bio)) {
		bio_set_dev(bio, st->store_dev->bdev);
		return DM_MAPIO_REMAPPED;
	}
	cb->bio = bio;
	cb->origin = st->origin;
	cb->snap = st->snap;
	cb->passdown = st->discard_passdown_origin;
	return cow_bio_map(cb);
}

static void snap_emit_info(struct snap_target *st, char *result, unsigned int maxlen)
{
	struct cow_snap *snap = st->snap;
	struct cow_store *store = snap->store;
	unsigned int sz = 0;

	switch (READ_ONCE(snap->state)) {
	case COW_SNAP_INVALID:
		DMEMIT("Invalid");
		return;
	case COW_SNAP_OVERFLOWED:
		DMEMIT("%s", snap->overflow_apart ? "Overflow" : "Invalid");
		return;
	default:
		break;
	}
	spin_lock(&st->origin->lock);
	DMEMIT("%llu/%llu 0", (u64)cow_chunk_to_sector(store, store->used_chunks),
	       (u64)cow_chunk_to_sector(store, store->nr_chunks));
	DMEMIT(" id %u epoch %u exceptions %llu copied %llu zero %llu", snap->id,
	       snap->epoch, store->map.nr_chunks, store->copied_chunks,
	       store->zero_chunks);
	DMEMIT(" pending %u memory %llu", store->nr_pendings, store->map.nr_bytes);
	spin_unlock(&st->origin->lock);
	emit_copy_stats(st->origin, result, maxlen, &sz);
}

static void snap_emit_table(struct snap_target *st, char *result, unsigned int maxlen)
{
	unsigned int count = 2 * st->id_given + 2 * !!st->throttle +
			     st->discard_zeroes_cow + st->discard_passdown_origin;
	struct cow_snap *snap = st->snap;
	unsigned int sz = 0;

	DMEMIT("%s %s %c%s %u", st->origin_dev->name, st->store_dev->name,
	       snap->store->persistence, snap->overflow_apart ? "O" : "",
	       snap->store->chunk_sectors);
	if (count)
		DMEMIT(" %u", count);
	if (st->id_given)
		DMEMIT(" id %u", snap->id);
	if (st->throttle)
		DMEMIT(" throttle %u", st->throttle);
	if (st->discard_zeroes_cow)
		DMEMIT(" discard_zeroes_cow");
	if (st->discard_passdown_origin)
		DMEMIT(" discard_passdown_origin");
}

static void snap_status(struct dm_target *ti, status_type_t type, unsigned int flags,
			char *result, unsigned int maxlen)
{
	struct snap_target *st = ti->private;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		snap_emit_info(st, result, maxlen);
		break;
	case STATUSTYPE_TABLE:
		snap_emit_table(st, result, maxlen);
		break;
	case STATUSTYPE_IMA:
		DMEMIT_TARGET_NAME_VERSION(ti->type);
		DMEMIT(",origin_dev_name=%s,store_dev_name=%s,id=%u;",
		       st->origin_dev->name, st->store_dev->name, st->snap->id);
		break;
	}
}

static int snap_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn,
				void *data)
{
	struct snap_target *st = ti->private;
	int r = fn(ti, st->origin_dev, 0, ti->len, data);

	if (!r)
		r = fn(ti, st->store_dev, 0, bdev_nr_sectors(st->store_dev->bdev), data);
	return r;
}

static void snap_io_hints(struct dm_target *ti, struct queue_limits *limits)
{
	struct snap_target *st = ti->private;
	unsigned int chunk_sectors = st->snap->store->chunk_sectors;

	if (!st->discard_zeroes_cow)
		return;
	limits->discard_granularity = chunk_sectors << SECTOR_SHIFT;
	limits->max_hw_discard_sectors = round_down(UINT_MAX >> SECTOR_SHIFT,
						    chunk_sectors);
	limits->max_discard_sectors = limits->max_hw_discard_sectors;
}

void cow_snap_event(struct cow_store *store)
{
	struct snap_target *st;

	mutex_lock(&table_mutex);
	list_for_each_entry(st, &store->tables, node)
		dm_table_event(st->ti->table);
	mutex_unlock(&table_mutex);
}

/* -------------------------------------------------------------------------- module */

static struct target_type origin_target_type = {
	.name = "cowsnap-origin",
	.version = { 0, 1, 0 },
	.features = DM_TARGET_NOWAIT,
	.module = THIS_MODULE,
	.ctr = origin_ctr,
	.dtr = origin_dtr,
	.map = origin_map,
	.end_io = target_end_io,
	.status = origin_status,
	.message = origin_message,
	.iterate_devices = origin_iterate_devices,
};

static struct target_type snap_target_type = {
	.name = "cowsnap",
	.version = { 0, 1, 0 },
	.features = DM_TARGET_NOWAIT,
	.module = THIS_MODULE,
	.ctr = snap_ctr,
	.dtr = snap_dtr,
	.map = snap_map,
	.end_io = target_end_io,
	.preresume = snap_preresume,
	.status = snap_status,
	.message = snap_message,
	.iterate_devices = snap_iterate_devices,
	.io_hints = snap_io_hints,
};

static int __init cowsnap_init(void)
{
	int r;

	r = cow_exception_init();
	if (r)
		return r;
	r = cow_pending_init();
	if (r)
		goto exit_exception;
	r = dm_register_target(&origin_target_type);
	if (r)
		goto exit_pending;
	r = dm_register_target(&snap_target_type);
	if (r)
		goto unregister_origin;
	return 0;

unregister_origin:
	dm_unregister_target(&origin_target_type);
exit_pending:
	cow_pending_exit();
exit_exception:
	cow_exception_exit();
	return r;
}

static void __exit cowsnap_exit(void)
{
	dm_unregister_target(&snap_target_type);
	dm_unregister_target(&origin_target_type);
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

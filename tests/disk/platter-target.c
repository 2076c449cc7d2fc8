// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-platter: the target. Table, status, messages, and the trace in debugfs.
 *
 *	0 <len> platter <dev> <start> [<#words> <key> <value> ...]
 */
#include "platter.h"

#include <linux/bio.h>
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#define DM_MSG_PREFIX "platter"
#define MAX_TRACE	1048576

static struct dentry *debugfs_dir;

/* ---- bios ---- */

static int platter_map(struct dm_target *ti, struct bio *bio)
{
	struct platter_disk *disk = ti->private;
	struct platter_io *io = dm_per_bio_data(bio, sizeof(*io));

	io->sector = dm_target_offset(ti, bio->bi_iter.bi_sector);
	io->sectors = bio_sectors(bio);
	io->write = op_is_write(bio_op(bio));
	io->through = bio->bi_opf & REQ_FUA;
	io->ended = false;
	/* The device below has no cache of its own to flush. */
	if (!io->sectors) {
		platter_submit(disk, io);
		return DM_MAPIO_SUBMITTED;
	}
	bio_set_dev(bio, disk->dev->bdev);
	bio->bi_iter.bi_sector = disk->start + io->sector;
	return DM_MAPIO_REMAPPED;
}

/* Comes twice for each bio: when the data has moved, and when the disk is done. */
static int platter_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	struct platter_io *io = dm_per_bio_data(bio, sizeof(*io));

	if (io->ended || *error)
		return DM_ENDIO_DONE;
	platter_submit(ti->private, io);
	return DM_ENDIO_INCOMPLETE;
}

/* ---- the trace ---- */

static int trace_show(struct seq_file *m, void *unused)
{
	struct platter_disk *disk = m->private;
	const struct platter_event *event;

	for (event = disk->trace; event < disk->trace + disk->trace_used; event++)
		seq_printf(m, "%llu %llu %u %c\n", event->ns, (u64)event->sector, event->sectors,
			   event->write ? 'W' : 'R');
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(trace);

/* The trace begins anew; it ends by itself when it is full. */
static int start_trace(struct platter_disk *disk, const char *word)
{
	struct platter_event *trace, *old;
	unsigned int size;

	if (kstrtouint(word, 10, &size) || !size || size > MAX_TRACE)
		return -EINVAL;
	trace = vcalloc(size, sizeof(*trace));
	if (!trace)
		return -ENOMEM;
	spin_lock_irq(&disk->lock);
	old = disk->trace;
	disk->trace = trace;
	disk->trace_size = size;
	disk->trace_used = 0;
	spin_unlock_irq(&disk->lock);
	vfree(old);
	return 0;
}

/* ---- the table ---- */

/* A key of the table and the field that it sets. */
struct parameter {
	const char *name;
	unsigned int least, most;
	size_t offset;
};

#define KEY(_name, _least, _most, _field) \
	{ .name = _name, .least = _least, .most = _most, \
	  .offset = offsetof(struct platter_disk, _field) }

static const struct parameter keys[] = {
	KEY("rpm", 60, 60000, rpm),
	KEY("track_sectors", 64, 65536, track_sectors),
	KEY("skew", 0, 65536, skew),
	KEY("settle_us", 0, 100000, settle_us),
	KEY("seek_ns", 0, 1000000, seek_ns),
	KEY("depth", 1, 1024, depth),
	KEY("readahead", 0, 1 << 20, readahead),
	KEY("buffer", 0, 1 << 20, buffer),
	KEY("patience_ms", 1, 60000, patience_ms),
	KEY("command_us", 0, 10000, command_us),
	KEY("jitter_us", 0, 100000, jitter_us),
	KEY("link_us", 0, 1000, link_us),
	KEY("link_mbs", 1, 100000, link_mbs),
	KEY("cache_blocks", 8, 1 << 22, cache.blocks),
	KEY("destage_percent", 0, 100, cache.destage_percent),
	KEY("window", 1, 1024, cache.window),
};

static const char * const cache_names[] = { "none", "volatile", "battery" };

static unsigned int *key_field(struct platter_disk *disk, const struct parameter *key)
{
	return (unsigned int *)((char *)disk + key->offset);
}

/* As a 500 GB disk with one platter: see README.md. */
static void set_defaults(struct platter_disk *disk)
{
	disk->rpm = 7200;
	disk->track_sectors = 2048;
	disk->settle_us = 1500;
	disk->seek_ns = 20000;
	disk->depth = 32;
	disk->readahead = 512;
	disk->buffer = 4096;
	disk->patience_ms = 500;
	disk->command_us = 100;
	disk->link_us = 5;
	disk->link_mbs = 600;
	disk->cache.blocks = 4096;
	disk->cache.destage_percent = 50;
	disk->cache.window = 32;
}

static int set_key(struct platter_disk *disk, const char *name, const char *word)
{
	unsigned int i, value;
	int kind;

	if (!strcmp(name, "cache")) {
		kind = match_string(cache_names, ARRAY_SIZE(cache_names), word);
		if (kind < 0)
			return kind;
		disk->cache.kind = kind;
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(keys); i++) {
		if (strcmp(name, keys[i].name))
			continue;
		if (kstrtouint(word, 10, &value) || value < keys[i].least || value > keys[i].most)
			return -EINVAL;
		*key_field(disk, &keys[i]) = value;
		return 0;
	}
	return -EINVAL;
}

static int parse_features(struct platter_disk *disk, struct dm_arg_set *as, char **error)
{
	static const struct dm_arg count_arg = { 0, 64, "Invalid number of words" };
	const char *name, *word;
	unsigned int words;

	if (!as->argc)
		return 0;
	if (dm_read_arg_group(&count_arg, as, &words, error))
		return -EINVAL;
	for (; words >= 2; words -= 2) {
		name = dm_shift_arg(as);
		word = dm_shift_arg(as);
		if (set_key(disk, name, word)) {
			*error = "No such parameter, or no such value of it";
			return -EINVAL;
		}
	}
	return 0;
}

static int open_device(struct dm_target *ti, struct platter_disk *disk, struct dm_arg_set *as)
{
	const char *path = dm_shift_arg(as);
	unsigned long long start;

	if (kstrtoull(dm_shift_arg(as), 10, &start)) {
		ti->error = "Invalid start";
		return -EINVAL;
	}
	disk->start = start;
	if (dm_get_device(ti, path, dm_table_get_mode(ti->table), &disk->dev)) {
		ti->error = "Device lookup failed";
		return -EINVAL;
	}
	return 0;
}

static int start_disk(struct dm_target *ti, struct platter_disk *disk)
{
	int r = platter_cache_init(&disk->cache);

	if (r) {
		ti->error = "No memory for the cache";
		return r;
	}
	platter_disk_start(disk);
	disk->debugfs = debugfs_create_file(dm_table_device_name(ti->table), 0400, debugfs_dir,
					    disk, &trace_fops);
	ti->private = disk;
	ti->per_io_data_size = sizeof(struct platter_io);
	ti->num_flush_bios = 1;
	/* Whether the device above says that it has a cache hangs on this. */
	ti->flush_supported = disk->cache.kind == PLATTER_CACHE_VOLATILE;
	return 0;
}

static int platter_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { .argc = argc, .argv = argv };
	struct platter_disk *disk;
	int r = -EINVAL;

	if (argc < 2) {
		ti->error = "Usage: <dev> <start> [<#words> <key> <value> ...]";
		return r;
	}
	disk = kzalloc(sizeof(*disk), GFP_KERNEL);
	if (!disk) {
		ti->error = "No memory";
		return -ENOMEM;
	}
	set_defaults(disk);
	r = open_device(ti, disk, &as);
	if (r)
		goto free_disk;
	r = parse_features(disk, &as, &ti->error);
	if (!r)
		r = start_disk(ti, disk);
	if (!r)
		return 0;
	dm_put_device(ti, disk->dev);
free_disk:
	kfree(disk);
	return r;
}

static void platter_dtr(struct dm_target *ti)
{
	struct platter_disk *disk = ti->private;

	debugfs_remove(disk->debugfs);
	platter_disk_stop(disk);
	platter_cache_exit(&disk->cache);
	dm_put_device(ti, disk->dev);
	vfree(disk->trace);
	kfree(disk);
}

/* ---- status and messages ---- */

static void emit_table(struct platter_disk *disk, char *result, unsigned int maxlen)
{
	unsigned int i, sz = 0;

	DMEMIT("%s %llu %zu cache %s", disk->dev->name, (u64)disk->start,
	       2 * (ARRAY_SIZE(keys) + 1), cache_names[disk->cache.kind]);
	for (i = 0; i < ARRAY_SIZE(keys); i++)
		DMEMIT(" %s %u", keys[i].name, *key_field(disk, &keys[i]));
}

static void emit_counters(struct platter_disk *disk, char *result, unsigned int maxlen)
{
	struct platter_counters c;
	unsigned int sz = 0;

	spin_lock_irq(&disk->lock);
	c = disk->count;
	spin_unlock_irq(&disk->lock);
	DMEMIT("reads %llu read_sectors %llu writes %llu write_sectors %llu flushes %llu",
	       c.reads, c.read_sectors, c.writes, c.write_sectors, c.flushes);
	DMEMIT(" read_hits %llu media_reads %llu media_read_sectors %llu",
	       c.read_hits, c.media_reads, c.media_read_sectors);
	DMEMIT(" media_writes %llu media_write_sectors %llu", c.media_writes,
	       c.media_write_sectors);
	DMEMIT(" seeks %llu seek_tracks %llu seek_ns %llu wait_ns %llu transfer_ns %llu",
	       c.seeks, c.seek_tracks, c.seek_ns, c.wait_ns, c.transfer_ns);
	DMEMIT(" most_queued %llu", c.most_queued);
}

static void platter_status(struct dm_target *ti, status_type_t type, unsigned int status_flags,
			   char *result, unsigned int maxlen)
{
	struct platter_disk *disk = ti->private;

	if (type == STATUSTYPE_INFO)
		emit_counters(disk, result, maxlen);
	else if (type == STATUSTYPE_TABLE)
		emit_table(disk, result, maxlen);
	else
		*result = '\0';
}

static int platter_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			   unsigned int maxlen)
{
	struct platter_disk *disk = ti->private;

	if (argc == 1 && !strcmp(argv[0], "reset")) {
		spin_lock_irq(&disk->lock);
		memset(&disk->count, 0, sizeof(disk->count));
		spin_unlock_irq(&disk->lock);
		return 0;
	}
	if (argc == 2 && !strcmp(argv[0], "trace"))
		return start_trace(disk, argv[1]);
	return -EINVAL;
}

static int platter_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn, void *data)
{
	struct platter_disk *disk = ti->private;

	return fn(ti, disk->dev, disk->start, ti->len, data);
}

static struct target_type platter_target = {
	.name = "platter",
	.version = {1, 0, 0},
	.module = THIS_MODULE,
	.ctr = platter_ctr,
	.dtr = platter_dtr,
	.map = platter_map,
	.end_io = platter_end_io,
	.status = platter_status,
	.message = platter_message,
	.iterate_devices = platter_iterate_devices,
};

static int __init platter_init(void)
{
	int r;

	debugfs_dir = debugfs_create_dir("dm-platter", NULL);
	r = dm_register_target(&platter_target);
	if (r)
		debugfs_remove(debugfs_dir);
	return r;
}

static void __exit platter_exit(void)
{
	dm_unregister_target(&platter_target);
	debugfs_remove(debugfs_dir);
}

module_init(platter_init);
module_exit(platter_exit);

MODULE_DESCRIPTION("One spinning disk as a device-mapper target, for benchmarks");
MODULE_LICENSE("GPL");

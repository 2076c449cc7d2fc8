// SPDX-License-Identifier: GPL-2.0-only
/*
 * What workers do: writes, discards, zeroes and fsyncs of the origin and of snapshots, and reads
 * where it is not certain which sectors a change has reached.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "workload.h"

bool view_is_lost(const struct view *v)
{
	char line[400];

	return v->open && !dm_status(v->name, line, sizeof(line)) &&
	       (strstr(line, "Invalid") || strstr(line, "Overflow"));
}

static void io_failed(struct view *v, const char *what, u32 sector, int error)
{
	char line[400];

	if (run.set.drops && v != load.origin && view_is_lost(v))
		return;
	dm_status(v->name, line, sizeof(line));
	fail("%s of view %u (id %u), sector %u: %s (status: %s)", what, view_index(v), v->id,
	     sector, strerror(error), line);
}

void read_sectors(struct view *v, u32 sector, u32 count, u8 *buf)
{
	ssize_t bytes = (ssize_t)count * SECTOR_BYTES;
	ssize_t done = pread(v->fd, buf, bytes, (off_t)sector * SECTOR_BYTES);

	if (done != bytes)
		io_failed(v, "read", sector, done < 0 ? errno : EIO);
}

void compare_live(struct worker *w, struct view *v)
{
	u32 sector, count, i, tag;

	for (sector = 0; sector < run.set.origin_sectors; sector += count) {
		count = run.set.origin_sectors - sector;
		if (count > MAX_IO_SECTORS)
			count = MAX_IO_SECTORS;
		read_sectors(v, sector, count, w->buf);
		for (i = 0; i < count; i++) {
			tag = sector_tag(w->buf + (size_t)i * SECTOR_BYTES, sector + i);
			if (tag == v->tag[sector + i] || view_is_lost(v))
				continue;
			printf("# expected:\n");
			print_op(v->tag[sector + i]);
			print_content(w->buf + (size_t)i * SECTOR_BYTES);
			print_history(sector + i);
			fail("view %u (id %u) without any cut, sector %u, before op %u",
			     view_index(v), v->id, sector + i, run.nr_ops);
		}
	}
}

/* A discard is but a hint, and a write may find no room: look which sectors took it. */
static void settle_change(struct worker *w, struct view *v, const struct op *op, u32 tag)
{
	u32 tags[MAX_IO_SECTORS];
	u32 i, sector;

	read_sectors(v, op->sector, op->count, w->buf);
	for (i = 0; i < op->count; i++) {
		sector = op->sector + i;
		tags[i] = sector_tag(w->buf + (size_t)i * SECTOR_BYTES, sector);
		if (tags[i] != tag && tags[i] != v->tag[sector] && !view_is_lost(v)) {
			print_op(v->tag[sector]);
			print_content(w->buf + (size_t)i * SECTOR_BYTES);
			fail("sector %u of view %u after a change of it", sector, view_index(v));
		}
	}
	change_end(w, v, op, tags, 0);
}

static void do_write(struct worker *w, struct view *v, u32 sector, u32 count)
{
	bool dsync = chance(&w->random, 12);
	struct iovec iov = { w->buf, (size_t)count * SECTOR_BYTES };
	ssize_t done;
	u32 tag;

	range_lock(w, v, sector, count);
	tag = op_begin(w, OP_WRITE, view_index(v), sector, count);
	run.ops[tag].dsync = dsync;
	fill_sectors(w->buf, sector, count, tag);
	done = pwritev2(v->fd, &iov, 1, (off_t)sector * SECTOR_BYTES, dsync ? RWF_DSYNC : 0);
	if (done == (ssize_t)iov.iov_len)
		op_ack(tag);
	else if (done >= 0 || errno != ENOSPC || !run.set.drops || v == load.origin)
		io_failed(v, "write", sector, done < 0 ? errno : EIO);
	if (done == (ssize_t)iov.iov_len || view_is_lost(v))
		change_end(w, v, &run.ops[tag], NULL, tag);
	else
		settle_change(w, v, &run.ops[tag], tag);
	range_unlock(w, v);
}

static void do_discard(struct worker *w, struct view *v, u32 sector, u32 count)
{
	u64 range[2] = { (u64)sector * SECTOR_BYTES, (u64)count * SECTOR_BYTES };
	u32 tag;

	range_lock(w, v, sector, count);
	tag = op_begin(w, OP_DISCARD, view_index(v), sector, count);
	if (ioctl(v->fd, BLKDISCARD, range)) {
		if (errno != EOPNOTSUPP)
			io_failed(v, "discard", sector, errno);
		load.origin_discards = false;
	}
	op_ack(tag);
	settle_change(w, v, &run.ops[tag], 0);
	range_unlock(w, v);
}

/* Where some of it is refused the kernel writes zeros instead. */
static void do_zero(struct worker *w, struct view *v, u32 sector, u32 count)
{
	u64 range[2] = { (u64)sector * SECTOR_BYTES, (u64)count * SECTOR_BYTES };
	u32 tag;

	range_lock(w, v, sector, count);
	tag = op_begin(w, OP_ZERO, view_index(v), sector, count);
	if (ioctl(v->fd, BLKZEROOUT, range))
		io_failed(v, "write-zeroes", sector, errno);
	op_ack(tag);
	change_end(w, v, &run.ops[tag], NULL, 0);
	range_unlock(w, v);
}

void worker_fsync(struct worker *w, struct view *v)
{
	u32 tag = op_begin(w, OP_FSYNC, view_index(v), 0, 0);

	if (!fsync(v->fd))
		op_ack(tag);
	else
		io_failed(v, "fsync", 0, errno);
}

static u32 pick_count(struct worker *w)
{
	static const u32 limits[] = { 8, 8, 16, 32, 64, 256 };
	u32 limit = limits[below(&w->random, 6)];

	return (1 + below(&w->random, limit / load.block_sectors)) * load.block_sectors;
}

/* Most of the work meets in an eighth of the device. */
static u32 pick_sector(struct worker *w, u32 count)
{
	u32 room = (run.set.origin_sectors - count) / load.block_sectors + 1;
	u32 sector;

	if (chance(&w->random, 3))
		return run.set.origin_sectors - count;
	if (chance(&w->random, 60))
		room = room / 8 + 1;
	sector = below(&w->random, room) * load.block_sectors;
	return chance(&w->random, 50) ? sector & ~7U : sector;
}

/* The origin more often than not, else one of the open snapshots. */
static struct view *pick_view(struct worker *w)
{
	struct view *v, *picked = load.origin;
	u32 nr = 0;

	if (chance(&w->random, 70))
		return load.origin;
	pthread_mutex_lock(&load.lock);
	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		if (v->open && !v->gone && !below(&w->random, ++nr))
			picked = v;
	pthread_mutex_unlock(&load.lock);
	return picked;
}

static void work(struct worker *w, struct view *v)
{
	u32 count = pick_count(w);
	u32 sector = pick_sector(w, count);
	u32 dice = below(&w->random, 100);

	if (dice < 12)
		worker_fsync(w, v);
	else if (dice < 17 && v == load.origin && load.origin_discards)
		do_discard(w, v, sector, count);
	else if (dice < 35 && run.set.zeroes)
		do_zero(w, v, sector, count);
	else
		do_write(w, v, sector, count);
}

void *worker_run(void *data)
{
	struct worker *w = data;
	u32 number;

	for (;;) {
		number = __atomic_fetch_add(&load.nr_started, 1, __ATOMIC_RELAXED);
		if (number >= run.set.nr_operations)
			break;
		while (number >= __atomic_load_n(&load.nr_allowed, __ATOMIC_RELAXED))
			usleep(500);
		pthread_rwlock_rdlock(&load.gate);
		work(w, pick_view(w));
		pthread_rwlock_unlock(&load.gate);
	}
	return NULL;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The workload: workers write to the origin and to snapshots, the controller makes,
 * deletes, opens, closes and merges snapshots, grows the store, restarts all of it.
 *
 * The gate is held shared by each operation of a worker and exclusively by whatever
 * the controller does to a device they use. Ranges are locked, so that the tag of
 * each sector is exact; but in a snapshot made while writers run, whose sectors are
 * read once it has been made to see which of the writes under way it has.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "crash.h"

#define MERGE_SECONDS	120
#define PACE		10	/* operations of workers for one of the controller */

struct worker {
	u32 number;
	u64 random;
	u8 *buf;
	pthread_t id;
};

static pthread_rwlock_t gate;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static u32 in_flight[MAX_WORKERS + 1];
static struct view *window;	/* of the snapshot being made */
static u32 nr_started;
static u32 nr_allowed;		/* to start, of the workers' operations */
static u32 block_sectors;
static u32 store_sectors;	/* now */
static bool origin_discards;
static bool no_more;		/* dm-snapshot's store has been merged */
static struct view *merging;

static struct view *origin;

/* ---- operations ---- */

static u32 op_begin(struct worker *w, enum op_kind kind, u32 view, u32 sector, u32 count)
{
	struct op *op;
	u32 tag;

	pthread_mutex_lock(&lock);
	tag = run.nr_ops++;
	if (tag == MAX_OPS)
		fail("more than %u operations", MAX_OPS);
	op = &run.ops[tag];
	op->kind = kind;
	op->view = view;
	op->sector = sector;
	op->count = count;
	op->begin = NEVER;
	op->ack = NEVER;
	if (view == ORIGIN_VIEW && (kind == OP_WRITE || kind == OP_DISCARD)) {
		in_flight[w->number] = tag;
		if (window)
			window->window[window->nr_window++] = tag;
	}
	pthread_mutex_unlock(&lock);
	record_mark('b', tag);
	return tag;
}

static void op_ack(u32 tag)
{
	record_mark('a', tag);
}

static u32 view_index(const struct view *v)
{
	return v - run.views;
}

/* The change is over; each sector has @tag, or what @tags says. */
static void change_end(struct worker *w, struct view *v, const struct op *op, const u32 *tags,
		       u32 tag)
{
	u32 i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < op->count; i++)
		v->tag[op->sector + i] = tags ? tags[i] : tag;
	if (v == origin)
		in_flight[w->number] = 0;
	pthread_mutex_unlock(&lock);
}

static bool is_busy(const struct view *v, u32 sector, u32 count)
{
	const struct range *r;

	for (r = v->busy; r <= v->busy + MAX_WORKERS; r++)
		if (r->count && sector < r->sector + r->count && r->sector < sector + count)
			return true;
	return false;
}

static void range_lock(struct worker *w, struct view *v, u32 sector, u32 count)
{
	pthread_mutex_lock(&lock);
	while (is_busy(v, sector, count))
		pthread_cond_wait(&changed, &lock);
	v->busy[w->number] = (struct range){ sector, count };
	pthread_mutex_unlock(&lock);
}

static void range_unlock(struct worker *w, struct view *v)
{
	pthread_mutex_lock(&lock);
	v->busy[w->number].count = 0;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* ---- states of snapshots ---- */

static bool is_lost(const struct view *v)
{
	char line[400];

	return v->open && !dm_status(v->name, line, sizeof(line)) &&
	       (strstr(line, "Invalid") || strstr(line, "Overflow"));
}

static void io_failed(struct view *v, const char *what, u32 sector, int error)
{
	char line[400];

	if (run.set.drops && v != origin && is_lost(v))
		return;
	dm_status(v->name, line, sizeof(line));
	fail("%s of view %u (id %u), sector %u: %s (status: %s)", what, view_index(v), v->id,
	     sector, strerror(error), line);
}

/* ---- workers ---- */

static void read_sectors(struct view *v, u32 sector, u32 count, u8 *buf)
{
	ssize_t bytes = (ssize_t)count * SECTOR_BYTES;
	ssize_t done = pread(v->fd, buf, bytes, (off_t)sector * SECTOR_BYTES);

	if (done != bytes)
		io_failed(v, "read", sector, done < 0 ? errno : EIO);
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
		if (tags[i] != tag && tags[i] != v->tag[sector] && !is_lost(v)) {
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
	else if (done >= 0 || errno != ENOSPC || !run.set.drops || v == origin)
		io_failed(v, "write", sector, done < 0 ? errno : EIO);
	if (done == (ssize_t)iov.iov_len || is_lost(v))
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
		origin_discards = false;
	}
	op_ack(tag);
	settle_change(w, v, &run.ops[tag], 0);
	range_unlock(w, v);
}

static void do_fsync(struct worker *w, struct view *v)
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

	return (1 + below(&w->random, limit / block_sectors)) * block_sectors;
}

/* Most of the work meets in an eighth of the device. */
static u32 pick_sector(struct worker *w, u32 count)
{
	u32 room = (run.set.origin_sectors - count) / block_sectors + 1;
	u32 sector;

	if (chance(&w->random, 3))
		return run.set.origin_sectors - count;
	if (chance(&w->random, 60))
		room = room / 8 + 1;
	sector = below(&w->random, room) * block_sectors;
	return chance(&w->random, 50) ? sector & ~7U : sector;
}

/* The origin more often than not, else one of the open snapshots. */
static struct view *pick_view(struct worker *w)
{
	struct view *v, *picked = origin;
	u32 nr = 0;

	if (chance(&w->random, 70))
		return origin;
	pthread_mutex_lock(&lock);
	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		if (v->open && !v->gone && !below(&w->random, ++nr))
			picked = v;
	pthread_mutex_unlock(&lock);
	return picked;
}

static void work(struct worker *w, struct view *v)
{
	u32 count = pick_count(w);
	u32 sector = pick_sector(w, count);
	u32 dice = below(&w->random, 100);

	if (dice < 12)
		do_fsync(w, v);
	else if (dice < 17 && v == origin && origin_discards)
		do_discard(w, v, sector, count);
	else
		do_write(w, v, sector, count);
}

static void allow(u32 more)
{
	__atomic_fetch_add(&nr_allowed, more, __ATOMIC_RELAXED);
}

static void *worker_run(void *data)
{
	struct worker *w = data;
	u32 number;

	for (;;) {
		number = __atomic_fetch_add(&nr_started, 1, __ATOMIC_RELAXED);
		if (number >= run.set.nr_operations)
			break;
		while (number >= __atomic_load_n(&nr_allowed, __ATOMIC_RELAXED))
			usleep(500);
		pthread_rwlock_rdlock(&gate);
		work(w, pick_view(w));
		pthread_rwlock_unlock(&gate);
	}
	return NULL;
}

/* ---- tables ---- */

static void merge_table(char *table, size_t size, const struct view *v)
{
	const struct settings *set = &run.set;

	if (set->stock)
		snprintf(table, size, "%u snapshot-merge %s %s P %u", set->origin_sectors,
			 origin_below, store_below, set->chunk_sectors);
	else
		snprintf(table, size, "%u cowsnap-merge %s %s P %u 2 id %u",
			 set->origin_sectors, origin_below, store_below, set->chunk_sectors,
			 v->id);
}

/* That of a merge while there is one. */
static void origin_table(char *table, size_t size, bool store)
{
	u32 sectors = run.set.origin_sectors;

	if (merging)
		merge_table(table, size, merging);
	else if (run.set.stock)
		snprintf(table, size, "%u snapshot-origin %s", sectors, origin_below);
	else if (store)
		snprintf(table, size, "%u cowsnap-origin %s 2 store %s", sectors, origin_below,
			 store_below);
	else
		snprintf(table, size, "%u cowsnap-origin %s", sectors, origin_below);
}

static void snapshot_table(char *table, size_t size, const struct view *v, bool create)
{
	const struct settings *set = &run.set;
	const char *full = set->drops ? " on_full drop_oldest" : "";

	if (set->stock)
		snprintf(table, size, "%u snapshot %s %s P %u", set->origin_sectors,
			 origin_below, store_below, set->chunk_sectors);
	else
		snprintf(table, size, "%u cowsnap %s %s P %u %u id %u%s%s", set->origin_sectors,
			 origin_below, store_below, set->chunk_sectors,
			 2 + create + (*full ? 2 : 0), v->id, create ? " create" : "", full);
}

static void replace_origin_table(const char *table)
{
	int ret = dm_load(origin->name, "%s", table);

	if (!ret)
		ret = dm_suspend(origin->name);
	if (!ret)
		ret = dm_resume(origin->name);
	if (ret)
		fail("table '%s': %s", table, strerror(-ret));
}

static void open_view(struct view *v, const char *table)
{
	int ret = dm_make(v->name, v->path, sizeof(v->path), "%s", table);

	if (ret)
		fail("table '%s': %s", table, strerror(-ret));
	v->fd = open_device(v->path);
}

static void open_origin(bool store)
{
	char table[400];

	origin_table(table, sizeof(table), store);
	open_view(origin, table);
}

static void open_snapshot(struct view *v, bool create)
{
	char table[400];

	snapshot_table(table, sizeof(table), v, create);
	open_view(v, table);
}

static void close_view(struct view *v)
{
	close(v->fd);
	v->fd = -1;
	dm_remove(v->name);
}

/* ---- without any cut ---- */

static void compare_live(struct worker *w, struct view *v)
{
	u32 sector, count, i, tag;

	for (sector = 0; sector < run.set.origin_sectors; sector += count) {
		count = run.set.origin_sectors - sector;
		if (count > MAX_IO_SECTORS)
			count = MAX_IO_SECTORS;
		read_sectors(v, sector, count, w->buf);
		for (i = 0; i < count; i++) {
			tag = sector_tag(w->buf + (size_t)i * SECTOR_BYTES, sector + i);
			if (tag == v->tag[sector + i] || is_lost(v))
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

/* ---- making a snapshot ---- */

static bool id_is_taken(u32 id)
{
	const struct view *v;

	if (merging && merging->id == id)
		return true;
	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		if (v->created && !v->gone && v->id == id)
			return true;
	return false;
}

static u32 pick_id(struct worker *w)
{
	u32 id;

	if (run.set.stock)
		return 0;
	do {
		id = chance(&w->random, 15) ? below(&w->random, 65536) : below(&w->random, 10);
	} while (id_is_taken(id));
	return id;
}

static struct view *view_new(u32 id)
{
	struct view *v;
	size_t bytes = run.set.origin_sectors * sizeof(u32);

	if (run.nr_views == MAX_VIEWS)
		fail("more than %u snapshots", MAX_VIEWS);
	v = &run.views[run.nr_views];
	v->id = id;
	v->fd = -1;
	v->tag = allocate(bytes);
	snprintf(v->name, sizeof(v->name), "cowcrash-%d-v%u", getpid(), run.nr_views);
	if (run.nr_views) {
		v->before = allocate(bytes);
		v->first = allocate(bytes);
		v->window = allocate((run.set.nr_operations + MAX_WORKERS + 1) * sizeof(u32));
	}
	pthread_mutex_lock(&lock);
	run.nr_views++;
	pthread_mutex_unlock(&lock);
	return v;
}

static void window_open(struct view *v)
{
	u32 i;

	pthread_mutex_lock(&lock);
	memcpy(v->before, origin->tag, run.set.origin_sectors * sizeof(u32));
	for (i = 0; i <= MAX_WORKERS; i++)
		if (in_flight[i])
			v->window[v->nr_window++] = in_flight[i];
	window = v;
	pthread_mutex_unlock(&lock);
}

static void window_close(struct view *v)
{
	pthread_mutex_lock(&lock);
	window = NULL;
	memcpy(v->first, v->before, run.set.origin_sectors * sizeof(u32));
	pthread_mutex_unlock(&lock);
}

static bool in_window(const struct view *v, u32 sector, u32 tag)
{
	const struct op *op;
	u32 i;

	for (i = 0; i < v->nr_window; i++) {
		op = &run.ops[v->window[i]];
		if (sector - op->sector < op->count &&
		    (v->window[i] == tag || (!tag && op->kind == OP_DISCARD)))
			return true;
	}
	return false;
}

/* What the snapshot has of the writes that ran while it was made. */
static void settle_snapshot(struct worker *w, struct view *v)
{
	const struct op *op;
	u32 i, j, tag, sector;

	for (i = 0; i < v->nr_window; i++) {
		op = &run.ops[v->window[i]];
		read_sectors(v, op->sector, op->count, w->buf);
		for (j = 0; j < op->count; j++) {
			sector = op->sector + j;
			tag = sector_tag(w->buf + (size_t)j * SECTOR_BYTES, sector);
			if (tag != v->before[sector] && !in_window(v, sector, tag)) {
				print_op(v->before[sector]);
				print_content(w->buf + (size_t)j * SECTOR_BYTES);
				fail("sector %u of snapshot %u, just made", sector,
				     view_index(v));
			}
			v->first[sector] = tag;
		}
	}
}

static void create_by(struct view *v, bool by_table)
{
	int ret = 0;

	if (by_table)
		open_snapshot(v, !run.set.stock);
	else
		ret = dm_message(origin->name, "create %u", v->id);
	if (ret)
		fail("create %u: %s", v->id, strerror(-ret));
}

static struct view *create(struct worker *w, bool by_table, bool running)
{
	struct view *v = view_new(pick_id(w));
	bool opens = by_table || running || chance(&w->random, 60) || run.set.drops;
	u32 tag;

	if (!running)
		pthread_rwlock_wrlock(&gate);
	window_open(v);
	tag = op_begin(w, OP_CREATE, view_index(v), 0, 0);
	create_by(v, by_table);
	op_ack(tag);
	window_close(v);
	v->looked = tag;
	if (!running)
		pthread_rwlock_unlock(&gate);
	if (opens && !by_table)
		open_snapshot(v, false);
	if (v->nr_window)
		settle_snapshot(w, v);
	memcpy(v->tag, v->first, run.set.origin_sectors * sizeof(u32));
	pthread_mutex_lock(&lock);
	v->created = tag;
	v->open = opens;
	pthread_mutex_unlock(&lock);
	return v;
}

/* ---- the controller ---- */

static struct view *pick_snapshot(struct worker *w, bool closed)
{
	struct view *v, *picked = NULL;
	u32 nr = 0;

	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		if (v->created && !v->gone && (!closed || !v->open) &&
		    !below(&w->random, ++nr))
			picked = v;
	return picked;
}

static u32 count_snapshots(void)
{
	const struct view *v;
	u32 nr = 0;

	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		nr += v->created && !v->gone;
	return nr;
}

static void set_gone(struct view *v, enum gone how, u32 begin, u32 end)
{
	pthread_mutex_lock(&lock);
	v->gone = how;
	v->gone_begin = begin;
	v->gone_end = end;
	pthread_mutex_unlock(&lock);
}

static void close_snapshot(struct worker *w, struct view *v)
{
	u32 tag;

	pthread_rwlock_wrlock(&gate);
	tag = op_begin(w, OP_CLOSE, view_index(v), 0, 0);
	close_view(v);
	v->open = false;
	op_ack(tag);
	pthread_rwlock_unlock(&gate);
}

static void reopen_snapshot(struct worker *w, struct view *v)
{
	u32 tag = op_begin(w, OP_OPEN, view_index(v), 0, 0);

	open_snapshot(v, false);
	op_ack(tag);
	pthread_mutex_lock(&lock);
	v->open = true;
	pthread_mutex_unlock(&lock);
}

/* By its id: what is left of one that was merged has to go as well. */
static u32 delete_id(struct worker *w, const struct view *v)
{
	u32 tag = op_begin(w, OP_DELETE, view_index(v), 0, 0);
	int ret = dm_message(origin->name, "delete %u", v->id);

	if (ret)
		fail("delete %u: %s", v->id, strerror(-ret));
	op_ack(tag);
	return tag;
}

static void delete_snapshot(struct worker *w, struct view *v)
{
	u32 tag;

	if (v->open)
		close_snapshot(w, v);
	tag = delete_id(w, v);
	set_gone(v, GONE_DELETED, tag, tag);
}

/* Which snapshots were dropped to make room? All are open where that may be. */
static void look(struct worker *w)
{
	u32 tag = op_begin(w, OP_LOOK, ORIGIN_VIEW, 0, 0);
	struct view *v;

	for (v = run.views + 1; v < run.views + run.nr_views; v++) {
		if (!v->created || v->gone || !v->open)
			continue;
		if (!is_lost(v)) {
			v->looked = tag;
			continue;
		}
		set_gone(v, GONE_DROPPED, v->looked, tag);
	}
	op_ack(tag);
	for (v = run.views + 1; v < run.views + run.nr_views; v++) {
		if (v->gone != GONE_DROPPED || !v->open)
			continue;
		close_snapshot(w, v);
		set_gone(v, GONE_DELETED, v->gone_begin, delete_id(w, v));
	}
}

static bool merge_is_finished(void)
{
	u64 used, total, metadata;
	char line[400];

	if (dm_status(origin->name, line, sizeof(line)) ||
	    sscanf(line, "%" SCNu64 "/%" SCNu64 " %" SCNu64, &used, &total, &metadata) != 3)
		fail("status of the merge: '%s'", line);
	return used == metadata;
}

static void wait_for_merge(void)
{
	int tries;

	for (tries = 0; !merge_is_finished(); tries++) {
		if (tries == MERGE_SECONDS * 100)
			fail("the merge does not end");
		allow(1);
		usleep(10000);
	}
}

static void set_throttle(u32 percent)
{
	int ret = dm_message(origin->name, "set throttle %u", percent);

	if (ret)
		fail("set throttle: %s", strerror(-ret));
}

static void merge_begin(struct worker *w, struct view *v)
{
	char table[400];
	u32 tag;

	if (!v->open)
		reopen_snapshot(w, v);
	pthread_rwlock_wrlock(&gate);
	do_fsync(w, v);
	close_view(v);
	v->open = false;
	v->last = allocate(run.set.origin_sectors * sizeof(u32));
	memcpy(v->last, v->tag, run.set.origin_sectors * sizeof(u32));
	if (run.set.throttle)
		set_throttle(run.set.throttle);
	merging = v;
	origin_table(table, sizeof(table), true);
	tag = op_begin(w, OP_MERGE, view_index(v), 0, 0);
	set_gone(v, GONE_MERGED, tag, tag);
	replace_origin_table(table);
	op_ack(tag);
	memcpy(origin->tag, v->last, run.set.origin_sectors * sizeof(u32));
	pthread_rwlock_unlock(&gate);
}

static void merge_end(struct worker *w, struct view *v)
{
	char table[400];
	u32 tag;

	pthread_rwlock_wrlock(&gate);
	merging = NULL;
	origin_table(table, sizeof(table), true);
	tag = op_begin(w, OP_MERGED, view_index(v), 0, 0);
	set_gone(v, GONE_MERGED, v->gone_begin, tag);
	replace_origin_table(table);
	op_ack(tag);
	if (run.set.throttle)
		set_throttle(100);
	no_more = run.set.stock;
	compare_live(w, origin);
	pthread_rwlock_unlock(&gate);
}

static u32 nr_grown;

static u32 step_to_grow(void)
{
	return (run.set.store_most - run.set.store_sectors) / 4 & ~7U;
}

/* At the latest after each eighth: a store that only chance made grow could be full before. */
static bool is_time_to_grow(struct worker *w)
{
	if (!run.set.grows || store_sectors + step_to_grow() > run.set.store_most)
		return false;
	return chance(&w->random, 8) ||
	       __atomic_load_n(&nr_started, __ATOMIC_RELAXED) >
	       run.set.nr_operations * (nr_grown + 1) / 8;
}

static void grow(struct worker *w)
{
	u32 tag;
	int ret;

	store_sectors += step_to_grow();
	nr_grown++;
	tag = op_begin(w, OP_GROW, ORIGIN_VIEW, 0, store_sectors);
	record_grow(store_sectors);
	ret = dm_message(origin->name, "resize");
	if (ret)
		fail("resize: %s", strerror(-ret));
	op_ack(tag);
}

/* All devices go, and come back in another order. */
static void restart(struct worker *w)
{
	bool origin_first = chance(&w->random, 50);
	struct view *v;
	u32 tag;

	pthread_rwlock_wrlock(&gate);
	tag = op_begin(w, OP_RESTART, ORIGIN_VIEW, 0, 0);
	if (chance(&w->random, 50))
		close_view(origin);
	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		if (v->open)
			close_view(v);
	if (origin->fd >= 0)
		close_view(origin);
	if (origin_first)
		open_origin(true);
	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		if (v->open)
			open_snapshot(v, false);
	if (!origin_first)
		open_origin(true);
	op_ack(tag);
	pthread_rwlock_unlock(&gate);
}

/* Meanwhile snapshots are deleted, and all is closed and opened. None is made. */
static void merge(struct worker *w, struct view *v)
{
	merge_begin(w, v);
	v = pick_snapshot(w, false);
	if (v && chance(&w->random, 40))
		delete_snapshot(w, v);
	v = merging;
	if (run.set.restarts && chance(&w->random, 40))
		restart(w);
	wait_for_merge();
	merge_end(w, v);
	if (!run.set.stock)
		delete_id(w, v);
}

static void commit(struct worker *w)
{
	u32 tag = op_begin(w, OP_COMMIT, ORIGIN_VIEW, 0, 0);
	int ret = dm_message(origin->name, "commit");

	if (ret)
		fail("commit: %s", strerror(-ret));
	op_ack(tag);
}

static void control_snapshots(struct worker *w)
{
	const struct settings *set = &run.set;
	u32 nr = count_snapshots();
	struct view *v;

	if (!nr || (nr < set->snapshots && chance(&w->random, 60))) {
		create(w, chance(&w->random, 40), set->running && chance(&w->random, 50));
		return;
	}
	v = pick_snapshot(w, false);
	if (set->merges && chance(&w->random, 20))
		merge(w, v);
	else if (nr > 1 && !set->drops && chance(&w->random, 45))
		delete_snapshot(w, v);
	else if (!v->open)
		reopen_snapshot(w, v);
	else if (!set->drops)
		close_snapshot(w, v);
}

static void control(struct worker *w)
{
	const struct settings *set = &run.set;

	if (set->drops)
		look(w);
	if (set->stock) {
		if (set->merges && !no_more &&
		    __atomic_load_n(&nr_started, __ATOMIC_RELAXED) > set->nr_operations / 2)
			merge(w, &run.views[1]);
		return;
	}
	if (is_time_to_grow(w))
		grow(w);
	else if (set->restarts && chance(&w->random, 8))
		restart(w);
	else if (set->commits && chance(&w->random, 10))
		commit(w);
	else
		control_snapshots(w);
}

/* ---- from start to end ---- */

static void worker_init(struct worker *w, u32 number)
{
	w->number = number;
	w->random = run.set.seed * 1000003 + number;
	w->buf = aligned(MAX_IO_SECTORS * SECTOR_BYTES);
}

static void init_gate(void)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&gate, &attr);
}

/* The origin's device first, as one that learns of its store later. */
static void start(struct worker *w)
{
	char table[400];
	u32 i;

	run.ops = allocate(MAX_OPS * sizeof(*run.ops));
	run.views = allocate(MAX_VIEWS * sizeof(*run.views));
	run.nr_ops = 2;
	run.ops[1] = (struct op){ .kind = OP_FILL, .count = run.set.origin_sectors };
	origin = view_new(0);
	for (i = 0; i < run.set.origin_sectors; i++)
		origin->tag[i] = 1;
	origin->open = true;
	store_sectors = run.set.store_sectors;
	block_sectors = run.set.block_bytes / SECTOR_BYTES;
	origin_discards = run.set.discards;
	record_start();
	if (run.set.stock) {
		create(w, true, false);
		open_origin(true);
		return;
	}
	open_origin(false);
	create(w, true, false);
	origin_table(table, sizeof(table), true);
	replace_origin_table(table);
}

static void finish(struct worker *w)
{
	struct view *v;

	if (run.set.drops)
		look(w);
	for (v = run.views; v < run.views + run.nr_views; v++) {
		if (!v->open || v->gone)
			continue;
		compare_live(w, v);
		close_view(v);
	}
	for (v = run.views; v < run.views + run.nr_views; v++) {
		free(v->tag);
		v->tag = NULL;
	}
}

void workload_run(void)
{
	static struct worker workers[MAX_WORKERS + 1];
	struct worker *controller = &workers[run.set.nr_workers];
	u32 i;

	init_gate();
	for (i = 0; i <= run.set.nr_workers; i++)
		worker_init(&workers[i], i);
	start(controller);
	for (i = 0; i < run.set.nr_workers; i++)
		if (pthread_create(&workers[i].id, NULL, worker_run, &workers[i]))
			fail("no thread");
	while (__atomic_load_n(&nr_started, __ATOMIC_RELAXED) < run.set.nr_operations) {
		allow(below(&controller->random, 2 * PACE));
		control(controller);
		usleep(below(&controller->random, 10000));
	}
	allow(run.set.nr_operations);
	for (i = 0; i < run.set.nr_workers; i++)
		pthread_join(workers[i].id, NULL);
	finish(controller);
	record_stop();
	for (i = 0; i <= run.set.nr_workers; i++)
		free(workers[i].buf);
}

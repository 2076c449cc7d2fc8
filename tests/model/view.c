// SPDX-License-Identifier: GPL-2.0-only
/* A device with its model: range locks, I/O, and what each read must give. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "model.h"

/*
 * Guards the tags of the origin and the window being open: a snapshot takes
 * its tags from the origin's in one piece, together with what is in flight.
 */
static pthread_mutex_t instant_lock = PTHREAD_MUTEX_INITIALIZER;
static u64 in_flight[MAX_THREADS + 1];
static struct window *open_window;

void view_init(struct view *v, int index, const char *name)
{
	v->index = index;
	v->fd = -1;
	snprintf(v->name, sizeof(v->name), "%s", name);
	v->tag = calloc(device_sectors, sizeof(*v->tag));
	v->unsettled = calloc(device_sectors, sizeof(*v->unsettled));
	if (!v->tag || !v->unsettled)
		fail("no memory for the model of %s", name);
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->changed, NULL);
}

/* ---- users: a view is closed only when no thread works on it ---- */

bool view_get(struct view *v)
{
	bool live;

	pthread_mutex_lock(&v->lock);
	live = v->state == VIEW_LIVE;
	if (live)
		v->users++;
	pthread_mutex_unlock(&v->lock);
	return live;
}

void view_put(struct view *v)
{
	pthread_mutex_lock(&v->lock);
	v->users--;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
}

void view_drain(struct view *v, enum view_state next)
{
	pthread_mutex_lock(&v->lock);
	v->state = VIEW_LEAVING;
	while (v->users)
		pthread_cond_wait(&v->changed, &v->lock);
	v->state = next;
	pthread_mutex_unlock(&v->lock);
}

void view_open(struct view *v)
{
	v->fd = open(v->path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (v->fd < 0)
		fail("open %s: %s", v->path, strerror(errno));
	pthread_mutex_lock(&v->lock);
	v->state = VIEW_LIVE;
	pthread_mutex_unlock(&v->lock);
}

void view_close(struct view *v)
{
	close(v->fd);
	v->fd = -1;
}

/* ---- range locks: one range a thread, so no order is needed ---- */

static bool range_is_busy(const struct view *v, int thread, u64 sector, u64 count)
{
	const struct range *r;
	int i;

	for (i = 0; i <= MAX_THREADS; i++) {
		r = &v->busy[i];
		if (i != thread && r->count && sector < r->sector + r->count &&
		    r->sector < sector + count)
			return true;
	}
	return false;
}

static void range_lock(struct view *v, int thread, u64 sector, u64 count)
{
	pthread_mutex_lock(&v->lock);
	while (range_is_busy(v, thread, sector, count))
		pthread_cond_wait(&v->changed, &v->lock);
	v->busy[thread] = (struct range){ sector, count };
	pthread_mutex_unlock(&v->lock);
}

static void range_unlock(struct view *v, int thread)
{
	pthread_mutex_lock(&v->lock);
	v->busy[thread].count = 0;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
}

/* ---- changes of the origin, as a window sees them ---- */

static u64 change_begin(struct view *v, enum op_kind kind, int thread, u64 sector, u32 count)
{
	u64 tag;

	pthread_mutex_lock(&instant_lock);
	tag = history_add(kind, v->index, thread, sector, count);
	if (v->index == ORIGIN_VIEW) {
		in_flight[thread] = tag;
		if (open_window)
			open_window->tags[open_window->nr++] = tag;
	}
	pthread_mutex_unlock(&instant_lock);
	return tag;
}

/* @tags: what each sector holds now, or NULL when all hold @same. */
static void change_end(struct view *v, int thread, u64 op_tag, const u64 *tags, u64 same)
{
	const struct op *op = history_op(op_tag);
	u32 i;

	pthread_mutex_lock(&instant_lock);
	for (i = 0; i < op->count; i++)
		v->tag[op->sector + i] = tags ? tags[i] : same;
	memset(v->unsettled + op->sector, 0, op->count);
	if (v->index == ORIGIN_VIEW)
		in_flight[thread] = 0;
	history_end(op_tag);
	pthread_mutex_unlock(&instant_lock);
}

/*
 * From here on, until window_close(), each change of the origin may or may not
 * be in @snap. The room: every thread has one change in flight, and all the others
 * are in the history that is still to come, so its capacity is enough.
 */
void window_open(struct view *snap, int threads)
{
	struct window *w = &snap->window;
	int i;

	pthread_mutex_lock(&instant_lock);
	memcpy(snap->tag, views[ORIGIN_VIEW].tag, device_sectors * sizeof(*snap->tag));
	memset(snap->unsettled, 0, device_sectors);
	w->tags = realloc(w->tags, (opt.ops + opt.threads + 1) * sizeof(*w->tags));
	if (!w->tags)
		fail("no memory for a window");
	w->nr = 0;
	for (i = 0; i <= threads; i++)
		if (in_flight[i])
			w->tags[w->nr++] = in_flight[i];
	open_window = w;
	w->after_ns = now_ns();
	w->before_ns = UINT64_MAX;
	w->after_tag = 0;
	w->before_tag = 0;
	pthread_mutex_unlock(&instant_lock);
}

void window_close(struct view *snap)
{
	struct window *w = &snap->window;
	const struct op *op;
	size_t i;

	pthread_mutex_lock(&instant_lock);
	open_window = NULL;
	w->before_ns = now_ns();
	for (i = 0; i < w->nr; i++) {
		op = history_op(w->tags[i]);
		memset(snap->unsettled + op->sector, 1, op->count);
	}
	pthread_mutex_unlock(&instant_lock);
}

/* ---- one instant must explain what a snapshot holds ---- */

static bool op_covers(const struct op *op, u64 sector)
{
	return sector >= op->sector && sector - op->sector < op->count;
}

static u64 op_content_tag(u64 tag)
{
	return history_op(tag)->kind == OP_WRITE ? tag : 0;
}

static void check_instant(const struct view *v, u64 sector)
{
	const struct window *w = &v->window;

	if (w->after_ns <= w->before_ns)
		return;
	report_history(sector);
	fail("%s is not one instant: it has op %" PRIu64 ", and lacks op %" PRIu64
	     " which had finished before that began (0: the making itself); sector %" PRIu64
	     ", seed %" PRIu64, v->name, w->after_tag, w->before_tag, sector, opt.seed);
}

/* Operation @tag is in the snapshot: the instant came after its start. */
static void instant_is_after_start(struct window *w, u64 tag)
{
	const struct op *op = history_op(tag);

	if (op->start_ns > w->after_ns) {
		w->after_ns = op->start_ns;
		w->after_tag = tag;
	}
}

/* Operation @tag is not in the snapshot: the instant came before its end. */
static void instant_is_before_end(struct window *w, u64 tag)
{
	u64 end_ns = __atomic_load_n(&history_op(tag)->end_ns, __ATOMIC_ACQUIRE);

	/* a discard may lawfully have done nothing */
	if (history_op(tag)->kind == OP_DISCARD || !end_ns || end_ns >= w->before_ns)
		return;
	w->before_ns = end_ns;
	w->before_tag = tag;
}

static ptrdiff_t find_candidate(const struct view *v, u64 sector, const u8 *got)
{
	const struct window *w = &v->window;
	ptrdiff_t i;

	for (i = (ptrdiff_t)w->nr - 1; i >= 0; i--)
		if (op_covers(history_op(w->tags[i]), sector) &&
		    sector_holds(got, sector, op_content_tag(w->tags[i])))
			return i;
	return -1;
}

static pthread_mutex_t settle_lock = PTHREAD_MUTEX_INITIALIZER;

static void note_instant(struct view *v, u64 sector, ptrdiff_t found)
{
	struct window *w = &v->window;
	size_t i;

	/*
	 * Zeros do not say which zero-out or discard they are from; the last
	 * was taken, so what follows it is surely missing, and nothing is known of it.
	 */
	pthread_mutex_lock(&settle_lock);
	if (found >= 0 && history_op(w->tags[found])->kind == OP_WRITE)
		instant_is_after_start(w, w->tags[found]);
	for (i = found + 1; i < w->nr; i++)
		if (op_covers(history_op(w->tags[i]), sector))
			instant_is_before_end(w, w->tags[i]);
	check_instant(v, sector);
	pthread_mutex_unlock(&settle_lock);
}

/* The first read of an unsettled sector decides which of the values it holds. */
static bool settle_sector(struct view *v, u64 sector, const u8 *got)
{
	ptrdiff_t found = find_candidate(v, sector, got);

	if (found < 0 && !sector_holds(got, sector, v->tag[sector]))
		return false;
	note_instant(v, sector, found);
	if (found >= 0)
		v->tag[sector] = op_content_tag(v->window.tags[found]);
	v->unsettled[sector] = 0;
	return true;
}

static void check_sectors(struct view *v, u64 sector, u32 count, const u8 *buf)
{
	const u8 *got;
	u32 i;

	for (i = 0; i < count; i++) {
		got = buf + (size_t)i * SECTOR_BYTES;
		if (v->unsettled[sector + i] ? settle_sector(v, sector + i, got) :
		    sector_holds(got, sector + i, v->tag[sector + i]))
			continue;
		report_mismatch(v, sector + i, got);
		fail("%s differs from its model at sector %" PRIu64 " (sector %u of a read of %u)",
		     v->name, sector + i, i, count);
	}
}

/* ---- I/O ---- */

/*
 * An error is allowed only to a snapshot that was given too small a store: with
 * its state Invalid, or to a write of its own that finds no room.
 */
static void io_failed(struct view *v, const char *what, u64 sector, u32 count, int error)
{
	char status[256] = "";

	if (v->may_overflow && error == ENOSPC)
		return;
	if (v->may_overflow) {
		dm_status(v, status, sizeof(status));
		if (strstr(status, "Invalid") || strstr(status, "Overflow")) {
			pthread_mutex_lock(&v->lock);
			if (v->state == VIEW_LIVE)
				v->state = VIEW_INVALID;
			pthread_mutex_unlock(&v->lock);
			return;
		}
	}
	report_history(sector);
	fail("%s of %s, sectors %" PRIu64 "+%u: %s (status: %s), seed %" PRIu64,
	     what, v->name, sector, count, strerror(error), status, opt.seed);
}

static bool io_done(struct view *v, const char *what, u64 sector, u32 count, ssize_t done)
{
	if (done == (ssize_t)count * SECTOR_BYTES)
		return true;
	io_failed(v, what, sector, count, done < 0 ? errno : EIO);
	return false;
}

static bool pread_sectors(struct view *v, u64 sector, u32 count, u8 *buf)
{
	return io_done(v, "read", sector, count,
		       pread(v->fd, buf, (size_t)count * SECTOR_BYTES, sector * SECTOR_BYTES));
}

/*
 * A change that was not made for certain, in each sector: a discard is but a
 * hint, and a write may have failed half way. Read which, and say so in @tags.
 */
static void settle_change(struct view *v, u64 sector, u32 count, u8 *buf,
			  u64 *tags, u64 new_tag)
{
	const u8 *got;
	u32 i;

	for (i = 0; i < count; i++)
		tags[i] = new_tag;
	if (!pread_sectors(v, sector, count, buf))
		return;
	for (i = 0; i < count; i++) {
		got = buf + (size_t)i * SECTOR_BYTES;
		if (sector_holds(got, sector + i, new_tag))
			continue;
		check_sectors(v, sector + i, 1, got);
		tags[i] = v->tag[sector + i];
	}
}

/* The end of a change that all sectors have, or that failed. */
static void change_done(struct view *v, int thread, u64 tag, u64 new_tag, bool whole, u8 *buf)
{
	static __thread u64 tags[MAX_IO_SECTORS];
	const struct op *op = history_op(tag);

	if (!whole)
		settle_change(v, op->sector, op->count, buf, tags, new_tag);
	change_end(v, thread, tag, whole ? NULL : tags, new_tag);
}

void view_write(struct view *v, int thread, u64 sector, u32 count, u8 *buf)
{
	bool whole;
	u64 tag;

	range_lock(v, thread, sector, count);
	tag = change_begin(v, OP_WRITE, thread, sector, count);
	fill_sectors(buf, sector, count, tag);
	whole = io_done(v, "write", sector, count,
			pwrite(v->fd, buf, (size_t)count * SECTOR_BYTES,
			       sector * SECTOR_BYTES));
	change_done(v, thread, tag, tag, whole, buf);
	range_unlock(v, thread);
}

static int range_ioctl(struct view *v, unsigned long request, u64 sector, u32 count)
{
	u64 range[2] = { sector * SECTOR_BYTES, (u64)count * SECTOR_BYTES };

	return ioctl(v->fd, request, range);
}

void view_zeroout(struct view *v, int thread, u64 sector, u32 count, u8 *buf)
{
	bool whole;
	u64 tag;

	range_lock(v, thread, sector, count);
	tag = change_begin(v, OP_ZEROOUT, thread, sector, count);
	whole = !range_ioctl(v, BLKZEROOUT, sector, count);
	if (!whole)
		io_failed(v, "zeroout", sector, count, errno);
	change_done(v, thread, tag, 0, whole, buf);
	range_unlock(v, thread);
}

void view_discard(struct view *v, int thread, u64 sector, u32 count, u8 *buf)
{
	u64 tag;

	range_lock(v, thread, sector, count);
	tag = change_begin(v, OP_DISCARD, thread, sector, count);
	if (range_ioctl(v, BLKDISCARD, sector, count)) {
		if (errno != EOPNOTSUPP)
			io_failed(v, "discard", sector, count, errno);
		v->discards = false;
	}
	change_done(v, thread, tag, 0, false, buf);
	range_unlock(v, thread);
}

void view_read(struct view *v, int thread, u64 sector, u32 count, u8 *buf)
{
	u64 tag;

	range_lock(v, thread, sector, count);
	tag = history_add(OP_READ, v->index, thread, sector, count);
	if (pread_sectors(v, sector, count, buf))
		check_sectors(v, sector, count, buf);
	history_end(tag);
	range_unlock(v, thread);
}

void view_fsync(struct view *v, int thread)
{
	u64 tag = history_add(OP_FSYNC, v->index, thread, 0, 0);

	if (fsync(v->fd))
		io_failed(v, "fsync", 0, 0, errno);
	history_end(tag);
}

/* Every byte. Others may go on working on @v meanwhile. */
void view_compare(struct view *v, int thread, u8 *buf)
{
	u64 sector;
	u32 count;

	for (sector = 0; sector < device_sectors; sector += count) {
		count = device_sectors - sector < MAX_IO_SECTORS ?
			device_sectors - sector : MAX_IO_SECTORS;
		if (v->state == VIEW_INVALID)
			return;
		view_read(v, thread, sector, count, buf);
	}
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-platter: the head, the queue, the buffer for reading ahead, the link to the host.
 *
 * Time is the kernel's monotonic clock, and the platter's angle is that time modulo one
 * rotation. The head does one thing at a time; when it ends is known when it begins, so one
 * timer is enough. What comes next is chosen as of that end, not as of the interrupt that
 * tells of it, because a disk goes on without its host.
 */
#include "platter.h"

#include <linux/bio.h>
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/module.h>

static u64 now_ns(void)
{
	return ktime_get_ns();
}

void platter_finish(struct platter_io *io)
{
	struct bio *bio = dm_bio_from_per_bio_data(io, sizeof(*io));

	io->ended = true;
	bio_endio(bio);
}

/* ---- the link ---- */

static void arm_link(struct platter_disk *disk)
{
	struct platter_io *first = list_first_entry(&disk->crossing, struct platter_io, list);

	hrtimer_start(&disk->link_timer, ns_to_ktime(first->end_ns), HRTIMER_MODE_ABS);
}

void platter_cross_link(struct platter_disk *disk, struct platter_io *io, u64 ready_ns)
{
	u64 begin_ns = max(ready_ns, disk->link_free_ns);
	bool was_empty = list_empty(&disk->crossing);

	io->end_ns = begin_ns + disk->link_us * NSEC_PER_USEC +
		     div_u64((u64)io->sectors * SECTOR_SIZE * 1000, disk->link_mbs);
	disk->link_free_ns = io->end_ns;
	list_add_tail(&io->list, &disk->crossing);
	if (was_empty)
		arm_link(disk);
}

static enum hrtimer_restart link_timer_fn(struct hrtimer *timer)
{
	struct platter_disk *disk = container_of(timer, struct platter_disk, link_timer);
	struct platter_io *io, *next;
	LIST_HEAD(ended);
	unsigned long flags;
	u64 now = now_ns();

	spin_lock_irqsave(&disk->lock, flags);
	list_for_each_entry_safe(io, next, &disk->crossing, list) {
		if (io->end_ns > now)
			break;
		list_move_tail(&io->list, &ended);
	}
	if (!list_empty(&disk->crossing))
		arm_link(disk);
	spin_unlock_irqrestore(&disk->lock, flags);

	list_for_each_entry_safe(io, next, &ended, list)
		platter_finish(io);
	return HRTIMER_NORESTART;
}

/* ---- the head ---- */

static sector_t track_of(const struct platter_disk *disk, sector_t sector)
{
	return div_u64(sector, disk->track_sectors);
}

static u64 seek_time_ns(const struct platter_disk *disk, sector_t sector)
{
	sector_t to = track_of(disk, sector), from = track_of(disk, disk->head);
	u64 distance = to > from ? to - from : from - to;

	if (!distance)
		return 0;
	/* The square root with ten binary places. */
	return disk->settle_us * NSEC_PER_USEC +
	       ((disk->seek_ns * (u64)int_sqrt64(distance << 20)) >> 10);
}

/* Where the sector is, as the time in which the platter turns so far: each track begins later. */
static u64 angle_of(const struct platter_disk *disk, sector_t sector)
{
	u64 track, angle;
	u32 place;

	track = div_u64_rem(sector, disk->track_sectors, &place);
	if (!disk->skew)
		return place * disk->sector_ns;
	div64_u64_rem(place * disk->sector_ns + track * disk->skew_ns, disk->rotation_ns, &angle);
	return angle;
}

/* How long sectors from @first up to @end take to pass: with the skew wherever a track ends. */
static u64 passing_ns(const struct platter_disk *disk, sector_t first, sector_t end)
{
	u64 ns = (end - first) * disk->sector_ns;

	if (disk->skew)
		ns += (track_of(disk, end - 1) - track_of(disk, first)) * disk->skew_ns;
	return ns;
}

/* The head goes on behind @at, whose last sector has just passed: where it is @ns later. */
static sector_t goes_on_to(const struct platter_disk *disk, sector_t at, u64 ns)
{
	u64 tracks, rest, track = track_of(disk, at - 1);

	if (!disk->skew)
		return at + div64_u64(ns, disk->sector_ns);
	ns += (at - track * disk->track_sectors) * disk->sector_ns;
	tracks = div64_u64_rem(ns, disk->rotation_ns + disk->skew_ns, &rest);
	rest = min_t(u64, div64_u64(rest, disk->sector_ns), disk->track_sectors);
	return (track + tracks) * disk->track_sectors + rest;
}

u64 platter_reach_ns(const struct platter_disk *disk, sector_t sector, u64 from_ns)
{
	u64 there_ns = from_ns + seek_time_ns(disk, sector);
	u64 angle, target = angle_of(disk, sector);

	div64_u64_rem(there_ns, disk->rotation_ns, &angle);
	if (target < angle)
		target += disk->rotation_ns;
	return there_ns + target - angle;
}

/* How far reading ahead has come. */
static sector_t ahead_end(const struct platter_disk *disk, u64 now)
{
	sector_t end;

	if (!disk->streaming || now <= disk->ahead_ns)
		return disk->ahead_end;
	end = goes_on_to(disk, disk->ahead_end, now - disk->ahead_ns);
	return min(end, disk->ahead_limit);
}

/* The buffer is no larger than that: what was read long ago is overwritten. */
static void trim_buffer(struct platter_disk *disk)
{
	if (disk->ahead_end - disk->ahead_start > disk->buffer)
		disk->ahead_start = disk->ahead_end - disk->buffer;
}

/* The head goes elsewhere: what has been read ahead stays in the buffer, no more comes. */
static void stop_streaming(struct platter_disk *disk, u64 now)
{
	disk->ahead_end = ahead_end(disk, now);
	disk->streaming = false;
	trim_buffer(disk);
}

/* A read, @io, has ended: go on reading behind it. */
static void start_streaming(struct platter_disk *disk, const struct platter_io *io)
{
	sector_t end = io->sector + io->sectors;

	/* The buffer is a window that moves along with a reader. */
	if (io->sector < disk->ahead_start || io->sector > disk->ahead_end)
		disk->ahead_start = io->sector;
	disk->ahead_end = end;
	disk->ahead_limit = end + disk->readahead;
	disk->ahead_ns = disk->busy_until_ns;
	disk->streaming = disk->readahead;
	trim_buffer(disk);
}

static bool ahead_has(struct platter_disk *disk, const struct platter_io *io, u64 now)
{
	sector_t end = io->sector + io->sectors;

	if (io->sector < disk->ahead_start || end > ahead_end(disk, now))
		return false;
	if (disk->streaming)
		disk->ahead_limit = max(disk->ahead_limit, end + disk->readahead);
	return true;
}

/* A read that begins in what reading ahead has, and ends in what it is about to have. */
static bool joins_stream(const struct platter_disk *disk, const struct platter_io *io, u64 now)
{
	sector_t end = ahead_end(disk, now);

	return !io->write && disk->streaming && end < disk->ahead_limit &&
	       io->sector >= disk->ahead_start && io->sector <= end;
}

static u64 begin_ns(const struct platter_disk *disk, const struct platter_io *io, u64 from_ns)
{
	from_ns = max(from_ns, io->arrival_ns);
	if (joins_stream(disk, io, from_ns))
		return from_ns;
	return platter_reach_ns(disk, io->sector, from_ns);
}

/* The one that the head can begin first, among those that the disk has been told of. */
static struct platter_io *choose(struct platter_disk *disk, u64 from_ns)
{
	struct platter_io *io, *best = NULL;
	u64 begin, best_ns = U64_MAX;
	unsigned int n = 0;

	io = list_first_entry_or_null(&disk->queue, struct platter_io, list);
	if (io && io->arrival_ns + disk->patience_ms * NSEC_PER_MSEC < from_ns)
		return io;
	list_for_each_entry(io, &disk->queue, list) {
		begin = begin_ns(disk, io, from_ns);
		if (begin < best_ns) {
			best_ns = begin;
			best = io;
		}
		if (++n >= disk->depth)
			break;
	}
	disk->count.most_queued = max_t(u64, disk->count.most_queued, n);
	return best;
}

static void note_event(struct platter_disk *disk, u64 ns, sector_t sector, unsigned int sectors,
		       bool write)
{
	if (disk->trace_used < disk->trace_size)
		disk->trace[disk->trace_used++] = (struct platter_event) {
			.ns = ns, .sector = sector, .sectors = sectors, .write = write,
		};
}

static void count_media(struct platter_disk *disk, sector_t sector, unsigned int sectors,
			bool write)
{
	struct platter_counters *count = &disk->count;
	sector_t to = track_of(disk, sector), from = track_of(disk, disk->head);

	if (write) {
		count->media_writes++;
		count->media_write_sectors += sectors;
	} else {
		count->media_reads++;
		count->media_read_sectors += sectors;
	}
	if (to != from) {
		count->seeks++;
		count->seek_tracks += to > from ? to - from : from - to;
		count->seek_ns += seek_time_ns(disk, sector);
	}
}

static void run_head(struct platter_disk *disk, u64 end_ns, sector_t head)
{
	disk->busy = true;
	disk->busy_until_ns = end_ns;
	disk->head = head;
	hrtimer_start(&disk->head_timer, ns_to_ktime(end_ns), HRTIMER_MODE_ABS);
}

static void move_head(struct platter_disk *disk, sector_t sector, unsigned int sectors, bool write,
		      u64 from_ns)
{
	u64 begin = platter_reach_ns(disk, sector, from_ns);
	u64 transfer_ns = passing_ns(disk, sector, sector + sectors);

	stop_streaming(disk, from_ns);
	count_media(disk, sector, sectors, write);
	disk->count.wait_ns += begin - from_ns - seek_time_ns(disk, sector);
	disk->count.transfer_ns += transfer_ns;
	note_event(disk, begin, sector, sectors, write);
	run_head(disk, begin + transfer_ns, sector + sectors);
}

static void serve(struct platter_disk *disk, struct platter_io *io, u64 from_ns)
{
	sector_t end = io->sector + io->sectors;
	u64 ns;

	list_del(&io->list);
	disk->current_io = io;
	disk->destaged_last = false;
	from_ns = max(from_ns, io->arrival_ns);
	if (!joins_stream(disk, io, from_ns)) {
		move_head(disk, io->sector, io->sectors, io->write, from_ns);
		return;
	}
	ns = disk->ahead_ns;
	if (end > disk->ahead_end)
		ns += passing_ns(disk, disk->ahead_end - 1, end) - disk->sector_ns;
	count_media(disk, disk->head, io->sectors, false);
	note_event(disk, from_ns, io->sector, io->sectors, false);
	run_head(disk, max(ns, from_ns), end);
}

static void destage(struct platter_disk *disk, u64 from_ns)
{
	unsigned int sectors;
	sector_t sector;

	disk->current_io = NULL;
	disk->destaged_last = true;
	platter_cache_take_run(disk, from_ns, &sector, &sectors);
	move_head(disk, sector, sectors, true, from_ns);
}

/* Reads before the cache, turn by turn where the cache cannot wait. */
static void start_head(struct platter_disk *disk, u64 from_ns)
{
	bool queued = !list_empty(&disk->queue);

	if (disk->busy)
		return;
	if (platter_cache_must_destage(&disk->cache) && !(queued && disk->destaged_last))
		destage(disk, from_ns);
	else if (queued)
		serve(disk, choose(disk, from_ns), from_ns);
	else if (platter_cache_may_destage(&disk->cache))
		destage(disk, from_ns);
}

/* What was read ahead while the disk listened needs no head. */
static void answer_from_buffer(struct platter_disk *disk, u64 now)
{
	struct platter_io *io, *next;

	list_for_each_entry_safe(io, next, &disk->queue, list) {
		if (io->write || !ahead_has(disk, io, now))
			continue;
		disk->count.read_hits++;
		list_del(&io->list);
		platter_cross_link(disk, io, now);
	}
}

/* An idle disk needs a moment to take a command in: what comes meanwhile it knows as well. */
static void wake_head(struct platter_disk *disk, u64 now)
{
	if (disk->busy || list_empty(&disk->queue)) {
		start_head(disk, now);
		return;
	}
	disk->busy = true;
	disk->listening = true;
	disk->busy_until_ns = now + disk->command_us * NSEC_PER_USEC;
	hrtimer_start(&disk->head_timer, ns_to_ktime(disk->busy_until_ns), HRTIMER_MODE_ABS);
}

static enum hrtimer_restart head_timer_fn(struct hrtimer *timer)
{
	struct platter_disk *disk = container_of(timer, struct platter_disk, head_timer);
	struct platter_io *io;
	unsigned long flags;

	spin_lock_irqsave(&disk->lock, flags);
	io = disk->current_io;
	disk->current_io = NULL;
	disk->busy = false;
	if (disk->listening) {
		disk->listening = false;
		answer_from_buffer(disk, disk->busy_until_ns);
	} else if (!io) {
		platter_cache_destaged(disk, now_ns());
	}
	if (io && !io->write)
		start_streaming(disk, io);
	start_head(disk, disk->busy_until_ns);
	spin_unlock_irqrestore(&disk->lock, flags);

	if (io)
		platter_finish(io);
	return HRTIMER_NORESTART;
}

/* ---- requests ---- */

void platter_queue(struct platter_disk *disk, struct platter_io *io)
{
	list_add_tail(&io->list, &disk->queue);
}

static void submit_read(struct platter_disk *disk, struct platter_io *io, u64 now)
{
	disk->count.reads++;
	disk->count.read_sectors += io->sectors;
	if (platter_cache_has(&disk->cache, io) || ahead_has(disk, io, now)) {
		disk->count.read_hits++;
		platter_cross_link(disk, io, now);
	} else {
		platter_queue(disk, io);
	}
}

static void submit_write(struct platter_disk *disk, struct platter_io *io, u64 now)
{
	disk->count.writes++;
	disk->count.write_sectors += io->sectors;
	if (disk->cache.kind == PLATTER_CACHE_NONE)
		platter_queue(disk, io);
	else
		platter_cache_write(disk, io, now);
}

static void arrive(struct platter_disk *disk, struct platter_io *io, u64 now)
{
	io->arrival_ns = now;
	if (!io->sectors) {
		disk->count.flushes++;
		platter_cache_flush(disk, io, now);
	} else if (io->write) {
		submit_write(disk, io, now);
	} else {
		submit_read(disk, io, now);
	}
	wake_head(disk, now);
}

static void arm_host(struct platter_disk *disk)
{
	struct platter_io *first = list_first_entry(&disk->coming, struct platter_io, list);

	hrtimer_start(&disk->host_timer, ns_to_ktime(first->end_ns), HRTIMER_MODE_ABS);
}

/* The same numbers after each start, so that runs in virtual time repeat. */
static u64 next_delay_ns(struct platter_disk *disk)
{
	disk->dice = disk->dice * 1664525 + 1013904223;
	return ((u64)disk->dice * disk->jitter_us * NSEC_PER_USEC) >> 32;
}

/* None overtakes another: a flush speaks of what the host has sent before it. */
static void send(struct platter_disk *disk, struct platter_io *io, u64 now)
{
	bool was_empty = list_empty(&disk->coming);

	io->end_ns = max(now + next_delay_ns(disk), disk->last_coming_ns);
	disk->last_coming_ns = io->end_ns;
	list_add_tail(&io->list, &disk->coming);
	if (was_empty)
		arm_host(disk);
}

static enum hrtimer_restart host_timer_fn(struct hrtimer *timer)
{
	struct platter_disk *disk = container_of(timer, struct platter_disk, host_timer);
	struct platter_io *io, *next;
	unsigned long flags;
	u64 now = now_ns();

	spin_lock_irqsave(&disk->lock, flags);
	list_for_each_entry_safe(io, next, &disk->coming, list) {
		if (io->end_ns > now)
			break;
		list_del(&io->list);
		arrive(disk, io, now);
	}
	if (!list_empty(&disk->coming))
		arm_host(disk);
	spin_unlock_irqrestore(&disk->lock, flags);
	return HRTIMER_NORESTART;
}

void platter_submit(struct platter_disk *disk, struct platter_io *io)
{
	unsigned long flags;
	u64 now = now_ns();

	spin_lock_irqsave(&disk->lock, flags);
	if (disk->jitter_us)
		send(disk, io, now);
	else
		arrive(disk, io, now);
	spin_unlock_irqrestore(&disk->lock, flags);
}

/* ---- begin and end ---- */

static void setup_timer(struct hrtimer *timer, enum hrtimer_restart (*fn)(struct hrtimer *))
{
#ifdef PLATTER_HAS_HRTIMER_SETUP
	hrtimer_setup(timer, fn, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	timer->function = fn;
#endif
}

void platter_disk_start(struct platter_disk *disk)
{
	spin_lock_init(&disk->lock);
	INIT_LIST_HEAD(&disk->coming);
	INIT_LIST_HEAD(&disk->queue);
	INIT_LIST_HEAD(&disk->crossing);
	/* A whole number of nanoseconds for a sector, so that angles never drift. */
	disk->sector_ns = div_u64(60 * NSEC_PER_SEC, disk->rpm * disk->track_sectors);
	disk->rotation_ns = disk->sector_ns * disk->track_sectors;
	disk->skew_ns = disk->sector_ns * disk->skew;
	setup_timer(&disk->head_timer, head_timer_fn);
	setup_timer(&disk->link_timer, link_timer_fn);
	setup_timer(&disk->host_timer, host_timer_fn);
}

void platter_disk_stop(struct platter_disk *disk)
{
	hrtimer_cancel(&disk->host_timer);
	hrtimer_cancel(&disk->link_timer);
	hrtimer_cancel(&disk->head_timer);
}

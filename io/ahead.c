// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: copying ahead of sequential writers
 *
 * A sequential writer pays for a seek to the store and back with each chunk. So streams are
 * recognised, and the chunks that they will come to are copied in one job:
 *
 *        next           trigger           done
 *   -----+--------------+-----------------+---------------
 *    written, or soon   | copied already, or asked for
 *                       +-- a write that gets here has the next window copied
 *
 * The window is as long as what the stream has written so far, up to the store's copy_ahead, or a
 * quarter of that for large writes: a stream wastes at most what it has written. One write of each
 * half window waits for a disk to read and write it. What streams leave behind unused is counted:
 * if it is more than a 32nd of all that was copied, nothing more is copied ahead. Nor is anything
 * when a store has less than an eighth of its room left.
 *
 * origin->state_lock guards all of this; cow_ahead_due() reads it without the lock.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-compat.h"
#include "io/ahead.h"
#include "origin/origin.h"
#include "store/options.h"
#include "store/store.h"

/* A write belongs to a stream if it is this close to its end, or to what was copied. */
#define SLACK_SECTORS		2048U

/* Waste that is always allowed: 1 MiB. */
#define WASTE_SECTORS		2048U

#define AHEAD_DEFAULT_KIB	2048U

/*
 * Copying such a chunk takes a disk longer than the seeks that copying ahead spares. Then what the
 * stream does not come to costs more than is gained.
 */
#define LARGE_CHUNK_SECTORS	1024U

static int copy_ahead = -1;
module_param(copy_ahead, int, 0644);
MODULE_PARM_DESC(copy_ahead,
		 "KiB that new stores are copied to ahead of sequential writers, at most (0 to 65536; default -1: 2048, or 0 for chunks of 512 KiB and more on rotational disks)");

/* A window of fewer writes than that has few, and need not be longer than so many sectors. */
#define MANY_WRITES		100U
#define SHORT_SECTORS		4096U

/* A sequential writer. Sectors. */
struct cow_stream {
	sector_t begin, next, done;
	u64 used;			/* cow_ahead.clock then */
};

#define COW_STREAMS	8U

struct cow_ahead {
	struct cow_stream stream[COW_STREAMS];
	u64 clock;
	sector_t limit;			/* of what the stores allow; READ_ONCE without the lock */
	u64 copied;			/* all that was copied, sectors, once for a store */
	u64 copied_ahead;		/* of that, ahead of writers */
	u64 wasted;			/* of that, never reached by the stream */
};

static bool in_stream(const struct cow_stream *s, sector_t start)
{
	sector_t next = READ_ONCE(s->next);

	/* Most are far from it: that takes the fewest questions. */
	if (start > max(READ_ONCE(s->done), next) || start + SLACK_SECTORS < next)
		return false;
	return next && start + min_t(u64, next - READ_ONCE(s->begin), SLACK_SECTORS) >= next;
}

/*
 * What the stores allow, for a stream of writes of @nr sectors. One write of each window waits for
 * its copy. Where a window has few, that is more than one in a hundred: then it waits for less.
 */
static sector_t window_limit(const struct cow_ahead *a, sector_t nr)
{
	sector_t limit = READ_ONCE(a->limit);

	if (nr * MANY_WRITES <= limit || limit <= SHORT_SECTORS)
		return limit;
	return max_t(sector_t, limit / 4, SHORT_SECTORS);
}

/* How far may be copied in front of @s, whose writes have @nr sectors? */
static sector_t stream_window(const struct cow_ahead *a, const struct cow_stream *s, sector_t nr)
{
	if (READ_ONCE(a->wasted) > WASTE_SECTORS + READ_ONCE(a->copied) / 32)
		return 0;
	return min(READ_ONCE(s->next) - READ_ONCE(s->begin), window_limit(a, nr));
}

static struct cow_stream *find_stream(struct cow_ahead *a, sector_t start)
{
	unsigned int i;

	for (i = 0; i < COW_STREAMS; i++)
		if (in_stream(&a->stream[i], start))
			return &a->stream[i];
	return NULL;
}

/* It replaces the one that has gone longest without a write. */
static void new_stream(struct cow_ahead *a, sector_t start, sector_t end)
{
	struct cow_stream *s = &a->stream[0];
	unsigned int i;

	for (i = 1; i < COW_STREAMS; i++)
		if (a->stream[i].used < s->used)
			s = &a->stream[i];
	if (s->done > s->next)
		a->wasted += s->done - s->next;
	WRITE_ONCE(s->begin, start);
	WRITE_ONCE(s->done, end);
	WRITE_ONCE(s->next, end);
	s->used = ++a->clock;
}

/* Is less than half of the window left, so that it is time for the next? */
static bool window_is_short(const struct cow_stream *s, sector_t end, sector_t most)
{
	sector_t done = READ_ONCE(s->done);

	return done <= end || (done - end) * 2 < most;
}

sector_t cow_ahead_note(struct cow_origin *o, sector_t start, sector_t end)
{
	struct cow_ahead *a = o->ahead;
	struct cow_stream *s;
	sector_t most;

	lockdep_assert_held(&o->state_lock);
	if (!a->limit)
		return end;
	s = find_stream(a, start);
	if (!s) {
		new_stream(a, start, end);
		return end;
	}
	s->used = ++a->clock;
	if (end > s->next)
		WRITE_ONCE(s->next, end);
	most = stream_window(a, s, end - start);
	if (!most || !window_is_short(s, end, most))
		return end;
	WRITE_ONCE(s->done, end + most);
	return end + most;
}

bool cow_ahead_due(struct cow_origin *o, sector_t start, sector_t end)
{
	struct cow_ahead *a = o->ahead;
	struct cow_stream *s;
	sector_t most;

	if (!READ_ONCE(a->limit))
		return false;
	s = find_stream(a, start);
	if (!s || end <= READ_ONCE(s->next))
		return false;
	most = stream_window(a, s, end - start);
	if (most && window_is_short(s, end, most))
		return true;
	WRITE_ONCE(s->next, end);
	return false;
}

unsigned int cow_ahead_default(struct block_device *bdev, u32 chunk_sectors)
{
	int kib = READ_ONCE(copy_ahead);

	if (kib >= 0)
		return min_t(unsigned int, kib, COW_AHEAD_MAX);
	if (bdev_rot(bdev) && chunk_sectors >= LARGE_CHUNK_SECTORS)
		return 0;
	return AHEAD_DEFAULT_KIB;
}

void cow_ahead_limit(struct cow_origin *o)
{
	struct cow_store *store;
	sector_t most = 0;

	lockdep_assert_held(&o->state_lock);
	list_for_each_entry(store, &o->stores, node)
		most = max(most, cow_store_ahead(store));
	WRITE_ONCE(o->ahead->limit, most);
}

void cow_ahead_count(struct cow_origin *o, sector_t all, sector_t ahead)
{
	struct cow_ahead *a = o->ahead;

	lockdep_assert_held(&o->state_lock);
	a->copied += all;
	a->copied_ahead += ahead;
}

void cow_ahead_read_stats(const struct cow_ahead *a, struct cow_ahead_stats *out)
{
	out->copied = READ_ONCE(a->copied_ahead);
	out->wasted = READ_ONCE(a->wasted);
}

void cow_ahead_reset_stats(struct cow_origin *o)
{
	struct cow_ahead *a = o->ahead;

	lockdep_assert_held(&o->state_lock);
	a->copied_ahead = 0;
	a->wasted = 0;
}

struct cow_ahead *cow_ahead_alloc(void)
{
	return kzalloc(sizeof(struct cow_ahead), GFP_KERNEL);
}

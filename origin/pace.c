// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: reading a snapshot beside writers to its origin
 *
 * A backup of a whole snapshot reads chunks that are still at home: large reads, one after
 * the other, which leave a rotational disk little time for small writes. So if the origin
 * has been written lately, such reads rest: after each slice in which some were in flight
 * the next ones wait, in the proportion that read_share sets. If the origin is not written,
 * or is not rotational, no read waits.
 *
 *   read --> under way --> slice is over --> the last one ends --> rest --> next slice
 *                 ^            |                                     |
 *                 |            +--> waiting <------------------------+
 *                 +--------------------+
 *
 * A rest is for those who write: it is over once they have what they wanted. Who writes now and
 * then has the disk at once, and the backup has it for the rest of the time.
 *
 * origin->reads_lock guards all but @written.
 */
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>

#include "origin/bio.h"
#include "origin/origin.h"
#include "origin/pace.h"

/* Long enough for a disk to make progress with reads or with writes. */
#define SLICE_NS	(50 * NSEC_PER_MSEC)

/* Without a write for so many jiffies, and without a copy that one waits for, a rest is over. */
#define QUIET	msecs_to_jiffies(12)

/* No more than this much of one slice counts. */
#define BUSY_MAX_NS	(8 * SLICE_NS)

static unsigned int read_share = 50;
module_param(read_share, uint, 0644);
MODULE_PARM_DESC(read_share,
		 "percent of time that reads of snapshots may keep a rotational disk while their origin is written (1 to 100; default 50; 100: no limit)");

void cow_pace_init(struct cow_pace *pace)
{
	pace->written = cow_long_ago();
	INIT_LIST_HEAD(&pace->waiting);
	INIT_DELAYED_WORK(&pace->work, cow_pace_work);
}

static unsigned int read_percent(void)
{
	return clamp(READ_ONCE(read_share), 1U, 100U);
}

static u64 busy_ns(const struct cow_pace *pace, ktime_t now)
{
	return pace->busy_ns + (pace->reads ? ktime_to_ns(ktime_sub(now, pace->begun)) : 0);
}

static bool is_limited(const struct cow_pace *pace)
{
	return read_percent() < 100 && cow_was_lately(&pace->written);
}

/* Reads while the origin was not written need no rest. */
static void forget_slice(struct cow_pace *pace, ktime_t now)
{
	pace->busy_ns = 0;
	pace->begun = now;
	pace->rest_until = 0;
}

/* Have those who write had what they wanted? It is asked again, so a guess will do. */
static bool is_quiet(const struct cow_origin *o)
{
	return !READ_ONCE(o->nr_pendings) &&
	       time_after(jiffies, READ_ONCE(o->pace.written) + QUIET);
}

static bool has_to_rest(const struct cow_origin *o, ktime_t now)
{
	return ktime_before(now, o->pace.rest_until) && !is_quiet(o);
}

/* At the end of the rest; earlier if those who write may have ended by then. */
static void wake_in_time(struct cow_origin *o, ktime_t now)
{
	s64 left = ktime_to_us(ktime_sub(o->pace.rest_until, now));
	unsigned long delay = 0;

	if (left > 0)
		delay = min_t(unsigned long, usecs_to_jiffies(left), QUIET) + 1;
	mod_delayed_work(o->wq, &o->pace.work, delay);
}

bool cow_pace_wait(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	struct cow_pace *pace = &o->pace;
	unsigned long flags;
	ktime_t now;
	bool rests = false, waits = false;

	if (!cb->origin->rotational)
		return false;
	now = ktime_get();
	spin_lock_irqsave(&o->reads_lock, flags);
	if (!is_limited(pace)) {
		forget_slice(pace, now);
	} else {
		rests = has_to_rest(o, now);
		waits = rests || (pace->reads && busy_ns(pace, now) >= SLICE_NS);
	}
	if (waits) {
		list_add_tail(&cb->node, &pace->waiting);
		pace->nr_waited++;
		/* Else the slice is over, and the last read in flight sets the timer. */
		if (rests)
			wake_in_time(o, now);
	}
	spin_unlock_irqrestore(&o->reads_lock, flags);
	return waits;
}

void cow_pace_begin(struct cow_origin *o)
{
	struct cow_pace *pace = &o->pace;

	lockdep_assert_held(&o->reads_lock);
	if (o->rotational && !pace->reads++)
		pace->begun = ktime_get();
}

void cow_pace_end(struct cow_origin *o)
{
	struct cow_pace *pace = &o->pace;
	ktime_t now;

	lockdep_assert_held(&o->reads_lock);
	if (!o->rotational)
		return;
	now = ktime_get();
	pace->busy_ns = busy_ns(pace, now);
	pace->begun = now;
	if (--pace->reads)
		return;
	if (pace->busy_ns >= SLICE_NS) {
		unsigned int percent = read_percent();
		/* A read may have waited for a device that was away. */
		u64 busy = min_t(u64, pace->busy_ns, BUSY_MAX_NS);
		u64 rest = div_u64(busy * (100 - percent), percent);

		pace->rest_until = ktime_add_ns(now, rest);
		pace->busy_ns = 0;
	}
	if (!list_empty(&pace->waiting))
		wake_in_time(o, now);
}

/* The rest is over, or not needed: all decide again, and may have to wait again. */
void cow_pace_work(struct work_struct *work)
{
	struct cow_origin *o = container_of(to_delayed_work(work), struct cow_origin, pace.work);
	ktime_t now = ktime_get();
	struct cow_bio *cb, *next;
	LIST_HEAD(waiting);

	spin_lock_irq(&o->reads_lock);
	if (is_limited(&o->pace) && has_to_rest(o, now))
		wake_in_time(o, now);
	else
		list_splice_init(&o->pace.waiting, &waiting);
	spin_unlock_irq(&o->reads_lock);
	list_for_each_entry_safe(cb, next, &waiting, node) {
		list_del_init(&cb->node);
		cow_bio_decide_again(cb);
	}
}

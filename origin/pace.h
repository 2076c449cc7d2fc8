/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: reading a snapshot beside writers to its origin */
#ifndef DM_COWSNAP_ORIGIN_PACE_H
#define DM_COWSNAP_ORIGIN_PACE_H

#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/workqueue.h>

struct cow_bio;
struct cow_origin;

/* See origin/pace.c. */
struct cow_pace {
	unsigned long written;		/* jiffies of the origin's last write; READ_ONCE */
	unsigned int reads;		/* in flight */
	u64 busy_ns;			/* with reads in flight, in this slice until @begun */
	ktime_t begun;
	ktime_t rest_until;
	struct list_head waiting;	/* struct cow_bio */
	struct delayed_work work;
	u64 nr_waited;
};

/* What happened counts as going on for this time, in jiffies. */
#define COW_LATELY	(HZ / 2)

/* It happens now. All processors look at @when, jiffies: it is written once a tick. Any context. */
static inline void cow_note_now(unsigned long *when)
{
	unsigned long now = jiffies;

	if (READ_ONCE(*when) != now)
		WRITE_ONCE(*when, now);
}

/* Has it happened lately? Any context. */
static inline bool cow_was_lately(const unsigned long *when)
{
	return !time_after(jiffies, READ_ONCE(*when) + COW_LATELY);
}

/* For what has not happened yet. */
static inline unsigned long cow_long_ago(void)
{
	return jiffies - COW_LATELY - 1;
}

/* Users write the origin, a rotational disk. Any context. */
static inline void cow_pace_note_write(struct cow_pace *pace)
{
	cow_note_now(&pace->written);
}

void cow_pace_init(struct cow_pace *pace);

/* Does the read @cb, which goes home, have to wait? Then it will decide again. */
bool cow_pace_wait(struct cow_bio *cb);

/* Such a read begins, or has completed. origin->reads_lock held. */
void cow_pace_begin(struct cow_origin *origin);
void cow_pace_end(struct cow_origin *origin);
void cow_pace_work(struct work_struct *work);

#endif

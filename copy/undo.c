// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the undo buffer of transient stores
 *
 * A transient snapshot does not outlive the machine, so a copy is complete as soon as it is
 * in memory: the write it was made for goes home at once. The copies are written to the
 * store later, many in a row, when they fill an eighth of the buffer or have waited a second;
 * on a non-rotational store, or with many copies under way, when they are 64 KiB. If the buffer
 * is full, a copy is written first, as without a buffer. The same if the store's writes complete
 * synchronously (RAM disks): then writing takes no longer than keeping. And the same for a while if
 * the store has taken much longer for what was kept than a disk does.
 *
 *   read --> kept: in the map, and in store->undo, with its pages
 *              | enough of them, a second, or the chunk is needed in the store
 *              v
 *            written --> gone from store->undo, its pages free
 *
 * A bio that reads such a chunk through the snapshot, or is about to write it there, waits
 * until it is written.
 *
 * Reclaim must not give back room that a kept copy is still to be written to, so the buffer
 * is closed while it runs.
 */
#include <linux/module.h>

#include "dm-cowsnap-compat.h"
#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "copy/data.h"
#include "copy/pending.h"
#include "copy/undo.h"
#include "origin/bio.h"
#include "store/options.h"
#include "store/snapshots.h"
#include "store/state.h"
#include "store/store.h"
#include "trace/cowsnap.h"

/* How long a copy waits for others, at most. */
#define UNDO_WAIT	HZ

/* Such a part of the buffer is written at a time to a rotational store, */
#define UNDO_SHARE	8U

/* and so much to others, or while so many copies are under way. */
#define UNDO_BATCH_SECTORS	128U
#define UNDO_DEEP		8U

/*
 * A disk has taken what it is given by then: it finds the place, writes 20 MB a second, and may
 * serve others in between. A cache that is full takes longer, as it has to write its own blocks
 * first, from all over the disk, and whoever comes next waits for all of that. It takes one copy at
 * a time as fast, so nothing is kept for so many copies. (Nor is it where others keep the disk so
 * busy that it seems as slow: then a write waits for its copy.)
 */
#define UNDO_SEEK_NS		(40 * NSEC_PER_MSEC)
#define UNDO_SECTOR_NS		25600U
#define UNDO_OTHER_NS		(8 * NSEC_PER_MSEC)
#define UNDO_MUCH_SECTORS	256U
#define UNDO_REST		4096U

static unsigned int undo_buffer = 8192;
module_param(undo_buffer, uint, 0644);
MODULE_PARM_DESC(undo_buffer,
		 "KiB of old data that each new transient store keeps in memory, at most (0 to 1048576; default 8192)");

unsigned int cow_undo_default(void)
{
	return min(READ_ONCE(undo_buffer), COW_UNDO_MAX);
}

static sector_t undo_most(const struct cow_store *store)
{
	return (sector_t)store->options.undo_buffer << (10 - SECTOR_SHIFT);
}

/* The buffer is counted in whole pages. */
static sector_t kept_sectors(const struct cow_job *job)
{
	return round_up(job->nr_sectors + job->pad_sectors, PAGE_SECTORS);
}

/* A copy is to be kept: not now? */
static bool undo_rests(struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	if (!store->undo_rests)
		return false;
	store->undo_rests--;
	return true;
}

bool cow_undo_keep(struct cow_pending *p, struct cow_job *job)
{
	struct cow_store *store = p->store;
	sector_t sectors = kept_sectors(job);
	bool keep;

	if (store->meta || p->kind != COW_COPIED || p->nr_zero == p->last - p->first + 1 ||
	    !list_is_singular(&p->sharers) ||
	    cow_engine_writes_at_once(store->origin->engine))
		return false;
	spin_lock(&store->origin->state_lock);
	keep = !undo_rests(store) && !store->undo_closed &&
	       store->undo_sectors + sectors <= undo_most(store);
	if (keep) {
		store->undo_sectors += sectors;
		/* Before it is in the map: see snap_waits_for_data(). */
		WRITE_ONCE(store->nr_undo, store->nr_undo + 1);
		p->kept = true;
		job->keep_pages = true;
	}
	spin_unlock(&store->origin->state_lock);
	return keep;
}

/* What is kept is about to be written. Much is timed, if nothing else is. */
static void undo_set_time(struct cow_store *store)
{
	if (store->undo_timed || store->sectors_in_undo < UNDO_MUCH_SECTORS)
		return;
	store->undo_timed = store->sectors_in_undo;
	store->undo_until_ns = ktime_get_ns() + UNDO_SEEK_NS +
			       store->undo_timed * UNDO_SECTOR_NS +
			       (u64)store->origin->nr_pendings * UNDO_OTHER_NS;
}

/* So much has been written. */
static void undo_look_at_time(struct cow_store *store, sector_t sectors)
{
	if (!store->undo_timed)
		return;
	store->undo_timed -= min(store->undo_timed, sectors);
	if (ktime_get_ns() <= store->undo_until_ns)
		return;
	store->undo_rests = UNDO_REST;
	store->undo_timed = 0;
}

/* It is kept no longer: bios that waited decide again. Drops the lock meanwhile. */
static void undo_end(struct cow_pending *p)
	__releases(&p->store->origin->state_lock) __acquires(&p->store->origin->state_lock)
{
	struct cow_store *store = p->store;
	struct cow_origin *o = store->origin;
	struct cow_bio *cb, *next;
	LIST_HEAD(parked);

	lockdep_assert_held(&o->state_lock);
	store->undo_sectors -= kept_sectors(&p->job);
	WRITE_ONCE(store->nr_undo, store->nr_undo - 1);
	list_splice_init(&p->parked, &parked);
	cow_pending_free(o, p);
	if (!list_empty(&o->deferred))
		mod_delayed_work(o->wq, &o->decide_work, 0);
	if (!store->nr_undo)
		wake_up(&store->idle);
	spin_unlock(&o->state_lock);
	list_for_each_entry_safe(cb, next, &parked, node) {
		list_del_init(&cb->node);
		cow_bio_decide_again(cb);
	}
	spin_lock(&o->state_lock);
}

static void undo_ready(struct cow_job *job)
{
	struct cow_pending *p = container_of(job, struct cow_pending, job);

	cow_pending_write(p, job);
}

static void undo_done(struct cow_job *job)
{
	struct cow_pending *p = container_of(job, struct cow_pending, job);
	struct cow_origin *o = p->store->origin;

	if (p->status)
		cow_store_invalidate(p->store, COW_SNAP_INVALID,
				     "old data could not be written to the store");
	spin_lock(&o->state_lock);
	undo_look_at_time(p->store, kept_sectors(job));
	cow_pending_forget_kept(p);
	/* A closing store waits for its last kept copy, so p->store may be freed after this. */
	undo_end(p);
	spin_unlock(&o->state_lock);
}

static const struct cow_job_ops undo_ops = {
	.ready = undo_ready,
	.done = undo_done,
};

/* Have all kept copies written. origin->state_lock held. */
static void undo_drain(struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	if (list_empty(&store->undo))
		return;
	undo_set_time(store);
	cow_engine_resume(store->origin->engine, &store->undo);
	store->sectors_in_undo = 0;
}

/*
 * A few in one bio are enough where nothing has to seek. So they are where many copies are under
 * way: their requests wait for each other anyhow, and one more seek is little. A cache, which a
 * disk need not tell of, has to make room for all of what is written together before it takes
 * anything that comes later.
 */
static bool few_are_enough(const struct cow_store *store)
{
	return !bdev_rot(store->bdev) || store->origin->nr_pendings >= UNDO_DEEP;
}

/*
 * Is it time to write? A rotational store gets many in a row, but not so many that whoever comes
 * next waits for much longer than for the seek.
 */
static bool undo_is_due(const struct cow_store *store)
{
	if (store->sectors_in_undo >= UNDO_BATCH_SECTORS && few_are_enough(store))
		return true;
	return store->undo_sectors * UNDO_SHARE >= undo_most(store);
}

void cow_undo_add(struct cow_pending *p)
{
	struct cow_store *store = p->store;

	lockdep_assert_held(&store->origin->state_lock);
	p->job.ops = &undo_ops;
	list_add_tail(&p->job.node, &store->undo);
	store->sectors_in_undo += kept_sectors(&p->job);
	if (undo_is_due(store) || store->undo_closed)
		undo_drain(store);
	else
		queue_delayed_work(store->origin->wq, &store->undo_work, UNDO_WAIT);
}

void cow_undo_drop(struct cow_pending *p)
{
	lockdep_assert_held(&p->store->origin->state_lock);
	cow_engine_drop(p->store->origin->engine, &p->job);
	undo_end(p);
}

bool cow_undo_wait(struct cow_bio *cb, u64 first, u64 nr)
{
	struct cow_store *store = cb->snap->store;
	struct cow_pending *p;

	lockdep_assert_held(&store->origin->state_lock);
	p = cow_pending_kept(store, first, first + nr - 1);
	if (!p)
		return false;
	cow_bio_park(cb, &p->parked, COW_WAIT_PENDING);
	undo_drain(store);
	return true;
}

void cow_undo_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       undo_work);

	spin_lock(&store->origin->state_lock);
	undo_drain(store);
	spin_unlock(&store->origin->state_lock);
}

void cow_undo_kick(struct cow_origin *o)
{
	struct cow_store *store;

	lockdep_assert_held(&o->state_lock);
	list_for_each_entry(store, &o->stores, node)
		undo_drain(store);
}

static bool undo_is_empty(struct cow_store *store)
{
	bool empty;

	spin_lock(&store->origin->state_lock);
	undo_drain(store);
	empty = !store->nr_undo;
	spin_unlock(&store->origin->state_lock);
	return empty;
}

void cow_undo_flush(struct cow_store *store)
{
	spin_lock(&store->origin->state_lock);
	store->undo_closed++;
	spin_unlock(&store->origin->state_lock);
	wait_event(store->idle, undo_is_empty(store));
}

void cow_undo_open(struct cow_store *store)
{
	spin_lock(&store->origin->state_lock);
	store->undo_closed--;
	spin_unlock(&store->origin->state_lock);
}

void cow_undo_close(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	struct cow_pending *p;

	spin_lock(&o->state_lock);
	store->undo_closed++;
	while ((p = list_first_entry_or_null(&store->undo, struct cow_pending, job.node))) {
		list_del(&p->job.node);
		store->sectors_in_undo -= kept_sectors(&p->job);
		cow_pending_forget_kept(p);
		cow_undo_drop(p);
	}
	spin_unlock(&o->state_lock);
	cancel_delayed_work_sync(&store->undo_work);
	wait_event(store->idle, undo_is_empty(store));
}

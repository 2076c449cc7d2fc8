// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the work of a merge, one stretch of the origin at a time
 *
 *   MERGE_CLOSE   close the stretch: wait for the I/O in it.
 *   MERGE_COPY    forget what was redirected since then (admin/void.c), carry the rest of what the
 *                 snapshot sees to the origin (admin/carry.c). Flush that.
 *   MERGE_NOTE    note in the superblock how far the merge has come, then open the stretch.
 *   MERGE_FINISH  after the last stretch: record that the snapshot is merged.
 *
 * Each step of the work item does one stretch and queues the item again, with a delay
 * if there is a throttle.
 *
 * What fails: an error in MERGE_CLOSE or MERGE_COPY opens the stretch again where it was; the
 * snapshot still has everything. After an error in MERGE_NOTE a crash could find
 * either position, so the stretch stays closed while the note is tried again. When the
 * merge gives up, the stretch can be read (the origin has all of it), and writes to it end
 * with an error. By MERGE_FINISH everything is rolled back, and stays so. After a failure
 * no bio waits for the merge: what finds no room in the store ends with an error.
 */
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "admin/carry.h"
#include "admin/stretch.h"
#include "admin/void.h"
#include "copy/pending.h"
#include "disk/super.h"
#include "io/merge.h"
#include "origin/flush.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "origin/pace.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/store.h"
#include "trace/cowsnap.h"

/* How often a note is tried, and to close a stretch; and how long to wait in between. */
#define NOTE_TRIES		5
#define CLOSE_TRIES		12
#define RETRY_NS		NSEC_PER_SEC

/* ------------------------------------------------------------------ a stretch */

static bool stretch_is_quiet(struct cow_merge *m)
{
	struct cow_origin *o = m->store->origin;
	struct cow_pending *p;

	spin_lock(&o->state_lock);
	p = cow_pending_overlap(m->store, m->done, m->busy_end - 1);
	/* The next one is looked for when this one has woken us. */
	if (p)
		cow_pending_need(p);
	spin_unlock(&o->state_lock);
	return !p;
}

/*
 * Close the stretch up to @end and wait for all I/O in it. Writers to the stretch wait until
 * it is opened, so the throttle is lifted meanwhile; merge_rests() makes up for it.
 */
static int stretch_close(struct cow_merge *m, u64 end)
{
	struct cow_origin *o = m->store->origin;
	int r;

	spin_lock(&o->state_lock);
	m->busy_end = end;
	spin_unlock(&o->state_lock);
	cow_engine_set_hurry(o->engine, true);
	mutex_lock(&o->admin_lock);
	r = cow_origin_drain(o, cow_hold_timeout());
	if (!r)
		cow_origin_thaw(o);
	cow_admin_unlock(o);
	/* Writes to the snapshot that are on their way into the map. */
	if (!r)
		wait_event(m->store->idle, stretch_is_quiet(m));
	return r;
}

static void stretch_open(struct cow_merge *m, u64 done)
{
	struct cow_origin *o = m->store->origin;

	spin_lock(&o->state_lock);
	m->done = done;
	m->busy_end = done;
	cow_merge_unpark(m);
	spin_unlock(&o->state_lock);
	cow_engine_set_hurry(o->engine, false);
}

/* The next stretch begins where the snapshot and the origin differ next; where does it end? */
static u64 stretch_end(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_extent ext;

	if (!cow_map_next_differing(&store->map, m->done, m->end, m->epoch, &ext))
		return m->end;
	return min(m->end, ext.chunk + (m->gentle ? cow_gentle_stretch_chunks(m) :
						    cow_stretch_chunks(store)));
}

/* ---------------------------------------------------------------------- steps */

static int merge_close(struct cow_merge *m)
{
	u64 end;
	int r;

	m->gentle = cow_was_lately(&m->used);
	/* Users wait for the worker, which waits for the processor. */
	cow_engine_set_first(m->store->origin->engine, m->gentle);
	end = stretch_end(m);
	r = cow_void_prepare(m, end);
	if (r)
		return r;
	r = stretch_close(m, end);
	if (r) {
		cow_void_end(m);
		stretch_open(m, m->done);
	} else {
		m->phase = MERGE_COPY;
	}
	return r;
}

/* Flushes that have failed of what is written then. What is sealed is in the store. */
static unsigned int stretch_losses(const struct cow_merge *m)
{
	const struct cow_origin *o = m->store->origin;
	unsigned int nr = cow_losses(&o->losses);

	return READ_ONCE(o->sealed_end) ? nr + cow_losses(&m->store->losses) : nr;
}

/* Roll one stretch back. After an error it is still the snapshot's. */
static int merge_copy(struct cow_merge *m)
{
	struct cow_origin *o = m->store->origin;
	unsigned int losses = stretch_losses(m);
	int r = cow_void_stretch(m);

	cow_void_end(m);
	if (!r)
		r = cow_carry_stretch(m);
	if (!r)
		r = cow_origin_flush_devices(o);
	/* What home has lost of it may have been told to others. */
	if (!r && stretch_losses(m) != losses)
		r = -EIO;
	if (r)
		stretch_open(m, m->done);
	else
		m->phase = MERGE_NOTE;
	return r;
}

/* The stretch is rolled back. It stays closed until that is noted. */
static int merge_note(struct cow_merge *m)
{
	struct cow_change change;
	int r;

	cow_change_begin(&change, m->store, NULL);
	change.merge_chunk = m->busy_end;
	change.either = true;
	r = cow_change_end(&change);
	if (r)
		return r;
	stretch_open(m, m->busy_end);
	m->phase = m->done < m->end ? MERGE_CLOSE : MERGE_FINISH;
	return 0;
}

/*
 * Record and superblock get the new state. A crash may find either of them changed: all of
 * the snapshot has been noted as merged before.
 */
static int merge_write_merged(struct cow_merge *m)
{
	struct cow_change change;

	cow_change_begin(&change, m->store, m->snap);
	change.state = COW_SNAP_MERGED;
	change.merging = NULL;
	change.either = true;
	return cow_change_end(&change);
}

/* From now on nothing of the origin is the snapshot's. */
static int merge_finish(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_origin *o = store->origin;
	int r;

	mutex_lock(&o->admin_lock);
	r = merge_write_merged(m);
	if (!r) {
		spin_lock(&o->state_lock);
		WRITE_ONCE(o->merge, NULL);
		cow_merge_unpark(m);
		spin_unlock(&o->state_lock);
		m->phase = MERGE_DONE;
		cow_merge_leave_engine(o);
		cow_gate_spread(o);
		DMINFO("store %pg: snapshot %u is merged into %pg", store->bdev, m->id,
		       o->bdev);
	}
	cow_admin_unlock(o);
	if (r)
		return r;
	queue_work(o->wq, &store->event_work);
	cow_void_exit(m);
	cow_carry_exit(m);
	cow_store_reclaim(store);
	return 0;
}

static int merge_step(struct cow_merge *m)
{
	int r = 0;

	/* A stretch that could not be copied was opened. */
	if (m->phase == MERGE_CLOSE || m->phase == MERGE_COPY)
		r = merge_close(m);
	if (!r && m->phase == MERGE_COPY)
		r = merge_copy(m);
	if (!r && m->phase == MERGE_NOTE)
		r = merge_note(m);
	if (!r && m->phase == MERGE_FINISH)
		r = merge_finish(m);
	return r;
}

void cow_merge_leave_engine(struct cow_origin *o)
{
	cow_engine_set_hurry(o->engine, false);
	cow_engine_set_first(o->engine, false);
}

/* Bios no longer wait for this merge. */
static void merge_fail(struct cow_merge *m, int r)
{
	struct cow_store *store = m->store;
	struct cow_origin *o = store->origin;

	DMERR("store %pg: merging snapshot %u into %pg failed (%d) at chunk %llu", store->bdev,
	      m->id, o->bdev, r, m->done);
	DMERR("to go on with it, %ssuspend and resume a table of cowsnap-merge",
	      r == -ENOSPC ? "give the store room, " : "");
	spin_lock(&o->state_lock);
	WRITE_ONCE(m->failed, true);
	cow_merge_unpark(m);
	spin_unlock(&o->state_lock);
	cow_merge_leave_engine(o);
	queue_work(o->wq, &store->event_work);
}

/* Copying twice might give another result: only what comes before and after it is repeated. */
static bool merge_tries_again(struct cow_merge *m, int r)
{
	/* cow_void_prepare() waits for somebody else. From a device it would be an error. */
	if (r == -ENOMEM || (r == -EAGAIN && m->phase == MERGE_CLOSE))
		return true;
	if (m->phase == MERGE_CLOSE)
		return ++m->tries < CLOSE_TRIES;
	return m->phase != MERGE_COPY && ++m->tries < NOTE_TRIES;
}

/*
 * How long to rest between two steps: so long that copying keeps to its share of time; not
 * at all while a bio waits for the next stretch.
 */
static u64 merge_rest_ns(struct cow_merge *m)
{
	unsigned int percent = cow_engine_throttle(m->store->origin->engine);

	if (m->retries)
		return RETRY_NS;
	if (m->phase != MERGE_CLOSE || !list_empty_careful(&m->parked))
		return 0;
	return m->busy_ns * (100 - percent) / percent;
}

/* Queue the work again for when it has rested. False: it has. */
static bool merge_rests(struct cow_merge *m)
{
	u64 rest_ns = merge_rest_ns(m), rested_ns = ktime_get_ns() - m->ended_ns;

	if (rested_ns >= rest_ns)
		return false;
	spin_lock(&m->store->origin->state_lock);
	cow_merge_kick(m, nsecs_to_jiffies(rest_ns - rested_ns) + 1);
	spin_unlock(&m->store->origin->state_lock);
	return true;
}

void cow_merge_work(struct work_struct *work)
{
	struct cow_merge *m = container_of(to_delayed_work(work), struct cow_merge, work);
	struct cow_origin *o = m->store->origin;
	u64 start_ns = ktime_get_ns();
	int r;

	if (READ_ONCE(m->failed) || m->phase == MERGE_DONE || merge_rests(m))
		return;
	m->waited_ns = 0;
	r = merge_step(m);
	trace_cowsnap_merge_step(m->store->bdev->bd_dev, m->id, m->done, m->end, r);
	m->ended_ns = ktime_get_ns();
	m->busy_ns = m->ended_ns - start_ns - m->waited_ns;
	m->retries = r && merge_tries_again(m, r);
	if (!r)
		m->tries = 0;
	if (r && !m->retries) {
		merge_fail(m, r);
		return;
	}
	spin_lock(&o->state_lock);
	cow_merge_kick(m, 0);
	spin_unlock(&o->state_lock);
}

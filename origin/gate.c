// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the gate of an origin
 *
 * Each write that goes home holds a reference of a percpu_ref, the gate. Shutting it
 * (drain) holds new writes back and waits for those on their way; freezing flushes the
 * device as well. What the origin shows at that instant is what a new snapshot shows.
 *
 *   write --> enter --> home --> ends: reference dropped
 *               | shut
 *               v
 *             held --thaw--> decides again
 *
 * Shutting a percpu_ref takes an RCU grace period, unless it counts in one place. So it is made to
 * do that first, while writes still go on. They are held back only until those before them end.
 * The grace period takes longer than all else in the creation of a snapshot, and programs suspend
 * the origin's device for the resumption of its table. So it begins when a table is loaded, and the
 * gate counts in one place until that is resumed. A new origin has not counted otherwise yet.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>

#include "dm-cowsnap.h"
#include "origin/bio.h"
#include "origin/flush.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "trace/cowsnap.h"

/* In ms. */
#define HOLD_LEAST	10U
#define HOLD_MOST	600000U

static unsigned int hold_timeout = 5000;
module_param(hold_timeout, uint, 0644);
MODULE_PARM_DESC(hold_timeout,
		 "ms for which writes are held back at most, to create a snapshot, for those that the device does not finish (10 to 600000; default 5000)");

unsigned long cow_hold_timeout(void)
{
	return msecs_to_jiffies(clamp(READ_ONCE(hold_timeout), HOLD_LEAST, HOLD_MOST));
}

unsigned int cow_admin_enter(struct cow_origin *o)
{
	unsigned int noio = memalloc_noio_save();

	mutex_lock(&o->admin_lock);
	return noio;
}

bool cow_admin_try(struct cow_origin *o, unsigned int *noio)
{
	*noio = memalloc_noio_save();
	if (mutex_trylock(&o->admin_lock))
		return true;
	memalloc_noio_restore(*noio);
	return false;
}

/* After admin_lock was given back, or was not to be had. */
static void spread_if_owed(struct cow_origin *o)
{
	for (;;) {
		/* Either this finds the lock free, or its holder finds @spread_owed. */
		smp_mb();
		if (!READ_ONCE(o->spread_owed) || !mutex_trylock(&o->admin_lock))
			return;
		/* Before the tables are counted: who goes then owes it again. */
		smp_store_mb(o->spread_owed, false);
		cow_gate_spread(o);
		mutex_unlock(&o->admin_lock);
	}
}

void cow_admin_unlock(struct cow_origin *o)
{
	mutex_unlock(&o->admin_lock);
	spread_if_owed(o);
}

void cow_admin_leave(struct cow_origin *o, unsigned int noio)
{
	cow_admin_unlock(o);
	memalloc_noio_restore(noio);
}

static void gate_drained(struct percpu_ref *ref)
{
	complete(&container_of(ref, struct cow_origin, gate)->writes_drained);
}

/* With the gate shut: wait for it. False if it has just opened. */
static bool origin_hold(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	bool holding;

	spin_lock(&o->state_lock);
	holding = o->holding;
	if (holding)
		cow_bio_park(cb, &o->held, COW_WAIT_GATE);
	spin_unlock(&o->state_lock);
	if (holding)
		atomic64_inc(&o->held_writes);
	return holding;
}

bool cow_origin_enter(struct cow_bio *cb)
{
	while (!percpu_ref_tryget_live(&cb->origin->gate))
		if (origin_hold(cb))
			return false;
	/*
	 * Changes that were made while the gate was shut are seen from here on. Pairs with
	 * the release in percpu_ref_resurrect(), called by cow_origin_thaw().
	 */
	smp_acquire__after_ctrl_dep();
	return true;
}

/*
 * Beside a merge, which shuts it for each stretch, it goes on counting in one place. Waits for a
 * switch to that which is under way.
 */
void cow_gate_spread(struct cow_origin *o)
{
	lockdep_assert_held(&o->admin_lock);
	if (!o->merge && !atomic_read(&o->nr_gathering))
		percpu_ref_switch_to_percpu(&o->gate);
}

bool cow_gate_gather(struct cow_origin *o)
{
	unsigned int noio;

	if (!cow_admin_try(o, &noio))
		return false;
	atomic_inc(&o->nr_gathering);
	percpu_ref_switch_to_atomic(&o->gate, NULL);
	cow_admin_leave(o, noio);
	return true;
}

void cow_gate_let_go(struct cow_origin *o)
{
	atomic_dec(&o->nr_gathering);
	/* Pairs with smp_store_mb(): who has not seen this does not overwrite what follows. */
	smp_mb__after_atomic();
	WRITE_ONCE(o->spread_owed, true);
	spread_if_owed(o);
}

void cow_origin_thaw(struct cow_origin *o)
{
	lockdep_assert_held(&o->admin_lock);
	percpu_ref_resurrect(&o->gate);
	cow_gate_spread(o);
	spin_lock(&o->state_lock);
	o->holding = false;
	spin_unlock(&o->state_lock);
	mod_delayed_work(o->wq, &o->decide_work, 0);
}

int cow_origin_drain(struct cow_origin *o, unsigned long timeout)
{
	lockdep_assert_held(&o->admin_lock);
	percpu_ref_switch_to_atomic_sync(&o->gate);
	reinit_completion(&o->writes_drained);
	spin_lock(&o->state_lock);
	o->holding = true;
	spin_unlock(&o->state_lock);
	percpu_ref_kill(&o->gate);
	if (wait_for_completion_timeout(&o->writes_drained, timeout))
		return 0;
	DMERR("origin %pg: writes under way did not end within %u ms (parameter hold_timeout)",
	      o->bdev, jiffies_to_msecs(timeout));
	cow_origin_thaw(o);
	return -ETIMEDOUT;
}

int cow_origin_flush_devices(struct cow_origin *o)
{
	int r = cow_flush(o, o->bdev);

	if (!r && READ_ONCE(o->sealed_end))
		r = cow_flush(o, o->sealed_bdev);
	if (r)
		DMERR("origin %pg: cannot be flushed (%d)", o->bdev, r);
	return r;
}

int cow_origin_flush(struct cow_origin *o)
{
	int r = cow_origin_flush_devices(o);

	if (!cow_flush_tells(o) || r)
		return r;
	DMERR("origin %pg: an earlier flush has failed, writes may be lost", o->bdev);
	return -EIO;
}

/*
 * Flushed twice: what a cache has gathered until now leaves it while writes go on, so that they
 * are held back only for what came since.
 */
int cow_origin_freeze(struct cow_origin *o)
{
	int r = cow_origin_flush(o);

	if (!r)
		r = cow_origin_drain(o, cow_hold_timeout());
	if (r)
		return r;
	r = cow_origin_flush(o);
	if (r)
		cow_origin_thaw(o);
	return r;
}

int cow_gate_init(struct cow_origin *o)
{
	init_completion(&o->writes_drained);
	return percpu_ref_init(&o->gate, gate_drained,
			       PERCPU_REF_INIT_ATOMIC | PERCPU_REF_ALLOW_REINIT, GFP_KERNEL);
}

void cow_gate_exit(struct cow_origin *o)
{
	percpu_ref_exit(&o->gate);
}

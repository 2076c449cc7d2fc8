// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: what was redirected is brought home while the origin is in use
 *
 * A batch is some runs of chunks in the order of home, each of which has one CURRENT version. It
 * goes through these steps, and each has ended for all of it before the next one begins:
 *
 *   take     a pending for each run: writes that meet it park. Nobody sees home there: where a
 *            snapshot does, home is copied to the store first, like for a write
 *   drain    writes in place that were under way have ended: the gate
 *   carry    the engine copies the runs home; what is zeroes is zeroed there
 *   flush    home is durable
 *   free     the slots of some versions are free on the disk, durably: disk/free.c
 *   publish  these leave the map, so that lookups find home; their pendings are released. Then the
 *            next are freed
 *   give     when reads have ended that found the places, these are room
 *
 * What a crash leaves: up to "free" the versions, whatever home has; from then on home, which has
 * the same. Writes are parked from before "carry" until after "free", so no write of either place
 * is lost. Before "take" nothing differs from a store that is not settled.
 *
 * What stays in the store, for now:
 *   - a chunk with an older CURRENT version that a snapshot sees: its slot would count again
 *   - what a record of a named zone has, since it would be replayed: the zone is left first
 *   - all, while dead CURRENT versions may be on the disk: they would count again
 *   - all, during a merge: what its snapshot alone sees at home would be written over
 *
 * Promises kept here:
 *  I1  home is written only where no live epoch sees it, and the origin does not: seen under
 *      origin->state_lock, where no pending is in the way.
 *  I4  reads of home by snapshots have ended: whatever took home out of their sight was a pending
 *      that waited for them.
 *  I5  "home" is published when no slot is left on the disk that says otherwise.
 */
#include <linux/list_sort.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "admin/settle.h"
#include "copy/copy.h"
#include "copy/pending.h"
#include "copy/publish.h"
#include "disk/free.h"
#include "disk/log.h"
#include "disk/meta.h"
#include "origin/flush.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "store/epochs.h"
#include "store/readers.h"
#include "store/room.h"
#include "store/space.h"
#include "store/state.h"
#include "store/store.h"
#include "store/zones.h"

/* Most data of a batch, unless one run is more, and most runs. */
#define BATCH_SECTORS		32768U
#define BATCH_RUNS		512U

/* So many runs are under way at a time: it is looked in between whether to go on. */
#define CARRY_RUNS		32U

/* The origin is left alone when nobody has used it for so long. */
#define IDLE_JIFFIES		(HZ / 2)

/* After a failure, and for want of memory. */
#define ERROR_JIFFIES		(10 * HZ)
#define MEMORY_JIFFIES		(HZ / 50 + 1)

/* It is looked so often whether a reclaim has ended. */
#define RECLAIM_JIFFIES		(HZ / 50 + 1)

/* Copies of home leave this part of the store free. */
#define KEPT_SHARE		16U

struct batch {
	struct cow_store *store;
	struct list_head taken;		/* struct cow_pending, by chunk */
	struct list_head carried;	/* those that are, or have been, copied home */
	unsigned int nr;		/* on these lists */
	struct cow_places *places;	/* room for BATCH_RUNS */
	unsigned int nr_home;		/* the first ones, which are home */
	u64 sectors;
	u64 from, to;			/* chunks of the origin, half open */
	u64 next;			/* where to go on */
	unsigned int zones;		/* that are in the way */
	bool blocked;			/* a pending is in the way, or a zone that goes on */
	bool starved;			/* there was no memory, or no table blocks yet */
	bool no_room;			/* for copies of home, but what this batch gives back */
	bool unread;			/* a table block cannot be read */
	bool last;			/* nothing is left behind @to */
	bool ended;			/* nor behind @next */
};

/* -------------------------------------------------------------------- when */

static unsigned long idle_at(const struct cow_store *store)
{
	return READ_ONCE(store->origin->used) + IDLE_JIFFIES;
}

/* How long to rest until the origin has been left alone for long enough? 0: it has. */
static unsigned long rest_jiffies(struct cow_store *store)
{
	unsigned long at = idle_at(store), now = jiffies;
	bool hasty;

	spin_lock(&store->origin->state_lock);
	hasty = cow_store_settles_in_haste(store);
	spin_unlock(&store->origin->state_lock);
	return hasty || time_after_eq(now, at) ? 0 : at - now;
}

static bool is_wanted(const struct cow_store *store)
{
	return store->options.settle != COWSNAP_SETTLE_OFF || store->settle.asked;
}

/* Nothing comes home any more until the store is opened again. */
static bool is_lost(const struct cow_store *store)
{
	return store->current_failed || store->invalid_not_on_disk ||
	       cow_meta_is_fenced(store->meta) || READ_ONCE(store->dead_left);
}

/* May anything come home now? state_lock held. */
static bool may_settle(const struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	if (list_empty(&store->node) || store->settle.stopped || is_lost(store))
		return false;
	/*
	 * While the mark "invalid" is on its way to the disk its snapshots see home there. What a
	 * merge has not reached is not what the map says of the origin, and its snapshot is no live
	 * one.
	 */
	return is_wanted(store) && !store->merging && store->blocked != COW_STORE_FAILING &&
	       store->writable && !bdev_read_only(store->origin->bdev);
}

static bool stops(struct cow_store *store)
{
	bool may;

	spin_lock(&store->origin->state_lock);
	may = may_settle(store);
	spin_unlock(&store->origin->state_lock);
	return !may || rest_jiffies(store);
}

/* ------------------------------------------------------------------- what */

static bool is_full(const struct batch *b)
{
	return b->nr >= BATCH_RUNS || b->sectors >= BATCH_SECTORS;
}

/*
 * What the origin has in the store at @chunk and, in the same run, up to @nr chunks, if no pending
 * is in the way. False: look at what begins at *@next. state_lock held.
 */
static bool look_at(struct batch *b, u64 chunk, u64 nr, struct cow_unsettled *u, u64 *next)
{
	struct cow_store *store = b->store;
	const struct cow_live *live;
	struct cow_pending *p;

	lockdep_assert_held(&store->origin->state_lock);
	p = cow_pending_overlap(store, chunk, chunk + nr - 1);
	if (p && p->first <= chunk) {
		b->blocked = true;
		*next = p->last + 1;
		return false;
	}
	*next = p ? p->first : chunk + nr;
	live = rcu_dereference_protected(store->live,
					 lockdep_is_held(&store->origin->state_lock));
	if (!cow_map_unsettled(&store->map, live, chunk,
			       min(*next - chunk, cow_run_chunks_max(store)), u))
		return false;
	*next = u->ext.chunk + u->ext.nr;
	return true;
}

/* It becomes part of the batch. state_lock held. */
static bool take_run(struct batch *b, const struct cow_extent *ext)
{
	struct cow_pending *p;

	p = cow_pending_add_spare(b->store, ext->chunk, ext->nr, COW_HOME, ext->place, 0);
	if (!p) {
		b->starved = true;
		return false;
	}
	p->epoch = ext->epoch;
	if (ext->kind == COW_CURRENT_ZERO)
		p->nr_zero = ext->nr;
	list_add_tail(&p->node, &b->taken);
	b->nr++;
	b->sectors += cow_chunk_to_sector(b->store, ext->nr);
	return true;
}

/* Is there room, but for memory, or for table blocks that are being made ready? */
static bool room_is_to_come(const struct cow_store *store)
{
	const struct cow_space *space = &store->space;

	return store->blocked == COW_STORE_PREPARING ||
	       (!store->blocked &&
		(space->used < cow_space_ready(space) ||
		 (space->blocks < space->max_blocks && !READ_ONCE(store->extend_failed))));
}

/* Room for copies of home; the rest is for others. state_lock held. */
static u32 copy_room(struct batch *b, u64 nr, u64 *place)
{
	struct cow_store *store = b->store;
	const struct cow_space *space = &store->space;
	u64 kept = cow_space_filled(space) + space->total / KEPT_SHARE;
	bool is_room = kept < space->total;
	u32 got = 0;

	if (is_room && !store->blocked)
		got = cow_store_room(store, min(nr, space->total - kept), place);
	if (!got && is_room && room_is_to_come(store))
		b->starved = true;
	else if (!got)
		b->no_room = true;
	return got;
}

/*
 * Home is copied for the epochs up to @epoch: a run from @chunk on, of at most @nr chunks. Returns
 * how many; 0: there is no room. state_lock held.
 */
static u32 copy_run(struct batch *b, u64 chunk, u64 nr, u32 epoch)
{
	struct cow_store *store = b->store;
	struct cow_origin *o = store->origin;
	sector_t start, end, has;
	struct cow_pending *p;
	u64 place;
	u32 got = copy_room(b, nr, &place);

	if (!got)
		return 0;
	p = cow_pending_add_spare(store, chunk, got, COW_COPIED, place, got);
	if (!p) {
		cow_space_free(&store->space, place, got);
		b->starved = true;
		return 0;
	}
	p->epoch = epoch;
	p->settles = true;
	store->nr_settling++;
	b->nr++;
	b->sectors += cow_chunk_to_sector(store, got);
	start = cow_pending_sector(p);
	end = cow_pending_end_sector(p);
	has = cow_origin_has(o, start, end);
	list_add(&p->node, &p->sharers);
	/* No bio waits for it, until one parks. */
	p->job.speculative = true;
	WRITE_ONCE(p->leader, p);
	/* What is sealed is never redirected: home is the origin's device. */
	cow_pending_copy(p, o->bdev, start, has, end - start - has);
	return got;
}

/* What is done with a run that is found, these two. False: not more of them. state_lock held. */
static bool copy_if_seen(struct batch *b, const struct cow_unsettled *u)
{
	u64 first = u->ext.chunk, at, end = first + u->ext.nr;
	u32 got = 1;

	if (!u->home_is_seen || u->has_older)
		return true;
	/* Later epochs see what the origin has had since then. */
	for (at = first; at < end && got; at += got)
		got = copy_run(b, at, end - at, u->oldest);
	/* Then it goes on here when what has been copied is home. */
	return !b->no_room || at > first;
}

static bool take_if_unseen(struct batch *b, const struct cow_unsettled *u)
{
	unsigned int zones;

	if (u->has_older || u->home_is_seen)
		return true;
	zones = cow_zones_have(b->store, u->ext.place, u->ext.nr);
	b->zones |= zones;
	return zones || take_run(b, &u->ext);
}

/* @fn looks at what the origin has in the store, from @b->next on. */
static void walk(struct batch *b, bool (*fn)(struct batch *b, const struct cow_unsettled *u))
{
	struct cow_store *store = b->store;
	struct cow_origin *o = store->origin;
	struct cow_unsettled u;
	struct cow_extent ext;
	bool goes_on = true;
	u64 next;

	while (goes_on && !is_full(b)) {
		if (!cow_map_next(&store->map, b->next, b->to, COW_EPOCH_NOW, &ext)) {
			b->next = b->to;
			b->ended = b->last;
			break;
		}
		spin_lock(&o->state_lock);
		goes_on = may_settle(store);
		if (goes_on && look_at(b, ext.chunk, ext.nr, &u, &next))
			goes_on = fn(b, &u);
		spin_unlock(&o->state_lock);
		if (goes_on)
			b->next = next;
		cond_resched();
	}
}

/* Versions that are dead are on their way from the map and the disk under dead_lock. */
static void take_unseen(struct batch *b)
{
	struct cow_store *store = b->store;

	lockdep_assert_held(&store->dead_lock);
	spin_lock(&store->origin->state_lock);
	b->zones = cow_zones_with_dead(store);
	spin_unlock(&store->origin->state_lock);
	if (b->zones)
		b->ended = true;
	else
		walk(b, take_if_unseen);
}

/*
 * Reclaim has dead_lock for as long as it takes: it is not waited for when the store is closed, nor
 * by whoever wants admin_lock of @o meanwhile, which is taken first. False: it is closed.
 */
static bool lock_dead(struct cow_store *store, struct cow_origin *o)
{
	while (!READ_ONCE(store->settle.stopped)) {
		if (o)
			mutex_lock(&o->admin_lock);
		if (mutex_trylock(&store->dead_lock))
			return true;
		if (o)
			cow_admin_unlock(o);
		schedule_timeout_uninterruptible(RECLAIM_JIFFIES);
	}
	return false;
}

/*
 * Taken, and writes in place have ended that found the versions before. In one hold of admin_lock:
 * nobody else is waited for, with its lock, while writes wait for the pendings.
 */
static int take_runs(struct batch *b)
{
	struct cow_store *store = b->store;
	struct cow_origin *o = store->origin;
	int r = 0;

	if (!lock_dead(store, o))
		return 0;
	take_unseen(b);
	mutex_unlock(&store->dead_lock);
	if (b->nr) {
		r = cow_origin_drain(o, cow_hold_timeout());
		if (!r)
			cow_origin_thaw(o);
	}
	cow_admin_unlock(o);
	return r;
}

/* Under the lock: see cow_pending_release(). */
static bool copies_have_ended(struct cow_store *store)
{
	bool ended;

	spin_lock(&store->origin->state_lock);
	ended = !store->nr_settling;
	spin_unlock(&store->origin->state_lock);
	return ended;
}

/* Copies of home are in the map, or have failed. */
static void copy_runs(struct batch *b)
{
	struct cow_store *store = b->store;

	walk(b, copy_if_seen);
	wait_event(store->idle, copies_have_ended(store));
	/* Now these can be taken. */
	b->to = b->next;
	b->last = b->ended;
	b->next = b->from;
	b->nr = 0;
	b->sectors = 0;
	b->ended = false;
}

/* ------------------------------------------------------------------ carried */

static void carry_ready(struct cow_job *job)
{
	struct cow_pending *p = container_of(job, struct cow_pending, job);
	struct cow_origin *o = p->store->origin;
	sector_t start = cow_pending_sector(p);

	p->status = job->read_status;
	p->unread = p->status;
	/* As in cow_pending_write(): writers may wait for it. */
	if (!p->status)
		cow_job_write(job, 0, cow_origin_has(o, start, cow_pending_end_sector(p)),
			      o->bdev, start, REQ_SYNC | REQ_IDLE, &p->status);
}

static void carry_done(struct cow_job *job)
{
	struct cow_pending *p = container_of(job, struct cow_pending, job);
	struct cow_store *store = p->store;

	spin_lock(&store->origin->state_lock);
	/* Pairs with cow_pending_need(): no release comes before this. */
	WRITE_ONCE(p->leader, NULL);
	store->settle.wanted |= !list_empty(&p->parked);
	store->settle.jobs--;
	if (store->settle.wanted || !store->settle.jobs)
		wake_up(&store->idle);
	spin_unlock(&store->origin->state_lock);
}

static const struct cow_job_ops carry_ops = {
	.ready = carry_ready,
	.done = carry_done,
};

static void submit_run(struct cow_pending *p)
{
	struct cow_store *store = p->store;

	lockdep_assert_held(&store->origin->state_lock);
	p->job.ops = &carry_ops;
	p->job.bdev = store->bdev;
	p->job.sector = cow_chunk_to_sector(store, p->place);
	p->job.nr_sectors = cow_chunk_to_sector(store, cow_pending_nr(p));
	p->job.speculative = true;
	WRITE_ONCE(p->leader, p);
	store->settle.jobs++;
	cow_engine_submit(store->origin->engine, &p->job);
}

/* It stays as it is, in the store. */
static void leave_run(struct batch *b, struct cow_pending *p)
{
	if (p->status)
		DMERR_LIMIT("store %pg: chunk %llu of %pg stays there: it cannot be %s (%d)",
			    p->store->bdev, p->first, p->store->origin->bdev,
			    p->unread ? "read" : "written home",
			    blk_status_to_errno(p->status));
	list_del_init(&p->node);
	b->nr--;
	p->status = BLK_STS_OK;
	cow_pending_release(p);
}

static void leave_runs(struct batch *b, struct list_head *runs)
{
	struct cow_pending *p, *next;

	list_for_each_entry_safe(p, next, runs, node)
		leave_run(b, p);
}

static void leave_failed(struct batch *b)
{
	struct cow_pending *p, *next;

	list_for_each_entry_safe(p, next, &b->carried, node)
		if (p->status)
			leave_run(b, p);
}

static void move_wanted(struct list_head *from, struct list_head *wanted)
{
	struct cow_pending *p, *next;

	/* The job of one that is being carried has been moved forward. */
	list_for_each_entry_safe(p, next, from, node)
		if (!list_empty(&p->parked) && !p->leader)
			list_move_tail(&p->node, wanted);
}

/* Writes wait for no more than one copy: what they wait for, and is not under way, is left. */
static void leave_wanted(struct batch *b)
{
	struct cow_store *store = b->store;
	LIST_HEAD(wanted);

	spin_lock(&store->origin->state_lock);
	if (store->settle.wanted) {
		store->settle.wanted = false;
		move_wanted(&b->taken, &wanted);
		move_wanted(&b->carried, &wanted);
	}
	spin_unlock(&store->origin->state_lock);
	b->blocked |= !list_empty(&wanted);
	leave_runs(b, &wanted);
}

/* Under the lock: what the jobs have done is seen then. */
static bool jobs_have_ended(struct cow_store *store, bool or_wanted)
{
	bool ended;

	spin_lock(&store->origin->state_lock);
	ended = !store->settle.jobs || (or_wanted && store->settle.wanted);
	spin_unlock(&store->origin->state_lock);
	return ended;
}

static void await_jobs(struct batch *b)
{
	struct cow_store *store = b->store;

	do {
		wait_event(store->idle, jobs_have_ended(store, true));
		leave_wanted(b);
	} while (!jobs_have_ended(store, false));
}

/* Not by unmapping: a home that is thin, and full, could not be written there any more. */
static void zero_home(struct cow_pending *p)
{
	struct cow_origin *o = p->store->origin;
	sector_t start = cow_pending_sector(p);
	sector_t has = cow_origin_has(o, start, cow_pending_end_sector(p));

	p->status = errno_to_blk_status(blkdev_issue_zeroout(o->bdev, start, has, GFP_NOIO,
							     BLKDEV_ZERO_NOUNMAP));
}

/* Some are under way now. What is zeroes is home by then. */
static void carry_some(struct batch *b)
{
	struct cow_origin *o = b->store->origin;
	struct cow_pending *p;
	unsigned int nr;

	for (nr = 0; nr < CARRY_RUNS && !list_empty(&b->taken); nr++) {
		p = list_first_entry(&b->taken, struct cow_pending, node);
		list_move_tail(&p->node, &b->carried);
		if (p->nr_zero) {
			zero_home(p);
			break;
		}
		spin_lock(&o->state_lock);
		submit_run(p);
		spin_unlock(&o->state_lock);
	}
}

/* The runs are copied home, as many as there is time for. */
static void carry_runs(struct batch *b)
{
	struct cow_pending *p;

	/* Some came while the gate was shut. */
	leave_wanted(b);
	while (!list_empty(&b->taken) && !stops(b->store)) {
		carry_some(b);
		await_jobs(b);
	}
	/* There was no time for these. */
	p = list_first_entry_or_null(&b->taken, struct cow_pending, node);
	if (p) {
		b->next = p->first;
		b->ended = false;
	}
	leave_runs(b, &b->taken);
	leave_failed(b);
}

/* -------------------------------------------------------------- freed, published */

static int pending_by_place(void *priv, const struct list_head *a, const struct list_head *b)
{
	return list_entry(a, struct cow_pending, node)->place >
	       list_entry(b, struct cow_pending, node)->place;
}

/* Those that are not home yet, behind the others. */
static const struct cow_places *list_places(struct batch *b)
{
	struct cow_places *places = b->places + b->nr_home;
	struct cow_pending *p;
	unsigned int nr = 0;

	list_for_each_entry(p, &b->carried, node)
		places[nr++] = (struct cow_places){
			.first = p->place, .nr = cow_pending_nr(p), .redirected = true,
		};
	return places;
}

/* Without memory it is tried again: the slots are gone, so it has to be. */
static void publish_run(struct cow_pending *p)
{
	const struct cow_extent gone = {
		.chunk = p->first, .nr = cow_pending_nr(p), .place = p->place,
		.epoch = p->epoch, .kind = COW_CURRENT,
	};

	while (cow_map_remove(&p->store->map, &gone))
		schedule_timeout_uninterruptible(MEMORY_JIFFIES);
}

/* The slots of the first @nr are free. */
static void publish_runs(struct batch *b, unsigned int nr)
{
	struct cow_pending *p;

	b->nr -= nr;
	b->nr_home += nr;
	while (nr--) {
		p = list_first_entry(&b->carried, struct cow_pending, node);
		publish_run(p);
		list_del_init(&p->node);
		cow_pending_release(p);
	}
}

/* The table block of the first one cannot be read. */
static void leave_unread(struct batch *b)
{
	struct cow_pending *p = list_first_entry(&b->carried, struct cow_pending, node);

	DMWARN_LIMIT("store %pg: chunk %llu of %pg stays there: its table block cannot be read",
		     b->store->bdev, p->first, b->store->origin->bdev);
	b->unread = true;
	leave_run(b, p);
}

/*
 * By place, those of some table blocks at a time. In between it is looked what writes wait for, and
 * whether there is time for more: the rest stays in the store.
 */
static int free_runs(struct batch *b)
{
	int r = 0;

	list_sort(NULL, &b->carried, pending_by_place);
	leave_wanted(b);
	while (!list_empty(&b->carried)) {
		r = cow_slots_free(b->store, list_places(b), b->nr);
		if (r > 0)
			publish_runs(b, r);
		else if (r == -EUCLEAN)
			leave_unread(b);
		else
			break;
		leave_wanted(b);
		if (stops(b->store))
			break;
	}
	b->blocked |= !list_empty(&b->carried);
	leave_runs(b, &b->carried);
	return r == -EUCLEAN ? 0 : min(r, 0);
}

static void give_places(struct batch *b)
{
	struct cow_store *store = b->store;
	struct cow_origin *o = store->origin;
	unsigned int i;

	/* A store that is closed needs no room. */
	if (!lock_dead(store, NULL))
		return;
	cow_readers_await(store);
	mutex_unlock(&store->dead_lock);
	spin_lock(&o->state_lock);
	for (i = 0; i < b->nr_home; i++) {
		cow_space_free(&store->space, b->places[i].first, b->places[i].nr);
		store->settled += b->places[i].nr;
		store->settle.asked -= min(store->settle.asked, b->places[i].nr);
		cow_store_current_gone(store, b->places[i].nr);
	}
	cow_store_has_room_again(store);
	if (!store->nr_current)
		queue_work(o->wq, &store->event_work);
	spin_unlock(&o->state_lock);
}

/* ------------------------------------------------------------------- batches */

static int settle_taken(struct batch *b)
{
	struct cow_origin *o = b->store->origin;
	unsigned int losses = cow_losses(&o->losses);
	int r;

	carry_runs(b);
	if (!b->nr)
		return 0;
	r = cow_flush(o, o->bdev);
	/* What home has lost of these may have been told to others. */
	if (!r && cow_losses(&o->losses) != losses)
		r = -EIO;
	if (r)
		leave_runs(b, &b->carried);
	else
		r = free_runs(b);
	if (b->nr_home) {
		give_places(b);
		b->store->settle.progress = true;
	}
	return r;
}

/*
 * Zones that are in the way are left. Commits wait for that: where all comes home at once, whoever
 * uses the origin, a zone goes on for a while. state_lock held.
 */
static bool finish_zones(struct cow_store *store, unsigned int zones)
{
	bool any = store->settle.asked || store->options.settle != COWSNAP_SETTLE_NOW ||
		   time_after_eq(jiffies, idle_at(store));

	return cow_zones_finish(store, zones, any, cow_log_turn_delay(store->meta));
}

static int settle_batch(struct cow_store *store)
{
	struct cow_settle *settle = &store->settle;
	struct batch b = {
		.store = store, .from = settle->next, .to = U64_MAX, .next = settle->next,
		.last = true, .taken = LIST_HEAD_INIT(b.taken),
		.carried = LIST_HEAD_INIT(b.carried),
	};
	int r;

	b.places = kvmalloc_array(BATCH_RUNS, sizeof(b.places[0]), GFP_NOIO | __GFP_NORETRY);
	if (!b.places)
		return -ENOMEM;
	if (settle->pass == COW_SETTLE_SEEN)
		copy_runs(&b);
	r = take_runs(&b);
	if (r)
		leave_runs(&b, &b.taken);
	else if (b.nr)
		r = settle_taken(&b);
	kvfree(b.places);
	spin_lock(&store->origin->state_lock);
	/* What came home has left room: the passes begin anew. */
	settle->blocked |= b.blocked | b.starved | (b.no_room && b.nr_home);
	b.ended |= b.no_room && !b.nr_home;
	settle->starved = b.starved && !b.nr_home;
	settle->unread |= b.unread;
	settle->next = b.next;
	/* It is gone on with when they are left. */
	settle->waits_for_zones |= b.zones;
	settle->blocked |= !finish_zones(store, b.zones);
	if (b.ended) {
		settle->next = 0;
		settle->pass = settle->pass == COW_SETTLE_UNSEEN ? COW_SETTLE_SEEN :
			       COW_SETTLE_NOTHING;
	}
	spin_unlock(&store->origin->state_lock);
	return r;
}

/* ------------------------------------------------------------------ the work */

static void run_later(struct cow_store *store, unsigned long delay)
{
	spin_lock(&store->origin->state_lock);
	if (!store->settle.stopped && store->nr_current)
		queue_delayed_work(store->origin->room_wq, &store->settle_work, delay);
	spin_unlock(&store->origin->state_lock);
}

/* Is there something to do? Then the first pass begins, unless one is under way. */
static bool begins(struct cow_store *store)
{
	struct cow_settle *settle = &store->settle;
	bool does;

	spin_lock(&store->origin->state_lock);
	does = may_settle(store) && (settle->again || settle->pass != COW_SETTLE_NOTHING);
	if (does && settle->pass == COW_SETTLE_NOTHING) {
		settle->again = false;
		settle->heard = true;
		settle->pass = COW_SETTLE_UNSEEN;
		settle->next = 0;
		settle->progress = false;
		settle->blocked = false;
		settle->unread = false;
		settle->waits_for_zones = false;
	}
	spin_unlock(&store->origin->state_lock);
	return does;
}

/* When is the next batch due? The passes begin anew if there may be more to do by now. */
static unsigned long batch_ended(struct cow_store *store, int r)
{
	struct cow_settle *settle = &store->settle;
	unsigned long delay = r ? ERROR_JIFFIES : settle->starved ? MEMORY_JIFFIES : 0;

	/* That the store is lost has been said. */
	if (r && r != -ENOTRECOVERABLE)
		DMWARN_LIMIT("store %pg: redirected data stays there (%d): tried again",
			     store->bdev, r);
	spin_lock(&store->origin->state_lock);
	if (r) {
		settle->pass = COW_SETTLE_NOTHING;
		settle->again = true;
		settle->in_vain = true;
	} else if (settle->pass == COW_SETTLE_NOTHING) {
		/* What cannot be read has not kept the rest from coming home. */
		settle->again |= settle->blocked || settle->unread;
		settle->in_vain = !settle->progress || settle->unread;
		/* What is redirected meanwhile was not asked for. */
		if (settle->heard && !settle->waits_for_zones && !settle->blocked &&
		    !settle->unread)
			settle->asked = 0;
		delay = !settle->again ? MAX_JIFFY_OFFSET : settle->unread ? ERROR_JIFFIES :
			settle->in_vain ? HZ : 0;
	}
	spin_unlock(&store->origin->state_lock);
	return delay;
}

void cow_settle_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       settle_work);
	/* Writes may wait for this, and memory for them. */
	unsigned int noio = memalloc_noio_save();
	unsigned long delay = rest_jiffies(store);
	int r;

	if (begins(store)) {
		if (!delay) {
			r = settle_batch(store);
			delay = batch_ended(store, r);
		}
		if (delay != MAX_JIFFY_OFFSET)
			run_later(store, delay);
	}
	memalloc_noio_restore(noio);
}

/* 0, or why nothing would be done, with a line in the log. state_lock held. */
static int may_ask(const struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	if (list_empty(&store->node)) {
		DMERR("store %pg is not in use yet: resume its tables before it is settled",
		      store->bdev);
		return -EAGAIN;
	}
	if (is_lost(store)) {
		DMERR("store %pg has failed, as the log says: load its tables again to settle it",
		      store->bdev);
		return -EIO;
	}
	return 0;
}

int cow_settle_ask(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	int r;

	if (!store->meta || !store->writable) {
		DMERR("store %pg is %s: nothing of it is settled", store->bdev,
		      store->meta ? "read-only" : "transient");
		return -EINVAL;
	}
	if (bdev_read_only(o->bdev)) {
		DMERR("store %pg: %pg is read-only: make it writable before the store is settled",
		      store->bdev, o->bdev);
		return -EROFS;
	}
	spin_lock(&o->state_lock);
	r = may_ask(store);
	if (!r) {
		store->settle.asked = store->nr_current;
		store->settle.heard = false;
		store->settle.in_vain = false;
		cow_store_settle(store);
	}
	spin_unlock(&o->state_lock);
	return r;
}

void cow_settle_stop(struct cow_store *store)
{
	spin_lock(&store->origin->state_lock);
	WRITE_ONCE(store->settle.stopped, true);
	spin_unlock(&store->origin->state_lock);
	cancel_delayed_work_sync(&store->settle_work);
}

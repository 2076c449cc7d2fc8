// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: pending exceptions
 *
 * A pending exception is a run of chunks on its way into the map. It stands in its
 * store's interval tree from when it is decided on until its exception can be relied
 * on; bios that need it are parked on it meanwhile.
 *
 *   added --> copied, carried or marked --> published --> drained --> released
 *             (engine) (a bio) (no data)    in the map    of reads    out of the tree
 *                                                                       |
 *                               written, freed <-- kept, in store->kept <-'  (undo buffer)
 *
 * A copy that cannot be read costs the snapshots only if all of it is about to be
 * written (->exact). Else it is given up; the bios that needed part of it decide again
 * and ask for no more than they need.
 *
 * Promise kept here: I7, the share of pendings. Some are there from the start. A bio that
 * finds none is deferred until one is freed.
 */
#include <linux/interval_tree_generic.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "copy/pending.h"
#include "disk/commit.h"
#include "origin/bio.h"
#include "origin/origin.h"
#include "store/store.h"

/*
 * Pending exceptions that are there when memory is not, those that are kept beside them since the
 * allocator has more to do, and the limit for an origin. Where uses of freed memory are looked for
 * none is kept, so that they are found.
 */
#define PENDING_RESERVE		64
#define PENDING_KEPT		(IS_ENABLED(CONFIG_KASAN) ? 0 : 64)
#define PENDING_MAX		8192

#define pending_start(p) ((p)->first)
#define pending_last(p) ((p)->last)
INTERVAL_TREE_DEFINE(struct cow_pending, rb, u64, subtree_last, pending_start,
		     pending_last, static __maybe_unused, pending_tree)

static struct kmem_cache *pending_cache;

struct cow_pending *cow_pending_overlap(struct cow_store *store, u64 first, u64 last)
{
	lockdep_assert_held(&store->origin->state_lock);
	return pending_tree_iter_first(&store->pendings, first, last);
}

static struct cow_pending *pending_pop(struct cow_origin *o)
{
	struct cow_pending *p = list_first_entry_or_null(&o->spare_pendings, struct cow_pending,
							 node);

	if (p) {
		list_del(&p->node);
		o->nr_spare_pendings--;
	}
	return p;
}

/*
 * The reserve is for when there is no memory, if this @may have it, and the kernel's last is for
 * those below.
 */
static struct cow_pending *pending_get(struct cow_origin *o, bool may)
{
	struct cow_pending *p = NULL;

	if (o->nr_pendings >= PENDING_MAX)
		return NULL;
	if (o->nr_spare_pendings <= PENDING_RESERVE)
		p = kmem_cache_alloc(pending_cache, GFP_NOWAIT | __GFP_NOMEMALLOC | __GFP_NOWARN);
	if (!p && (may || o->nr_spare_pendings > PENDING_RESERVE))
		p = pending_pop(o);
	return p;
}

void cow_pending_free(struct cow_origin *o, struct cow_pending *p)
{
	lockdep_assert_held(&o->state_lock);
	if (o->nr_spare_pendings == PENDING_RESERVE + PENDING_KEPT) {
		kmem_cache_free(pending_cache, p);
		return;
	}
	list_add(&p->node, &o->spare_pendings);
	o->nr_spare_pendings++;
}

static struct cow_pending *pending_add(struct cow_store *store, bool spare, u64 first, u64 nr,
				       enum cow_kind kind, u64 place, u32 nr_room)
{
	struct cow_origin *o = store->origin;
	struct cow_pending *p = pending_get(o, !spare);

	if (!p)
		return NULL;
	memset(p, 0, sizeof(*p));
	p->first = first;
	p->last = first + nr - 1;
	p->store = store;
	p->kind = kind;
	p->place = place;
	p->nr_room = nr_room;
	p->spare = spare;
	p->own = cow_kind_is_private(kind);
	p->turn = store->own_turn;
	store->nr_own[p->turn] += p->own;
	INIT_LIST_HEAD(&p->member);
	INIT_LIST_HEAD(&p->node);
	INIT_LIST_HEAD(&p->parked);
	INIT_LIST_HEAD(&p->sharers);
	pending_tree_insert(p, &store->pendings);
	store->nr_pendings++;
	WRITE_ONCE(store->nr_needed, store->nr_needed + !spare);
	o->nr_pendings++;
	return p;
}

struct cow_pending *cow_pending_add(struct cow_store *store, u64 first, u64 nr,
				    enum cow_kind kind, u64 place, u32 nr_room)
{
	lockdep_assert_held(&store->origin->state_lock);
	return pending_add(store, false, first, nr, kind, place, nr_room);
}

struct cow_pending *cow_pending_add_spare(struct cow_store *store, u64 first, u64 nr,
					  enum cow_kind kind, u64 place, u32 nr_room)
{
	lockdep_assert_held(&store->origin->state_lock);
	return pending_add(store, true, first, nr, kind, place, nr_room);
}

void cow_pending_remove(struct cow_pending *p)
{
	lockdep_assert_held(&p->store->origin->state_lock);
	pending_tree_remove(p, &p->store->pendings);
}

void cow_pending_finished(struct cow_pending *p)
{
	struct cow_origin *o = p->store->origin;
	unsigned long flags;

	/* Keeps the engine: @p may be freed as soon as it is on the list. */
	rcu_read_lock();
	spin_lock_irqsave(&o->reads_lock, flags);
	list_add_tail(&p->node, &o->finished);
	spin_unlock_irqrestore(&o->reads_lock, flags);
	cow_engine_kick(o->engine);
	rcu_read_unlock();
}

void cow_pending_park(struct cow_pending *p, struct cow_bio *cb)
{
	struct cow_origin *o = p->store->origin;

	lockdep_assert_held(&o->state_lock);
	if (!p->waited_for) {
		WRITE_ONCE(o->nr_waited_for, o->nr_waited_for + 1);
		/* Before a commit that it is in looks whether somebody waits. */
		WRITE_ONCE(p->waited_for, true);
		if (p->store->meta)
			cow_meta_look_again(p->store->meta);
	}
	cow_bio_park(cb, &p->parked, COW_WAIT_PENDING);
}

/* Is it one that commits wait for? See awaits_others() in disk/commit.c. */
static void count_long(struct cow_pending *p)
{
	struct cow_store *store = p->store;

	/* Where nothing turns a commit costs no trip. */
	if (p->is_long || !store->meta || !bdev_rot(store->bdev) || p->kind != COW_COPIED ||
	    !cow_pending_has_length(p))
		return;
	WRITE_ONCE(p->is_long, true);
	WRITE_ONCE(store->nr_long, store->nr_long + 1);
}

void __cow_pending_uncount(struct cow_pending *p)
{
	struct cow_store *store = p->store;

	lockdep_assert_held(&store->origin->state_lock);
	if (!p->is_long)
		return;
	WRITE_ONCE(store->nr_long, store->nr_long - 1);
	WRITE_ONCE(p->is_long, false);
	cow_meta_look_again(store->meta);
}

void cow_pending_uncount(struct cow_pending *p)
{
	spinlock_t *lock = &p->store->origin->state_lock;

	if (!READ_ONCE(p->is_long))
		return;
	spin_lock(lock);
	__cow_pending_uncount(p);
	spin_unlock(lock);
}

void cow_pending_begin(struct cow_pending *p)
{
	struct cow_store *store = p->store;
	const struct cow_pending *before;

	lockdep_assert_held(&store->origin->state_lock);
	count_long(p);
	/* With redirected writes the log is all that makes them quick. */
	if (p->is_long || !store->nr_long || !p->first || store->options.redirect)
		return;
	before = cow_pending_overlap(store, p->first - 1, p->first - 1);
	p->in_stream = before && (before->is_long || before->in_stream);
}

void cow_pending_follow(struct cow_pending *p, struct cow_pending *before)
{
	lockdep_assert_held(&p->store->origin->state_lock);
	before->in_stream |= p->is_long && !before->is_long && before->store == p->store &&
			     before->last + 1 == p->first && !p->store->options.redirect;
}

void cow_pending_need(struct cow_pending *p)
{
	struct cow_pending *leader;

	lockdep_assert_held(&p->store->origin->state_lock);
	/* Cleared by store_job_done(), before the leader is freed under the lock. */
	leader = READ_ONCE(p->leader);
	if (leader) {
		count_long(p);
		cow_engine_need(p->store->origin->engine, &leader->job);
	} else if (p->kind == COW_HOME) {
		/* Settling may leave it alone. */
		p->store->settle.wanted = true;
		wake_up(&p->store->idle);
	}
}

struct cow_pending *cow_pending_kept(struct cow_store *store, u64 first, u64 last)
{
	struct cow_pending *p = pending_tree_iter_first(&store->kept, first, last);

	lockdep_assert_held(&store->origin->state_lock);
	if (p)
		return p;
	p = pending_tree_iter_first(&store->pendings, first, last);
	while (p && !(p->kept && p->publishing))
		p = pending_tree_iter_next(p, first, last);
	return p;
}

void cow_pending_keep(struct cow_pending *p)
{
	lockdep_assert_held(&p->store->origin->state_lock);
	pending_tree_insert(p, &p->store->kept);
}

void cow_pending_forget_kept(struct cow_pending *p)
{
	lockdep_assert_held(&p->store->origin->state_lock);
	pending_tree_remove(p, &p->store->kept);
}

u64 cow_run_chunks_max(struct cow_store *store)
{
	unsigned int sectors = min(COW_RUN_SECTORS,
				   cow_engine_job_sectors(store->origin->engine));

	return clamp_t(u64, cow_sector_to_chunk(store, sectors), 1, COW_RUN_CHUNKS);
}

int cow_pending_reserve(struct cow_origin *o)
{
	struct cow_pending *p;

	INIT_LIST_HEAD(&o->spare_pendings);
	for (; o->nr_spare_pendings < PENDING_RESERVE; o->nr_spare_pendings++) {
		p = kmem_cache_alloc(pending_cache, GFP_KERNEL);
		if (!p)
			return -ENOMEM;
		list_add(&p->node, &o->spare_pendings);
	}
	return 0;
}

void cow_pending_free_reserve(struct cow_origin *o)
{
	struct cow_pending *p;

	while (o->nr_spare_pendings) {
		p = pending_pop(o);
		kmem_cache_free(pending_cache, p);
	}
}

int cow_pending_init(void)
{
	pending_cache = kmem_cache_create("cowsnap_pending", sizeof(struct cow_pending),
					  0, 0, NULL);
	return pending_cache ? 0 : -ENOMEM;
}

void cow_pending_exit(void)
{
	kmem_cache_destroy(pending_cache);
}

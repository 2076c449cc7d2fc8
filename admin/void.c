// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: what was redirected since a snapshot is forgotten when that is merged
 *
 * Where the origin has CURRENT versions from after the snapshot, and the snapshot sees home or an
 * older one, no data has to move: without the later ones the origin has what the snapshot sees. If
 * a stretch has some, store->dead_lock is taken before it is closed: reclaim may have that for
 * long. In the closed stretch, of all such versions the newest of each chunk, until there are no
 * more:
 *
 *   free      their slots are free on the disk, durably: disk/free.c
 *   forget    they leave the map, so that lookups find what is behind them
 *   give      when reads have ended that found the places, these are room
 *
 * What a crash leaves: the merge has not got there yet, so the origin is what the snapshot sees,
 * and that has none of these. How many there still are does not matter: those are forgotten then.
 *
 * What is carried instead (admin/carry.c), into the newest version or a later one:
 *   - a chunk of which another live snapshot sees such a version
 *   - what a record of a named zone has, since it would be replayed; so the zone is left first
 *   - all, while dead CURRENT versions may be on the disk: one could count again
 *   - what is left of a stretch, when a table block cannot be read: its slots stay
 *   - the last chunk, if the origin goes on in it behind the snapshot's end
 *
 * Promises kept here:
 *  I1  home is not written. No live epoch sees the versions; this is seen under
 *      origin->state_lock, and beside a merge no epoch begins to live.
 *  I5  only when their slots are gone the superblock says that the stretch is merged.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "dm-cowsnap-exception.h"
#include "admin/carry.h"
#include "admin/void.h"
#include "disk/checkpoint.h"
#include "disk/free.h"
#include "disk/meta.h"
#include "io/merge.h"
#include "origin/origin.h"
#include "store/readers.h"
#include "store/room.h"
#include "store/space.h"
#include "store/store.h"
#include "store/zones.h"

/* For want of memory for the map, and while reclaim is at work. */
#define MEMORY_JIFFIES	(HZ / 50 + 1)
#define RECLAIM_JIFFIES	(HZ / 50 + 1)

int cow_void_init(struct cow_merge *m)
{
	m->places = kvmalloc_array(cow_stretch_chunks(m->store), sizeof(m->places[0]), GFP_KERNEL);
	return m->places ? 0 : -ENOMEM;
}

void cow_void_exit(struct cow_merge *m)
{
	kvfree(m->places);
	m->places = NULL;
}

/* The first chunk that has more than the snapshot, or @end. */
static u64 whole_end(const struct cow_merge *m, u64 end)
{
	if (m->nr_sectors == bdev_nr_sectors(m->store->origin->bdev))
		return end;
	return min(end, cow_sector_to_chunk(m->store, m->nr_sectors));
}

/*
 * May anything be forgotten now? See may_settle(). While snapshots are being marked as invalid they
 * are live here until that is on the disk, or cannot be. state_lock held.
 */
static bool may_forget(const struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	return !store->invalid_not_on_disk && !store->current_failed &&
	       !cow_meta_is_fenced(store->meta) && !READ_ONCE(store->dead_left);
}

/*
 * The next version from *@at on, before @end, that the merge can do without; *@at becomes what is
 * behind it. *@zones: those that have it, or have dead ones.
 */
static bool next_version(struct cow_merge *m, u64 *at, u64 end, struct cow_extent *ext,
			 unsigned int *zones)
{
	struct cow_store *store = m->store;
	const struct cow_live *live;
	bool found = false;

	while (!found && cow_map_next_differing(&store->map, *at, end, m->epoch, ext)) {
		*at = ext->chunk + ext->nr;
		spin_lock(&store->origin->state_lock);
		live = rcu_dereference_protected(store->live,
						 lockdep_is_held(&store->origin->state_lock));
		found = may_forget(store) &&
			cow_map_rolls_back(&store->map, live, m->epoch, ext->chunk, ext->nr, ext);
		if (found)
			*zones = cow_zones_have(store, ext->place, ext->nr) |
				 cow_zones_with_dead(store);
		spin_unlock(&store->origin->state_lock);
	}
	return found;
}

/* Is there anything to forget up to @end? *@zones: those that are in the way. */
static bool has_versions(struct cow_merge *m, u64 end, unsigned int *zones)
{
	struct cow_extent ext;
	unsigned int some;
	u64 at = m->done;
	bool any = false;

	*zones = 0;
	/* What becomes current during the merge the snapshot sees as well. */
	if (!READ_ONCE(m->store->nr_current))
		return false;
	end = whole_end(m, end);
	while (next_version(m, &at, end, &ext, &some)) {
		*zones |= some;
		any = true;
	}
	return any;
}

/* Reclaim has it for as long as it takes: it is not waited for when the store is closed. */
static bool lock_dead(struct cow_merge *m)
{
	while (!READ_ONCE(m->stopped)) {
		if (mutex_trylock(&m->store->dead_lock))
			return true;
		schedule_timeout_uninterruptible(RECLAIM_JIFFIES);
	}
	return false;
}

int cow_void_prepare(struct cow_merge *m, u64 end)
{
	struct cow_store *store = m->store;
	unsigned int zones;

	if (!has_versions(m, end, &zones))
		return 0;
	if (!lock_dead(m))
		return -EAGAIN;
	m->forgets = true;
	spin_lock(&store->origin->state_lock);
	zones |= cow_zones_with_dead(store);
	spin_unlock(&store->origin->state_lock);
	if (zones)
		cow_zones_give_up(store);
	return 0;
}

void cow_void_end(struct cow_merge *m)
{
	if (m->forgets)
		mutex_unlock(&m->store->dead_lock);
	m->forgets = false;
}

/* As many as there is room for, by place. */
static void collect(struct cow_merge *m)
{
	u64 at = m->done, end = whole_end(m, m->busy_end);
	unsigned int zones, max = cow_stretch_chunks(m->store);
	struct cow_extent *run = m->runs;
	unsigned int i;

	while (run < m->runs + max && next_version(m, &at, end, run, &zones))
		run += !zones;
	m->nr_runs = run - m->runs;
	sort(m->runs, m->nr_runs, sizeof(m->runs[0]), cow_carry_compare_places, NULL);
	for (i = 0; i < m->nr_runs; i++)
		m->places[i] = (struct cow_places){
			.first = m->runs[i].place, .nr = m->runs[i].nr, .redirected = true,
		};
}

/* The first @nr leave the map. Their slots are gone: without memory it is tried again. */
static void forget(struct cow_merge *m, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		while (cow_map_remove(&m->store->map, &m->runs[i]))
			schedule_timeout_uninterruptible(MEMORY_JIFFIES);
}

static void give_places(struct cow_merge *m, unsigned int nr)
{
	struct cow_store *store = m->store;
	unsigned int i;

	cow_readers_await(store);
	spin_lock(&store->origin->state_lock);
	for (i = 0; i < nr; i++) {
		cow_space_free(&store->space, m->places[i].first, m->places[i].nr);
		cow_store_current_gone(store, m->places[i].nr);
	}
	cow_store_has_room_again(store);
	if (!store->nr_current)
		queue_work(store->origin->wq, &store->event_work);
	spin_unlock(&store->origin->state_lock);
}

/* A table block cannot be read: the slots that it has stay, and so does what they tell of. */
static void say_unread(struct cow_merge *m)
{
	if (!m->unread)
		DMWARN("store %pg: a table block cannot be read: chunk %llu of %pg is copied",
		       m->store->bdev, m->runs[0].chunk, m->store->origin->bdev);
	m->unread = true;
}

/* Returns how many runs, 0 for none that can be forgotten, or a negative errno. */
static int void_some(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	int nr = 0;

	lockdep_assert_held(&store->dead_lock);
	collect(m);
	if (m->nr_runs)
		nr = cow_slots_free(store, m->places, m->nr_runs);
	if (nr > 0) {
		forget(m, nr);
		give_places(m, nr);
	}
	if (nr != -EUCLEAN)
		return nr;
	say_unread(m);
	return 0;
}

int cow_void_stretch(struct cow_merge *m)
{
	/* Writes wait for this, and memory may wait for them. */
	unsigned int noio = memalloc_noio_save();
	int r = 1;

	while (m->forgets && r > 0)
		r = void_some(m);
	memalloc_noio_restore(noio);
	return min(r, 0);
}

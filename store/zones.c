// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: room for the log: zones, and the chunks of records in them
 *
 * A zone is a run of chunks that records of the log are written to, one behind the other:
 *
 *	NONE --named--> OPEN --no room for the next record--> FULL --left--> NONE
 *
 *	start                      next                              end
 *	| R | data | R | more data |   not given yet                  |
 *
 * Between data and the next record there may be a gap (disk/gap.c). It counts as given: nothing is
 * written there as long as the zone is named.
 *
 * Its chunks are set aside from the room all together. While it is named nothing else may be
 * put there, since its records speak of them: a chunk that loses its version stays empty.
 * When it is left, what holds no version is room again: records, what was never given, what
 * was freed meanwhile.
 */
#include <linux/module.h>

#include "origin/origin.h"
#include "store/state.h"
#include "store/store.h"
#include "store/zones.h"

/* Most sectors of a zone, and fewest chunks: with fewer the superblock is written too often. */
#define ZONE_SECTORS		32768U
#define ZONE_LEAST		16U

/* A zone is no larger than this part of the store, and such a part stays free beside it. */
#define ZONE_SHARE		32U
#define FREE_SHARE		8U

/* A run that does not fit ends a zone if less than this part of it is left. */
#define LEFT_SHARE		4U

/* Before this part of it is used a zone that goes on is not left for what it has. */
#define USED_SHARE		4U

/* A gap that is larger than this part of the zone has it left too often. */
#define GAP_SHARE		64U

/* Tables are made ready for so many more zones, and for so many times the chunks in use. */
#define ZONES_AHEAD		2U
#define READY_MOST		8U

/* Table blocks made ready before writes are redirected, besides those of the first zone. */
#define BLOCKS_AHEAD		2048U

/*
 * Segments that are looked at for one zone: the lock is held meanwhile. A store that redirects has
 * large zones far behind its start, and few chunks in use before them.
 */
#define ZONE_SEGMENTS		16U
#define ZONE_SEGMENTS_FAR	128U

/* A copy of a larger chunk takes longer than the seek that a log spares. */
#define LOG_CHUNK_SECTORS	512U

bool cow_log_suits(const struct cow_store *store)
{
	return store->meta && store->chunk_sectors <= LOG_CHUNK_SECTORS;
}

static u32 zone_most(const struct cow_store *store)
{
	return min3((u64)ZONE_SECTORS >> store->chunk_shift, (u64)COWSNAP_ZONE_CHUNKS,
		    store->space.total / ZONE_SHARE);
}

bool cow_zones_wanted(const struct cow_store *store)
{
	const struct cow_space *space = &store->space;
	u64 kept = space->used + space->total / FREE_SHARE + zone_most(store);

	lockdep_assert_held(&store->origin->state_lock);
	return cow_store_logs(store) && cow_log_suits(store) && !store->zones_ending &&
	       !store->closing && kept < space->total && zone_most(store) >= ZONE_LEAST;
}

void cow_zone_pass_on(struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	if (cow_space_is_last(&store->space, store->zone_segment))
		store->zone_segment = 0;
	else
		store->zone_segment++;
}

/* The longest run in the next few segments. Returns its length. */
static u32 find_run(struct cow_store *store, u64 *place)
{
	struct cow_space *space = &store->space;
	u32 segments = store->options.redirect ? ZONE_SEGMENTS_FAR : ZONE_SEGMENTS;
	u32 most = zone_most(store), best = 0, nr, i;
	u64 found, best_segment = 0;

	for (i = 0; i < segments && best < most; i++) {
		nr = cow_space_longest(space, store->zone_segment, most, &found);
		if (nr > best) {
			best = nr;
			best_segment = store->zone_segment;
			*place = found;
		}
		cow_zone_pass_on(store);
	}
	if (best >= ZONE_LEAST)
		store->zone_segment = best_segment;
	return best;
}

/*
 * Zones leave single chunks behind, so those that are ready run out of long runs before they are
 * used. But an opening reads all tables that are ready: not many more than are used. Where writes
 * are redirected the log is all that makes them quick: then as many as it asks for.
 */
static void make_more_ready(struct cow_store *store, u64 end)
{
	const struct cow_space *space = &store->space;
	u64 ready = cow_space_ready(space);

	if (space->blocks < space->max_blocks && !READ_ONCE(store->extend_failed) &&
	    end + ZONES_AHEAD * zone_most(store) > ready &&
	    (store->options.redirect || ready < space->used * READY_MOST))
		queue_work(store->origin->wq, &store->extend_work);
}

bool cow_zone_take(struct cow_store *store, struct cow_zone *zone)
{
	u64 place = 0;
	u32 nr;

	lockdep_assert_held(&store->origin->state_lock);
	nr = find_run(store, &place);
	make_more_ready(store, nr < ZONE_LEAST ? cow_space_ready(&store->space) : place + nr);
	if (nr < ZONE_LEAST)
		return false;
	cow_space_skip_first(&store->space, place);
	if (!cow_space_set_aside(&store->space, &zone->room, place, nr))
		return false;
	zone->state = COW_ZONE_NONE;
	zone->under_way = 0;
	zone->next = 0;
	zone->has_dead = false;
	return true;
}

u64 cow_zones_first_blocks(const struct cow_store *store)
{
	const struct cow_space *space = &store->space;
	struct cowsnap_segment seg;
	u64 index = 0;

	do {
		cowsnap_get_segment(space->geometry, index++, &seg);
	} while (seg.slots < zone_most(store) && seg.end < space->nr_chunks / 2);
	return min_t(u64, seg.first_block + seg.blocks + BLOCKS_AHEAD, space->max_blocks);
}

void cow_zone_open(struct cow_store *store, struct cow_zone *zone, struct cow_zone *fresh)
{
	lockdep_assert_held(&store->origin->state_lock);
	*zone = *fresh;
	list_replace(&fresh->room.node, &zone->room.node);
	zone->state = COW_ZONE_OPEN;
}

void cow_zone_leave(struct cow_store *store, struct cow_zone *zone)
{
	lockdep_assert_held(&store->origin->state_lock);
	cow_space_end_aside(&store->space, &zone->room);
	zone->state = COW_ZONE_NONE;
}

bool cow_zone_has_room(const struct cow_store *store, const struct cow_zone *zone, u32 nr)
{
	lockdep_assert_held(&store->origin->state_lock);
	return zone->state == COW_ZONE_OPEN && nr <= zone->room.nr - zone->next;
}

/* A run that does not fit ends no zone that has room for many others, or is too short for it. */
static bool zone_is_full(const struct cow_zone *zone, u32 nr)
{
	u32 left = zone->room.nr - zone->next;

	return left < 2 || (nr < zone->room.nr && left < zone->room.nr / LEFT_SHARE);
}

u32 cow_zone_gap_most(const struct cow_store *store, const struct cow_zone *zone)
{
	lockdep_assert_held(&store->origin->state_lock);
	return zone->state == COW_ZONE_OPEN ? zone->room.nr / GAP_SHARE : 0;
}

bool cow_zone_begin_record(struct cow_store *store, struct cow_zone *zone, u32 nr, u32 *gap,
			   u64 *chunk)
{
	if (!cow_zone_has_room(store, zone, nr + 1)) {
		if (zone->state == COW_ZONE_OPEN && zone_is_full(zone, nr))
			zone->state = COW_ZONE_FULL;
		return false;
	}
	/* The last records of a zone would have no gap: rather it is left, if not much is. */
	if (zone->next && *gap && *gap <= cow_zone_gap_most(store, zone) &&
	    !cow_zone_has_room(store, zone, *gap + nr + 1) && zone_is_full(zone, nr)) {
		zone->state = COW_ZONE_FULL;
		return false;
	}
	if (!zone->next || !cow_zone_has_room(store, zone, *gap + nr + 1))
		*gap = 0;
	zone->next += *gap;
	*chunk = zone->room.start + zone->next++;
	zone->under_way++;
	return true;
}

u64 cow_zone_give(struct cow_store *store, struct cow_zone *zone, u32 nr)
{
	u64 place = zone->room.start + zone->next;

	lockdep_assert_held(&store->origin->state_lock);
	cow_space_use_aside(&store->space, &zone->room, place, nr);
	zone->next += nr;
	return place;
}

bool cow_zone_end_record(struct cow_store *store, struct cow_zone *zone)
{
	lockdep_assert_held(&store->origin->state_lock);
	return !--zone->under_way && zone->state == COW_ZONE_FULL;
}

/* --------------------------------------------------------------- zones are left */

bool cow_zone_is_due(const struct cow_store *store, struct cow_zone *zone)
{
	lockdep_assert_held(&store->origin->state_lock);
	if (zone->state == COW_ZONE_OPEN &&
	    (!cow_store_logs(store) || store->zones_ending || store->closing))
		zone->state = COW_ZONE_FULL;
	return zone->state == COW_ZONE_FULL && !zone->under_way;
}

unsigned int cow_zones_have(const struct cow_store *store, u64 place, u64 nr)
{
	unsigned int i, zones = 0;

	lockdep_assert_held(&store->origin->state_lock);
	for (i = 0; i < COWSNAP_ZONES; i++) {
		const struct cow_zone *zone = &store->zone[i];

		if (zone->state != COW_ZONE_NONE && place < zone->room.start + zone->room.nr &&
		    place + nr > zone->room.start)
			zones |= BIT(i);
	}
	return zones;
}

unsigned int cow_zones_with_dead(const struct cow_store *store)
{
	unsigned int i, zones = 0;

	lockdep_assert_held(&store->origin->state_lock);
	for (i = 0; i < COWSNAP_ZONES; i++)
		if (store->zone[i].state != COW_ZONE_NONE && store->zone[i].has_dead)
			zones |= BIT(i);
	return zones;
}

bool cow_zones_finish(struct cow_store *store, unsigned int zones, bool any,
		      unsigned long delay)
{
	bool goes_on = false;
	unsigned int i;

	lockdep_assert_held(&store->origin->state_lock);
	for (i = 0; i < COWSNAP_ZONES; i++) {
		struct cow_zone *zone = &store->zone[i];

		if (!(zones & BIT(i)) || zone->state != COW_ZONE_OPEN)
			continue;
		if (!any && zone->next < zone->room.nr / USED_SHARE) {
			goes_on = true;
			continue;
		}
		zone->state = COW_ZONE_FULL;
		/* Else the end of its last record does so. */
		if (!zone->under_way && !store->closing)
			mod_delayed_work(store->origin->wq, &store->zone_work, delay);
	}
	return !goes_on;
}

static unsigned int nr_in_use(const struct cow_store *store)
{
	unsigned int i, nr = 0;

	for (i = 0; i < COWSNAP_ZONES; i++)
		nr += store->zone[i].state != COW_ZONE_NONE;
	return nr;
}

void cow_zones_outgrow(struct cow_store *store)
{
	unsigned int i, zones = 0;

	lockdep_assert_held(&store->origin->state_lock);
	for (i = 0; i < COWSNAP_ZONES; i++)
		if (store->zone[i].room.nr < zone_most(store))
			zones |= BIT(i);
	cow_zones_finish(store, zones, true, 0);
}

bool cow_zones_end(struct cow_store *store)
{
	lockdep_assert_held(&store->origin->state_lock);
	if (store->zones_stuck || !nr_in_use(store))
		return false;
	WRITE_ONCE(store->zones_ending, true);
	/* Who leaves zones has no time any more: cow_meta_breathe(). */
	wake_up(&store->idle);
	mod_delayed_work(store->origin->wq, &store->zone_work, 0);
	return true;
}

void cow_zones_turned(struct cow_store *store, int r)
{
	lockdep_assert_held(&store->origin->state_lock);
	store->zones_stuck = r;
	/* The end of the last record under way has it tried again. */
	if (!store->zones_ending || (!r && nr_in_use(store)))
		return;
	WRITE_ONCE(store->zones_ending, false);
	/* See cow_zones_give_up(). */
	wake_up(&store->idle);
	if (store->blocked == COW_STORE_PREPARING)
		cow_store_unblock(store);
}

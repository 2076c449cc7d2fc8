/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: room for the log: zones, and the chunks of records in them */
#ifndef DM_COWSNAP_STORE_ZONES_H
#define DM_COWSNAP_STORE_ZONES_H

#include <linux/types.h>

#include "store/space.h"

struct cow_store;

/* In this order, and then from the start. */
enum cow_zone_state {
	COW_ZONE_NONE,			/* no superblock names it */
	COW_ZONE_OPEN,			/* records are begun in it */
	COW_ZONE_FULL,			/* none are: it is to be left */
};

/* Of a store's two. Under origin->state_lock. */
struct cow_zone {
	enum cow_zone_state state;
	unsigned int under_way;		/* records that have been begun, and have not ended */
	u32 next;			/* the first chunk that no record has been given */
	bool has_dead;			/* CURRENT versions that are on the disk until it is left */
	struct cow_aside room;
};

/* May this store have a log: are its chunks small enough? Any context. */
bool cow_log_suits(const struct cow_store *store);

/* Does it want zones now: is its log on, and does it not fill up? state_lock held. */
bool cow_zones_wanted(const struct cow_store *store);

/*
 * Chunks for a zone, set aside. Nothing is to be written to them before the zone is named.
 * False: there are none just now. origin->state_lock held.
 */
bool cow_zone_take(struct cow_store *store, struct cow_zone *zone);

/*
 * Table blocks up to the first segment that has room for a zone of full size, in the first half of
 * the store, and those of more zones behind it. For a store with tables.
 */
u64 cow_zones_first_blocks(const struct cow_store *store);

/* The superblock names @fresh, in the place of @zone, which has been left. state_lock held. */
void cow_zone_open(struct cow_store *store, struct cow_zone *zone, struct cow_zone *fresh);

/* Look for the next zone elsewhere: the tables there cannot be used. state_lock held. */
void cow_zone_pass_on(struct cow_store *store);

/*
 * The zones with these chunks, by a bit for each: their records have them, whatever tables say.
 * origin->state_lock held.
 */
unsigned int cow_zones_have(const struct cow_store *store, u64 place, u64 nr);

/* Those with CURRENT versions that are dead: they would count again. state_lock held. */
unsigned int cow_zones_with_dead(const struct cow_store *store);

/*
 * The zones with these bits are to be left after @delay: those with some use of their room, unless
 * @any. False: one of them goes on. origin->state_lock held.
 */
bool cow_zones_finish(struct cow_store *store, unsigned int zones, bool any,
		      unsigned long delay);

/* Larger zones can be had from now on: those that are smaller are to be left. state_lock held. */
void cow_zones_outgrow(struct cow_store *store);

/*
 * Is @zone to be left now? Then no record is under way in it, and none is begun. One that is open
 * is closed if the store wants it no more. origin->state_lock held.
 */
bool cow_zone_is_due(const struct cow_store *store, struct cow_zone *zone);

/*
 * It has been tried to leave zones and to name others; @r says how that went. What waits for
 * room of theirs goes on, unless records are still under way. origin->state_lock held.
 */
void cow_zones_turned(struct cow_store *store, int r);

/* The zone is left, or was never named: what holds no version is room. state_lock held. */
void cow_zone_leave(struct cow_store *store, struct cow_zone *zone);

/* Most chunks that it is worth to leave free in front of a record. origin->state_lock held. */
u32 cow_zone_gap_most(const struct cow_store *store, const struct cow_zone *zone);

/*
 * A record for at least @nr chunks begins: returns its own chunk in *@chunk. *@gap chunks in front
 * of it are left free, or none if it is the first one, or there is no room for them: returns that
 * in *@gap. False: the zone has no room for it, or is not open. With little room left it is full
 * from now on. origin->state_lock held.
 */
bool cow_zone_begin_record(struct cow_store *store, struct cow_zone *zone, u32 nr, u32 *gap,
			   u64 *chunk);

/* May the last record of the zone have @nr more? origin->state_lock held. */
bool cow_zone_has_room(const struct cow_store *store, const struct cow_zone *zone, u32 nr);

/* The next @nr chunks are the record's. Returns the first. origin->state_lock held. */
u64 cow_zone_give(struct cow_store *store, struct cow_zone *zone, u32 nr);

/* A record has ended. True: it was the last of a full zone. origin->state_lock held. */
bool cow_zone_end_record(struct cow_store *store, struct cow_zone *zone);

/*
 * The store is full: its zones are to be left, since they keep room back. False: there is
 * nothing to be had from them. origin->state_lock held.
 */
bool cow_zones_end(struct cow_store *store);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: room in a store, and what happens when there is none */
#ifndef DM_COWSNAP_STORE_ROOM_H
#define DM_COWSNAP_STORE_ROOM_H

#include <linux/types.h>

struct cow_store;

/* Use the room of a device that has grown. May sleep. */
void cow_store_resize(struct cow_store *store);

/*
 * Room for up to @nr chunks in a row at *@place. Returns how many, or 0.
 * origin->state_lock held.
 */
u32 cow_store_room(struct cow_store *store, u32 nr, u64 *place);

/*
 * cow_store_room() found nothing: start what can make room. -EBUSY: the store is blocked, and
 * bios have to wait for it. -ENOMEM: memory is short. -ENOSPC: the store is full; if @must,
 * its snapshots are gone, else only a snapshot's own write fails. origin->state_lock held.
 */
int cow_store_no_room(struct cow_store *store, bool must);

/*
 * The snapshots are lost for want of room. @why says so if chunks are wanted; if tables are, that
 * is said. origin->state_lock held.
 */
void cow_store_lose_for_room(struct cow_store *store, const char *why);

/*
 * The store stays full: its snapshots are lost, and what waited for it decides again. Nothing
 * happens if it is not full, or if room is about to be given back. origin->state_lock held.
 */
void cow_store_overflow(struct cow_store *store, const char *why);

/* The origin is about to be suspended, so on_full=wait ends. origin->state_lock held. */
void cow_store_stop_waiting(struct cow_store *store);

/* Versions may have lost their last epoch: ask for a run of reclaim. Any context. */
void cow_store_reclaim(struct cow_store *store);

/* So many chunks of CURRENT versions are no more. state_lock held. */
void cow_store_current_gone(struct cow_store *store, u64 nr);

/* Is what was redirected to come home at once, whoever uses the origin? state_lock held. */
bool cow_store_settles_in_haste(const struct cow_store *store);

/* Something of what was redirected may come home: have it looked at. state_lock held. */
void cow_store_settle(struct cow_store *store);

/*
 * Does a snapshot's own write wait for the store? If not, and the store is blocked, it is
 * full. origin->state_lock held.
 */
bool cow_store_makes_wait(const struct cow_store *store);

/* Room was taken or given back: has low_water been crossed? origin->state_lock held. */
void cow_store_watch_low_water(struct cow_store *store);

/* Room was given back, which bios may wait for. origin->state_lock held. */
void cow_store_has_room_again(struct cow_store *store);

/* Is a run of reclaim to come? origin->state_lock held. */
bool cow_store_reclaim_is_due(const struct cow_store *store);

#endif

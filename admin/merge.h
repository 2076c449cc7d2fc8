/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: a snapshot back into its origin */
#ifndef DM_COWSNAP_ADMIN_MERGE_H
#define DM_COWSNAP_ADMIN_MERGE_H

#include <linux/types.h>

struct cow_merge;
struct cow_origin;
struct cow_snap;
struct cow_store;

/*
 * Begin merging @snap, or try again if that failed. Under dm-snapshot's names (@claimed) none
 * begins in a store that redirects. May sleep, origin->admin_lock held. 0: under way, or over; else
 * a negative errno, after a line in the log, with nothing changed.
 */
int cow_merge_activate(struct cow_snap *snap, bool claimed);

/*
 * A store is opened that was closed while @snap was being merged: allocate all that
 * cow_merge_start() needs. ERR_PTR on failure; the log gets a line, except for -ENOMEM. May
 * sleep, origin->admin_lock held.
 */
struct cow_merge *cow_merge_prepare(struct cow_snap *snap);

/* Go on from store->merge_chunk. Cannot fail. The origin is frozen. */
void cow_merge_start(struct cow_merge *merge);

/* Free it instead. @merge may be NULL or an ERR_PTR. May sleep. */
void cow_merge_discard(struct cow_merge *merge);

/*
 * Is a snapshot, of whatever store, being merged into @origin? Then the log gets a line.
 * origin->admin_lock held.
 */
bool cow_merge_stands_in_the_way(const struct cow_origin *origin);

/* The throttle has changed: the merge looks at once how long to rest. Any context. */
void cow_merge_hurry(struct cow_origin *origin);

/*
 * The store is closed. Stop for now, and wait until no bio uses the merge or is under way
 * to the store. May sleep, without a limit of time.
 */
void cow_merge_stop(struct cow_store *store);

/* Chunks still to be merged. */
u64 cow_merge_left(const struct cow_snap *snap);

/* Did it fail? */
bool cow_merge_failed(const struct cow_snap *snap);

#endif

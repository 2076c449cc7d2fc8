/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: what a write to the origin has copied before it may go home */
#ifndef DM_COWSNAP_IO_REQUEST_H
#define DM_COWSNAP_IO_REQUEST_H

#include <linux/types.h>

struct bio;
struct cow_bio;
struct cow_job;
struct cow_origin;

/* What becomes of a write. */
enum cow_preserve {
	COW_GO_HOME,		/* nothing was missing or on its way, seen under the lock */
	COW_PARKED,		/* on a pending, or on a store that is blocked */
	COW_NO_MEMORY,		/* to be deferred */
	COW_NO_ROOM,		/* a merge's own write, which must not cost other snapshots */
	COW_REDIRECTED,		/* meanwhile part of it is in the store: it decides again */
};

/*
 * @bio needs no copy, but its stream comes close to the end of its window: have the next
 * window copied. Context: process; never sleeps.
 */
void cow_copy_ahead(struct cow_origin *origin, struct bio *bio);

/*
 * The slow path's decision, under origin->state_lock: start the copies that are missing and
 * park @cb, or let it go home. @needs_copy: some chunk is written for the first time. *@here, if
 * not NULL, is for the caller to read, without the gate: cow_engine_read_here(); @cb is parked.
 * Context: process; never sleeps.
 */
enum cow_preserve cow_origin_preserve(struct cow_origin *origin, struct cow_bio *cb,
				      bool needs_copy, struct cow_job **here);

#endif

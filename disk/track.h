/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the blocks of a tracker on disk */
#ifndef DM_COWSNAP_DISK_TRACK_H
#define DM_COWSNAP_DISK_TRACK_H

#include <linux/blkdev.h>
#include <linux/types.h>

#include "dm-cowsnap.h"

struct cow_store;
struct cow_tracker;

/*
 * Write the blocks of @page as memory has them; a region has its mark if it is marked, or in
 * @also (NULL: none). @flags: REQ_FUA if they have to be durable. Where the power is cut each
 * block is the old one or the new. May sleep; store->track_lock held.
 */
int cow_tracker_write(struct cow_tracker *tracker, u64 page, const unsigned long *also,
		      blk_opf_t flags);

/*
 * Read all blocks: bits and marks; all bits of a marked region are set. An error, with a line
 * in the log, if one is missing or wrong. May sleep; track_lock held.
 */
int cow_tracker_read(struct cow_tracker *tracker);

/*
 * Find room for all pieces and announce them by their slots, durably. On failure all of it has
 * been given back. May sleep; admin_lock held.
 */
int cow_tracker_take_room(struct cow_tracker *tracker);

/* Give it back. The record does not speak of the tracker any more. */
void cow_tracker_free_room(struct cow_tracker *tracker);

/* While loading: piece @index of series @series is at @place. False: nobody's. */
bool cow_track_found(struct cow_store *store, u32 series, u64 index, u64 place);

#endif

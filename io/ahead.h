/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: copying ahead of sequential writers */
#ifndef DM_COWSNAP_IO_AHEAD_H
#define DM_COWSNAP_IO_AHEAD_H

#include <linux/types.h>

struct block_device;
struct cow_ahead;
struct cow_origin;

/* Sectors. */
struct cow_ahead_stats {
	u64 copied;			/* ahead of writers */
	u64 wasted;			/* of that, never reached by the stream */
};

/*
 * The origin is written from @start to @end. Returns the sector up to which chunks that are
 * not preserved are to be copied: @end, or one behind it. origin->state_lock held.
 */
sector_t cow_ahead_note(struct cow_origin *origin, sector_t start, sector_t end);

/* The same for a write that needs no copy: is it time for cow_ahead_note()? Any context. */
bool cow_ahead_due(struct cow_origin *origin, sector_t start, sector_t end);

/* The value of copy_ahead for a new store of the origin @bdev, in KiB. */
unsigned int cow_ahead_default(struct block_device *bdev, u32 chunk_sectors);

/* Stores, or their copy_ahead, have changed. origin->state_lock held. */
void cow_ahead_limit(struct cow_origin *origin);

/* @all sectors are copied, @ahead of them ahead of a writer. origin->state_lock held. */
void cow_ahead_count(struct cow_origin *o, sector_t all, sector_t ahead);

/* Any context. */
void cow_ahead_read_stats(const struct cow_ahead *a, struct cow_ahead_stats *out);

/* origin->state_lock held. */
void cow_ahead_reset_stats(struct cow_origin *o);

/* Freed with kfree(). NULL: no memory. May sleep. */
struct cow_ahead *cow_ahead_alloc(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: copying around writes to regions that prove hot */
#ifndef DM_COWSNAP_IO_AROUND_H
#define DM_COWSNAP_IO_AROUND_H

#include <linux/blkdev.h>

struct cow_around;
struct cow_origin;

/* Sectors. */
struct cow_around_stats {
	u64 copied;			/* around writes */
	u64 unused;			/* copied so and not written since */
};

/* The value of copy_around for a new store of this origin, in KiB. */
unsigned int cow_around_default(struct block_device *origin);

/*
 * A write from *@start to *@end needs a copy. If it is the second one in its region, set
 * them to the bounds of the region and return true. origin->state_lock held.
 */
bool cow_around_note(struct cow_origin *origin, sector_t *start, sector_t *end);

/* Preserved chunks are written for the first time. Process context. */
void cow_around_used(struct cow_origin *origin, sector_t start, sector_t end);

/* Stores, or their copy_around, have changed. origin->state_lock held. */
void cow_around_limit(struct cow_origin *origin);

/* @sectors are copied around a write. origin->state_lock held. */
void cow_around_count(struct cow_origin *o, sector_t sectors);

/* Any context. */
void cow_around_read_stats(const struct cow_around *a, struct cow_around_stats *out);

/* origin->state_lock held. */
void cow_around_reset_stats(struct cow_origin *o);

/* Freed with kfree(). NULL: no memory. May sleep. */
struct cow_around *cow_around_alloc(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: from the copy engine's pages into a store and its map */
#ifndef DM_COWSNAP_COPY_COPY_H
#define DM_COWSNAP_COPY_COPY_H

#include <linux/blkdev.h>

struct cow_pending;

/*
 * Start the copy that @leader and all on its list of sharers wait for: of @nr_sectors,
 * and zeroes after them. Any context.
 */
void cow_pending_copy(struct cow_pending *leader, struct block_device *bdev,
		      sector_t sector, sector_t nr_sectors, sector_t pad_sectors);

/* The same from a target's map. True: the caller reads the job, see cow_engine_submit_here(). */
bool cow_pending_copy_here(struct cow_pending *leader, struct block_device *bdev,
			   sector_t sector, sector_t nr_sectors, sector_t pad_sectors);

/*
 * The data of @pending, the only one of its job, is that of its carrier (COW_BY_DATA): so many
 * sectors, and zeroes behind them. Any context.
 */
void cow_pending_take_data(struct cow_pending *pending, sector_t nr_sectors,
			   sector_t pad_sectors);

/* Copy @pending once more, in a job of its own. Engine's worker. */
void cow_pending_copy_again(struct cow_pending *pending);

#endif

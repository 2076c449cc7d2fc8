/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: metadata is read and written, and waited for */
#ifndef DM_COWSNAP_DISK_IO_H
#define DM_COWSNAP_DISK_IO_H

#include <linux/blkdev.h>
#include <linux/completion.h>

#include "dm-cowsnap-compat.h"

struct cow_origin;

/*
 * Read or write @bytes of kmalloc or vmalloc memory, and wait. Returns 0 or a negative
 * errno of the device: it never fails for want of memory, and needs none. May sleep.
 */
int cow_meta_io(struct block_device *bdev, blk_opf_t opf, sector_t sector, void *buffer,
		size_t bytes);

/*
 * The same of a device of @origin or one of its stores: a flush that fails is counted
 * (origin/flush.h).
 */
int cow_meta_io_of(struct cow_origin *origin, struct block_device *bdev, blk_opf_t opf,
		   sector_t sector, void *buffer, size_t bytes);

/* Writes that go on side by side, until their end is waited for. On the stack. */
struct cow_meta_batch {
	struct cow_origin *origin;
	struct block_device *bdev;
	blk_opf_t opf;
	atomic_t left;			/* that have not ended, and one until that is waited for */
	int error;			/* of one of them, or 0; READ_ONCE */
	struct completion done;
};

/* Begin a batch for a device of @origin or one of its stores. Any context. */
void cow_batch_begin(struct cow_meta_batch *batch, struct cow_origin *origin,
		     struct block_device *bdev, blk_opf_t opf);

/*
 * Write @bytes of kmalloc or vmalloc memory that stays as it is until the end of the batch. Without
 * memory for a bio the write is waited for. May sleep.
 */
void cow_batch_write(struct cow_meta_batch *batch, sector_t sector, void *buffer, size_t bytes);

/* Wait for all of it. 0, or the negative errno of a write that failed. May sleep. */
int cow_batch_end(struct cow_meta_batch *batch);

/*
 * Append to @bio as much of @bytes of kmalloc or vmalloc memory as fits. Returns how many bytes.
 * Any context.
 */
size_t cow_bio_add_buffer(struct bio *bio, void *buffer, size_t bytes);

#endif

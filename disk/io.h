/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: metadata is read and written, and waited for */
#ifndef DM_COWSNAP_DISK_IO_H
#define DM_COWSNAP_DISK_IO_H

#include <linux/blkdev.h>

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

/*
 * Append to @bio as much of @bytes of kmalloc or vmalloc memory as fits. Returns how many bytes.
 * Any context.
 */
size_t cow_bio_add_buffer(struct bio *bio, void *buffer, size_t bytes);

#endif

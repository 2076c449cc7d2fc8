/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: flushes that fail
 *
 * A device tells of what its cache has lost once: whoever flushes it next hears of it. So each
 * device has a counter of flushes that have failed. Who relies on a write notes the counter before
 * it, and looks again behind its own flush: if the counter has moved, it is as if that flush had
 * failed. Who has users tells them when their next flush ends.
 */
#ifndef DM_COWSNAP_ORIGIN_FLUSH_H
#define DM_COWSNAP_ORIGIN_FLUSH_H

#include <linux/atomic.h>
#include <linux/blkdev.h>

#include "dm-cowsnap-compat.h"

struct completion;
struct cow_origin;

/* Of the origin's device, or of a store's. */
struct cow_losses {
	atomic_t failed;		/* flushes, anybody's */
	atomic_t untold;		/* who of its users has not been told of one */
	unsigned long told;		/* jiffies, when one was, or when one has failed */
};

/*
 * How many flushes have failed. If there are more behind a flush that succeeded than there were
 * before what it is for was written, that may be lost. Any context.
 */
static inline unsigned int cow_losses(const struct cow_losses *losses)
{
	return atomic_read(&losses->failed);
}

/*
 * A bio for @disk with these flags has failed with @status: if it was to flush, that counts for the
 * origin and its stores, as far as they are on that disk. So does a write with FUA, where the block
 * layer may flush behind it. In its end_io, before its owner hears of it: who flushes after that is
 * told. Any context.
 */
void cow_flush_failed(struct cow_origin *origin, struct gendisk *disk, blk_opf_t opf,
		      blk_status_t status);

/*
 * Submit @bio, for @bdev, and wait, or flush @bdev, the origin's device or one of its stores'.
 * Returns 0 or a negative errno. A flush that fails has been counted. May sleep.
 */
int cow_flush_io(struct cow_origin *origin, struct block_device *bdev, struct bio *bio);
int cow_flush(struct cow_origin *origin, struct block_device *bdev);

/* Wait for I/O: while a device hangs, whoever waits for it is no hung task. May sleep. */
void cow_wait_for_io(struct completion *done);

/*
 * A user's empty flush begins. If an earlier one has told of a loss, and no write with FUA came
 * behind it in time, it was no part of one, and its user has heard. In time is hold_timeout and two
 * and a half minutes. Any context.
 */
void cow_flush_begins(struct cow_losses *losses);

/* A user's bio with these flags has ended: has it to tell of an earlier flush? Any context. */
bool cow_flush_tells_user(struct cow_losses *losses, blk_opf_t opf);

/* The same of the module's flush of an origin. Users are still to be told. Any context. */
bool cow_flush_tells(struct cow_origin *origin);

#endif

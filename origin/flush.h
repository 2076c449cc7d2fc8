/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: flushes of an origin that fail
 *
 * A device tells of what it has lost once: whoever flushes next hears of it. Where that is the
 * module, what was lost may be data of users. They hear of it when their next flush ends, and the
 * module when it makes sure that what a snapshot is made of is durable.
 */
#ifndef DM_COWSNAP_ORIGIN_FLUSH_H
#define DM_COWSNAP_ORIGIN_FLUSH_H

#include <linux/blkdev.h>

#include "dm-cowsnap-compat.h"

struct cow_origin;

/*
 * Flush @bdev, the origin's device or one of its stores', and wait. Returns 0 or a negative errno,
 * and then has noted what cow_flush_lost() notes. May sleep.
 */
int cow_flush(struct cow_origin *origin, struct block_device *bdev);

/* A flush of @bdev has failed that is not a user's. Any context. */
void cow_flush_lost(struct cow_origin *origin, struct block_device *bdev);

/* A flush of a user has ended with @status: is it the one to tell of that? Any context. */
bool cow_flush_tells_user(struct cow_origin *origin, blk_status_t status);

/*
 * How many flushes have failed, anybody's. If there are more when a flush has succeeded than there
 * were before what it is for was written, another one was told of its loss. Any context.
 */
unsigned int cow_flushes_failed(const struct cow_origin *origin);

/* The same of the module's. Users are still to be told. Any context. */
bool cow_flush_tells(struct cow_origin *origin);

#endif

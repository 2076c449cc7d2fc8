// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: flushes of an origin that fail
 */
#include <linux/completion.h>
#include <linux/module.h>

#include "dm-cowsnap.h"
#include "origin/flush.h"
#include "origin/origin.h"

/* Who has not been told of what was lost. */
#define LOST_FOR_USERS	1
#define LOST_FOR_US	2

/* Flushes of users reach the origin's device, and its store if it is sealed. */
void cow_flush_lost(struct cow_origin *o, struct block_device *bdev)
{
	atomic_inc(&o->failed_flushes);
	if (bdev == o->bdev || (READ_ONCE(o->sealed_end) && bdev == o->sealed_bdev))
		atomic_set(&o->flush_lost, LOST_FOR_USERS | LOST_FOR_US);
}

struct flush {
	struct bio bio;
	struct cow_origin *origin;
	struct block_device *bdev;
	struct completion done;
};

/* It is noted before this flush has ended: one of a user that ends later tells of it. */
static void flush_endio(struct bio *bio)
{
	struct flush *flush = container_of(bio, struct flush, bio);

	if (bio->bi_status)
		cow_flush_lost(flush->origin, flush->bdev);
	complete(&flush->done);
}

int cow_flush(struct cow_origin *o, struct block_device *bdev)
{
	struct flush flush = { .origin = o, .bdev = bdev };
	int r;

	init_completion(&flush.done);
	bio_init(&flush.bio, bdev, NULL, 0, REQ_OP_WRITE | REQ_PREFLUSH);
	flush.bio.bi_end_io = flush_endio;
	submit_bio(&flush.bio);
	wait_for_completion_io(&flush.done);
	r = blk_status_to_errno(flush.bio.bi_status);
	bio_uninit(&flush.bio);
	return r;
}

unsigned int cow_flushes_failed(const struct cow_origin *o)
{
	return atomic_read(&o->failed_flushes);
}

bool cow_flush_tells_user(struct cow_origin *o, blk_status_t status)
{
	if (status)
		atomic_inc(&o->failed_flushes);
	return atomic_read(&o->flush_lost) &&
	       (atomic_xchg(&o->flush_lost, 0) & LOST_FOR_USERS);
}

bool cow_flush_tells(struct cow_origin *o)
{
	return atomic_fetch_andnot(LOST_FOR_US, &o->flush_lost) & LOST_FOR_US;
}

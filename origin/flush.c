// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: flushes that fail
 */
#include <linux/completion.h>
#include <linux/module.h>

#include "dm-cowsnap.h"
#include "origin/flush.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "store/store.h"

/*
 * Who has not been told of what was lost. Device mapper does not tell a user of a flush in front of
 * his data that fails: then the data, which has FUA as a rule, has to.
 */
#define LOST_FOR_FLUSHES	1
#define LOST_FOR_FUA		2
#define LOST_FOR_US		4
#define LOST_FOR_ALL		(LOST_FOR_FLUSHES | LOST_FOR_FUA | LOST_FOR_US)

/* While a device hangs, whoever waits for it is no hung task. */
#define WAIT_JIFFIES	(10 * HZ)

/* A device gives up on its data by then: SCSI tries five times, half a minute each. */
#define DATA_JIFFIES	(150 * HZ)

/* By then the data has ended that stood behind a flush. The gate may have held it back before. */
static unsigned long told_jiffies(void)
{
	return cow_hold_timeout() + DATA_JIFFIES;
}

/*
 * Device mapper (since 6.11) and md claim FUA whatever is below them. There the block layer may
 * flush in place of it.
 */
static bool has_own_fua(struct block_device *bdev)
{
	return bdev_fua(bdev) && queue_is_mq(bdev_get_queue(bdev));
}

/* Does a bio with these flags, if it is one for @bdev, have the cache of it flushed? */
static bool has_flushed(struct block_device *bdev, const struct gendisk *disk, blk_opf_t opf)
{
	if (bdev->bd_disk != disk || !bdev_write_cache(bdev))
		return false;
	/* The block layer flushes in place of FUA. */
	return opf & REQ_PREFLUSH || (opf & REQ_FUA && !has_own_fua(bdev));
}

/* Flushes of the origin's users reach this store as well: it has writes of theirs. */
static bool has_origin(const struct cow_store *store)
{
	const struct cow_origin *o = store->origin;
	/* Pairs with smp_store_release() in tell_origin(). */
	bool is_sealed = smp_load_acquire(&o->sealed_end);

	return READ_ONCE(store->merging) || (is_sealed && store->bdev == o->sealed_bdev);
}

/*
 * Who is told of it at this moment may have looked at the bits before they are set, and not note
 * when that was.
 */
static void nobody_knows(struct cow_losses *losses)
{
	WRITE_ONCE(losses->told, jiffies);
	/* Pairs with the acquire in cow_flush_begins(). */
	atomic_set_release(&losses->untold, LOST_FOR_ALL);
}

static void lose(struct cow_losses *losses)
{
	atomic_inc(&losses->failed);
	nobody_knows(losses);
}

/*
 * Is it the bio's own data that the device did not take, so that nothing was flushed? A bad sector
 * cannot be told from a flush behind the data that failed: that ends with the same status.
 */
static bool is_of_data(blk_opf_t opf, blk_status_t status)
{
	return !(opf & REQ_PREFLUSH) &&
	       (status == BLK_STS_NOTSUPP || status == BLK_STS_PROTECTION);
}

void cow_flush_failed(struct cow_origin *o, struct gendisk *disk, blk_opf_t opf,
		      blk_status_t status)
{
	struct cow_store *store;

	if (is_of_data(opf, status))
		return;
	if (has_flushed(o->bdev, disk, opf))
		lose(&o->losses);
	rcu_read_lock();
	list_for_each_entry_rcu(store, &o->flush_stores, flush_node) {
		if (!has_flushed(store->bdev, disk, opf))
			continue;
		lose(&store->losses);
		if (has_origin(store))
			nobody_knows(&o->losses);
	}
	rcu_read_unlock();
}

struct flush {
	struct cow_origin *origin;
	struct gendisk *disk;
	blk_opf_t opf;
	struct completion done;
};

static void flush_endio(struct bio *bio)
{
	struct flush *flush = bio->bi_private;

	if (bio->bi_status)
		cow_flush_failed(flush->origin, flush->disk, flush->opf, bio->bi_status);
	complete(&flush->done);
}

void cow_wait_for_io(struct completion *done)
{
	while (!wait_for_completion_io_timeout(done, WAIT_JIFFIES))
		;
}

int cow_flush_io(struct cow_origin *o, struct block_device *bdev, struct bio *bio)
{
	struct flush flush = { .origin = o, .disk = bdev->bd_disk, .opf = bio->bi_opf };

	init_completion(&flush.done);
	bio->bi_private = &flush;
	bio->bi_end_io = flush_endio;
	submit_bio(bio);
	cow_wait_for_io(&flush.done);
	return blk_status_to_errno(bio->bi_status);
}

int cow_flush(struct cow_origin *o, struct block_device *bdev)
{
	struct bio bio;
	int r;

	bio_init(&bio, bdev, NULL, 0, REQ_OP_WRITE | REQ_PREFLUSH);
	r = cow_flush_io(o, bdev, &bio);
	bio_uninit(&bio);
	return r;
}

void cow_flush_begins(struct cow_losses *losses)
{
	/* Pairs with the release in nobody_knows(). */
	if (unlikely(atomic_read_acquire(&losses->untold) == LOST_FOR_FUA) &&
	    time_after(jiffies, READ_ONCE(losses->told) + told_jiffies()))
		atomic_cmpxchg(&losses->untold, LOST_FOR_FUA, 0);
}

bool cow_flush_tells_user(struct cow_losses *losses, blk_opf_t opf)
{
	int told = opf & REQ_FUA ? LOST_FOR_ALL : LOST_FOR_FLUSHES | LOST_FOR_US;
	int asks = opf & REQ_FUA ? LOST_FOR_FUA : LOST_FOR_FLUSHES;

	int untold = atomic_read(&losses->untold);

	if (likely(!untold))
		return false;
	/* Before the bit goes: cow_flush_begins() asks how long ago that was. */
	if (untold & asks)
		WRITE_ONCE(losses->told, jiffies);
	return atomic_fetch_andnot(told, &losses->untold) & asks;
}

bool cow_flush_tells(struct cow_origin *o)
{
	return atomic_fetch_andnot(LOST_FOR_US, &o->losses.untold) & LOST_FOR_US;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: checksums of what snapshots read
 *
 * A copied chunk has a checksum in its slot. Whole chunks are read into the reader's own
 * pages and compared afterwards, in a worker, since the slot may have to be read as well.
 * These pages need not be the reader's alone: a page may be in a request twice, and others
 * may write to it meanwhile. So a mismatch there proves nothing: the chunk is read again
 * into pages of the copy engine, and that result counts.
 *
 * A part of a chunk is read through the copy engine's pages, the whole chunk at once. If
 * that would be much more than was asked for, the part is read without being verified, and
 * counted. A mismatch becomes an error, never wrong data.
 */
#include <linux/crc32c.h>
#include <linux/mempool.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "disk/blocks.h"
#include "disk/slots.h"
#include "disk/verify.h"
#include "origin/bio.h"
#include "store/store.h"

/* Parts of chunks larger than this are not verified. */
#define VERIFY_MAX_SECTORS	128U

/* One would do: the next comes when that is done. */
#define CHECK_RESERVE		4

/* A chunk that is read into pages of the engine, for all of a bio. */
struct cow_check {
	struct cow_job job;
	struct cow_bio *cb;
	struct cow_store *store;
	struct cow_version version;
	unsigned int offset_sectors;
	blk_status_t status;
};

static struct kmem_cache *check_cache;

static void report_bad(struct cow_store *store, const struct cow_version *v)
{
	atomic64_inc(&store->bad_checksums);
	DMERR_LIMIT("store %pg: chunk %llu, for chunk %llu of the origin: wrong checksum",
		    store->bdev, v->place, v->chunk);
}

/*
 * A version that was taken over meanwhile is private now, in the same place, and has no
 * checksum any more.
 */
static bool slot_is_private(const struct cowsnap_slot *slot, const struct cow_version *v)
{
	u8 kind = cowsnap_slot_kind(slot);

	return (kind == COWSNAP_SLOT_PRIVATE || kind == COWSNAP_SLOT_PRIVATE_ZERO) &&
	       cowsnap_slot_chunk(slot) == v->chunk;
}

static bool slot_is_copied(const struct cowsnap_slot *slot, const struct cow_version *v)
{
	return cowsnap_slot_kind(slot) == COWSNAP_SLOT_COPIED &&
	       cowsnap_slot_chunk(slot) == v->chunk && cowsnap_slot_epoch(slot) == v->epoch;
}

int cow_verify_crc(struct cow_store *store, const struct cow_version *v,
		   struct cow_slot_window *window, u32 crc)
{
	struct cowsnap_slot slot;
	int r;

	if (window && cow_slot_window_read(store->meta, v->place, window, &slot) &&
	    slot_is_copied(&slot, v) && cowsnap_slot_crc(&slot) == crc)
		return 0;
	r = cow_meta_read_slot(store->meta, v->place, &slot);
	if (r) {
		DMERR_LIMIT("store %pg: the checksum of chunk %llu cannot be read (%d)",
			    store->bdev, v->place, r);
		return r;
	}
	if (slot_is_private(&slot, v))
		return 0;
	if (slot_is_copied(&slot, v))
		return cowsnap_slot_crc(&slot) == crc ? 0 : -EILSEQ;
	atomic64_inc(&store->bad_checksums);
	DMERR_LIMIT("store %pg: slot %llu is of chunk %llu, epoch %u, not of %llu, epoch %u",
		    store->bdev, v->place, cowsnap_slot_chunk(&slot), cowsnap_slot_epoch(&slot),
		    v->chunk, v->epoch);
	return -EUCLEAN;
}

static u32 place_seed(struct cow_store *store, u64 place)
{
	return cow_meta_seed(store->meta, cow_chunk_to_sector(store, place));
}

blk_status_t cow_verify_job(struct cow_store *store, struct cow_job *job,
			    const struct cow_version *v)
{
	u32 crc = cow_job_crc(job, 0, store->chunk_sectors, place_seed(store, v->place));
	int r = cow_verify_crc(store, v, NULL, crc);

	if (r == -EILSEQ)
		report_bad(store, v);
	return r ? BLK_STS_IOERR : BLK_STS_OK;
}

/* ------------------------------------------------ through the copy engine's pages */

static void check_ready(struct cow_job *job)
{
	struct cow_check *c = container_of(job, struct cow_check, job);

	c->status = job->read_status;
	if (!c->status)
		c->status = cow_verify_job(c->store, job, &c->version);
	if (!c->status)
		cow_job_copy_to_bio(job, c->offset_sectors, c->cb->bio);
}

static void check_done(struct cow_job *job)
{
	struct cow_check *c = container_of(job, struct cow_check, job);
	struct cow_bio *cb = c->cb;
	blk_status_t status = c->status;

	mempool_free(c, &c->store->check_pool);
	cow_bio_finish(cb, status);
}

static const struct cow_job_ops check_ops = {
	.ready = check_ready,
	.done = check_done,
};

/* Read the chunk of @v; from @offset_sectors on it is copied to the bio of @cb. */
static bool read_chunk(struct cow_bio *cb, struct cow_store *store, const struct cow_version *v,
		       unsigned int offset_sectors, const struct cow_job_ops *ops, gfp_t gfp)
{
	struct cow_check *c = mempool_alloc(&store->check_pool, gfp);

	if (!c)
		return false;
	memset(c, 0, sizeof(*c));
	c->cb = cb;
	c->store = store;
	c->version = *v;
	c->offset_sectors = offset_sectors;
	c->job.ops = ops;
	c->job.bdev = store->bdev;
	c->job.sector = cow_chunk_to_sector(store, v->place);
	c->job.nr_sectors = store->chunk_sectors;
	c->job.urgent = true;
	cow_engine_submit(store->origin->engine, &c->job);
	return true;
}

static int read_part(struct cow_bio *cb, struct cow_store *store,
		     const struct cow_version *v)
{
	unsigned int offset = cb->bio->bi_iter.bi_sector - cow_chunk_to_sector(store, v->chunk);

	if (!read_chunk(cb, store, v, offset, &check_ops, GFP_NOWAIT | __GFP_NOWARN))
		return -ENOMEM;
	return DM_MAPIO_SUBMITTED;
}

/* ---------------------------------------------------------------- whole chunks */

u64 cow_verify_front(struct cow_store *store, const struct bio *bio)
{
	unsigned int chunk = store->chunk_sectors;
	unsigned int offset = bio->bi_iter.bi_sector & (chunk - 1);

	if (!store->meta)
		return bio_sectors(bio);
	if (!offset && bio_sectors(bio) >= chunk)
		return round_down(bio_sectors(bio), chunk);
	return chunk - offset;
}

int cow_verify_read(struct cow_bio *cb, struct cow_store *store, const struct cow_version *v)
{
	struct bio *bio = cb->bio;
	bool part = bio_sectors(bio) % store->chunk_sectors;

	if (part && store->chunk_sectors <= VERIFY_MAX_SECTORS)
		return read_part(cb, store, v);
	bio_set_dev(bio, store->bdev);
	bio->bi_iter.bi_sector += cow_chunk_to_sector(store, v->place) -
				  cow_chunk_to_sector(store, v->chunk);
	if (part) {
		atomic64_inc(&store->unverified);
	} else {
		cb->verify_on_end = true;
		cb->version = *v;
		cb->iter = bio->bi_iter;
	}
	return DM_MAPIO_REMAPPED;
}

void cow_verify_queue(struct cow_bio *cb)
{
	struct cow_store *store = cb->snap->store;
	struct cow_origin *o = cb->origin;
	unsigned long flags;

	/* RCU keeps the store: its work may be running, and end @cb once it is on the list. */
	rcu_read_lock();
	spin_lock_irqsave(&o->reads_lock, flags);
	list_add_tail(&cb->node, &store->checks);
	spin_unlock_irqrestore(&o->reads_lock, flags);
	queue_work(o->wq, &store->check_work);
	rcu_read_unlock();
}

/* By stretches of memory, not by pages: each call costs as much as a third of a page. */
static u32 bio_crc(struct bio *bio, struct bvec_iter iter, u32 crc)
{
	struct bvec_iter at;
	struct bio_vec bv;

	/* A 64-bit kernel has every page mapped. */
	__bio_for_each_bvec(bv, bio, at, iter)
		crc = crc32c(crc, page_address(bv.bv_page) + bv.bv_offset, bv.bv_len);
	return crc;
}

/* The next chunk of @cb is what it should be. */
static void pass_chunk(struct cow_store *store, struct cow_bio *cb)
{
	bio_advance_iter(cb->bio, &cb->iter, store->chunk_sectors << SECTOR_SHIFT);
	cb->version.chunk++;
	cb->version.place++;
}

static void again_done(struct cow_job *job)
{
	struct cow_check *c = container_of(job, struct cow_check, job);
	struct cow_store *store = c->store;
	struct cow_bio *cb = c->cb;
	blk_status_t status = c->status;

	mempool_free(c, &store->check_pool);
	if (status) {
		cow_bio_finish(cb, status);
		return;
	}
	pass_chunk(store, cb);
	cow_verify_queue(cb);
}

static const struct cow_job_ops again_ops = {
	.ready = check_ready,
	.done = again_done,
};

/* Read the next chunk of @cb again, into pages of the engine. */
static void read_again(struct cow_store *store, struct cow_bio *cb)
{
	cb->bio->bi_iter = cb->iter;
	cb->bio->bi_iter.bi_size = store->chunk_sectors << SECTOR_SHIFT;
	read_chunk(cb, store, &cb->version, 0, &again_ops, GFP_NOIO);
}

static void check_bio(struct cow_store *store, struct cow_bio *cb)
{
	int r = 0;

	while (cb->iter.bi_size) {
		struct bvec_iter iter = cb->iter;

		iter.bi_size = store->chunk_sectors << SECTOR_SHIFT;
		r = cow_verify_crc(store, &cb->version, NULL,
				   bio_crc(cb->bio, iter, place_seed(store, cb->version.place)));
		if (r)
			break;
		pass_chunk(store, cb);
	}
	if (r == -EILSEQ)
		read_again(store, cb);
	else
		cow_bio_finish(cb, r ? BLK_STS_IOERR : BLK_STS_OK);
}

static struct cow_bio *pop_check(struct cow_store *store)
{
	struct cow_bio *cb;

	spin_lock_irq(&store->origin->reads_lock);
	cb = list_first_entry_or_null(&store->checks, struct cow_bio, node);
	if (cb)
		list_del_init(&cb->node);
	spin_unlock_irq(&store->origin->reads_lock);
	return cb;
}

void cow_verify_work(struct work_struct *work)
{
	struct cow_store *store = container_of(work, struct cow_store, check_work);
	struct cow_bio *cb;

	while ((cb = pop_check(store)))
		check_bio(store, cb);
}

/* -------------------------------------------------------------- set up, down */

/*
 * Each store has a reserve of its own: its device can be a snapshot in another store, where
 * what is read for a check is checked as well.
 */
int cow_verify_open(struct cow_store *store)
{
	return mempool_init_slab_pool(&store->check_pool, CHECK_RESERVE, check_cache);
}

void cow_verify_close(struct cow_store *store)
{
	mempool_exit(&store->check_pool);
}

int cow_verify_init(void)
{
	check_cache = KMEM_CACHE(cow_check, 0);
	return check_cache ? 0 : -ENOMEM;
}

void cow_verify_exit(void)
{
	kmem_cache_destroy(check_cache);
}

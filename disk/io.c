// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: metadata is read and written, and waited for
 *
 * Nothing here may come from a pool that stores share: the device of a store can be a snapshot
 * in another store, whose metadata is read while this bio is waited for. So the bio is on the
 * stack, with room for a few pages if there is no memory for more. Those of a batch have memory of
 * their own; without it they go one by one.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "disk/io.h"
#include "origin/flush.h"

/* Pages of a bio without further memory: enough for a table block wherever it begins. */
#define META_VECS	4U

static struct page *buffer_page(void *at)
{
	return is_vmalloc_addr(at) ? vmalloc_to_page(at) : virt_to_page(at);
}

size_t cow_bio_add_buffer(struct bio *bio, void *buffer, size_t bytes)
{
	size_t done = 0;

	while (done < bytes) {
		unsigned int offset = offset_in_page(buffer + done);
		unsigned int part = min_t(size_t, bytes - done, PAGE_SIZE - offset);

		if (bio_add_page(bio, buffer_page(buffer + done), part, offset) != part)
			break;
		done += part;
	}
	return done;
}

int cow_meta_io_of(struct cow_origin *o, struct block_device *bdev, blk_opf_t opf,
		   sector_t sector, void *buffer, size_t bytes)
{
	unsigned int nr = min_t(size_t, BIO_MAX_VECS, (bytes >> PAGE_SHIFT) + 2);
	struct bio_vec few[META_VECS], *many = NULL;
	struct bio bio;
	int r = 0;

	if (nr > META_VECS)
		many = kmalloc_array(nr, sizeof(*many), GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
	while (bytes && !r) {
		size_t part;

		bio_init(&bio, bdev, many ?: few, many ? nr : META_VECS, opf);
		bio.bi_iter.bi_sector = sector;
		part = cow_bio_add_buffer(&bio, buffer, bytes);
		buffer += part;
		bytes -= part;
		sector += part >> SECTOR_SHIFT;
		r = o ? cow_flush_io(o, bdev, &bio) : submit_bio_wait(&bio);
		bio_uninit(&bio);
	}
	kfree(many);
	return r;
}

int cow_meta_io(struct block_device *bdev, blk_opf_t opf, sector_t sector, void *buffer,
		size_t bytes)
{
	return cow_meta_io_of(NULL, bdev, opf, sector, buffer, bytes);
}

/* --------------------------------------------------------------- side by side */

/* One of a batch. */
struct part {
	struct cow_meta_batch *batch;
	struct bio bio;
	struct bio_vec vecs[];
};

void cow_batch_begin(struct cow_meta_batch *batch, struct cow_origin *o,
		     struct block_device *bdev, blk_opf_t opf)
{
	batch->origin = o;
	batch->bdev = bdev;
	batch->opf = opf;
	batch->error = 0;
	atomic_set(&batch->left, 1);
	init_completion(&batch->done);
}

static void part_endio(struct bio *bio)
{
	struct part *part = container_of(bio, struct part, bio);
	struct cow_meta_batch *batch = part->batch;

	if (bio->bi_status) {
		cow_flush_failed(batch->origin, batch->bdev->bd_disk, batch->opf,
				 bio->bi_status);
		WRITE_ONCE(batch->error, blk_status_to_errno(bio->bi_status));
	}
	bio_uninit(bio);
	kfree(part);
	/* The last one's end is that of the batch, whose memory may be gone then. */
	if (atomic_dec_and_test(&batch->left))
		complete(&batch->done);
}

/* Submit as much as fits one bio. Returns how many bytes, 0 without memory. */
static size_t part_submit(struct cow_meta_batch *batch, sector_t sector, void *buffer,
			  size_t bytes)
{
	unsigned int nr = min_t(size_t, BIO_MAX_VECS, (bytes >> PAGE_SHIFT) + 2);
	struct part *part;
	size_t done;

	part = kmalloc(struct_size(part, vecs, nr), GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
	if (!part)
		return 0;
	part->batch = batch;
	bio_init(&part->bio, batch->bdev, part->vecs, nr, batch->opf);
	part->bio.bi_iter.bi_sector = sector;
	part->bio.bi_end_io = part_endio;
	done = cow_bio_add_buffer(&part->bio, buffer, bytes);
	atomic_inc(&batch->left);
	submit_bio(&part->bio);
	return done;
}

void cow_batch_write(struct cow_meta_batch *batch, sector_t sector, void *buffer, size_t bytes)
{
	while (bytes && !READ_ONCE(batch->error)) {
		size_t done = part_submit(batch, sector, buffer, bytes);

		if (!done) {
			int r = cow_meta_io_of(batch->origin, batch->bdev, batch->opf, sector,
					       buffer, bytes);

			if (r)
				WRITE_ONCE(batch->error, r);
			return;
		}
		buffer += done;
		bytes -= done;
		sector += done >> SECTOR_SHIFT;
	}
}

int cow_batch_end(struct cow_meta_batch *batch)
{
	if (!atomic_dec_and_test(&batch->left))
		cow_wait_for_io(&batch->done);
	return batch->error;
}

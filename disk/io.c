// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: metadata is read and written, and waited for
 */
#include <linux/module.h>

#include "disk/io.h"

/* For all stores. Filesystems above may wait for these bios, so fs_bio_set will not do. */
static struct bio_set meta_bios;

/* Each caller has one bio at a time, so a small reserve is enough. */
#define META_BIOS	4

static struct page *buffer_page(void *at)
{
	return is_vmalloc_addr(at) ? vmalloc_to_page(at) : virt_to_page(at);
}

int cow_meta_io(struct block_device *bdev, blk_opf_t opf, sector_t sector, void *buffer,
		size_t bytes)
{
	int r = 0;

	while (bytes && !r) {
		unsigned int vecs = min_t(size_t, BIO_MAX_VECS, (bytes >> PAGE_SHIFT) + 2);
		struct bio *bio = bio_alloc_bioset(bdev, vecs, opf, GFP_NOIO, &meta_bios);

		bio->bi_iter.bi_sector = sector;
		while (bytes) {
			unsigned int offset = offset_in_page(buffer);
			unsigned int part = min_t(size_t, bytes, PAGE_SIZE - offset);

			if (bio_add_page(bio, buffer_page(buffer), part, offset) != part)
				break;
			buffer += part;
			bytes -= part;
			sector += part >> SECTOR_SHIFT;
		}
		r = submit_bio_wait(bio);
		bio_put(bio);
	}
	return r;
}

int cow_meta_init(void)
{
	return bioset_init(&meta_bios, META_BIOS, 0, BIOSET_NEED_BVECS);
}

void cow_meta_exit(void)
{
	bioset_exit(&meta_bios);
}

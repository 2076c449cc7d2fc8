// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the tables of a store, read from the first to the last
 *
 * Several reads are under way at a time, so that a device works on those to come while the
 * slots of one are looked at. Each is of one table, up to 256 KiB of it; one that fails is done
 * again block by block. If there is no memory for all of them there are fewer.
 */
#include <linux/completion.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "disk/io.h"
#include "disk/mend.h"
#include "disk/meta.h"
#include "disk/scan.h"
#include "store/store.h"

/* Reads under way at a time, and the largest of them. */
#define SCAN_READS	8U
#define SCAN_SECTORS	COWSNAP_MAX_TABLE_SECTORS

/* The buffer need not begin with a page. */
#define SCAN_VECS	((SCAN_SECTORS << SECTOR_SHIFT) / PAGE_SIZE + 1)

struct cow_scan_read {
	struct cowsnap_segment seg;
	u32 block, nr;
	struct completion done;
	u8 *buffer;
	struct bio bio;
	struct bio_vec vecs[SCAN_VECS];
};

struct cow_scan {
	struct cow_store *store;
	const struct cowsnap_geometry *geometry;
	struct cowsnap_segment seg;	/* what is to be read next: block @block of it */
	u64 index;
	u32 block;
	struct cow_scan_read *read[SCAN_READS];	/* a ring of @nr_reads */
	unsigned int nr_reads;
	unsigned int most;		/* blocks of a read */
	unsigned int first, nr;		/* those under way, or being looked at */
	bool looked_at;			/* the first of them */
	DECLARE_BITMAP(unreadable, SCAN_SECTORS);
};

static struct cow_scan_read *read_alloc(size_t bytes)
{
	struct cow_scan_read *read = kzalloc(sizeof(*read), GFP_KERNEL | __GFP_NOWARN);

	if (!read)
		return NULL;
	read->buffer = kvmalloc(bytes, GFP_KERNEL | __GFP_NOWARN);
	if (read->buffer)
		return read;
	kfree(read);
	return NULL;
}

static void read_free(struct cow_scan_read *read)
{
	kvfree(read->buffer);
	kfree(read);
}

static void read_ended(struct bio *bio)
{
	complete(bio->bi_private);
}

static sector_t read_sector(const struct cow_scan *scan, const struct cow_scan_read *read)
{
	return cowsnap_block_sector(scan->geometry, &read->seg, read->block);
}

static void read_start(struct cow_scan *scan, struct cow_scan_read *read)
{
	size_t bytes = (size_t)read->nr * scan->geometry->block_bytes;

	init_completion(&read->done);
	bio_init(&read->bio, scan->store->bdev, read->vecs, SCAN_VECS, REQ_OP_READ | REQ_META);
	read->bio.bi_iter.bi_sector = read_sector(scan, read);
	read->bio.bi_private = &read->done;
	read->bio.bi_end_io = read_ended;
	WARN_ON_ONCE(cow_bio_add_buffer(&read->bio, read->buffer, bytes) != bytes);
	submit_bio(&read->bio);
}

/* What @read is to read. False: there is nothing more. */
static bool take_next(struct cow_scan *scan, struct cow_scan_read *read)
{
	u32 all = scan->store->space.blocks, left;

	if (scan->block == scan->seg.blocks) {
		cowsnap_get_segment(scan->geometry, ++scan->index, &scan->seg);
		scan->block = 0;
	}
	if (scan->seg.first_block + scan->block >= all)
		return false;
	left = min_t(u64, scan->seg.blocks, all - scan->seg.first_block) - scan->block;
	read->seg = scan->seg;
	read->block = scan->block;
	read->nr = min(left, scan->most);
	scan->block += read->nr;
	return true;
}

static void start_reads(struct cow_scan *scan)
{
	struct cow_scan_read *read;

	while (scan->nr < scan->nr_reads) {
		read = scan->read[(scan->first + scan->nr) % scan->nr_reads];
		if (!take_next(scan, read))
			break;
		read_start(scan, read);
		scan->nr++;
	}
}

/* Wait for the first of those under way. */
static struct cow_scan_read *first_read(struct cow_scan *scan)
{
	struct cow_scan_read *read = scan->read[scan->first];

	wait_for_completion_io(&read->done);
	bio_uninit(&read->bio);
	return read;
}

static void drop_first(struct cow_scan *scan)
{
	scan->first = (scan->first + 1) % scan->nr_reads;
	scan->nr--;
	scan->looked_at = false;
}

/* The tables of a small store are short: they grow with their place. The first is two at most. */
static sector_t largest_read(const struct cow_store *store)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	u32 chunks = max(2U, cowsnap_table_chunks(g, store->space.nr_chunks));

	return min_t(sector_t, (sector_t)chunks << g->chunk_shift, SCAN_SECTORS);
}

struct cow_scan *cow_scan_begin(struct cow_store *store)
{
	size_t bytes = largest_read(store) << SECTOR_SHIFT;
	struct cow_scan *scan = kzalloc(sizeof(*scan), GFP_KERNEL);
	struct cow_scan_read *read;

	if (!scan)
		return NULL;
	scan->store = store;
	scan->geometry = cow_meta_geometry(store->meta);
	scan->most = bytes / scan->geometry->block_bytes;
	cowsnap_get_segment(scan->geometry, 0, &scan->seg);
	while (scan->nr_reads < min(SCAN_READS, store->space.blocks)) {
		read = read_alloc(bytes);
		if (!read)
			break;
		scan->read[scan->nr_reads++] = read;
	}
	if (scan->nr_reads)
		return scan;
	kfree(scan);
	return NULL;
}

bool cow_scan_next(struct cow_scan *scan, struct cow_scanned *out)
{
	struct cow_scan_read *read;

	if (scan->looked_at)
		drop_first(scan);
	start_reads(scan);
	if (!scan->nr)
		return false;
	read = first_read(scan);
	scan->looked_at = true;
	bitmap_zero(scan->unreadable, read->nr);
	if (read->bio.bi_status)
		cow_read_units(scan->store->bdev, read_sector(scan, read), read->buffer,
			       scan->geometry->block_bytes, read->nr, scan->unreadable);
	out->seg = &read->seg;
	out->block = read->block;
	out->nr = read->nr;
	out->data = read->buffer;
	out->unreadable = scan->unreadable;
	return true;
}

void cow_scan_end(struct cow_scan *scan)
{
	unsigned int i;

	if (scan->looked_at)
		drop_first(scan);
	while (scan->nr) {
		first_read(scan);
		drop_first(scan);
	}
	for (i = 0; i < scan->nr_reads; i++)
		read_free(scan->read[i]);
	kfree(scan);
}

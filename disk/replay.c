// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: records of the log are found when a store is opened
 *
 * A record may stand in the last block of any chunk of a zone, but not in data of another one. So
 * the zone is walked through from its start: behind a record comes the end of its data, behind
 * anything else the next chunk. All that are found are noted, since only then is it known how
 * many of them are durable; then they are handed on in order.
 *
 *   index:   0  1  2  -  4  -  6      "durable" of the last one: 3
 *            believed |     in doubt  3 and 5 had not ended. Were "durable" 4, 3 were lost
 *
 * What is lost: a record below "durable" that is not there; one whose mark is there and whose crc
 * is wrong; and any that may have stood in a block that cannot be read. Nobody knows which chunks
 * it described. A block with something else in it is no record: none was ever written there, or
 * it had not ended, and then no write was let go for it.
 */
#include <linux/crc32c.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "disk/blocks.h"
#include "disk/io.h"
#include "disk/mend.h"
#include "disk/meta.h"
#include "disk/replay.h"
#include "store/store.h"

/* Chunks up to this size are read together, in reads of so much; of others only the last block. */
#define SMALL_SECTORS		64U
#define PIECE_SECTORS		2048U

/* A record, without the rest of its block. */
struct found {
	u32 chunk;			/* in the zone */
	u32 index;
	u32 nr;
	u32 slot;			/* the first one, in zone_scan.slot */
};

struct zone_scan {
	struct cow_replay *replay;
	const struct cowsnap_geometry *geometry;
	const struct cowsnap_zone *zone;
	u64 start;
	u32 chunks;
	u32 durable;			/* the largest that any record names */
	u32 next;			/* index that the next record has at least */
	struct found *found;
	struct cowsnap_slot *slot;
	u32 nr_found, nr_slots;
	u8 *buffer;			/* chunks */
	u32 first, nr;			/* which; @nr 0: they cannot be read together */
	u32 next_read;			/* the first chunk behind those */
	u8 *block;			/* what is looked at */
};

static u64 block_sector(const struct zone_scan *scan, u32 chunk)
{
	return cowsnap_log_sector(scan->geometry, scan->start + chunk);
}

/* ------------------------------------------------------------------ blocks are read */

static void fill_buffer(struct zone_scan *scan, u32 chunk)
{
	struct cow_store *store = scan->replay->store;
	u32 nr = clamp(PIECE_SECTORS >> store->chunk_shift, 1U, scan->chunks - chunk);
	size_t bytes = (size_t)cow_chunk_to_sector(store, nr) << SECTOR_SHIFT;

	scan->first = chunk;
	scan->next_read = chunk + nr;
	scan->nr = 0;
	if (store->chunk_sectors > SMALL_SECTORS ||
	    cow_meta_io(store->bdev, REQ_OP_READ | REQ_META,
			cow_chunk_to_sector(store, scan->start + chunk), scan->buffer, bytes))
		return;
	scan->nr = nr;
}

/* The last block of the chunk, in scan->block. False: it cannot be read. */
static bool read_block(struct zone_scan *scan, u32 chunk)
{
	struct cow_store *store = scan->replay->store;
	u32 bytes = scan->geometry->block_bytes;
	size_t end;

	if (chunk >= scan->next_read)
		fill_buffer(scan, chunk);
	if (!scan->nr)
		return !cow_meta_io(store->bdev, REQ_OP_READ | REQ_META,
				    block_sector(scan, chunk), scan->block, bytes);
	end = (size_t)cow_chunk_to_sector(store, chunk - scan->first + 1) << SECTOR_SHIFT;
	memcpy(scan->block, scan->buffer + end - bytes, bytes);
	return true;
}

/* -------------------------------------------------------------------- what is there */

enum verdict {
	NO_RECORD,
	RECORD,
	LOST_RECORD,
};

static bool crc_is_right(struct zone_scan *scan, u64 sector)
{
	struct cow_store *store = scan->replay->store;
	struct cowsnap_log_record *record = (struct cowsnap_log_record *)scan->block;
	u32 bytes = scan->geometry->block_bytes;
	u32 crc = cowsnap_log_crc(cow_meta_uuid(store->meta), sector, record, bytes);

	if (crc == le32_to_cpu(record->crc))
		return true;
	if (!cow_crc_mend(scan->block + sizeof(record->crc), bytes - sizeof(record->crc), crc,
			  &record->crc))
		return false;
	DMWARN_LIMIT("store %pg: one bit of the record at sector %llu was wrong", store->bdev,
		     sector);
	return true;
}

static bool record_makes_sense(struct zone_scan *scan, u32 chunk)
{
	const struct cowsnap_log_record *record = (const void *)scan->block;
	struct cow_replay *replay = scan->replay;

	return record->series == scan->zone->series &&
	       cowsnap_log_makes_sense(scan->geometry, record, scan->chunks - chunk) &&
	       le32_to_cpu(record->index) >= scan->next &&
	       replay->makes_sense(replay->context, (const struct cowsnap_slot *)(record + 1),
				   le16_to_cpu(record->nr), scan->start + chunk + 1);
}

static enum verdict judge(struct zone_scan *scan, u32 chunk)
{
	const struct cowsnap_log_record *record = (const void *)scan->block;
	u64 sector = block_sector(scan, chunk);
	u64 mark = cowsnap_log_mark(cow_meta_uuid(scan->replay->store->meta), sector,
				    cowsnap_zone_series(scan->zone));

	if (!cowsnap_log_mark_is_near(le64_to_cpu(record->mark), mark))
		return NO_RECORD;
	if (crc_is_right(scan, sector) && le64_to_cpu(record->mark) == mark &&
	    record_makes_sense(scan, chunk))
		return RECORD;
	return LOST_RECORD;
}

static void record_is_lost(struct zone_scan *scan, u32 chunk, const char *why)
{
	DMERR_LIMIT("store %pg: a record of the log at sector %llu %s: snapshots have lost chunks",
		    scan->replay->store->bdev, block_sector(scan, chunk), why);
	scan->replay->nr_lost++;
}

/* Room for all: each record has a chunk of its own, and each slot one. */
static void note_record(struct zone_scan *scan, u32 chunk)
{
	const struct cowsnap_log_record *record = (const void *)scan->block;
	u32 nr = le16_to_cpu(record->nr);

	scan->found[scan->nr_found++] = (struct found){
		.chunk = chunk, .index = le32_to_cpu(record->index), .nr = nr,
		.slot = scan->nr_slots,
	};
	memcpy(scan->slot + scan->nr_slots, record + 1, nr * sizeof(*scan->slot));
	scan->nr_slots += nr;
	scan->durable = max_t(u32, scan->durable, le32_to_cpu(record->durable));
	scan->next = le32_to_cpu(record->index) + 1;
}

/* Behind the last chunk there is no data, so no record stands there. */
static void find_records(struct zone_scan *scan)
{
	u32 chunk = 0;

	while (chunk + 1 < scan->chunks) {
		enum verdict verdict = NO_RECORD;

		if (!read_block(scan, chunk))
			record_is_lost(scan, chunk, "may have been, and cannot be read");
		else
			verdict = judge(scan, chunk);
		if (verdict == LOST_RECORD)
			record_is_lost(scan, chunk, "is damaged");
		if (verdict == RECORD) {
			note_record(scan, chunk);
			chunk += scan->found[scan->nr_found - 1].nr;
		}
		chunk++;
		cond_resched();
	}
}

/* ------------------------------------------------------------------- they are handed on */

/* Those from @from up to @to are not there. */
static void count_missing(struct zone_scan *scan, u32 from, u32 to)
{
	to = min(to, scan->durable);
	if (from >= to)
		return;
	DMERR_LIMIT("store %pg: records %u to %u of the log are missing: snapshots have lost some",
		    scan->replay->store->bdev, from, to - 1);
	scan->replay->nr_lost += to - from;
}

static int hand_on(struct zone_scan *scan, const struct found *f)
{
	struct cow_replay *replay = scan->replay;
	u64 place = scan->start + f->chunk + 1;
	int r = 0;
	u32 i;

	for (i = 0; i < f->nr && !r; i++)
		r = replay->slot(replay->context, &scan->slot[f->slot + i], place + i,
				 f->index >= scan->durable);
	return r;
}

static int hand_all_on(struct zone_scan *scan)
{
	u32 i, next = 0;
	int r = 0;

	for (i = 0; i < scan->nr_found && !r; i++) {
		const struct found *f = &scan->found[i];

		count_missing(scan, next, f->index);
		next = f->index + 1;
		r = hand_on(scan, f);
	}
	if (!r)
		count_missing(scan, next, scan->durable);
	return r;
}

static void scan_free(struct zone_scan *scan)
{
	kvfree(scan->found);
	kvfree(scan->slot);
	kvfree(scan->buffer);
	kfree(scan->block);
}

static int scan_alloc(struct zone_scan *scan)
{
	scan->found = kvmalloc_array(scan->chunks, sizeof(*scan->found), GFP_KERNEL);
	scan->slot = kvmalloc_array(scan->chunks, sizeof(*scan->slot), GFP_KERNEL);
	scan->buffer = kvmalloc(PIECE_SECTORS << SECTOR_SHIFT, GFP_KERNEL);
	scan->block = kmalloc(scan->geometry->block_bytes, GFP_KERNEL);
	return scan->found && scan->slot && scan->buffer && scan->block ? 0 : -ENOMEM;
}

int cow_replay_zone(struct cow_replay *replay, const struct cowsnap_zone *zone)
{
	struct zone_scan scan = {
		.replay = replay,
		.geometry = cow_meta_geometry(replay->store->meta),
		.zone = zone,
		.start = cowsnap_zone_start(zone),
		.chunks = le32_to_cpu(zone->chunks),
		.durable = cowsnap_zone_durable(zone),
	};
	int r = scan_alloc(&scan);

	if (!r) {
		find_records(&scan);
		r = hand_all_on(&scan);
	}
	scan_free(&scan);
	return r;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: records of snapshots, and the blocks they stand in
 *
 * The first eight records stand in the superblock, the others in chunks of their own,
 * block by block. A block that cannot be read costs the snapshots in it, and no
 * others.
 */
#include <linux/crc32c.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap.h"
#include "disk/blocks.h"
#include "disk/commit.h"
#include "disk/io.h"
#include "disk/mend.h"
#include "disk/meta.h"
#include "disk/records.h"
#include "disk/super.h"
#include "store/error.h"
#include "store/snapshots.h"
#include "store/store.h"

static const u8 record_states[] = {
	[COW_SNAP_LOADED] = COWSNAP_RECORD_FREE,
	[COW_SNAP_LIVE] = COWSNAP_RECORD_LIVE,
	[COW_SNAP_MERGING] = COWSNAP_RECORD_MERGING,
	[COW_SNAP_MERGED] = COWSNAP_RECORD_MERGED,
	[COW_SNAP_TRACKER] = COWSNAP_RECORD_TRACKER,
	[COW_SNAP_OVERFLOWED] = COWSNAP_RECORD_OVERFLOWED,
	[COW_SNAP_DROPPED] = COWSNAP_RECORD_DROPPED,
	[COW_SNAP_INVALID] = COWSNAP_RECORD_INVALID,
};

u8 cow_record_state(enum cow_snap_state state)
{
	return record_states[state];
}

static const enum cow_snap_state snap_states[] = {
	[COWSNAP_RECORD_LIVE] = COW_SNAP_LIVE,
	[COWSNAP_RECORD_OVERFLOWED] = COW_SNAP_OVERFLOWED,
	[COWSNAP_RECORD_INVALID] = COW_SNAP_INVALID,
	[COWSNAP_RECORD_DROPPED] = COW_SNAP_DROPPED,
	[COWSNAP_RECORD_MERGING] = COW_SNAP_MERGING,
	[COWSNAP_RECORD_MERGED] = COW_SNAP_MERGED,
	[COWSNAP_RECORD_TRACKER] = COW_SNAP_TRACKER,
};

/* --------------------------------------------------------------- what is said */

void cow_change_take_snap(struct cow_change *c, struct cow_snap *snap)
{
	c->snap = snap;
	c->state = READ_ONCE(snap->state);
	c->mark = READ_ONCE(snap->mark);
	c->epoch = snap->epoch;
	c->nr_sectors = snap->nr_sectors;
	c->time = snap->time;
	c->series = snap->series;
	c->was = c->state;
}

/* While the mark "invalid" is being written, snapshots are still live in memory. */
static enum cow_snap_state state_to_write(const struct cow_store *store,
					  enum cow_snap_state state)
{
	if (state == COW_SNAP_LIVE && READ_ONCE(store->blocked) == COW_STORE_FAILING)
		return store->fail_state;
	return state;
}

void cow_record_fill(const struct cow_change *c, unsigned int number,
		     struct cowsnap_record *record)
{
	struct cow_snap *snap = xa_load(&c->store->records, number);
	struct cow_change own;

	memset(record, 0, sizeof(*record));
	if (!snap || (snap == c->snap && c->drop))
		return;
	if (snap != c->snap) {
		cow_change_take_snap(&own, snap);
		own.store = c->store;
		c = &own;
	}
	if (c->state == COW_SNAP_LOADED)
		return;
	record->id = cpu_to_le16(snap->id);
	record->state = record_states[state_to_write(c->store, c->state)];
	record->flags = cpu_to_le32((c->mark ? COWSNAP_RECORD_WRITTEN : 0) |
				    c->series << COWSNAP_RECORD_SERIES_SHIFT);
	record->epoch = cpu_to_le64(c->epoch);
	record->sectors = cpu_to_le64(c->nr_sectors);
	record->time = cpu_to_le64(c->time);
}

/* ---------------------------------------------------------- blocks of records */

u32 cow_records_in_chunk(const struct cow_store *store)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);

	return cowsnap_block_records(g) * g->chunk_blocks;
}

static sector_t records_sector(struct cow_store *store, u64 place, u32 block)
{
	return cow_chunk_to_sector(store, place) +
	       (sector_t)block * (cow_meta_block_bytes(store->meta) >> SECTOR_SHIFT);
}

static u32 records_crc(struct cow_store *store, sector_t sector, const void *data)
{
	return crc32c(cow_meta_seed(store->meta, sector), data + sizeof(__le32),
		      cow_meta_block_bytes(store->meta) - sizeof(__le32));
}

/* Block @block of chunk @index of records, in @data. */
static void records_fill(const struct cow_change *c, u64 index, u32 block, sector_t sector,
			 void *data)
{
	struct cow_store *store = c->store;
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	struct cowsnap_block_header *header = data;
	struct cowsnap_record *record = (struct cowsnap_record *)(header + 1);
	u32 i, nr = cowsnap_block_records(g);
	unsigned int first = COWSNAP_SUPER_RECORDS + index * cow_records_in_chunk(store) +
			     block * nr;

	memset(data, 0, g->block_bytes);
	header->blocks = cpu_to_le32(block);
	header->sequence = cpu_to_le64(++store->super_sequence);
	header->durable = cpu_to_le64(store->epoch);
	for (i = 0; i < nr; i++)
		cow_record_fill(c, first + i, &record[i]);
	header->crc = cpu_to_le32(records_crc(store, sector, data));
}

u64 cow_records_place(struct cow_store *store, u64 index)
{
	return xa_to_value(xa_load(&store->record_chunks, index)) - 1;
}

int cow_records_write(const struct cow_change *c, u64 index, u32 block, blk_opf_t flags)
{
	struct cow_store *store = c->store;
	sector_t sector = records_sector(store, cow_records_place(store, index), block);
	void *data = cow_meta_scratch(store->meta);

	lockdep_assert_held(&store->records_lock);
	records_fill(c, index, block, sector, data);
	return cow_meta_write(store->meta, flags, sector, data,
			      cow_meta_block_bytes(store->meta));
}

int cow_record_write(const struct cow_change *c)
{
	u32 per_chunk = cow_records_in_chunk(c->store);
	u32 per_block = cowsnap_block_records(cow_meta_geometry(c->store->meta));
	u32 number = c->snap->record - COWSNAP_SUPER_RECORDS;

	return cow_records_write(c, number / per_chunk, number % per_chunk / per_block,
			     REQ_PREFLUSH | REQ_FUA);
}

u64 cow_super_record_chunks(const struct cow_store *store)
{
	u64 nr = 0;

	while (xa_load((struct xarray *)&store->record_chunks, nr))
		nr++;
	return nr;
}

/* --------------------------------------------------------------- reading them */

int cow_super_add_snap(struct cow_store *store, unsigned int number,
		       const struct cowsnap_record *record, char **error)
{
	u64 epoch = le64_to_cpu(record->epoch);
	struct cow_snap *snap;
	int r;

	if (record->state == COWSNAP_RECORD_FREE)
		return 0;
	if (record->state >= COWSNAP_RECORD_STATES || !epoch || epoch > COW_EPOCH_MAX ||
	    number >= COWSNAP_MAX_SNAPSHOTS ||
	    le64_to_cpu(record->sectors) > store->origin_sectors) {
		cow_fail(error, "Store %pg: record %u of a snapshot is wrong: run cowsnap repair",
			 store->bdev, number);
		return -EINVAL;
	}
	if (cow_snap_find(store, le16_to_cpu(record->id))) {
		cow_fail(error, "Store %pg: snapshot %u stands there twice: run cowsnap repair",
			 store->bdev, le16_to_cpu(record->id));
		return -EINVAL;
	}
	snap = cow_snap_add(store, le16_to_cpu(record->id), snap_states[record->state]);
	if (!snap) {
		*error = "Out of memory reading the store";
		return -ENOMEM;
	}
	snap->epoch = epoch;
	snap->nr_sectors = le64_to_cpu(record->sectors);
	snap->time = le64_to_cpu(record->time);
	if (le32_to_cpu(record->flags) & COWSNAP_RECORD_WRITTEN)
		snap->mark = COW_MARK_WRITTEN;
	snap->series = cowsnap_record_series(record);
	snap->record = number;
	store->epoch = max_t(u32, store->epoch, epoch);
	r = xa_err(xa_store(&store->records, number, snap, GFP_KERNEL));
	if (r)
		*error = "Out of memory for a snapshot";
	return r;
}

static bool records_are_right(struct cow_store *store, u32 block, sector_t sector, void *data)
{
	struct cowsnap_block_header *header = data;
	u32 bytes = cow_meta_block_bytes(store->meta) - sizeof(header->crc);
	u32 crc = records_crc(store, sector, data);

	if (crc != le32_to_cpu(header->crc)) {
		if (!cow_crc_mend(data + sizeof(header->crc), bytes, crc, &header->crc))
			return false;
		DMWARN_LIMIT("store %pg: one bit of the records at sector %llu was wrong",
			     store->bdev, (u64)sector);
	}
	return le32_to_cpu(header->blocks) == block &&
	       le64_to_cpu(header->sequence) < BIT_ULL(62) &&
	       le64_to_cpu(header->durable) <= COW_EPOCH_MAX;
}

static int records_parse(struct cow_store *store, u64 index, u32 block, const void *data,
			 char **error)
{
	const struct cowsnap_block_header *header = data;
	const struct cowsnap_record *record = (const struct cowsnap_record *)(header + 1);
	u32 i, nr = cowsnap_block_records(cow_meta_geometry(store->meta));
	unsigned int first = COWSNAP_SUPER_RECORDS + index * cow_records_in_chunk(store) +
			     block * nr;
	int r = 0;

	store->epoch = max_t(u32, store->epoch, le64_to_cpu(header->durable));
	store->super_sequence = max_t(u64, store->super_sequence,
				      le64_to_cpu(header->sequence));
	for (i = 0; i < nr && !r; i++)
		r = cow_super_add_snap(store, first + i, &record[i], error);
	return r;
}

static int records_read(struct cow_store *store, u64 index, u32 block, void *data,
			struct xarray *lost, char **error)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	sector_t sector = records_sector(store, cow_records_place(store, index), block);
	int r;

	r = cow_meta_io(store->bdev, REQ_OP_READ | REQ_META, sector, data, g->block_bytes);
	if (!r && records_are_right(store, block, sector, data))
		return records_parse(store, index, block, data, error);
	DMERR("store %pg: records %llu to %llu, at sector %llu, %s: these snapshots are lost",
	      store->bdev,
	      COWSNAP_SUPER_RECORDS + index * cow_records_in_chunk(store) +
	      block * cowsnap_block_records(g),
	      COWSNAP_SUPER_RECORDS + index * cow_records_in_chunk(store) +
	      (block + 1) * cowsnap_block_records(g) - 1,
	      (u64)sector, r ? "cannot be read" : "are damaged");
	r = xa_err(xa_store(lost, index * g->chunk_blocks + block, xa_mk_value(0), GFP_KERNEL));
	if (r)
		*error = "Out of memory for records of snapshots";
	return r;
}

int cow_super_read_records(struct cow_store *store, u64 index, struct xarray *lost,
			   char **error)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	void *data = kmalloc(g->block_bytes, GFP_KERNEL);
	u32 block;
	int r = 0;

	if (!data) {
		*error = "Out of memory for records of snapshots";
		return -ENOMEM;
	}
	for (block = 0; block < g->chunk_blocks && !r; block++)
		r = records_read(store, index, block, data, lost, error);
	kfree(data);
	return r;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: superblocks, and the records of snapshots
 *
 * What a persistent store knows of itself stands in two superblocks, written one
 * after the other. The first eight snapshots have their records there; more of them
 * are in chunks of their own, block by block. Each change of a snapshot (made,
 * deleted, invalid) is one block that is written durably: it has happened or
 * it has not.
 *
 * store->records_lock is held while any of this is written, and the metadata is
 * acquired, so that no commit writes the same block (at 4096 bytes the superblocks share
 * theirs with slots).
 */
#include <linux/crc32c.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uuid.h>

#include "dm-cowsnap.h"

/* Most table blocks made ready at a time. */
#define EXTEND_BLOCKS_MAX	4096U

/* ------------------------------------------------------------------- what is said */

static const u8 record_states[] = {
	[COW_SNAP_LOADED] = COWSNAP_RECORD_FREE,
	[COW_SNAP_LIVE] = COWSNAP_RECORD_LIVE,
	[COW_SNAP_MERGING] = COWSNAP_RECORD_MERGING,
	[COW_SNAP_MERGED] = COWSNAP_RECORD_MERGED,
	[COW_SNAP_OVERFLOWED] = COWSNAP_RECORD_OVERFLOWED,
	[COW_SNAP_DROPPED] = COWSNAP_RECORD_DROPPED,
	[COW_SNAP_INVALID] = COWSNAP_RECORD_INVALID,
};

/* While the mark is on its way to the disk, snapshots are still live in memory. */
static enum cow_snap_state state_to_write(const struct cow_snap *snap)
{
	const struct cow_store *store = snap->store;
	enum cow_snap_state state = READ_ONCE(snap->state);

	if (state == COW_SNAP_LIVE && READ_ONCE(store->blocked) == COW_STORE_FAILING)
		return store->fail_state;
	return state;
}

static void record_fill(struct cow_store *store, unsigned int number,
			struct cowsnap_record *record)
{
	const struct cow_snap *snap = xa_load(&store->records, number);

	memset(record, 0, sizeof(*record));
	if (!snap || snap->state == COW_SNAP_LOADED)
		return;
	record->id = cpu_to_le16(snap->id);
	record->state = record_states[state_to_write(snap)];
	record->flags = cpu_to_le32(READ_ONCE(snap->mark) ? COWSNAP_RECORD_WRITTEN : 0);
	record->epoch = cpu_to_le64(snap->epoch);
	record->sectors = cpu_to_le64(snap->nr_sectors);
	record->time = cpu_to_le64(snap->time);
}

static void super_fill(struct cow_store *store, u32 blocks, struct cowsnap_super *super)
{
	unsigned int i;

	memset(super, 0, sizeof(*super));
	memcpy(super->magic, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES);
	super->version = cpu_to_le32(COWSNAP_FORMAT);
	if (cow_sector_to_chunk(store, store->origin_sectors) >= COW_CHUNKS_MAX)
		super->incompat = cpu_to_le64(COWSNAP_INCOMPAT_WIDE);
	memcpy(super->uuid, cow_meta_uuid(store->meta), sizeof(super->uuid));
	super->sequence = cpu_to_le64(++store->super_sequence);
	super->block_bytes = cpu_to_le32(cow_meta_block_bytes(store->meta));
	super->chunk_sectors = cpu_to_le32(store->chunk_sectors);
	super->origin_sectors = cpu_to_le64(store->origin_sectors);
	super->store_sectors = cpu_to_le64(bdev_nr_sectors(store->bdev));
	super->epoch = cpu_to_le64(store->epoch);
	super->durable = cpu_to_le64(cow_meta_durable(store->meta));
	super->blocks = cpu_to_le32(blocks);
	super->merge_id = cpu_to_le32(store->merging ? store->merging->id :
				      COWSNAP_NO_MERGE);
	super->merge_chunk = cpu_to_le64(store->merge_chunk);
	super->on_full = cpu_to_le32(store->options.on_full);
	super->wait_timeout = cpu_to_le32(store->options.wait_timeout);
	super->throttle = cpu_to_le32(store->options.throttle);
	super->low_water = cpu_to_le32(store->options.low_water);
	super->copy_around = cpu_to_le32(store->options.copy_around);
	super->copy_ahead = cpu_to_le32(store->options.copy_ahead);
	super->damage_epoch = cpu_to_le64(store->damage_epoch);
	super->damaged_blocks = cpu_to_le32(store->damaged_blocks);
	super->damage_mark = cpu_to_le32(store->damage_mark);
	for (i = 0; i < COWSNAP_SUPER_RECORDS; i++)
		record_fill(store, i, &super->record[i]);
}

/* -------------------------------------------------------------- superblocks */

/* With the metadata acquired. */
static int super_write(struct cow_store *store, u32 blocks)
{
	struct cowsnap_super super;

	lockdep_assert_held(&store->records_lock);
	super_fill(store, blocks, &super);
	return cow_meta_write_super(store->meta, &super);
}

/* --------------------------------------------------------- chunks of records */

static u32 records_in_chunk(const struct cow_store *store)
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
static void records_fill(struct cow_store *store, u64 index, u32 block, sector_t sector,
			 void *data)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	struct cowsnap_block_header *header = data;
	struct cowsnap_record *record = (struct cowsnap_record *)(header + 1);
	u32 i, nr = cowsnap_block_records(g);
	unsigned int first = COWSNAP_SUPER_RECORDS + index * records_in_chunk(store) +
			     block * nr;

	memset(data, 0, g->block_bytes);
	header->blocks = cpu_to_le32(block);
	header->sequence = cpu_to_le64(++store->super_sequence);
	header->durable = cpu_to_le64(store->epoch);
	for (i = 0; i < nr; i++)
		record_fill(store, first + i, &record[i]);
	header->crc = cpu_to_le32(records_crc(store, sector, data));
}

static u64 records_place(struct cow_store *store, u64 index)
{
	return xa_to_value(xa_load(&store->record_chunks, index)) - 1;
}

/* With the metadata acquired. @flags: how durable it has to be by itself. */
static int records_write(struct cow_store *store, u64 index, u32 block, blk_opf_t flags)
{
	sector_t sector = records_sector(store, records_place(store, index), block);
	u32 bytes = cow_meta_block_bytes(store->meta);
	void *data = kmalloc(bytes, GFP_NOIO);
	int r;

	lockdep_assert_held(&store->records_lock);
	if (!data)
		return -ENOMEM;
	records_fill(store, index, block, sector, data);
	r = cow_meta_io(store->bdev, REQ_OP_WRITE | REQ_META | REQ_SYNC | flags, sector, data,
			bytes);
	kfree(data);
	return r;
}

static int record_write(struct cow_store *store, unsigned int number)
{
	u32 per_chunk = records_in_chunk(store);
	u32 per_block = cowsnap_block_records(cow_meta_geometry(store->meta));

	number -= COWSNAP_SUPER_RECORDS;
	return records_write(store, number / per_chunk, number % per_chunk / per_block,
			     REQ_PREFLUSH | REQ_FUA);
}

/* A chunk for records: written empty first, announced by its slot then. */
static int records_make_chunk(struct cow_store *store, u64 index)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	u64 place;
	u32 block;
	int r;

	spin_lock(&store->origin->lock);
	r = cow_store_room(store, 1, &place) ? 0 : -ENOSPC;
	spin_unlock(&store->origin->lock);
	if (r)
		return r;
	r = xa_err(xa_store(&store->record_chunks, index, xa_mk_value(place + 1),
			    GFP_KERNEL));
	mutex_lock(&store->records_lock);
	cow_meta_acquire(store->meta);
	for (block = 0; block < g->chunk_blocks && !r; block++)
		r = records_write(store, index, block, 0);
	/* This flushes what was written so far. */
	if (!r)
		r = cow_meta_write_slot(store->meta, place, COWSNAP_SLOT_RECORDS, index);
	cow_meta_release(store->meta);
	mutex_unlock(&store->records_lock);
	if (r) {
		xa_erase(&store->record_chunks, index);
		spin_lock(&store->origin->lock);
		cow_space_free(&store->space, place, 1);
		spin_unlock(&store->origin->lock);
	}
	return r;
}

u64 cow_super_record_chunks(const struct cow_store *store)
{
	u64 nr = 0;

	while (xa_load((struct xarray *)&store->record_chunks, nr))
		nr++;
	return nr;
}

int cow_super_add_record(struct cow_store *store, struct cow_snap *snap)
{
	u32 number;
	int r;

	if (!store->meta)
		return 0;
	r = xa_alloc(&store->records, &number, snap,
		     XA_LIMIT(0, COWSNAP_MAX_SNAPSHOTS - 1), GFP_KERNEL);
	if (r)
		return r;
	snap->record = number;
	if (number >= COWSNAP_SUPER_RECORDS) {
		u64 index = (number - COWSNAP_SUPER_RECORDS) / records_in_chunk(store);

		if (!xa_load(&store->record_chunks, index))
			r = records_make_chunk(store, index);
	}
	if (r)
		xa_erase(&store->records, number);
	return r;
}

int cow_super_drop_record(struct cow_store *store, struct cow_snap *snap)
{
	struct cow_snap *kept;
	int r;

	if (!store->meta)
		return 0;
	mutex_lock(&store->records_lock);
	cow_meta_acquire(store->meta);
	kept = xa_store(&store->records, snap->record, XA_ZERO_ENTRY, GFP_KERNEL);
	r = xa_err(kept);
	if (!r)
		r = snap->record < COWSNAP_SUPER_RECORDS ?
		    super_write(store, store->space.blocks) :
		    record_write(store, snap->record);
	if (r)
		xa_store(&store->records, snap->record, snap, GFP_KERNEL);
	else
		xa_erase(&store->records, snap->record);
	cow_meta_release(store->meta);
	mutex_unlock(&store->records_lock);
	return r;
}

int cow_super_write(struct cow_store *store, struct cow_snap *snap)
{
	int r;

	if (!store->meta)
		return 0;
	mutex_lock(&store->records_lock);
	cow_meta_acquire(store->meta);
	if (snap && snap->record >= COWSNAP_SUPER_RECORDS)
		r = record_write(store, snap->record);
	else
		r = super_write(store, store->space.blocks);
	cow_meta_release(store->meta);
	mutex_unlock(&store->records_lock);
	return r;
}

int cow_super_write_all(struct cow_store *store)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	unsigned long index;
	void *entry;
	u32 block;
	int r;

	mutex_lock(&store->records_lock);
	cow_meta_acquire(store->meta);
	r = super_write(store, store->space.blocks);
	xa_for_each(&store->record_chunks, index, entry)
		for (block = 0; block < g->chunk_blocks && !r; block++)
			r = records_write(store, index, block, REQ_PREFLUSH | REQ_FUA);
	cow_meta_release(store->meta);
	mutex_unlock(&store->records_lock);
	return r;
}

/* -------------------------------------------------- making table blocks ready */

/* Empty blocks [@from, @to), all of one segment. */
static int write_empty_run(struct cow_store *store, const struct cowsnap_segment *seg,
			   u64 from, u64 to)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	u32 at_once = min_t(u64, to - from, COWSNAP_COMMIT_BLOCKS);
	u8 *data = kvmalloc_array(at_once, g->block_bytes, GFP_NOIO);
	int r = data ? 0 : -ENOMEM;

	while (from < to && !r) {
		u32 i, nr = min_t(u64, to - from, at_once);
		sector_t sector = cowsnap_block_sector(g, seg, from - seg->first_block);

		memset(data, 0, (size_t)nr * g->block_bytes);
		for (i = 0; i < nr; i++)
			cow_meta_seal(store->meta, from + i,
				      sector + i * (g->block_bytes >> SECTOR_SHIFT),
				      data + i * g->block_bytes, 0, 0);
		r = cow_meta_io(store->bdev, REQ_OP_WRITE | REQ_META | REQ_SYNC, sector, data,
				(size_t)nr * g->block_bytes);
		from += nr;
	}
	kvfree(data);
	return r;
}

static int write_empty_blocks(struct cow_store *store, u64 from, u64 to)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	struct cowsnap_segment seg;
	u64 index = 0;
	int r = 0;

	for (; from < to && !r; index++) {
		u64 end;

		cowsnap_get_segment(g, index, &seg);
		end = seg.first_block + seg.blocks;
		if (end <= from)
			continue;
		r = write_empty_run(store, &seg, from, min(end, to));
		from = end;
	}
	return r;
}

/* The superblock names them once they are there: it flushes before it is written. */
static int super_extend(struct cow_store *store)
{
	u32 from = store->space.blocks;
	u32 more = clamp(from / 8, COWSNAP_COMMIT_BLOCKS, EXTEND_BLOCKS_MAX);
	u32 to = min(from + more, store->space.max_blocks);
	int r;

	if (from >= to)
		return 0;
	r = write_empty_blocks(store, from, to);
	if (!r)
		r = super_write(store, to);
	if (r)
		return r;
	spin_lock(&store->origin->lock);
	WRITE_ONCE(store->space.blocks, to);
	spin_unlock(&store->origin->lock);
	return 0;
}

/* Write what @step has to, then let go on whoever waits for it. */
static int store_prepare(struct cow_store *store, int (*step)(struct cow_store *store),
			 const char *failure)
{
	int r;

	mutex_lock(&store->records_lock);
	cow_meta_acquire(store->meta);
	r = step(store);
	cow_meta_release(store->meta);
	mutex_unlock(&store->records_lock);

	spin_lock(&store->origin->lock);
	if (store->blocked == COW_STORE_PREPARING)
		cow_store_unblock(store);
	if (r)
		__cow_store_invalidate(store, COW_SNAP_INVALID, failure);
	spin_unlock(&store->origin->lock);
	return r;
}

void cow_super_extend_work(struct work_struct *work)
{
	struct cow_store *store = container_of(work, struct cow_store, extend_work);
	int r = store_prepare(store, super_extend, "its tables could not be extended");

	WRITE_ONCE(store->extend_failed, r && r != -ENOMEM);
}

/* --------------------------------------------- snapshots that are written to at last */

static int super_mark(struct cow_store *store)
{
	struct cow_snap *snap;
	unsigned long number;
	int r = 0;

	xa_for_each(&store->records, number, snap) {
		if (READ_ONCE(snap->mark) != COW_MARK_WANTED)
			continue;
		r = number < COWSNAP_SUPER_RECORDS ?
		    super_write(store, store->space.blocks) : record_write(store, number);
		if (r)
			break;
		WRITE_ONCE(snap->mark, COW_MARK_WRITTEN);
	}
	return r;
}

void cow_super_mark_work(struct work_struct *work)
{
	store_prepare(container_of(work, struct cow_store, mark_work), super_mark,
		      "a snapshot could not be marked as written to");
}

/* ------------------------------------------------------------------------- a new one */

int cow_super_format(struct cow_store *store)
{
	u8 uuid[16];
	int r;

	generate_random_uuid(uuid);
	cow_meta_set_uuid(store->meta, uuid);
	cow_meta_set_sequence(store->meta, 0, 0);
	cow_meta_seal_super_blocks(store->meta);
	mutex_lock(&store->records_lock);
	cow_meta_acquire(store->meta);
	WRITE_ONCE(store->space.blocks, 2);
	r = super_extend(store);
	/* A store so small that the first two blocks are all. */
	if (!r && store->super_sequence == 0)
		r = super_write(store, store->space.blocks);
	cow_meta_release(store->meta);
	mutex_unlock(&store->records_lock);
	return r;
}

/* --------------------------------------------------------------------- reading them */

static const enum cow_snap_state snap_states[] = {
	[COWSNAP_RECORD_LIVE] = COW_SNAP_LIVE,
	[COWSNAP_RECORD_OVERFLOWED] = COW_SNAP_OVERFLOWED,
	[COWSNAP_RECORD_INVALID] = COW_SNAP_INVALID,
	[COWSNAP_RECORD_DROPPED] = COW_SNAP_DROPPED,
	[COWSNAP_RECORD_MERGING] = COW_SNAP_MERGING,
	[COWSNAP_RECORD_MERGED] = COW_SNAP_MERGED,
};

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
	snap = cow_snap_add(store, le16_to_cpu(record->id), snap_states[record->state]);
	if (!snap) {
		cow_fail(error, "Store %pg: snapshot %u stands there twice: run cowsnap repair",
			 store->bdev, le16_to_cpu(record->id));
		return -EINVAL;
	}
	snap->epoch = epoch;
	snap->nr_sectors = le64_to_cpu(record->sectors);
	snap->time = le64_to_cpu(record->time);
	if (le32_to_cpu(record->flags) & COWSNAP_RECORD_WRITTEN)
		snap->mark = COW_MARK_WRITTEN;
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
	       le64_to_cpu(header->durable) <= COW_EPOCH_MAX;
}

static int records_parse(struct cow_store *store, u64 index, u32 block, const void *data,
			 char **error)
{
	const struct cowsnap_block_header *header = data;
	const struct cowsnap_record *record = (const struct cowsnap_record *)(header + 1);
	u32 i, nr = cowsnap_block_records(cow_meta_geometry(store->meta));
	unsigned int first = COWSNAP_SUPER_RECORDS + index * records_in_chunk(store) +
			     block * nr;
	int r = 0;

	store->epoch = max_t(u32, store->epoch, le64_to_cpu(header->durable));
	store->super_sequence = max_t(u64, store->super_sequence,
				      le64_to_cpu(header->sequence));
	for (i = 0; i < nr && !r; i++)
		r = cow_super_add_snap(store, first + i, &record[i], error);
	return r;
}

/* A block that is lost costs the snapshots in it, and no others. */
static int records_read(struct cow_store *store, u64 index, u32 block, void *data,
			struct xarray *lost, char **error)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	sector_t sector = records_sector(store, records_place(store, index), block);
	int r;

	r = cow_meta_io(store->bdev, REQ_OP_READ | REQ_META, sector, data, g->block_bytes);
	if (!r && records_are_right(store, block, sector, data))
		return records_parse(store, index, block, data, error);
	DMERR("store %pg: records %llu to %llu, at sector %llu, %s: these snapshots are lost",
	      store->bdev,
	      COWSNAP_SUPER_RECORDS + index * records_in_chunk(store) +
	      block * cowsnap_block_records(g),
	      COWSNAP_SUPER_RECORDS + index * records_in_chunk(store) +
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

int cow_super_write_records(struct cow_store *store, u64 number)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	int r;

	mutex_lock(&store->records_lock);
	cow_meta_acquire(store->meta);
	r = records_write(store, number / g->chunk_blocks, number % g->chunk_blocks,
			  REQ_PREFLUSH | REQ_FUA);
	cow_meta_release(store->meta);
	mutex_unlock(&store->records_lock);
	return r;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: superblocks, and the records of snapshots
 *
 * What a persistent store knows of itself stands in two superblocks, written one
 * after the other. The first eight snapshots have their records there; more of them
 * are in chunks of their own, block by block. Each change (struct cow_change) is one
 * block that is written durably, and memory follows: it has happened or it has not.
 * What fails is undone, or the store is fenced. "Invalid" is said in the superblock
 * for all snapshots at once.
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

/* ------------------------------------------------------------------ what is said */

static const u8 record_states[] = {
	[COW_SNAP_LOADED] = COWSNAP_RECORD_FREE,
	[COW_SNAP_LIVE] = COWSNAP_RECORD_LIVE,
	[COW_SNAP_MERGING] = COWSNAP_RECORD_MERGING,
	[COW_SNAP_MERGED] = COWSNAP_RECORD_MERGED,
	[COW_SNAP_OVERFLOWED] = COWSNAP_RECORD_OVERFLOWED,
	[COW_SNAP_DROPPED] = COWSNAP_RECORD_DROPPED,
	[COW_SNAP_INVALID] = COWSNAP_RECORD_INVALID,
};

static void change_take_snap(struct cow_change *c, struct cow_snap *snap)
{
	c->snap = snap;
	c->state = READ_ONCE(snap->state);
	c->mark = READ_ONCE(snap->mark);
	c->epoch = snap->epoch;
	c->nr_sectors = snap->nr_sectors;
	c->time = snap->time;
	c->was = c->state;
}

/* What memory says. With records_lock held, so that it cannot change meanwhile. */
static void change_fill(struct cow_change *c, struct cow_store *store, struct cow_snap *snap)
{
	lockdep_assert_held(&store->records_lock);
	memset(c, 0, sizeof(*c));
	c->store = store;
	c->merging = store->merging;
	c->merge_chunk = store->merge_chunk;
	c->origin_sectors = store->origin_sectors;
	c->blocks = store->space.blocks;
	c->options = store->options;
	c->invalid_epoch = store->invalid_epoch;
	if (snap)
		change_take_snap(c, snap);
}

/* While the mark is on its way to the disk, snapshots are still live in memory. */
static enum cow_snap_state state_to_write(const struct cow_store *store,
					  enum cow_snap_state state)
{
	if (state == COW_SNAP_LIVE && READ_ONCE(store->blocked) == COW_STORE_FAILING)
		return store->fail_state;
	return state;
}

static void record_fill(const struct cow_change *c, unsigned int number,
			struct cowsnap_record *record)
{
	struct cow_snap *snap = xa_load(&c->store->records, number);
	struct cow_change own;

	memset(record, 0, sizeof(*record));
	if (!snap || (snap == c->snap && c->drop))
		return;
	if (snap != c->snap) {
		change_take_snap(&own, snap);
		own.store = c->store;
		c = &own;
	}
	if (c->state == COW_SNAP_LOADED)
		return;
	record->id = cpu_to_le16(snap->id);
	record->state = record_states[state_to_write(c->store, c->state)];
	record->flags = cpu_to_le32(c->mark ? COWSNAP_RECORD_WRITTEN : 0);
	record->epoch = cpu_to_le64(c->epoch);
	record->sectors = cpu_to_le64(c->nr_sectors);
	record->time = cpu_to_le64(c->time);
}

static void super_fill(const struct cow_change *c, struct cowsnap_super *super)
{
	struct cow_store *store = c->store;
	unsigned int i;

	memset(super, 0, sizeof(*super));
	memcpy(super->magic, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES);
	super->version = cpu_to_le32(COWSNAP_FORMAT);
	if (cow_sector_to_chunk(store, c->origin_sectors) >= COW_CHUNKS_MAX)
		super->incompat = cpu_to_le64(COWSNAP_INCOMPAT_WIDE);
	memcpy(super->uuid, cow_meta_uuid(store->meta), sizeof(super->uuid));
	super->sequence = cpu_to_le64(++store->super_sequence);
	super->block_bytes = cpu_to_le32(cow_meta_block_bytes(store->meta));
	super->chunk_sectors = cpu_to_le32(store->chunk_sectors);
	super->origin_sectors = cpu_to_le64(c->origin_sectors);
	super->store_sectors = cpu_to_le64(bdev_nr_sectors(store->bdev));
	super->epoch = cpu_to_le64(store->epoch);
	super->durable = cpu_to_le64(cow_meta_durable(store->meta));
	super->blocks = cpu_to_le32(c->blocks);
	super->merge_id = cpu_to_le32(c->merging ? c->merging->id : COWSNAP_NO_MERGE);
	super->merge_chunk = cpu_to_le64(c->merge_chunk);
	super->on_full = cpu_to_le32(c->options.on_full);
	super->wait_timeout = cpu_to_le32(c->options.wait_timeout);
	super->throttle = cpu_to_le32(c->options.throttle);
	super->low_water = cpu_to_le32(c->options.low_water);
	super->copy_around = cpu_to_le32(c->options.copy_around);
	super->copy_ahead = cpu_to_le32(c->options.copy_ahead);
	super->damage_epoch = cpu_to_le64(store->damage_epoch);
	super->damaged_blocks = cpu_to_le32(store->damaged_blocks);
	super->damage_mark = cpu_to_le32(store->damage_mark);
	if (c->invalid_epoch) {
		super->incompat |= cpu_to_le64(COWSNAP_INCOMPAT_INVALID);
		super->invalid_epoch = cpu_to_le64(c->invalid_epoch);
		super->invalid_state = record_states[store->invalid_state];
	}
	for (i = 0; i < COWSNAP_SUPER_RECORDS; i++)
		record_fill(c, i, &super->record[i]);
}

/* -------------------------------------------------------------- superblocks */

/* With the metadata acquired. 0: at least one of the two has it. */
static int super_write(const struct cow_change *c)
{
	struct cowsnap_super super;
	int r;

	lockdep_assert_held(&c->store->records_lock);
	super_fill(c, &super);
	r = cow_meta_write_super(c->store->meta, &super);
	if (!r)
		c->store->said_durable = le64_to_cpu(super.durable);
	return r;
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
static void records_fill(const struct cow_change *c, u64 index, u32 block, sector_t sector,
			 void *data)
{
	struct cow_store *store = c->store;
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
		record_fill(c, first + i, &record[i]);
	header->crc = cpu_to_le32(records_crc(store, sector, data));
}

static u64 records_place(struct cow_store *store, u64 index)
{
	return xa_to_value(xa_load(&store->record_chunks, index)) - 1;
}

/* With the metadata acquired. @flags: how durable it has to be by itself. */
static int records_write(const struct cow_change *c, u64 index, u32 block, blk_opf_t flags)
{
	struct cow_store *store = c->store;
	sector_t sector = records_sector(store, records_place(store, index), block);
	void *data = cow_meta_scratch(store->meta);

	lockdep_assert_held(&store->records_lock);
	records_fill(c, index, block, sector, data);
	return cow_meta_io(store->bdev, REQ_OP_WRITE | REQ_META | REQ_SYNC | flags, sector,
			   data, cow_meta_block_bytes(store->meta));
}

/* The block that has the record of @c->snap. */
static int record_write(const struct cow_change *c)
{
	u32 per_chunk = records_in_chunk(c->store);
	u32 per_block = cowsnap_block_records(cow_meta_geometry(c->store->meta));
	u32 number = c->snap->record - COWSNAP_SUPER_RECORDS;

	return records_write(c, number / per_chunk, number % per_chunk / per_block,
			     REQ_PREFLUSH | REQ_FUA);
}

/* Every block of records as memory has it. Returns the first error, after trying all. */
static int records_write_all(struct cow_store *store)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	struct cow_change c;
	unsigned long index;
	void *entry;
	u32 block;
	int r = 0;

	change_fill(&c, store, NULL);
	xa_for_each(&store->record_chunks, index, entry) {
		for (block = 0; block < g->chunk_blocks; block++) {
			int error = records_write(&c, index, block, 0);

			r = r ?: error;
		}
	}
	return r;
}

/* ------------------------------------------------------------------- changes */

static void super_lock(struct cow_store *store)
{
	mutex_lock(&store->records_lock);
	if (store->meta)
		cow_meta_acquire(store->meta);
}

static void super_unlock(struct cow_store *store)
{
	if (store->meta)
		cow_meta_release(store->meta);
	mutex_unlock(&store->records_lock);
}

static bool has_own_block(const struct cow_snap *snap)
{
	return snap && snap->record >= COWSNAP_SUPER_RECORDS;
}

/* Does it change what the superblock says beside the options? */
static bool facts_change(const struct cow_change *c)
{
	const struct cow_store *store = c->store;

	return c->merging != store->merging || c->merge_chunk != store->merge_chunk ||
	       c->blocks != store->space.blocks ||
	       c->origin_sectors != store->origin_sectors ||
	       c->invalid_epoch != store->invalid_epoch;
}

static bool super_changes(const struct cow_change *c)
{
	return !has_own_block(c->snap) || facts_change(c) ||
	       memcmp(&c->options, &c->store->options, sizeof(c->options));
}

/* The record first: until the superblock agrees, the superblock decides. */
static int change_write(const struct cow_change *c, bool super)
{
	int r = has_own_block(c->snap) ? record_write(c) : 0;

	return !r && super ? super_write(c) : r;
}

static void store_set_unmarked(struct cow_store *store, bool unmarked)
{
	spin_lock(&store->origin->lock);
	store->unmarked = unmarked;
	spin_unlock(&store->origin->lock);
}

/* Records in blocks of their own are overruled until they have been written. */
static void overrule_records(struct cow_store *store, enum cow_snap_state state)
{
	lockdep_assert_held(&store->records_lock);
	if (xa_empty(&store->record_chunks))
		return;
	store->invalid_epoch = store->epoch;
	store->invalid_state = state;
}

/* Nobody knows what the disk says. What it can be made to say is "invalid". */
static void store_fence(struct cow_store *store)
{
	DMERR("store %pg: a failed write cannot be undone: remove its tables and load them again",
	      store->bdev);
	cow_meta_fence(store->meta);
	overrule_records(store, COW_SNAP_INVALID);
	store_set_unmarked(store, true);
	cow_store_invalidate(store, COW_SNAP_INVALID, "its superblocks cannot be written");
}

/* Write what memory says over what of @c may have got to the disk. */
static void change_undo(const struct cow_change *c, bool super)
{
	struct cow_change old;
	int r = 0;

	change_fill(&old, c->store, c->snap);
	if (super)
		r = super_write(&old);
	if (has_own_block(c->snap))
		r = record_write(&old) ?: r;
	if (r && !c->either)
		store_fence(c->store);
}

/* The disk has it. Only what the caller has changed is taken: states change otherwise, too. */
static void change_apply(const struct cow_change *c)
{
	struct cow_store *store = c->store;
	struct cow_snap *snap = c->snap;
	unsigned int undo_buffer;

	spin_lock(&store->origin->lock);
	if (snap && c->state != c->was)
		cow_snap_set_state(snap, c->state);
	if (snap) {
		WRITE_ONCE(snap->mark, max(snap->mark, c->mark));
		snap->epoch = c->epoch;
		snap->nr_sectors = c->nr_sectors;
		snap->time = c->time;
	}
	store->merging = c->merging;
	WRITE_ONCE(store->merge_chunk, c->merge_chunk);
	store->origin_sectors = max(store->origin_sectors, c->origin_sectors);
	WRITE_ONCE(store->space.blocks, c->blocks);
	store->invalid_epoch = c->invalid_epoch;
	undo_buffer = store->options.undo_buffer;
	store->options = c->options;
	store->options.undo_buffer = undo_buffer;
	spin_unlock(&store->origin->lock);
	if (snap && c->drop)
		xa_erase(&store->records, snap->record);
}

/* Options of a store that is only read are forgotten with it. */
static bool change_is_written(const struct cow_change *c)
{
	return cow_store_is_formatted(c->store) && c->store->writable;
}

/* All else has to be on the disk before memory has it. */
static bool change_is_refused(const struct cow_change *c)
{
	if (!c->store->meta || c->store->writable || !(c->snap || facts_change(c)))
		return false;
	DMERR_LIMIT("store %pg is read-only: make it writable and load its tables again",
		    c->store->bdev);
	return true;
}

/* What an earlier write may have left is put right first. */
static int super_put_right(struct cow_store *store)
{
	struct cow_change c;
	int r;

	if (!store->unmarked)
		return 0;
	change_fill(&c, store, NULL);
	r = super_write(&c);
	if (!r)
		store_set_unmarked(store, false);
	return r;
}

/* Locked, and with the metadata acquired. */
static int change_make(const struct cow_change *c)
{
	bool super = super_changes(c);
	int r = 0;

	if (change_is_refused(c))
		return -EROFS;
	if (change_is_written(c)) {
		r = super_put_right(c->store);
		if (r)
			return r;
		r = change_write(c, super);
	}
	if (r)
		change_undo(c, super);
	else
		change_apply(c);
	return r;
}

void cow_change_begin(struct cow_change *c, struct cow_store *store, struct cow_snap *snap)
{
	super_lock(store);
	change_fill(c, store, snap);
}

int cow_change_end(struct cow_change *c)
{
	int r = change_make(c);

	super_unlock(c->store);
	return r;
}

/* ------------------------------------------------------- places for records */

/* Written empty first, announced by its slot then, which flushes what was written. */
static int records_announce(struct cow_store *store, u64 index, u64 place)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	struct cowsnap_slot slot;
	struct cow_change c;
	u32 block;
	int r = 0;

	change_fill(&c, store, NULL);
	for (block = 0; block < g->chunk_blocks && !r; block++)
		r = records_write(&c, index, block, 0);
	/* Its block has to be in memory: else there would be nothing to undo. */
	if (!r)
		r = cow_meta_read_slot(store->meta, place, &slot);
	if (r)
		return r;
	r = cow_meta_write_slot(store->meta, place, COWSNAP_SLOT_RECORDS, index);
	if (r && r != -ENOMEM && cow_meta_write_slot(store->meta, place, COWSNAP_SLOT_FREE, 0))
		store_fence(store);
	return r;
}

/* A chunk for records. */
static int records_make_chunk(struct cow_store *store, u64 index)
{
	u64 place;
	int r;

	spin_lock(&store->origin->lock);
	r = cow_store_room(store, 1, &place) ? 0 : -ENOSPC;
	spin_unlock(&store->origin->lock);
	if (r)
		return r;
	super_lock(store);
	r = xa_err(xa_store(&store->record_chunks, index, xa_mk_value(place + 1),
			    GFP_NOIO));
	if (!r)
		r = records_announce(store, index, place);
	if (r)
		xa_erase(&store->record_chunks, index);
	super_unlock(store);
	if (r) {
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
		cow_super_forget_record(store, snap);
	return r;
}

void cow_super_forget_record(struct cow_store *store, struct cow_snap *snap)
{
	/* Whoever writes records looks at their snapshots. */
	mutex_lock(&store->records_lock);
	if (xa_load(&store->records, snap->record) == snap)
		xa_erase(&store->records, snap->record);
	mutex_unlock(&store->records_lock);
}

int cow_super_drop_record(struct cow_store *store, struct cow_snap *snap)
{
	struct cow_change c;

	if (!store->meta)
		return 0;
	cow_change_begin(&c, store, snap);
	c.drop = true;
	/* Gone after a crash or not: the chunks that it had are kept until it is gone here. */
	c.either = true;
	return cow_change_end(&c);
}

int cow_super_write(struct cow_store *store, struct cow_snap *snap)
{
	struct cow_change c;
	int r = 0;

	if (!store->meta || !store->writable)
		return 0;
	super_lock(store);
	change_fill(&c, store, snap);
	/* A store that no table has been resumed of has no superblocks yet. */
	if (cow_store_is_formatted(store))
		r = change_write(&c, !has_own_block(snap));
	super_unlock(store);
	return r;
}

/* ------------------------------------------------------------------- invalid */

void cow_super_invalidate(struct cow_store *store, enum cow_snap_state state,
			  void (*let_go)(struct cow_store *store, enum cow_snap_state state))
{
	struct cow_change c;
	int r = 0;

	super_lock(store);
	if (cow_store_is_formatted(store)) {
		overrule_records(store, state);
		change_fill(&c, store, NULL);
		r = store->writable ? super_write(&c) : -EROFS;
	}
	if (r)
		DMERR_LIMIT("store %pg: does not take the mark that its snapshots are invalid (%d)",
			    store->bdev, r);
	spin_lock(&store->origin->lock);
	store->unmarked = r;
	let_go(store, state);
	spin_unlock(&store->origin->lock);
	super_unlock(store);
}

int cow_super_settle(struct cow_store *store)
{
	struct cow_change c;
	int r;

	if (!store->meta || !store->invalid_epoch || !store->writable)
		return 0;
	super_lock(store);
	r = records_write_all(store);
	if (!r) {
		/* This flushes what was written. */
		change_fill(&c, store, NULL);
		c.invalid_epoch = 0;
		c.either = true;
		r = change_make(&c);
	}
	super_unlock(store);
	return r;
}

/* -------------------------------------------------- making table blocks ready */

/* Empty blocks [@from, @to), all of one segment. */
static int write_empty_run(struct cow_store *store, const struct cowsnap_segment *seg,
			   u64 from, u64 to)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	u32 at_once = min_t(u64, to - from, COWSNAP_COMMIT_BLOCKS);
	u8 *large = kvmalloc_array(at_once, g->block_bytes,
				   GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
	u8 *data = large ?: cow_meta_scratch(store->meta);
	int r = 0;

	if (!large)
		at_once = 1;
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
	kvfree(large);
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
	struct cow_change c;
	int r;

	if (from >= to)
		return 0;
	r = write_empty_blocks(store, from, to);
	if (r)
		return r;
	change_fill(&c, store, NULL);
	c.blocks = to;
	c.either = true;
	return change_make(&c);
}

/* Write what @step has to, then let go on whoever waits for it. */
static int store_prepare(struct cow_store *store, int (*step)(struct cow_store *store),
			 const char *failure)
{
	int r;

	super_lock(store);
	r = step(store);
	super_unlock(store);

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
	struct cow_change c;
	struct cow_snap *snap;
	unsigned long number;
	int r = 0;

	xa_for_each(&store->records, number, snap) {
		if (READ_ONCE(snap->mark) != COW_MARK_WANTED)
			continue;
		change_fill(&c, store, snap);
		c.mark = COW_MARK_WRITTEN;
		/* To be marked in vain costs nothing but care. */
		c.either = true;
		r = change_make(&c);
		if (r)
			break;
	}
	return r;
}

void cow_super_mark_work(struct work_struct *work)
{
	store_prepare(container_of(work, struct cow_store, mark_work), super_mark,
		      "a snapshot could not be marked as written to");
}

/* ---------------------------------------------------------- how far commits have come */

void cow_super_note(struct cow_store *store)
{
	/* Does nothing while it is queued already. */
	queue_delayed_work(store->origin->wq, &store->note_work, HZ);
}

void cow_super_note_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       note_work);
	u64 durable = cow_meta_durable(store->meta);

	if (READ_ONCE(store->closing) || cow_meta_is_fenced(store->meta))
		return;
	if (durable != store->noted_durable) {
		/* Not idle: look again. */
		store->noted_durable = durable;
		cow_super_note(store);
	} else if (durable != READ_ONCE(store->said_durable)) {
		cow_super_write(store, NULL);
	}
}

/* ------------------------------------------------------------------------- a new one */

/* The first two blocks are there, then as many as fit; a small store has no more. */
static int super_first(struct cow_store *store)
{
	struct cow_change c;
	int r;

	change_fill(&c, store, NULL);
	c.either = true;
	r = change_make(&c);
	return r ?: super_extend(store);
}

int cow_super_format(struct cow_store *store)
{
	u8 uuid[16];
	int r;

	/* The same one if this has failed before: nothing else may be on the disk. */
	if (!store->super_sequence) {
		generate_random_uuid(uuid);
		cow_meta_set_uuid(store->meta, uuid);
		cow_meta_set_sequence(store->meta, 0, 0);
	}
	super_lock(store);
	WRITE_ONCE(store->space.blocks, 2);
	cow_meta_seal_super_blocks(store->meta);
	r = super_first(store);
	if (r)
		WRITE_ONCE(store->space.blocks, 0);
	super_unlock(store);
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
	struct cow_change c;
	int r;

	super_lock(store);
	change_fill(&c, store, NULL);
	r = records_write(&c, number / g->chunk_blocks, number % g->chunk_blocks,
			  REQ_PREFLUSH | REQ_FUA);
	super_unlock(store);
	return r;
}

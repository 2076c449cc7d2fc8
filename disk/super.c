// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: superblocks, and the records of snapshots
 *
 * A persistent store describes itself in two superblocks, written one after the other. The
 * first eight snapshots have their records there; the others are in chunks of their own,
 * block by block (disk/records.c). Each change (struct cow_change) is one block that is
 * written durably, and memory follows: it has happened or it has not. A change that fails
 * is undone, or the store is fenced. "Invalid" is written to the superblock for all
 * snapshots at once.
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

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap.h"
#include "disk/commit.h"
#include "disk/direct.h"
#include "disk/log.h"
#include "disk/meta.h"
#include "disk/records.h"
#include "disk/super.h"
#include "origin/origin.h"
#include "store/options.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/state.h"
#include "store/store.h"

/* --------------------------------------------------------------- what is said */

void cow_change_fill(struct cow_change *c, struct cow_store *store, struct cow_snap *snap)
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
	c->has_tracked = store->has_tracked;
	c->seal_state = store->seal_state;
	memcpy(c->zone, store->zone_name, sizeof(c->zone));
	if (snap)
		cow_change_take_snap(c, snap);
}

/*
 * What is durable in a zone is known of one that was named before. Modules without a log are kept
 * from a store that has had a zone, not from one that only may have some.
 */
static void zones_fill(const struct cow_change *c, struct cowsnap_super *super)
{
	const struct cow_store *store = c->store;
	bool had_log = false;
	unsigned int i;

	for (i = 0; i < COWSNAP_ZONES; i++) {
		const struct cow_zone_name *name = &c->zone[i];

		super->zone[i].start = cpu_to_le64(name->start);
		super->zone[i].series = cpu_to_le64(name->series);
		super->zone[i].chunks = cpu_to_le32(name->nr);
		if (name->nr && name->series == store->zone_name[i].series)
			super->zone[i].durable = cpu_to_le32(cow_log_durable(store->meta, i));
		had_log |= name->series;
	}
	super->lost_epoch = cpu_to_le64(store->lost_epoch);
	if (had_log || store->lost_epoch)
		super->incompat |= cpu_to_le64(COWSNAP_INCOMPAT_LOG);
}

/* The generation stays when the seal is gone: none is used twice. */
static void seal_fill(const struct cow_change *c, struct cowsnap_super *super)
{
	super->seal_generation = cpu_to_le32(c->store->seal_generation);
	if (c->seal_state == COWSNAP_SEAL_OPEN)
		return;
	super->incompat |= cpu_to_le64(COWSNAP_INCOMPAT_SEAL);
	super->seal_start = cpu_to_le64(c->store->seal_start);
	super->seal_state = c->seal_state;
}

static void super_fill(const struct cow_change *c, struct cowsnap_super *super)
{
	struct cow_store *store = c->store;
	enum cow_zeroes zeroes = READ_ONCE(store->zeroes);
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
	cow_options_save(&c->options, super);
	super->damage_epoch = cpu_to_le64(store->damage_epoch);
	super->damaged_blocks = cpu_to_le32(store->damaged_blocks);
	super->damage_mark = cpu_to_le32(store->damage_mark);
	if (c->invalid_epoch) {
		super->incompat |= cpu_to_le64(COWSNAP_INCOMPAT_INVALID);
		super->invalid_epoch = cpu_to_le64(c->invalid_epoch);
		super->invalid_state = cow_record_state(store->invalid_state);
	}
	if (c->has_tracked)
		super->incompat |= cpu_to_le64(COWSNAP_INCOMPAT_TRACK);
	if (store->has_current || c->options.redirect)
		super->incompat |= cpu_to_le64(COWSNAP_INCOMPAT_CURRENT);
	if (zeroes == COW_ZEROES_WANTED || zeroes == COW_ZEROES_MARKED)
		super->incompat |= cpu_to_le64(COWSNAP_INCOMPAT_ZEROES);
	zones_fill(c, super);
	seal_fill(c, super);
	for (i = 0; i < COWSNAP_SUPER_RECORDS; i++)
		cow_record_fill(c, i, &super->record[i]);
}

/* With the metadata acquired. 0: at least one of the two copies is written. */
static int super_write(const struct cow_change *c)
{
	u64 progress = cow_meta_progress(c->store->meta);
	struct cowsnap_super super;
	struct cow_log_note note;
	int r;

	lockdep_assert_held(&c->store->records_lock);
	cow_log_begin_note(c->store->meta, &note);
	super_fill(c, &super);
	r = cow_meta_write_super(c->store->meta, &super);
	if (r)
		return r;
	c->store->said_durable = progress;
	cow_log_end_note(c->store->meta, &note);
	return 0;
}

/* Write every block of records as memory has it. Tries all; returns the first error. */
static int records_write_all(struct cow_store *store)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	struct cow_change c;
	unsigned long index;
	void *entry;
	u32 block;
	int r = 0;

	cow_change_fill(&c, store, NULL);
	xa_for_each(&store->record_chunks, index, entry) {
		for (block = 0; block < g->chunk_blocks; block++) {
			int error = cow_records_write(&c, index, block, 0);

			r = r ?: error;
		}
	}
	return r;
}

int cow_super_write_records(struct cow_store *store, u64 number)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	struct cow_change c;
	int r;

	cow_super_lock(store);
	cow_change_fill(&c, store, NULL);
	r = cow_records_write(&c, number / g->chunk_blocks, number % g->chunk_blocks,
			      REQ_PREFLUSH | REQ_FUA);
	cow_super_unlock(store);
	return r;
}

/* -------------------------------------------------------------------- changes */

void cow_super_lock(struct cow_store *store)
{
	atomic_inc(&store->super_waiters);
	if (store->meta)
		cow_meta_hasten(store->meta);
	mutex_lock(&store->records_lock);
	atomic_dec(&store->super_waiters);
	if (store->meta)
		cow_meta_acquire(store->meta);
}

void cow_super_unlock(struct cow_store *store)
{
	if (store->meta)
		cow_meta_release(store->meta);
	mutex_unlock(&store->records_lock);
}

static bool has_own_block(const struct cow_snap *snap)
{
	return snap && snap->record >= COWSNAP_SUPER_RECORDS;
}

/* Does it change more of the superblock than the options? */
static bool facts_change(const struct cow_change *c)
{
	const struct cow_store *store = c->store;

	return c->merging != store->merging || c->merge_chunk != store->merge_chunk ||
	       c->blocks != store->space.blocks ||
	       c->origin_sectors != store->origin_sectors ||
	       c->invalid_epoch != store->invalid_epoch ||
	       c->has_tracked != store->has_tracked || c->seal_state != store->seal_state ||
	       memcmp(c->zone, store->zone_name, sizeof(c->zone));
}

static bool super_changes(const struct cow_change *c)
{
	/* The last epoch given out must not stand in one block of records alone. */
	return !has_own_block(c->snap) || facts_change(c) || c->epoch != c->snap->epoch ||
	       memcmp(&c->options, &c->store->options, sizeof(c->options));
}

/* The record first: until the superblock is written, the superblock decides. */
static int change_write(const struct cow_change *c, bool super)
{
	int r = has_own_block(c->snap) ? cow_record_write(c) : 0;

	return !r && super ? super_write(c) : r;
}

static void store_set_not_on_disk(struct cow_store *store, bool not_on_disk)
{
	spin_lock(&store->origin->state_lock);
	store->invalid_not_on_disk = not_on_disk;
	/* Until then nothing came home. */
	if (!not_on_disk)
		cow_store_settle(store);
	spin_unlock(&store->origin->state_lock);
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

void cow_store_fence(struct cow_store *store)
{
	DMERR("store %pg: a failed write cannot be undone: remove its tables and load them again",
	      store->bdev);
	cow_meta_fence(store->meta);
	overrule_records(store, COW_SNAP_INVALID);
	store_set_not_on_disk(store, true);
	cow_store_invalidate(store, COW_SNAP_INVALID, "its superblocks cannot be written");
}

/* Parts of @c may have got to the disk: write the values in memory over them. */
static void change_undo(const struct cow_change *c, bool super)
{
	struct cow_change old;
	int r = 0;

	cow_change_fill(&old, c->store, c->snap);
	if (super)
		r = super_write(&old);
	if (has_own_block(c->snap))
		r = cow_record_write(&old) ?: r;
	if (r && !c->either)
		cow_store_fence(c->store);
}

/* The disk has it. The state is only set if the caller has changed it: it may change else. */
static void change_apply(const struct cow_change *c)
{
	struct cow_store *store = c->store;
	struct cow_snap *snap = c->snap;
	unsigned int undo_buffer;

	spin_lock(&store->origin->state_lock);
	if (snap && c->state != c->was)
		cow_snap_set_state(snap, c->state);
	if (snap) {
		WRITE_ONCE(snap->mark, max(snap->mark, c->mark));
		snap->epoch = c->epoch;
		snap->nr_sectors = c->nr_sectors;
		snap->time = c->time;
		snap->series = c->series;
	}
	store->merging = c->merging;
	WRITE_ONCE(store->merge_chunk, c->merge_chunk);
	store->origin_sectors = max(store->origin_sectors, c->origin_sectors);
	WRITE_ONCE(store->space.blocks, c->blocks);
	store->invalid_epoch = c->invalid_epoch;
	store->has_tracked = c->has_tracked;
	store->seal_state = c->seal_state;
	memcpy(store->zone_name, c->zone, sizeof(c->zone));
	undo_buffer = store->options.undo_buffer;
	store->options = c->options;
	store->options.undo_buffer = undo_buffer;
	store->has_current |= c->options.redirect;
	spin_unlock(&store->origin->state_lock);
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

/*
 * A snapshot can become invalid after the caller has looked at it. From then on writes go home
 * without a copy for it.
 */
static bool change_comes_late(const struct cow_change *c)
{
	if (!c->snap || c->state == c->was || c->was == COW_SNAP_LIVE ||
	    (c->state != COW_SNAP_MERGING && c->state != COW_SNAP_TRACKER))
		return false;
	DMERR_LIMIT("store %pg: snapshot %u is not live any more", c->store->bdev, c->snap->id);
	return true;
}

/* What an earlier write may have left is put right first. */
static int super_put_right(struct cow_store *store)
{
	struct cow_change c;
	int r;

	if (!store->invalid_not_on_disk)
		return 0;
	cow_change_fill(&c, store, NULL);
	r = super_write(&c);
	if (!r)
		store_set_not_on_disk(store, false);
	return r;
}

/* Locked, and with the metadata acquired. */
int cow_change_make(const struct cow_change *c)
{
	bool super = super_changes(c);
	int r = 0;

	if (change_is_refused(c))
		return -EROFS;
	if (change_comes_late(c))
		return -EIO;
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
	cow_super_lock(store);
	cow_change_fill(c, store, snap);
}

int cow_change_end(struct cow_change *c)
{
	int r = cow_change_make(c);

	cow_super_unlock(c->store);
	return r;
}

int cow_super_write(struct cow_store *store, struct cow_snap *snap)
{
	struct cow_change c;
	int r = 0;

	if (!store->meta || !store->writable)
		return 0;
	cow_super_lock(store);
	cow_change_fill(&c, store, snap);
	/* A new store on a read-only device has no superblocks. */
	if (cow_store_is_formatted(store))
		r = change_write(&c, !has_own_block(snap));
	cow_super_unlock(store);
	return r;
}

/* -------------------------------------------------------------------- invalid */

void cow_super_invalidate(struct cow_store *store, enum cow_snap_state state)
{
	struct cow_change c;
	int r = 0;

	cow_super_lock(store);
	if (cow_store_is_formatted(store)) {
		overrule_records(store, state);
		cow_change_fill(&c, store, NULL);
		r = store->writable ? super_write(&c) : -EROFS;
	}
	if (r)
		DMERR_LIMIT("store %pg: does not take the mark that its snapshots are invalid (%d)",
			    store->bdev, r);
	spin_lock(&store->origin->state_lock);
	store->invalid_not_on_disk = r;
	cow_store_let_go(store, state);
	spin_unlock(&store->origin->state_lock);
	cow_super_unlock(store);
	/* What these snapshots saw of what was redirected is dead, and the rest can come home. */
	if (READ_ONCE(store->nr_current))
		cow_store_reclaim(store);
}

int cow_super_settle(struct cow_store *store)
{
	unsigned int losses;
	struct cow_change c;
	int r;

	if (!store->meta || !store->invalid_epoch || !store->writable)
		return 0;
	cow_super_lock(store);
	losses = cow_meta_losses(store->meta);
	/* By itself: of the two superblocks one may be written though a flush has failed. */
	r = records_write_all(store) ?: cow_meta_flush(store->meta, losses);
	if (!r) {
		cow_change_fill(&c, store, NULL);
		c.invalid_epoch = 0;
		c.either = true;
		r = cow_change_make(&c);
	}
	cow_super_unlock(store);
	return r;
}

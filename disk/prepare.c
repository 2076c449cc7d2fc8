// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: metadata that is written in the background, ahead of need
 *
 * Work items of a persistent store: table blocks are made ready, snapshots are marked
 * before they are written to for the first time, the last durable commit is noted once
 * the store is idle, and the mark "invalid" is written. A new store is formatted here
 * as well.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uuid.h>

#include "dm-cowsnap.h"
#include "disk/blocks.h"
#include "disk/commit.h"
#include "disk/direct.h"
#include "disk/io.h"
#include "disk/meta.h"
#include "disk/prepare.h"
#include "disk/super.h"
#include "origin/origin.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/state.h"
#include "store/store.h"

/* Most table blocks made ready at a time. */
#define EXTEND_BLOCKS_MAX	4096U

/* Bytes of them that are written in one hold of the lock that others wait for. */
#define EXTEND_PIECE		(512U << 10)

/* So many at least where writes are redirected: each time takes turns of the disk from them. */
#define EXTEND_BLOCKS_REDIRECT	2048U

/* After a note of an idle store that failed. */
#define NOTE_RETRY_JIFFIES	(10 * HZ)

/* -------------------------------------------------- making table blocks ready */

/* Blocks [@from, @to) of one segment, which begin at @sector and have been cleared. */
static void seal_empty_run(struct cow_store *store, u64 from, u64 to, sector_t sector, u8 *data)
{
	const size_t bytes = cow_meta_block_bytes(store->meta);

	for (; from < to; from++) {
		cow_meta_seal(store->meta, from, sector, data, 0, 0);
		sector += bytes >> SECTOR_SHIFT;
		data += bytes;
	}
}

/* Empty blocks [@from, @to) with the memory for them, side by side. */
static int write_empty_piece(struct cow_store *store, u64 from, u64 to, u8 *data)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	struct cow_meta_batch batch;
	struct cowsnap_segment seg;
	u64 index = 0, end;

	memset(data, 0, (to - from) * g->block_bytes);
	cow_meta_batch_begin(store->meta, &batch, cow_meta_fua(store->meta));
	for (; from < to; index++) {
		sector_t sector;
		size_t bytes;

		cowsnap_get_segment(g, index, &seg);
		end = min_t(u64, seg.first_block + seg.blocks, to);
		if (end <= from)
			continue;
		sector = cowsnap_block_sector(g, &seg, from - seg.first_block);
		bytes = (end - from) * g->block_bytes;
		seal_empty_run(store, from, end, sector, data);
		cow_batch_write(&batch, sector, data, bytes);
		data += bytes;
		from = end;
	}
	return cow_meta_batch_end(store->meta, &batch);
}

/* Empty blocks [@from, @to). */
static int write_empty_blocks(struct cow_store *store, u64 from, u64 to)
{
	u32 at_once = to - from;
	u8 *large = cow_meta_alloc_blocks(store->meta, &at_once);
	u8 *data = large ?: cow_meta_scratch(store->meta);
	int r = 0;

	for (; from < to && !r; from += at_once)
		r = write_empty_piece(store, from, min_t(u64, from + at_once, to), data);
	kvfree(large);
	return r;
}

/* The first block of the segment behind that of block @from. */
static u64 segment_end(const struct cow_store *store, u64 from)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	struct cowsnap_segment seg;
	u64 index = 0;

	do {
		cowsnap_get_segment(g, index++, &seg);
	} while (seg.first_block + seg.blocks <= from);
	return seg.first_block + seg.blocks;
}

static bool room_is_short(const struct cow_store *store)
{
	return READ_ONCE(store->extend_waited) || READ_ONCE(store->extend_hurried);
}

/*
 * Empty blocks up to @to, from the first that no superblock names on. What else is written outside
 * of commits, and the memory for it, is guarded by the lock: others have it in between, and may
 * name some of the blocks.
 */
static int write_in_pieces(struct cow_store *store, u32 to, bool unhurried)
{
	u32 piece = EXTEND_PIECE / cow_meta_block_bytes(store->meta), from = 0, end;
	int r = 0;

	while (from < to && !r) {
		mutex_lock(&store->records_lock);
		from = max(from, store->space.blocks);
		end = min(from + piece, to);
		/* It may have become so meanwhile. */
		unhurried &= !room_is_short(store);
		if (unhurried)
			end = min_t(u64, end, segment_end(store, from));
		if (from < end)
			r = write_empty_blocks(store, from, end);
		mutex_unlock(&store->records_lock);
		from = end;
		if (unhurried && from < to)
			cow_store_breathe(store);
	}
	return r;
}

/*
 * The same, durably. The flush that comes with the superblocks would not do: the first copy could
 * fail with what was lost, and the second one be written. With FUA none is needed.
 */
static int make_empty_blocks(struct cow_store *store, u32 to, bool unhurried)
{
	unsigned int losses, tries = COW_WRITE_TRIES;
	int r;

	do {
		/* The device may be another one by the end of it. */
		blk_opf_t fua = cow_meta_fua(store->meta);

		losses = cow_meta_losses(store->meta);
		r = write_in_pieces(store, to, unhurried);
		if (r)
			return r;
		if (!fua || !cow_meta_fua(store->meta))
			r = cow_meta_flush(store->meta, losses);
	} while (r && --tries);
	return r;
}

/* Blocks are made ready up to this one next, of at least @wanted in the end. */
static u32 extend_to(const struct cow_store *store, u64 wanted)
{
	u32 from = READ_ONCE(store->space.blocks);
	u64 more = max_t(u64, from / 8, COWSNAP_COMMIT_BLOCKS);

	if (wanted > from)
		more = max(more, wanted - from);
	return min_t(u64, from + min_t(u64, more, EXTEND_BLOCKS_MAX), store->space.max_blocks);
}

/* The superblock names the blocks once they are there. */
static int super_name_blocks(struct cow_store *store, u32 to)
{
	struct cow_change c;

	if (store->space.blocks >= to)
		return 0;
	cow_change_fill(&c, store, NULL);
	c.blocks = to;
	c.either = true;
	return cow_change_make(&c);
}

/* Commits go on while empty blocks are written, since no superblock names these yet. */
static int extend(struct cow_store *store, u64 wanted, bool unhurried)
{
	u32 to = extend_to(store, wanted);
	int r = make_empty_blocks(store, to, unhurried);

	if (r)
		return r;
	cow_super_lock(store);
	r = super_name_blocks(store, to);
	cow_super_unlock(store);
	return r;
}

int cow_super_extend(struct cow_store *store, u64 blocks)
{
	int r = 0;

	blocks = min_t(u64, blocks, store->space.max_blocks);
	while (!r && READ_ONCE(store->space.blocks) < blocks)
		r = extend(store, blocks, false);
	return r;
}

/*
 * Who waits for table blocks decides again, and if there are none he finds the store full. Others
 * wait for a mark, or for zones to be left: that is not over yet.
 */
static void extension_ended(struct cow_store *store, int r)
{
	lockdep_assert_held(&store->origin->state_lock);
	/* Nobody waits a second time for want of memory. */
	WRITE_ONCE(store->extend_failed, r && (r != -ENOMEM || store->extend_waited));
	WRITE_ONCE(store->extend_hurried, false);
	if (store->blocked == COW_STORE_PREPARING && store->extend_waited)
		cow_store_unblock(store);
	else if (!r)
		cow_store_has_room_again(store);
}

void cow_super_extend_work(struct work_struct *work)
{
	struct cow_store *store = container_of(work, struct cow_store, extend_work);
	/* What writers wait for is soon there. */
	bool waits = READ_ONCE(store->extend_waited);
	u32 more = store->options.redirect && !waits ? EXTEND_BLOCKS_REDIRECT : 0;
	int r = extend(store, (u64)READ_ONCE(store->space.blocks) + more, true);

	if (r)
		DMWARN_LIMIT("store %pg: its tables could not be extended (%d)", store->bdev, r);
	spin_lock(&store->origin->state_lock);
	extension_ended(store, r);
	spin_unlock(&store->origin->state_lock);
}

/* -------------------------------------- snapshots that are written to at last */

static int super_mark(struct cow_store *store)
{
	struct cow_change c;
	struct cow_snap *snap;
	unsigned long number;
	int r = 0;

	xa_for_each(&store->records, number, snap) {
		if (READ_ONCE(snap->mark) != COW_MARK_WANTED)
			continue;
		cow_change_fill(&c, store, snap);
		c.mark = COW_MARK_WRITTEN;
		/* A mark without a private version does no harm. */
		c.either = true;
		r = cow_change_make(&c);
		if (r)
			break;
	}
	return r;
}

void cow_super_mark_work(struct work_struct *work)
{
	struct cow_store *store = container_of(work, struct cow_store, mark_work);
	int r;

	cow_super_lock(store);
	r = super_mark(store);
	cow_super_unlock(store);
	spin_lock(&store->origin->state_lock);
	if (store->blocked == COW_STORE_PREPARING)
		cow_store_unblock(store);
	if (r)
		__cow_store_invalidate(store, COW_SNAP_INVALID,
				       "a snapshot could not be marked as written to");
	spin_unlock(&store->origin->state_lock);
}

/* -------------------------------------------------- how far commits have come */

void cow_super_note_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       note_work);
	u64 durable = cow_meta_progress(store->meta);

	if (READ_ONCE(store->closing) || cow_meta_is_fenced(store->meta))
		return;
	if (durable != store->noted_durable) {
		/* Not idle: look again. */
		store->noted_durable = durable;
		cow_meta_note(store->meta);
	} else if (durable != READ_ONCE(store->said_durable) && cow_super_write(store, NULL)) {
		queue_delayed_work(store->origin->wq, &store->note_work, NOTE_RETRY_JIFFIES);
	}
}

/* --------------------------------------------------------- the mark "invalid" */

/* Write the mark, let waiting bios go on, and only then write the records. */
void cow_super_fail_work(struct work_struct *work)
{
	struct cow_store *store = container_of(work, struct cow_store, fail_work);

	cow_super_invalidate(store, store->fail_state);
	if (cow_super_settle(store))
		DMWARN_LIMIT("store %pg: some records cannot be written: a superblock overrules",
			     store->bdev);
}

/* ---------------------------------------------------------------- a new store */

/*
 * Its superblock names the table blocks up to @to, and all that they hold is there before: else a
 * cut between the two would leave a damaged table. (Smaller blocks lie within what has to be zero
 * in a new store, so the first two are: somebody else wrote that. The others come later.)
 */
static int super_first(struct cow_store *store, bool large, u32 to)
{
	unsigned int losses = cow_meta_losses(store->meta);
	struct cow_change c;
	int r = 0;

	if (large)
		r = write_empty_blocks(store, 1, to);
	r = r ?: cow_meta_flush(store->meta, losses);
	if (r)
		return r;
	cow_change_fill(&c, store, NULL);
	c.blocks = to;
	c.either = true;
	return cow_change_make(&c);
}

static int super_begin(struct cow_store *store)
{
	bool large = cow_meta_block_bytes(store->meta) == COWSNAP_MAX_BLOCK_BYTES;
	/* The first is a superblock; no more than go at once. */
	u32 to = large ? min(1 + COWSNAP_COMMIT_BLOCKS, store->space.max_blocks) : 2;
	u8 uuid[16];
	int r;

	generate_random_uuid(uuid);
	cow_meta_set_uuid(store->meta, uuid);
	cow_meta_set_sequence(store->meta, 0, 0);
	cow_super_lock(store);
	WRITE_ONCE(store->space.blocks, 2);
	cow_meta_seal_super_blocks(store->meta);
	r = super_first(store, large, to);
	cow_super_unlock(store);
	return r;
}

int cow_super_format(struct cow_store *store)
{
	int r = cow_store_is_formatted(store) ? 0 : super_begin(store);

	/* More of them, if the store has more. */
	if (!r && store->space.blocks == 2)
		r = extend(store, 0, false);
	return r;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: zones of the log are left, and others are named
 *
 *   due -----> its slots in the tables -----> flush, then a superblock -----> room again
 *   (full, no  (blocks in memory that         that names others, or
 *   record      the disk lacks slots of)      none, in its place
 *   under way)
 *   fresh ---> table blocks in memory, ------^                        -----> open
 *              without dead slots
 *
 * Memory follows the disk: until a superblock has been written the old zone is named, with its
 * chunks and its table blocks. If it cannot be written, the fresh ones go back unused.
 *
 * What a crash leaves: the old zones, whose records say what the tables say, or the fresh ones,
 * which are empty.
 *
 * Promise kept here: I5. A zone is named no more only when its tables are durable. A zone is named
 * only when no table has a slot for its chunks, so that a slot there is later than any record.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "disk/blocks.h"
#include "disk/checkpoint.h"
#include "disk/commit.h"
#include "disk/log.h"
#include "disk/meta.h"
#include "disk/private.h"
#include "disk/slots.h"
#include "disk/super.h"
#include "origin/origin.h"
#include "store/room.h"
#include "store/store.h"
#include "store/zones.h"

/* After a zone that could not be left or named, and after a look for room in vain. */
#define TURN_RETRY_JIFFIES	(10 * HZ)
#define ROOM_RETRY_JIFFIES	HZ

/* ------------------------------------------------------- table blocks of a zone */

/* Table blocks of one segment, half open. */
struct block_range {
	struct cowsnap_segment seg;
	u32 block, end;
};

static void range_of_zone(const struct cow_meta *meta, const struct cow_zone *zone,
			  struct block_range *range)
{
	const struct cowsnap_geometry *g = &meta->geometry;
	u64 start = zone->room.start;
	u32 index;

	cowsnap_get_segment(g, cowsnap_find_segment(g, start), &range->seg);
	cowsnap_find_slot(g, &range->seg, start - range->seg.data, &range->block, &index);
	cowsnap_find_slot(g, &range->seg, start + zone->room.nr - 1 - range->seg.data,
			  &range->end, &index);
	range->end++;
}

static struct cow_block *range_block(struct cow_meta *meta, const struct block_range *range,
				     u32 block)
{
	return cow_block_find(meta, range->seg.first_block + block);
}

/*
 * One that is dirty is written before its commit: its header names that, as in disk/direct.c. In
 * any other nothing is in doubt, so it may have the number of this turn.
 */
static void copy_block(struct cow_meta *meta, struct cow_block *b, void *to)
{
	if (!b->ticket)
		cow_block_settle(b);
	cow_meta_seal(meta, b->number, b->sector, b->data, meta->sequence + !!b->ticket,
		      meta->durable);
	memcpy(to, b->data, meta->geometry.block_bytes);
	b->logged = false;
}

/*
 * The first run of blocks from range->block on that the disk lacks slots of. Returns how many, at
 * most @most. A block with a superblock goes alone: never both at once.
 */
static u32 gather_run(struct cow_meta *meta, struct block_range *range, u32 most, u8 *to,
		      bool *alone)
{
	struct cow_block *b;
	u32 nr = 0;

	*alone = false;
	mutex_lock(&meta->blocks_lock);
	while (range->block < range->end && !range_block(meta, range, range->block)->logged)
		range->block++;
	for (; nr < most && !*alone && range->block + nr < range->end; nr++) {
		b = range_block(meta, range, range->block + nr);
		if (!b->logged || (nr && b->pinned))
			break;
		copy_block(meta, b, to + (size_t)nr * meta->geometry.block_bytes);
		*alone = b->pinned;
	}
	mutex_unlock(&meta->blocks_lock);
	return nr;
}

/*
 * Of what was written of the zone's tables the disk may lack any: the next try writes it all. That
 * the zone's last flush has failed nobody says a second time.
 */
static void tables_unsure(struct cow_meta *meta, const struct cow_zone *zone)
{
	struct block_range range;

	range_of_zone(meta, zone, &range);
	mutex_lock(&meta->blocks_lock);
	for (; range.block < range.end; range.block++)
		range_block(meta, &range, range.block)->logged = true;
	mutex_unlock(&meta->blocks_lock);
}

/*
 * Write what the disk lacks of the zone's tables. Not flushed: whatever fails before they are has
 * the caller call tables_unsure(). With FUA, if the device has it, the error of a write is its own.
 * The metadata is acquired; blocks are not locked while they are written, so that records go on.
 * May sleep.
 */
static int write_tables(struct cow_meta *meta, const struct cow_zone *zone)
{
	u32 bytes = meta->geometry.block_bytes, most, nr;
	struct block_range range;
	u8 *large, *buffer;
	bool alone;
	int r = 0;

	range_of_zone(meta, zone, &range);
	most = range.end - range.block;
	large = cow_meta_alloc_blocks(meta, &most);
	buffer = large ?: cow_meta_scratch(meta);
	while (!r && (nr = gather_run(meta, &range, most, buffer, &alone))) {
		r = cow_meta_write(meta, alone ? REQ_PREFLUSH | REQ_FUA : cow_meta_fua(meta),
				   cowsnap_block_sector(&meta->geometry, &range.seg, range.block),
				   buffer, (size_t)nr * bytes);
		meta->stats.block_writes++;
		/* What shares a block with a superblock may be lost with that. */
		if (!r && !alone)
			meta->log.dated = meta->sequence;
		range.block += nr;
	}
	kvfree(large);
	return r;
}

/* ----------------------------------------------------------------- a fresh zone */

/* The slots of one block: those of the zone are of dead versions. */
static void clear_block(struct cow_meta *meta, struct cow_block *b, u32 from, u32 to)
{
	struct cowsnap_slot *slot = cow_block_slot(b, from);
	size_t bytes = (to - from) * sizeof(*slot);

	if (!memchr_inv(slot, 0, bytes))
		return;
	memset(slot, 0, bytes);
	b->logged = true;
	cow_block_seal_again(meta, b);
}

static void clear_slots(struct cow_meta *meta, const struct cow_zone *zone)
{
	u64 place = zone->room.start, end = place + zone->room.nr;
	struct block_range range;

	lockdep_assert_held(&meta->blocks_lock);
	range_of_zone(meta, zone, &range);
	for (; range.block < range.end; range.block++) {
		struct cow_block *b = range_block(meta, &range, range.block);
		u64 first = range.seg.data +
			    cowsnap_first_slot(&meta->geometry, &range.seg, range.block);
		u64 last = min(first + cowsnap_block_slots(&meta->geometry, b->number), end);

		if (place < last)
			clear_block(meta, b, place - first, last - first);
		place = max(place, last);
	}
}

static void let_blocks_go(struct cow_meta *meta, const struct cow_zone *zone)
{
	mutex_lock(&meta->blocks_lock);
	cow_blocks_let_go(meta, zone->room.start, zone->room.nr);
	mutex_unlock(&meta->blocks_lock);
}

/*
 * Before a zone is named some table block gets a number above all that there were before.
 * Without superblocks it is all that says that a store is newer than a dump: zones are lost then.
 */
static void date_zone(struct cow_meta *meta, const struct cow_zone *zone)
{
	struct block_range range;

	lockdep_assert_held(&meta->blocks_lock);
	/* The tables of the zone that is left have one. */
	if (meta->log.dated == meta->sequence)
		return;
	range_of_zone(meta, zone, &range);
	range_block(meta, &range, range.block)->logged = true;
}

/* Its tables, in memory and on the disk, without slots for its chunks. */
static int prepare_tables(struct cow_meta *meta, const struct cow_zone *zone)
{
	int r;

	mutex_lock(&meta->blocks_lock);
	r = cow_blocks_stay(meta, zone->room.start, zone->room.nr);
	if (!r) {
		clear_slots(meta, zone);
		date_zone(meta, zone);
	}
	mutex_unlock(&meta->blocks_lock);
	if (r)
		return r;
	r = write_tables(meta, zone);
	if (r) {
		tables_unsure(meta, zone);
		let_blocks_go(meta, zone);
	}
	return r;
}

static void drop_fresh(struct cow_store *store, struct cow_zone *fresh)
{
	spin_lock(&store->origin->state_lock);
	cow_zone_leave(store, fresh);
	spin_unlock(&store->origin->state_lock);
	kfree(fresh);
}

/* NULL: there is no zone to be had now. ERR_PTR: its tables cannot be read or written. */
static struct cow_zone *make_fresh(struct cow_store *store)
{
	struct cow_zone *fresh = kzalloc(sizeof(*fresh), GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
	bool taken;
	int r;

	if (!fresh)
		return NULL;
	spin_lock(&store->origin->state_lock);
	taken = cow_zones_wanted(store) && cow_zone_take(store, fresh);
	spin_unlock(&store->origin->state_lock);
	if (!taken) {
		kfree(fresh);
		return NULL;
	}
	r = prepare_tables(store->meta, fresh);
	if (!r)
		return fresh;
	spin_lock(&store->origin->state_lock);
	cow_zone_pass_on(store);
	spin_unlock(&store->origin->state_lock);
	drop_fresh(store, fresh);
	return r == -ENOMEM ? NULL : ERR_PTR(r);
}

/* ------------------------------------------------------------------- both zones */

/* What becomes of each of the zones. */
struct zone_turn {
	bool ends;			/* it has its checkpoint */
	struct cow_zone *fresh;		/* what comes in its place, or NULL */
};

/* An error leaves what can be done: what became of the other zone does not depend on this one. */
static int turn_prepare(struct cow_store *store, struct cow_zone *zone, struct zone_turn *turn)
{
	struct cow_zone *fresh;
	bool is_free;
	int r = 0;

	spin_lock(&store->origin->state_lock);
	turn->ends = cow_zone_is_due(store, zone);
	is_free = turn->ends || zone->state == COW_ZONE_NONE;
	spin_unlock(&store->origin->state_lock);
	if (turn->ends)
		r = write_tables(store->meta, zone);
	if (r) {
		tables_unsure(store->meta, zone);
		turn->ends = false;
	}
	if (r || !is_free)
		return r;
	fresh = make_fresh(store);
	if (IS_ERR(fresh))
		return PTR_ERR(fresh);
	turn->fresh = fresh;
	return 0;
}

/*
 * Tables are durable before a superblock relies on them. The flush that comes with the superblocks
 * would not do: a device tells of a lost write once, so the first copy could fail with that, and
 * the second one be written. With FUA (@fua: so it was before them) they are durable already.
 */
static int turn_flush(struct cow_store *store, blk_opf_t fua, unsigned int losses)
{
	int r = 0;

	if (!fua || !cow_meta_fua(store->meta))
		r = cow_meta_flush(store->meta, losses);
	if (r)
		DMERR_LIMIT("store %pg: tables of its log cannot be flushed (%d)", store->bdev, r);
	return r;
}

/* Whatever the disk has if this fails: fresh zones are empty, and old ones have a checkpoint. */
static int turn_name(struct cow_store *store, const struct zone_turn *turn)
{
	struct cow_change c;
	unsigned int i;

	cow_change_fill(&c, store, NULL);
	c.either = true;
	for (i = 0; i < COWSNAP_ZONES; i++) {
		const struct cow_zone *fresh = turn[i].fresh;

		if (!fresh && !turn[i].ends)
			continue;
		/* The last series stays, so that it is not given out again. */
		c.zone[i].start = fresh ? fresh->room.start : 0;
		c.zone[i].nr = fresh ? fresh->room.nr : 0;
		if (fresh)
			c.zone[i].series = ++store->zone_series;
	}
	return cow_change_make(&c);
}

/* The disk has it. */
static void turn_end(struct cow_store *store, unsigned int i, struct zone_turn *turn)
{
	struct cow_zone *zone = &store->zone[i];

	if (turn->ends) {
		let_blocks_go(store->meta, zone);
		store->meta->stats.checkpoints++;
	}
	if (turn->fresh)
		cow_log_set_zone(store->meta, i, store->zone_name[i].series, 0);
	spin_lock(&store->origin->state_lock);
	if (turn->ends)
		cow_zone_leave(store, zone);
	if (turn->fresh)
		cow_zone_open(store, zone, turn->fresh);
	spin_unlock(&store->origin->state_lock);
	kfree(turn->fresh);
}

static void turn_undo(struct cow_store *store, unsigned int i, struct zone_turn *turn)
{
	if (turn->ends)
		tables_unsure(store->meta, &store->zone[i]);
	if (!turn->fresh)
		return;
	tables_unsure(store->meta, turn->fresh);
	let_blocks_go(store->meta, turn->fresh);
	drop_fresh(store, turn->fresh);
}

/* With the superblocks locked. */
static int turn_zones(struct cow_store *store)
{
	struct zone_turn turn[COWSNAP_ZONES] = {};
	unsigned int losses = cow_meta_losses(store->meta);
	blk_opf_t fua = cow_meta_fua(store->meta);
	bool changes = false;
	unsigned int i;
	int r = 0, error;

	/* A number like that of a commit. It says nothing of being durable: commits do. */
	if (cow_store_logs(store) || store->zone_series)
		store->meta->sequence++;
	for (i = 0; i < COWSNAP_ZONES; i++) {
		error = turn_prepare(store, &store->zone[i], &turn[i]);
		r = r ?: error;
		changes |= turn[i].ends || turn[i].fresh;
	}
	if (!changes)
		return r;
	cow_meta_breathe(store->meta);
	error = turn_flush(store, fua, losses) ?: turn_name(store, turn);
	for (i = 0; i < COWSNAP_ZONES; i++) {
		if (error)
			turn_undo(store, i, &turn[i]);
		else
			turn_end(store, i, &turn[i]);
	}
	return r ?: error;
}

/* Is the store in force, so that nothing of it is in doubt any more? */
static bool store_can_turn(struct cow_store *store)
{
	bool in_force;

	spin_lock(&store->origin->state_lock);
	in_force = !list_empty(&store->node);
	spin_unlock(&store->origin->state_lock);
	return in_force && store->writable && cow_store_is_formatted(store);
}

/*
 * A turn writes to three places. On a disk that seeks one write of a user would wait for all of
 * them, the next ones for none.
 */
static int turn_unhurried(struct cow_store *store)
{
	int r;

	WRITE_ONCE(store->meta->unhurried, bdev_rot(store->bdev));
	r = turn_zones(store);
	WRITE_ONCE(store->meta->unhurried, false);
	return r;
}

void cow_zone_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       zone_work);
	bool can = store_can_turn(store);
	int r = can ? 0 : -EROFS;

	if (can)
		cow_store_be_calm(store);
	cow_super_lock(store);
	if (can && cow_meta_is_fenced(store->meta))
		r = -EIO;
	else if (can)
		r = turn_unhurried(store);
	cow_super_unlock(store);
	spin_lock(&store->origin->state_lock);
	cow_zones_turned(store, r);
	cow_log_rest(store->meta, r ? TURN_RETRY_JIFFIES : ROOM_RETRY_JIFFIES);
	/* What zones that were left have had can be brought home. */
	if (!r)
		cow_store_settle(store);
	/* What is due now is not forgotten; what is only missed is asked for again. */
	if (r && can && !store->closing && !cow_meta_is_fenced(store->meta))
		queue_delayed_work(store->origin->wq, &store->zone_work, TURN_RETRY_JIFFIES);
	spin_unlock(&store->origin->state_lock);
	if (r && can)
		DMWARN_LIMIT("store %pg: its log cannot go on for now (%d): copies are slower",
			     store->bdev, r);
}

bool cow_zones_give_up(struct cow_store *store)
{
	bool ends;

	spin_lock(&store->origin->state_lock);
	ends = cow_zones_end(store);
	spin_unlock(&store->origin->state_lock);
	/* It ends with the last record under way, or with an error. */
	if (ends)
		wait_event(store->idle, !READ_ONCE(store->zones_ending));
	return ends;
}

void cow_zones_close(struct cow_store *store)
{
	int r = -EIO;

	if (!store_can_turn(store))
		return;
	cow_super_lock(store);
	if (!cow_meta_is_fenced(store->meta))
		r = turn_zones(store);
	/* Nothing is under way: what has been written and flushed is all that there is. */
	if (!r)
		WRITE_ONCE(store->meta->durable, store->meta->sequence);
	cow_super_unlock(store);
	if (r)
		DMWARN("store %pg: its log stays as it is (%d), until it is opened again",
		       store->bdev, r);
}

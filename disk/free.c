// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: slots of versions that are needed no more are freed on the disk
 *
 * Most versions keep their slots when they are dead: nobody believes them, and the next version at
 * the place has its own. A CURRENT version is dead because of a later one. When that is brought
 * home no slot of the chunk may be left that would count again.
 *
 * Each table block with such slots is written once, from a copy without them. Memory follows when
 * that is durable. Some blocks are written at a time, and commits in between.
 */
#include <linux/module.h>

#include "dm-cowsnap.h"
#include "disk/blocks.h"
#include "disk/commit.h"
#include "disk/direct.h"
#include "disk/free.h"
#include "disk/meta.h"
#include "disk/private.h"
#include "disk/slots.h"
#include "disk/super.h"
#include "origin/origin.h"

/* Commits stand still while so many blocks are written; more if one run of places has more. */
#define BLOCKS_AT_ONCE	16U

/* For want of memory, some ten seconds: writers may wait for reclaim, and memory for them. */
#define MEMORY_TRIES	500U
#define MEMORY_JIFFIES	(HZ / 50 + 1)

/* With so many table blocks that cannot be read in a row the device is gone. */
#define UNREAD_MOST	16U

/* Once a second, before the store is given up. */
#define PUT_RIGHT_TRIES	6U

/* How far a walk through the places has come. */
struct walk {
	const struct cow_places *at, *end;
	u32 done;			/* of the first ones at @at */
};

static bool walk_is_over(const struct walk *w)
{
	return w->at == w->end;
}

/* The block with the slot of the next place, which is in memory; *@index: where it is there. */
static struct cow_block *walk_block(struct cow_meta *meta, const struct walk *w, u32 *index)
{
	struct cowsnap_segment seg;
	u32 block;

	if (cow_slot_where(meta, w->at->first + w->done, &seg, &block, index))
		return NULL;
	return cow_block_find(meta, seg.first_block + block);
}

/* Slots of block @b, whose content is at @data, become free. */
static void clear_slots(const struct cow_block *b, void *data, u32 index, u32 nr)
{
	struct cowsnap_slot *slot = (void *)(cow_block_header(b->number, data) + 1);

	memset(slot + index, 0, nr * sizeof(*slot));
}

/* All that is in block @b is dealt with: its slots in @data are free. NULL: they stay. */
static void walk_through(struct cow_meta *meta, struct walk *w, const struct cow_block *b,
			 void *data)
{
	u32 index, nr;

	while (!walk_is_over(w) && walk_block(meta, w, &index) == b) {
		nr = min_t(u64, w->at->nr - w->done,
			   cowsnap_block_slots(&meta->geometry, b->number) - index);
		if (data)
			clear_slots(b, data, index, nr);
		w->done += nr;
		if (w->done < w->at->nr)
			continue;
		w->at++;
		w->done = 0;
	}
}

/*
 * A copy of the next block. One that is dirty is written before its commit: its header names that,
 * as in disk/direct.c. In any other nothing is in doubt.
 */
static struct cow_block *copy_next(struct cow_meta *meta, struct walk *w, void *to, bool freed)
{
	struct cow_block *b;
	u32 index;

	mutex_lock(&meta->blocks_lock);
	b = walk_block(meta, w, &index);
	if (!WARN_ON_ONCE(!b)) {
		if (!b->ticket)
			cow_block_settle(b);
		memcpy(to, b->data, meta->geometry.block_bytes);
		walk_through(meta, w, b, freed ? to : NULL);
		cow_meta_seal(meta, b->number, b->sector, to, meta->sequence + !!b->ticket,
			      meta->durable);
	}
	mutex_unlock(&meta->blocks_lock);
	return b;
}

/*
 * All of them, one after the other. Those with superblocks alone: never both at once. Blocks are
 * not locked while they are written: they stay, and records go on.
 */
static int write_blocks(struct cow_meta *meta, const struct cow_places *places, size_t nr,
			bool freed)
{
	struct walk w = { .at = places, .end = places + nr };
	unsigned int losses = cow_meta_losses(meta);
	void *copy = cow_meta_scratch(meta);
	struct cow_block *b;
	int r = 0;

	while (!r && !walk_is_over(&w)) {
		b = copy_next(meta, &w, copy, freed);
		if (!b)
			return -EIO;
		r = cow_meta_write(meta, b->pinned ? REQ_PREFLUSH | REQ_FUA : cow_meta_fua(meta),
				   b->sector, copy, meta->geometry.block_bytes);
		meta->stats.block_writes++;
	}
	return r ?: cow_meta_flush(meta, losses);
}

static void free_in_memory(struct cow_meta *meta, const struct cow_places *places, size_t nr)
{
	struct walk w = { .at = places, .end = places + nr };
	struct cow_block *b;
	u32 index;

	lockdep_assert_held(&meta->blocks_lock);
	while (!walk_is_over(&w)) {
		b = walk_block(meta, &w, &index);
		if (WARN_ON_ONCE(!b))
			return;
		walk_through(meta, &w, b, b->data);
		cow_block_seal_again(meta, b);
	}
}

static void let_go(struct cow_meta *meta, const struct cow_places *places, size_t nr)
{
	size_t i;

	lockdep_assert_held(&meta->blocks_lock);
	for (i = 0; i < nr; i++)
		cow_blocks_let_go(meta, places[i].first, places[i].nr);
}

/* How many table blocks @places has behind block *@last, which is its last one from now on. */
static u32 more_blocks(struct cow_meta *meta, const struct cow_places *places, u64 *last)
{
	struct cowsnap_segment seg;
	u32 block, index;
	u64 had = *last, first;

	if (cow_slot_where(meta, places->first, &seg, &block, &index))
		return 0;
	first = seg.first_block + block;
	if (cow_slot_where(meta, places->first + places->nr - 1, &seg, &block, &index))
		return 0;
	*last = seg.first_block + block;
	return *last - first + (first != had);
}

/*
 * The blocks of the first places are in memory and stay there, until let_go(). Returns of how many,
 * or why there is none: memory may come, and what cannot be read is the first place's alone. The
 * lock is not kept while one after the other is read: the engine's worker needs it.
 */
static int hold(struct cow_meta *meta, const struct cow_places *places, size_t nr)
{
	u64 last = U64_MAX;
	u32 blocks = 0;
	size_t i;
	int r = 0;

	for (i = 0; i < nr; i++) {
		blocks += more_blocks(meta, &places[i], &last);
		if (i && blocks > BLOCKS_AT_ONCE)
			break;
		mutex_lock(&meta->blocks_lock);
		r = cow_blocks_stay(meta, places[i].first, places[i].nr);
		mutex_unlock(&meta->blocks_lock);
		if (r)
			break;
	}
	return i ?: r == -ENOMEM ? r : -EUCLEAN;
}

/* Does somebody wait for this to end? */
static bool is_closing(const struct cow_store *store)
{
	return READ_ONCE(store->closing) || READ_ONCE(store->settle.stopped);
}

/* A number like that of a commit: a dump that was made before is older than the store. */
static int write_numbered(struct cow_meta *meta, const struct cow_places *places, size_t nr,
			  bool freed)
{
	meta->sequence++;
	return write_blocks(meta, places, nr, freed);
}

/*
 * Free on the disk and then in memory, or as they were. What fails to be written may be there or
 * not, and the whole block may be torn, so memory's content is written over it: the blocks stay
 * until then. A device may be gone for a while, but who closes the store does not wait for it.
 */
static int write_held(struct cow_meta *meta, const struct cow_places *places, size_t nr)
{
	unsigned int tries = PUT_RIGHT_TRIES;

	if (!write_numbered(meta, places, nr, true))
		return 0;
	while (write_numbered(meta, places, nr, false)) {
		if (!--tries || is_closing(meta->store))
			return -ENOTRECOVERABLE;
		schedule_timeout_uninterruptible(HZ);
	}
	return -EIO;
}

/* With the metadata acquired. Returns how many places, the first ones, or a negative errno. */
static int free_some(struct cow_meta *meta, const struct cow_places *places, size_t nr)
{
	int held = hold(meta, places, nr);
	int r;

	if (held < 0)
		return held;
	r = write_held(meta, places, held);
	mutex_lock(&meta->blocks_lock);
	if (!r)
		free_in_memory(meta, places, held);
	let_go(meta, places, held);
	mutex_unlock(&meta->blocks_lock);
	return r ?: held;
}

/* From now on nothing that is written anywhere would last: until the store is opened again. */
static void lose_track(struct cow_store *store)
{
	cow_meta_fence(store->meta);
	WRITE_ONCE(store->current_failed, true);
	DMERR("store %pg: a table cannot be written: now all writes of %pg fail", store->bdev,
	      store->origin->bdev);
	DMERR("store %pg: remove its tables and load them again", store->bdev);
}

int cow_places_compare(const void *a, const void *b)
{
	const struct cow_places *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

int cow_slots_free(struct cow_store *store, const struct cow_places *places, size_t nr)
{
	int r = -ENOTRECOVERABLE;

	cow_super_lock(store);
	if (!cow_meta_is_fenced(store->meta)) {
		r = free_some(store->meta, places, nr);
		if (r == -ENOTRECOVERABLE)
			lose_track(store);
	}
	cow_super_unlock(store);
	/* Unlocked and locked again, it would be acquired before the engine's worker looks. */
	if (r > 0 && r < nr)
		cow_meta_yield(store->meta);
	return r;
}

void cow_slots_stay(struct cow_store *store, int r)
{
	if (READ_ONCE(store->dead_left))
		return;
	WRITE_ONCE(store->dead_left, true);
	DMWARN("store %pg: old slots cannot be freed (%d): load its tables again to settle it",
	       store->bdev, r);
}

/* How often something may still fail. */
struct patience {
	unsigned int memory, unread;
};

/* Returns how many of the first places are dealt with, 0: try again. Else why the others stay. */
static int free_dead(struct cow_store *store, const struct cow_places *places, size_t nr,
		     struct patience *left)
{
	int r = cow_slots_free(store, places, nr);

	if (r > 0)
		left->unread = UNREAD_MOST;
	/* The others are in other blocks, or there is nothing else wrong with them. */
	if (r == -EUCLEAN) {
		cow_slots_stay(store, r);
		return --left->unread && !READ_ONCE(store->closing) ? 1 : r;
	}
	if (r != -ENOMEM || READ_ONCE(store->closing) || !--left->memory)
		return r;
	/* Commits free some in between. */
	schedule_timeout_uninterruptible(MEMORY_JIFFIES);
	return 0;
}

void cow_slots_free_dead(struct cow_store *store, const struct cow_places *places, size_t nr)
{
	struct patience left = { .memory = MEMORY_TRIES, .unread = UNREAD_MOST };
	int r;

	while (nr) {
		r = free_dead(store, places, nr, &left);
		if (r < 0) {
			cow_slots_stay(store, r);
			return;
		}
		places += r;
		nr -= r;
	}
}

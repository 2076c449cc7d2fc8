// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: slots of table blocks are found, read and filled in
 *
 * A slot describes one chunk of the store. Slots are changed in memory. A block that has
 * changed is dirty and gets a ticket; the commit that reaches the ticket writes it.
 */
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "copy/pending.h"
#include "disk/blocks.h"
#include "disk/private.h"
#include "disk/slots.h"
#include "store/store.h"

/* The commit under way writes what it has sealed: it keeps that buffer, and @b gets a copy. */
static void block_leave_commit(struct cow_meta *meta, struct cow_block *b)
{
	if (!b->spare)
		return;
	memcpy(*b->spare, b->data, meta->geometry.block_bytes);
	swap(*b->spare, b->data);
	b->spare = NULL;
}

void cow_block_settle(struct cow_block *b)
{
	u32 i;

	for (i = b->fresh_from; i < b->fresh_to; i++)
		cowsnap_slot_set_fresh(cow_block_slot(b, i), false);
	b->fresh_from = U32_MAX;
	b->fresh_to = 0;
}

void cow_block_dirty(struct cow_meta *meta, struct cow_block *b)
{
	lockdep_assert_held(&meta->blocks_lock);
	if (b->ticket)
		return;
	block_leave_commit(meta, b);
	cow_block_settle(b);
	b->ticket = ++meta->last_ticket;
	cow_meta_note_used(meta, b->number);
	list_move_tail(&b->lru, &meta->dirty);
}

static void slot_make_fresh(struct cow_block *b, u32 index)
{
	cowsnap_slot_set_fresh(cow_block_slot(b, index), true);
	b->fresh_from = min(b->fresh_from, index);
	b->fresh_to = max(b->fresh_to, index + 1);
}

static const u8 slot_of_kind[] = {
	[COW_COPIED] = COWSNAP_SLOT_COPIED,
	[COW_ZERO] = COWSNAP_SLOT_ZERO,
	[COW_PRIVATE] = COWSNAP_SLOT_PRIVATE,
	[COW_PRIVATE_ZERO] = COWSNAP_SLOT_PRIVATE_ZERO,
	[COW_CURRENT] = COWSNAP_SLOT_CURRENT,
	[COW_CURRENT_ZERO] = COWSNAP_SLOT_CURRENT_ZERO,
};

int cow_slot_where(struct cow_meta *meta, u64 place, struct cowsnap_segment *seg,
		   u32 *block, u32 *index)
{
	cowsnap_get_segment(&meta->geometry,
			    cowsnap_find_segment(&meta->geometry, place), seg);
	if (place < seg->data)
		return -ERANGE;
	cowsnap_find_slot(&meta->geometry, seg, place - seg->data, block, index);
	return 0;
}

/* Most slots are looked for in the block of the one before: places are used in their order. */
static bool slot_is_near(const struct cow_meta *meta, u64 place)
{
	lockdep_assert_held(&meta->blocks_lock);
	return meta->found && place >= meta->found_place &&
	       place - meta->found_place <
	       cowsnap_block_slots(&meta->geometry, meta->found->number);
}

int cow_slot_find(struct cow_meta *meta, u64 place, bool ahead, struct cow_block **b,
		  u32 *index)
{
	struct cowsnap_segment seg;
	u32 block;
	int r;

	if (slot_is_near(meta, place)) {
		*b = meta->found;
		*index = place - meta->found_place;
		return 0;
	}
	r = cow_slot_where(meta, place, &seg, &block, index) ?:
	    cow_block_get(meta, &seg, block, ahead, b);
	if (!r) {
		meta->found = *b;
		meta->found_place = place - *index;
	}
	return r;
}

static u32 chunk_crc(struct cow_meta *meta, const struct cow_pending *p,
		     struct cow_job *job, u64 i)
{
	const struct cow_store *store = meta->store;

	return cow_job_crc(job, p->offset_sectors + cow_chunk_to_sector(store, i),
			   store->chunk_sectors,
			   cow_meta_seed(meta, cow_chunk_to_sector(store, p->place + i)));
}

void cow_slot_fill(struct cow_meta *meta, struct cow_pending *p, struct cow_job *job, u64 i,
		   struct cowsnap_slot *slot)
{
	enum cow_kind kind = p->nr_zero && test_bit(i, p->zero) ? COW_ZERO : p->kind;
	/* That of CURRENT counts in records alone: by the tables its data is durable already. */
	bool has_crc = kind == COW_COPIED || (kind == COW_CURRENT && job);
	u32 crc = has_crc ? chunk_crc(meta, p, job, i) : 0;

	cowsnap_slot_set(slot, p->first + i, p->epoch, slot_of_kind[kind], crc);
}

/* Fill in the slot of chunk @i of the run. */
static void pending_fill_slot(struct cow_meta *meta, struct cow_pending *p,
			      struct cow_job *job, u64 i, struct cow_block *b, u32 index)
{
	cow_slot_fill(meta, p, job, i, cow_block_slot(b, index));
	if (!cow_kind_needs_data(p->kind))
		slot_make_fresh(b, index);
}

int cow_slots_put(struct cow_meta *meta, u64 place, const struct cowsnap_slot *slot, u32 nr)
{
	struct cowsnap_segment seg;
	struct cow_block *b = NULL;
	u32 block, index;

	lockdep_assert_held(&meta->blocks_lock);
	if (!cow_slot_where(meta, place, &seg, &block, &index))
		b = cow_block_find(meta, seg.first_block + block);
	if (WARN_ON_ONCE(!b))
		return -EIO;
	nr = min(nr, cowsnap_block_slots(&meta->geometry, b->number) - index);
	block_leave_commit(meta, b);
	memcpy(cow_block_slot(b, index), slot, nr * sizeof(*slot));
	b->logged = true;
	cow_meta_note_used(meta, b->number);
	cow_block_seal_again(meta, b);
	return nr;
}

/*
 * Get the block with the slot of chunk @i of the run, and make it dirty, so that it stays in
 * memory. Its slots from *@index on are for that chunk and *@nr - 1 more.
 */
static int pending_hold_block(struct cow_meta *meta, struct cow_pending *p, u64 i,
			      struct cow_block **b, u32 *index, u64 *nr)
{
	int r = cow_slot_find(meta, p->place + i, false, b, index);

	if (r)
		return r;
	cow_block_dirty(meta, *b);
	p->ticket = max(p->ticket, (*b)->ticket);
	*nr = min_t(u64, p->last - p->first + 1 - i,
		    cowsnap_block_slots(&meta->geometry, (*b)->number) - *index);
	return 0;
}

int cow_slots_fill(struct cow_meta *meta, struct cow_pending *p,
		   struct cow_job *job)
{
	u64 i, j, nr, total = p->last - p->first + 1;
	struct cow_block *b;
	u32 index;
	int r = 0;

	lockdep_assert_held(&meta->blocks_lock);
	for (i = 0; i < total && !r; i += nr)
		r = pending_hold_block(meta, p, i, &b, &index, &nr);
	for (i = 0; i < total && !r; i += nr) {
		/* Most runs need one block, which has been found already. */
		if (nr < total)
			r = pending_hold_block(meta, p, i, &b, &index, &nr);
		for (j = 0; j < nr && !r; j++)
			pending_fill_slot(meta, p, job, i + j, b, index + j);
	}
	return r;
}

/* Read the slot from the disk, if memory has no room for its block. */
static int slot_read_past(struct cow_meta *meta, u64 place, struct cowsnap_slot *slot)
{
	struct cow_block b = { .data = meta->read_buffer };
	struct cowsnap_segment seg;
	u32 block, index;
	int r = cow_slot_where(meta, place, &seg, &block, &index);

	if (r)
		return r;
	b.number = seg.first_block + block;
	b.sector = cowsnap_block_sector(&meta->geometry, &seg, block);
	r = cow_blocks_read(meta, &seg, block, 1, b.data);
	if (r)
		return r;
	if (!cow_meta_mend_block(meta, b.number, b.sector, b.data))
		return -EBADMSG;
	*slot = *cow_block_slot(&b, index);
	return 0;
}

int cow_meta_read_slot(struct cow_meta *meta, u64 place, struct cowsnap_slot *slot)
{
	struct cow_block *b;
	u32 index;
	int r;

	mutex_lock(&meta->blocks_lock);
	r = cow_slot_find(meta, place, true, &b, &index);
	if (!r)
		*slot = *cow_block_slot(b, index);
	else if (r == -ENOMEM)
		r = slot_read_past(meta, place, slot);
	mutex_unlock(&meta->blocks_lock);
	return r;
}

/* ------------------------------------------------------------ many, without the lock */

struct cow_slot_window {
	struct cowsnap_segment seg;
	u32 block, nr;			/* @nr blocks of @seg from @block on; 0: none */
	unsigned long sound;		/* those of them with the right checksum */
	/* Read by bios: whole sectors lie in one page. */
	u8 data[] __aligned(COWSNAP_MAX_BLOCK_BYTES);
};

struct cow_slot_window *cow_slot_window_alloc(const struct cow_meta *meta)
{
	struct cow_slot_window *w = kvmalloc(sizeof(*w) + (size_t)COW_READ_AHEAD *
					     meta->geometry.block_bytes, GFP_KERNEL);

	if (w)
		w->nr = 0;
	return w;
}

static bool window_has(const struct cow_slot_window *w, const struct cowsnap_segment *seg,
		       u32 block)
{
	return w->nr && w->seg.first_block == seg->first_block && block >= w->block &&
	       block - w->block < w->nr;
}

/* Commits may write some of these meanwhile: one that is torn, or damaged, is not sound. */
static void window_read(struct cow_meta *meta, struct cow_slot_window *w,
			const struct cowsnap_segment *seg, u32 block)
{
	u32 bytes = meta->geometry.block_bytes, i;

	w->seg = *seg;
	w->block = block;
	w->nr = cow_blocks_ahead(meta, seg, block);
	w->sound = 0;
	if (cow_blocks_read(meta, seg, block, w->nr, w->data))
		return;
	for (i = 0; i < w->nr; i++)
		if (cow_meta_block_is_sound(meta, seg->first_block + block + i,
					    cowsnap_block_sector(&meta->geometry, seg, block + i),
					    w->data + (size_t)i * bytes))
			__set_bit(i, &w->sound);
}

/* What memory has is newer. */
static bool read_cached(struct cow_meta *meta, u64 number, u32 index, struct cowsnap_slot *slot)
{
	struct cow_block *b;

	mutex_lock(&meta->blocks_lock);
	b = cow_block_find(meta, number);
	if (b)
		*slot = *cow_block_slot(b, index);
	mutex_unlock(&meta->blocks_lock);
	return b;
}

bool cow_slot_window_read(struct cow_meta *meta, u64 place, struct cow_slot_window *w,
			  struct cowsnap_slot *slot)
{
	struct cow_block b = {};
	struct cowsnap_segment seg;
	u32 block, index;

	if (cow_slot_where(meta, place, &seg, &block, &index))
		return false;
	b.number = seg.first_block + block;
	if (read_cached(meta, b.number, index, slot))
		return true;
	if (b.number >= READ_ONCE(meta->store->space.blocks))
		return false;
	if (!window_has(w, &seg, block))
		window_read(meta, w, &seg, block);
	if (!test_bit(block - w->block, &w->sound))
		return false;
	b.data = w->data + (size_t)(block - w->block) * meta->geometry.block_bytes;
	*slot = *cow_block_slot(&b, index);
	return true;
}

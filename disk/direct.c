// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: metadata that is written at once, not by a commit
 *
 * All of it is written with the metadata acquired (cow_meta_acquire()): no commit is
 * under way, and none begins. Superblocks share their blocks with slots, so those
 * blocks are written as a whole.
 */
#include <linux/crc32c.h>
#include <linux/module.h>

#include "dm-cowsnap.h"
#include "disk/blocks.h"
#include "disk/commit.h"
#include "disk/direct.h"
#include "disk/private.h"
#include "disk/slots.h"

/* A dirty block may be written, as @data, before its commit: then its header names that commit. */
static void block_seal_now(struct cow_meta *meta, struct cow_block *b, void *data)
{
	lockdep_assert_held(&meta->blocks_lock);
	if (b->ticket)
		cow_meta_seal(meta, b->number, b->sector, data, meta->sequence + 1,
			      meta->durable);
}

static int block_write_now(struct cow_meta *meta, struct cow_block *b, void *data)
{
	return cow_meta_write(meta, REQ_PREFLUSH | REQ_FUA, b->sector, data,
			      meta->geometry.block_bytes);
}

int cow_meta_write_slot(struct cow_meta *meta, u64 place, enum cowsnap_slot_kind kind,
			u64 chunk)
{
	struct cowsnap_slot *slot, old;
	struct cow_block *b;
	u32 index;
	int r;

	mutex_lock(&meta->blocks_lock);
	r = cow_slot_find(meta, place, false, &b, &index);
	if (!r) {
		cow_block_dirty(meta, b);
		slot = cow_block_slot(b, index);
		old = *slot;
		cowsnap_slot_set(slot, chunk, 0, kind, 0);
		block_seal_now(meta, b, b->data);
		r = block_write_now(meta, b, b->data);
		if (r) {
			*slot = old;
			r = -EIO;
		}
	}
	mutex_unlock(&meta->blocks_lock);
	return r;
}

/* The first slots of the run that are in one block. Returns how many, or a negative errno. */
static int write_in_block(struct cow_meta *meta, u64 place, u32 nr,
			  enum cowsnap_slot_kind kind, u64 index, u32 series)
{
	struct cow_block *b;
	u32 first, i;
	int r = cow_slot_find(meta, place, false, &b, &first);

	if (r)
		return r;
	nr = min(nr, cowsnap_block_slots(&meta->geometry, b->number) - first);
	cow_block_dirty(meta, b);
	for (i = 0; i < nr; i++)
		cowsnap_slot_set(cow_block_slot(b, first + i), index + i, series, kind, 0);
	block_seal_now(meta, b, b->data);
	r = block_write_now(meta, b, b->data);
	return r ? -EIO : nr;
}

int cow_meta_write_slots(struct cow_meta *meta, u64 place, u32 nr,
			 enum cowsnap_slot_kind kind, u64 index, u32 series)
{
	int r = 0;

	mutex_lock(&meta->blocks_lock);
	while (nr && r >= 0) {
		r = write_in_block(meta, place, nr, kind, index, series);
		if (r > 0) {
			place += r;
			index += r;
			nr -= r;
		}
	}
	mutex_unlock(&meta->blocks_lock);
	return min(r, 0);
}

/*
 * Write @b with the numbers that it has, and with its slots as fresh as they are. Of the two blocks
 * with superblocks one is durable before the other is written: a cut never tears both.
 */
static int block_rewrite(struct cow_meta *meta, struct cow_block *b)
{
	const struct cowsnap_block_header *header = cow_block_header(b->number, b->data);
	blk_opf_t alone = b->pinned ? REQ_PREFLUSH | REQ_FUA : 0;

	cow_meta_seal(meta, b->number, b->sector, b->data, le64_to_cpu(header->sequence),
		      le64_to_cpu(header->durable));
	return cow_meta_write(meta, alone, b->sector, b->data, meta->geometry.block_bytes);
}

/* Write the first slots of @slots that are in one block. Returns how many, or -errno. */
static int set_in_block(struct cow_meta *meta, const struct cow_placed_slot *slots, size_t nr)
{
	struct cowsnap_segment seg;
	struct cow_block *b = NULL;
	u32 block, index;
	size_t i;
	int r;

	for (i = 0; i < nr; i++) {
		r = cow_slot_where(meta, slots[i].place, &seg, &block, &index);
		if (!r && b && b->number != seg.first_block + block)
			break;
		if (!r && !b)
			r = cow_block_get(meta, &seg, block, false, &b);
		if (r)
			return r;
		*cow_block_slot(b, index) = slots[i].slot;
	}
	cow_meta_note_used(meta, b->number);
	r = block_rewrite(meta, b);
	return r ?: i;
}

int cow_meta_set_slots(struct cow_meta *meta, const struct cow_placed_slot *slots, size_t nr)
{
	int r = 0;

	mutex_lock(&meta->blocks_lock);
	while (nr) {
		r = set_in_block(meta, slots, nr);
		if (r < 0)
			break;
		slots += r;
		nr -= r;
	}
	mutex_unlock(&meta->blocks_lock);
	return min(r, 0);
}

int cow_meta_keep_slots(struct cow_meta *meta, const struct cow_placed_slot *slots, size_t nr)
{
	size_t i;
	int r = 0;

	mutex_lock(&meta->blocks_lock);
	for (i = 0; i < nr && !r; i++) {
		r = cow_blocks_stay(meta, slots[i].place, 1);
		if (!r)
			r = min(cow_slots_put(meta, slots[i].place, &slots[i].slot, 1), 0);
	}
	mutex_unlock(&meta->blocks_lock);
	return r;
}

void cow_meta_seal_super_blocks(struct cow_meta *meta)
{
	u64 number;

	mutex_lock(&meta->blocks_lock);
	for (number = 0; number < 2; number++) {
		struct cow_block *b = cow_block_find(meta, number);

		cow_meta_seal(meta, number, b->sector, b->data, 0, 0);
	}
	mutex_unlock(&meta->blocks_lock);
}

/* Put @super, as the copy in front of block @b, into @data. */
static void super_put(struct cow_meta *meta, struct cow_block *b,
		      const struct cowsnap_super *super, void *data)
{
	struct cowsnap_super *copy = data;

	*copy = *super;
	copy->crc = cpu_to_le32(cowsnap_super_crc(copy, b->sector));
}

/*
 * The lock is not held while the disk writes: slots that are durable by the log come into the block
 * meanwhile, and who puts them there has writers waiting.
 */
static int super_write_copy(struct cow_meta *meta, u64 number,
			    const struct cowsnap_super *super)
{
	struct cow_block *b;
	int r;

	mutex_lock(&meta->blocks_lock);
	b = cow_block_find(meta, number);
	memcpy(meta->scratch, b->data, meta->geometry.block_bytes);
	super_put(meta, b, super, meta->scratch);
	block_seal_now(meta, b, meta->scratch);
	mutex_unlock(&meta->blocks_lock);
	r = block_write_now(meta, b, meta->scratch);
	if (r)
		DMERR_LIMIT("store %pg: the superblock at sector %llu cannot be written (%d)",
			    meta->store->bdev, (u64)b->sector, r);
	return r;
}

int cow_meta_write_super(struct cow_meta *meta, const struct cowsnap_super *super)
{
	u64 number;
	int r[2];

	/* One after the other: if one is torn, the other is whole. */
	for (number = 0; number < 2; number++) {
		if (number)
			cow_meta_breathe(meta);
		r[number] = super_write_copy(meta, number, super);
	}
	mutex_lock(&meta->blocks_lock);
	/* What is not on the disk is not written by a later commit either. */
	for (number = 0; number < 2 && (!r[0] || !r[1]); number++) {
		struct cow_block *b = cow_block_find(meta, number);

		super_put(meta, b, super, b->data);
	}
	mutex_unlock(&meta->blocks_lock);
	return r[0] && r[1] ? r[0] : 0;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: table blocks in memory */
#ifndef DM_COWSNAP_DISK_BLOCKS_H
#define DM_COWSNAP_DISK_BLOCKS_H

#include "dm-cowsnap.h"

struct cow_block;
struct cow_meta;

/* The seed for what stands at @sector of the store. Any context. */
u32 cow_meta_seed(const struct cow_meta *meta, sector_t sector);

/* The store's uuid is known, or has changed. Nothing else uses the store meanwhile. */
void cow_meta_make_seeds(struct cow_meta *meta);

/* Fill in header and crc of table block @number in @data. */
void cow_meta_seal(const struct cow_meta *meta, u64 number, sector_t sector, void *data,
		   u64 sequence, u64 durable);

/*
 * Its slots have changed outside of a commit: a block that is not dirty keeps its numbers, and its
 * crc is right again. meta->blocks_lock held.
 */
void cow_block_seal_again(const struct cow_meta *meta, struct cow_block *b);

/*
 * Has this table block the right crc; the second one: perhaps after turning back one flipped bit?
 * Any context.
 */
bool cow_meta_block_is_sound(const struct cow_meta *meta, u64 number, sector_t sector, void *data);
bool cow_meta_mend_block(const struct cow_meta *meta, u64 number, sector_t sector,
			 void *data);

/* Block @number has slots, so it is not known to be empty. While loading, or with the lock. */
void cow_meta_note_used(struct cow_meta *meta, u64 number);

/* Keep table block 0 or 1 in memory, as loading has found it. */
void cow_meta_keep_block(struct cow_meta *meta, u64 number, const void *data);

/*
 * Table block @number, which stands at @sector, has been read: have it in memory, if there is room,
 * so that it is not read again when a slot of it is looked at, or changes. While loading.
 */
void cow_meta_offer_block(struct cow_meta *meta, u64 number, sector_t sector, const void *data);

/* The block with this number, if it is in memory. meta->blocks_lock held. */
struct cow_block *cow_block_find(struct cow_meta *meta, u64 number);

/* A new block, on no list. NULL: no memory. */
struct cow_block *cow_block_alloc(struct cow_meta *meta, gfp_t gfp);
void cow_block_free(struct cow_meta *meta, struct cow_block *b);

/*
 * @b is in no commit any more: it is clean, or stays in memory. meta->blocks_lock held.
 */
void cow_block_put_away(struct cow_meta *meta, struct cow_block *b);

/*
 * The table blocks with the slots of @nr places of one segment, from @place on, stay in memory
 * until they are let go, once for each call. 0, or a negative errno with nothing changed.
 * meta->blocks_lock held, may sleep.
 */
int cow_blocks_stay(struct cow_meta *meta, u64 place, u32 nr);
void cow_blocks_let_go(struct cow_meta *meta, u64 place, u32 nr);

/* Blocks of the segment from @block on, as they stand on the disk. May sleep. */
int cow_blocks_read(struct cow_meta *meta, const struct cowsnap_segment *seg, u32 block,
		    u32 nr, void *buffer);

/* How many are read at once where a table is walked through: of this one that are made ready. */
u32 cow_blocks_ahead(const struct cow_meta *meta, const struct cowsnap_segment *seg, u32 block);

/*
 * Have table block @block of the segment in memory; @ahead: and some of those behind
 * it. -ENOMEM: all blocks are in the commit under way or the next; when a commit has
 * ended there is one. -ERANGE: it is not in use. -EIO, -EBADMSG. meta->blocks_lock held, may
 * sleep.
 */
int cow_block_get(struct cow_meta *meta, const struct cowsnap_segment *seg, u32 block,
		  bool ahead, struct cow_block **out);

#endif

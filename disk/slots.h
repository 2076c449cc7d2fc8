/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: slots of table blocks are found, read and filled in */
#ifndef DM_COWSNAP_DISK_SLOTS_H
#define DM_COWSNAP_DISK_SLOTS_H

#include "dm-cowsnap.h"

struct cow_block;
struct cow_job;
struct cow_meta;
struct cow_pending;
struct cow_slot_window;

/* The slot of @place. May sleep; -EIO, -EBADMSG, -ENOMEM. */
int cow_meta_read_slot(struct cow_meta *meta, u64 place, struct cowsnap_slot *slot);

/*
 * Table blocks as they stood on the disk when they were read, for one task that asks for many slots
 * in the order of their places. Freed with kvfree(). May sleep; NULL without memory.
 */
struct cow_slot_window *cow_slot_window_alloc(const struct cow_meta *meta);

/*
 * The slot of @place, without the lock that commits need while the disk is read. So it may be an
 * older one: it counts only if it is what the caller expects. False: it could not be read. Then, or
 * if it is another one, cow_meta_read_slot() tells. May sleep.
 */
bool cow_slot_window_read(struct cow_meta *meta, u64 place, struct cow_slot_window *window,
			  struct cowsnap_slot *slot);

/* The slots of @b are durable, so none is fresh any more. meta->blocks_lock held. */
void cow_block_settle(struct cow_block *b);

/*
 * @b will be in the next commit. Its present slots will be durable when that begins, so only
 * slots that are added from now on are fresh. meta->blocks_lock held.
 */
void cow_block_dirty(struct cow_meta *meta, struct cow_block *b);

/* Where the slot of @place is. 0 or -ERANGE. */
int cow_slot_where(struct cow_meta *meta, u64 place, struct cowsnap_segment *seg,
		   u32 *block, u32 *index);

/* The same, with its block in memory: see cow_block_get(). */
int cow_slot_find(struct cow_meta *meta, u64 place, bool ahead, struct cow_block **b,
		  u32 *index);

/* What chunk @i of @pending, whose data is in @job, has in @slot. It is not fresh. */
void cow_slot_fill(struct cow_meta *meta, struct cow_pending *pending, struct cow_job *job,
		   u64 i, struct cowsnap_slot *slot);

/*
 * Put the slots of @nr places from @place on, which are durable elsewhere, into the first of their
 * table blocks. It is in memory and stays there. Returns how many fitted, or a negative errno.
 * meta->blocks_lock held.
 */
int cow_slots_put(struct cow_meta *meta, u64 place, const struct cowsnap_slot *slot, u32 nr);

/*
 * Fill in the slots of @pending, whose data is in @job (NULL: it is durable already). All
 * blocks that the run needs are held before the first slot is filled in:
 * a commit must not take a part of a run that has not joined. meta->blocks_lock held, may
 * sleep.
 */
int cow_slots_fill(struct cow_meta *meta, struct cow_pending *pending,
		   struct cow_job *job);

#endif

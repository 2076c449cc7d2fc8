/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: metadata that is written at once, not by a commit */
#ifndef DM_COWSNAP_DISK_DIRECT_H
#define DM_COWSNAP_DISK_DIRECT_H

#include "dm-cowsnap.h"

struct cow_meta;

/*
 * With the metadata acquired: write the slot of @place now and durably. On failure memory
 * has the old one, and the disk may have either (-ENOMEM: nothing was written). May sleep.
 */
int cow_meta_write_slot(struct cow_meta *meta, u64 place, enum cowsnap_slot_kind kind,
			u64 chunk);

/*
 * The same for @nr chunks from @place on, which hold the pieces of series @series from @index
 * on; each table block is written once. On failure some may have their slots: nothing speaks
 * of the series then.
 */
int cow_meta_write_slots(struct cow_meta *meta, u64 place, u32 nr,
			 enum cowsnap_slot_kind kind, u64 index, u32 series);

/*
 * With the metadata acquired: write both superblocks, one after the other. 0 if at least one
 * of them is durable; else the disk may have either, and later commits write the
 * old one. Changes the scratch. May sleep.
 */
int cow_meta_write_super(struct cow_meta *meta, const struct cowsnap_super *super);

/* A slot, and the place that it is for. */
struct cow_placed_slot {
	u64 place;
	struct cowsnap_slot slot;
};

/*
 * While loading, with the metadata acquired: write @nr slots, ascending by place. Each of their
 * blocks is written once, with its other slots and its header as they were. Not flushed. Returns 0
 * or a negative errno. May sleep.
 */
int cow_meta_set_slots(struct cow_meta *meta, const struct cow_placed_slot *slots, size_t nr);

/* The same in memory alone, where their blocks stay: the store may only be read. */
int cow_meta_keep_slots(struct cow_meta *meta, const struct cow_placed_slot *slots, size_t nr);

/* A new store: the slots that share blocks with the superblocks are empty. */
void cow_meta_seal_super_blocks(struct cow_meta *meta);

#endif

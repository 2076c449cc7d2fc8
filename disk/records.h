/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: records of snapshots, and the blocks they stand in */
#ifndef DM_COWSNAP_DISK_RECORDS_H
#define DM_COWSNAP_DISK_RECORDS_H

#include <linux/blkdev.h>
#include <linux/xarray.h>

#include "dm-cowsnap.h"
#include "store/snapshots.h"

struct cow_change;
struct cow_snap;
struct cow_store;

/*
 * Read chunk @index of records. Numbers of blocks that are damaged, or cannot be read, go
 * to @lost. Returns 0, or a negative errno with words in *@error. May sleep.
 */
int cow_super_read_records(struct cow_store *store, u64 index, struct xarray *lost,
			   char **error);

/* Make the snapshot that a record describes. On failure there are words in *@error. */
int cow_super_add_snap(struct cow_store *store, unsigned int number,
		       const struct cowsnap_record *record, char **error);

/* Chunks of records in the store. */
u64 cow_super_record_chunks(const struct cow_store *store);

/* The enum cowsnap_record_state of this state. */
u8 cow_record_state(enum cow_snap_state state);

/* Take over the values of @snap from memory. */
void cow_change_take_snap(struct cow_change *change, struct cow_snap *snap);

/* Fill in record @number: as @change has it, or else as memory has it. */
void cow_record_fill(const struct cow_change *change, unsigned int number,
		     struct cowsnap_record *record);

/* How many records a chunk of them holds. */
u32 cow_records_in_chunk(const struct cow_store *store);

/* Where chunk @index of records is. */
u64 cow_records_place(struct cow_store *store, u64 index);

/*
 * Write a block of records, with the metadata acquired. @flags: REQ_FUA and REQ_PREFLUSH if it
 * has to be durable by itself.
 */
int cow_records_write(const struct cow_change *change, u64 index, u32 block,
		      blk_opf_t flags);

/* Write the block with the record of @change->snap, durably. The same. */
int cow_record_write(const struct cow_change *change);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the metadata of a persistent store, set up and taken down */
#ifndef DM_COWSNAP_DISK_META_H
#define DM_COWSNAP_DISK_META_H

#include <linux/blkdev.h>

#include "dm-cowsnap.h"

struct cow_meta;
struct cow_store;

struct cow_meta_stats {
	u64 commits;
	u64 block_writes;		/* bios with table blocks */
	u64 records;			/* of the log */
	u64 checkpoints;		/* zones of the log that were left */
	u64 skipped;			/* chunks left free between records */
	u32 gap;			/* chunks: what was learned of records like the last one */
};

/* For a store with these sizes. NULL: no memory. May sleep. */
struct cow_meta *cow_meta_create(struct cow_store *store, unsigned int block_bytes);
void cow_meta_destroy(struct cow_meta *meta);
const struct cowsnap_geometry *cow_meta_geometry(const struct cow_meta *meta);
unsigned int cow_meta_block_bytes(const struct cow_meta *meta);

/* The uuid, from then on the seed of all checksums. */
void cow_meta_set_uuid(struct cow_meta *meta, const u8 *uuid);
const u8 *cow_meta_uuid(const struct cow_meta *meta);

/* Where loading found the numbers of commits to stand: the last one, and D. */
void cow_meta_set_sequence(struct cow_meta *meta, u64 sequence, u64 durable);
u64 cow_meta_durable(const struct cow_meta *meta);

/* Goes up whenever something more is durable: a commit, or a record of the log. Any context. */
u64 cow_meta_progress(const struct cow_meta *meta);
void cow_meta_read_stats(const struct cow_meta *meta, struct cow_meta_stats *out);

/* Memory for one block, the caller's while it holds the store's records_lock. */
void *cow_meta_scratch(struct cow_meta *meta);

/*
 * Room for *@nr table blocks, or as many as there is memory for: returns that in *@nr. NULL: for
 * none. To be freed with kvfree(). May sleep.
 */
u8 *cow_meta_alloc_blocks(struct cow_meta *meta, u32 *nr);

/* Commit nothing more. Any context. */
void cow_meta_fence(struct cow_meta *meta);
bool cow_meta_is_fenced(const struct cow_meta *meta);
/* The same of a store, which may be transient. Any context. */
bool cow_store_is_fenced(const struct cow_store *store);

#endif

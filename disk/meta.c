// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the metadata of a persistent store, set up and taken down
 */
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "disk/blocks.h"
#include "disk/meta.h"
#include "disk/private.h"

/* Table blocks are written so many bytes at a time: each write may take a turn of the disk. */
#define TABLE_BYTES	(256U << 10)

void *cow_meta_scratch(struct cow_meta *meta)
{
	return meta->scratch;
}

u8 *cow_meta_alloc_blocks(struct cow_meta *meta, u32 *nr)
{
	u32 bytes = meta->geometry.block_bytes;
	u8 *blocks;

	for (*nr = min(*nr, TABLE_BYTES / bytes); *nr > 1; *nr /= 2) {
		blocks = kvmalloc_array(*nr, bytes, GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
		if (blocks)
			return blocks;
	}
	return NULL;
}

void cow_meta_fence(struct cow_meta *meta)
{
	WRITE_ONCE(meta->failed, true);
}

bool cow_meta_is_fenced(const struct cow_meta *meta)
{
	return READ_ONCE(meta->failed);
}

bool cow_store_is_fenced(const struct cow_store *store)
{
	return store->meta && cow_meta_is_fenced(store->meta);
}

const struct cowsnap_geometry *cow_meta_geometry(const struct cow_meta *meta)
{
	return &meta->geometry;
}

unsigned int cow_meta_block_bytes(const struct cow_meta *meta)
{
	return meta->geometry.block_bytes;
}

void cow_meta_set_uuid(struct cow_meta *meta, const u8 *uuid)
{
	memcpy(meta->uuid, uuid, sizeof(meta->uuid));
	cow_meta_make_seeds(meta);
}

const u8 *cow_meta_uuid(const struct cow_meta *meta)
{
	return meta->uuid;
}

void cow_meta_set_sequence(struct cow_meta *meta, u64 sequence, u64 durable)
{
	meta->sequence = sequence;
	meta->durable = durable;
}

u64 cow_meta_durable(const struct cow_meta *meta)
{
	return READ_ONCE(meta->durable);
}

u64 cow_meta_progress(const struct cow_meta *meta)
{
	return READ_ONCE(meta->durable) + READ_ONCE(meta->log.nr_durable);
}

void cow_meta_read_stats(const struct cow_meta *meta, struct cow_meta_stats *out)
{
	*out = meta->stats;
}

/* The first two blocks hold the superblocks and are always in memory. */
static bool pin_super_blocks(struct cow_meta *meta)
{
	u64 number;

	for (number = 0; number < 2; number++) {
		struct cow_block *b = cow_block_alloc(meta, GFP_KERNEL);

		if (!b)
			return false;
		memset(b->data, 0, meta->geometry.block_bytes);
		b->pinned = true;
		b->number = number;
		b->sector = number * (meta->geometry.block_bytes >> SECTOR_SHIFT);
		hash_add(meta->hash, &b->hash, number);
	}
	return true;
}

static bool reserve_blocks(struct cow_meta *meta)
{
	unsigned int i;

	for (i = 0; i < RESERVE_BLOCKS; i++) {
		struct cow_block *b = cow_block_alloc(meta, GFP_KERNEL);

		if (!b)
			return false;
		list_add(&b->lru, &meta->clean);
	}
	return true;
}

static bool alloc_buffers(struct cow_meta *meta)
{
	unsigned int i;

	meta->scratch = kmalloc(meta->geometry.block_bytes, GFP_KERNEL);
	meta->read_buffer = kmalloc(meta->geometry.block_bytes, GFP_KERNEL);
	if (!meta->scratch || !meta->read_buffer)
		return false;
	for (i = 0; i < COWSNAP_COMMIT_BLOCKS; i++) {
		meta->out[i] = kmalloc(meta->geometry.block_bytes, GFP_KERNEL);
		if (!meta->out[i])
			return false;
	}
	return true;
}

struct cow_meta *cow_meta_create(struct cow_store *store, unsigned int block_bytes)
{
	struct cow_meta *meta = kvzalloc(sizeof(*meta), GFP_KERNEL);
	unsigned int i;

	if (!meta)
		return NULL;
	meta->store = store;
	/* The first two are always in memory. */
	meta->unused = 2;
	mutex_init(&meta->blocks_lock);
	hash_init(meta->hash);
	INIT_LIST_HEAD(&meta->clean);
	INIT_LIST_HEAD(&meta->stay);
	INIT_LIST_HEAD(&meta->dirty);
	INIT_LIST_HEAD(&meta->writing);
	INIT_LIST_HEAD(&meta->work_node);
	INIT_LIST_HEAD(&meta->members);
	INIT_LIST_HEAD(&meta->retry);
	meta->log.again = jiffies;
	meta->log.turned = jiffies - HZ;
	for (i = 0; i < COWSNAP_ZONES; i++)
		INIT_LIST_HEAD(&meta->log.zone[i].under_way);
	init_waitqueue_head(&meta->wait);
	if (cowsnap_geometry_init(&meta->geometry, block_bytes, store->chunk_sectors) ||
	    bioset_init(&meta->bios, 16, 0, BIOSET_NEED_BVECS) ||
	    !pin_super_blocks(meta) || !reserve_blocks(meta) || !alloc_buffers(meta)) {
		cow_meta_destroy(meta);
		return NULL;
	}
	return meta;
}

void cow_meta_destroy(struct cow_meta *meta)
{
	struct cow_block *b, *more;
	struct hlist_node *next;
	unsigned int i, bucket;

	hash_for_each_safe(meta->hash, bucket, next, b, hash)
		cow_block_free(meta, b);
	list_for_each_entry_safe(b, more, &meta->clean, lru)
		cow_block_free(meta, b);
	for (i = 0; i < COWSNAP_COMMIT_BLOCKS; i++)
		kfree(meta->out[i]);
	kfree(meta->scratch);
	kfree(meta->read_buffer);
	bioset_exit(&meta->bios);
	kvfree(meta);
}

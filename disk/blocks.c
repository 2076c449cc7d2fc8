// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: table blocks in memory
 *
 * include/uapi/dm-cowsnap-format.h says what is on the disk. A block of a table is
 * read when a slot in it is needed, unless it is known to be empty, and kept for a
 * while. The caller of these functions holds meta->blocks_lock, unless the contract
 * says otherwise.
 *
 * Memory: blocks have a reserve. A pending for whose slots there is no block waits for
 * the commit under way, which frees some; readers do without a block.
 */
#include <linux/crc32c.h>
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "disk/blocks.h"
#include "disk/io.h"
#include "disk/mend.h"
#include "disk/private.h"

/* Blocks kept in memory; more only while more are dirty. */
#define CACHE_BLOCKS	512U

/*
 * What is read of the tables while a store is opened stays, so much of it: the rest is read when it
 * is needed. A block of 512 bytes has 31 slots.
 */
#define OFFERED_BYTES	(4U << 20)

/* ------------------------------------------------------------------ checksums */

/*
 * The crc of the sector's number on top of that of the uuid. Crcs are linear: each digit of the
 * number has a part of its own in it. A call of crc32c() would take longer than all of this.
 */
u32 cow_meta_seed(const struct cow_meta *meta, sector_t sector)
{
	u32 crc = meta->seed_of_0;
	unsigned int i;

	for (i = 0; sector; i++, sector >>= 4)
		crc ^= meta->seed_part[i][sector & 0xf];
	return crc;
}

static u32 location_crc(u32 crc, u64 sector)
{
	__le64 location = cpu_to_le64(sector);

	return crc32c(crc, &location, sizeof(location));
}

void cow_meta_make_seeds(struct cow_meta *meta)
{
	unsigned int i, digit;

	meta->seed_of_0 = location_crc(crc32c(~0U, meta->uuid, sizeof(meta->uuid)), 0);
	for (i = 0; i < COW_SEED_DIGITS; i++)
		for (digit = 0; digit < 16; digit++)
			meta->seed_part[i][digit] = location_crc(0, (u64)digit << (4 * i));
}

static u32 area_crc(const struct cow_meta *meta, u64 number, sector_t sector,
		    const void *data)
{
	unsigned int skip = cowsnap_area_offset(number) + sizeof(__le32);

	return crc32c(cow_meta_seed(meta, sector), data + skip,
		      meta->geometry.block_bytes - skip);
}

void cow_meta_seal(const struct cow_meta *meta, u64 number, sector_t sector, void *data,
		   u64 sequence, u64 durable)
{
	struct cowsnap_block_header *header = cow_block_header(number, data);

	if (!cowsnap_block_slots(&meta->geometry, number))
		return;
	header->blocks = cpu_to_le32(READ_ONCE(meta->store->space.blocks));
	header->sequence = cpu_to_le64(sequence);
	header->durable = cpu_to_le64(durable);
	header->crc = cpu_to_le32(area_crc(meta, number, sector, data));
}

void cow_block_seal_again(const struct cow_meta *meta, struct cow_block *b)
{
	const struct cowsnap_block_header *header = cow_block_header(b->number, b->data);

	lockdep_assert_held(&meta->blocks_lock);
	if (!b->ticket)
		cow_meta_seal(meta, b->number, b->sector, b->data,
			      le64_to_cpu(header->sequence), le64_to_cpu(header->durable));
}

bool cow_meta_block_is_sound(const struct cow_meta *meta, u64 number, sector_t sector, void *data)
{
	return area_crc(meta, number, sector, data) ==
	       le32_to_cpu(cow_block_header(number, data)->crc);
}

bool cow_meta_mend_block(const struct cow_meta *meta, u64 number, sector_t sector,
			 void *data)
{
	struct cowsnap_block_header *header = cow_block_header(number, data);
	unsigned int skip = cowsnap_area_offset(number) + sizeof(__le32);
	u32 crc = area_crc(meta, number, sector, data);

	if (crc == le32_to_cpu(header->crc))
		return true;
	if (!cow_crc_mend(data + skip, meta->geometry.block_bytes - skip, crc, &header->crc))
		return false;
	DMWARN_LIMIT("store %pg: one bit of the table at sector %llu was wrong",
		     meta->store->bdev, (u64)sector);
	return true;
}

/* --------------------------------------------------------------------- blocks */

struct cow_block *cow_block_find(struct cow_meta *meta, u64 number)
{
	struct cow_block *b;

	lockdep_assert_held(&meta->blocks_lock);
	hash_for_each_possible(meta->hash, b, hash, number)
		if (b->number == number)
			return b;
	return NULL;
}

struct cow_block *cow_block_alloc(struct cow_meta *meta, gfp_t gfp)
{
	struct cow_block *b = kzalloc(sizeof(*b), gfp);

	if (!b)
		return NULL;
	b->data = kmalloc(meta->geometry.block_bytes, gfp);
	if (!b->data) {
		kfree(b);
		return NULL;
	}
	INIT_HLIST_NODE(&b->hash);
	INIT_LIST_HEAD(&b->lru);
	meta->nr_blocks++;
	return b;
}

/* @b is the block of its number no longer. */
static void block_unhash(struct cow_meta *meta, struct cow_block *b)
{
	hash_del(&b->hash);
	if (meta->found == b)
		meta->found = NULL;
}

void cow_block_free(struct cow_meta *meta, struct cow_block *b)
{
	block_unhash(meta, b);
	list_del(&b->lru);
	meta->nr_blocks--;
	kfree(b->data);
	kfree(b);
}

/* @b holds nothing any more, so it is the next to be taken. */
static void block_forget(struct cow_meta *meta, struct cow_block *b)
{
	block_unhash(meta, b);
	list_move(&b->lru, &meta->clean);
}

/*
 * A block to be filled: one that holds nothing, a new one while the limit allows, or the
 * oldest clean one. NULL: all are in the commit under way or the next, and there is no
 * memory. When a commit has ended there is one.
 */
static struct cow_block *block_take(struct cow_meta *meta)
{
	struct cow_block *b = list_first_entry_or_null(&meta->clean, struct cow_block, lru);
	struct cow_block *more = NULL;

	if (!b || (meta->nr_blocks - meta->nr_stay < CACHE_BLOCKS && hash_hashed(&b->hash)))
		more = cow_block_alloc(meta, GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
	if (more || !b)
		return more;
	block_unhash(meta, b);
	list_del_init(&b->lru);
	return b;
}

static void block_keep(struct cow_meta *meta, struct cow_block *b, u64 number,
		       sector_t sector)
{
	b->number = number;
	b->sector = sector;
	b->ticket = 0;
	b->logged = false;
	b->fresh_from = 0;
	b->fresh_to = cowsnap_block_slots(&meta->geometry, number);
	hash_add(meta->hash, &b->hash, number);
	list_add_tail(&b->lru, &meta->clean);
}

int cow_blocks_read(struct cow_meta *meta, const struct cowsnap_segment *seg, u32 block,
		    u32 nr, void *buffer)
{
	return cow_meta_io(meta->store->bdev, REQ_OP_READ | REQ_META,
			   cowsnap_block_sector(&meta->geometry, seg, block), buffer,
			   (size_t)nr * meta->geometry.block_bytes);
}

/*
 * Read up to @nr blocks of the segment from @block on into the cache. -ENOMEM: see
 * block_take().
 */
static int block_read(struct cow_meta *meta, const struct cowsnap_segment *seg, u32 block,
		      u32 nr)
{
	u32 bytes = meta->geometry.block_bytes;
	u8 *large = nr == 1 ? NULL :
		    kmalloc_array(nr, bytes, GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
	u8 *buffer = large ?: meta->read_buffer;
	struct cow_block *b, *wanted = NULL;
	u32 i;
	int r;

	if (!large)
		nr = 1;
	r = cow_blocks_read(meta, seg, block, nr, buffer);
	/* A block that is read ahead may be unreadable. */
	if (r && nr > 1) {
		nr = 1;
		r = cow_blocks_read(meta, seg, block, nr, buffer);
	}
	for (i = 0; i < nr && !r; i++) {
		u64 number = seg->first_block + block + i;

		if (cow_block_find(meta, number))
			continue;
		/* Blocks that are read ahead must not push out the wanted one. */
		if (wanted && list_first_entry(&meta->clean, struct cow_block, lru) == wanted)
			break;
		b = block_take(meta);
		if (!b) {
			r = i ? 0 : -ENOMEM;
			break;
		}
		memcpy(b->data, buffer + (size_t)i * bytes, bytes);
		block_keep(meta, b, number,
			   cowsnap_block_sector(&meta->geometry, seg, block + i));
		if (!cow_meta_mend_block(meta, b->number, b->sector, b->data)) {
			block_forget(meta, b);
			r = i ? 0 : -EBADMSG;
			break;
		}
		wanted = wanted ?: b;
	}
	kfree(large);
	return r;
}

/* A block without slots since it was made ready need not be read. */
static int block_keep_empty(struct cow_meta *meta, u64 number, sector_t sector)
{
	struct cow_block *b = block_take(meta);

	if (!b)
		return -ENOMEM;
	memset(b->data, 0, meta->geometry.block_bytes);
	block_keep(meta, b, number, sector);
	return 0;
}

void cow_meta_note_used(struct cow_meta *meta, u64 number)
{
	u64 at = meta->unused;

	if (number >= at) {
		meta->unused = number + 1;
		for (at = max(at, meta->unused - min_t(u64, USED_WINDOW, meta->unused));
		     at < number; at++)
			__clear_bit(at % USED_WINDOW, meta->used);
	}
	if (number + USED_WINDOW >= meta->unused)
		__set_bit(number % USED_WINDOW, meta->used);
}

static bool block_is_empty(const struct cow_meta *meta, u64 number)
{
	return number >= meta->unused ||
	       (number + USED_WINDOW >= meta->unused &&
		!test_bit(number % USED_WINDOW, meta->used));
}

u32 cow_blocks_ahead(const struct cow_meta *meta, const struct cowsnap_segment *seg, u32 block)
{
	u32 ready = READ_ONCE(meta->store->space.blocks);
	u32 end = min_t(u64, seg->blocks, ready - seg->first_block);

	return min_t(u32, COW_READ_AHEAD, end - block);
}

int cow_block_get(struct cow_meta *meta, const struct cowsnap_segment *seg, u32 block,
		  bool ahead, struct cow_block **out)
{
	u64 number = seg->first_block + block;
	int r;

	lockdep_assert_held(&meta->blocks_lock);
	*out = cow_block_find(meta, number);
	if (!*out) {
		if (number >= READ_ONCE(meta->store->space.blocks))
			return -ERANGE;
		if (block_is_empty(meta, number))
			r = block_keep_empty(meta, number,
					     cowsnap_block_sector(&meta->geometry, seg, block));
		else
			r = block_read(meta, seg, block,
				       ahead ? cow_blocks_ahead(meta, seg, block) : 1);
		if (r)
			return r;
		*out = cow_block_find(meta, number);
		if (!*out)
			return -EBADMSG;
	} else if (!(*out)->ticket && !(*out)->pinned && !(*out)->nr_zones &&
		   READ_ONCE(meta->phase) != META_WRITING) {
		list_move_tail(&(*out)->lru, &meta->clean);
	}
	return 0;
}

/* ------------------------------------------------------------ blocks of zones */

void cow_block_put_away(struct cow_meta *meta, struct cow_block *b)
{
	lockdep_assert_held(&meta->blocks_lock);
	if (b->pinned)
		list_del_init(&b->lru);
	else
		list_move_tail(&b->lru, b->nr_zones ? &meta->stay : &meta->clean);
}

/* The reserve gets another block for one that stays. */
static int block_stays(struct cow_meta *meta, struct cow_block *b)
{
	struct cow_block *more;

	if (b->pinned || b->nr_zones) {
		b->nr_zones++;
		return 0;
	}
	more = cow_block_alloc(meta, GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
	if (!more)
		return -ENOMEM;
	list_add(&more->lru, &meta->clean);
	meta->nr_stay++;
	b->nr_zones++;
	if (!b->ticket && READ_ONCE(meta->phase) != META_WRITING)
		cow_block_put_away(meta, b);
	return 0;
}

/*
 * A block that stayed, and the one that stood in for it: one of them can go. It may be ->logged
 * still, if dead slots of a zone that is not named after all could not be cleared on the disk: then
 * the next zone there has it written, unless it has been read anew by then.
 */
static void block_goes(struct cow_meta *meta, struct cow_block *b)
{
	struct cow_block *spare;

	if (--b->nr_zones || b->pinned)
		return;
	meta->nr_stay--;
	if (!b->ticket && READ_ONCE(meta->phase) != META_WRITING)
		cow_block_put_away(meta, b);
	spare = list_first_entry_or_null(&meta->clean, struct cow_block, lru);
	if (spare)
		cow_block_free(meta, spare);
}

/* The blocks of @nr places, in order. Returns the first of them; *@end is behind the last. */
static u32 blocks_of(struct cow_meta *meta, u64 place, u32 nr, struct cowsnap_segment *seg,
		     u32 *end)
{
	const struct cowsnap_geometry *g = &meta->geometry;
	u32 first, index;

	cowsnap_get_segment(g, cowsnap_find_segment(g, place), seg);
	cowsnap_find_slot(g, seg, place + nr - 1 - seg->data, end, &index);
	++*end;
	cowsnap_find_slot(g, seg, place - seg->data, &first, &index);
	return first;
}

int cow_blocks_stay(struct cow_meta *meta, u64 place, u32 nr)
{
	struct cowsnap_segment seg;
	u32 end, first = blocks_of(meta, place, nr, &seg, &end), block;
	struct cow_block *b;
	int r = 0;

	lockdep_assert_held(&meta->blocks_lock);
	for (block = first; block < end && !r; block++) {
		r = cow_block_get(meta, &seg, block, true, &b);
		if (!r)
			r = block_stays(meta, b);
	}
	if (!r)
		return 0;
	/* The last one that was tried does not stay. */
	for (end = block - 1, block = first; block < end; block++)
		block_goes(meta, cow_block_find(meta, seg.first_block + block));
	return r;
}

void cow_blocks_let_go(struct cow_meta *meta, u64 place, u32 nr)
{
	struct cowsnap_segment seg;
	u32 end, block = blocks_of(meta, place, nr, &seg, &end);

	lockdep_assert_held(&meta->blocks_lock);
	for (; block < end; block++)
		block_goes(meta, cow_block_find(meta, seg.first_block + block));
}

void cow_meta_keep_block(struct cow_meta *meta, u64 number, const void *data)
{
	struct cow_block *b;

	mutex_lock(&meta->blocks_lock);
	b = cow_block_find(meta, number);
	memcpy(b->data, data, meta->geometry.block_bytes);
	b->fresh_from = 0;
	b->fresh_to = cowsnap_block_slots(&meta->geometry, number);
	mutex_unlock(&meta->blocks_lock);
}

void cow_meta_offer_block(struct cow_meta *meta, u64 number, sector_t sector, const void *data)
{
	struct cow_block *b = NULL;

	mutex_lock(&meta->blocks_lock);
	if (meta->nr_blocks < OFFERED_BYTES / meta->geometry.block_bytes &&
	    !cow_block_find(meta, number))
		b = cow_block_alloc(meta, GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);
	if (b) {
		memcpy(b->data, data, meta->geometry.block_bytes);
		block_keep(meta, b, number, sector);
	}
	mutex_unlock(&meta->blocks_lock);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: tables of a persistent store, and commits
 *
 * include/uapi/dm-cowsnap-format.h says what is on the disk. Here a block of a
 * table is read when a slot in it is needed, unless it is known to be empty, kept for
 * a while, changed in memory, and written by the next commit.
 *
 *   joined --> dirty blocks --> commit N: blocks and data written --> durable --> published
 *   (slots     in order of      in parallel, with FUA, or a flush
 *   filled in)  their tickets   at the end
 *
 * One commit is under way at a time; what joins meanwhile goes with the next one, so
 * the more is going on the more shares a commit. Copies of the blocks are written, so
 * that the blocks can change again at once. A pending that spans more blocks than one
 * commit takes waits for the commit with its last ticket.
 *
 * Promises kept here:
 *  I2  a pending is published only when its slots and its data are durable.
 *  I5  blocks name a commit durable only when it is; slots stay fresh until then.
 *
 * What a crash leaves: the blocks of the last commit in any mixture of old and new.
 * Their new slots are fresh and believed only where the data is there as well.
 *
 * Only the engine's worker joins and commits; whoever else writes metadata acquires it
 * first, which waits for the commit under way and keeps the next from starting.
 *
 * Memory. Blocks and bios have reserves. A pending for whose slots there is no block
 * waits for the commit under way, which frees some; readers do without a block.
 */
#include <linux/crc32c.h>
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "dm-cowsnap.h"
#include "dm-cowsnap-compat.h"

/* Blocks kept in memory; more only while more are dirty. */
#define CACHE_BLOCKS	512U

/* Of the last blocks in use it is known which of them are empty nevertheless. */
#define USED_WINDOW	256U

/* Of these so many are there from the start: more than one pending ever needs. */
#define RESERVE_BLOCKS	COWSNAP_COMMIT_BLOCKS

/* Blocks read at once when a table is walked through. */
#define READ_AHEAD	32U

/* A table block in memory. */
struct cow_block {
	struct hlist_node hash;
	struct list_head lru;		/* meta->clean, ->writing or ->dirty */
	u64 number;
	sector_t sector;
	u64 ticket;			/* 0: clean */
	bool pinned;
	u32 fresh_from, fresh_to;	/* slots that may be fresh, half open */
	u8 *data;
};

enum meta_phase {
	META_IDLE,
	META_WRITING,			/* a commit's blocks and data are under way */
	META_FLUSHING,			/* then the device's cache */
	META_ACQUIRED,			/* somebody else writes metadata */
};

struct cow_meta {
	struct cow_store *store;
	struct cowsnap_geometry geometry;
	u8 uuid[16];
	u32 uuid_seed;

	struct mutex lock;		/* blocks, and what is in them */
	DECLARE_HASHTABLE(hash, 8);
	struct list_head clean;		/* the one not used for longest first */
	struct list_head writing;	/* by the commit under way; may be dirty again */
	struct list_head dirty;		/* by ticket */
	unsigned int nr_blocks;
	u64 unused;			/* blocks made ready from this one on are empty, */
	DECLARE_BITMAP(used, USED_WINDOW);	/* and those just below but for these */
	u64 last_ticket;
	u8 *out[COWSNAP_COMMIT_BLOCKS];	/* what the commit under way writes */
	void *scratch;			/* a block of whoever has it acquired */
	void *read_buffer;		/* a block read, under lock */

	u64 sequence;			/* last commit begun */
	u64 durable;			/* last commit known durable */

	enum meta_phase phase;		/* by cmpxchg */
	wait_queue_head_t wait;		/* phase became META_IDLE */
	atomic_t acquirers;		/* wait for it: no commit starts before they had it */
	struct list_head work_node;	/* origin->meta_work */

	/* The commit under way. */
	atomic_t ios;
	blk_status_t status;
	u64 ticket;			/* last one that it writes */

	/* Engine's worker only. */
	struct list_head members;	/* pendings not durable yet, by ticket */
	struct list_head retry;		/* those for whose blocks there was no memory */
	bool failed;
	struct bio_set bios;
	struct cow_meta_stats stats;
};

/* ------------------------------------------------------------------- checksums */

u32 cow_meta_seed(const struct cow_meta *meta, sector_t sector)
{
	__le64 location = cpu_to_le64(sector);

	return crc32c(meta->uuid_seed, &location, sizeof(location));
}

static u32 area_crc(const struct cow_meta *meta, u64 number, sector_t sector,
		    const void *data)
{
	unsigned int skip = cowsnap_area_offset(number) + sizeof(__le32);

	return crc32c(cow_meta_seed(meta, sector), data + skip,
		      meta->geometry.block_bytes - skip);
}

static struct cowsnap_block_header *block_header(u64 number, void *data)
{
	return data + cowsnap_area_offset(number);
}

void cow_meta_seal(const struct cow_meta *meta, u64 number, sector_t sector, void *data,
		   u64 sequence, u64 durable)
{
	struct cowsnap_block_header *header = block_header(number, data);

	if (!cowsnap_block_slots(&meta->geometry, number))
		return;
	header->blocks = cpu_to_le32(READ_ONCE(meta->store->space.blocks));
	header->sequence = cpu_to_le64(sequence);
	header->durable = cpu_to_le64(durable);
	header->crc = cpu_to_le32(area_crc(meta, number, sector, data));
}

/* ------------------------------------------------------------------------- I/O */

/* Of all stores. The filesystems above may wait for these bios, so not fs_bio_set. */
static struct bio_set meta_bios;

/* Each caller has one bio at a time, so any reserve will do. */
#define META_BIOS	4

static struct page *buffer_page(void *at)
{
	return is_vmalloc_addr(at) ? vmalloc_to_page(at) : virt_to_page(at);
}

int cow_meta_io(struct block_device *bdev, blk_opf_t opf, sector_t sector, void *buffer,
		size_t bytes)
{
	int r = 0;

	while (bytes && !r) {
		unsigned int vecs = min_t(size_t, BIO_MAX_VECS, (bytes >> PAGE_SHIFT) + 2);
		struct bio *bio = bio_alloc_bioset(bdev, vecs, opf, GFP_NOIO, &meta_bios);

		bio->bi_iter.bi_sector = sector;
		while (bytes) {
			unsigned int offset = offset_in_page(buffer);
			unsigned int part = min_t(size_t, bytes, PAGE_SIZE - offset);

			if (bio_add_page(bio, buffer_page(buffer), part, offset) != part)
				break;
			buffer += part;
			bytes -= part;
			sector += part >> SECTOR_SHIFT;
		}
		r = submit_bio_wait(bio);
		bio_put(bio);
	}
	return r;
}

blk_opf_t cow_meta_fua(const struct cow_meta *meta)
{
	struct block_device *bdev = meta->store->bdev;

	return bdev_write_cache(bdev) && bdev_fua(bdev) ? REQ_FUA : 0;
}

static bool meta_needs_flush(const struct cow_meta *meta)
{
	struct block_device *bdev = meta->store->bdev;

	return bdev_write_cache(bdev) && !bdev_fua(bdev);
}

/* ---------------------------------------------------------------------- blocks */

static struct cow_block *block_find(struct cow_meta *meta, u64 number)
{
	struct cow_block *b;

	hash_for_each_possible(meta->hash, b, hash, number)
		if (b->number == number)
			return b;
	return NULL;
}

static struct cow_block *block_alloc(struct cow_meta *meta, gfp_t gfp)
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

static void block_free(struct cow_meta *meta, struct cow_block *b)
{
	hash_del(&b->hash);
	list_del(&b->lru);
	meta->nr_blocks--;
	kfree(b->data);
	kfree(b);
}

/* It holds nothing: the next to be taken. */
static void block_forget(struct cow_meta *meta, struct cow_block *b)
{
	hash_del(&b->hash);
	list_move(&b->lru, &meta->clean);
}

/*
 * One to be filled: one that holds nothing, a new one while there may be more, or the
 * oldest clean one. NULL: all are in the commit under way or the next, and
 * there is no memory. When a commit has ended there is one.
 */
static struct cow_block *block_take(struct cow_meta *meta)
{
	struct cow_block *b = list_first_entry_or_null(&meta->clean, struct cow_block, lru);
	struct cow_block *more = NULL;

	if (!b || (meta->nr_blocks < CACHE_BLOCKS && hash_hashed(&b->hash)))
		more = block_alloc(meta, GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
	if (more || !b)
		return more;
	hash_del(&b->hash);
	list_del_init(&b->lru);
	return b;
}

static void block_keep(struct cow_meta *meta, struct cow_block *b, u64 number,
		       sector_t sector)
{
	b->number = number;
	b->sector = sector;
	b->ticket = 0;
	b->fresh_from = 0;
	b->fresh_to = cowsnap_block_slots(&meta->geometry, number);
	hash_add(meta->hash, &b->hash, number);
	list_add_tail(&b->lru, &meta->clean);
}

bool cow_meta_mend_block(const struct cow_meta *meta, u64 number, sector_t sector,
			 void *data)
{
	struct cowsnap_block_header *header = block_header(number, data);
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

/* Blocks of the segment from @block on, as they stand on the disk. */
static int blocks_read(struct cow_meta *meta, const struct cowsnap_segment *seg, u32 block,
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
	r = blocks_read(meta, seg, block, nr, buffer);
	/* One of those ahead may be unreadable. */
	if (r && nr > 1) {
		nr = 1;
		r = blocks_read(meta, seg, block, nr, buffer);
	}
	for (i = 0; i < nr && !r; i++) {
		u64 number = seg->first_block + block + i;

		if (block_find(meta, number))
			continue;
		/* Those ahead must not push out the one that is wanted. */
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

/* One that nothing has been put into since it was made ready need not be read. */
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

/* How far reading ahead may go: ready blocks of the same table. */
static u32 blocks_ahead(struct cow_meta *meta, const struct cowsnap_segment *seg, u32 block)
{
	u32 ready = READ_ONCE(meta->store->space.blocks);
	u32 end = min_t(u64, seg->blocks, ready - seg->first_block);

	return min_t(u32, READ_AHEAD, end - block);
}

static int block_get(struct cow_meta *meta, const struct cowsnap_segment *seg, u32 block,
		     bool ahead, struct cow_block **out)
{
	u64 number = seg->first_block + block;
	int r;

	lockdep_assert_held(&meta->lock);
	*out = block_find(meta, number);
	if (!*out) {
		if (number >= READ_ONCE(meta->store->space.blocks))
			return -ERANGE;
		if (block_is_empty(meta, number))
			r = block_keep_empty(meta, number,
					     cowsnap_block_sector(&meta->geometry, seg, block));
		else
			r = block_read(meta, seg, block,
				       ahead ? blocks_ahead(meta, seg, block) : 1);
		if (r)
			return r;
		*out = block_find(meta, number);
		if (!*out)
			return -EBADMSG;
	} else if (!(*out)->ticket && !(*out)->pinned &&
		   READ_ONCE(meta->phase) != META_WRITING) {
		list_move_tail(&(*out)->lru, &meta->clean);
	}
	return 0;
}

void cow_meta_keep_block(struct cow_meta *meta, u64 number, const void *data)
{
	struct cow_block *b;

	mutex_lock(&meta->lock);
	b = block_find(meta, number);
	memcpy(b->data, data, meta->geometry.block_bytes);
	b->fresh_from = 0;
	b->fresh_to = cowsnap_block_slots(&meta->geometry, number);
	mutex_unlock(&meta->lock);
}

/* ----------------------------------------------------------------------- slots */

static struct cowsnap_slot *block_slot(struct cow_block *b, u32 index)
{
	return (struct cowsnap_slot *)(block_header(b->number, b->data) + 1) + index;
}

/*
 * @b will be in the next commit. What it says already will be durable when that
 * begins: fresh is only what is added from now on.
 */
static void block_dirty(struct cow_meta *meta, struct cow_block *b)
{
	u32 i;

	if (b->ticket)
		return;
	for (i = b->fresh_from; i < b->fresh_to; i++)
		block_slot(b, i)->chunk_high_kind &= ~COWSNAP_SLOT_FRESH;
	b->fresh_from = U32_MAX;
	b->fresh_to = 0;
	b->ticket = ++meta->last_ticket;
	cow_meta_note_used(meta, b->number);
	list_move_tail(&b->lru, &meta->dirty);
}

static void slot_make_fresh(struct cow_block *b, u32 index)
{
	block_slot(b, index)->chunk_high_kind |= COWSNAP_SLOT_FRESH;
	b->fresh_from = min(b->fresh_from, index);
	b->fresh_to = max(b->fresh_to, index + 1);
}

static void slot_fill(struct cowsnap_slot *slot, u64 chunk, u32 epoch, u8 kind, u32 crc)
{
	slot->crc = cpu_to_le32(crc);
	slot->chunk_low = cpu_to_le32((u32)chunk);
	slot->epoch_low = cpu_to_le32(epoch);
	slot->chunk_high_kind = (u8)(chunk >> 32 & 0xf) | (u8)(kind << 4);
	slot->chunk_wide = (u8)(chunk >> 36);
}

static const u8 slot_kinds[] = {
	[COW_COPIED] = COWSNAP_SLOT_COPIED,
	[COW_ZERO] = COWSNAP_SLOT_ZERO,
	[COW_PRIVATE] = COWSNAP_SLOT_PRIVATE,
	[COW_PRIVATE_ZERO] = COWSNAP_SLOT_PRIVATE_ZERO,
};

/* Where the slot of @place is. */
static int slot_where(struct cow_meta *meta, u64 place, struct cowsnap_segment *seg,
		      u32 *block, u32 *index)
{
	cowsnap_get_segment(&meta->geometry,
			    cowsnap_find_segment(&meta->geometry, place), seg);
	if (place < seg->data)
		return -ERANGE;
	cowsnap_find_slot(&meta->geometry, seg, place - seg->data, block, index);
	return 0;
}

/* The same, with its block in memory. */
static int slot_find(struct cow_meta *meta, u64 place, bool ahead, struct cow_block **b,
		     u32 *index)
{
	struct cowsnap_segment seg;
	u32 block;
	int r = slot_where(meta, place, &seg, &block, index);

	return r ?: block_get(meta, &seg, block, ahead, b);
}

static u32 chunk_crc(struct cow_meta *meta, const struct cow_pending *p,
		     struct cow_job *job, u64 i)
{
	const struct cow_store *store = meta->store;

	return cow_job_crc(job, p->offset_sectors + cow_chunk_to_sector(store, i),
			   store->chunk_sectors,
			   cow_meta_seed(meta, cow_chunk_to_sector(store, p->place + i)));
}

/* Chunk @i of the run: its slot. */
static void pending_fill_slot(struct cow_meta *meta, struct cow_pending *p,
			      struct cow_job *job, u64 i, struct cow_block *b, u32 index)
{
	enum cow_kind kind = p->nr_zero && test_bit(i, p->zero) ? COW_ZERO : p->kind;
	u32 crc = kind == COW_COPIED ? chunk_crc(meta, p, job, i) : 0;

	slot_fill(block_slot(b, index), p->first + i, p->epoch, slot_kinds[kind], crc);
	if (!cow_kind_is_private(kind))
		slot_make_fresh(b, index);
}

/*
 * The block with the slot of chunk @i of the run, dirty, so that it stays in memory; its
 * slots from *@index on are for that chunk and *@nr - 1 more.
 */
static int pending_hold_block(struct cow_meta *meta, struct cow_pending *p, u64 i,
			      struct cow_block **b, u32 *index, u64 *nr)
{
	int r = slot_find(meta, p->place + i, false, b, index);

	if (r)
		return r;
	block_dirty(meta, *b);
	p->ticket = max(p->ticket, (*b)->ticket);
	*nr = min_t(u64, p->last - p->first + 1 - i,
		    cowsnap_block_slots(&meta->geometry, (*b)->number) - *index);
	return 0;
}

/*
 * All blocks that the run needs are held before the first slot is filled in: a commit must
 * not take a part of a run that has not joined.
 */
static int pending_fill_slots(struct cow_meta *meta, struct cow_pending *p,
			      struct cow_job *job)
{
	u64 i, j, nr, total = p->last - p->first + 1;
	struct cow_block *b;
	u32 index;
	int r = 0;

	for (i = 0; i < total && !r; i += nr)
		r = pending_hold_block(meta, p, i, &b, &index, &nr);
	for (i = 0; i < total && !r; i += nr) {
		/* One block, as a rule: then it has been found already. */
		if (nr < total)
			r = pending_hold_block(meta, p, i, &b, &index, &nr);
		for (j = 0; j < nr && !r; j++)
			pending_fill_slot(meta, p, job, i + j, b, index + j);
	}
	return r;
}

/* Straight from the disk, where memory has no room for the block. */
static int slot_read_past(struct cow_meta *meta, u64 place, struct cowsnap_slot *slot)
{
	struct cow_block b = { .data = meta->read_buffer };
	struct cowsnap_segment seg;
	u32 block, index;
	int r = slot_where(meta, place, &seg, &block, &index);

	if (r)
		return r;
	b.number = seg.first_block + block;
	b.sector = cowsnap_block_sector(&meta->geometry, &seg, block);
	r = blocks_read(meta, &seg, block, 1, b.data);
	if (r)
		return r;
	if (!cow_meta_mend_block(meta, b.number, b.sector, b.data))
		return -EBADMSG;
	*slot = *block_slot(&b, index);
	return 0;
}

int cow_meta_read_slot(struct cow_meta *meta, u64 place, struct cowsnap_slot *slot)
{
	struct cow_block *b;
	u32 index;
	int r;

	mutex_lock(&meta->lock);
	r = slot_find(meta, place, true, &b, &index);
	if (!r)
		*slot = *block_slot(b, index);
	else if (r == -ENOMEM)
		r = slot_read_past(meta, place, slot);
	mutex_unlock(&meta->lock);
	return r;
}

/* --------------------------------------------------------------------- commits */

/* Have cow_meta_work() called. Any context. */
static void meta_kick(struct cow_meta *meta)
{
	struct cow_origin *o = meta->store->origin;
	unsigned long flags;

	spin_lock_irqsave(&o->end_lock, flags);
	if (list_empty(&meta->work_node))
		list_add_tail(&meta->work_node, &o->meta_work);
	spin_unlock_irqrestore(&o->end_lock, flags);
	cow_engine_kick(o->engine);
}

struct cow_meta *cow_meta_pop(struct list_head *list)
{
	struct cow_meta *meta = list_first_entry_or_null(list, struct cow_meta, work_node);

	if (meta)
		list_del_init(&meta->work_node);
	return meta;
}

void cow_meta_unlist(struct cow_meta *meta)
{
	list_del_init(&meta->work_node);
}

static void commit_put(struct cow_meta *meta)
{
	/* Keeps @meta and the engine: with its last bio the commit may end any time. */
	rcu_read_lock();
	if (atomic_dec_and_test(&meta->ios))
		meta_kick(meta);
	rcu_read_unlock();
}

static void commit_endio(struct bio *bio)
{
	struct cow_meta *meta = bio->bi_private;

	if (bio->bi_status)
		meta->status = bio->bi_status;
	bio_put(bio);
	commit_put(meta);
}

static struct bio *commit_bio(struct cow_meta *meta, unsigned int vecs, blk_opf_t opf,
			      sector_t sector)
{
	struct bio *bio = bio_alloc_bioset(meta->store->bdev, vecs, opf, GFP_NOIO,
					   &meta->bios);

	bio->bi_iter.bi_sector = sector;
	bio->bi_end_io = commit_endio;
	bio->bi_private = meta;
	atomic_inc(&meta->ios);
	return bio;
}

/* Copy the first dirty blocks, sealed, to the buffers of the commit; by number. */
static unsigned int commit_gather(struct cow_meta *meta, struct cow_block **blocks)
{
	bool has_super = false;
	unsigned int nr = 0, at;
	struct cow_block *b;

	while (nr < COWSNAP_COMMIT_BLOCKS && !list_empty(&meta->dirty)) {
		b = list_first_entry(&meta->dirty, struct cow_block, lru);
		/* Never both superblocks at once: the other one waits for the next commit. */
		if (b->pinned && has_super)
			break;
		has_super |= b->pinned;
		cow_meta_seal(meta, b->number, b->sector, b->data, meta->sequence,
			      meta->durable);
		meta->ticket = b->ticket;
		b->ticket = 0;
		if (b->pinned)
			list_del_init(&b->lru);
		else
			list_move_tail(&b->lru, &meta->writing);
		for (at = nr++; at && blocks[at - 1]->number > b->number; at--)
			blocks[at] = blocks[at - 1];
		blocks[at] = b;
	}
	for (at = 0; at < nr; at++)
		memcpy(meta->out[at], blocks[at]->data, meta->geometry.block_bytes);
	return nr;
}

/* Blocks side by side go in one bio. */
static void commit_write(struct cow_meta *meta, struct cow_block **blocks, unsigned int nr)
{
	unsigned int bytes = meta->geometry.block_bytes;
	struct bio *bio = NULL;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		struct page *page = virt_to_page(meta->out[i]);
		unsigned int offset = offset_in_page(meta->out[i]);

		if (bio && bio_end_sector(bio) == blocks[i]->sector &&
		    bio_add_page(bio, page, bytes, offset) == bytes)
			continue;
		if (bio)
			submit_bio_noacct(bio);
		bio = commit_bio(meta, min(nr - i, BIO_MAX_VECS),
				 REQ_OP_WRITE | REQ_META | REQ_SYNC | cow_meta_fua(meta),
				 blocks[i]->sector);
		__bio_add_page(bio, page, bytes, offset);
		meta->stats.block_writes++;
	}
	if (bio)
		submit_bio_noacct(bio);
}

/* The data of what is in the commit has to end before it does. */
static void commit_await_data(struct cow_meta *meta)
{
	struct cow_pending *p;

	list_for_each_entry(p, &meta->members, member) {
		if (p->data_done || p->in_commit)
			continue;
		p->in_commit = true;
		atomic_inc(&meta->ios);
	}
}

static void commit_start(struct cow_meta *meta)
{
	struct cow_block *blocks[COWSNAP_COMMIT_BLOCKS];
	unsigned int nr;

	if (list_empty(&meta->members) && list_empty(&meta->retry))
		return;
	/* Else they would wait for a lull: cow_meta_release() calls us again. */
	if (atomic_read(&meta->acquirers))
		return;
	if (cmpxchg(&meta->phase, META_IDLE, META_WRITING) != META_IDLE)
		return;
	meta->status = BLK_STS_OK;
	atomic_set(&meta->ios, 1);
	mutex_lock(&meta->lock);
	meta->sequence++;
	nr = commit_gather(meta, blocks);
	commit_await_data(meta);
	commit_write(meta, blocks, nr);
	mutex_unlock(&meta->lock);
	meta->stats.commits++;
	commit_put(meta);
}

static void commit_flush(struct cow_meta *meta)
{
	struct bio *bio;

	atomic_set(&meta->ios, 1);
	WRITE_ONCE(meta->phase, META_FLUSHING);
	bio = commit_bio(meta, 0, REQ_OP_WRITE | REQ_PREFLUSH, 0);
	submit_bio_noacct(bio);
	commit_put(meta);
}

static void member_leave(struct cow_pending *p)
{
	list_del_init(&p->member);
	p->joined = false;
}

/* What found no memory for its blocks: those of the commit are free now. */
static void retry_join(struct cow_meta *meta)
{
	struct cow_pending *p, *next;
	LIST_HEAD(retry);

	list_splice_init(&meta->retry, &retry);
	list_for_each_entry_safe(p, next, &retry, member) {
		list_del_init(&p->member);
		if (p->again && !meta->failed) {
			p->again = false;
			cow_pending_copy_again(p);
		} else if (!cow_meta_join(p, NULL)) {
			cow_pending_publish(p);
		}
	}
}

static void commit_fail(struct cow_meta *meta)
{
	struct cow_pending *p, *next;

	cow_meta_fence(meta);
	list_for_each_entry_safe(p, next, &meta->members, member) {
		p->status = p->status ?: meta->status;
		member_leave(p);
		if (p->data_done)
			cow_pending_publish(p);
	}
}

static void commit_finish(struct cow_meta *meta)
{
	struct cow_pending *p;

	/* What is on the disk now may be read from there. */
	mutex_lock(&meta->lock);
	list_splice_tail_init(&meta->writing, &meta->clean);
	mutex_unlock(&meta->lock);
	if (meta->status) {
		commit_fail(meta);
	} else {
		WRITE_ONCE(meta->durable, meta->sequence);
		/* Before the last member may let the store be closed. */
		cow_super_note(meta->store);
		while ((p = list_first_entry_or_null(&meta->members, struct cow_pending,
						     member))) {
			if (p->ticket > meta->ticket)
				break;
			member_leave(p);
			cow_pending_publish(p);
		}
	}
	retry_join(meta);
	cow_meta_release(meta);
}

void cow_meta_work(struct cow_meta *meta)
{
	switch (READ_ONCE(meta->phase)) {
	case META_WRITING:
		if (atomic_read(&meta->ios))
			return;
		if (!meta->status && meta_needs_flush(meta)) {
			commit_flush(meta);
			return;
		}
		commit_finish(meta);
		break;
	case META_FLUSHING:
		if (atomic_read(&meta->ios))
			return;
		commit_finish(meta);
		break;
	default:
		break;
	}
	commit_start(meta);
}

bool cow_meta_join(struct cow_pending *p, struct cow_job *job)
{
	struct cow_meta *meta = p->store->meta;
	int r = meta->failed ? -EIO : 0;

	p->ticket = 0;
	p->data_done = !job;
	p->in_commit = false;
	mutex_lock(&meta->lock);
	if (!r)
		r = pending_fill_slots(meta, p, job);
	mutex_unlock(&meta->lock);
	if (r == -ENOMEM && job) {
		p->again = true;
		return false;
	}
	if (r && r != -ENOMEM) {
		DMERR_LIMIT("store %pg: a table block cannot be %s (%d)", p->store->bdev,
			    meta->failed ? "written" : "read", r);
		p->status = errno_to_blk_status(r);
		return false;
	}
	p->joined = !r;
	list_add_tail(&p->member, r ? &meta->retry : &meta->members);
	meta_kick(meta);
	return true;
}

void cow_meta_data_done(struct cow_pending *p)
{
	struct cow_meta *meta = p->store->meta;

	p->data_done = true;
	if (p->again) {
		list_add_tail(&p->member, &meta->retry);
		meta_kick(meta);
		return;
	}
	if (p->in_commit) {
		p->in_commit = false;
		if (p->status)
			meta->status = p->status;
		commit_put(meta);
	} else if (p->status && p->joined) {
		/* Its slots may be on disk soon, or are: they must not be believed. */
		member_leave(p);
		cow_meta_fence(meta);
	}
	if (!p->joined)
		cow_pending_publish(p);
}

/* ---------------------------------------------------------------- other writers */

void cow_meta_acquire(struct cow_meta *meta)
{
	atomic_inc(&meta->acquirers);
	wait_event(meta->wait, cmpxchg(&meta->phase, META_IDLE, META_ACQUIRED) == META_IDLE);
	atomic_dec(&meta->acquirers);
}

void cow_meta_release(struct cow_meta *meta)
{
	/* Pairs with the cmpxchg() of whoever is next. */
	smp_store_release(&meta->phase, META_IDLE);
	wake_up(&meta->wait);
	meta_kick(meta);
}

void *cow_meta_scratch(struct cow_meta *meta)
{
	return meta->scratch;
}

void cow_meta_fence(struct cow_meta *meta)
{
	WRITE_ONCE(meta->failed, true);
}

bool cow_meta_is_fenced(const struct cow_meta *meta)
{
	return READ_ONCE(meta->failed);
}

/*
 * Write @data as what @b will be. Dirty blocks may be written before their commit:
 * then they say so.
 */
static int block_write_now(struct cow_meta *meta, struct cow_block *b, void *data)
{
	if (b->ticket)
		cow_meta_seal(meta, b->number, b->sector, data, meta->sequence + 1,
			      meta->durable);
	return cow_meta_io(meta->store->bdev,
			   REQ_OP_WRITE | REQ_META | REQ_SYNC | REQ_PREFLUSH | REQ_FUA,
			   b->sector, data, meta->geometry.block_bytes);
}

int cow_meta_write_slot(struct cow_meta *meta, u64 place, enum cowsnap_slot_kind kind,
			u64 chunk)
{
	struct cowsnap_slot *slot, old;
	struct cow_block *b;
	u32 index;
	int r;

	mutex_lock(&meta->lock);
	r = slot_find(meta, place, false, &b, &index);
	if (!r) {
		block_dirty(meta, b);
		slot = block_slot(b, index);
		old = *slot;
		slot_fill(slot, chunk, 0, kind, 0);
		r = block_write_now(meta, b, b->data);
		if (r) {
			*slot = old;
			r = -EIO;
		}
	}
	mutex_unlock(&meta->lock);
	return r;
}

/* With the numbers it has, and with its slots as fresh as they are. */
static int block_rewrite(struct cow_meta *meta, struct cow_block *b)
{
	const struct cowsnap_block_header *header = block_header(b->number, b->data);

	cow_meta_seal(meta, b->number, b->sector, b->data, le64_to_cpu(header->sequence),
		      le64_to_cpu(header->durable));
	return cow_meta_io(meta->store->bdev, REQ_OP_WRITE | REQ_META | REQ_SYNC, b->sector,
			   b->data, meta->geometry.block_bytes);
}

/* Those at the start of @place that stand in one block: how many, or -errno. */
static int free_in_block(struct cow_meta *meta, const u64 *place, size_t nr)
{
	struct cowsnap_segment seg;
	struct cow_block *b = NULL;
	u32 block, index;
	size_t i;
	int r;

	for (i = 0; i < nr; i++) {
		r = slot_where(meta, place[i], &seg, &block, &index);
		if (!r && b && b->number != seg.first_block + block)
			break;
		if (!r && !b)
			r = block_get(meta, &seg, block, false, &b);
		if (r)
			return r;
		slot_fill(block_slot(b, index), 0, 0, COWSNAP_SLOT_FREE, 0);
	}
	r = block_rewrite(meta, b);
	return r ?: i;
}

int cow_meta_free_slots(struct cow_meta *meta, const u64 *place, size_t nr)
{
	int r = 0;

	mutex_lock(&meta->lock);
	while (nr) {
		r = free_in_block(meta, place, nr);
		if (r < 0)
			break;
		place += r;
		nr -= r;
	}
	mutex_unlock(&meta->lock);
	return min(r, 0);
}

void cow_meta_seal_super_blocks(struct cow_meta *meta)
{
	u64 number;

	mutex_lock(&meta->lock);
	for (number = 0; number < 2; number++) {
		struct cow_block *b = block_find(meta, number);

		cow_meta_seal(meta, number, b->sector, b->data, 0, 0);
	}
	mutex_unlock(&meta->lock);
}

/* @super as the copy that stands in front of block @b, in @data. */
static void super_put(struct cow_meta *meta, struct cow_block *b,
		      const struct cowsnap_super *super, void *data)
{
	struct cowsnap_super *copy = data;

	*copy = *super;
	copy->crc = 0;
	copy->crc = cpu_to_le32(crc32c(cow_meta_seed(meta, b->sector), copy, sizeof(*copy)));
}

static int super_write_copy(struct cow_meta *meta, u64 number,
			    const struct cowsnap_super *super)
{
	struct cow_block *b = block_find(meta, number);
	int r;

	memcpy(meta->scratch, b->data, meta->geometry.block_bytes);
	super_put(meta, b, super, meta->scratch);
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

	/* One after the other: whatever happens to one, the other is whole. */
	mutex_lock(&meta->lock);
	for (number = 0; number < 2; number++)
		r[number] = super_write_copy(meta, number, super);
	/* What is not on the disk is not written by a later commit either. */
	for (number = 0; number < 2 && (!r[0] || !r[1]); number++) {
		struct cow_block *b = block_find(meta, number);

		super_put(meta, b, super, b->data);
	}
	mutex_unlock(&meta->lock);
	return r[0] && r[1] ? r[0] : 0;
}

/* -------------------------------------------------------------- set up, down */

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
	meta->uuid_seed = crc32c(~0U, uuid, sizeof(meta->uuid));
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

void cow_meta_read_stats(const struct cow_meta *meta, struct cow_meta_stats *out)
{
	*out = meta->stats;
}

/* The first two blocks hold the superblocks and are always in memory. */
static bool pin_super_blocks(struct cow_meta *meta)
{
	u64 number;

	for (number = 0; number < 2; number++) {
		struct cow_block *b = block_alloc(meta, GFP_KERNEL);

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
		struct cow_block *b = block_alloc(meta, GFP_KERNEL);

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

	if (!meta)
		return NULL;
	meta->store = store;
	/* The first two are always in memory. */
	meta->unused = 2;
	mutex_init(&meta->lock);
	hash_init(meta->hash);
	INIT_LIST_HEAD(&meta->clean);
	INIT_LIST_HEAD(&meta->dirty);
	INIT_LIST_HEAD(&meta->writing);
	INIT_LIST_HEAD(&meta->work_node);
	INIT_LIST_HEAD(&meta->members);
	INIT_LIST_HEAD(&meta->retry);
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
		block_free(meta, b);
	list_for_each_entry_safe(b, more, &meta->clean, lru)
		block_free(meta, b);
	for (i = 0; i < COWSNAP_COMMIT_BLOCKS; i++)
		kfree(meta->out[i]);
	kfree(meta->scratch);
	kfree(meta->read_buffer);
	bioset_exit(&meta->bios);
	kvfree(meta);
}

int cow_meta_init(void)
{
	return bioset_init(&meta_bios, META_BIOS, 0, BIOSET_NEED_BVECS);
}

void cow_meta_exit(void)
{
	bioset_exit(&meta_bios);
}

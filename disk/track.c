// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the blocks of a tracker on disk
 *
 * Each block is written as a whole, in its place: it has the exact bits and the marks of the
 * same regions, so that it is one write that takes a mark away and leaves the bits instead.
 * Those in the same 4 KiB of the store are written together.
 */
#include <linux/bitmap.h>
#include <linux/crc32c.h>
#include <linux/module.h>

#include "dm-cowsnap.h"
#include "disk/blocks.h"
#include "disk/checkpoint.h"
#include "disk/commit.h"
#include "disk/direct.h"
#include "disk/io.h"
#include "disk/meta.h"
#include "disk/super.h"
#include "disk/track.h"
#include "origin/origin.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/space.h"
#include "store/store.h"
#include "store/track.h"

/* A store in which no table block is ready may have some in a moment. */
#define ROOM_TRIES	64

static sector_t block_sector(const struct cow_tracker *t, u64 index)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(t->store->meta);

	return cow_chunk_to_sector(t->store, t->place[index / g->chunk_blocks]) +
	       index % g->chunk_blocks * (g->block_bytes >> SECTOR_SHIFT);
}

static u32 block_crc(const struct cow_tracker *t, sector_t sector, const void *data)
{
	struct cow_meta *meta = t->store->meta;

	return crc32c(cow_meta_seed(meta, sector), data + sizeof(__le32),
		      cow_meta_block_bytes(meta) - sizeof(__le32));
}

/* The words of a block: bits of chunks, then marks. */
static __le64 *block_bits(void *data)
{
	return data + sizeof(struct cowsnap_block_header);
}

static __le64 *block_marks(const struct cow_tracker *t, void *data)
{
	return block_bits(data) + t->layout.chunks / 64;
}

static void fill_marks(const struct cow_tracker *t, u64 index, const unsigned long *also,
		       __le64 *marks)
{
	u64 region = index * t->layout.regions;
	u32 i;

	for (i = 0; i < t->layout.regions; i++, region++)
		if (test_bit(region, t->marked) || (also && test_bit(region, also)))
			marks[i / 64] |= cpu_to_le64(1ULL << i % 64);
}

static void fill_block(const struct cow_tracker *t, u64 index, const unsigned long *also,
		       struct cowsnap_block_header *header)
{
	const unsigned long *bits = t->bits + index * t->layout.chunks / 64;
	u32 i;

	BUILD_BUG_ON(BITS_PER_LONG != 64);
	memset(header, 0, cow_meta_block_bytes(t->store->meta));
	header->blocks = cpu_to_le32(index);
	header->sequence = cpu_to_le64(t->series);
	header->durable = cpu_to_le64(COWSNAP_TRACK_ONES);
	for (i = 0; i < t->layout.chunks / 64; i++)
		block_bits(header)[i] = cpu_to_le64(READ_ONCE(bits[i]));
	fill_marks(t, index, also, block_marks(t, header));
	header->crc = cpu_to_le32(block_crc(t, block_sector(t, index), header));
}

/* The blocks of a page stand in one piece. */
int cow_tracker_write(struct cow_tracker *t, u64 page, const unsigned long *also,
		      blk_opf_t flags)
{
	u32 bytes = cow_meta_block_bytes(t->store->meta);
	u64 first = page * t->page_blocks;
	u32 i, nr = min_t(u64, t->page_blocks, t->nr_blocks - first);
	void *data = t->store->track_page;

	lockdep_assert_held(&t->store->track_lock);
	if (!t->store->writable)
		return -EROFS;
	for (i = 0; i < nr; i++)
		fill_block(t, first + i, also, data + i * bytes);
	return cow_meta_write(t->store->meta, flags, block_sector(t, first), data, nr * bytes);
}

/* -------------------------------------------------------------------- reading */

static bool block_is_right(const struct cow_tracker *t, u64 index, const void *data)
{
	const struct cowsnap_block_header *header = data;

	return le32_to_cpu(header->crc) == block_crc(t, block_sector(t, index), data) &&
	       le32_to_cpu(header->blocks) == index &&
	       le64_to_cpu(header->sequence) == t->series &&
	       le64_to_cpu(header->durable) == COWSNAP_TRACK_ONES;
}

/* bitmap_set() counts in unsigned int. */
static void region_take(struct cow_tracker *t, u64 region)
{
	u64 chunk = region << t->layout.region_shift;
	u64 end = (region + 1) << t->layout.region_shift;

	set_bit(region, t->marked);
	for (; chunk < end; chunk++)
		__set_bit(chunk, t->bits);
}

static void block_take(struct cow_tracker *t, u64 index, void *data)
{
	unsigned long *bits = t->bits + index * t->layout.chunks / 64;
	u64 region = index * t->layout.regions;
	u32 i;

	for (i = 0; i < t->layout.chunks / 64; i++)
		bits[i] = le64_to_cpu(block_bits(data)[i]);
	for (i = 0; i < t->layout.regions; i++, region++)
		if (le64_to_cpu(block_marks(t, data)[i / 64]) >> i % 64 & 1)
			region_take(t, region);
}

static int refuse_block(const struct cow_tracker *t, u64 index, const char *why, int r)
{
	DMERR("store %pg: block %llu of tracker %u %s", t->store->bdev, index, t->snap->id,
	      why);
	return r;
}

static int read_page(struct cow_tracker *t, u64 page)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(t->store->meta);
	u64 first = page * t->page_blocks;
	u32 i, nr = min_t(u64, t->page_blocks, t->nr_blocks - first);
	void *data = t->store->track_page;
	int r;

	if (!t->place[first / g->chunk_blocks])
		return refuse_block(t, first, "is missing", -EBADMSG);
	r = cow_meta_io(t->store->bdev, REQ_OP_READ | REQ_META, block_sector(t, first), data,
			nr * g->block_bytes);
	if (r)
		return refuse_block(t, first, "cannot be read", r);
	for (i = 0; i < nr; i++, data += g->block_bytes) {
		if (!block_is_right(t, first + i, data))
			return refuse_block(t, first + i, "is damaged", -EBADMSG);
		block_take(t, first + i, data);
	}
	return 0;
}

int cow_tracker_read(struct cow_tracker *t)
{
	u64 page;
	int r = 0;

	lockdep_assert_held(&t->store->track_lock);
	for (page = 0; page < t->nr_pages && !r; page++) {
		r = read_page(t, page);
		cond_resched();
	}
	return r;
}

bool cow_track_found(struct cow_store *store, u32 series, u64 index, u64 place)
{
	struct cow_snap *snap;

	list_for_each_entry(snap, &store->snaps, node) {
		struct cow_tracker *t = snap->tracker;

		if (!t || t->series != series || index >= t->nr_pieces || t->place[index])
			continue;
		t->place[index] = place;
		return true;
	}
	return false;
}

/* ----------------------------------------------------------------------- room */

void cow_tracker_free_room(struct cow_tracker *t)
{
	struct cow_store *store = t->store;
	u64 i;

	for (i = 0; i < t->nr_pieces; i++) {
		if (!t->place[i])
			continue;
		spin_lock(&store->origin->state_lock);
		cow_space_free(&store->space, t->place[i], 1);
		spin_unlock(&store->origin->state_lock);
		t->place[i] = 0;
	}
}

static u32 find_room(struct cow_store *store, u32 nr, u64 *place)
{
	enum cow_store_blocked blocked;
	u32 got = 0;
	int i;

	for (i = 0; i < ROOM_TRIES && !got; i++) {
		/* A store that is being prepared is blocked until one of these has run. */
		if (i) {
			flush_work(&store->extend_work);
			flush_work(&store->mark_work);
		}
		spin_lock(&store->origin->state_lock);
		/* What writers wait for is theirs. */
		blocked = store->blocked;
		if (!blocked)
			got = cow_store_room(store, nr, place);
		spin_unlock(&store->origin->state_lock);
		if (!got && blocked != COW_STORE_PREPARING &&
		    store->space.blocks >= store->space.max_blocks &&
		    (blocked || !cow_zones_give_up(store)))
			break;
	}
	return got;
}

/* The next pieces from @at on, in one run. Returns how many, or a negative errno. */
static int take_run(struct cow_tracker *t, u64 at)
{
	struct cow_store *store = t->store;
	u64 place;
	u32 i, got = find_room(store, min_t(u64, t->nr_pieces - at, COW_RUN_CHUNKS), &place);
	int r;

	if (!got)
		return -ENOSPC;
	for (i = 0; i < got; i++)
		t->place[at + i] = place + i;
	cow_super_lock(store);
	r = cow_meta_write_slots(store->meta, place, got, COWSNAP_SLOT_TRACK, at, t->series);
	cow_super_unlock(store);
	return r ?: got;
}

/* For all of them. What writers need for the snapshots' copies is not even tried to be taken. */
static bool has_room(const struct cow_tracker *t)
{
	struct cow_store *store = t->store;
	bool has;

	spin_lock(&store->origin->state_lock);
	has = store->space.total - cow_space_filled(&store->space) > t->nr_pieces;
	spin_unlock(&store->origin->state_lock);
	return has;
}

int cow_tracker_take_room(struct cow_tracker *t)
{
	u64 at = 0;
	int r = 0;

	lockdep_assert_held(&t->store->origin->admin_lock);
	if (!has_room(t))
		return -ENOSPC;
	while (at < t->nr_pieces && r >= 0) {
		r = take_run(t, at);
		if (r > 0)
			at += r;
	}
	if (r < 0)
		cow_tracker_free_room(t);
	return min(r, 0);
}

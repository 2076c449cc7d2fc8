// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the room of a store
 *
 * Which chunks of a store hold something: one bit for each, in bitmaps that exist only for
 * segments in use. So memory follows the number of copies, not the size of the device. A
 * transient store has segments without tables.
 *
 * Room is given out from a cursor that goes round: a new store fills from its start, in
 * order; room that deleted snapshots left is found when the cursor comes by. Zones of the log
 * have their chunks set aside: what loses its version there does not come back before the zone
 * is left.
 *
 * All of this is under origin->state_lock, except while the store is loaded.
 */
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "store/space.h"

/* Chunks in a segment of a store without tables. */
#define PLAIN_SEGMENT	32768U

struct cow_bits {
	u32 used;
	unsigned long bit[];
};

static void space_segment(const struct cow_space *space, u64 index,
			  struct cowsnap_segment *seg)
{
	if (space->geometry) {
		cowsnap_get_segment(space->geometry, index, seg);
		return;
	}
	memset(seg, 0, sizeof(*seg));
	seg->start = index * PLAIN_SEGMENT;
	seg->data = seg->start;
	seg->end = seg->start + PLAIN_SEGMENT;
	seg->slots = PLAIN_SEGMENT;
}

static u64 space_find(const struct cow_space *space, u64 place)
{
	if (space->geometry)
		return cowsnap_find_segment(space->geometry, place);
	return place / PLAIN_SEGMENT;
}

/* How many slots of the segment can be used now: on the device, table made ready. */
static u32 segment_ready(const struct cow_space *space, const struct cowsnap_segment *seg)
{
	u32 room = cowsnap_segment_room(seg, space->nr_chunks);

	if (!space->geometry || seg->first_block + seg->blocks <= space->blocks)
		return room;
	if (seg->first_block >= space->blocks)
		return 0;
	return min(room, cowsnap_first_slot(space->geometry, seg,
					    space->blocks - seg->first_block));
}

static struct cow_bits *segment_bits(struct cow_space *space, u64 index, u32 slots,
				     gfp_t gfp)
{
	struct cow_bits *bits = xa_load(&space->segments, index);

	if (bits)
		return bits;
	bits = kvzalloc(struct_size(bits, bit, BITS_TO_LONGS(slots)), gfp);
	if (bits && xa_err(xa_store(&space->segments, index, bits, gfp))) {
		kvfree(bits);
		bits = NULL;
	}
	return bits;
}

/* What the tables take, up to and with that of the segment around @place. */
static void space_touch(struct cow_space *space, u64 place)
{
	struct cowsnap_segment seg;

	while (space->geometry && place >= space->table_end) {
		space_segment(space, space->nr_segments++, &seg);
		space->table_chunks += seg.data - seg.start;
		space->table_end = seg.end;
	}
}

/* A run of free slots at or after the cursor, in its segment. */
static u32 segment_alloc(struct cow_space *space, const struct cowsnap_segment *seg,
			 struct cow_bits *bits, u32 ready, u32 nr, u64 *place)
{
	u32 from = find_next_zero_bit(bits->bit, ready, space->cursor_slot);
	u32 to;

	if (from >= ready)
		return 0;
	to = find_next_bit(bits->bit, min_t(u64, ready, (u64)from + nr), from);
	bitmap_set(bits->bit, from, to - from);
	bits->used += to - from;
	space->used += to - from;
	space->cursor_slot = to;
	*place = seg->data + from;
	space_touch(space, *place);
	return to - from;
}

/* Is there nothing ready after this segment? */
static bool segment_is_last(const struct cow_space *space, const struct cowsnap_segment *seg)
{
	return seg->end >= space->nr_chunks ||
	       (space->geometry && seg->first_block + seg->blocks >= space->blocks);
}

/* Most often there is more where the last one was. */
static u32 near_alloc(struct cow_space *space, u32 nr, u64 *place)
{
	const struct cow_near *near = &space->near;

	if (!near->bits || near->segment != space->cursor_segment ||
	    near->blocks != space->blocks || near->bits->used >= near->ready)
		return 0;
	return segment_alloc(space, &near->seg, near->bits, near->ready, nr, place);
}

static void note_near(struct cow_space *space, const struct cowsnap_segment *seg,
		      struct cow_bits *bits, u32 ready)
{
	space->near = (struct cow_near){
		.segment = space->cursor_segment, .seg = *seg, .bits = bits, .ready = ready,
		.blocks = space->blocks,
	};
}

u32 cow_space_alloc(struct cow_space *space, u32 nr, u64 *place)
{
	struct cowsnap_segment seg;
	bool wrapped = false;
	u32 got;

	lockdep_assert_held(space->state_lock);
	if (space->used >= cow_space_ready(space))
		return 0;
	got = near_alloc(space, nr, place);
	if (got)
		return got;
	/* Twice round at most: once from the cursor, once from the start. */
	for (;;) {
		struct cow_bits *bits;
		u32 ready;

		space_segment(space, space->cursor_segment, &seg);
		ready = segment_ready(space, &seg);
		if (ready) {
			bits = segment_bits(space, space->cursor_segment, seg.slots,
					    GFP_NOWAIT | __GFP_MEMALLOC | __GFP_NOWARN);
			if (!bits)
				return 0;
			got = bits->used < ready ?
			      segment_alloc(space, &seg, bits, ready, nr, place) : 0;
			if (got) {
				note_near(space, &seg, bits, ready);
				return got;
			}
		}
		space->cursor_slot = 0;
		space->cursor_segment++;
		if (segment_is_last(space, &seg)) {
			if (wrapped)
				return 0;
			wrapped = true;
			space->cursor_segment = 0;
		}
	}
}

/* Those that are in no zone. */
static void free_run(struct cow_space *space, u64 place, u32 nr)
{
	struct cowsnap_segment seg;

	while (nr) {
		u64 index = space_find(space, place);
		struct cow_bits *bits = xa_load(&space->segments, index);
		u32 part;

		space_segment(space, index, &seg);
		part = min_t(u64, nr, seg.end - place);
		if (!WARN_ON_ONCE(!bits || place < seg.data)) {
			bitmap_clear(bits->bit, place - seg.data, part);
			bits->used -= part;
			space->used -= part;
		}
		/* A new store fills in order, so chunks that come back at once are next. */
		if (index == space->cursor_segment &&
		    place - seg.data + part == space->cursor_slot)
			space->cursor_slot = place - seg.data;
		place += part;
		nr -= part;
	}
}

/* -------------------------------------------------------------- what is set aside */

/* The first chunks of the run that are all set aside together, or else none of them: *@out NULL. */
static u32 aside_part(const struct cow_space *space, u64 place, u32 nr, struct cow_aside **out)
{
	struct cow_aside *aside;

	*out = NULL;
	list_for_each_entry(aside, &space->asides, node) {
		if (place < aside->start) {
			nr = min_t(u64, nr, aside->start - place);
		} else if (place < aside->start + aside->nr) {
			*out = aside;
			return min_t(u64, nr, aside->start + aside->nr - place);
		}
	}
	return nr;
}

static void free_aside(struct cow_space *space, struct cow_aside *aside, u64 place, u32 nr)
{
	bitmap_clear(aside->used, place - aside->start, nr);
	aside->nr_free += nr;
	space->nr_aside += nr;
}

void cow_space_free(struct cow_space *space, u64 place, u32 nr)
{
	struct cow_aside *aside;
	u32 part;

	lockdep_assert_held(space->state_lock);
	for (; nr; nr -= part, place += part) {
		part = aside_part(space, place, nr, &aside);
		if (aside)
			free_aside(space, aside, place, part);
		else
			free_run(space, place, part);
	}
}

u32 cow_space_longest(struct cow_space *space, u64 index, u32 most, u64 *place)
{
	struct cow_bits *bits = xa_load(&space->segments, index);
	struct cowsnap_segment seg;
	u32 from, to, ready, longest = 0;

	lockdep_assert_held(space->state_lock);
	space_segment(space, index, &seg);
	ready = segment_ready(space, &seg);
	if (!bits) {
		*place = seg.data;
		return min(ready, most);
	}
	for (from = 0; longest < most; from = to) {
		from = find_next_zero_bit(bits->bit, ready, from);
		if (from >= ready)
			break;
		to = find_next_bit(bits->bit, min_t(u64, ready, (u64)from + most), from);
		if (to - from <= longest)
			continue;
		longest = to - from;
		*place = seg.data + from;
	}
	return longest;
}

bool cow_space_is_last(const struct cow_space *space, u64 index)
{
	struct cowsnap_segment seg;

	lockdep_assert_held(space->state_lock);
	space_segment(space, index, &seg);
	return segment_is_last(space, &seg);
}

bool cow_space_set_aside(struct cow_space *space, struct cow_aside *aside, u64 place, u32 nr)
{
	u64 index = space_find(space, place);
	struct cowsnap_segment seg;
	struct cow_bits *bits;

	lockdep_assert_held(space->state_lock);
	space_segment(space, index, &seg);
	bits = segment_bits(space, index, seg.slots, GFP_NOWAIT | __GFP_MEMALLOC | __GFP_NOWARN);
	if (!bits)
		return false;
	bitmap_set(bits->bit, place - seg.data, nr);
	bits->used += nr;
	space->used += nr;
	space->nr_aside += nr;
	aside->start = place;
	aside->nr = nr;
	aside->nr_free = nr;
	bitmap_zero(aside->used, COWSNAP_ZONE_CHUNKS);
	list_add(&aside->node, &space->asides);
	return true;
}

void cow_space_skip_first(struct cow_space *space, u64 place)
{
	u64 index = space_find(space, place) + 1;
	struct cowsnap_segment seg;

	lockdep_assert_held(space->state_lock);
	/* Has nothing been taken yet but what is in front of the cursor, and is that next to it? */
	if (index != 2 || space->cursor_segment || space->used != space->cursor_slot ||
	    !space->geometry->super_slots)
		return;
	space_segment(space, index, &seg);
	if (!segment_ready(space, &seg))
		return;
	space->cursor_segment = index;
	space->cursor_slot = 0;
}

void cow_space_use_aside(struct cow_space *space, struct cow_aside *aside, u64 place, u32 nr)
{
	lockdep_assert_held(space->state_lock);
	bitmap_set(aside->used, place - aside->start, nr);
	aside->nr_free -= nr;
	space->nr_aside -= nr;
	space_touch(space, place);
}

void cow_space_end_aside(struct cow_space *space, struct cow_aside *aside)
{
	u32 from, to;

	lockdep_assert_held(space->state_lock);
	list_del(&aside->node);
	space->nr_aside -= aside->nr_free;
	for (to = 0; (from = find_next_zero_bit(aside->used, aside->nr, to)) < aside->nr; ) {
		to = find_next_bit(aside->used, aside->nr, from);
		free_run(space, aside->start + from, to - from);
	}
}

/* ----------------------------------------------------------------- while loading */

bool cow_space_is_taken(const struct cow_space *space, u64 place)
{
	u64 index = space_find(space, place);
	struct cow_bits *bits = xa_load((struct xarray *)&space->segments, index);
	struct cowsnap_segment seg;

	space_segment(space, index, &seg);
	return bits && test_bit(place - seg.data, bits->bit);
}

/* Those of one segment. */
static int segment_take(struct cow_space *space, const struct cowsnap_segment *seg, u64 index,
			u32 from, u32 nr)
{
	struct cow_bits *bits = segment_bits(space, index, seg->slots, GFP_KERNEL);

	if (!bits)
		return -ENOMEM;
	if (find_next_bit(bits->bit, from + nr, from) < from + nr)
		return -EEXIST;
	bitmap_set(bits->bit, from, nr);
	bits->used += nr;
	space->used += nr;
	return 0;
}

int cow_space_take(struct cow_space *space, u64 place, u32 nr)
{
	int r = 0;

	while (nr && !r) {
		u64 index = space_find(space, place);
		struct cowsnap_segment seg;
		u32 part;

		space_segment(space, index, &seg);
		part = min_t(u64, nr, seg.end - place);
		if (place < seg.data || place + part > space->nr_chunks)
			return -ERANGE;
		r = segment_take(space, &seg, index, place - seg.data, part);
		space_touch(space, place);
		place += part;
		nr -= part;
	}
	return r;
}

/* Slots of all segments that lie on the device, and blocks of their tables. */
void cow_space_measure(const struct cow_space *space, u64 nr_chunks,
		       struct cow_space_size *size)
{
	struct cowsnap_segment seg;
	u64 index = 0;

	*size = (struct cow_space_size){ .nr_chunks = nr_chunks };
	if (!space->geometry) {
		size->total = nr_chunks;
		return;
	}
	for (;; index++) {
		u32 room;

		space_segment(space, index, &seg);
		room = cowsnap_segment_room(&seg, nr_chunks);
		size->total += room;
		if (room)
			size->max_blocks = seg.first_block + seg.blocks;
		if (seg.end >= nr_chunks)
			break;
		cond_resched();
	}
}

static void set_size(struct cow_space *space, const struct cow_space_size *size)
{
	WRITE_ONCE(space->nr_chunks, size->nr_chunks);
	space->total = size->total;
	space->max_blocks = size->max_blocks;
	space->near.bits = NULL;
}

void cow_space_resize(struct cow_space *space, const struct cow_space_size *size)
{
	lockdep_assert_held(space->state_lock);
	set_size(space, size);
}

u64 cow_space_ready(const struct cow_space *space)
{
	const struct cowsnap_geometry *g = space->geometry;
	u64 slots;

	if (!g || space->blocks >= space->max_blocks)
		return space->total;
	slots = (u64)space->blocks * g->block_slots -
		2 * (g->block_slots - g->super_slots);
	return min(slots, space->total);
}

void cow_space_init(struct cow_space *space, const struct cowsnap_geometry *geometry,
		    u64 nr_chunks, spinlock_t *state_lock)
{
	struct cow_space_size size;

	memset(space, 0, sizeof(*space));
	space->state_lock = state_lock;
	xa_init(&space->segments);
	INIT_LIST_HEAD(&space->asides);
	space->geometry = geometry;
	cow_space_measure(space, nr_chunks, &size);
	set_size(space, &size);
	space_touch(space, 0);
}

void cow_space_destroy(struct cow_space *space)
{
	struct cow_bits *bits;
	unsigned long index;

	xa_for_each(&space->segments, index, bits)
		kvfree(bits);
	xa_destroy(&space->segments);
}

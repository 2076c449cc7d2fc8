/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: which chunks of a store hold something */
#ifndef DM_COWSNAP_STORE_SPACE_H
#define DM_COWSNAP_STORE_SPACE_H

#include <linux/bitmap.h>
#include <linux/list.h>
#include <linux/xarray.h>

#include "dm-cowsnap.h"

struct cow_bits;

/* Where room was found last: a segment, as it was when @blocks table blocks were ready. */
struct cow_near {
	u64 segment;			/* its number */
	struct cowsnap_segment seg;
	struct cow_bits *bits;		/* NULL: nowhere yet */
	u32 ready;			/* slots of it that can be used */
	u32 blocks;
};

/* Chunks in a row that the room does without: those of a zone (store/zones.h). */
struct cow_aside {
	struct list_head node;		/* space->asides */
	u64 start;
	u32 nr;
	u32 nr_free;			/* of these, how many hold nothing */
	DECLARE_BITMAP(used, COWSNAP_ZONE_CHUNKS);	/* those that do */
};

/* What a device of so many chunks has room for. */
struct cow_space_size {
	u64 nr_chunks;
	u64 total;			/* of these, how many can hold something */
	u32 max_blocks;			/* of all tables on the device */
};

struct cow_space {
	spinlock_t *state_lock;		/* the origin's */
	struct xarray segments;		/* number -> bitmap of chunks in use */
	const struct cowsnap_geometry *geometry;	/* NULL: no tables */
	u64 nr_chunks;			/* of the device */
	u64 total;			/* of those, how many can hold something */
	u64 used;			/* all that are set aside are */
	struct list_head asides;	/* struct cow_aside */
	u64 nr_aside;			/* chunks of these that hold nothing */
	u64 table_chunks;		/* tables of the segments reached so far */
	u64 table_end;			/* chunk where the next such segment begins */
	u64 nr_segments;		/* how many there are before it */
	u32 blocks;			/* table blocks made ready */
	u32 max_blocks;			/* of all tables on the device */
	u64 cursor_segment;		/* where to look next */
	u32 cursor_slot;
	struct cow_near near;
};

/* @state_lock guards all of it from then on. */
void cow_space_init(struct cow_space *space, const struct cowsnap_geometry *geometry,
		    u64 nr_chunks, spinlock_t *state_lock);
void cow_space_destroy(struct cow_space *space);

/*
 * The walk that takes its time on a large device, so without a lock: it needs nothing of @space
 * that changes.
 */
void cow_space_measure(const struct cow_space *space, u64 nr_chunks,
		       struct cow_space_size *size);
/* The device has become as long as that. origin->state_lock held. */
void cow_space_resize(struct cow_space *space, const struct cow_space_size *size);

/*
 * Up to @nr chunks in a row from *@place on. Returns how many; 0: none that is
 * ready, or no memory. origin->state_lock held.
 */
u32 cow_space_alloc(struct cow_space *space, u32 nr, u64 *place);

/* Give chunks back; those that are set aside stay so, empty. origin->state_lock held. */
void cow_space_free(struct cow_space *space, u64 place, u32 nr);

/* How many chunks hold something, but for those of zones that do not. state_lock held. */
static inline u64 cow_space_filled(const struct cow_space *space)
{
	return space->used - space->nr_aside;
}

/*
 * The longest run of free chunks in segment @index whose table blocks are ready, at most @most.
 * Returns its length. origin->state_lock held.
 */
u32 cow_space_longest(struct cow_space *space, u64 index, u32 most, u64 *place);

/* Is nothing ready after segment @index? origin->state_lock held. */
bool cow_space_is_last(const struct cow_space *space, u64 index);

/* Set aside chunks that cow_space_longest() has found. False: no memory. state_lock held. */
bool cow_space_set_aside(struct cow_space *space, struct cow_aside *aside, u64 place, u32 nr);

/*
 * In a new store, where @place is in the second segment and about to be set aside, room is given
 * out behind that: the superblocks share table blocks with the first segment, and of these a commit
 * writes one. What is left of the first one comes last. origin->state_lock held.
 */
void cow_space_skip_first(struct cow_space *space, u64 place);

/* From now on @nr chunks of @aside hold something. origin->state_lock held. */
void cow_space_use_aside(struct cow_space *space, struct cow_aside *aside, u64 place, u32 nr);

/* What holds nothing goes back into the room. origin->state_lock held. */
void cow_space_end_aside(struct cow_space *space, struct cow_aside *aside);

/* While loading: does this chunk hold something? */
bool cow_space_is_taken(const struct cow_space *space, u64 place);

/* While loading: @nr chunks hold something. 0, -ERANGE, -EEXIST or -ENOMEM. */
int cow_space_take(struct cow_space *space, u64 place, u32 nr);

/* Chunks that can hold something now, used ones included. */
u64 cow_space_ready(const struct cow_space *space);

#endif

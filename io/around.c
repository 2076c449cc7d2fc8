// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: copying around writes to regions that prove hot
 *
 * On a rotational disk a seek costs as much as reading many chunks. So on the second write
 * into a region that needs a copy, the whole region is copied, and the writes that follow
 * find all of it preserved. A first write leaves the region's number in a table of regions
 * seen. Another table has the regions that were copied, with a bit for each 64th part that
 * has been written since:
 *
 *   first write --> seen --> second first write --> copied whole --> used, bit by bit
 *
 * Chunks that were copied around a write and not used yet may take a 25th of the smallest
 * store, and twice as much as has been used, but for the first regions: whoever writes all
 * over a large device comes to few regions twice, and would wait for nothing. Beyond that only
 * what is needed is copied, until more of them have been used. Both tables overwrite on a
 * collision; what was not used by then counts as waste.
 *
 * By default nothing is copied around on devices that are not rotational.
 * origin->state_lock guards all of this; cow_around_used() reads it without the lock.
 */
#include <linux/hash.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-compat.h"
#include "io/around.h"
#include "origin/origin.h"
#include "store/options.h"
#include "store/store.h"

/* The default for rotational disks: 2 ms of transfer after a seek of 10. */
#define AROUND_DEFAULT_KIB	256U

static int copy_around = -1;
module_param(copy_around, int, 0644);
MODULE_PARM_DESC(copy_around,
		 "KiB of a region that is copied whole at its second first write, for new stores (0, or a power of two from 32 to 1024; default -1: 256 for rotational disks, else 0)");

unsigned int cow_around_default(struct block_device *bdev)
{
	int kib = READ_ONCE(copy_around);

	if (kib < 0)
		return bdev_rot(bdev) ? AROUND_DEFAULT_KIB : 0;
	return cow_around_size(kib);
}

/*
 * Of this it is tried out whether any is used: 4 MiB. Then the more is used, the more is copied.
 * What is never used fills the cache of an array, for which its other users wait.
 */
#define AROUND_TRIAL_SECTORS	8192U
#define AROUND_GAIN		2U

/* A region that was copied whole. */
struct cow_around_copied {
	u64 region;			/* its number plus one */
	u64 used;			/* a bit for each part that was written since */
};

#define COW_AROUND_SEEN_BITS	10
#define COW_AROUND_COPIED_BITS	10

struct cow_around {
	sector_t sectors;		/* of a region; 0: off */
	unsigned int shift;
	sector_t limit;			/* of what may be there unused */
	u64 unused;			/* sectors copied around and not written since */
	u64 used;			/* sectors copied around and written since */
	u64 copied_around;		/* all of them */
	u64 seen[1 << COW_AROUND_SEEN_BITS];	/* regions plus one: have had a first write */
	struct cow_around_copied copied[1 << COW_AROUND_COPIED_BITS];
};

static u64 *seen_entry(struct cow_around *a, u64 region)
{
	return &a->seen[hash_64(region, COW_AROUND_SEEN_BITS)];
}

static struct cow_around_copied *copied_entry(struct cow_around *a, u64 region)
{
	return &a->copied[hash_64(region, COW_AROUND_COPIED_BITS)];
}

/* Which of the 64 parts of its region the sectors from @start to @end touch. */
static u64 region_parts(const struct cow_around *a, sector_t start, sector_t end)
{
	sector_t base = round_down(start, a->sectors);
	unsigned int first = (start - base) * 64 >> a->shift;
	unsigned int last = min_t(u64, (end - 1 - base) * 64 >> a->shift, 63);

	return GENMASK_ULL(last, first);
}

static void note_copied(struct cow_around *a, u64 region, u64 used)
{
	struct cow_around_copied *c = copied_entry(a, region);

	WRITE_ONCE(c->region, region + 1);
	WRITE_ONCE(c->used, used);
}

/* Is there one region too many that may never be used? */
static bool is_wasteful(const struct cow_around *a)
{
	u64 limit = min_t(u64, a->limit, AROUND_TRIAL_SECTORS + a->used * AROUND_GAIN);

	return a->unused + a->sectors > limit;
}

bool cow_around_note(struct cow_origin *o, sector_t *start, sector_t *end)
{
	struct cow_around *a = o->around;
	u64 region, *seen;

	lockdep_assert_held(&o->state_lock);
	if (!a->sectors || *end - *start >= a->sectors)
		return false;
	region = *start >> a->shift;
	seen = seen_entry(a, region);
	if (*seen != region + 1) {
		*seen = region + 1;
		return false;
	}
	if (is_wasteful(a))
		return false;
	*seen = 0;
	note_copied(a, region, region_parts(a, *start, *end));
	*start = region << a->shift;
	*end = max(*end, (sector_t)(region + 1) << a->shift);
	return true;
}

void cow_around_used(struct cow_origin *o, sector_t start, sector_t end)
{
	struct cow_around *a = o->around;
	struct cow_around_copied *c;
	u64 region, mask;

	if (!READ_ONCE(a->sectors))
		return;
	region = start >> a->shift;
	c = copied_entry(a, region);
	if (READ_ONCE(c->region) != region + 1)
		return;
	spin_lock(&o->state_lock);
	if (a->sectors && c->region == region + 1) {
		mask = region_parts(a, start, end) & ~c->used;
		c->used |= mask;
		a->unused -= min(a->unused, hweight64(mask) * (a->sectors >> 6));
		a->used += hweight64(mask) * (a->sectors >> 6);
	}
	spin_unlock(&o->state_lock);
}

void cow_around_limit(struct cow_origin *o)
{
	struct cow_around *a = o->around;
	struct cow_store *store;
	sector_t sectors = 0, most = 0;

	lockdep_assert_held(&o->state_lock);
	list_for_each_entry(store, &o->stores, node) {
		sector_t room = cow_chunk_to_sector(store, store->space.total) / 25;

		sectors = max(sectors, cow_store_around(store));
		most = most ? min(most, room) : room;
	}
	/* A region's number is only valid for one size of region. */
	if (sectors != a->sectors) {
		memset(a->seen, 0, sizeof(a->seen));
		memset(a->copied, 0, sizeof(a->copied));
		a->shift = sectors ? ilog2(sectors) : 0;
		WRITE_ONCE(a->sectors, sectors);
	}
	a->limit = most;
}

void cow_around_count(struct cow_origin *o, sector_t sectors)
{
	struct cow_around *a = o->around;

	lockdep_assert_held(&o->state_lock);
	a->copied_around += sectors;
	a->unused += sectors;
}

void cow_around_read_stats(const struct cow_around *a, struct cow_around_stats *out)
{
	out->copied = READ_ONCE(a->copied_around);
	out->unused = READ_ONCE(a->unused);
}

void cow_around_reset_stats(struct cow_origin *o)
{
	lockdep_assert_held(&o->state_lock);
	o->around->copied_around = 0;
}

struct cow_around *cow_around_alloc(void)
{
	return kzalloc(sizeof(struct cow_around), GFP_KERNEL);
}

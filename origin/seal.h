/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: where home is, for an origin that is sealed
 *
 * The content of the first sectors of a sealed origin is in its store (disk/seal.c). These sectors
 * are whole chunks, and end at origin->sealed_end; 0: it is not sealed. What touches home asks here
 * first: it cuts at that end, and goes to the one device or the other.
 *
 * The three fields are set before the store is hooked into its origin, and stay until the store is
 * closed. A table that shows a sealed origin names the store, so they do not change under its I/O.
 */
#ifndef DM_COWSNAP_ORIGIN_SEAL_H
#define DM_COWSNAP_ORIGIN_SEAL_H

#include "dm-cowsnap-compat.h"
#include "origin/origin.h"

/* Is what begins at @sector in the store? Any context. */
static inline bool cow_is_sealed(const struct cow_origin *o, sector_t sector)
{
	return unlikely(sector < READ_ONCE(o->sealed_end));
}

/* How many of @nr sectors from @sector on are in the same place? At least one. Any context. */
static inline u64 cow_home_run(const struct cow_origin *o, sector_t sector, u64 nr)
{
	sector_t end = READ_ONCE(o->sealed_end);

	return unlikely(sector < end) ? min_t(u64, nr, end - sector) : nr;
}

/* The device of what begins at *@sector, and where it is there. Any context. */
static inline struct block_device *cow_home(const struct cow_origin *o, sector_t *sector)
{
	if (!cow_is_sealed(o, *sector))
		return o->bdev;
	*sector += o->sealed_at;
	return o->sealed_bdev;
}

/* @bio, which is within one cow_home_run(), goes home. Any context. */
static inline void cow_bio_go_home(const struct cow_origin *o, struct bio *bio)
{
	sector_t sector = bio->bi_iter.bi_sector;

	bio_set_dev(bio, cow_home(o, &sector));
	bio->bi_iter.bi_sector = sector;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: does a disk have a cache that takes writes at once?
 *
 * A disk whose cache has a battery need not tell of it. So single writes are timed: some that end
 * at once show that there is one, others only that it has no room just now.
 */
#ifndef DM_COWSNAP_STORE_CACHE_H
#define DM_COWSNAP_STORE_CACHE_H

#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/types.h>

/* What has been seen of a device. All of it is for one task: the engine's worker. */
struct cow_cache {
	u32 told;
	u32 asked;			/* times, since it was last in doubt */
};

/* A write that ends by then has not waited for the disk to turn. */
#define COW_CACHE_NS		(200U * NSEC_PER_USEC)

/* So many of these show that there is a cache, and no more than that many are remembered. */
#define COW_CACHE_ENOUGH	8U
#define COW_CACHE_MOST		16U

/* One of so many writes finds out again. */
#define COW_CACHE_PROBE		256U

/* Is there one? @weight: after so many other writes one that ended at once is forgotten. */
static inline bool cow_cache_is_there(const struct cow_cache *cache, u32 weight)
{
	return cache->told >= COW_CACHE_ENOUGH * weight;
}

/* A write took @ns. */
static inline void cow_cache_judge(struct cow_cache *cache, u32 weight, u64 ns)
{
	if (ns < COW_CACHE_NS) {
		cache->told = min(cache->told + weight, COW_CACHE_MOST * weight);
	} else if (cache->told) {
		cache->told--;
		/* The cache may be gone: the next write finds out. */
		cache->asked = 0;
	}
}

/* Is this one of those writes that find out? */
static inline bool cow_cache_is_probed(struct cow_cache *cache)
{
	return !(cache->asked++ % COW_CACHE_PROBE);
}

#endif

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-platter: the write cache, volatile or with a battery.
 *
 * A write that finds room is acknowledged when it has crossed the link. What the cache holds
 * is written to the media in runs of neighbouring blocks, going upwards from the head and
 * then from the bottom again; among the next few runs the one whose turn comes first.
 */
#include "platter.h"

#include <linux/slab.h>

/* One run is at most a megabyte: the disk has other things to do as well. */
#define MAX_RUN_BLOCKS	256

int platter_cache_init(struct platter_cache *cache)
{
	unsigned int i;

	cache->tree = RB_ROOT;
	INIT_LIST_HEAD(&cache->oldest);
	INIT_LIST_HEAD(&cache->unused);
	INIT_LIST_HEAD(&cache->leaving);
	INIT_LIST_HEAD(&cache->waiting);
	INIT_LIST_HEAD(&cache->flushes);
	if (cache->kind == PLATTER_CACHE_NONE)
		return 0;
	cache->all = kvcalloc(cache->blocks, sizeof(*cache->all), GFP_KERNEL);
	if (!cache->all)
		return -ENOMEM;
	for (i = 0; i < cache->blocks; i++)
		list_add_tail(&cache->all[i].list, &cache->unused);
	cache->nr_unused = cache->blocks;
	return 0;
}

void platter_cache_exit(struct platter_cache *cache)
{
	kvfree(cache->all);
}

/* ---- blocks ---- */

static struct platter_dirty *dirty_of(struct rb_node *node)
{
	return rb_entry(node, struct platter_dirty, node);
}

/* The first dirty block at or after @block, or NULL. */
static struct platter_dirty *first_from(const struct platter_cache *cache, sector_t block)
{
	struct rb_node *node = cache->tree.rb_node;
	struct platter_dirty *best = NULL;

	while (node) {
		struct platter_dirty *dirty = dirty_of(node);

		if (dirty->block < block) {
			node = node->rb_right;
		} else {
			best = dirty;
			node = node->rb_left;
		}
	}
	return best;
}

static struct platter_dirty *find(const struct platter_cache *cache, sector_t block)
{
	struct platter_dirty *dirty = first_from(cache, block);

	return dirty && dirty->block == block ? dirty : NULL;
}

static struct platter_dirty *next_block(struct platter_dirty *dirty)
{
	struct rb_node *node = rb_next(&dirty->node);

	return node ? dirty_of(node) : NULL;
}

static void add(struct platter_cache *cache, sector_t block)
{
	struct platter_dirty *dirty = list_first_entry(&cache->unused, struct platter_dirty, list);
	struct rb_node **link = &cache->tree.rb_node, *parent = NULL;

	dirty->block = block;
	dirty->seq = ++cache->seq;
	while (*link) {
		parent = *link;
		link = block < dirty_of(parent)->block ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&dirty->node, parent, link);
	rb_insert_color(&dirty->node, &cache->tree);
	list_move_tail(&dirty->list, &cache->oldest);
	cache->nr_unused--;
	cache->nr_dirty++;
}

static void take_out(struct platter_cache *cache, struct platter_dirty *dirty,
		     struct list_head *where)
{
	rb_erase(&dirty->node, &cache->tree);
	list_move_tail(&dirty->list, where);
	cache->nr_dirty--;
}

static sector_t first_block(const struct platter_io *io)
{
	return io->sector >> PLATTER_BLOCK_SHIFT;
}

/* The block after the last. */
static sector_t end_block(const struct platter_io *io)
{
	return (io->sector + io->sectors + PLATTER_BLOCK_SECTORS - 1) >> PLATTER_BLOCK_SHIFT;
}

static unsigned int nr_present(const struct platter_cache *cache, const struct platter_io *io)
{
	struct platter_dirty *dirty = first_from(cache, first_block(io));
	unsigned int n = 0;

	for (; dirty && dirty->block < end_block(io); dirty = next_block(dirty))
		n++;
	return n;
}

bool platter_cache_has(const struct platter_cache *cache, const struct platter_io *io)
{
	return cache->nr_dirty && nr_present(cache, io) == end_block(io) - first_block(io);
}

/* ---- writes and flushes ---- */

static bool has_room(const struct platter_cache *cache, const struct platter_io *io)
{
	return end_block(io) - first_block(io) - nr_present(cache, io) <= cache->nr_unused;
}

static void accept(struct platter_disk *disk, struct platter_io *io, u64 now)
{
	struct platter_cache *cache = &disk->cache;
	sector_t block;

	for (block = first_block(io); block < end_block(io); block++) {
		if (!find(cache, block))
			add(cache, block);
	}
	platter_cross_link(disk, io, now);
}

/* What goes to the media past the cache must not be overwritten by it later. */
static void forget(struct platter_cache *cache, const struct platter_io *io)
{
	struct platter_dirty *dirty = first_from(cache, first_block(io)), *next;

	for (; dirty && dirty->block < end_block(io); dirty = next) {
		next = next_block(dirty);
		take_out(cache, dirty, &cache->unused);
		cache->nr_unused++;
	}
}

void platter_cache_write(struct platter_disk *disk, struct platter_io *io, u64 now)
{
	struct platter_cache *cache = &disk->cache;
	bool through = io->through && cache->kind == PLATTER_CACHE_VOLATILE;

	if (through || end_block(io) - first_block(io) > cache->blocks / 2) {
		forget(cache, io);
		platter_queue(disk, io);
	} else if (list_empty(&cache->waiting) && has_room(cache, io)) {
		accept(disk, io, now);
	} else {
		list_add_tail(&io->list, &cache->waiting);
	}
}

static bool all_written_before(struct platter_cache *cache, u64 seq)
{
	struct platter_dirty *dirty;

	list_for_each_entry(dirty, &cache->leaving, list) {
		if (dirty->seq <= seq)
			return false;
	}
	dirty = list_first_entry_or_null(&cache->oldest, struct platter_dirty, list);
	return !dirty || dirty->seq > seq;
}

void platter_cache_flush(struct platter_disk *disk, struct platter_io *io, u64 now)
{
	struct platter_cache *cache = &disk->cache;

	io->flush_seq = cache->seq;
	if (cache->kind == PLATTER_CACHE_VOLATILE && !all_written_before(cache, io->flush_seq))
		list_add_tail(&io->list, &cache->flushes);
	else
		platter_cross_link(disk, io, now);
}

/* ---- to the media ---- */

bool platter_cache_must_destage(const struct platter_cache *cache)
{
	return cache->nr_dirty && (!list_empty(&cache->waiting) || !list_empty(&cache->flushes));
}

bool platter_cache_may_destage(const struct platter_cache *cache)
{
	return cache->nr_dirty * 100ULL > (u64)cache->blocks * cache->destage_percent;
}

/* The next block that does not follow on @dirty, from the bottom again after the last. */
static struct platter_dirty *next_run(const struct platter_cache *cache,
				      struct platter_dirty *dirty)
{
	unsigned int n = 0;
	sector_t block;

	do {
		block = dirty->block;
		dirty = next_block(dirty);
	} while (dirty && dirty->block == block + 1 && ++n < MAX_RUN_BLOCKS);
	return dirty ? dirty : first_from(cache, 0);
}

static struct platter_dirty *choose_run(const struct platter_disk *disk, u64 from_ns)
{
	const struct platter_cache *cache = &disk->cache;
	struct platter_dirty *dirty, *best = NULL;
	sector_t head_block = disk->head >> PLATTER_BLOCK_SHIFT;
	u64 ns, best_ns = U64_MAX;
	unsigned int i;

	dirty = first_from(cache, head_block) ?: first_from(cache, 0);
	for (i = 0; i < cache->window; i++) {
		ns = platter_reach_ns(disk, dirty->block << PLATTER_BLOCK_SHIFT, from_ns);
		if (ns < best_ns) {
			best_ns = ns;
			best = dirty;
		}
		/* Nothing is nearer than what follows under the head. */
		if (ns == from_ns)
			break;
		dirty = next_run(cache, dirty);
	}
	return best;
}

void platter_cache_take_run(struct platter_disk *disk, u64 from_ns, sector_t *sector,
			    unsigned int *sectors)
{
	struct platter_cache *cache = &disk->cache;
	struct platter_dirty *dirty = choose_run(disk, from_ns), *next;
	sector_t first = dirty->block, block = first;

	while (dirty && dirty->block == block && block - first < MAX_RUN_BLOCKS) {
		next = next_block(dirty);
		take_out(cache, dirty, &cache->leaving);
		dirty = next;
		block++;
	}
	*sector = first << PLATTER_BLOCK_SHIFT;
	*sectors = (block - first) << PLATTER_BLOCK_SHIFT;
}

static void accept_waiting(struct platter_disk *disk, u64 now)
{
	struct platter_cache *cache = &disk->cache;
	struct platter_io *io, *next;

	list_for_each_entry_safe(io, next, &cache->waiting, list) {
		if (!has_room(cache, io))
			break;
		list_del(&io->list);
		accept(disk, io, now);
	}
}

static void end_flushes(struct platter_disk *disk, u64 now)
{
	struct platter_cache *cache = &disk->cache;
	struct platter_io *io, *next;

	list_for_each_entry_safe(io, next, &cache->flushes, list) {
		if (!all_written_before(cache, io->flush_seq))
			break;
		list_del(&io->list);
		platter_cross_link(disk, io, now);
	}
}

void platter_cache_destaged(struct platter_disk *disk, u64 now)
{
	struct platter_cache *cache = &disk->cache;
	struct platter_dirty *dirty;

	list_for_each_entry(dirty, &cache->leaving, list)
		cache->nr_unused++;
	list_splice_tail_init(&cache->leaving, &cache->unused);
	accept_waiting(disk, now);
	end_flushes(disk, now);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: trackers in memory
 *
 * A write that goes home sets the bits of its chunks first. It may do so in a region that is
 * marked on the disk; for the mark of another region it waits (io/track.c). Where all bits
 * are set the disk knows it already, and nothing is to be done.
 *
 *            want                 work: mark on disk             note
 *   clean ----------> wanted --------------------------> marked <-----> bits are set
 *     ^                                                    |
 *     '---- work: exact bits on disk, the mark taken away -'   left alone for a while
 *
 * Before the exact bits are written the mark goes in memory, and an RCU grace period passes:
 * a writer that has seen the mark has set its bits by then.
 */
#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "origin/origin.h"
#include "store/snapshots.h"
#include "store/store.h"
#include "store/track.h"

/* How many regions ahead of a stream are marked, so that it need not wait for each. */
#define MARK_AHEAD	4U

static unsigned long *bits_alloc(u64 nr)
{
	return kvcalloc(BITS_TO_LONGS(nr), sizeof(unsigned long), GFP_KERNEL | __GFP_NOWARN);
}

struct cow_tracker *cow_tracker_alloc(struct cow_snap *snap,
				      const struct cowsnap_geometry *geometry, u32 series)
{
	struct cow_tracker *t = kzalloc(sizeof(*t), GFP_KERNEL);

	if (!t)
		return NULL;
	INIT_LIST_HEAD(&t->node);
	t->snap = snap;
	t->store = snap->store;
	t->series = series;
	cowsnap_track_layout(geometry, &t->layout);
	t->nr_chunks = cow_sector_to_chunk(snap->store,
					   snap->nr_sectors + snap->store->chunk_sectors - 1);
	t->nr_blocks = cowsnap_track_blocks(geometry, &t->layout, snap->nr_sectors);
	t->page_blocks = min(geometry->chunk_blocks,
			     COWSNAP_MAX_BLOCK_BYTES / geometry->block_bytes);
	t->nr_pages = DIV_ROUND_UP_ULL(t->nr_blocks, t->page_blocks);
	t->nr_pieces = cowsnap_track_pieces(geometry, t->nr_blocks);
	t->place = kvcalloc(t->nr_pieces, sizeof(*t->place), GFP_KERNEL | __GFP_NOWARN);
	t->bits = bits_alloc(cow_tracker_bits(t));
	t->marked = bits_alloc(cow_tracker_regions(t));
	t->wanted = bits_alloc(cow_tracker_regions(t));
	t->marking = bits_alloc(cow_tracker_regions(t));
	t->used = bits_alloc(cow_tracker_regions(t));
	if (t->place && t->bits && t->marked && t->wanted && t->marking && t->used)
		return t;
	cow_tracker_free(t);
	return NULL;
}

void cow_tracker_free(struct cow_tracker *t)
{
	if (!t)
		return;
	kvfree(t->place);
	kvfree(t->bits);
	kvfree(t->marked);
	kvfree(t->wanted);
	kvfree(t->marking);
	kvfree(t->used);
	kfree(t);
}

void cow_tracker_hook(struct cow_tracker *t)
{
	struct cow_origin *o = t->store->origin;

	lockdep_assert_held(&t->store->track_lock);
	spin_lock(&o->state_lock);
	WRITE_ONCE(o->nr_trackers, o->nr_trackers + 1);
	list_add_tail_rcu(&t->node, &t->store->trackers);
	spin_unlock(&o->state_lock);
	synchronize_rcu();
}

void cow_tracker_unhook(struct cow_tracker *t)
{
	struct cow_origin *o = t->store->origin;

	lockdep_assert_held(&t->store->track_lock);
	spin_lock(&o->state_lock);
	WRITE_ONCE(o->nr_trackers, o->nr_trackers - 1);
	list_del_rcu(&t->node);
	spin_unlock(&o->state_lock);
	synchronize_rcu();
}

/* The chunks of the tracker that sectors touch: [*@first, end), and the end. */
static u64 tracked_chunks(const struct cow_tracker *t, sector_t start, sector_t end, u64 *first)
{
	*first = cow_sector_to_chunk(t->store, start);
	return min(t->nr_chunks, cow_sector_to_chunk(t->store, end - 1) + 1);
}

/* A stream comes to @region: the marks that it will need are made while it writes here. */
static void want_ahead(struct cow_tracker *t, u64 region)
{
	u64 at, end = min(region + 1 + MARK_AHEAD, cow_tracker_regions(t));
	bool any = false;

	if (!region || !test_bit(region - 1, t->marked))
		return;
	for (at = region + 1; at < end; at++)
		if (!test_bit(at, t->marked) && !test_and_set_bit(at, t->wanted))
			any = true;
	if (any)
		queue_work(t->store->origin->wq, &t->store->track_work);
}

/* Word by word, beside others that set bits of the same words. */
static void set_bits(struct cow_tracker *t, u64 at, u64 end)
{
	while (at < end) {
		u64 stop = min_t(u64, end, (at | (BITS_PER_LONG - 1)) + 1);
		unsigned long *word = t->bits + BIT_WORD(at);
		unsigned long mask = GENMASK((stop - 1) % BITS_PER_LONG, at % BITS_PER_LONG);

		if ((READ_ONCE(*word) & mask) != mask)
			set_mask_bits(word, 0, mask);
		at = stop;
	}
}

bool cow_tracker_note(struct cow_tracker *t, sector_t start, sector_t end)
{
	u64 first, stop, region, last = tracked_chunks(t, start, end, &first);

	/* Most writes are to one chunk, which has been written before. */
	if (first + 1 == last && test_bit(first, t->bits))
		return true;
	while ((first = find_next_zero_bit(t->bits, last, first)) < last) {
		region = first >> t->layout.region_shift;
		stop = min(last, (region + 1) << t->layout.region_shift);
		if (!test_bit(region, t->marked))
			return false;
		if (!test_bit(region, t->used)) {
			set_bit(region, t->used);
			want_ahead(t, region);
		}
		set_bits(t, first, stop);
		first = stop;
	}
	return true;
}

void cow_tracker_want(struct cow_tracker *t, sector_t start, sector_t end)
{
	u64 first, last = tracked_chunks(t, start, end, &first);
	u64 region;

	while ((first = find_next_zero_bit(t->bits, last, first)) < last) {
		region = first >> t->layout.region_shift;
		if (!test_bit(region, t->marked))
			set_bit(region, t->wanted);
		first = (region + 1) << t->layout.region_shift;
	}
}

void cow_track_release(struct cow_store *store)
{
	struct cow_origin *o = store->origin;

	spin_lock(&o->state_lock);
	list_splice_tail_init(&store->track_waiting, &o->deferred);
	mod_delayed_work(o->wq, &o->decide_work, 0);
	spin_unlock(&o->state_lock);
}

void cow_tracker_set(struct cow_tracker *t, u64 chunk, u64 nr)
{
	u64 end = min(t->nr_chunks, chunk + nr);

	lockdep_assert_held(&t->store->track_lock);
	for (; chunk < end; chunk++) {
		set_bit(chunk >> t->layout.region_shift, t->marked);
		set_bit(chunk, t->bits);
	}
}

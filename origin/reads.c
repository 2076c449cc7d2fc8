// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: reads of snapshots that were sent home
 *
 * Promise kept here: I4. A snapshot's read that goes home is entered in an interval
 * tree of sectors before its last lookup in the map. A pending exception that has been
 * published waits for the reads that overlap it; the end of a read looks for the next
 * one to wait for.
 */
#include <linux/interval_tree_generic.h>
#include <linux/module.h>

#include "dm-cowsnap-kcopyd.h"
#include "copy/pending.h"
#include "origin/bio.h"
#include "origin/pace.h"
#include "origin/reads.h"

#define read_start(cb) ((cb)->start)
#define read_last(cb) ((cb)->last)
INTERVAL_TREE_DEFINE(struct cow_bio, rb, sector_t, subtree_last, read_start,
		     read_last, static __maybe_unused, read_tree)

void cow_track_read(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	unsigned long flags;

	cb->start = cb->bio->bi_iter.bi_sector;
	cb->last = bio_end_sector(cb->bio) - 1;
	cb->tracked = true;
	INIT_LIST_HEAD(&cb->drains);
	spin_lock_irqsave(&o->reads_lock, flags);
	read_tree_insert(cb, &o->reads);
	cow_pace_begin(o);
	spin_unlock_irqrestore(&o->reads_lock, flags);
}

/* A tracked read that @p has to wait for, if there is any. */
static struct cow_bio *overlapping_read(struct cow_origin *o, struct cow_pending *p)
{
	lockdep_assert_held(&o->reads_lock);
	return read_tree_iter_first(&o->reads, cow_pending_sector(p),
				    cow_pending_end_sector(p) - 1);
}

void cow_untrack_read(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	struct cow_pending *p, *next;
	unsigned long flags;
	bool drained = false;

	spin_lock_irqsave(&o->reads_lock, flags);
	read_tree_remove(cb, &o->reads);
	cow_pace_end(o);
	cb->tracked = false;
	list_for_each_entry_safe(p, next, &cb->drains, node) {
		struct cow_bio *read = overlapping_read(o, p);

		list_move_tail(&p->node, read ? &read->drains : &o->drained);
		drained |= !read;
	}
	spin_unlock_irqrestore(&o->reads_lock, flags);
	if (drained)
		cow_engine_kick(o->engine);
}

bool cow_reads_wait(struct cow_pending *p)
{
	struct cow_origin *o = p->store->origin;
	struct cow_bio *read;

	spin_lock_irq(&o->reads_lock);
	read = overlapping_read(o, p);
	if (read)
		list_add_tail(&p->node, &read->drains);
	spin_unlock_irq(&o->reads_lock);
	return read;
}

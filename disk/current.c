// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: a store that has part of what its origin shows
 *
 * A CURRENT version is written in place. Its record in the log has a checksum of what it was at
 * first, which decides after a crash as long as the disk does not say that the record is durable.
 * So the first write in place waits until the disk does: later records say it, and where there are
 * none the superblock is written here, once for all that wait. So it is when the first slot of
 * zeroes is to be written: older versions of the module do not know of those.
 */
#include <linux/module.h>

#include "dm-cowsnap.h"
#include "disk/current.h"
#include "disk/log.h"
#include "disk/meta.h"
#include "disk/super.h"
#include "origin/bio.h"
#include "origin/origin.h"
#include "store/room.h"
#include "store/store.h"
#include "trace/cowsnap.h"

/* When a record in front of it has not ended. */
#define NOTE_AGAIN_JIFFIES	1

bool cow_current_is_used(const struct cow_store *store)
{
	return READ_ONCE(store->has_current) || READ_ONCE(store->options.redirect);
}

void cow_current_hook(struct cow_store *store)
{
	struct cow_origin *o = store->origin;

	lockdep_assert_held(&o->state_lock);
	if (list_empty(&store->node))
		return;
	if (cow_current_is_used(store) && store->seal_state == COWSNAP_SEAL_SEALED)
		WRITE_ONCE(o->redirects_to, store);
	cow_store_settle(store);
}

void cow_current_unhook(struct cow_store *store)
{
	if (store->origin->redirects_to == store)
		WRITE_ONCE(store->origin->redirects_to, NULL);
}

void cow_current_wait(struct cow_store *store, struct cow_bio *cb)
{
	struct cow_origin *o = store->origin;

	lockdep_assert_held(&o->state_lock);
	cow_bio_park(cb, &store->current_waiting, COW_WAIT_STORE);
	queue_delayed_work(o->wq, &store->current_work,
			   store->zeroes == COW_ZEROES_WANTED || cow_log_can_note(store->meta) ?
			   0 : NOTE_AGAIN_JIFFIES);
}

/* They decide again, or end with an error. */
static void let_waiting_go(struct cow_store *store, struct list_head *waiting, bool failed)
{
	struct cow_origin *o = store->origin;
	struct cow_bio *cb, *next;

	if (!failed) {
		spin_lock(&o->state_lock);
		list_splice_tail_init(waiting, &o->deferred);
		mod_delayed_work(o->wq, &o->decide_work, 0);
		spin_unlock(&o->state_lock);
		return;
	}
	list_for_each_entry_safe(cb, next, waiting, node) {
		list_del_init(&cb->node);
		cow_bio_finish(cb, BLK_STS_IOERR);
	}
}

/* The disk says that there may be zeroes, or could not be told: then they are written as data. */
static void zeroes_are_marked(struct cow_store *store, int r)
{
	spin_lock(&store->origin->state_lock);
	store->zeroes = r ? COW_ZEROES_ARE_DATA : COW_ZEROES_MARKED;
	spin_unlock(&store->origin->state_lock);
	if (!r)
		return;
	DMWARN("store %pg: no superblock is written (%d), zeroes are data: load its tables again",
	       store->bdev, r);
}

void cow_current_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       current_work);
	struct cow_origin *o = store->origin;
	LIST_HEAD(waiting);
	bool zeroes;
	int r = 0;

	/* Who comes later waits for the next time: his record may be a later one. */
	spin_lock(&o->state_lock);
	list_splice_init(&store->current_waiting, &waiting);
	zeroes = store->zeroes == COW_ZEROES_WANTED;
	spin_unlock(&o->state_lock);
	if (zeroes || cow_log_can_note(store->meta))
		r = cow_super_write(store, NULL);
	if (zeroes)
		zeroes_are_marked(store, r);
	else if (r)
		DMERR_LIMIT("store %pg: cannot note what is durable (%d): writes to %pg fail",
			    store->bdev, r, o->bdev);
	/* Who waits for something else waits once more. */
	let_waiting_go(store, &waiting, r && !zeroes);
}

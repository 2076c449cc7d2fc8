// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: each bio passes one decision
 *
 *   map --> decide --> home, the store, or done
 *             ^  |
 *             |  '--> held, parked, deferred, waiting: see docs/design.md, "Lists"
 *             |                |
 *             '- cow_bio_run() '  what it waited for has ended
 *
 * A bio that waited decides again. Nothing is remembered about it, so whatever changed
 * meanwhile is taken into account.
 */
#include <linux/module.h>

#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "io/bio.h"
#include "io/decide.h"
#include "io/merge.h"
#include "io/redirect.h"
#include "io/snapshot.h"
#include "io/write.h"
#include "origin/bio.h"
#include "origin/origin.h"
#include "origin/seal.h"
#include "trace/cowsnap.h"

/* There is no merge: the origin shows home, but for what was redirected. */
static int read_home(struct cow_bio *cb, struct cow_bio **part)
{
	const struct bio *bio = cb->bio;

	if (unlikely(READ_ONCE(cb->origin->redirects_to)))
		return cow_redirect_read(cb, part);
	*part = cow_bio_front(cb, cow_home_run(cb->origin, bio->bi_iter.bi_sector,
					       bio_sectors(bio)));
	if (!*part)
		return cow_bio_hand_over(cb, part);
	cow_bio_go_home(cb->origin, (*part)->bio);
	return DM_MAPIO_REMAPPED;
}

static int decide_bio(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;

	*part = cb;
	/* Undo what an earlier decision has set. */
	cb->flushed = NULL;
	if (cb->gated) {
		cb->gated = false;
		percpu_ref_put(&o->gate);
	}
	if (cb->via_merge) {
		cb->via_merge = false;
		cb->snap = NULL;
		bio_set_dev(cb->bio, o->bdev);
	}
	if (cb->snap)
		return cow_snap_decide(cb, part);
	if (unlikely(READ_ONCE(o->merge) || !bio_sectors(cb->bio)))
		return cow_merge_decide(cb, part);
	if (bio_data_dir(cb->bio) == READ)
		return read_home(cb, part);
	return cow_origin_decide(cb, part);
}

/* Writeback throttling may put the task that submits such a bio to sleep. */
static bool may_be_throttled(const struct bio *bio)
{
	const blk_opf_t direct = REQ_SYNC | REQ_IDLE;

	return op_is_write(bio_op(bio)) && (bio->bi_opf & direct) != direct;
}

/* The engine's worker must not sleep here: copies that others wait for come after @cb. */
static void submit(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;

	cow_bio_sent(cb);
	if (!may_be_throttled(cb->bio) || !cow_engine_is_current(o->engine)) {
		submit_bio_noacct(cb->bio);
		return;
	}
	/* Unlocked, @o may go. */
	spin_lock(&o->state_lock);
	bio_list_add(&o->writeback, cb->bio);
	queue_work(o->wq, &o->writeback_work);
	spin_unlock(&o->state_lock);
}

void cow_origin_writeback_work(struct work_struct *work)
{
	struct cow_origin *o = container_of(work, struct cow_origin, writeback_work);
	struct bio_list bios;
	struct blk_plug plug;
	struct bio *bio;

	spin_lock(&o->state_lock);
	bios = o->writeback;
	bio_list_init(&o->writeback);
	spin_unlock(&o->state_lock);
	blk_start_plug(&plug);
	while ((bio = bio_list_pop(&bios)))
		submit_bio_noacct(bio);
	blk_finish_plug(&plug);
}

int cow_bio_map(struct cow_bio *cb)
{
	struct cow_bio *part;
	int r;

	cb->in_map = true;
	r = decide_bio(cb, &part);
	if (r == DM_MAPIO_REMAPPED)
		cow_bio_sent(part);
	return r == DM_MAPIO_KILL ? cow_bio_finish(part, BLK_STS_IOERR) : r;
}

void cow_bio_run(struct cow_bio *cb)
{
	struct cow_bio *part;
	bool more;

	trace_cowsnap_decide_again(cb->origin->bdev->bd_dev, cb->bio);
	/* A bio that had to wait may wait for tags as well, and is not polled for. */
	cb->bio->bi_opf &= ~(REQ_NOWAIT | REQ_POLLED);
	cb->in_map = false;
	do {
		int r = decide_bio(cb, &part);

		/* If it was not cut, @cb may have been freed by now. */
		more = part != cb;
		if (more && !cb->piece)
			cb = cb->rest;
		if (r == DM_MAPIO_REMAPPED)
			submit(part);
		else if (r == DM_MAPIO_KILL)
			cow_bio_finish(part, BLK_STS_IOERR);
	} while (more);
}

static void run_held(struct cow_origin *o)
{
	struct cow_bio *cb, *next;
	LIST_HEAD(bios);

	spin_lock(&o->state_lock);
	if (!o->holding)
		list_splice_init(&o->held, &bios);
	spin_unlock(&o->state_lock);
	list_for_each_entry_safe(cb, next, &bios, node) {
		list_del_init(&cb->node);
		cow_bio_run(cb);
	}
}

/*
 * The first deferred bio. NULL if there is none, or if one had to be deferred again since
 * @deferrals was read: then there is no memory for the others either.
 */
static struct cow_bio *pop_deferred(struct cow_origin *o, u64 deferrals)
{
	struct cow_bio *cb = NULL;

	spin_lock(&o->state_lock);
	if (o->nr_deferrals == deferrals)
		cb = list_first_entry_or_null(&o->deferred, struct cow_bio, node);
	if (cb)
		list_del_init(&cb->node);
	spin_unlock(&o->state_lock);
	return cb;
}

void cow_origin_decide_work(struct work_struct *work)
{
	struct cow_origin *o = container_of(to_delayed_work(work), struct cow_origin,
					    decide_work);
	u64 deferrals = READ_ONCE(o->nr_deferrals);
	struct blk_plug plug;
	struct cow_bio *cb;

	blk_start_plug(&plug);
	run_held(o);
	while ((cb = pop_deferred(o, deferrals)))
		cow_bio_run(cb);
	blk_finish_plug(&plug);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: bios are cut, deferred, handed over and ended
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "copy/pending.h"
#include "copy/undo.h"
#include "disk/verify.h"
#include "io/bio.h"
#include "origin/bio.h"
#include "origin/flush.h"
#include "origin/reads.h"
#include "store/readers.h"
#include "store/snapshots.h"
#include "trace/cowsnap.h"

/* A part of a bio that was cut in a worker, where dm can no longer do so. */
struct cow_piece {
	struct cow_bio cb;
	struct bio *whole;
	struct bio bio;
};

/* -------------------------------------------------------------- parts of bios */

/*
 * In map, dm cuts a bio and maps each part by itself. In a worker it cannot: there a bio
 * that has to be cut becomes the whole of its pieces, and nothing more than that.
 *
 *   whole <-- front        the first cut makes two pieces
 *         <-- rest
 *         <-- front        each further one makes another of the rest
 *
 * A piece is decided, sent and ended like any bio. It has its own reference of the gate, is
 * tracked and checked and carries data for itself, so that none of this is held while
 * another piece waits. The whole counts its pieces with bio_inc_remaining(), keeps the first
 * error and ends with the last of them. A piece is never the whole of others.
 *
 * If there is no memory for pieces, the parts of a bio are served one after the other: see
 * shorten().
 */

static void piece_endio(struct bio *bio)
{
	struct cow_piece *piece = container_of(bio, struct cow_piece, bio);
	struct bio *whole = piece->whole;

	if (cow_bio_ended(&piece->cb, &bio->bi_status) == DM_ENDIO_INCOMPLETE)
		return;
	if (bio->bi_status && !whole->bi_status)
		whole->bi_status = bio->bi_status;
	bio_put(bio);
	bio_endio(whole);
}

/* A piece as long as @cb is now, to be counted in @whole. NULL without memory. */
static struct cow_bio *piece_alloc(struct cow_bio *cb, struct bio *whole)
{
	struct cow_piece *piece;
	struct bio *bio;

	bio = cow_bio_clone(cb->bio, GFP_NOWAIT | __GFP_NOWARN, &cb->origin->pieces);
	if (!bio)
		return NULL;
	bio->bi_end_io = piece_endio;
	piece = container_of(bio, struct cow_piece, bio);
	piece->whole = whole;
	piece->cb = *cb;
	piece->cb.bio = bio;
	piece->cb.piece = true;
	INIT_LIST_HEAD(&piece->cb.node);
	return &piece->cb;
}

static struct bio *whole_of(struct cow_bio *cb)
{
	return cb->piece ? container_of(cb, struct cow_piece, cb)->whole : cb->bio;
}

/* The bio of @cb is cut for the first time: from now on it waits for its pieces only. */
static struct cow_bio *become_whole(struct cow_bio *cb)
{
	cb->rest = piece_alloc(cb, cb->bio);
	if (cb->rest) {
		cb->snap = NULL;
		cb->via_merge = false;
		cb->gated = false;
		cb->going = false;
		cb->user = false;
		cb->reading = false;
	}
	return cb->rest;
}

/*
 * The first @bytes of @cb as a piece; the rest is a piece as well (@cb, if it is one).
 * What has been taken for @cb goes with the first. NULL without memory.
 */
static struct cow_bio *cut_piece(struct cow_bio *cb, unsigned int bytes)
{
	struct cow_bio *front, *rest = cb;

	front = piece_alloc(cb, whole_of(cb));
	if (!front)
		return NULL;
	if (!cb->piece)
		rest = become_whole(cb);
	if (!rest) {
		bio_put(front->bio);
		return NULL;
	}
	/* The rest is counted already: as the bio itself, until that was cut. */
	bio_inc_remaining(whole_of(front));
	front->bio->bi_iter.bi_size = bytes;
	bio_advance(rest->bio, bytes);
	rest->gated = false;
	rest->going = false;
	rest->user = false;
	rest->reading = false;
	return front;
}

/* Without memory for pieces: @cb ends after @bytes, and goes on from there when it does. */
static struct cow_bio *shorten(struct cow_bio *cb, unsigned int bytes)
{
	struct bvec_iter left = cb->bio->bi_iter;

	bio_advance_iter(cb->bio, &left, bytes);
	left.bi_size += cb->left.bi_size;
	cb->left = left;
	cb->bio->bi_iter.bi_size = bytes;
	return cb;
}

struct cow_bio *cow_bio_front(struct cow_bio *cb, u64 nr_sectors)
{
	unsigned int bytes = nr_sectors << SECTOR_SHIFT;
	struct cow_bio *front = NULL;

	if (nr_sectors >= bio_sectors(cb->bio))
		return cb;
	if (!cb->in_map) {
		if (!cb->left.bi_size)
			front = cut_piece(cb, bytes);
		return front ?: shorten(cb, bytes);
	}
	/* One part could be refused when others have been sent already. */
	if (cb->bio->bi_opf & REQ_NOWAIT)
		return NULL;
	dm_accept_partial_bio(cb->bio, nr_sectors);
	return cb;
}

/* ------------------------------------------------------ handed over, deferred */

static void bio_work(struct work_struct *work)
{
	struct cow_bio *cb = container_of(work, struct cow_bio, work);
	struct blk_plug plug;

	blk_start_plug(&plug);
	cow_bio_decide_again(cb);
	blk_finish_plug(&plug);
}

int cow_bio_hand_over(struct cow_bio *cb, struct cow_bio **part)
{
	*part = cb;
	INIT_WORK(&cb->work, bio_work);
	queue_work(cb->origin->wq, &cb->work);
	return DM_MAPIO_SUBMITTED;
}

void cow_bio_defer(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;

	spin_lock(&o->state_lock);
	cow_bio_park(cb, &o->deferred, COW_WAIT_MEMORY);
	o->nr_deferrals++;
	cow_undo_kick(o);
	/* If no pending is left to be freed, nothing else would try again. Unlocked, @o may go. */
	if (!o->nr_pendings)
		queue_delayed_work(o->wq, &o->decide_work, 1);
	spin_unlock(&o->state_lock);
}

/* ---------------------------------------------------------------------- ended */

int cow_bio_ended(struct cow_bio *cb, blk_status_t *status)
{
	struct cow_bio *part;

	/* One that was not to wait was not sent. */
	if (unlikely(*status) && cb->flushed && *status != BLK_STS_AGAIN)
		cow_flush_failed(cb->origin, cb->flushed, cb->bio->bi_opf, *status);
	cb->flushed = NULL;
	cow_bio_gone(cb, true);
	cow_bio_rests(cb);
	if (cb->tracked)
		cow_untrack_read(cb);
	if (cb->verify_on_end && !*status) {
		cb->verify_on_end = false;
		cow_verify_queue(cb);
		return DM_ENDIO_INCOMPLETE;
	}
	if (cb->reading) {
		cb->reading = false;
		cow_readers_leave(cb->snap ? cb->snap->store : cb->origin->redirects_to,
				  cb->read_turn);
	}
	/*
	 * Writers wait only for reads of live snapshots. If this snapshot died while the
	 * read was in flight, the read may have seen new data, or a place that was given
	 * back: fail it (I4). A read by way of a merge holds the gate, so its snapshot stays.
	 */
	if (cb->snap && bio_data_dir(cb->bio) == READ &&
	    !cow_snap_can_be_used(cb->snap, cb->via_merge))
		*status = BLK_STS_IOERR;
	if (cb->gated) {
		cb->gated = false;
		percpu_ref_put(&cb->origin->gate);
	}
	if (cb->carries) {
		cb->carries->status = *status;
		cow_pending_finished(cb->carries);
		return DM_ENDIO_INCOMPLETE;
	}
	if (cb->then_home && !*status) {
		cb->then_home = false;
		cb->home_at_last = true;
		cow_bio_hand_over(cb, &part);
		return DM_ENDIO_INCOMPLETE;
	}
	if (!cb->left.bi_size || *status)
		return DM_ENDIO_DONE;
	/* Here, and not in bio_work(): a part that has to decide again comes there as well. */
	cb->bio->bi_iter = cb->left;
	cb->left.bi_size = 0;
	bio_set_dev(cb->bio, cb->origin->bdev);
	cow_bio_hand_over(cb, &part);
	return DM_ENDIO_INCOMPLETE;
}

/* -------------------------------------------------------------- set up, down */

int cow_pieces_init(struct bio_set *pieces)
{
	return bioset_init(pieces, 16, offsetof(struct cow_piece, bio), 0);
}

void cow_pieces_exit(struct bio_set *pieces)
{
	bioset_exit(pieces);
}

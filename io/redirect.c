// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: writes to the origin that go to the store, and reads of what is there
 *
 * Where a snapshot sees a chunk at home, its new content can go to the store instead of the old
 * one: home stays as it is, and nothing is copied. What the origin shows there is a CURRENT version
 * from then on:
 *
 *   home, not needed there by any snapshot                      as ever: home (io/write.c)
 *   home, seen by a snapshot   whole chunks, with room          redirected: a new CURRENT
 *                              else                             as ever: copied, then home
 *   CURRENT, seen by none      any                              in place, in the store
 *   CURRENT, seen by one       whole chunks                     redirected: a new CURRENT
 *                              else                             copied to a new one, then in place
 *
 * A redirected write is a pending whose data comes from the bio, its carrier. It takes the way of
 * all copies, and holds the gate until the bio has ended: a snapshot that is made waits for it.
 *
 * Zeroes over whole chunks are a write without data: a slot says it, and nothing is written at its
 * place. In a chunk of zeroes that no snapshot sees zeroes are done, and other writes turn it into
 * one with data at the same place: first the data, or zeroes that part of it is then written over,
 * then the slot. Zeroes turn one with data into one without by the slot alone.
 *
 * Promises kept here:
 *  I1  where there is a CURRENT nothing goes home: all of this is decided under
 *      origin->state_lock, where no pending is in the way.
 *  I2  a write in place changes data with a checksum only when nobody asks for that after a crash:
 *      cow_log_is_noted().
 *  I6  a redirected write is acknowledged when it is durable and found by lookups.
 */
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "copy/copy.h"
#include "copy/pending.h"
#include "disk/current.h"
#include "disk/log.h"
#include "disk/meta.h"
#include "io/bio.h"
#include "io/redirect.h"
#include "origin/bio.h"
#include "origin/origin.h"
#include "origin/seal.h"
#include "store/epochs.h"
#include "store/readers.h"
#include "store/room.h"
#include "store/space.h"
#include "store/state.h"
#include "store/store.h"
#include "trace/cowsnap.h"

/* What is decided about a write. */
enum redirect {
	AS_EVER,		/* it is at home */
	SENT,			/* to the store, in place */
	STARTED,		/* the pending has it, and the gate with it */
	PARKED,			/* it decides again */
	ENDS,			/* there is nothing to do */
	REFUSED,
	NO_ROOM,
	NO_MEMORY,
	HAND_OVER,		/* it could not be cut here */
};

/* The write, and what the origin has where it begins. */
struct redirect_write {
	struct cow_store *store;
	struct cow_bio *cb;
	const struct cow_live *live;	/* NULL: no snapshot lives */
	struct cow_extent ext;		/* CURRENT or home: a run from its first chunk on */
	u64 whole;			/* so many chunks, from the first on, it brings in full */
	bool in_place;			/* a CURRENT becomes zeroes, or data, where it is */
	u64 nr;				/* AS_EVER: so many chunks are */
};

static bool is_zeroes(const struct redirect_write *w)
{
	return bio_op(w->cb->bio) == REQ_OP_WRITE_ZEROES;
}

/* Data is redirected, and zeroes if the disk can be told that there may be some. */
static bool is_redirected(const struct cow_store *store, const struct bio *bio)
{
	return bio_op(bio) == REQ_OP_WRITE ||
	       (bio_op(bio) == REQ_OP_WRITE_ZEROES && store->zeroes != COW_ZEROES_ARE_DATA);
}

/* The last chunk of the origin is whole where the origin ends. */
static u64 whole_chunks(const struct cow_store *store, const struct bio *bio)
{
	sector_t start = bio->bi_iter.bi_sector, end = bio_end_sector((struct bio *)bio);
	u64 first = cow_sector_to_chunk(store, start);

	if (!is_redirected(store, bio) || start != cow_chunk_to_sector(store, first))
		return 0;
	if (end == bdev_nr_sectors(store->origin->bdev))
		end = round_up(end, (sector_t)store->chunk_sectors);
	return cow_sector_to_chunk(store, end) - first;
}

/* ----------------------------------------------------------------- redirected */

/* How many of @nr chunks go in one run. */
static u64 run_of(const struct redirect_write *w, u64 nr)
{
	struct cow_store *store = w->store;

	if (is_zeroes(w))
		return min(nr, (u64)COW_RUN_CHUNKS);
	return min3(nr, cow_run_chunks_max(store), (u64)cow_log_run_max(store->meta));
}

/* Slots of zeroes are written only when the disk says that there may be some. */
static bool waits_for_mark(struct redirect_write *w)
{
	if (!is_zeroes(w) || !w->whole || w->store->zeroes == COW_ZEROES_MARKED)
		return false;
	w->store->zeroes = COW_ZEROES_WANTED;
	cow_current_wait(w->store, w->cb);
	return true;
}

/* How many chunks more may be redirected that are at home now? */
static u64 share_left(const struct cow_store *store)
{
	u64 most = div_u64(store->space.total * store->options.redirect, 100);

	return most > store->nr_current ? most - store->nr_current : 0;
}

/* May what is at home be redirected now? Else it is copied. */
static bool may_redirect(const struct cow_store *store)
{
	return store->options.redirect && store->writable && !store->blocked &&
	       !cow_meta_is_fenced(store->meta);
}

/* A pending for a CURRENT at @place. NULL: no memory. */
static struct cow_pending *add_current(const struct redirect_write *w, u64 place, u32 nr)
{
	struct cow_store *store = w->store;
	u32 room = w->in_place ? 0 : nr;
	struct cow_pending *p;

	p = cow_pending_add(store, w->ext.chunk, nr, COW_CURRENT, place, room);
	if (!p)
		return NULL;
	p->epoch = w->in_place ? w->ext.epoch : cow_store_copy_epoch(store, w->live);
	store->nr_current += room;
	return p;
}

static void free_room(const struct redirect_write *w, u64 place, u32 nr)
{
	if (!w->in_place)
		cow_space_free(&w->store->space, place, nr);
}

/* The pending gets the gate, which @part has now. */
static enum redirect start_redirect(struct redirect_write *w, struct cow_bio **part, u64 place,
				    u32 nr)
{
	bool zeroes = is_zeroes(w);
	struct cow_store *store = w->store;
	struct cow_pending *p = NULL;
	sector_t sectors;

	*part = cow_bio_front(w->cb, cow_bio_sectors_within(store, w->cb->bio, w->ext.chunk, nr));
	if (*part)
		p = add_current(w, place, nr);
	if (!p) {
		free_room(w, place, nr);
		return *part ? NO_MEMORY : HAND_OVER;
	}
	p->mode = zeroes ? COW_BY_MARK : COW_BY_DATA;
	p->carrier = *part;
	cow_bio_gone(*part, false);
	(*part)->gated = true;
	if (zeroes) {
		p->kind = COW_CURRENT_ZERO;
		cow_pending_finished(p);
		return STARTED;
	}
	sectors = bio_sectors((*part)->bio);
	cow_pending_take_data(p, sectors, cow_chunk_to_sector(store, nr) - sectors);
	return STARTED;
}

/* Part of a chunk is written: all of it is copied first, so that the write can be in place. */
static enum redirect start_copy(struct redirect_write *w, u64 place)
{
	struct cow_store *store = w->store;
	bool zeroes = w->ext.kind == COW_CURRENT_ZERO;
	struct cow_pending *p;

	p = add_current(w, place, 1);
	if (!p) {
		free_room(w, place, 1);
		return NO_MEMORY;
	}
	p->needed = true;
	cow_pending_park(p, w->cb);
	list_add(&p->node, &p->sharers);
	cow_pending_copy(p, zeroes ? NULL : store->bdev, cow_chunk_to_sector(store, w->ext.place),
			 store->chunk_sectors, 0);
	return PARKED;
}

/* A snapshot sees what the origin shows there: the write has to get another place. */
static enum redirect leave_current(struct redirect_write *w, struct cow_bio **part)
{
	struct cow_store *store = w->store;
	u64 place, most = min(w->ext.nr, w->whole);
	bool must;
	u32 got;
	int r;

	if (!store->writable)
		return REFUSED;
	/* Nothing can be written down any more: when no snapshot sees it, it is in place. */
	if (cow_meta_is_fenced(store->meta)) {
		if (w->cb->merging)
			return REFUSED;
		__cow_store_invalidate(store, COW_SNAP_INVALID, "it cannot be written");
	}
	if (store->blocked) {
		cow_bio_park(w->cb, &store->waiting, COW_WAIT_STORE);
		return PARKED;
	}
	if (waits_for_mark(w))
		return PARKED;
	got = cow_store_room(store, most ? run_of(w, most) : 1, &place);
	if (got)
		return most ? start_redirect(w, part, place, got) : start_copy(w, place);
	/* At the cost of snapshots, as on_full says; then it is in place. */
	must = !w->cb->merging || store->options.on_full == COWSNAP_FULL_DROP_OLDEST;
	r = cow_store_no_room(store, must);
	if (r == -EBUSY) {
		cow_bio_park(w->cb, &store->waiting, COW_WAIT_STORE);
		return PARKED;
	}
	return r == -ENOSPC && !must ? NO_ROOM : NO_MEMORY;
}

/* ------------------------------------------------------------------- decided */

/* Is all of it done, where the first chunks are CURRENT? A discard is a hint. */
static bool is_done(const struct redirect_write *w)
{
	return bio_op(w->cb->bio) == REQ_OP_DISCARD ||
	       (is_zeroes(w) && w->ext.kind == COW_CURRENT_ZERO);
}

static bool can_commit(const struct cow_store *store)
{
	return store->writable && !cow_meta_is_fenced(store->meta);
}

/* Nobody else sees it. Zeroes that cannot become a slot are data at its place, as others are. */
static bool changes_kind(const struct redirect_write *w)
{
	return w->ext.kind == COW_CURRENT_ZERO ||
	       (is_zeroes(w) && w->whole && can_commit(w->store));
}

/* From zeroes to data, or back, by one commit of slots: a cut leaves what was, or what will be. */
static enum redirect change_kind(struct redirect_write *w, struct cow_bio **part)
{
	u64 most = min(w->ext.nr, w->whole);

	if (!can_commit(w->store))
		return REFUSED;
	if (waits_for_mark(w))
		return PARKED;
	w->in_place = true;
	return most ? start_redirect(w, part, w->ext.place, run_of(w, most)) :
		      start_copy(w, w->ext.place);
}

/* The first chunks are CURRENT. */
static enum redirect write_current(struct redirect_write *w, struct cow_bio **part)
{
	struct cow_store *store = w->store;
	const struct cow_live *live = w->live;
	struct cow_bio *cb = w->cb;

	if (is_done(w)) {
		*part = cow_bio_front(cb, cow_bio_sectors_within(store, cb->bio, w->ext.chunk,
								 w->ext.nr));
		return *part ? ENDS : HAND_OVER;
	}
	if (live && live->epoch[live->nr - 1] > w->ext.epoch)
		return leave_current(w, part);
	if (changes_kind(w))
		return change_kind(w, part);
	if (!cow_log_is_noted(store->meta, w->ext.place, w->ext.nr)) {
		/* After a record that has failed no later one counts as durable. */
		if (cow_meta_is_fenced(store->meta) && !cow_log_can_note(store->meta))
			return REFUSED;
		cow_current_wait(store, cb);
		return PARKED;
	}
	*part = cow_bio_front(cb, cow_bio_sectors_within(store, cb->bio, w->ext.chunk, w->ext.nr));
	if (!*part)
		return HAND_OVER;
	cow_bio_point_at_store(store, (*part)->bio, w->ext.chunk, w->ext.place);
	(*part)->gated = true;
	return SENT;
}

/* The first chunks are at home. */
static enum redirect write_home(struct redirect_write *w, struct cow_bio **part)
{
	struct cow_store *store = w->store;
	u64 covered, most, first, place;
	bool preserved;
	u32 got;

	w->nr = w->ext.nr;
	/* What a merge brings back is to be at home. */
	if (!w->live || w->cb->merging || !may_redirect(store))
		return AS_EVER;
	covered = cow_covered_chunks(store, w->cb->bio->bi_iter.bi_sector,
				     bio_sectors(w->cb->bio), &first);
	if (!covered)
		return AS_EVER;
	w->nr = cow_map_preserved(&store->map, w->live, w->ext.chunk, min(w->nr, covered),
				  &preserved);
	most = share_left(store);
	if (preserved || !most || bio_op(w->cb->bio) == REQ_OP_DISCARD)
		return AS_EVER;
	/* What follows the first chunk may be whole ones. */
	if (!w->whole) {
		w->nr = 1;
		return AS_EVER;
	}
	if (waits_for_mark(w))
		return PARKED;
	w->whole = min3(w->whole, w->nr, most);
	got = cow_store_room(store, run_of(w, w->whole), &place);
	return got ? start_redirect(w, part, place, got) : AS_EVER;
}

static enum redirect decide_write(struct redirect_write *w, struct cow_bio **part)
{
	struct cow_store *store = w->store;
	struct cow_pending *p;
	u64 first, nr;

	lockdep_assert_held(&store->origin->state_lock);
	if (store->current_failed)
		return REFUSED;
	nr = cow_bio_chunks(store, w->cb->bio, &first);
	p = cow_pending_overlap(store, first, first + nr - 1);
	if (p && p->first <= first) {
		cow_pending_park(p, w->cb);
		cow_pending_need(p);
		return PARKED;
	}
	/* No pending is in the way, so the map does not change here under the lock. */
	cow_map_lookup(&store->map, first, p ? p->first - first : nr, COW_EPOCH_NOW, &w->ext);
	w->live = rcu_dereference_protected(store->live,
					    lockdep_is_held(&store->origin->state_lock));
	w->whole = whole_chunks(store, w->cb->bio);
	return cow_kind_is_current(w->ext.kind) ? write_current(w, part) : write_home(w, part);
}

/* The part of it that is at home is decided on as ever, by itself. The gate is held. */
static int go_on_as_ever(struct redirect_write *w, struct cow_bio **part)
{
	struct cow_bio *cb = w->cb;

	*part = cow_bio_front(cb, cow_bio_sectors_within(w->store, cb->bio, w->ext.chunk, w->nr));
	if (*part == cb)
		return COW_NOT_REDIRECTED;
	percpu_ref_put(&cb->origin->gate);
	if (!*part)
		return cow_bio_hand_over(cb, part);
	cow_bio_decide_again(*part);
	return DM_MAPIO_SUBMITTED;
}

int cow_redirect_write(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	struct redirect_write w = { .store = READ_ONCE(o->redirects_to), .cb = cb };
	enum redirect verdict;

	*part = cb;
	cow_origin_note_use(o);
	spin_lock(&o->state_lock);
	verdict = decide_write(&w, part);
	spin_unlock(&o->state_lock);
	switch (verdict) {
	case AS_EVER:
		return go_on_as_ever(&w, part);
	case SENT:
		cow_bio_note_absent(o);
		return DM_MAPIO_REMAPPED;
	case STARTED:
		cow_bio_note_absent(o);
		/* It may have ended, and the gate with it. */
		return DM_MAPIO_SUBMITTED;
	default:
		break;
	}
	if (verdict == PARKED)
		atomic64_inc(&o->parked_writes);
	percpu_ref_put(&o->gate);
	switch (verdict) {
	case ENDS:
		return cow_bio_finish(*part, BLK_STS_OK);
	case REFUSED:
		return cow_bio_finish(cb, BLK_STS_IOERR);
	case NO_ROOM:
		return cow_bio_finish(cb, BLK_STS_NOSPC);
	case NO_MEMORY:
		cow_bio_defer(*part);
		return DM_MAPIO_SUBMITTED;
	case HAND_OVER:
		return cow_bio_hand_over(cb, part);
	default:
		/* It is parked, and may have ended. */
		return DM_MAPIO_SUBMITTED;
	}
}

/* ---------------------------------------------------------------------- reads */

int cow_redirect_read(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	struct cow_store *store = READ_ONCE(o->redirects_to);
	struct cow_extent ext;
	u64 first, nr = cow_bio_chunks(store, cb->bio, &first), sectors;

	cow_origin_note_use(o);
	/* No place that is found from here on is given to others before the read has ended. */
	cb->read_turn = cow_readers_enter(store);
	cb->reading = true;
	cow_map_lookup(&store->map, first, nr, COW_EPOCH_NOW, &ext);
	sectors = cow_bio_sectors_within(store, cb->bio, first, ext.nr);
	if (ext.kind == COW_HOME)
		sectors = cow_home_run(o, cb->bio->bi_iter.bi_sector, sectors);
	*part = cow_bio_front(cb, sectors);
	if (*part && ext.kind == COW_CURRENT) {
		cow_bio_point_at_store(store, (*part)->bio, first, ext.place);
		return DM_MAPIO_REMAPPED;
	}
	if (*part)
		(*part)->reading = false;
	cb->reading = false;
	cow_readers_leave(store, (*part ?: cb)->read_turn);
	if (!*part)
		return cow_bio_hand_over(cb, part);
	if (ext.kind == COW_CURRENT_ZERO) {
		zero_fill_bio((*part)->bio);
		return cow_bio_finish(*part, BLK_STS_OK);
	}
	cow_bio_go_home(o, (*part)->bio);
	return DM_MAPIO_REMAPPED;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the data of a pending exception, from the engine's pages into the store
 */
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "copy/data.h"
#include "copy/pending.h"
#include "disk/commit.h"
#include "origin/origin.h"
#include "store/space.h"
#include "store/store.h"

static unsigned int pending_offset(const struct cow_pending *p, u64 i)
{
	return p->offset_sectors + cow_chunk_to_sector(p->store, i);
}

void cow_pending_find_zeroes(struct cow_pending *p, struct cow_job *job)
{
	u64 i;

	bitmap_zero(p->zero, COW_RUN_CHUNKS);
	p->nr_zero = 0;
	if (p->kind != COW_COPIED)
		return;
	for (i = 0; i < cow_pending_nr(p); i++) {
		if (cow_job_is_zero(job, pending_offset(p, i), p->store->chunk_sectors)) {
			__set_bit(i, p->zero);
			p->nr_zero++;
		}
	}
}

/* The next stretch of the run, from *@from on, that is zero or not. False at its end. */
bool cow_pending_next_stretch(const struct cow_pending *p, bool zero, u64 *from, u64 *to)
{
	u64 nr = cow_pending_nr(p);

	*from = zero ? find_next_bit(p->zero, nr, *from) :
		find_next_zero_bit(p->zero, nr, *from);
	if (*from >= nr)
		return false;
	*to = zero ? find_next_zero_bit(p->zero, nr, *from) :
	      find_next_bit(p->zero, nr, *from);
	return true;
}

/* In a transient store zeroes need no room, since they need no slot. */
static void free_zeroes(struct cow_pending *p)
{
	struct cow_store *store = p->store;
	u64 from = 0, to;

	spin_lock(&store->origin->state_lock);
	for (; cow_pending_next_stretch(p, true, &from, &to); from = to)
		cow_space_free(&store->space, p->place + from, to - from);
	spin_unlock(&store->origin->state_lock);
}

void cow_pending_settle_room(struct cow_pending *p)
{
	struct cow_store *store = p->store;

	if (p->nr_zero && !store->meta)
		free_zeroes(p);
	WRITE_ONCE(store->zero_chunks, store->zero_chunks + p->nr_zero);
	if (p->kind == COW_COPIED)
		WRITE_ONCE(store->copied_chunks, store->copied_chunks + cow_pending_nr(p));
	else if (cow_kind_is_current(p->kind) && p->nr_room)
		WRITE_ONCE(store->redirected, store->redirected + cow_pending_nr(p));
}

void cow_pending_write(struct cow_pending *p, struct cow_job *job)
{
	struct cow_store *store = p->store;
	/*
	 * Writes and commits wait for this, or for what the worker does next: it must not be
	 * throttled as mere writeback, which would put the worker to sleep.
	 */
	blk_opf_t flags = REQ_SYNC | REQ_IDLE;
	u64 from = 0, to;

	/* A slot without a checksum may only be written when its data is durable. */
	if (store->meta)
		flags |= cow_kind_needs_data(p->kind) ? REQ_FUA : cow_meta_fua(store->meta);
	for (; cow_pending_next_stretch(p, false, &from, &to); from = to)
		cow_job_write(job, pending_offset(p, from),
			      cow_chunk_to_sector(store, to - from), store->bdev,
			      cow_chunk_to_sector(store, p->place + from), flags,
			      &p->status);
}

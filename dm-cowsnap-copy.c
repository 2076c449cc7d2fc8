// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: from the copy engine's pages into a store and its map
 *
 * What a job has read is looked at (all zero?), written to the room that its
 * pendings have, entered into the tables of a persistent store, and put into the map.
 *
 *   COPIED   data and slots in parallel, one commit; then published
 *   PRIVATE  data first, durably; then its slots; then published
 */
#include <linux/module.h>

#include "dm-cowsnap.h"

static u64 pending_nr(const struct cow_pending *p)
{
	return p->last - p->first + 1;
}

static unsigned int pending_offset(const struct cow_pending *p, u64 i)
{
	return p->offset_sectors + cow_chunk_to_sector(p->store, i);
}

static void find_zero_chunks(struct cow_pending *p, struct cow_job *job)
{
	u64 i;

	bitmap_zero(p->zero, COW_RUN_CHUNKS);
	p->nr_zero = 0;
	if (p->kind != COW_COPIED)
		return;
	for (i = 0; i < pending_nr(p); i++) {
		if (cow_job_is_zero(job, pending_offset(p, i), p->store->chunk_sectors)) {
			__set_bit(i, p->zero);
			p->nr_zero++;
		}
	}
}

/* The next stretch of the run, from *@from on, that is zero or not. False at its end. */
static bool next_stretch(const struct cow_pending *p, bool zero, u64 *from, u64 *to)
{
	u64 nr = pending_nr(p);

	*from = zero ? find_next_bit(p->zero, nr, *from) :
		find_next_zero_bit(p->zero, nr, *from);
	if (*from >= nr)
		return false;
	*to = zero ? find_next_zero_bit(p->zero, nr, *from) :
	      find_next_bit(p->zero, nr, *from);
	return true;
}

/* In a transient store zeroes need no room: there is no slot to speak of them. */
static void pending_settle_room(struct cow_pending *p)
{
	struct cow_store *store = p->store;
	u64 from = 0, to;

	spin_lock(&store->origin->lock);
	for (; !store->meta && next_stretch(p, true, &from, &to); from = to)
		cow_space_free(&store->space, p->place + from, to - from);
	store->zero_chunks += p->nr_zero;
	if (p->kind == COW_COPIED)
		store->copied_chunks += pending_nr(p);
	spin_unlock(&store->origin->lock);
}

void cow_pending_write(struct cow_pending *p, struct cow_job *job)
{
	struct cow_store *store = p->store;
	/* What a write, or a commit, waits for must not be held back as mere writeback. */
	blk_opf_t flags = p->kept || READ_ONCE(job->speculative) ? 0 : REQ_SYNC | REQ_IDLE;
	u64 from = 0, to;

	/* A slot without a checksum may only be written when its data is durable. */
	if (store->meta)
		flags |= cow_kind_is_private(p->kind) ? REQ_FUA : cow_meta_fua(store->meta);
	for (; next_stretch(p, false, &from, &to); from = to)
		cow_job_write(job, pending_offset(p, from),
			      cow_chunk_to_sector(store, to - from), store->bdev,
			      cow_chunk_to_sector(store, p->place + from), flags,
			      &p->status);
}

/* What was copied becomes private where it is: it was read to be verified. */
static bool pending_stays(const struct cow_pending *p)
{
	return p->taken_over && p->check_source;
}

static void pending_ready(struct cow_pending *p, struct cow_job *job)
{
	struct cow_store *store = p->store;

	p->status = job->read_status;
	p->unread = p->status;
	if (!p->status && p->check_source)
		p->status = cow_verify_job(store, job,
					   cow_sector_to_chunk(store, job->sector));
	if (p->status || pending_stays(p))
		return;
	/* Without a live snapshot the data has no reader. */
	if (!cow_store_has_readers(store)) {
		p->kind = COW_HOME;
		return;
	}
	find_zero_chunks(p, job);
	if (store->meta && !cow_kind_is_private(p->kind))
		cow_meta_join(p, job);
	if (p->again)
		return;
	pending_settle_room(p);
	if (!p->status && !cow_undo_keep(p, job))
		cow_pending_write(p, job);
}

static void store_job_ready(struct cow_job *job)
{
	struct cow_pending *leader = container_of(job, struct cow_pending, job);
	struct cow_pending *p;

	list_for_each_entry(p, &leader->sharers, node)
		pending_ready(p, job);
}

static void pending_done(struct cow_pending *p)
{
	if (!p->store->meta || p->kind == COW_HOME)
		cow_pending_publish(p);
	else if (!cow_kind_is_private(p->kind))
		cow_meta_data_done(p);
	else if (p->status || !cow_meta_join(p, NULL))
		cow_pending_publish(p);
}

static void store_job_done(struct cow_job *job)
{
	struct cow_pending *leader = container_of(job, struct cow_pending, job);
	struct cow_pending *p, *next;
	LIST_HEAD(sharers);

	/* The leader may be freed before the last of its sharers. */
	list_splice_init(&leader->sharers, &sharers);
	/* Pairs with cow_pending_need(): no release comes before this. */
	list_for_each_entry(p, &sharers, node)
		WRITE_ONCE(p->leader, NULL);
	list_for_each_entry_safe(p, next, &sharers, node) {
		list_del_init(&p->node);
		pending_done(p);
	}
}

const struct cow_job_ops cow_store_job_ops = {
	.ready = store_job_ready,
	.done = store_job_done,
};

/* After a failure this is called again for the same run: its first part may be mapped. */
static int publish_run(struct cow_pending *p, u64 from, u64 to, enum cow_kind kind)
{
	bool placeless = !p->store->meta && kind == COW_ZERO;
	struct cow_extent ext = {
		.epoch = p->epoch,
		.kind = kind,
	};
	int r;

	from = find_next_zero_bit(p->mapped, to, from);
	ext.chunk = p->first + from;
	ext.place = (placeless ? cow_placeless(p->first) : p->place) + from;
	ext.nr = to - from;
	r = cow_map_insert(&p->store->map, &ext, p->taken_over);
	bitmap_set(p->mapped, from, to - from - ext.nr);
	return r;
}

/* A snapshot deleted while its copy was under way: the copy may have no reader left. */
static bool pending_may_be_dead(const struct cow_pending *p)
{
	const struct cow_live *live;
	bool dead;

	rcu_read_lock();
	live = rcu_dereference(p->store->live);
	dead = live && cow_store_copy_epoch(p->store, live) < p->epoch;
	rcu_read_unlock();
	return dead;
}

int cow_store_publish(struct cow_pending *p)
{
	u64 from = 0, to;
	int r = 0;

	if (p->kind == COW_HOME || !cow_store_has_readers(p->store)) {
		/* What is mapped of it has its room given back by that. */
		if (!bitmap_empty(p->mapped, pending_nr(p)))
			cow_store_reclaim(p->store);
		return -ENOENT;
	}
	if (!p->nr_zero) {
		r = publish_run(p, 0, pending_nr(p), p->kind);
	} else {
		for (; !r && next_stretch(p, false, &from, &to); from = to)
			r = publish_run(p, from, to, p->kind);
		for (from = 0; !r && next_stretch(p, true, &from, &to); from = to)
			r = publish_run(p, from, to, COW_ZERO);
	}
	if (!r && pending_may_be_dead(p))
		cow_store_reclaim(p->store);
	return r;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: commits
 *
 *   joined --> dirty blocks --> commit N: blocks and data written --> durable --> published
 *   (slots     in order of      in parallel, with FUA, or a flush                (copy/worker.c)
 *   filled in)  their tickets   at the end
 *
 * One commit is under way at a time. Pendings that join meanwhile go with the next one, so
 * under load many pendings share a commit. A block that changes while it is written leaves its
 * buffer to the commit and goes on with a copy (disk/slots.c). A pending that spans more
 * blocks than one commit takes waits for the commit with its last ticket.
 *
 * Promises kept here:
 *  I2  a pending is published only when its slots and its data are durable.
 *  I5  blocks name a commit durable only when it is; slots stay fresh until then.
 *
 * What a crash leaves: the blocks of the last commit in any mixture of old and new.
 * Their new slots are fresh and believed only where the data is there as well.
 *
 * Only the engine's worker joins and commits. Other writers of metadata acquire it
 * first, which waits for the commit under way and keeps the next from starting.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "copy/pending.h"
#include "disk/blocks.h"
#include "disk/commit.h"
#include "disk/io.h"
#include "disk/meta.h"
#include "disk/private.h"
#include "disk/slots.h"
#include "origin/flush.h"
#include "origin/origin.h"
#include "trace/cowsnap.h"

/* How long those who acquire the metadata again and again wait for a commit to end. */
#define YIELD_JIFFIES	(HZ / 10)

/* So long a disk has for others between two writes for which nobody waits, if nobody comes to. */
#define BREATH_JIFFIES	(HZ / 20 + 1)
/* And so long it has for copies that bios wait for, before such a write. */
#define CALM_JIFFIES	(HZ / 10)

/* With so many members a commit waits for no other. */
#define OTHERS_MEMBERS	256U
/* While data of its members is being written it may wait for them so many times as long. */
#define OTHERS_LONGEST	10U

static unsigned int commit_wait = 100;
module_param(commit_wait, uint, 0644);
MODULE_PARM_DESC(commit_wait,
		 "ms that a commit on a rotational disk waits for other long copies once its own are written (0 to 60000; default 100)");
#define COMMIT_WAIT_MOST	60000U

static bool meta_needs_flush(const struct cow_meta *meta)
{
	struct block_device *bdev = meta->store->bdev;

	return bdev_write_cache(bdev) && !bdev_fua(bdev);
}

blk_opf_t cow_meta_fua(const struct cow_meta *meta)
{
	struct block_device *bdev = meta->store->bdev;

	return bdev_write_cache(bdev) && bdev_fua(bdev) ? REQ_FUA : 0;
}

/* ----------------------------------------------------------- flushes that fail */

unsigned int cow_meta_losses(const struct cow_meta *meta)
{
	return cow_losses(&meta->store->losses);
}

bool cow_meta_has_lost(const struct cow_meta *meta, unsigned int since)
{
	/* Elsewhere each write with FUA tells of itself. */
	return meta_needs_flush(meta) && cow_meta_losses(meta) != since;
}

/* A record may have waited for it: cow_log_send(). */
static void direct_ended(struct cow_meta *meta)
{
	atomic_dec(&meta->nr_direct);
	/* Pairs with the barrier in gives_way(). */
	smp_mb__after_atomic();
	if (READ_ONCE(meta->log.open))
		cow_meta_kick(meta);
}

int cow_meta_write(struct cow_meta *meta, blk_opf_t flags, sector_t sector, void *data,
		   size_t bytes)
{
	blk_opf_t opf = REQ_OP_WRITE | REQ_META | REQ_SYNC | (flags & ~REQ_PREFLUSH);
	/* By itself: else a sector that cannot be written would count as a flush that failed. */
	bool flushes = flags & REQ_FUA && meta_needs_flush(meta);
	struct cow_store *store = meta->store;
	unsigned int losses, tries = COW_WRITE_TRIES;
	int r;

	/*
	 * By itself: device mapper does not tell if a flush in front of data fails. It is counted,
	 * which is for those who rely on what came before. This write is behind it in any case.
	 * With FUA each write has told of itself, and nobody waits for what users have in the cache
	 * of the disk: seconds.
	 */
	if (flags & REQ_PREFLUSH && meta_needs_flush(meta))
		cow_flush(store->origin, store->bdev);
	if (flushes)
		opf &= ~REQ_FUA;
	do {
		losses = cow_meta_losses(meta);
		atomic_inc(&meta->nr_direct);
		r = cow_meta_io_of(store->origin, store->bdev, opf, sector, data, bytes);
		direct_ended(meta);
		if (r || !flushes)
			return r;
		r = cow_meta_flush(meta, losses);
	} while (r && --tries);
	return r;
}

void cow_meta_batch_begin(struct cow_meta *meta, struct cow_meta_batch *batch, blk_opf_t flags)
{
	struct cow_store *store = meta->store;

	atomic_inc(&meta->nr_direct);
	cow_batch_begin(batch, store->origin, store->bdev,
			REQ_OP_WRITE | REQ_META | REQ_SYNC | flags);
}

int cow_meta_batch_end(struct cow_meta *meta, struct cow_meta_batch *batch)
{
	int r = cow_batch_end(batch);

	direct_ended(meta);
	return r;
}

int cow_meta_flush(struct cow_meta *meta, unsigned int since)
{
	int r = cow_flush(meta->store->origin, meta->store->bdev);

	return r ?: cow_meta_losses(meta) != since ? -EIO : 0;
}

void cow_meta_kick(struct cow_meta *meta)
{
	struct cow_origin *o = meta->store->origin;
	unsigned long flags;

	spin_lock_irqsave(&o->reads_lock, flags);
	if (list_empty(&meta->work_node))
		list_add_tail(&meta->work_node, &o->meta_work);
	spin_unlock_irqrestore(&o->reads_lock, flags);
	cow_engine_kick(o->engine);
}

struct cow_meta *cow_meta_pop(struct cow_origin *o)
{
	struct cow_meta *meta = list_first_entry_or_null(&o->meta_work, struct cow_meta,
							 work_node);

	lockdep_assert_held(&o->reads_lock);
	if (meta)
		list_del_init(&meta->work_node);
	return meta;
}

void cow_meta_unlist(struct cow_meta *meta)
{
	lockdep_assert_held(&meta->store->origin->reads_lock);
	list_del_init(&meta->work_node);
}

/* --------------------------------------------------------- acquired by others */

/* Somebody has come to wait for the metadata. Its barrier pairs with wait_event_timeout()'s. */
void cow_meta_hasten(struct cow_meta *meta)
{
	if (READ_ONCE(meta->unhurried) && wq_has_sleeper(&meta->store->idle))
		wake_up(&meta->store->idle);
}

void cow_meta_acquire(struct cow_meta *meta)
{
	atomic_inc(&meta->acquirers);
	cow_meta_hasten(meta);
	wait_event(meta->wait, cmpxchg(&meta->phase, META_IDLE, META_ACQUIRED) == META_IDLE);
	atomic_dec(&meta->acquirers);
}

static void meta_become_idle(struct cow_meta *meta)
{
	/* Pairs with the cmpxchg() in cow_meta_acquire() and in commit_start(). */
	smp_store_release(&meta->phase, META_IDLE);
	/* Its barrier pairs with wait_event()'s: a waiter is queued before it looks. */
	if (wq_has_sleeper(&meta->wait))
		wake_up(&meta->wait);
}

void cow_meta_release(struct cow_meta *meta)
{
	meta_become_idle(meta);
	cow_meta_kick(meta);
}

/* Does nothing wait for a commit any more, or has one ended since @durable was the last? */
static bool has_gone_on(const struct cow_meta *meta, u64 durable)
{
	return READ_ONCE(meta->durable) != durable || READ_ONCE(meta->failed) ||
	       READ_ONCE(meta->lingers) ||
	       (list_empty(&meta->members) && list_empty(&meta->retry));
}

void cow_meta_yield(struct cow_meta *meta)
{
	u64 durable = READ_ONCE(meta->durable);

	/* The end of a commit wakes: meta_become_idle(). */
	wait_event_timeout(meta->wait, has_gone_on(meta, durable), YIELD_JIFFIES);
}

/* Are table blocks waited for, or has all that is under way to end? */
static bool is_wanted(const struct cow_store *store)
{
	return READ_ONCE(store->extend_waited) || READ_ONCE(store->zones_ending) ||
	       READ_ONCE(store->closing);
}

/* Is that so, or does room run short? Then nothing is written with pauses. */
static bool is_pressed(const struct cow_store *store)
{
	return is_wanted(store) || READ_ONCE(store->extend_hurried);
}

/* Does somebody wait for the metadata, or for what follows? Each of them wakes store->idle. */
static bool is_hurried(const struct cow_meta *meta)
{
	const struct cow_store *store = meta->store;

	return atomic_read(&meta->acquirers) || atomic_read(&store->super_waiters) ||
	       (!list_empty(&meta->members) && !READ_ONCE(meta->lingers)) || is_pressed(store);
}

/*
 * No bio waits for a copy. The last copy of this store that one waited for wakes store->idle; after
 * that of another store, and after a wakeup that is missed, the time is over at last.
 */
static bool is_calm(const struct cow_store *store)
{
	return !READ_ONCE(store->origin->nr_waited_for);
}

void cow_meta_breathe(struct cow_meta *meta)
{
	struct cow_store *store = meta->store;

	if (!meta->unhurried)
		return;
	wait_event_timeout(store->idle, is_hurried(meta), BREATH_JIFFIES);
	wait_event_timeout(store->idle, is_hurried(meta) || is_calm(store), CALM_JIFFIES);
}

void cow_store_be_calm(struct cow_store *store)
{
	if (bdev_rot(store->bdev))
		wait_event_timeout(store->idle, is_pressed(store) || is_calm(store),
				   CALM_JIFFIES);
}

void cow_store_breathe(struct cow_store *store)
{
	if (bdev_rot(store->bdev))
		wait_event_timeout(store->idle, is_pressed(store), BREATH_JIFFIES);
	cow_store_be_calm(store);
}

/* ------------------------------------------------------------------- a commit */

static void commit_put(struct cow_meta *meta)
{
	/* Keeps @meta and the engine: after its last bio the commit may end at any time. */
	rcu_read_lock();
	if (atomic_dec_and_test(&meta->ios))
		cow_meta_kick(meta);
	rcu_read_unlock();
}

static void commit_endio(struct bio *bio)
{
	struct cow_meta *meta = bio->bi_private;

	if (bio->bi_status) {
		meta->status = bio->bi_status;
		cow_flush_failed(meta->store->origin, meta->store->bdev->bd_disk, bio->bi_opf,
				 bio->bi_status);
	}
	if (bio != &meta->bio)
		bio_put(bio);
	commit_put(meta);
}

static struct bio *commit_bio(struct cow_meta *meta, unsigned int vecs, blk_opf_t opf,
			      sector_t sector)
{
	struct bio *bio = &meta->bio;

	if (meta->bio_is_used || vecs > META_COMMIT_VECS)
		bio = bio_alloc_bioset(meta->store->bdev, vecs, opf, GFP_NOIO, &meta->bios);
	else
		bio_init(bio, meta->store->bdev, meta->vecs, META_COMMIT_VECS, opf);
	meta->bio_is_used |= bio == &meta->bio;
	bio->bi_iter.bi_sector = sector;
	bio->bi_end_io = commit_endio;
	bio->bi_private = meta;
	atomic_inc(&meta->ios);
	return bio;
}

/* Blocks that have changed since they were written. */
static u64 nr_dirty(const struct cow_meta *meta)
{
	return meta->last_ticket - meta->ticket;
}

/*
 * @b is written in the next commit, as if it had changed last. What needs it, or others that have
 * changed after it, is durable then.
 */
static void put_off(struct cow_meta *meta, struct cow_block *b)
{
	struct cow_pending *p;
	u64 was = b->ticket;

	b->ticket = ++meta->last_ticket;
	list_move_tail(&b->lru, &meta->dirty);
	/* As they joined, not by ticket: the last one may need a block that has changed early. */
	list_for_each_entry(p, &meta->members, member)
		if (p->ticket >= was)
			p->ticket = b->ticket;
}

/* Seal the first dirty blocks, in order of numbers. From now on they are being written. */
static unsigned int commit_gather(struct cow_meta *meta)
{
	struct cow_block **blocks = meta->in_commit;
	/* Else what it goes with would be durable later than what comes behind it. */
	bool is_last = nr_dirty(meta) <= COWSNAP_COMMIT_BLOCKS;
	bool has_super = false;
	unsigned int nr = 0, at;
	struct cow_block *b;

	while (nr < COWSNAP_COMMIT_BLOCKS && !list_empty(&meta->dirty)) {
		b = list_first_entry(&meta->dirty, struct cow_block, lru);
		/* Never both superblocks at once: the other one is in the next commit. */
		if (b->pinned && has_super) {
			if (!is_last || b->ticket == meta->last_ticket)
				break;
			put_off(meta, b);
			continue;
		}
		has_super |= b->pinned;
		cow_meta_seal(meta, b->number, b->sector, b->data, meta->sequence,
			      meta->durable);
		meta->ticket = b->ticket;
		b->ticket = 0;
		b->logged = false;
		if (b->pinned)
			list_del_init(&b->lru);
		else
			list_move_tail(&b->lru, &meta->writing);
		for (at = nr++; at && blocks[at - 1]->number > b->number; at--)
			blocks[at] = blocks[at - 1];
		blocks[at] = b;
	}
	for (at = 0; at < nr; at++)
		blocks[at]->spare = &meta->out[at];
	meta->nr_in_commit = nr;
	return nr;
}

/* Neighbouring blocks go in one bio. */
static void commit_write(struct cow_meta *meta, unsigned int nr)
{
	struct cow_block **blocks = meta->in_commit;
	unsigned int bytes = meta->geometry.block_bytes;
	struct bio *bio = NULL;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		struct page *page = virt_to_page(blocks[i]->data);
		unsigned int offset = offset_in_page(blocks[i]->data);

		if (bio && bio_end_sector(bio) == blocks[i]->sector &&
		    bio_add_page(bio, page, bytes, offset) == bytes)
			continue;
		if (bio)
			submit_bio_noacct(bio);
		bio = commit_bio(meta, min(nr - i, BIO_MAX_VECS),
				 REQ_OP_WRITE | REQ_META | REQ_SYNC | REQ_IDLE |
				 cow_meta_fua(meta),
				 blocks[i]->sector);
		__bio_add_page(bio, page, bytes, offset);
		meta->stats.block_writes++;
	}
	if (bio)
		submit_bio_noacct(bio);
}

/* The commit ends after the data of its members. */
static void commit_await_data(struct cow_meta *meta)
{
	struct cow_pending *p;

	list_for_each_entry(p, &meta->members, member) {
		p->passed_over = true;
		if (p->commit != COW_JOINED)
			continue;
		p->commit = COW_AWAITED;
		atomic_inc(&meta->ios);
	}
}

/* Flushes that had failed before anything was written that the commit makes durable. */
static unsigned int first_losses(struct cow_meta *meta)
{
	const struct cow_pending *p = list_first_entry_or_null(&meta->members, struct cow_pending,
							       member);

	return p ? p->losses : cow_meta_losses(meta);
}

/* Does somebody wait for a short copy, or for one that a commit has left behind? */
static bool is_urgent(const struct cow_pending *p)
{
	return p->passed_over || p->carrier ||
	       (!cow_pending_has_length(p) && !p->in_stream &&
		(p->needed || READ_ONCE(p->waited_for)));
}

/* A commit ends after the data of its members: it may as well wait for others until then. */
static bool data_is_there(const struct cow_meta *meta)
{
	const struct cow_pending *p;

	list_for_each_entry(p, &meta->members, member)
		if (p->commit != COW_DATA_DONE)
			return false;
	return true;
}

/*
 * Are long copies on their way that writes need? On a disk that turns each commit takes a trip to
 * the tables, as long as writing one of them, so all of a stream share one. Short copies do not
 * wait for it: the engine may hold back the next ones until they are durable. Nor does anything
 * wait while a throttle does, for what the next commit has no room for, or where the store is on a
 * disk of its own or behind a cache: the writers would only wait for each other.
 */
static bool others_come(struct cow_meta *meta)
{
	struct cow_store *store = meta->store;
	unsigned int nr = READ_ONCE(store->nr_long), nr_members = 0, nr_long = 0;
	const struct cow_pending *p;

	if (!nr || !list_empty(&meta->retry) || is_wanted(store) ||
	    nr_dirty(meta) >= COWSNAP_COMMIT_BLOCKS ||
	    cow_engine_throttle(store->origin->engine) < 100 ||
	    cow_engine_is_apart(store->origin->engine))
		return false;
	list_for_each_entry(p, &meta->members, member) {
		if (++nr_members > OTHERS_MEMBERS || is_urgent(p))
			return false;
		nr_long += READ_ONCE(p->is_long);
	}
	/* The writers of the last commit are likely to come back, but not worth a later end. */
	return nr_long < nr || (nr_long < meta->last_long && !data_is_there(meta));
}

/* Wait until @nr jiffies from now at most, or until the time that was set before. */
static void await_at_most(struct cow_meta *meta, unsigned long nr)
{
	struct cow_store *store = meta->store;
	unsigned long until = (jiffies + nr) | 1;

	if (meta->others_until && !time_before(until, meta->others_until))
		return;
	meta->others_until = until;
	/* One that is pending may look too late, or too early and not again. */
	mod_delayed_work(store->origin->wq, &store->alone_work, nr + 2);
}

/* For commit_wait from when its data is there, and not much longer if that does not come. */
static bool awaits_others(struct cow_meta *meta)
{
	unsigned int ms = min(READ_ONCE(commit_wait), COMMIT_WAIT_MOST);

	if (!ms || meta->failed || !others_come(meta))
		return false;
	/* Each member whose data has come has the worker look again: cow_meta_data_done(). */
	if (!data_is_there(meta))
		ms = min(ms * OTHERS_LONGEST, COMMIT_WAIT_MOST);
	await_at_most(meta, msecs_to_jiffies(ms));
	return time_before(jiffies, meta->others_until);
}

void cow_meta_look_again(struct cow_meta *meta)
{
	/* Pairs with the one in note_lingers(): what is awaited has been set by now. */
	smp_mb();
	if (READ_ONCE(meta->lingers))
		cow_meta_kick(meta);
}

/* Whether members wait is also looked at by those who have acquired the metadata, or yield. */
static void note_lingers(struct cow_meta *meta)
{
	bool lingers = !list_empty(&meta->members) && awaits_others(meta);

	if (lingers && !meta->lingers) {
		WRITE_ONCE(meta->lingers, true);
		/* Who has come to wait meanwhile has not seen it: cow_meta_look_again(). */
		smp_mb();
		lingers = awaits_others(meta);
		if (lingers && wq_has_sleeper(&meta->wait))
			wake_up(&meta->wait);
	}
	WRITE_ONCE(meta->lingers, lingers);
}

void cow_commit_alone_work(struct work_struct *work)
{
	struct cow_store *store = container_of(to_delayed_work(work), struct cow_store,
					       alone_work);

	cow_meta_kick(store->meta);
}

/* True: it has been started, and ended at once. */
static bool commit_start(struct cow_meta *meta)
{
	unsigned int nr;

	note_lingers(meta);
	if (list_empty(&meta->members) && list_empty(&meta->retry))
		return false;
	/* Acquirers go first. cow_meta_release() has this called again. */
	if (atomic_read(&meta->acquirers) || meta->lingers)
		return false;
	if (cmpxchg(&meta->phase, META_IDLE, META_WRITING) != META_IDLE) {
		cow_meta_hasten(meta);
		return false;
	}
	meta->others_until = 0;
	meta->status = meta->failed ? BLK_STS_IOERR : BLK_STS_OK;
	atomic_set(&meta->ios, 1);
	/* Nothing follows a commit that failed. cow_meta_collect() tells its members. */
	if (meta->status)
		return atomic_dec_and_test(&meta->ios);
	mutex_lock(&meta->blocks_lock);
	meta->bio_is_used = false;
	meta->losses = first_losses(meta);
	meta->sequence++;
	nr = commit_gather(meta);
	trace_cowsnap_commit(meta->store->bdev->bd_dev, meta->sequence, nr);
	commit_await_data(meta);
	commit_write(meta, nr);
	mutex_unlock(&meta->blocks_lock);
	meta->stats.commits++;
	return atomic_dec_and_test(&meta->ios);
}

static void commit_flush(struct cow_meta *meta)
{
	struct bio *bio;

	atomic_set(&meta->ios, 1);
	meta->bio_is_used = false;
	WRITE_ONCE(meta->phase, META_FLUSHING);
	bio = commit_bio(meta, 0, REQ_OP_WRITE | REQ_PREFLUSH | REQ_SYNC | REQ_IDLE, 0);
	submit_bio_noacct(bio);
	commit_put(meta);
}

static void member_leave(struct cow_pending *p)
{
	list_del_init(&p->member);
	p->commit = COW_NOT_JOINED;
}

/* Members that found no memory for their blocks: those of the commit are free now. */
static void retry_collect(struct cow_meta *meta, struct list_head *retry)
{
	struct cow_pending *p;

	list_splice_tail_init(&meta->retry, retry);
	list_for_each_entry(p, retry, member)
		p->again &= !meta->failed;
}

void cow_meta_note(struct cow_meta *meta)
{
	struct cow_store *store = meta->store;

	/* Does nothing while it is queued already. */
	queue_delayed_work(store->origin->wq, &store->note_work, HZ);
}

static void commit_fail(struct cow_meta *meta, struct list_head *ended)
{
	struct cow_pending *p, *next;

	cow_meta_fence(meta);
	list_for_each_entry_safe(p, next, &meta->members, member) {
		bool data_done = p->commit == COW_DATA_DONE;

		p->status = p->status ?: meta->status;
		member_leave(p);
		if (data_done)
			list_add_tail(&p->member, ended);
	}
}

static void commit_succeed(struct cow_meta *meta, struct list_head *ended)
{
	struct list_head *last = NULL;
	struct cow_pending *p;

	WRITE_ONCE(meta->durable, meta->sequence);
	/* Before the last member may let the store be closed. */
	cow_meta_note(meta);
	meta->last_long = 0;
	list_for_each_entry(p, &meta->members, member) {
		if (p->ticket > meta->ticket)
			break;
		meta->last_long += READ_ONCE(p->is_long);
		p->commit = COW_NOT_JOINED;
		last = &p->member;
	}
	if (last)
		list_cut_position(ended, &meta->members, last);
}

static bool commit_is_over(struct cow_meta *meta)
{
	if (atomic_read(&meta->ios))
		return false;
	if (meta->phase == META_FLUSHING || meta->status || !meta_needs_flush(meta))
		return true;
	commit_flush(meta);
	return false;
}

/* Its own flush has succeeded, but another one has taken the error of what was lost. */
static void commit_heed_losses(struct cow_meta *meta)
{
	if (meta->status || !cow_meta_has_lost(meta, meta->losses))
		return;
	DMERR("store %pg: a flush failed, copies under way may be lost: load its tables again",
	      meta->store->bdev);
	meta->status = BLK_STS_IOERR;
}

static bool commit_is_under_way(const struct cow_meta *meta)
{
	enum meta_phase phase = READ_ONCE(meta->phase);

	return phase == META_WRITING || phase == META_FLUSHING;
}

/* The commit's blocks are on the disk: most need not stay in memory any more, none as it is. */
static void blocks_written(struct cow_meta *meta)
{
	struct cow_block *b, *next;

	mutex_lock(&meta->blocks_lock);
	while (meta->nr_in_commit)
		meta->in_commit[--meta->nr_in_commit]->spare = NULL;
	list_for_each_entry_safe(b, next, &meta->writing, lru)
		cow_block_put_away(meta, b);
	mutex_unlock(&meta->blocks_lock);
}

bool cow_meta_collect(struct cow_meta *meta, struct list_head *ended,
		      struct list_head *retry)
{
	if (!commit_is_under_way(meta))
		return true;
	if (!commit_is_over(meta))
		return false;
	commit_heed_losses(meta);
	trace_cowsnap_committed(meta->store->bdev->bd_dev, meta->sequence,
				blk_status_to_errno(meta->status));
	blocks_written(meta);
	if (meta->status)
		commit_fail(meta, ended);
	else
		commit_succeed(meta, ended);
	retry_collect(meta, retry);
	return true;
}

bool cow_meta_go_on(struct cow_meta *meta)
{
	/* Not kicked, since the next one is started here. An acquirer before it will kick. */
	if (commit_is_under_way(meta))
		meta_become_idle(meta);
	return commit_start(meta);
}

/* -------------------------------------------------------------------- its members */

bool cow_meta_join(struct cow_pending *p, struct cow_job *job)
{
	struct cow_meta *meta = p->store->meta;
	int r = meta->failed ? -EIO : 0;

	/* Data that came first was durable by itself: did another flush take its error? */
	if (!job && p->mode != COW_BY_MARK && cow_meta_has_lost(meta, p->losses)) {
		p->status = BLK_STS_IOERR;
		return false;
	}
	if (!job)
		p->losses = cow_meta_losses(meta);
	p->ticket = 0;
	mutex_lock(&meta->blocks_lock);
	if (!r)
		r = cow_slots_fill(meta, p, job);
	mutex_unlock(&meta->blocks_lock);
	if (r == -ENOMEM && job) {
		p->again = true;
		return false;
	}
	if (r && r != -ENOMEM) {
		DMERR_LIMIT("store %pg: a table block cannot be %s (%d)", p->store->bdev,
			    meta->failed ? "written" : "read", r);
		p->status = errno_to_blk_status(r);
		return false;
	}
	if (!r) {
		p->commit = job ? COW_JOINED : COW_DATA_DONE;
		p->may_count = true;
	}
	list_add_tail(&p->member, r ? &meta->retry : &meta->members);
	/* Only the worker, which this is, takes it off the list: it may look without the lock. */
	if (list_empty_careful(&meta->work_node))
		cow_meta_kick(meta);
	return true;
}

/* Its slots are on disk, or will be: without the data they must not be believed. */
static void member_data_failed(struct cow_meta *meta, struct cow_pending *p)
{
	member_leave(p);
	cow_meta_fence(meta);
}

bool cow_meta_data_done(struct cow_pending *p)
{
	struct cow_meta *meta = p->store->meta;

	if (p->again) {
		list_add_tail(&p->member, &meta->retry);
		cow_meta_kick(meta);
		return false;
	}
	switch (p->commit) {
	case COW_JOINED:
		p->commit = COW_DATA_DONE;
		/* It may be the last one whose data was awaited: awaits_others(). */
		if (meta->lingers)
			cow_meta_kick(meta);
		if (p->status)
			member_data_failed(meta, p);
		break;
	case COW_AWAITED:
		p->commit = COW_DATA_DONE;
		if (p->status)
			meta->status = p->status;
		commit_put(meta);
		break;
	default:
		break;
	}
	return p->commit == COW_NOT_JOINED;
}

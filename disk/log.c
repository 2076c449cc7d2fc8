// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: copies that are committed by records of the log
 *
 *   ->ready: added --> sent at the end of a round --> ended --> slots in memory --> published
 *   (a place, a slot   (one bio: record, data)          (durable)  (table blocks)  (copy/worker.c)
 *    in the record)
 *
 * Where records follow each other one by one, a gap is left between them, so that the head is about
 * to come by: see disk/gap.c. Nothing that is read back depends on it.
 *
 * A record and the data behind it are one write. What becomes ready in one round of the engine's
 * worker shares a record, as far as there is room in it. Records are under way in any number, and
 * each is published when its own write has ended; "durable" of a zone is how many of its first ones
 * have. Table blocks of the zone stay in memory, so a slot always finds its own.
 *
 * Promises kept here:
 *  I2  a pending is published only when the bio with its record and its data has ended, with FUA
 *      if the device has a cache.
 *  I5  a slot comes into a table only when its record is durable; a record says "durable" of
 *      others only when these are. What a record has of CURRENT may be written in place only
 *      when the disk says so of that record: cow_log_is_noted().
 *
 * What a crash leaves: records that had not ended may be there or not, and of those that are, the
 * data may be missing. disk/replay.c finds out.
 *
 * All of this is done by the engine's worker, but for the end of the bio.
 */
#include <linux/crc32c.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "copy/pending.h"
#include "disk/blocks.h"
#include "disk/commit.h"
#include "disk/log.h"
#include "disk/meta.h"
#include "disk/private.h"
#include "disk/slots.h"
#include "origin/flush.h"
#include "origin/origin.h"
#include "store/space.h"
#include "store/store.h"
#include "store/zones.h"
#include "trace/cowsnap.h"

static int log_default = -1;
module_param_named(log, log_default, int, 0644);
MODULE_PARM_DESC(log,
		 "whether new persistent stores have a log (1 or 0; default -1: by the kind of disk)");

static int log_gap = -1;
module_param(log_gap, int, 0644);
MODULE_PARM_DESC(log_gap,
		 "KiB left free in front of records of the log (default -1: learned on rotational disks)");

/* Runs that one record takes at most. */
#define LOG_MEMBERS		64U

/*
 * With more copies and redirected writes than these under way nobody waits for a single trip. What
 * settling has under way does not count.
 */
#define QUICK_PENDINGS		8U

/* Between two turns of the zones at least. */
#define TURN_JIFFIES		(HZ / 10UL)

/* Most KiB that are asked for. */
#define COW_GAP_MOST		65536

/* A record that comes later than this behind the last one finds the head anywhere. */
#define FOLLOWS_NS		(4U * NSEC_PER_MSEC)

/*
 * A disk that turns takes longer for a record by itself and without a gap. So a cache that outlives
 * a loss of power has taken it, and brings table blocks and data home in the order that suits it: a
 * record is one more write then. A full cache has writes wait as well, so one that ends at once
 * tells more than one that waits. One copy of so many still finds out, and if it has waited, the
 * next one as well.
 */
#define QUICK_NS		(200U * NSEC_PER_USEC)
#define QUICK_TELLS		8U	/* one that ends at once adds this, another takes 1 */
#define QUICK_MOST		128U
#define QUICK_ENOUGH		64U	/* from here on there is a cache */
#define QUICK_PROBE		256U	/* copies */

/* Whose record is not judged by the time it takes. */
#define NOT_JUDGED		COW_LOG_SIZES

/* A run of chunks in a record. */
struct cow_log_member {
	struct cow_pending *pending;
	struct cow_job *job;
	unsigned int offset_sectors;	/* in the job */
	u32 nr;				/* chunks */
};

/* A record, from its first member to the end of all records before it. */
struct cow_log_write {
	struct list_head node;		/* zone->under_way */
	struct llist_node unsure;	/* meta->log.unsure */
	struct cow_meta *meta;
	unsigned int zone;
	u64 chunk;			/* its own; data is behind it */
	u32 nr;				/* slots */
	u32 nr_data;			/* of the first chunks, how many have to be written */
	u32 vecs;			/* pages of all data */
	u32 nr_members;
	u32 left;			/* members that cow_log_done() has not been called for */
	u64 said_end;			/* where the durable ones end that it speaks of */
	unsigned int losses;		/* cow_meta_losses() when it was sent */
	bool again;			/* it was sent a second time */
	bool ended;
	bool alone;			/* sent with no gap, and no other under way */
	unsigned int size;		/* whose gap it has: meta->log.gap[]; or NOT_JUDGED */
	u32 gap_most;
	u64 sent_ns, ended_ns;		/* where the disk turns */
	bool failed;
	void *block;
	struct cow_log_member member[];
};

static struct cowsnap_slot *record_slot(struct cow_log_write *w, u32 i)
{
	return (struct cowsnap_slot *)((struct cowsnap_log_record *)w->block + 1) + i;
}

/* ----------------------------------------------------------------- one begins */

static struct cow_log_write *write_alloc(struct cow_meta *meta)
{
	const gfp_t gfp = GFP_NOWAIT | __GFP_NOWARN;
	struct cow_log_write *w;

	w = kzalloc(struct_size(w, member, LOG_MEMBERS), gfp);
	if (!w)
		return NULL;
	w->block = kzalloc(meta->geometry.block_bytes, gfp);
	if (w->block)
		return w;
	kfree(w);
	return NULL;
}

static void write_free(struct cow_log_write *w)
{
	kfree(w->block);
	kfree(w);
}

/* Is there something for cow_zone_work() to do? For room it is asked once in a while only. */
static bool asks_for_zones(const struct cow_meta *meta)
{
	bool rests = time_before(jiffies, READ_ONCE(meta->log.again));
	struct cow_store *store = meta->store;
	unsigned int i;

	for (i = 0; i < COWSNAP_ZONES; i++)
		if (cow_zone_is_due(store, &store->zone[i]) ||
		    (store->zone[i].state == COW_ZONE_NONE && !rests))
			return true;
	return false;
}

/* Commits wait during a turn, and the disk flushes: small zones go by the tables meanwhile. */
unsigned long cow_log_turn_delay(const struct cow_meta *meta)
{
	unsigned long since = jiffies - READ_ONCE(meta->log.turned);

	lockdep_assert_held(&meta->store->origin->state_lock);
	return meta->store->zones_ending || since >= TURN_JIFFIES ? 0 : TURN_JIFFIES - since;
}

/* Is the head where the last record ended, so that the time of this one depends on the gap? */
static bool follows_alone(const struct cow_meta *meta)
{
	const struct cow_log *log = &meta->log;
	unsigned int i;

	for (i = 0; i < COWSNAP_ZONES; i++)
		if (!list_empty(&log->zone[i].under_way))
			return false;
	return log->ended_ns && ktime_get_ns() - log->ended_ns < FOLLOWS_NS;
}

/* By what the copy that begins it has: more may come. */
static unsigned int size_of(const struct cow_meta *meta, u32 nr)
{
	sector_t sectors = cow_chunk_to_sector(meta->store, nr);

	return sectors <= 32 ? 0 : sectors <= 128 ? 1 : 2;
}

/* Chunks to leave free in front of the record. */
static u32 choose_gap(struct cow_meta *meta, struct cow_log_write *w, u32 nr)
{
	int forced = READ_ONCE(log_gap);
	u32 gap;

	w->size = NOT_JUDGED;
	if (forced >= 0)
		return min(forced, COW_GAP_MOST) * 2U >> meta->store->chunk_shift;
	if (!follows_alone(meta))
		return 0;
	w->size = size_of(meta, nr);
	gap = cow_gap_chunks(&meta->log.gap[w->size], w->gap_most);
	meta->stats.gap = cow_gap_learned(&meta->log.gap[w->size]);
	return gap;
}

static bool begin_in_zone(struct cow_meta *meta, struct cow_log_write *w, u32 nr)
{
	struct cow_store *store = meta->store;
	struct cow_zone *zone = &store->zone[meta->log.at];
	u32 wanted, gap;

	w->gap_most = cow_zone_gap_most(store, zone);
	wanted = choose_gap(meta, w, nr);
	gap = wanted;
	if (!cow_zone_begin_record(store, zone, nr, &gap, &w->chunk))
		return false;
	if (gap != wanted)
		w->size = NOT_JUDGED;
	w->alone = !gap;
	meta->stats.skipped += gap;
	return true;
}

/* In the zone that is written to, or else in the other one, if that is open. */
static bool find_chunk(struct cow_meta *meta, struct cow_log_write *w, u32 nr)
{
	struct cow_store *store = meta->store;
	bool found;

	spin_lock(&store->origin->state_lock);
	found = begin_in_zone(meta, w, nr);
	if (!found) {
		u32 gap = 0;

		w->size = NOT_JUDGED;
		found = cow_zone_begin_record(store, &store->zone[!meta->log.at], nr, &gap,
					      &w->chunk);
		meta->log.at ^= found;
		/* Does nothing if it is queued already, or has failed and waits. */
		if (asks_for_zones(meta) && !store->closing)
			queue_delayed_work(store->origin->wq, &store->zone_work,
					   cow_log_turn_delay(meta));
	}
	spin_unlock(&store->origin->state_lock);
	return found;
}

static struct cow_log_write *record_begin(struct cow_meta *meta, u32 nr)
{
	struct cow_log_write *w = write_alloc(meta);
	struct cow_log_zone *zone;

	if (!w)
		return NULL;
	if (!find_chunk(meta, w, nr)) {
		write_free(w);
		return NULL;
	}
	w->meta = meta;
	w->zone = meta->log.at;
	zone = &meta->log.zone[w->zone];
	list_add_tail(&w->node, &zone->under_way);
	WRITE_ONCE(meta->log.open, w);
	return w;
}

/* ---------------------------------------------------------------- and is filled */

/* Nothing turns, and nobody has asked for a log in so many words. */
static bool spares_trips_only(const struct cow_store *store)
{
	return READ_ONCE(store->options.log) == COWSNAP_LOG_REDIRECTED && !bdev_rot(store->bdev);
}

u32 cow_log_run_max(const struct cow_meta *meta)
{
	const struct cow_store *store = meta->store;
	u32 most = max(COW_LONG_SECTORS >> store->chunk_shift, 1U);

	return spares_trips_only(store) ? most : min(most, cowsnap_log_slots(&meta->geometry));
}

/* With trips alone to be spared long writes, and many at a time, do better by the tables. */
static bool is_worth_a_record(const struct cow_store *store, const struct cow_job *job)
{
	if (!spares_trips_only(store))
		return job->nr_sectors <= COW_LONG_SECTORS;
	return job->nr_sectors < COW_LONG_SECTORS &&
	       READ_ONCE(store->nr_needed) <= QUICK_PENDINGS &&
	       !cow_engine_writes_at_once(store->origin->engine);
}

/* Does a cache take all records at once? Counts copies: one in QUICK_PROBE finds out again. */
static bool is_cached(struct cow_meta *meta)
{
	struct cow_log *log = &meta->log;

	return log->quick >= QUICK_ENOUGH && bdev_rot(meta->store->bdev) &&
	       log->passed_over++ % QUICK_PROBE;
}

static void judge_cache(struct cow_log *log, u64 ns)
{
	if (ns < QUICK_NS) {
		log->quick = min(log->quick + QUICK_TELLS, QUICK_MOST);
	} else if (log->quick) {
		log->quick--;
		/* The cache may be gone: the next copy finds out. */
		log->passed_over = 0;
	}
}

/* Could a record take the run? */
static bool run_suits(struct cow_meta *meta, const struct cow_pending *p,
		      const struct cow_job *job)
{
	const struct cow_store *store = meta->store;
	unsigned int sectors = cow_chunk_to_sector(store, cow_pending_nr(p));

	return cow_store_logs(store) && cow_log_suits(store) &&
	       !cow_meta_is_fenced(meta) &&
	       (p->kind == COW_COPIED || p->kind == COW_CURRENT) &&
	       /* What stays in its place cannot be given one in a zone. */
	       p->nr_room &&
	       /* The tables are written for those before it, and its place is behind theirs. */
	       !p->in_stream &&
	       !READ_ONCE(job->speculative) && is_worth_a_record(store, job) &&
	       cow_pending_nr(p) <= cowsnap_log_slots(&meta->geometry) &&
	       cow_job_vecs(p->offset_sectors, sectors) < BIO_MAX_VECS &&
	       (store->options.redirect || !is_cached(meta));
}

/* Has @w room for the run, and its zone? */
static bool record_has_room(struct cow_log_write *w, const struct cow_pending *p)
{
	struct cow_store *store = w->meta->store;
	u32 nr = cow_pending_nr(p);
	bool has;

	if (w->nr_members == LOG_MEMBERS ||
	    w->nr + nr > cowsnap_log_slots(&w->meta->geometry) ||
	    w->vecs + cow_job_vecs(p->offset_sectors, cow_chunk_to_sector(store, nr)) >=
	    BIO_MAX_VECS)
		return false;
	spin_lock(&store->origin->state_lock);
	has = cow_zone_has_room(store, &store->zone[w->zone], nr);
	spin_unlock(&store->origin->state_lock);
	return has;
}

/* The place that @p had is not needed: it is in the zone now. */
static void change_place(struct cow_log_write *w, struct cow_pending *p)
{
	struct cow_store *store = p->store;
	u32 nr = cow_pending_nr(p);

	spin_lock(&store->origin->state_lock);
	cow_space_free(&store->space, p->place, nr);
	p->place = cow_zone_give(store, &store->zone[w->zone], nr);
	spin_unlock(&store->origin->state_lock);
}

static void fill_slots(struct cow_log_write *w, struct cow_pending *p, struct cow_job *job)
{
	u32 i, nr = cow_pending_nr(p);

	for (i = 0; i < nr; i++) {
		bool zero = p->nr_zero && test_bit(i, p->zero);

		cow_slot_fill(w->meta, p, job, i, record_slot(w, w->nr + i));
		if (!zero)
			w->nr_data = w->nr + i + 1;
	}
	w->nr += nr;
}

static void record_take(struct cow_log_write *w, struct cow_pending *p, struct cow_job *job)
{
	u32 nr = cow_pending_nr(p);

	change_place(w, p);
	fill_slots(w, p, job);
	w->vecs += cow_job_vecs(p->offset_sectors, cow_chunk_to_sector(p->store, nr));
	w->member[w->nr_members++] = (struct cow_log_member){
		.pending = p, .job = job, .offset_sectors = p->offset_sectors, .nr = nr,
	};
	p->record = w;
	/* The record is sent whatever happens: at the end of this round, or a later one. */
	p->may_count = true;
	cow_job_hold(job);
}

/* ----------------------------------------------------------------- it is written */

static void record_seal(struct cow_log_write *w)
{
	struct cow_log_zone *zone = &w->meta->log.zone[w->zone];
	const struct cowsnap_geometry *g = &w->meta->geometry;
	struct cowsnap_log_record *record = w->block;
	u64 sector = cowsnap_log_sector(g, w->chunk);

	record->index = cpu_to_le32(zone->index++);
	record->series = cpu_to_le64(zone->series);
	record->mark = cpu_to_le64(cowsnap_log_mark(w->meta->uuid, sector, zone->series));
	record->durable = cpu_to_le32(zone->durable);
	w->said_end = zone->durable_end;
	record->nr = cpu_to_le16(w->nr);
	record->crc = cpu_to_le32(cowsnap_log_crc(w->meta->uuid, sector, record,
						  g->block_bytes));
}

/* All of it is written once more. */
static void record_unsure(struct cow_log_write *w)
{
	struct cow_meta *meta = w->meta;

	w->again = true;
	/* Keeps @meta and the engine: from then on it may end at any time. */
	rcu_read_lock();
	llist_add(&w->unsure, &meta->log.unsure);
	cow_meta_kick(meta);
	rcu_read_unlock();
}

static void record_endio(struct bio *bio)
{
	struct cow_log_write *w = bio->bi_private;
	blk_status_t status = bio->bi_status;
	u32 i, nr = w->nr_members;

	if (status)
		cow_flush_failed(w->meta->store->origin, w->meta->store->bdev->bd_disk,
				 bio->bi_opf, status);
	bio_put(bio);
	/* The flush that failed, its own or another, may have told of others' writes, or of it. */
	if (cow_meta_has_lost(w->meta, w->losses)) {
		if (!w->again) {
			record_unsure(w);
			return;
		}
		status = status ?: BLK_STS_IOERR;
	}
	if (w->sent_ns)
		w->ended_ns = ktime_get_ns();
	/* With the end of its last job the record may go at any time. */
	for (i = 0; i < nr; i++) {
		struct cow_job *job = w->member[i].job;

		if (status)
			w->member[i].pending->status = status;
		cow_job_let_go(job);
	}
}

static void add_data(struct cow_log_write *w, struct bio *bio)
{
	const struct cow_store *store = w->meta->store;
	u32 i, at = 0;

	/* Zeroes at the end need not be written. */
	for (i = 0; i < w->nr_members && at < w->nr_data; i++) {
		struct cow_log_member *m = &w->member[i];
		u32 nr = min(m->nr, w->nr_data - at);

		cow_job_add_to_bio(m->job, m->offset_sectors, cow_chunk_to_sector(store, nr), bio);
		at += m->nr;
	}
}

static void record_submit(struct cow_log_write *w)
{
	/* Writers wait for this: see cow_pending_write(). */
	blk_opf_t opf = REQ_OP_WRITE | REQ_SYNC | REQ_IDLE;
	struct cow_meta *meta = w->meta;
	struct block_device *bdev = meta->store->bdev;
	struct bio *bio;

	/* Without FUA of the device the block layer flushes. */
	if (bdev_write_cache(bdev))
		opf |= REQ_FUA;
	bio = bio_alloc_bioset(bdev, w->vecs + 1, opf, GFP_NOIO, &meta->bios);
	bio->bi_iter.bi_sector = cowsnap_log_sector(&meta->geometry, w->chunk);
	bio->bi_end_io = record_endio;
	bio->bi_private = w;
	__bio_add_page(bio, virt_to_page(w->block), meta->geometry.block_bytes,
		       offset_in_page(w->block));
	add_data(w, bio);
	if (bdev_rot(bdev))
		w->sent_ns = ktime_get_ns();
	w->losses = cow_meta_losses(meta);
	submit_bio_noacct(bio);
}

static void send_again(struct cow_meta *meta)
{
	struct cow_log_write *w, *next;

	llist_for_each_entry_safe(w, next, llist_del_all(&meta->log.unsure), unsure) {
		w->size = NOT_JUDGED;
		record_submit(w);
	}
}

static void record_send(struct cow_meta *meta)
{
	struct cow_log_write *w = meta->log.open;

	WRITE_ONCE(meta->log.open, NULL);
	w->alone &= !meta->log.nr_sent++;
	w->left = w->nr_members;
	record_seal(w);
	trace_cowsnap_record(meta->store->bdev->bd_dev, meta->log.zone[w->zone].series,
			     meta->log.zone[w->zone].index - 1, w->nr);
	meta->stats.records++;
	record_submit(w);
}

/*
 * Records follow each other under the head. While there are always two of them, a disk that takes
 * what is nearest leaves other metadata behind: tables and superblocks, when a zone is left. So
 * beside those there is one at a time, and the next one is filled meanwhile.
 */
static bool gives_way(const struct cow_meta *meta)
{
	if (!meta->log.nr_sent || !bdev_rot(meta->store->bdev))
		return false;
	/* After ->open was set: pairs with the barrier in direct_ended(). */
	smp_mb();
	return atomic_read(&meta->nr_direct);
}

void cow_log_send(struct cow_meta *meta)
{
	if (!llist_empty(&meta->log.unsure))
		send_again(meta);
	if (meta->log.open && !gives_way(meta))
		record_send(meta);
}

bool cow_log_add(struct cow_pending *p, struct cow_job *job)
{
	struct cow_meta *meta = p->store->meta;
	struct cow_log_write *w = meta->log.open;

	if (!run_suits(meta, p, job))
		return false;
	if (w && !record_has_room(w, p)) {
		record_send(meta);
		w = NULL;
	}
	if (!w)
		w = record_begin(meta, cow_pending_nr(p));
	if (!w)
		return false;
	record_take(w, p, job);
	/* The worker sends it at the end of a round. It may look without the lock. */
	if (list_empty_careful(&meta->work_node))
		cow_meta_kick(meta);
	return true;
}

/* --------------------------------------------------------------- and has ended */

/* The slots of @p are in the record; now in the tables as well, in memory. */
static int put_slots(struct cow_log_write *w, const struct cow_pending *p)
{
	struct cow_meta *meta = w->meta;
	u32 i = p->place - w->chunk - 1, end = i + cow_pending_nr(p);
	int r = 0;

	mutex_lock(&meta->blocks_lock);
	while (i < end && r >= 0) {
		r = cow_slots_put(meta, w->chunk + 1 + i, record_slot(w, i), end - i);
		i += max(r, 0);
	}
	mutex_unlock(&meta->blocks_lock);
	return min(r, 0);
}

/* Nothing below @end is in doubt any more. The worker does this, and who writes superblocks. */
static void note_up_to(struct cow_log_zone *zone, u64 end)
{
	u64 was, now = READ_ONCE(zone->noted_end);

	do {
		was = now;
		if (was >= end)
			break;
		now = cmpxchg(&zone->noted_end, was, end);
	} while (now != was);
}

/* Records are durable in any order; those before the first that is not are counted. */
static void count_durable(struct cow_meta *meta, struct cow_log_zone *zone)
{
	struct cow_log_write *w;

	while ((w = list_first_entry_or_null(&zone->under_way, struct cow_log_write, node))) {
		if (!w->ended)
			break;
		list_del(&w->node);
		if (!cow_meta_is_fenced(meta)) {
			WRITE_ONCE(zone->durable, zone->durable + 1);
			/* Pairs with smp_load_acquire() in cow_log_begin_note(). */
			smp_store_release(&zone->durable_end, w->chunk + 1 + w->nr);
			WRITE_ONCE(meta->log.nr_durable, meta->log.nr_durable + 1);
		}
		write_free(w);
	}
}

/* How long a record took says something of the gap that it was given, and of the device. */
static void judge_time(struct cow_meta *meta, const struct cow_log_write *w)
{
	if (!w->sent_ns)
		return;
	meta->log.ended_ns = w->ended_ns;
	if (w->alone)
		judge_cache(&meta->log, w->ended_ns - w->sent_ns);
	if (w->size != NOT_JUDGED)
		cow_gap_note(&meta->log.gap[w->size],
			     min_t(u64, div_u64(w->ended_ns - w->sent_ns, NSEC_PER_USEC), U32_MAX),
			     w->gap_most);
}

static void record_ended(struct cow_log_write *w)
{
	struct cow_meta *meta = w->meta;
	struct cow_store *store = meta->store;
	unsigned int zone = w->zone;

	w->ended = true;
	/* The next one may have waited for this. */
	if (!--meta->log.nr_sent && meta->log.open)
		cow_meta_kick(meta);
	judge_time(meta, w);
	if (!w->failed)
		note_up_to(&meta->log.zone[zone], w->said_end);
	count_durable(meta, &meta->log.zone[zone]);
	cow_meta_note(meta);
	spin_lock(&store->origin->state_lock);
	if (cow_zone_end_record(store, &store->zone[zone]) && !store->closing)
		mod_delayed_work(store->origin->wq, &store->zone_work,
				 cow_log_turn_delay(meta));
	spin_unlock(&store->origin->state_lock);
}

void cow_log_done(struct cow_pending *p)
{
	struct cow_log_write *w = p->record;

	p->record = NULL;
	/* It may be on the disk without its data. Nothing follows it, as after a commit. */
	if (!p->status && put_slots(w, p))
		p->status = BLK_STS_IOERR;
	if (p->status) {
		cow_meta_fence(w->meta);
		w->failed = true;
	}
	if (!--w->left)
		record_ended(w);
}

/* -------------------------------------------------------------------- its zones */

u32 cow_log_durable(const struct cow_meta *meta, unsigned int index)
{
	return READ_ONCE(meta->log.zone[index].durable);
}

void cow_log_set_zone(struct cow_meta *meta, unsigned int index, u64 series, u32 durable)
{
	struct cow_log_zone *zone = &meta->log.zone[index];

	zone->series = series;
	zone->index = durable;
	WRITE_ONCE(zone->durable, durable);
	zone->durable_end = 0;
	WRITE_ONCE(zone->noted_end, 0);
}

void cow_log_begin_note(const struct cow_meta *meta, struct cow_log_note *note)
{
	unsigned int i;

	for (i = 0; i < COWSNAP_ZONES; i++)
		/* They were counted before: pairs with smp_store_release() in count_durable(). */
		note->end[i] = smp_load_acquire(&meta->log.zone[i].durable_end);
}

void cow_log_end_note(struct cow_meta *meta, const struct cow_log_note *note)
{
	unsigned int i;

	for (i = 0; i < COWSNAP_ZONES; i++)
		note_up_to(&meta->log.zone[i], note->end[i]);
}

bool cow_log_can_note(const struct cow_meta *meta)
{
	unsigned int i;

	for (i = 0; i < COWSNAP_ZONES; i++)
		if (READ_ONCE(meta->log.zone[i].noted_end) <
		    READ_ONCE(meta->log.zone[i].durable_end))
			return true;
	return false;
}

bool cow_log_is_noted(const struct cow_meta *meta, u64 place, u64 nr)
{
	const struct cow_store *store = meta->store;
	unsigned int i;

	lockdep_assert_held(&store->origin->state_lock);
	for (i = 0; i < COWSNAP_ZONES; i++) {
		const struct cow_zone *zone = &store->zone[i];

		if (zone->state == COW_ZONE_NONE || place + nr <= zone->room.start ||
		    place >= zone->room.start + zone->room.nr)
			continue;
		if (min(place + nr, zone->room.start + zone->room.nr) >
		    READ_ONCE(meta->log.zone[i].noted_end))
			return false;
	}
	return true;
}

void cow_log_rest(struct cow_meta *meta, unsigned long delay)
{
	WRITE_ONCE(meta->log.turned, jiffies);
	WRITE_ONCE(meta->log.again, jiffies + delay);
}

unsigned int cow_log_default(struct block_device *bdev)
{
	int value = READ_ONCE(log_default);

	if (value >= 0)
		return value ? COWSNAP_LOG_ON : COWSNAP_LOG_OFF;
	return bdev_rot(bdev) ? COWSNAP_LOG_ON : COWSNAP_LOG_REDIRECTED;
}

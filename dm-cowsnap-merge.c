// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: a snapshot back into its origin
 *
 * While snapshot k is being merged the origin is in three parts:
 *
 *   chunk 0          done            busy_end                              end
 *   +----------------+---------------+----------------------------------+
 *   | merged: home   | being merged: | not yet: what snapshot k sees    |
 *   |                | bios wait     |                                  |
 *   +----------------+---------------+----------------------------------+
 *
 * So the origin shows the rolled-back data at once. A write to the last part is a
 * write to the snapshot. Where the snapshot has nothing of its own and no newer
 * snapshot needs a copy, the write goes home like any other. The merge works through
 * the chunks in order, one stretch at a time:
 *
 *   MERGE_COPY    close the stretch: wait for the I/O in it. Copy what the snapshot has
 *                 there to home by ordinary writes, so that other snapshots get their
 *                 copies first. Flush the origin.
 *   MERGE_NOTE    write down how far the merge has come, then open the stretch.
 *   MERGE_FINISH  after the last stretch: say that the snapshot is merged.
 *
 * Each step of the work item does one stretch and queues the item again, with a delay
 * if there is a throttle.
 *
 * What a crash leaves: the superblock's merge_chunk is at or behind `done`. The stretch
 * in between holds nothing at home but what was copied there, so copying it once more
 * does no harm.
 *
 * Flushes: while a merge is under way, writes to the origin may have been acknowledged by
 * the store's device. A flush of the origin goes to both devices.
 *
 * What fails: an error in MERGE_COPY opens the stretch again where it was; the snapshot
 * still has everything. After an error in MERGE_NOTE nobody knows which of the two
 * positions a crash would find. So the stretch stays closed while the note is tried
 * again. When the merge gives up, the stretch can be read (home has all of it), and
 * writes to it end with an error. By MERGE_FINISH everything is at home, and stays so.
 * After a failure no bio waits for the merge: what finds no room in the store ends with
 * an error. Resuming the merge's table again tries again.
 *
 * Lifetime: a bio looks at origin->merge with the gate held. Whoever frees a merge takes
 * it away from there first, and then waits for the gate.
 */
#include <linux/completion.h>
#include <linux/crc32c.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "dm-cowsnap.h"

/* Copied between two notes of how far the merge has come. */
#define STRETCH_SECTORS		8192U

/* Copied at once. */
#define COPY_SECTORS		1024U

/* How often a note is tried, and how long to wait in between. */
#define NOTE_TRIES		5
#define RETRY_NS		NSEC_PER_SEC

/* What the work item does next. */
enum merge_phase {
	MERGE_COPY,
	MERGE_NOTE,
	MERGE_FINISH,
	MERGE_DONE,
};

struct cow_merge {
	struct cow_store *store;
	struct cow_snap *snap;
	u64 end;			/* chunks of the snapshot */
	u64 done, busy_end;		/* chunks; origin->lock */
	struct list_head parked;	/* until the next stretch is open; origin->lock */
	bool stopped;			/* nobody may queue the work; origin->lock */
	bool failed;			/* nothing may wait for it; written under origin->lock */
	struct delayed_work work;
	struct bio_set bios;
	void *buffer;
	struct cow_merge *older;	/* ended; freed when the store is closed */

	/* The work item's own. */
	enum merge_phase phase;
	unsigned int tries;
	bool retries;
	u64 busy_ns, ended_ns;		/* the last stretch: how long it took, when it ended */
};

/* Run the work item, now or after @delay jiffies. origin->lock held. */
static void merge_kick(struct cow_merge *m, unsigned long delay)
{
	lockdep_assert_held(&m->store->origin->lock);
	if (!m->stopped)
		mod_delayed_work(m->store->merge_wq, &m->work, delay);
}

/* ------------------------------------------------------------- I/O to the origin */

static bool newer_ones_live(struct cow_store *store, u32 epoch)
{
	const struct cow_live *live;
	bool newer;

	rcu_read_lock();
	live = rcu_dereference(store->live);
	newer = live && live->epoch[live->nr - 1] > epoch;
	rcu_read_unlock();
	return newer;
}

enum merge_part {
	MERGED,
	BUSY,
	REFUSED,		/* the merge failed, and whether this is merged is not sure */
	HOME,
	SNAPSHOT,
};

/* Where the first chunk of @bio lies, and for how many sectors that is so. */
static enum merge_part find_part(struct cow_merge *m, const struct bio *bio, u64 *sectors)
{
	struct cow_store *store = m->store;
	sector_t start = bio->bi_iter.bi_sector;
	sector_t end = bio_end_sector((struct bio *)bio);
	u64 first = cow_sector_to_chunk(store, start);
	u64 nr = cow_sector_to_chunk(store, end - 1) - first + 1;
	struct cow_extent ext = { .kind = COW_HOME };

	lockdep_assert_held(&store->origin->lock);
	*sectors = end - start;
	if (start >= m->snap->nr_sectors)
		return MERGED;
	if (first < m->done) {
		nr = min(nr, m->done - first);
	} else if (first >= m->busy_end) {
		cow_map_lookup(&store->map, first, nr, m->snap->epoch, &ext);
		nr = ext.nr;
	}
	*sectors = min3(*sectors, (u64)cow_chunk_to_sector(store, first + nr) - start,
			(u64)m->snap->nr_sectors - start);
	if (first < m->done)
		return MERGED;
	/* A stretch that stays closed is at home: it can be read there. */
	if (first < m->busy_end && m->failed)
		return bio_data_dir(bio) == READ ? MERGED : REFUSED;
	if (first < m->busy_end)
		return BUSY;
	if (ext.kind != COW_HOME || cow_pending_overlap(store, first, first + nr - 1))
		return SNAPSHOT;
	if (bio_data_dir(bio) == WRITE && newer_ones_live(store, m->snap->epoch))
		return SNAPSHOT;
	return HOME;
}

static int read_home(struct cow_bio *cb)
{
	bio_set_dev(cb->bio, cb->origin->bdev);
	cb->gated = true;
	return DM_MAPIO_REMAPPED;
}

/* As what the snapshot sees. A read keeps the gate until it has ended. */
static int decide_as_snapshot(struct cow_merge *m, struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	int r;

	cb->snap = m->snap;
	cb->via_merge = true;
	if (bio_data_dir(cb->bio) == READ) {
		cb->gated = true;
		return cow_snap_decide(cb, part);
	}
	/* What is discarded here is a hint, and the snapshot's data is wanted. */
	if (bio_op(cb->bio) == REQ_OP_DISCARD)
		r = cow_bio_finish(cb, BLK_STS_OK);
	else
		r = cow_snap_decide(cb, part);
	percpu_ref_put(&o->gate);
	return r;
}

/* The gate is held, so a stretch that becomes busy waits for what is decided here. */
static int merge_decide(struct cow_merge *m, struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	enum merge_part where;
	u64 sectors;
	int r;

	spin_lock(&o->lock);
	where = find_part(m, cb->bio, &sectors);
	if (where == BUSY)
		list_add_tail(&cb->node, &m->parked);
	spin_unlock(&o->lock);
	if (where == BUSY) {
		percpu_ref_put(&o->gate);
		return DM_MAPIO_SUBMITTED;
	}
	*part = cow_bio_front(cb, sectors);
	if (*part != cb) {
		percpu_ref_put(&o->gate);
		if (!*part)
			return cow_bio_hand_over(cb, part);
		cow_bio_run(*part);
		return DM_MAPIO_SUBMITTED;
	}
	if (where == SNAPSHOT)
		return decide_as_snapshot(m, cb, part);
	if (where == REFUSED) {
		percpu_ref_put(&o->gate);
		return cow_bio_finish(cb, BLK_STS_IOERR);
	}
	if (bio_data_dir(cb->bio) == READ)
		return read_home(cb);
	r = cow_origin_decide(cb, part);
	percpu_ref_put(&o->gate);
	return r;
}

/* The store's device has acknowledged writes to the origin. The gate keeps it here. */
static int flush_store(struct cow_merge *m, struct cow_bio *cb)
{
	bio_set_dev(cb->bio, m->store->bdev);
	cb->gated = true;
	return DM_MAPIO_REMAPPED;
}

int cow_merge_decide(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	struct cow_merge *m;

	if (!cow_origin_enter(cb))
		return DM_MAPIO_SUBMITTED;
	m = READ_ONCE(o->merge);
	if (m && !bio_sectors(cb->bio))
		return flush_store(m, cb);
	if (m && !cb->merging)
		return merge_decide(m, cb, part);
	if (bio_sectors(cb->bio) && bio_data_dir(cb->bio) == READ)
		return read_home(cb);
	percpu_ref_put(&o->gate);
	/* What this store had acknowledged is at home by now, durably. */
	if (!bio_sectors(cb->bio))
		return cow_bio_finish(cb, BLK_STS_OK);
	return cow_origin_decide(cb, part);
}

bool cow_merge_park(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;
	struct cow_merge *m;
	bool waits = true;

	spin_lock(&o->lock);
	m = o->merge;
	if (!m) {
		list_add_tail(&cb->node, &o->deferred);
		mod_delayed_work(o->wq, &o->decide_work, 0);
	} else if (!m->failed) {
		/* Only the merge can make room: it does not rest meanwhile. */
		list_add_tail(&cb->node, &m->parked);
		merge_kick(m, 0);
	} else {
		waits = false;
	}
	spin_unlock(&o->lock);
	return waits;
}

/* ------------------------------------------------------------------ the merge */

struct merge_write {
	struct cow_bio cb;
	struct completion done;
	blk_status_t status;
};

static void merge_endio(struct bio *bio)
{
	struct merge_write *w = bio->bi_private;

	if (cow_bio_ended(&w->cb, &bio->bi_status) == DM_ENDIO_INCOMPLETE)
		return;
	w->status = bio->bi_status;
	complete(&w->done);
}

/* An ordinary write to the origin, but for that the merge does not stand in its way. */
static int merge_write_part(struct cow_merge *m, sector_t sector, unsigned int nr_sectors,
			    void *data)
{
	struct cow_origin *o = m->store->origin;
	struct merge_write w = {};
	struct bio *bio;

	/* From a pool of its own: the one of filesystems may be waiting for us. */
	bio = bio_alloc_bioset(o->bdev, DIV_ROUND_UP(nr_sectors, PAGE_SECTORS),
			       REQ_OP_WRITE, GFP_NOIO, &m->bios);
	bio->bi_iter.bi_sector = sector;
	bio->bi_end_io = merge_endio;
	bio->bi_private = &w;
	while (nr_sectors) {
		unsigned int part = min_t(unsigned int, nr_sectors, PAGE_SECTORS);

		__bio_add_page(bio, vmalloc_to_page(data), part << SECTOR_SHIFT, 0);
		data += PAGE_SIZE;
		nr_sectors -= part;
	}
	init_completion(&w.done);
	INIT_LIST_HEAD(&w.cb.node);
	w.cb.bio = bio;
	w.cb.origin = o;
	w.cb.merging = true;
	cow_bio_run(&w.cb);
	wait_for_completion(&w.done);
	bio_put(bio);
	return blk_status_to_errno(w.status);
}

static int merge_write(struct cow_merge *m, sector_t sector, unsigned int nr_sectors)
{
	void *data = m->buffer;
	int r = 0;

	while (nr_sectors && !r) {
		unsigned int part = min(nr_sectors, COPY_SECTORS);

		r = merge_write_part(m, sector, part, data);
		sector += part;
		nr_sectors -= part;
		data += part << SECTOR_SHIFT;
	}
	return r;
}

/* A copied chunk that is not what it was must not get into the origin. */
static int check_chunks(struct cow_merge *m, const struct cow_extent *ext, u64 nr)
{
	struct cow_store *store = m->store;
	size_t bytes = (size_t)store->chunk_sectors << SECTOR_SHIFT;
	u64 i;
	int r = 0;

	for (i = 0; i < nr && !r; i++) {
		struct cowsnap_slot slot;
		u32 seed = cow_meta_seed(store->meta,
					 cow_chunk_to_sector(store, ext->place + i));

		r = cow_meta_read_slot(store->meta, ext->place + i, &slot);
		if (!r && le32_to_cpu(slot.crc) !=
			  crc32c(seed, m->buffer + i * bytes, bytes)) {
			DMERR("store %pg: chunk %llu has a wrong checksum: it cannot be merged",
			      store->bdev, ext->place + i);
			atomic64_inc(&store->bad_checksums);
			r = -EILSEQ;
		}
	}
	return r;
}

/* The first chunks of @ext, as many as are copied at once. Returns how many, or -errno. */
static int copy_home(struct cow_merge *m, const struct cow_extent *ext)
{
	struct cow_store *store = m->store;
	sector_t sector = cow_chunk_to_sector(store, ext->chunk);
	u64 nr = clamp_t(u64, cow_sector_to_chunk(store, COPY_SECTORS), 1, ext->nr);
	sector_t nr_sectors = cow_chunk_to_sector(store, nr);
	int r = 0;

	if (cow_kind_has_data(ext->kind))
		r = cow_meta_io(store->bdev, REQ_OP_READ,
				cow_chunk_to_sector(store, ext->place), m->buffer,
				nr_sectors << SECTOR_SHIFT);
	else
		memset(m->buffer, 0, nr_sectors << SECTOR_SHIFT);
	if (!r && ext->kind == COW_COPIED)
		r = check_chunks(m, ext, nr);
	if (!r)
		r = merge_write(m, sector, min_t(sector_t, nr_sectors,
						 m->snap->nr_sectors - sector));
	return r ?: nr;
}

static bool stretch_is_quiet(struct cow_merge *m)
{
	struct cow_origin *o = m->store->origin;
	struct cow_pending *p;

	spin_lock(&o->lock);
	p = cow_pending_overlap(m->store, m->done, m->busy_end - 1);
	/* Those after it have their turn when it wakes us. */
	if (p)
		cow_pending_need(p);
	spin_unlock(&o->lock);
	return !p;
}

/*
 * Close the stretch up to @end and wait for all I/O in it. Who writes there waits until
 * it is open again, so no copy rests meanwhile: the merge does, for all of it.
 */
static int stretch_close(struct cow_merge *m, u64 end)
{
	struct cow_origin *o = m->store->origin;
	int r;

	spin_lock(&o->lock);
	m->busy_end = end;
	spin_unlock(&o->lock);
	cow_engine_set_hurry(o->engine, true);
	mutex_lock(&o->admin);
	r = cow_origin_drain(o, COW_DRAIN_JIFFIES);
	if (!r)
		cow_origin_thaw(o);
	mutex_unlock(&o->admin);
	/* Writes to the snapshot that are on their way into the map. */
	if (!r)
		wait_event(m->store->idle, stretch_is_quiet(m));
	return r;
}

/* What waited for the merge decides again. origin->lock held. */
static void merge_unpark(struct cow_merge *m)
{
	struct cow_origin *o = m->store->origin;

	lockdep_assert_held(&o->lock);
	list_splice_tail_init(&m->parked, &o->deferred);
	mod_delayed_work(o->wq, &o->decide_work, 0);
}

static void stretch_open(struct cow_merge *m, u64 done)
{
	struct cow_origin *o = m->store->origin;

	spin_lock(&o->lock);
	m->done = done;
	m->busy_end = done;
	merge_unpark(m);
	spin_unlock(&o->lock);
	cow_engine_set_hurry(o->engine, false);
}

static int stretch_copy(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	u64 at = m->done;
	struct cow_extent ext;

	while (at < m->busy_end &&
	       cow_map_next(&store->map, at, m->snap->epoch, &ext) &&
	       ext.chunk < m->busy_end) {
		int nr;

		if (READ_ONCE(m->snap->state) != COW_SNAP_MERGING)
			return -EIO;
		ext.nr = min(ext.nr, m->busy_end - ext.chunk);
		nr = copy_home(m, &ext);
		if (nr < 0)
			return nr;
		at = ext.chunk + nr;
	}
	return 0;
}

/* Where the next stretch ends: behind the next chunk that the snapshot has. */
static u64 stretch_end(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_extent ext;

	if (!cow_map_next(&store->map, m->done, m->snap->epoch, &ext))
		return m->end;
	return min(m->end, ext.chunk +
		   max_t(u64, 1, cow_sector_to_chunk(store, STRETCH_SECTORS)));
}

/* Bring one stretch home. An error leaves it to the snapshot. */
static int merge_copy(struct cow_merge *m)
{
	u64 end = stretch_end(m);
	int r;

	r = stretch_close(m, end);
	if (!r)
		r = stretch_copy(m);
	if (!r)
		r = blkdev_issue_flush(m->store->origin->bdev);
	if (r)
		stretch_open(m, m->done);
	else
		m->phase = MERGE_NOTE;
	return r;
}

/* The stretch is at home. Until that is written down nothing may be written there. */
static int merge_note(struct cow_merge *m)
{
	struct cow_change change;
	int r;

	cow_change_begin(&change, m->store, NULL);
	change.merge_chunk = m->busy_end;
	change.either = true;
	r = cow_change_end(&change);
	if (r)
		return r;
	stretch_open(m, m->busy_end);
	m->phase = m->done < m->end ? MERGE_COPY : MERGE_FINISH;
	return 0;
}

/*
 * The record and the superblock say that the snapshot is merged. Whichever of them a
 * crash finds: all of it has been noted as merged before.
 */
static int merge_write_merged(struct cow_merge *m)
{
	struct cow_change change;

	cow_change_begin(&change, m->store, m->snap);
	change.state = COW_SNAP_MERGED;
	change.merging = NULL;
	change.either = true;
	return cow_change_end(&change);
}

/* From now on the origin is all at home, and no longer asks where to go. */
static int merge_finish(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_origin *o = store->origin;
	int r;

	mutex_lock(&o->admin);
	r = merge_write_merged(m);
	if (!r) {
		spin_lock(&o->lock);
		WRITE_ONCE(o->merge, NULL);
		merge_unpark(m);
		spin_unlock(&o->lock);
		m->phase = MERGE_DONE;
		/* After this it can be deleted. */
		DMINFO("store %pg: snapshot %u is merged into %pg", store->bdev, m->snap->id,
		       o->bdev);
	}
	mutex_unlock(&o->admin);
	if (r)
		return r;
	queue_work(o->wq, &store->event_work);
	vfree(m->buffer);
	m->buffer = NULL;
	cow_store_reclaim(store);
	return 0;
}

/* One stretch, or what is left of it. */
static int merge_step(struct cow_merge *m)
{
	int r = 0;

	if (m->phase == MERGE_COPY)
		r = merge_copy(m);
	if (!r && m->phase == MERGE_NOTE)
		r = merge_note(m);
	if (!r && m->phase == MERGE_FINISH)
		r = merge_finish(m);
	return r;
}

/* Nobody waits for this merge any more. */
static void merge_fail(struct cow_merge *m, int r)
{
	struct cow_store *store = m->store;
	struct cow_origin *o = store->origin;

	DMERR("store %pg: merging snapshot %u into %pg failed (%d) at chunk %llu", store->bdev,
	      m->snap->id, o->bdev, r, m->done);
	DMERR("to go on with it, suspend and resume a table of cowsnap-merge");
	spin_lock(&o->lock);
	WRITE_ONCE(m->failed, true);
	merge_unpark(m);
	spin_unlock(&o->lock);
	cow_engine_set_hurry(o->engine, false);
	queue_work(o->wq, &store->event_work);
}

/* What was read or written once may not be so the next time: only notes are repeated. */
static bool merge_tries_again(struct cow_merge *m, int r)
{
	if (r == -ENOMEM)
		return true;
	return m->phase != MERGE_COPY && ++m->tries < NOTE_TRIES;
}

/*
 * How long to rest between two steps. After a stretch as long as leaves copying its share
 * of time, but not while a bio waits for the next stretch.
 */
static u64 merge_rest_ns(struct cow_merge *m)
{
	unsigned int percent = cow_engine_throttle(m->store->origin->engine);

	if (m->retries)
		return RETRY_NS;
	if (m->phase != MERGE_COPY || !list_empty_careful(&m->parked))
		return 0;
	return m->busy_ns * (100 - percent) / percent;
}

/* Queue the work again for when it has rested. False: it has. */
static bool merge_rests(struct cow_merge *m)
{
	u64 rest_ns = merge_rest_ns(m), rested_ns = ktime_get_ns() - m->ended_ns;

	if (rested_ns >= rest_ns)
		return false;
	spin_lock(&m->store->origin->lock);
	merge_kick(m, nsecs_to_jiffies(rest_ns - rested_ns) + 1);
	spin_unlock(&m->store->origin->lock);
	return true;
}

static void merge_work(struct work_struct *work)
{
	struct cow_merge *m = container_of(to_delayed_work(work), struct cow_merge, work);
	struct cow_origin *o = m->store->origin;
	u64 start_ns = ktime_get_ns();
	int r;

	if (READ_ONCE(m->failed) || m->phase == MERGE_DONE || merge_rests(m))
		return;
	r = merge_step(m);
	m->ended_ns = ktime_get_ns();
	m->busy_ns = m->ended_ns - start_ns;
	m->retries = r && merge_tries_again(m, r);
	if (!r)
		m->tries = 0;
	if (r && !m->retries) {
		merge_fail(m, r);
		return;
	}
	spin_lock(&o->lock);
	merge_kick(m, 0);
	spin_unlock(&o->lock);
}

void cow_merge_hurry(struct cow_origin *o)
{
	spin_lock(&o->lock);
	if (o->merge)
		merge_kick(o->merge, 0);
	spin_unlock(&o->lock);
}

/* ------------------------------------------------------------------ start, stop */

static void merge_free(struct cow_merge *m)
{
	bioset_exit(&m->bios);
	vfree(m->buffer);
	kfree(m);
}

static int merge_alloc_wq(struct cow_store *store)
{
	/* Its own: a stretch waits for what is done in the origin's. */
	if (!store->merge_wq)
		store->merge_wq = alloc_ordered_workqueue("cowsnap-merge-%u:%u",
							  WQ_MEM_RECLAIM,
							  MAJOR(store->bdev->bd_dev),
							  MINOR(store->bdev->bd_dev));
	return store->merge_wq ? 0 : -ENOMEM;
}

static struct cow_merge *merge_alloc(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	struct cow_merge *m = kzalloc(sizeof(*m), GFP_KERNEL);

	if (!m)
		return NULL;
	m->store = store;
	m->snap = snap;
	m->end = cow_sector_to_chunk(store, snap->nr_sectors + store->chunk_sectors - 1);
	INIT_LIST_HEAD(&m->parked);
	INIT_DELAYED_WORK(&m->work, merge_work);
	m->buffer = vmalloc(max(COPY_SECTORS, store->chunk_sectors) << SECTOR_SHIFT);
	if (!m->buffer || merge_alloc_wq(store) ||
	    bioset_init(&m->bios, 4, 0, BIOSET_NEED_BVECS)) {
		merge_free(m);
		return NULL;
	}
	return m;
}

/* What is missing would let newer data stay in the origin. */
static bool lacks_chunks(const struct cow_snap *snap)
{
	if (snap->epoch > snap->store->damage_epoch)
		return false;
	DMERR("store %pg: it has damaged tables, snapshot %u cannot be merged: run cowsnap repair",
	      snap->store->bdev, snap->id);
	return true;
}

bool cow_merge_stands_in_the_way(const struct cow_origin *o)
{
	const struct cow_merge *m = o->merge;

	lockdep_assert_held(&o->admin);
	if (!m)
		return false;
	DMERR("origin %pg: snapshot %u of store %pg is being merged: wait for its end",
	      o->bdev, m->snap->id, m->store->bdev);
	return true;
}

struct cow_merge *cow_merge_prepare(struct cow_snap *snap)
{
	struct cow_merge *m;

	if (cow_merge_stands_in_the_way(snap->store->origin))
		return ERR_PTR(-EBUSY);
	if (!snap->store->writable) {
		DMERR("store %pg is read-only: make it writable, snapshot %u is to be merged",
		      snap->store->bdev, snap->id);
		return ERR_PTR(-EROFS);
	}
	if (lacks_chunks(snap))
		return ERR_PTR(-EUCLEAN);
	m = merge_alloc(snap);
	return m ?: ERR_PTR(-ENOMEM);
}

void cow_merge_discard(struct cow_merge *m)
{
	if (!IS_ERR_OR_NULL(m))
		merge_free(m);
}

void cow_merge_start(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_origin *o = store->origin;

	lockdep_assert_held(&o->admin);
	m->done = store->merge_chunk;
	m->busy_end = m->done;
	m->phase = m->done < m->end ? MERGE_COPY : MERGE_FINISH;
	/* Its work may still be on its last lines. */
	m->older = store->merge;
	spin_lock(&o->lock);
	store->merge = m;
	WRITE_ONCE(o->merge, m);
	merge_kick(m, 0);
	spin_unlock(&o->lock);
}

/* From LIVE to MERGING, durably. The origin is frozen. */
static int merge_write_begun(struct cow_snap *snap)
{
	struct cow_change change;

	cow_change_begin(&change, snap->store, snap);
	change.state = COW_SNAP_MERGING;
	/* What is written to the origin from now on may be the snapshot's own. */
	change.mark = COW_MARK_WRITTEN;
	change.merging = snap;
	change.merge_chunk = 0;
	return cow_change_end(&change);
}

/* The disk is told last of what may fail, and nothing that follows can. */
static int merge_begin(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_origin *o = store->origin;
	struct cow_live *live = cow_store_alloc_live(store);
	unsigned int noio;
	int r = -ENOMEM;

	if (!live)
		return r;
	r = cow_origin_freeze(o);
	if (r) {
		kvfree(live);
		return r;
	}
	/* Writes wait for this, and memory may wait for them. */
	noio = memalloc_noio_save();
	r = merge_write_begun(m->snap);
	if (!r) {
		cow_store_take_live(store, live);
		cow_merge_start(m);
	} else {
		kvfree(live);
	}
	memalloc_noio_restore(noio);
	cow_origin_thaw(o);
	return r;
}

/* Once more, after the devices were mended. */
static void merge_retry(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	struct cow_merge *m = o->merge;

	if (!m || m->store != store || !m->failed)
		return;
	cow_engine_set_hurry(o->engine, m->busy_end > m->done);
	spin_lock(&o->lock);
	/* The work has nothing to do with it while that says "failed". */
	m->tries = 0;
	m->retries = false;
	WRITE_ONCE(m->failed, false);
	merge_kick(m, 0);
	spin_unlock(&o->lock);
}

int cow_merge_activate(struct cow_snap *snap)
{
	struct cow_merge *m;
	int r;

	lockdep_assert_held(&snap->store->origin->admin);
	if (snap->state == COW_SNAP_MERGING)
		merge_retry(snap->store);
	if (snap->state != COW_SNAP_LIVE)
		return 0;
	m = cow_merge_prepare(snap);
	if (IS_ERR(m))
		return PTR_ERR(m);
	r = merge_begin(m);
	if (r) {
		DMERR("store %pg: merging snapshot %u cannot begin (%d)", snap->store->bdev,
		      snap->id, r);
		cow_merge_discard(m);
	}
	return r;
}

/* @m is the origin's no more, and no bio that saw it there is left. */
static void merge_take_away(struct cow_merge *m)
{
	struct cow_origin *o = m->store->origin;

	mutex_lock(&o->admin);
	/* However long that takes: what the store's device has not ended needs the store. */
	cow_origin_drain(o, MAX_SCHEDULE_TIMEOUT);
	if (o->merge == m) {
		DMWARN("store %pg is closed while snapshot %u is being merged: name it in a table,",
		       m->store->bdev, m->snap->id);
		DMWARN("before %pg is used again: until then it is only partly merged", o->bdev);
		/* Later flushes of the origin will not come here. */
		if (blkdev_issue_flush(m->store->bdev))
			DMERR("store %pg: cannot be flushed", m->store->bdev);
		WRITE_ONCE(o->merge, NULL);
		cow_engine_set_hurry(o->engine, false);
	}
	spin_lock(&o->lock);
	merge_unpark(m);
	spin_unlock(&o->lock);
	cow_origin_thaw(o);
	mutex_unlock(&o->admin);
}

void cow_merge_stop(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	struct cow_merge *m = store->merge;

	if (m) {
		spin_lock(&o->lock);
		m->stopped = true;
		spin_unlock(&o->lock);
		cancel_delayed_work_sync(&m->work);
		merge_take_away(m);
	}
	store->merge = NULL;
	while (m) {
		struct cow_merge *older = m->older;

		cancel_delayed_work_sync(&m->work);
		merge_free(m);
		m = older;
	}
	if (store->merge_wq)
		destroy_workqueue(store->merge_wq);
	store->merge_wq = NULL;
}

u64 cow_merge_left(const struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	struct cow_extent ext;
	u64 at, left = 0;

	if (snap->state != COW_SNAP_MERGING && snap->state != COW_SNAP_LIVE)
		return 0;
	at = snap->state == COW_SNAP_MERGING ? READ_ONCE(store->merge_chunk) : 0;
	while (cow_map_next(&store->map, at, snap->epoch, &ext)) {
		left += ext.nr;
		at = ext.chunk + ext.nr;
		cond_resched();
	}
	/* Whoever reads 0 takes it for the end, and that is still to be written down. */
	return left ?: 1;
}

bool cow_merge_failed(const struct cow_snap *snap)
{
	const struct cow_merge *m = snap->store->merge;

	return m && m->snap == snap && READ_ONCE(m->failed);
}

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
 * So the origin shows the rolled-back data at once. What is written to the last part
 * is written to the snapshot; where the snapshot has nothing of its own and no newer one
 * needs a copy, it goes home like any write. The merge goes through the chunks in
 * order: it lets the I/O to a stretch end, copies what the snapshot has there to home
 * by ordinary writes (so other snapshots get their copies first), flushes the origin, and
 * writes down how far it has come before the stretch is opened.
 *
 * What a crash leaves: the superblock's merge_chunk is at or behind `done`. The stretch
 * in between holds nothing at home but what was copied there, so copying it once more
 * does no harm.
 */
#include <linux/completion.h>
#include <linux/crc32c.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "dm-cowsnap.h"

/* Copied between two notes of how far the merge has come. */
#define STRETCH_SECTORS		8192U

/* Copied at once. */
#define COPY_SECTORS		1024U

struct cow_merge {
	struct cow_store *store;
	struct cow_snap *snap;
	u64 done, busy_end;		/* chunks; origin->lock */
	struct list_head parked;	/* origin->lock */
	struct work_struct work;
	void *buffer;
	bool stop, failed;
	struct cow_merge *older;	/* ended; freed when the store is closed */
};

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

enum merge_part { MERGED, BUSY, HOME, SNAPSHOT };

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
		if (*part) {
			cow_bio_run(*part);
		} else {
			*part = cb;
			cow_bio_defer(cb);
		}
		return DM_MAPIO_SUBMITTED;
	}
	if (where == SNAPSHOT)
		return decide_as_snapshot(m, cb, part);
	if (bio_data_dir(cb->bio) == READ)
		return read_home(cb);
	r = cow_origin_decide(cb, part);
	percpu_ref_put(&o->gate);
	return r;
}

int cow_merge_decide(struct cow_bio *cb, struct cow_bio **part)
{
	struct cow_origin *o = cb->origin;
	struct cow_merge *m;

	while (!percpu_ref_tryget_live(&o->gate))
		if (cow_origin_hold(cb))
			return DM_MAPIO_SUBMITTED;
	/* Whoever takes the merge away shuts the gate first. */
	m = READ_ONCE(o->merge);
	if (m && !cb->merging)
		return merge_decide(m, cb, part);
	if (bio_data_dir(cb->bio) == READ)
		return read_home(cb);
	percpu_ref_put(&o->gate);
	return cow_origin_decide(cb, part);
}

void cow_merge_park(struct cow_bio *cb)
{
	struct cow_origin *o = cb->origin;

	spin_lock(&o->lock);
	list_add_tail(&cb->node, o->merge ? &o->merge->parked : &o->deferred);
	spin_unlock(&o->lock);
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

	bio = bio_alloc(o->bdev, DIV_ROUND_UP(nr_sectors, PAGE_SECTORS), REQ_OP_WRITE,
			GFP_NOIO);
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
	bool quiet;

	spin_lock(&o->lock);
	quiet = !cow_pending_overlap(m->store, m->done, m->busy_end - 1);
	spin_unlock(&o->lock);
	return quiet;
}

/*
 * Close the stretch up to @end and wait for all I/O in it. Who writes there waits until
 * it is open again, so no copy rests meanwhile: merge_rest() does, for all of it.
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
	r = cow_origin_freeze(o);
	if (!r)
		cow_origin_thaw(o);
	mutex_unlock(&o->admin);
	/* Writes to the snapshot that are on their way into the map. */
	if (!r)
		wait_event(m->store->idle, stretch_is_quiet(m));
	return r;
}

static void stretch_open(struct cow_merge *m, u64 done)
{
	struct cow_origin *o = m->store->origin;

	spin_lock(&o->lock);
	m->done = done;
	m->busy_end = done;
	list_splice_tail_init(&m->parked, &o->deferred);
	spin_unlock(&o->lock);
	cow_engine_set_hurry(o->engine, false);
	mod_delayed_work(o->wq, &o->decide_work, 0);
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

static int stretch_note(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	int r = blkdev_issue_flush(store->origin->bdev);

	if (!r) {
		store->merge_chunk = m->busy_end;
		r = cow_super_write(store, NULL);
	}
	return r;
}

/* One stretch. 1: there are more; 0: none is left. */
static int merge_step(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_extent ext;
	u64 end;
	int r;

	if (!cow_map_next(&store->map, m->done, m->snap->epoch, &ext))
		return 0;
	end = ext.chunk + max_t(u64, 1, cow_sector_to_chunk(store, STRETCH_SECTORS));
	end = min(end, cow_sector_to_chunk(store, m->snap->nr_sectors +
					   store->chunk_sectors - 1));
	r = stretch_close(m, end);
	if (!r)
		r = stretch_copy(m);
	if (!r)
		r = stretch_note(m);
	stretch_open(m, r ? m->done : end);
	return r ?: 1;
}

/* Frozen, with nothing left: from now on the origin is all at home. */
static int merge_finish(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_snap *snap = m->snap;
	struct cow_origin *o = store->origin;
	int r = 0;

	spin_lock(&o->lock);
	WRITE_ONCE(snap->state, COW_SNAP_MERGED);
	spin_unlock(&o->lock);
	/* The record first: with it the superblock's word no longer counts. */
	if (snap->record >= COWSNAP_SUPER_RECORDS)
		r = cow_super_write(store, snap);
	store->merging = NULL;
	if (!r)
		r = cow_super_write(store, NULL);
	if (r) {
		spin_lock(&o->lock);
		WRITE_ONCE(snap->state, COW_SNAP_MERGING);
		spin_unlock(&o->lock);
		store->merging = snap;
		return r;
	}
	spin_lock(&o->lock);
	WRITE_ONCE(o->merge, NULL);
	list_splice_tail_init(&m->parked, &o->deferred);
	spin_unlock(&o->lock);
	cow_engine_set_hurry(o->engine, false);
	DMINFO("store %pg: snapshot %u is merged into %pg", store->bdev, snap->id, o->bdev);
	return 0;
}

/* Nothing seems to be left: look again with all I/O at rest. 1: there is something. */
static int merge_last(struct cow_merge *m)
{
	struct cow_origin *o = m->store->origin;
	struct cow_extent ext;
	int r = stretch_close(m, COW_CHUNKS_MAX);

	if (!r && cow_map_next(&m->store->map, m->done, m->snap->epoch, &ext))
		r = 1;
	if (r) {
		stretch_open(m, m->done);
		return r;
	}
	mutex_lock(&o->admin);
	r = cow_origin_freeze(o);
	if (!r) {
		r = merge_finish(m);
		cow_origin_thaw(o);
	}
	mutex_unlock(&o->admin);
	if (r)
		stretch_open(m, m->done);
	return r;
}

/* Rest in proportion, so that copying takes no more than its share of time. */
static void merge_rest(struct cow_merge *m, u64 start_ns)
{
	struct cow_engine *engine = m->store->origin->engine;
	u64 end_ns = ktime_get_ns();
	u64 busy_ns = end_ns - start_ns;

	/* The share may be set anew meanwhile. */
	while (!READ_ONCE(m->stop)) {
		unsigned int percent = cow_engine_throttle(engine);
		u64 rest_ns = busy_ns * (100 - percent) / percent;
		u64 rested_ns = ktime_get_ns() - end_ns;

		if (rested_ns >= rest_ns)
			break;
		rest_ns = min_t(u64, rest_ns - rested_ns, 100 * NSEC_PER_MSEC);
		schedule_timeout_uninterruptible(nsecs_to_jiffies(rest_ns) + 1);
	}
}

static void merge_work(struct work_struct *work)
{
	struct cow_merge *m = container_of(work, struct cow_merge, work);
	struct cow_store *store = m->store;
	int r = 1;

	while (r > 0 && !READ_ONCE(m->stop)) {
		u64 start_ns = ktime_get_ns();

		r = merge_step(m);
		if (!r)
			r = merge_last(m);
		merge_rest(m, start_ns);
	}
	if (r < 0) {
		DMERR("store %pg: merging snapshot %u into %pg failed (%d) at chunk %llu",
		      store->bdev, m->snap->id, store->origin->bdev, r, m->done);
		WRITE_ONCE(m->failed, true);
	}
	if (r > 0)
		return;
	queue_work(store->origin->wq, &store->event_work);
	if (r)
		return;
	vfree(m->buffer);
	m->buffer = NULL;
	cow_store_reclaim(store);
}

/* ------------------------------------------------------------------ start, stop */

static struct cow_merge *merge_alloc(struct cow_snap *snap)
{
	struct cow_merge *m = kzalloc(sizeof(*m), GFP_KERNEL);

	if (!m)
		return NULL;
	m->buffer = vmalloc(max(COPY_SECTORS, snap->store->chunk_sectors) << SECTOR_SHIFT);
	if (!m->buffer) {
		kfree(m);
		return NULL;
	}
	m->store = snap->store;
	m->snap = snap;
	m->done = snap->store->merge_chunk;
	m->busy_end = m->done;
	INIT_LIST_HEAD(&m->parked);
	INIT_WORK(&m->work, merge_work);
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

int cow_merge_start(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	struct cow_origin *o = store->origin;
	struct cow_merge *m;

	if (o->merge) {
		DMERR("origin %pg: snapshot %u is being merged already", o->bdev,
		      o->merge->snap->id);
		return -EBUSY;
	}
	if (lacks_chunks(snap))
		return -EUCLEAN;
	m = merge_alloc(snap);
	if (!m)
		return -ENOMEM;
	/* Its work may still be on its last lines. */
	m->older = store->merge;
	spin_lock(&o->lock);
	store->merge = m;
	WRITE_ONCE(o->merge, m);
	spin_unlock(&o->lock);
	queue_work(o->wq, &m->work);
	return 0;
}

/* Frozen: from LIVE to MERGING, durably. */
static int merge_begin(struct cow_snap *snap)
{
	struct cow_store *store = snap->store;
	enum cow_snap_mark was = snap->mark;
	int r;

	spin_lock(&store->origin->lock);
	WRITE_ONCE(snap->state, COW_SNAP_MERGING);
	spin_unlock(&store->origin->lock);
	/* What is written to the origin from now on may be the snapshot's own. */
	WRITE_ONCE(snap->mark, COW_MARK_WRITTEN);
	store->merging = snap;
	store->merge_chunk = 0;
	r = cow_store_renew_live(store);
	if (!r && snap->record >= COWSNAP_SUPER_RECORDS)
		r = cow_super_write(store, snap);
	if (!r)
		r = cow_super_write(store, NULL);
	if (!r)
		r = cow_merge_start(snap);
	if (r) {
		spin_lock(&store->origin->lock);
		WRITE_ONCE(snap->state, COW_SNAP_LIVE);
		WRITE_ONCE(snap->mark, was);
		spin_unlock(&store->origin->lock);
		store->merging = NULL;
		cow_store_renew_live(store);
	}
	return r;
}

int cow_merge_activate(struct cow_snap *snap)
{
	struct cow_origin *o = snap->store->origin;
	int r;

	if (snap->state != COW_SNAP_LIVE)
		return 0;
	if (o->merge || snap->store->merging) {
		DMERR("origin %pg: another snapshot is being merged", o->bdev);
		return -EBUSY;
	}
	if (lacks_chunks(snap))
		return -EUCLEAN;
	r = cow_origin_freeze(o);
	if (r)
		return r;
	r = merge_begin(snap);
	cow_origin_thaw(o);
	return r;
}

void cow_merge_stop(struct cow_store *store)
{
	struct cow_origin *o = store->origin;
	struct cow_merge *m = store->merge;

	if (!m)
		return;
	WRITE_ONCE(m->stop, true);
	flush_work(&m->work);
	mutex_lock(&o->admin);
	if (o->merge == m && !cow_origin_freeze(o)) {
		WRITE_ONCE(o->merge, NULL);
		stretch_open(m, m->done);
		cow_origin_thaw(o);
	}
	mutex_unlock(&o->admin);
	store->merge = NULL;
	while (m) {
		struct cow_merge *older = m->older;

		flush_work(&m->work);
		vfree(m->buffer);
		kfree(m);
		m = older;
	}
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
	}
	/* Whoever reads 0 takes it for the end, and that is still to be written down. */
	return left ?: 1;
}

bool cow_merge_failed(const struct cow_snap *snap)
{
	const struct cow_merge *m = snap->store->merge;

	return m && m->snap == snap && READ_ONCE(m->failed);
}

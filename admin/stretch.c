// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the work of a merge, one stretch of the origin at a time
 *
 *   MERGE_COPY    close the stretch: wait for the I/O in it. Copy the snapshot's versions in
 *                 it home by ordinary writes, so that other snapshots get their copies
 *                 first. Flush the origin.
 *   MERGE_NOTE    note in the superblock how far the merge has come, then open the stretch.
 *   MERGE_FINISH  after the last stretch: record that the snapshot is merged.
 *
 * Each step of the work item does one stretch and queues the item again, with a delay
 * if there is a throttle.
 *
 * What fails: an error in MERGE_COPY opens the stretch again where it was; the
 * snapshot still has everything. After an error in MERGE_NOTE a crash could find
 * either position, so the stretch stays closed while the note is tried again. When the
 * merge gives up, the stretch can be read (home has all of it), and writes to it end
 * with an error. By MERGE_FINISH everything is at home, and stays so. After a failure
 * no bio waits for the merge: what finds no room in the store ends with an error.
 */
#include <linux/completion.h>
#include <linux/crc32c.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "admin/stretch.h"
#include "copy/pending.h"
#include "disk/blocks.h"
#include "disk/io.h"
#include "disk/slots.h"
#include "disk/super.h"
#include "disk/verify.h"
#include "io/bio.h"
#include "io/merge.h"
#include "origin/bio.h"
#include "origin/gate.h"
#include "store/room.h"
#include "store/snapshots.h"
#include "store/store.h"
#include "trace/cowsnap.h"

/* Copied between two notes of how far the merge has come. */
#define STRETCH_SECTORS		8192U

/* How often a note is tried, and how long to wait in between. */
#define NOTE_TRIES		5
#define RETRY_NS		NSEC_PER_SEC

/* ------------------------------------------------------ writing to the origin */

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

/* An ordinary write to the origin, except that the merge does not hold it up. */
static int merge_write_part(struct cow_merge *m, sector_t sector, unsigned int nr_sectors,
			    void *data)
{
	struct cow_origin *o = m->store->origin;
	struct merge_write w = {};
	struct bio *bio;

	/* From a pool of its own: filesystems may be waiting for this write. */
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
	cow_bio_decide_again(&w.cb);
	wait_for_completion(&w.done);
	bio_put(bio);
	return blk_status_to_errno(w.status);
}

static int merge_write(struct cow_merge *m, sector_t sector, unsigned int nr_sectors)
{
	void *data = m->buffer;
	int r = 0;

	while (nr_sectors && !r) {
		unsigned int part = min(nr_sectors, COW_MERGE_SECTORS);

		r = merge_write_part(m, sector, part, data);
		sector += part;
		nr_sectors -= part;
		data += part << SECTOR_SHIFT;
	}
	return r;
}

/* A copied chunk with a wrong checksum must not get into the origin. */
static int check_chunks(struct cow_merge *m, const struct cow_extent *ext, u64 nr)
{
	struct cow_store *store = m->store;
	size_t bytes = (size_t)store->chunk_sectors << SECTOR_SHIFT;
	u64 i;
	int r = 0;

	for (i = 0; i < nr && !r; i++) {
		struct cow_version v = {
			.chunk = ext->chunk + i, .place = ext->place + i, .epoch = ext->epoch,
		};
		u32 seed = cow_meta_seed(store->meta, cow_chunk_to_sector(store, v.place));

		r = cow_verify_crc(store, &v, crc32c(seed, m->buffer + i * bytes, bytes));
		if (r == -EILSEQ) {
			DMERR("store %pg: chunk %llu has a wrong checksum: it cannot be merged",
			      store->bdev, v.place);
			atomic64_inc(&store->bad_checksums);
		}
	}
	return r;
}

/* The first chunks of @ext, as many as are copied at once. Returns how many, or -errno. */
static int copy_home(struct cow_merge *m, const struct cow_extent *ext)
{
	struct cow_store *store = m->store;
	sector_t sector = cow_chunk_to_sector(store, ext->chunk);
	u64 nr = clamp_t(u64, cow_sector_to_chunk(store, COW_MERGE_SECTORS), 1, ext->nr);
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
						 m->nr_sectors - sector));
	return r ?: nr;
}

/* ------------------------------------------------------------------ a stretch */

static bool stretch_is_quiet(struct cow_merge *m)
{
	struct cow_origin *o = m->store->origin;
	struct cow_pending *p;

	spin_lock(&o->state_lock);
	p = cow_pending_overlap(m->store, m->done, m->busy_end - 1);
	/* The next one is looked for when this one has woken us. */
	if (p)
		cow_pending_need(p);
	spin_unlock(&o->state_lock);
	return !p;
}

/*
 * Close the stretch up to @end and wait for all I/O in it. Writers to the stretch wait until
 * it is opened, so the throttle is lifted meanwhile; merge_rests() makes up for it.
 */
static int stretch_close(struct cow_merge *m, u64 end)
{
	struct cow_origin *o = m->store->origin;
	int r;

	spin_lock(&o->state_lock);
	m->busy_end = end;
	spin_unlock(&o->state_lock);
	cow_engine_set_hurry(o->engine, true);
	mutex_lock(&o->admin_lock);
	r = cow_origin_drain(o, COW_DRAIN_JIFFIES);
	if (!r)
		cow_origin_thaw(o);
	mutex_unlock(&o->admin_lock);
	/* Writes to the snapshot that are on their way into the map. */
	if (!r)
		wait_event(m->store->idle, stretch_is_quiet(m));
	return r;
}

static void stretch_open(struct cow_merge *m, u64 done)
{
	struct cow_origin *o = m->store->origin;

	spin_lock(&o->state_lock);
	m->done = done;
	m->busy_end = done;
	cow_merge_unpark(m);
	spin_unlock(&o->state_lock);
	cow_engine_set_hurry(o->engine, false);
}

static int stretch_copy(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	u64 at = m->done;
	struct cow_extent ext;

	while (at < m->busy_end &&
	       cow_map_next(&store->map, at, m->epoch, &ext) &&
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

/* The next stretch begins at the next chunk that the snapshot has; where does it end? */
static u64 stretch_end(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_extent ext;

	if (!cow_map_next(&store->map, m->done, m->epoch, &ext))
		return m->end;
	return min(m->end, ext.chunk +
		   max_t(u64, 1, cow_sector_to_chunk(store, STRETCH_SECTORS)));
}

/* ---------------------------------------------------------------------- steps */

/* Copy one stretch home. After an error it is still the snapshot's. */
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

/* The stretch is at home. It stays closed until that is noted. */
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
 * Record and superblock get the new state. A crash may find either of them changed: all of
 * the snapshot has been noted as merged before.
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

/* From now on all of the origin is at home. */
static int merge_finish(struct cow_merge *m)
{
	struct cow_store *store = m->store;
	struct cow_origin *o = store->origin;
	int r;

	mutex_lock(&o->admin_lock);
	r = merge_write_merged(m);
	if (!r) {
		spin_lock(&o->state_lock);
		WRITE_ONCE(o->merge, NULL);
		cow_merge_unpark(m);
		spin_unlock(&o->state_lock);
		m->phase = MERGE_DONE;
		DMINFO("store %pg: snapshot %u is merged into %pg", store->bdev, m->id,
		       o->bdev);
	}
	mutex_unlock(&o->admin_lock);
	if (r)
		return r;
	queue_work(o->wq, &store->event_work);
	vfree(m->buffer);
	m->buffer = NULL;
	cow_store_reclaim(store);
	return 0;
}

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

/* Bios no longer wait for this merge. */
static void merge_fail(struct cow_merge *m, int r)
{
	struct cow_store *store = m->store;
	struct cow_origin *o = store->origin;

	DMERR("store %pg: merging snapshot %u into %pg failed (%d) at chunk %llu", store->bdev,
	      m->id, o->bdev, r, m->done);
	DMERR("to go on with it, %ssuspend and resume a table of cowsnap-merge",
	      r == -ENOSPC ? "give the store room, " : "");
	spin_lock(&o->state_lock);
	WRITE_ONCE(m->failed, true);
	cow_merge_unpark(m);
	spin_unlock(&o->state_lock);
	cow_engine_set_hurry(o->engine, false);
	queue_work(o->wq, &store->event_work);
}

/* Copying twice might give another result: only notes are repeated. */
static bool merge_tries_again(struct cow_merge *m, int r)
{
	if (r == -ENOMEM)
		return true;
	return m->phase != MERGE_COPY && ++m->tries < NOTE_TRIES;
}

/*
 * How long to rest between two steps: so long that copying keeps to its share of time; not
 * at all while a bio waits for the next stretch.
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
	spin_lock(&m->store->origin->state_lock);
	cow_merge_kick(m, nsecs_to_jiffies(rest_ns - rested_ns) + 1);
	spin_unlock(&m->store->origin->state_lock);
	return true;
}

void cow_merge_work(struct work_struct *work)
{
	struct cow_merge *m = container_of(to_delayed_work(work), struct cow_merge, work);
	struct cow_origin *o = m->store->origin;
	u64 start_ns = ktime_get_ns();
	int r;

	if (READ_ONCE(m->failed) || m->phase == MERGE_DONE || merge_rests(m))
		return;
	r = merge_step(m);
	trace_cowsnap_merge_step(m->store->bdev->bd_dev, m->id, m->done, m->end, r);
	m->ended_ns = ktime_get_ns();
	m->busy_ns = m->ended_ns - start_ns;
	m->retries = r && merge_tries_again(m, r);
	if (!r)
		m->tries = 0;
	if (r && !m->retries) {
		merge_fail(m, r);
		return;
	}
	spin_lock(&o->state_lock);
	cow_merge_kick(m, 0);
	spin_unlock(&o->state_lock);
}

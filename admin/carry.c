// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: what a merged snapshot sees is carried to the origin
 *
 * A closed stretch goes through four steps, and each has ended before the next one begins:
 *
 *   collect   the runs of chunks that are not yet as the snapshot sees them, from the map
 *   read      the runs in the order of their places, into a buffer in which each chunk stands
 *             where it stands in the origin
 *   check     the checksums of what was copied, in the same order: so is that of their slots
 *   write     the runs in the order of the origin. What is neighbours there is one request
 *
 * The buffer is as long as a stretch from its first run on. While the stretch was being closed,
 * writes may have given the snapshot versions in front of that one: then the steps are repeated.
 *
 * CARRY_DEPTH requests are under way at a time, fewer while users have the origin in use; then a
 * rotational disk gets the next one when it has none of theirs. Each holds only what its own end
 * gives back, so that the pool they come from is never empty for good.
 *
 * A write is an ordinary one to the origin, except that the merge does not hold it up: other
 * snapshots get their copies first. Where the origin has been redirected it goes to the store.
 *
 * A run is where the snapshot sees something else than the origin has. What it sees may be home,
 * if admin/void.c could not do without data.
 */
#include <linux/crc32c.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap.h"
#include "admin/carry.h"
#include "disk/blocks.h"
#include "disk/io.h"
#include "disk/meta.h"
#include "disk/slots.h"
#include "disk/verify.h"
#include "io/bio.h"
#include "io/merge.h"
#include "origin/bio.h"
#include "origin/seal.h"
#include "store/store.h"

/* Requests under way at a time, each of 1 MiB at most. */
#define CARRY_DEPTH	16U

/* Copied between two notes of how far the merge has come, unless one chunk is more. */
#define STRETCH_SECTORS	8192U

/*
 * The same while users have the origin in use. On a rotational disk their requests wait for what
 * is in its queue: two requests keep it streaming; with one each write of the merge would miss its
 * turn. Where nothing rotates they wait for the processor: with two requests the merge sleeps
 * between them, and what it does with a whole stretch is short.
 */
#define GENTLE_DEPTH		2U
#define GENTLE_BYTES		(256U << 10)
#define GENTLE_STRETCH_SECTORS	2048U
#define GENTLE_QUICK_SECTORS	512U

/* So long at most a request waits on a rotational disk for what users have there. */
#define USERS_JIFFIES		(HZ / 40 + 1)

/* A request of a merge. */
struct carry_io {
	struct cow_merge *merge;
	struct cow_bio cb;	/* of a write */
	struct bio bio;
};

u64 cow_stretch_chunks(const struct cow_store *store)
{
	return max_t(u64, 1, cow_sector_to_chunk(store, STRETCH_SECTORS));
}

u64 cow_gentle_stretch_chunks(const struct cow_merge *m)
{
	return max_t(u64, 1, cow_sector_to_chunk(m->store, m->rotates ? GENTLE_STRETCH_SECTORS :
									GENTLE_QUICK_SECTORS));
}

int cow_carry_init(struct cow_merge *m)
{
	u64 chunks = cow_stretch_chunks(m->store);

	spin_lock_init(&m->io_lock);
	init_waitqueue_head(&m->io_wait);
	m->buffer = vmalloc(cow_chunk_to_sector(m->store, chunks) << SECTOR_SHIFT);
	m->runs = kvmalloc_array(chunks, sizeof(m->runs[0]), GFP_KERNEL);
	m->by_place = kvmalloc_array(chunks, sizeof(m->by_place[0]), GFP_KERNEL);
	m->slots = cow_slot_window_alloc(m->store->meta);
	if (!m->buffer || !m->runs || !m->by_place || !m->slots)
		return -ENOMEM;
	return bioset_init(&m->bios, CARRY_DEPTH, offsetof(struct carry_io, bio),
			   BIOSET_NEED_BVECS);
}

void cow_carry_exit(struct cow_merge *m)
{
	bioset_exit(&m->bios);
	kvfree(m->slots);
	m->slots = NULL;
	kvfree(m->by_place);
	m->by_place = NULL;
	kvfree(m->runs);
	m->runs = NULL;
	vfree(m->buffer);
	m->buffer = NULL;
}

/* ------------------------------------------------------------------ requests */

static struct carry_io *to_io(struct bio *bio)
{
	return container_of(bio, struct carry_io, bio);
}

/* A request is over. With the lock given back the merge may be gone. */
static void io_over(struct carry_io *io)
{
	struct cow_merge *m = io->merge;
	blk_status_t status = io->bio.bi_status;
	unsigned long flags;

	bio_put(&io->bio);
	spin_lock_irqsave(&m->io_lock, flags);
	if (status)
		m->io_status = status;
	if (--m->nr_ios < m->io_limit)
		wake_up(&m->io_wait);
	spin_unlock_irqrestore(&m->io_lock, flags);
}

static void read_endio(struct bio *bio)
{
	io_over(to_io(bio));
}

static void write_endio(struct bio *bio)
{
	struct carry_io *io = to_io(bio);

	if (cow_bio_ended(&io->cb, &bio->bi_status) == DM_ENDIO_INCOMPLETE)
		return;
	io_over(io);
}

/* Until fewer than @nr are under way. */
static void wait_ios(struct cow_merge *m, unsigned int nr)
{
	spin_lock_irq(&m->io_lock);
	m->io_limit = nr;
	wait_event_lock_irq(m->io_wait, m->nr_ios < nr, m->io_lock);
	spin_unlock_irq(&m->io_lock);
}

/* All that were begun have ended: did all succeed? */
static int all_over(struct cow_merge *m)
{
	blk_status_t status;

	wait_ios(m, 1);
	status = m->io_status;
	m->io_status = BLK_STS_OK;
	return blk_status_to_errno(status);
}

static bool is_its_turn(struct cow_merge *m)
{
	return !atomic_read(&m->store->origin->nr_users) || !list_empty_careful(&m->parked) ||
	       READ_ONCE(m->stopped);
}

/*
 * A disk may take what comes later first, if it is nearer. So it gets nothing while users have a
 * request there, or a copy that one waits for: unless bios wait for this very stretch. Where they
 * leave it no moment, one wait in vain does for GENTLE_BYTES, or single chunks would take for ever.
 */
static void users_first(struct cow_merge *m, struct block_device *bdev, size_t bytes)
{
	u64 start_ns;

	if (!m->gentle || !bdev_rot(bdev))
		return;
	if (m->spared >= bytes) {
		m->spared -= bytes;
		return;
	}
	start_ns = ktime_get_ns();
	m->spared = wait_event_timeout(m->store->origin->quiet, is_its_turn(m), USERS_JIFFIES) ?
		    0 : GENTLE_BYTES - bytes;
	m->waited_ns += ktime_get_ns() - start_ns;
}

static struct carry_io *io_alloc(struct cow_merge *m, struct block_device *bdev, blk_opf_t opf,
				 sector_t sector, size_t bytes)
{
	unsigned int vecs = min_t(size_t, BIO_MAX_VECS, (bytes >> PAGE_SHIFT) + 2);
	struct carry_io *io;

	wait_ios(m, m->gentle ? GENTLE_DEPTH : CARRY_DEPTH);
	users_first(m, bdev, bytes);
	/* A quick device never lets this wait: users need the processor as well. */
	cond_resched();
	/* From a pool of its own: filesystems may be waiting for this merge. */
	io = to_io(bio_alloc_bioset(bdev, vecs, opf, GFP_NOIO, &m->bios));
	io->bio.bi_iter.bi_sector = sector;
	io->merge = m;
	spin_lock_irq(&m->io_lock);
	m->nr_ios++;
	spin_unlock_irq(&m->io_lock);
	return io;
}

static void read_begin(struct carry_io *io)
{
	io->bio.bi_end_io = read_endio;
	submit_bio(&io->bio);
}

static void write_begin(struct carry_io *io)
{
	io->bio.bi_end_io = write_endio;
	memset(&io->cb, 0, sizeof(io->cb));
	INIT_LIST_HEAD(&io->cb.node);
	io->cb.bio = &io->bio;
	io->cb.origin = io->merge->store->origin;
	io->cb.merging = true;
	cow_bio_decide_again(&io->cb);
}

/* Begin to read or write @bytes of the buffer, in as many requests as it takes. */
static void begin(struct cow_merge *m, struct block_device *bdev, blk_opf_t op, sector_t sector,
		  void *data, size_t bytes)
{
	while (bytes) {
		size_t most = m->gentle ? min_t(size_t, bytes, GENTLE_BYTES) : bytes;
		struct carry_io *io = io_alloc(m, bdev, op, sector, most);
		size_t part = cow_bio_add_buffer(&io->bio, data, most);

		data += part;
		bytes -= part;
		sector += part >> SECTOR_SHIFT;
		if (op == REQ_OP_READ)
			read_begin(io);
		else
			write_begin(io);
	}
}

/* --------------------------------------------------------------------- steps */

static size_t bytes_of(const struct cow_merge *m, u64 chunks)
{
	return (size_t)cow_chunk_to_sector(m->store, chunks) << SECTOR_SHIFT;
}

/* Where @chunk stands in the buffer. The first run begins it. */
static void *data_of(const struct cow_merge *m, u64 chunk)
{
	return m->buffer + bytes_of(m, chunk - m->base);
}

/* The runs from @at on, as many as fit the buffer. Returns where the next ones begin. */
static u64 collect(struct cow_merge *m, u64 at)
{
	u64 end = m->busy_end;
	struct cow_extent ext;

	m->nr_runs = 0;
	while (cow_map_next_differing(&m->store->map, at, end, m->epoch, &ext)) {
		if (!m->nr_runs) {
			m->base = ext.chunk;
			end = min(end, m->base + cow_stretch_chunks(m->store));
		}
		ext.nr = min(ext.nr, end - ext.chunk);
		m->runs[m->nr_runs++] = ext;
		at = ext.chunk + ext.nr;
	}
	m->limit = end;
	return end;
}

int cow_carry_compare_places(const void *a, const void *b)
{
	const struct cow_extent *x = a, *y = b;

	return x->place < y->place ? -1 : x->place > y->place;
}

/* Where the origin has something else than home nothing is sealed. False: seals would be read. */
static bool read_home(struct cow_merge *m, const struct cow_extent *run)
{
	struct cow_origin *o = m->store->origin;
	sector_t start = cow_chunk_to_sector(m->store, run->chunk);
	sector_t end = cow_chunk_to_sector(m->store, run->chunk + run->nr);
	sector_t has = cow_origin_has(o, start, end);

	if (WARN_ON_ONCE(cow_is_sealed(o, start)))
		return false;
	begin(m, o->bdev, REQ_OP_READ, start, data_of(m, run->chunk), has << SECTOR_SHIFT);
	return true;
}

static int read_runs(struct cow_merge *m)
{
	bool right = true;
	unsigned int i;
	int r;

	memcpy(m->by_place, m->runs, m->nr_runs * sizeof(m->runs[0]));
	sort(m->by_place, m->nr_runs, sizeof(m->by_place[0]), cow_carry_compare_places, NULL);
	for (i = 0; i < m->nr_runs && right; i++) {
		const struct cow_extent *run = &m->by_place[i];
		void *data = data_of(m, run->chunk);
		size_t bytes = bytes_of(m, run->nr);

		if (run->kind == COW_HOME)
			right = read_home(m, run);
		else if (cow_kind_has_data(run->kind))
			begin(m, m->store->bdev, REQ_OP_READ,
			      cow_chunk_to_sector(m->store, run->place), data, bytes);
		else
			memset(data, 0, bytes);
	}
	r = all_over(m);
	invalidate_kernel_vmap_range(m->buffer, bytes_of(m, m->limit - m->base));
	return right ? r : -EIO;
}

/* A copied chunk with a wrong checksum must not get into the origin. */
static int check_chunk(struct cow_merge *m, const struct cow_version *v)
{
	struct cow_store *store = m->store;
	u32 seed = cow_meta_seed(store->meta, cow_chunk_to_sector(store, v->place));
	int r = cow_verify_crc(store, v, m->slots,
			       crc32c(seed, data_of(m, v->chunk), bytes_of(m, 1)));

	if (r == -EILSEQ) {
		DMERR("store %pg: chunk %llu has a wrong checksum: it cannot be merged",
		      store->bdev, v->place);
		atomic64_inc(&store->bad_checksums);
	}
	return r;
}

static int check_runs(struct cow_merge *m)
{
	unsigned int i;
	u64 j;
	int r = 0;

	for (i = 0; i < m->nr_runs && !r; i++) {
		const struct cow_extent *run = &m->by_place[i];

		for (j = 0; run->kind == COW_COPIED && j < run->nr && !r; j++) {
			struct cow_version v = {
				.chunk = run->chunk + j, .place = run->place + j,
				.epoch = run->epoch,
			};

			r = check_chunk(m, &v);
		}
		cond_resched();
	}
	return r;
}

/* How many chunks, from run @i on, are neighbours? *@next is the first run that is not. */
static u64 neighbours(const struct cow_merge *m, unsigned int i, unsigned int *next)
{
	u64 first = m->runs[i].chunk, nr = 0;

	for (; i < m->nr_runs && m->runs[i].chunk == first + nr; i++)
		nr += m->runs[i].nr;
	*next = i;
	return nr;
}

static int write_runs(struct cow_merge *m)
{
	unsigned int i, next;

	flush_kernel_vmap_range(m->buffer, bytes_of(m, m->limit - m->base));
	for (i = 0; i < m->nr_runs; i = next) {
		u64 chunk = m->runs[i].chunk, nr = neighbours(m, i, &next);
		sector_t sector = cow_chunk_to_sector(m->store, chunk);
		sector_t end = min_t(sector_t, m->nr_sectors,
				     cow_chunk_to_sector(m->store, chunk + nr));

		begin(m, m->store->origin->bdev, REQ_OP_WRITE, sector, data_of(m, chunk),
		      (end - sector) << SECTOR_SHIFT);
	}
	return all_over(m);
}

/* What was collected. */
static int carry_runs(struct cow_merge *m)
{
	int r = read_runs(m);

	if (!r)
		r = check_runs(m);
	if (!r)
		r = write_runs(m);
	return r;
}

int cow_carry_stretch(struct cow_merge *m)
{
	u64 at = m->done;
	int r = 0;

	do {
		at = collect(m, at);
		/* An invalid snapshot has no versions. */
		if (READ_ONCE(m->snap->state) != COW_SNAP_MERGING)
			r = -EIO;
		else if (m->nr_runs)
			r = carry_runs(m);
	} while (!r && at < m->busy_end);
	return r;
}

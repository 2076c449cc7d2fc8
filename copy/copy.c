// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: from the copy engine's pages into a store and its map
 *
 * The data that a job has read is checked for zeroes, written to the room of its pendings,
 * entered into the tables of a persistent store, and published in the map.
 *
 *   COPIED   data and slots in one record of the log; then published. Or, by the tables, data and
 *            slots in parallel, one commit; then published
 *   PRIVATE  data first, durably; then its slots; then published
 *   CURRENT  as COPIED by the log, or as PRIVATE by the tables; zeroes have slots alone, in tables
 */
#include <linux/module.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap-kcopyd.h"
#include "copy/copy.h"
#include "copy/data.h"
#include "copy/pending.h"
#include "copy/publish.h"
#include "copy/undo.h"
#include "disk/commit.h"
#include "disk/log.h"
#include "disk/verify.h"
#include "origin/bio.h"
#include "origin/origin.h"
#include "origin/seal.h"
#include "store/epochs.h"
#include "store/store.h"
#include "trace/cowsnap.h"

/* A copied version becomes private where it is: it was only read to be verified. */
static bool pending_stays(const struct cow_pending *p)
{
	return p->taken_over && p->check_source;
}

/* The source of a snapshot's own copy is another version in the store. */
static blk_status_t pending_verify(const struct cow_pending *p, struct cow_job *job)
{
	struct cow_version v = {
		.chunk = p->first,
		.place = cow_sector_to_chunk(p->store, job->sector),
		.epoch = p->source_epoch,
	};

	return cow_verify_job(p->store, job, &v);
}

static void pending_ready(struct cow_pending *p, struct cow_job *job)
{
	struct cow_store *store = p->store;

	p->losses = cow_losses(&store->losses);
	p->status = job->read_status;
	p->unread = p->status;
	if (!p->status && p->check_source)
		p->status = pending_verify(p, job);
	if (p->status || pending_stays(p))
		return;
	if (p->mode == COW_BY_DATA)
		cow_job_copy_from_bio(job, p->offset_sectors, p->carrier->bio);
	/* Without a live snapshot nothing will read the data. */
	if (!cow_kind_is_current(p->kind) && !cow_store_has_readers(store)) {
		p->kind = COW_HOME;
		return;
	}
	cow_pending_find_zeroes(p, job);
	if (store->meta && cow_log_add(p, job)) {
		cow_pending_settle_room(p);
		return;
	}
	if (store->meta && !cow_kind_needs_data(p->kind))
		cow_meta_join(p, job);
	if (p->again)
		return;
	cow_pending_settle_room(p);
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

/* True: it can be published now. */
static bool pending_done(struct cow_pending *p)
{
	if (!p->store->meta || p->kind == COW_HOME)
		return true;
	if (p->record) {
		cow_log_done(p);
		return true;
	}
	if (!cow_kind_needs_data(p->kind))
		return cow_meta_data_done(p);
	return p->status || !cow_meta_join(p, NULL);
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
		if (pending_done(p))
			cow_pending_publish(p);
	}
}

/*
 * What failed then is not lost any more, if it is all that the job writes. Slots that are in a
 * commit may be.
 */
static void store_job_again(struct cow_job *job)
{
	struct cow_pending *leader = container_of(job, struct cow_pending, job);
	struct cow_pending *p;

	if (!list_is_singular(&leader->sharers) || job->nr_sectors > PAGE_SECTORS)
		return;
	p = list_first_entry(&leader->sharers, struct cow_pending, node);
	if (p->commit == COW_NOT_JOINED)
		p->losses = cow_losses(&p->store->losses);
}

static const struct cow_job_ops copy_job_ops = {
	.ready = store_job_ready,
	.done = store_job_done,
	.again = store_job_again,
};

static void pending_set_job(struct cow_pending *leader, struct block_device *bdev,
			    sector_t sector, sector_t nr_sectors, sector_t pad_sectors)
{
	leader->job.ops = &copy_job_ops;
	leader->job.bdev = bdev;
	leader->job.sector = sector;
	leader->job.nr_sectors = nr_sectors;
	leader->job.pad_sectors = pad_sectors;
	leader->job.urgent = false;
	/* None waits for one that is read from the store. */
	leader->job.in_order = bdev && bdev != leader->store->bdev;
	leader->job.patient = leader->job.in_order && nr_sectors <= COW_SMALL_SECTORS &&
			      !leader->in_stream;
	leader->job.eager = !leader->store->meta;
	trace_cowsnap_copy(bdev ? bdev->bd_dev : 0, sector, nr_sectors, leader->job.speculative);
}

void cow_pending_copy(struct cow_pending *leader, struct block_device *bdev,
		      sector_t sector, sector_t nr_sectors, sector_t pad_sectors)
{
	pending_set_job(leader, bdev, sector, nr_sectors, pad_sectors);
	cow_engine_submit(leader->store->origin->engine, &leader->job);
}

bool cow_pending_copy_here(struct cow_pending *leader, struct block_device *bdev,
			   sector_t sector, sector_t nr_sectors, sector_t pad_sectors)
{
	pending_set_job(leader, bdev, sector, nr_sectors, pad_sectors);
	return cow_engine_submit_here(leader->store->origin->engine, &leader->job);
}

void cow_pending_take_data(struct cow_pending *p, sector_t nr_sectors, sector_t pad_sectors)
{
	list_add(&p->node, &p->sharers);
	p->job.own_data = true;
	pending_set_job(p, NULL, 0, nr_sectors, pad_sectors);
	/* Nothing is read: there is no seek to be spared by waiting for others. */
	p->job.patient = false;
	cow_engine_submit(p->store->origin->engine, &p->job);
}

void cow_pending_copy_again(struct cow_pending *p)
{
	sector_t start = cow_pending_sector(p), end = cow_pending_end_sector(p);
	sector_t nr_sectors = cow_origin_has(p->store->origin, start, end);
	sector_t pad_sectors = end - start - nr_sectors;
	struct block_device *bdev = cow_home(p->store->origin, &start);

	/* It may have been copied with others before. */
	p->offset_sectors = 0;
	/* It has no leader, so cow_pending_need() could not find its job later. */
	p->job.speculative = false;
	list_add_tail(&p->node, &p->sharers);
	cow_pending_copy(p, bdev, start, nr_sectors, pad_sectors);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the copy engine */
#ifndef DM_COWSNAP_KCOPYD_H
#define DM_COWSNAP_KCOPYD_H

#include <linux/bio.h>
#include <linux/ktime.h>
#include <linux/list.h>

#include "dm-cowsnap.h"

struct cow_engine;

struct cow_job;

/* A chain of the engine's pages; with @nr 0 the pointers mean nothing. */
struct cow_pages {
	struct page *first, *last;
	unsigned int nr;
};

struct cow_job_ops {
	/*
	 * The source is in memory: issue writes with cow_job_write(). Called even
	 * if reading failed (job->read_status). Context: the engine's worker. May
	 * sleep.
	 */
	void (*ready)(struct cow_job *job);
	/* Every write has ended; the job is the caller's again. Same context. */
	void (*done)(struct cow_job *job);
	/* Or NULL: a write of it has failed together with others, and is sent alone. The same. */
	void (*again)(struct cow_job *job);
};

/* Around each bio of the engine. */
struct cow_io {
	struct cow_job *job;
	blk_status_t *status;		/* gets what goes wrong */
	struct gendisk *disk;		/* where it is sent to */
	struct bio bio;
};

/* Copies up to this size are written within a seek: they may be gathered. Larger ones pass. */
#define COW_SMALL_SECTORS	128U

/* One read, any number of writes. Embedded in what it is for. */
struct cow_job {
	struct list_head node;		/* a queue of the engine */
	const struct cow_job_ops *ops;
	struct cow_engine *engine;
	struct block_device *bdev;	/* source; NULL reads as zeroes */
	bool own_data;			/* or as pages that ->ready fills in: it is no copy */
	u64 number;			/* in the order in which jobs are submitted; queue_lock */
	sector_t sector;
	unsigned int nr_sectors;
	unsigned int pad_sectors;	/* zeroes after what is read */
	blk_status_t read_status;
	bool written;			/* stage: reading, then writing */
	bool urgent;			/* goes first, whatever the throttle says */
	bool speculative;		/* no bio waits for it yet; queue_lock once queued */
	bool queued;			/* waits for pages; engine->queue_lock */
	bool here;			/* read by the task that asked: cow_engine_read_here() */
	bool refused;			/* that task would have had to wait: the worker reads it */
	bool patient;			/* may wait for others to be written with, */
	bool eager;			/* complete in memory: see may_be_gathered() */
	bool going;			/* gathered, and counted: see cow_engine_let_go() */
	bool aside;			/* on engine->aside */
	bool in_order;			/* on a single disk, after those begun before it */
	bool was_read;			/* while it is on engine->order */
	struct list_head order;		/* engine->order, or empty */
	bool keep_pages;		/* with its pages, until it is resumed or dropped */
	atomic_t ios;			/* bios under way, plus one while issuing */
	ktime_t begun, ended;		/* reading or writing; begun 0: nothing to write */
	struct cow_io io;		/* for what lies in one page, if nothing else has it */
	struct bio_vec vec;
	bool io_busy;
	struct cow_pages pages;
	/* Where the last walk through the pages stood: walks go forward. */
	struct page *cursor;
	unsigned int cursor_index;
};

struct cow_engine_stats {
	u64 jobs;			/* read */
	u64 read_sectors;
	u64 written_sectors;
	u64 page_waits;			/* jobs put back for lack of pages */
	u64 throttled;			/* pauses taken for throttle */
	u64 kib;			/* memory in pages now; no counter */
};

/* What an engine has its owner do, which is @context. */
struct cow_engine_ops {
	/* Once a round, between the end of old copies and the start of new ones. The worker. */
	void (*hook)(void *context);
	/* A write that was to flush as well has failed. Before anybody hears of it. Any context. */
	void (*flush_failed)(void *context, struct gendisk *disk, blk_opf_t opf,
			     blk_status_t status);
	/* Does any bio wait for a copy, until that is published? A guess will do. Any context. */
	bool (*is_waited_for)(void *context);
};

/*
 * An engine for the origin on @bdev. Whether that is rotational, and has a cache, decides how
 * copies are gathered. Nothing that runs in its worker, a thread of its own, may wait for the
 * engine. May sleep. ERR_PTR on failure.
 */
struct cow_engine *cow_engine_create(struct block_device *bdev, const struct cow_engine_ops *ops,
				     void *context);

/* No job may be left. May sleep. */
void cow_engine_destroy(struct cow_engine *engine);

/*
 * Have room for at least one job of @sectors, and, if memory allows, for all of the budget once
 * jobs need it. May sleep. 0, or -ENOMEM with nothing changed.
 */
int cow_engine_reserve(struct cow_engine *engine, unsigned int sectors);

/*
 * Somebody's jobs may keep pages for @to KiB, after @from. If these are fewer, the worker frees
 * pages as they come back. May sleep. 0, or -ENOMEM with nothing changed.
 */
int cow_engine_buffer(struct cow_engine *engine, unsigned int from, unsigned int to);

/*
 * Go on with jobs that were kept: ->ready is called again. @jobs, a list by their nodes, is empty
 * afterwards. Any context.
 */
void cow_engine_resume(struct cow_engine *engine, struct list_head *jobs);

/* A bio waits for a job that was speculative, queued or not. Any context. */
void cow_engine_need(struct cow_engine *engine, struct cow_job *job);

/*
 * A bio of @nr_sectors goes on that waited for a job. If that was @gathered with others, the next
 * ones wait for the bio as well; if the bio is small, and a disk has to seek for it, what was put
 * aside does. True: one of them does, until cow_engine_gone(). Any context.
 */
bool cow_engine_going(struct cow_engine *engine, unsigned int nr_sectors, bool gathered);

/*
 * Such a bio is waited for no longer. If it has @ended, and was @gathered, on a rotational origin
 * the next jobs wait a moment for another one from the same writer. Any context.
 */
void cow_engine_gone(struct cow_engine *engine, bool gathered, bool ended);

/* All bios that waited for a job that was gathered are counted. Any context. */
void cow_engine_let_go(struct cow_engine *engine);

/* No bio waits for a copy any more: what was put aside may go on. Any context. */
void cow_engine_kick_aside(struct cow_engine *engine);

/* The pages that @job has kept are not needed any more. Any context. */
void cow_engine_drop(struct cow_engine *engine, struct cow_job *job);

/* Longest job, in sectors, that the pages of the engine can hold. Any context. */
unsigned int cow_engine_job_sectors(struct cow_engine *engine);

/* May a job have @sectors? If not, it may later, when memory has come, or never. Any context. */
bool cow_engine_fits(struct cow_engine *engine, sector_t sectors);

/* Queue a job. Context: any, never sleeps. */
void cow_engine_submit(struct cow_engine *engine, struct cow_job *job);

/*
 * The same from a target's map. True: nothing is in front of the job, the origin's device tells by
 * itself what would have to wait (blk-mq, brd, pmem), and the caller calls
 * cow_engine_read_here() as soon as it holds no spinlock, which saves a turn of the worker. Until
 * then neither the job nor the engine can go.
 */
bool cow_engine_submit_here(struct cow_engine *engine, struct cow_job *job);

/*
 * Read such a job. Whatever would have the task wait is left to the worker. The job may have ended
 * when this returns. Context: process; it does not wait for the device.
 */
void cow_engine_read_here(struct cow_job *job);

/* Run the worker once more, for owners that share its context. Any context. */
void cow_engine_kick(struct cow_engine *engine);

/* The same after @delay jiffies from now; a delay before that no longer counts. Any context. */
void cow_engine_kick_later(struct cow_engine *engine, unsigned long delay);

/* Is the caller the worker? Any context; in an interrupt on top of it the answer is no. */
bool cow_engine_is_current(struct cow_engine *engine);

/* Wait until the worker has run. May sleep. */
void cow_engine_flush(struct cow_engine *engine);

/* Percent of time that may be spent copying, 1 to 100; 100 is no limit. */
void cow_engine_set_throttle(struct cow_engine *engine, unsigned int percent);
unsigned int cow_engine_throttle(struct cow_engine *engine);

/* Do writes to the store complete synchronously, inside submit_bio()? Any context. */
bool cow_engine_writes_at_once(struct cow_engine *engine);

/*
 * Does the store of a rotational origin seem to be on a disk of its own, or behind a cache? Told by
 * how long copies take, and by those that are written while others are read: false until there have
 * been some. Any context.
 */
bool cow_engine_is_apart(const struct cow_engine *engine);

/*
 * Lift the throttle. For the merge, which blocks writers meanwhile and paces itself afterwards.
 * Any context.
 */
void cow_engine_set_hurry(struct cow_engine *engine, bool hurry);

/*
 * The worker comes before other tasks on its processor, or is one of them again. For the merge,
 * which keeps a processor busy while users wait for the worker. Process context, never sleeps.
 */
void cow_engine_set_first(struct cow_engine *engine, bool first);

/*
 * Lift it as well, and let no copy wait for others. For a store that is closed: who removes its
 * table waits, and everybody else with him who needs the registry. Any context.
 */
void cow_engine_set_closing(struct cow_engine *engine, bool closing);
void cow_engine_read_stats(struct cow_engine *engine, struct cow_engine_stats *out);
void cow_engine_reset_stats(struct cow_engine *engine);

/*
 * Only from ->ready. Write part of the job, with REQ_ flags @flags; @status gets
 * the first error.
 */
void cow_job_write(struct cow_job *job, unsigned int offset_sectors,
		   unsigned int nr_sectors, struct block_device *bdev,
		   sector_t sector, blk_opf_t flags, blk_status_t *status);

/*
 * Only from ->ready. Its owner writes a part of the job with a bio of its own: the job is not done,
 * and keeps its pages, until cow_job_let_go() has been called as often as this.
 */
void cow_job_hold(struct cow_job *job);

/*
 * Append pages of a job that is held to @bio, which has room for them: as many as
 * cow_job_vecs() says. Engine's worker.
 */
void cow_job_add_to_bio(struct cow_job *job, unsigned int offset_sectors,
			unsigned int nr_sectors, struct bio *bio);
unsigned int cow_job_vecs(unsigned int offset_sectors, unsigned int nr_sectors);

/* The owner's bio has ended. The job may be done at once. Any context. */
void cow_job_let_go(struct cow_job *job);

/* Only from ->ready. crc32c of part of the job, on top of @seed. */
u32 cow_job_crc(struct cow_job *job, unsigned int offset_sectors,
		unsigned int nr_sectors, u32 seed);

/* Only from ->ready. Copy what lies @offset_sectors into the job to all of @bio. */
void cow_job_copy_to_bio(struct cow_job *job, unsigned int offset_sectors,
			 struct bio *bio);

/* Only from ->ready, of a job with ->own_data. The other way round, for all of @bio. */
void cow_job_copy_from_bio(struct cow_job *job, unsigned int offset_sectors, struct bio *bio);

/* Only from ->ready. Is this part of the job all zero? */
bool cow_job_is_zero(struct cow_job *job, unsigned int offset_sectors,
		     unsigned int nr_sectors);

#endif

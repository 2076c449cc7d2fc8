/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: tracepoints, in the order in which a first write meets them
 *
 * None is on the path of a write that needs no copy. docs/design.md has a line for bpftrace
 * that tells what writes wait for.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM cowsnap

#if !defined(DM_COWSNAP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define DM_COWSNAP_TRACE_H

#include <linux/kdev_t.h>
#include <linux/tracepoint.h>

struct bio;

/* What a bio waits for. (This file is read several times.) */
#ifndef COW_WAITS
#define COW_WAITS
enum cow_wait {
	COW_WAIT_GATE,		/* a snapshot is being created */
	COW_WAIT_PENDING,	/* a copy that is under way */
	COW_WAIT_STORE,		/* the store is full, or its metadata is extended */
	COW_WAIT_MEMORY,
	COW_WAIT_MERGE,		/* the stretch that is being merged */
	COW_WAIT_TRACKER,	/* a region is marked as changed */
};
#endif

#define show_cow_wait(wait)			\
	__print_symbolic(wait,			\
		{ COW_WAIT_GATE, "gate" },	\
		{ COW_WAIT_PENDING, "pending" },	\
		{ COW_WAIT_STORE, "store" },	\
		{ COW_WAIT_MEMORY, "memory" },	\
		{ COW_WAIT_MERGE, "merge" },	\
		{ COW_WAIT_TRACKER, "tracker" })

/* A bio has to wait. @bio tells it from others until it decides again. */
TRACE_EVENT(cowsnap_park,
	    TP_PROTO(dev_t dev, const struct bio *bio, sector_t sector, unsigned int nr_sectors,
		     enum cow_wait wait),
	    TP_ARGS(dev, bio, sector, nr_sectors, wait),
	    TP_STRUCT__entry(__field(dev_t, dev)
			     __field(const void *, bio)
			     __field(sector_t, sector)
			     __field(unsigned int, nr_sectors)
			     __field(unsigned int, wait)),
	    TP_fast_assign(__entry->dev = dev;
			   __entry->bio = bio;
			   __entry->sector = sector;
			   __entry->nr_sectors = nr_sectors;
			   __entry->wait = wait;),
	    TP_printk("%d,%d bio %p sector %llu + %u waits for %s", MAJOR(__entry->dev),
		      MINOR(__entry->dev), __entry->bio, (unsigned long long)__entry->sector,
		      __entry->nr_sectors, show_cow_wait(__entry->wait))
);

/* A bio has waited, and decides again. */
TRACE_EVENT(cowsnap_decide_again,
	    TP_PROTO(dev_t dev, const struct bio *bio),
	    TP_ARGS(dev, bio),
	    TP_STRUCT__entry(__field(dev_t, dev)
			     __field(const void *, bio)),
	    TP_fast_assign(__entry->dev = dev;
			   __entry->bio = bio;),
	    TP_printk("%d,%d bio %p", MAJOR(__entry->dev), MINOR(__entry->dev), __entry->bio)
);

/* A copy job is queued. @dev is the device that it reads from. */
TRACE_EVENT(cowsnap_copy,
	    TP_PROTO(dev_t dev, sector_t sector, sector_t nr_sectors, bool speculative),
	    TP_ARGS(dev, sector, nr_sectors, speculative),
	    TP_STRUCT__entry(__field(dev_t, dev)
			     __field(sector_t, sector)
			     __field(sector_t, nr_sectors)
			     __field(bool, speculative)),
	    TP_fast_assign(__entry->dev = dev;
			   __entry->sector = sector;
			   __entry->nr_sectors = nr_sectors;
			   __entry->speculative = speculative;),
	    TP_printk("%d,%d sector %llu + %llu%s", MAJOR(__entry->dev), MINOR(__entry->dev),
		      (unsigned long long)__entry->sector,
		      (unsigned long long)__entry->nr_sectors,
		      __entry->speculative ? " speculative" : "")
);

/* A record of the log is written, with so many chunks. @dev is the store's. */
TRACE_EVENT(cowsnap_record,
	    TP_PROTO(dev_t dev, u64 series, unsigned int index, unsigned int chunks),
	    TP_ARGS(dev, series, index, chunks),
	    TP_STRUCT__entry(__field(dev_t, dev)
			     __field(u64, series)
			     __field(unsigned int, index)
			     __field(unsigned int, chunks)),
	    TP_fast_assign(__entry->dev = dev;
			   __entry->series = series;
			   __entry->index = index;
			   __entry->chunks = chunks;),
	    TP_printk("%d,%d zone %llu record %u chunks %u", MAJOR(__entry->dev),
		      MINOR(__entry->dev), __entry->series, __entry->index, __entry->chunks)
);

/* A commit begins, with so many table blocks; it has ended. @dev is the store's. */
TRACE_EVENT(cowsnap_commit,
	    TP_PROTO(dev_t dev, u64 number, unsigned int blocks),
	    TP_ARGS(dev, number, blocks),
	    TP_STRUCT__entry(__field(dev_t, dev)
			     __field(u64, number)
			     __field(unsigned int, blocks)),
	    TP_fast_assign(__entry->dev = dev;
			   __entry->number = number;
			   __entry->blocks = blocks;),
	    TP_printk("%d,%d commit %llu blocks %u", MAJOR(__entry->dev), MINOR(__entry->dev),
		      __entry->number, __entry->blocks)
);

TRACE_EVENT(cowsnap_committed,
	    TP_PROTO(dev_t dev, u64 number, int error),
	    TP_ARGS(dev, number, error),
	    TP_STRUCT__entry(__field(dev_t, dev)
			     __field(u64, number)
			     __field(int, error)),
	    TP_fast_assign(__entry->dev = dev;
			   __entry->number = number;
			   __entry->error = error;),
	    TP_printk("%d,%d commit %llu error %d", MAJOR(__entry->dev), MINOR(__entry->dev),
		      __entry->number, __entry->error)
);

/* A run of chunks of the origin, in the store on @dev. */
DECLARE_EVENT_CLASS(cowsnap_run,
		    TP_PROTO(dev_t dev, u64 chunk, u64 nr, u32 epoch, int error),
		    TP_ARGS(dev, chunk, nr, epoch, error),
		    TP_STRUCT__entry(__field(dev_t, dev)
				     __field(u64, chunk)
				     __field(u64, nr)
				     __field(u32, epoch)
				     __field(int, error)),
		    TP_fast_assign(__entry->dev = dev;
				   __entry->chunk = chunk;
				   __entry->nr = nr;
				   __entry->epoch = epoch;
				   __entry->error = error;),
		    TP_printk("%d,%d chunk %llu + %llu epoch %u error %d", MAJOR(__entry->dev),
			      MINOR(__entry->dev), __entry->chunk, __entry->nr, __entry->epoch,
			      __entry->error)
);

/* Its exception is put into the map. */
DEFINE_EVENT(cowsnap_run, cowsnap_publish,
	     TP_PROTO(dev_t dev, u64 chunk, u64 nr, u32 epoch, int error),
	     TP_ARGS(dev, chunk, nr, epoch, error)
);

/* Reads that it waited for have completed: bios that are parked on it decide again. */
DEFINE_EVENT(cowsnap_run, cowsnap_release,
	     TP_PROTO(dev_t dev, u64 chunk, u64 nr, u32 epoch, int error),
	     TP_ARGS(dev, chunk, nr, epoch, error)
);

/* A snapshot in the store on @dev has become live, or has got a new length. */
TRACE_EVENT(cowsnap_create,
	    TP_PROTO(dev_t dev, unsigned int id, u32 epoch, int error),
	    TP_ARGS(dev, id, epoch, error),
	    TP_STRUCT__entry(__field(dev_t, dev)
			     __field(unsigned int, id)
			     __field(u32, epoch)
			     __field(int, error)),
	    TP_fast_assign(__entry->dev = dev;
			   __entry->id = id;
			   __entry->epoch = epoch;
			   __entry->error = error;),
	    TP_printk("%d,%d snapshot %u epoch %u error %d", MAJOR(__entry->dev),
		      MINOR(__entry->dev), __entry->id, __entry->epoch, __entry->error)
);

/* One step of a merge: chunks below @done of @end are merged. */
TRACE_EVENT(cowsnap_merge_step,
	    TP_PROTO(dev_t dev, unsigned int id, u64 done, u64 end, int error),
	    TP_ARGS(dev, id, done, end, error),
	    TP_STRUCT__entry(__field(dev_t, dev)
			     __field(unsigned int, id)
			     __field(u64, done)
			     __field(u64, end)
			     __field(int, error)),
	    TP_fast_assign(__entry->dev = dev;
			   __entry->id = id;
			   __entry->done = done;
			   __entry->end = end;
			   __entry->error = error;),
	    TP_printk("%d,%d snapshot %u chunk %llu of %llu error %d", MAJOR(__entry->dev),
		      MINOR(__entry->dev), __entry->id, __entry->done, __entry->end,
		      __entry->error)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH trace
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE cowsnap
#include <trace/define_trace.h>

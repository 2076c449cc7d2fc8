/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-platter: one spinning disk as a device-mapper target, for tests only.
 *
 * The data is on a device below that takes no time (a RAM disk). What this target adds is
 * when a request ends: each bio is carried out below at once and its end is held back until
 * the modelled disk would have done it. README.md in this directory has the formulas.
 *
 * Owner of a bio: device mapper until its end below comes to platter_end_io(); then the disk,
 * on exactly one of four lists (on its way from the host, waiting for the head, waiting for room
 * in the cache or for a flush, crossing the link), or in none while it is the one under the head;
 * device mapper again when platter_finish() ends it. All of it is under disk->lock, irqs off.
 */
#ifndef DM_PLATTER_H
#define DM_PLATTER_H

#include <linux/device-mapper.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>

/* The cache keeps blocks of 4 KiB, whatever a write covers of them. */
#define PLATTER_BLOCK_SHIFT	3
#define PLATTER_BLOCK_SECTORS	8

enum platter_cache_kind {
	PLATTER_CACHE_NONE,
	PLATTER_CACHE_VOLATILE,		/* flushed, and written through, when asked */
	PLATTER_CACHE_BATTERY,		/* a write in it is durable */
};

/* One request; it stands in the per-bio data. */
struct platter_io {
	struct list_head list;
	sector_t sector;		/* on the disk */
	unsigned int sectors;
	bool write;
	bool through;			/* a write that may not stay in the cache */
	bool ended;			/* the disk is done with it */
	u64 arrival_ns;
	u64 end_ns;			/* when it has crossed the link, or come from the host */
	u64 flush_seq;			/* a flush: what was written before it */
};

/* One block in the write cache. */
struct platter_dirty {
	struct rb_node node;		/* in cache.tree by block */
	struct list_head list;		/* in cache.oldest, .unused or .leaving */
	sector_t block;
	u64 seq;			/* when it became dirty */
};

struct platter_cache {
	enum platter_cache_kind kind;
	unsigned int blocks;		/* how many it holds */
	unsigned int destage_percent;	/* how full it is before it writes of itself */
	unsigned int window;		/* runs it chooses among */

	struct platter_dirty *all;
	struct rb_root tree;
	struct list_head oldest;	/* the dirty ones, in order of seq */
	struct list_head unused;
	struct list_head leaving;	/* being written */
	unsigned int nr_dirty;
	unsigned int nr_unused;
	u64 seq;
	struct list_head waiting;	/* writes without room, in order of arrival */
	struct list_head flushes;
};

/* What the disk has done since the last reset. */
struct platter_counters {
	u64 reads, read_sectors;	/* requests */
	u64 writes, write_sectors;
	u64 flushes;
	u64 read_hits;			/* reads that needed no head */
	u64 media_reads, media_writes;	/* what the head did */
	u64 media_read_sectors, media_write_sectors;
	u64 seeks, seek_tracks;
	u64 seek_ns, wait_ns, transfer_ns;
	u64 most_queued;
};

/* One line of the trace: what was under the head when. */
struct platter_event {
	u64 ns;				/* when the transfer began */
	sector_t sector;
	unsigned int sectors;
	bool write;
};

struct platter_disk {
	struct dm_dev *dev;
	sector_t start;

	/* The model's parameters. */
	unsigned int rpm;
	unsigned int track_sectors;
	unsigned int skew;		/* sectors between the end of a track and the next */
	unsigned int settle_us;
	unsigned int seek_ns;
	unsigned int depth;
	unsigned int readahead;		/* sectors */
	unsigned int buffer;		/* for what was read, sectors */
	unsigned int patience_ms;
	unsigned int command_us;
	unsigned int jitter_us;		/* most that a request takes to come from the host */
	unsigned int link_us;
	unsigned int link_mbs;
	u64 sector_ns, rotation_ns;	/* from rpm and track_sectors */
	u64 skew_ns;

	spinlock_t lock;		/* all below */
	struct list_head coming;	/* on their way from the host, in order of end_ns */
	u64 last_coming_ns;		/* when the last of them is, or was, here */
	u32 dice;			/* how long each takes */
	struct list_head queue;		/* waiting for the head, in order of arrival */
	struct list_head crossing;	/* on the link, in order of end_ns */
	struct platter_io *current_io;	/* under the head; NULL if idle or destaging */
	bool busy;
	bool listening;			/* busy with a command, not with the head */
	bool destaged_last;
	u64 busy_until_ns;		/* the end of what is, or was last, under the head */
	sector_t head;			/* the sector that follows it */
	u64 link_free_ns;

	/*
	 * What reading ahead has in the disk's buffer, [ahead_start, ahead_end) and, as long
	 * as the head stays where it is, what has passed under it since ahead_ns.
	 */
	bool streaming;
	sector_t ahead_start, ahead_end, ahead_limit;
	u64 ahead_ns;

	struct platter_cache cache;
	struct platter_counters count;

	struct platter_event *trace;
	unsigned int trace_size, trace_used;

	struct hrtimer head_timer;
	struct hrtimer link_timer;
	struct hrtimer host_timer;
	struct dentry *debugfs;
};

/* platter-disk.c: the mechanics. */
void platter_disk_start(struct platter_disk *disk);
void platter_disk_stop(struct platter_disk *disk);
/* A bio whose data has moved. Any context; never sleeps. */
void platter_submit(struct platter_disk *disk, struct platter_io *io);
/* Ends the bio of @io: its submitter may be called back, so without the lock. */
void platter_finish(struct platter_io *io);

/* When the head will be at @sector if it leaves at @from_ns. Under disk->lock, as are these: */
u64 platter_reach_ns(const struct platter_disk *disk, sector_t sector, u64 from_ns);
void platter_queue(struct platter_disk *disk, struct platter_io *io);
/* @io needs no head any more, only the link; not before @ready_ns. */
void platter_cross_link(struct platter_disk *disk, struct platter_io *io, u64 ready_ns);

/* platter-cache.c: the write cache. */
int platter_cache_init(struct platter_cache *cache);
void platter_cache_exit(struct platter_cache *cache);
/* Under disk->lock: */
void platter_cache_write(struct platter_disk *disk, struct platter_io *io, u64 now);
void platter_cache_flush(struct platter_disk *disk, struct platter_io *io, u64 now);
bool platter_cache_has(const struct platter_cache *cache, const struct platter_io *io);
/* Must some of it be written now, whatever else is to do; may it. */
bool platter_cache_must_destage(const struct platter_cache *cache);
bool platter_cache_may_destage(const struct platter_cache *cache);
/* Takes the next run out of the cache; the blocks count until platter_cache_destaged(). */
void platter_cache_take_run(struct platter_disk *disk, u64 from_ns, sector_t *sector,
			    unsigned int *sectors);
void platter_cache_destaged(struct platter_disk *disk, u64 now);

#endif

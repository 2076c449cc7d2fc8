/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * struct cow_meta and its blocks: private to meta.c, blocks.c, slots.c, direct.c, commit.c,
 * log.c and checkpoint.c
 */
#ifndef DM_COWSNAP_DISK_PRIVATE_H
#define DM_COWSNAP_DISK_PRIVATE_H

#include <linux/bio.h>
#include <linux/hashtable.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/wait.h>

#include "disk/gap.h"
#include "disk/meta.h"
#include "store/store.h"

/*
 * For this many of the last blocks in use it is known which of them are empty. Zones of a store
 * that redirects are far behind what goes by the tables.
 */
#define USED_WINDOW	16384U

/* Most commits have one block, or a few neighbours. */
#define META_COMMIT_VECS	4U

/* Blocks that exist from the start: more than one pending ever needs. */
#define RESERVE_BLOCKS	COWSNAP_COMMIT_BLOCKS

/* Blocks read at once when a table is walked through. */
#define COW_READ_AHEAD	32U

/* Hexadecimal digits of the number of a sector. */
#define COW_SEED_DIGITS	16U

/* A table block in memory. */
struct cow_block {
	struct hlist_node hash;
	struct list_head lru;		/* meta->clean, ->stay, ->writing or ->dirty */
	u64 number;
	sector_t sector;
	u64 ticket;			/* 0: clean */
	bool pinned;
	u32 nr_zones;			/* it stays, for as many zones of the log */
	bool logged;			/* the disk lacks what a zone's slots are in memory */
	u32 fresh_from, fresh_to;	/* slots that may be fresh, half open */
	/*
	 * A commit writes @data: what to change is to be here. NULL in all blocks while metadata is
	 * acquired.
	 */
	u8 **spare;
	u8 *data;
};

/* What the worker knows of a zone of the log. It is set up before the zone is open. */
struct cow_log_zone {
	u64 series;
	u32 index;			/* of the next record */
	u32 durable;			/* records known durable; READ_ONCE */
	u64 durable_end;		/* the chunk behind the last of them, 0: none; READ_ONCE */
	u64 noted_end;			/* the same of those that the disk names durable; atomic */
	struct list_head under_way;	/* struct cow_log_write, by index */
};

/* Records of copies up to 16, 64 and 256 KiB: how soon one follows another depends on that. */
#define COW_LOG_SIZES	3U

struct cow_log {
	struct cow_log_zone zone[COWSNAP_ZONES];
	unsigned int at;		/* where the last record was begun; engine's worker */
	struct cow_log_write *open;	/* it gets what comes until it is sent; engine's worker */
	unsigned int nr_sent;		/* records that are being written; engine's worker */
	struct llist_head unsure;	/* struct cow_log_write, to be written once more */
	unsigned long turned;		/* jiffies: when zones were last left or named; READ_ONCE */
	unsigned long again;		/* jiffies: no zone is asked for before; READ_ONCE */
	u64 dated;			/* meta->sequence when tables of zones were last written */
	u64 nr_durable;			/* records, over all zones; READ_ONCE */
	struct cow_gap gap[COW_LOG_SIZES];	/* engine's worker */
	u64 ended_ns;			/* when the last one ended; engine's worker */
	u32 quick;			/* records that end at once: judge_cache(); the same */
	u32 passed_over;		/* copies that were spared a record for that; the same */
};

enum meta_phase {
	META_IDLE,
	META_WRITING,			/* a commit's blocks and data are under way */
	META_FLUSHING,			/* then the device's cache */
	META_ACQUIRED,			/* metadata is written by an acquirer */
};

struct cow_meta {
	struct cow_store *store;
	struct cowsnap_geometry geometry;
	u8 uuid[16];
	u32 seed_of_0;			/* see cow_meta_seed() */
	u32 seed_part[COW_SEED_DIGITS][16];

	struct mutex blocks_lock;	/* blocks, and what is in them */
	DECLARE_HASHTABLE(hash, 10);
	struct list_head clean;		/* least recently used first */
	struct list_head stay;		/* clean, but for slots of a zone */
	struct list_head writing;	/* by the commit under way; may be dirty again */
	struct list_head dirty;		/* by ticket */
	unsigned int nr_blocks;
	unsigned int nr_stay;		/* of these, on top of the others, with nr_zones */
	u64 unused;			/* first block never written since it was made ready */
	DECLARE_BITMAP(used, USED_WINDOW);	/* of the blocks below it, those that were */
	u64 last_ticket;
	u8 *out[COWSNAP_COMMIT_BLOCKS];	/* spare ones for blocks of the commit under way */
	/* The block with the slot that was looked for last, or NULL; the place of its first. */
	struct cow_block *found;
	u64 found_place;
	void *scratch;			/* a block, for an acquirer */
	void *read_buffer;		/* a block that is read; blocks_lock */

	u64 sequence;			/* last commit begun */
	u64 durable;			/* last commit known durable */

	enum meta_phase phase;		/* by cmpxchg */
	wait_queue_head_t wait;		/* phase became META_IDLE */
	atomic_t nr_direct;		/* writes of cow_meta_write(), and batches, under way */
	atomic_t acquirers;		/* waiting: no commit starts before them */
	bool unhurried;			/* who has acquired it has time, the device seeks */
	struct list_head work_node;	/* origin->meta_work */

	/* The commit under way. */
	atomic_t ios;
	blk_status_t status;
	unsigned int losses;		/* cow_meta_losses() before the first of it */
	u64 ticket;			/* last one that it writes */

	/* Engine's worker only. */
	struct list_head members;	/* pendings not durable yet, as they joined */
	struct list_head retry;		/* those for whose blocks there was no memory */
	bool lingers;			/* members wait for others to join: READ_ONCE */
	unsigned long others_until;	/* and no longer than that; 0: they have not begun to */
	unsigned int last_long;		/* long copies that writes needed, in the last commit */
	bool failed;
	struct cow_block *in_commit[COWSNAP_COMMIT_BLOCKS];	/* by number */
	unsigned int nr_in_commit;
	struct bio bio;			/* the first one of a commit, if it is small */
	struct bio_vec vecs[META_COMMIT_VECS];
	bool bio_is_used;
	struct bio_set bios;		/* the others */
	struct cow_meta_stats stats;
	struct cow_log log;
};

static inline struct cowsnap_block_header *cow_block_header(u64 number, void *data)
{
	return data + cowsnap_area_offset(number);
}

static inline struct cowsnap_slot *cow_block_slot(struct cow_block *b, u32 index)
{
	return (struct cowsnap_slot *)(cow_block_header(b->number, b->data) + 1) + index;
}

#endif

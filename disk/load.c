// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: opening a store
 *
 * Tables are read in large reads (disk/scan.c), every slot goes into the map, with many others
 * and in order (disk/intake.c), and versions that no live snapshot needs are taken out of it
 * again. Nothing on the disk is believed without its checksum, and no number without its
 * bounds. A block with a wrong number counts as damaged, like one that cannot be read.
 *
 * A copied slot that is fresh, in a block of a commit later than D, is in doubt (see the
 * format). D is known when all blocks have been read, so the slots in doubt are collected
 * and settled at the end:
 *
 *   data has the crc of the slot   the slot is believed
 *   home has data with that crc    the commit had not ended, since home may only be written
 *                                  after that: the slot is dropped
 *   neither                        the commit had ended, and its data was damaged later:
 *                                  the slot is kept, so that reads of it give an error
 *
 * Home is read as it is now, before any write is let through. If it was written meanwhile
 * without the store (by another kernel, or a table without it), the third case gives errors
 * where the snapshot would be wrong otherwise, and so it does if home cannot be read. LVM
 * opens a store before its origin has a length; then all slots in doubt wait until it has
 * one (cow_load_settle()). Those of a sealed origin wait until it is known to be the store's.
 *
 * CURRENT slots, data of the origin, are in doubt in records alone, and their data decides: home
 * has nothing to say of them. A store is refused that may have lost some.
 *
 * Records of the log (disk/replay.c) come behind the tables. A slot of one counts where the table
 * has none; it is in doubt if its record is not known to have ended. Those that are believed are
 * written into the tables.
 *
 * Until all is settled nothing is written. Then each block with slots to drop, or slots of the
 * log, is written once, the others in it as fresh as they were, the numbers in its header as they
 * were; the superblock comes last, names all commits durable and no zone of the log. A cut at any
 * point of this leaves a store that is settled in the same way the next time.
 */
#include <linux/crc32c.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap.h"
#include "disk/blocks.h"
#include "disk/commit.h"
#include "disk/direct.h"
#include "disk/free.h"
#include "disk/intake.h"
#include "disk/io.h"
#include "disk/load.h"
#include "disk/log.h"
#include "disk/mend.h"
#include "disk/meta.h"
#include "disk/records.h"
#include "disk/replay.h"
#include "disk/scan.h"
#include "disk/seal.h"
#include "disk/super.h"
#include "disk/track.h"
#include "origin/flush.h"
#include "origin/origin.h"
#include "store/epochs.h"
#include "store/error.h"
#include "store/options.h"
#include "store/snapshots.h"
#include "store/space.h"
#include "store/state.h"
#include "store/store.h"
#include "store/track.h"

/* The room for slots in doubt, at first. */
#define SUSPECTS_MIN	1024U

/* Room for so many runs of dead CURRENT versions, at first. */
#define DEAD_MIN	64U

/* The sequence of a slot in doubt that stands in a record of the log. */
#define SEQUENCE_OF_LOG		U64_MAX

/* A copied slot in doubt. */
struct cow_suspect {
	struct cow_extent ext;		/* one chunk */
	u64 sequence;			/* of its block */
	u32 crc;
};

/* A chunk of the store with blocks of a tracker. */
struct cow_piece_slot {
	u64 index;
	u64 place;
	u32 series;
};

struct cow_loader {
	struct cow_store *store;
	struct cow_meta *meta;
	const struct cowsnap_geometry *geometry;
	u64 durable;			/* D: the largest that any block names */
	u64 last;			/* largest number of a commit */
	u64 epoch;			/* largest of any slot */
	u32 damaged;			/* blocks */
	u32 damage_mark;		/* which */
	u64 origin_chunks;
	struct cow_intake intake;	/* what has not gone into the map yet */
	struct cow_suspect *suspects;	/* by place */
	size_t nr_suspects, max_suspects;
	size_t nr_judged;
	u32 nr_dropped, nr_bad;
	bool judged;			/* all of them: only slots to drop are left */
	struct cow_piece_slot *pieces;
	size_t nr_pieces, max_pieces;
	struct cow_placed_slot *logged;	/* of records that are believed; tables lack them */
	size_t nr_logged, max_logged;	/* room for those in doubt as well */
	struct cow_places *dead;	/* CURRENT versions that nobody sees: slots to be freed */
	size_t nr_dead, max_dead;
	u32 lost_records_of_log;
	struct xarray lost_records;	/* numbers of blocks of records */
	bool failed;			/* it could not be settled */
	u8 *buffer;			/* a chunk */
};

static int take_in(struct cow_loader *l, const struct cow_extent *ext)
{
	struct cow_run run;
	int r;

	cow_run_pack(&run, ext);
	r = cow_intake_add(&l->intake, &run);
	/* What there was no memory for comes again. */
	if (!r && cow_kind_is_current(ext->kind))
		l->store->nr_current += ext->nr;
	return r;
}

/* ---------------------------------------------------------------- slots in doubt */

/* Slots of commits up to D, as it is known by now, are durable after all. */
static int believe_durable(struct cow_loader *l)
{
	size_t i, kept = 0;
	int r = 0;

	for (i = 0; i < l->nr_suspects; i++) {
		if (!r && l->suspects[i].sequence <= l->durable) {
			r = take_in(l, &l->suspects[i].ext);
			if (!r)
				continue;
		}
		l->suspects[kept++] = l->suspects[i];
	}
	l->nr_suspects = kept;
	return r;
}

static int make_room(struct cow_loader *l)
{
	size_t max = max_t(size_t, SUSPECTS_MIN, 2 * l->max_suspects);
	struct cow_suspect *more;
	int r = believe_durable(l);

	/* If half of the room is free now, that is enough. */
	if (r || (l->max_suspects && l->nr_suspects <= l->max_suspects / 2))
		return r;
	more = kvmalloc_array(max, sizeof(*more), GFP_KERNEL);
	if (!more)
		return -ENOMEM;
	if (l->nr_suspects)
		memcpy(more, l->suspects, l->nr_suspects * sizeof(*more));
	kvfree(l->suspects);
	l->suspects = more;
	l->max_suspects = max;
	return 0;
}

static int add_suspect(struct cow_loader *l, const struct cow_extent *ext, u64 sequence,
		       u32 crc)
{
	int r = l->nr_suspects == l->max_suspects ? make_room(l) : 0;

	if (!r)
		l->suspects[l->nr_suspects++] = (struct cow_suspect){
			.ext = *ext, .sequence = sequence, .crc = crc,
		};
	return r;
}

/* -------------------------------------------------------------------- tables */

static const enum cow_kind kind_of_slot[] = {
	[COWSNAP_SLOT_COPIED] = COW_COPIED,
	[COWSNAP_SLOT_ZERO] = COW_ZERO,
	[COWSNAP_SLOT_PRIVATE] = COW_PRIVATE,
	[COWSNAP_SLOT_PRIVATE_ZERO] = COW_PRIVATE_ZERO,
	[COWSNAP_SLOT_CURRENT] = COW_CURRENT,
	[COWSNAP_SLOT_CURRENT_ZERO] = COW_CURRENT_ZERO,
};

struct cow_raw_slot {
	u64 chunk, epoch;
	u8 kind;
	bool fresh;
};

static void slot_parse(const struct cowsnap_slot *slot, struct cow_raw_slot *raw)
{
	raw->chunk = cowsnap_slot_chunk(slot);
	raw->epoch = cowsnap_slot_epoch(slot);
	raw->kind = cowsnap_slot_kind(slot);
	raw->fresh = cowsnap_slot_is_fresh(slot);
}

/* Only what is not sealed is redirected. */
static bool current_makes_sense(const struct cow_loader *l, const struct cow_raw_slot *raw)
{
	if (raw->kind == COWSNAP_SLOT_CURRENT_ZERO && l->store->zeroes == COW_ZEROES_NONE)
		return false;
	return l->store->has_current && l->store->seal_state == COWSNAP_SEAL_SEALED &&
	       raw->chunk >= cowsnap_seal_chunks(l->geometry);
}

static bool slot_makes_sense(struct cow_loader *l, const struct cow_raw_slot *raw,
			     u64 place)
{
	if (place >= l->store->space.nr_chunks || raw->kind >= COWSNAP_SLOT_KINDS ||
	    cow_seal_has(l->store, place))
		return false;
	if (raw->kind == COWSNAP_SLOT_TRACK)
		return raw->epoch && raw->epoch <= COW_EPOCH_MAX &&
		       raw->chunk < COWSNAP_TRACK_PIECES_MAX;
	if (raw->kind == COWSNAP_SLOT_RECORDS)
		return raw->chunk * cowsnap_block_records(l->geometry) *
			       l->geometry->chunk_blocks <
		       COWSNAP_MAX_SNAPSHOTS - COWSNAP_SUPER_RECORDS;
	if (cowsnap_kind_is_current(raw->kind) && !current_makes_sense(l, raw))
		return false;
	return raw->epoch && raw->epoch <= COW_EPOCH_MAX && raw->chunk < l->origin_chunks;
}

/* Commits are counted from 1, so a number this large cannot be. */
static bool header_makes_sense(const struct cowsnap_block_header *header)
{
	return le64_to_cpu(header->sequence) < BIT_ULL(62) &&
	       le64_to_cpu(header->durable) < BIT_ULL(62);
}

static bool block_makes_sense(struct cow_loader *l, const struct cowsnap_slot *slots,
			      u32 nr, u64 place)
{
	struct cow_raw_slot raw;
	u32 i;

	for (i = 0; i < nr; i++) {
		if (cowsnap_slot_kind(&slots[i]) == COWSNAP_SLOT_FREE)
			continue;
		slot_parse(&slots[i], &raw);
		if (!slot_makes_sense(l, &raw, place + i))
			return false;
	}
	return true;
}

/* Whose it is will be known when the records have been read. */
static int load_piece(struct cow_loader *l, const struct cow_raw_slot *raw, u64 place)
{
	size_t max = max_t(size_t, SUSPECTS_MIN, 2 * l->max_pieces);
	struct cow_piece_slot *more;

	if (l->nr_pieces == l->max_pieces) {
		more = kvmalloc_array(max, sizeof(*more), GFP_KERNEL);
		if (!more)
			return -ENOMEM;
		if (l->nr_pieces)
			memcpy(more, l->pieces, l->nr_pieces * sizeof(*more));
		kvfree(l->pieces);
		l->pieces = more;
		l->max_pieces = max;
	}
	l->pieces[l->nr_pieces++] = (struct cow_piece_slot){
		.index = raw->chunk, .place = place, .series = raw->epoch,
	};
	return 0;
}

static int load_slot(struct cow_loader *l, const struct cowsnap_slot *slot, u64 place,
		     u64 sequence)
{
	struct cow_raw_slot raw;
	struct cow_extent ext;

	slot_parse(slot, &raw);
	if (raw.kind == COWSNAP_SLOT_RECORDS)
		return xa_err(xa_store(&l->store->record_chunks, raw.chunk,
				       xa_mk_value(place + 1), GFP_KERNEL));
	l->epoch = max(l->epoch, raw.epoch);
	if (raw.kind == COWSNAP_SLOT_TRACK)
		return load_piece(l, &raw, place);
	ext.chunk = raw.chunk;
	ext.nr = 1;
	ext.place = place;
	ext.epoch = raw.epoch;
	ext.kind = kind_of_slot[raw.kind];
	if (!raw.fresh || ext.kind != COW_COPIED || sequence <= l->durable)
		return take_in(l, &ext);
	return add_suspect(l, &ext, sequence, cowsnap_slot_crc(slot));
}

/* The chunks of the store that the slots of a block say hold something. */
static int take_room(struct cow_loader *l, const struct cowsnap_slot *slots, u32 nr, u64 place)
{
	u32 from, to;
	int r = 0;

	for (from = 0; from < nr && !r; from = to + 1) {
		for (to = from; to < nr; to++)
			if (cowsnap_slot_kind(&slots[to]) == COWSNAP_SLOT_FREE)
				break;
		if (to > from)
			r = cow_space_take(&l->store->space, place + from, to - from);
	}
	return r;
}

/* What the slots of a block say, which make sense. */
static int load_slots(struct cow_loader *l, const struct cowsnap_slot *slots, u32 nr, u64 place,
		      u64 sequence)
{
	int r = take_room(l, slots, nr, place);
	u32 i;

	for (i = 0; i < nr && !r; i++)
		if (cowsnap_slot_kind(&slots[i]) != COWSNAP_SLOT_FREE)
			r = load_slot(l, &slots[i], place + i, sequence);
	return r;
}

/* It is unknown which chunks a lost block described, so its own stay taken. */
static int block_is_lost(struct cow_loader *l, u64 number, u64 place, u32 nr,
			 sector_t sector, const char *why)
{
	u64 end = min_t(u64, place + nr, l->store->space.nr_chunks);

	DMERR_LIMIT("store %pg: the table at sector %llu %s: snapshots have lost chunks",
		    l->store->bdev, (u64)sector, why);
	l->damaged++;
	l->damage_mark = cowsnap_damage_mark(l->damage_mark, number);
	cow_meta_note_used(l->meta, number);
	return place < end ? cow_space_take(&l->store->space, place, end - place) : 0;
}

static int load_block(struct cow_loader *l, const struct cowsnap_segment *seg, u32 block,
		      void *data, bool unreadable)
{
	u64 number = seg->first_block + block;
	sector_t sector = cowsnap_block_sector(l->geometry, seg, block);
	u64 place = seg->data + cowsnap_first_slot(l->geometry, seg, block);
	u32 nr = cowsnap_block_slots(l->geometry, number);
	const struct cowsnap_block_header *header = data + cowsnap_area_offset(number);
	const struct cowsnap_slot *slots = (const struct cowsnap_slot *)(header + 1);
	bool sound, empty;
	u64 sequence;

	if (!nr)
		return 0;
	if (unreadable)
		return block_is_lost(l, number, place, nr, sector, "cannot be read");
	sound = cow_meta_mend_block(l->meta, number, sector, data) && header_makes_sense(header);
	/* Many are made ready long before they are used. */
	empty = sound && !memchr_inv(slots, 0, nr * sizeof(*slots));
	if (!sound || (!empty && !block_makes_sense(l, slots, nr, place)))
		return block_is_lost(l, number, place, nr, sector, "is damaged");
	if (number < 2)
		cow_meta_keep_block(l->meta, number, data);
	sequence = le64_to_cpu(header->sequence);
	l->durable = max_t(u64, l->durable, le64_to_cpu(header->durable));
	l->last = max(l->last, sequence);
	if (empty)
		return 0;
	cow_meta_note_used(l->meta, number);
	if (l->store->keeps_tables)
		cow_meta_offer_block(l->meta, number, sector, data);
	return load_slots(l, slots, nr, place, sequence);
}

static int load_blocks(struct cow_loader *l, const struct cow_scanned *part)
{
	u32 bytes = l->geometry->block_bytes;
	int r = 0;
	u32 i;

	for (i = 0; i < part->nr && !r; i++)
		r = load_block(l, part->seg, part->block + i, part->data + (size_t)i * bytes,
			       test_bit(i, part->unreadable));
	return r;
}

static int load_tables(struct cow_loader *l)
{
	struct cow_scan *scan = cow_scan_begin(l->store);
	struct cow_scanned part;
	int r = 0;

	if (!scan)
		return -ENOMEM;
	while (!r && cow_scan_next(scan, &part)) {
		r = load_blocks(l, &part);
		cond_resched();
	}
	cow_scan_end(scan);
	return r;
}

/* ------------------------------------------------------------------------ the log */

/* Its slot is to be written into the tables. There is room for it. */
static void add_logged(struct cow_loader *l, u64 place, const struct cowsnap_slot *slot)
{
	struct cow_placed_slot *placed = &l->logged[l->nr_logged++];

	placed->place = place;
	placed->slot = *slot;
	cowsnap_slot_set_fresh(&placed->slot, false);
}

/* Records have copies, and what was redirected. */
static bool logged_makes_sense(void *context, const struct cowsnap_slot *slot, u32 nr, u64 place)
{
	struct cow_raw_slot raw;
	u32 i;

	for (i = 0; i < nr; i++) {
		slot_parse(&slot[i], &raw);
		if ((raw.kind != COWSNAP_SLOT_COPIED && raw.kind != COWSNAP_SLOT_ZERO &&
		     raw.kind != COWSNAP_SLOT_CURRENT) ||
		    !slot_makes_sense(context, &raw, place + i))
			return false;
	}
	return true;
}

/* A slot that the table has is right: it is this one, or later. So is a table that is lost. */
static int load_logged(void *context, const struct cowsnap_slot *slot, u64 place, bool in_doubt)
{
	struct cow_loader *l = context;
	struct cow_raw_slot raw;
	struct cow_extent ext;
	int r;

	if (cow_space_is_taken(&l->store->space, place))
		return 0;
	slot_parse(slot, &raw);
	r = cow_space_take(&l->store->space, place, 1);
	if (r)
		return r;
	l->epoch = max(l->epoch, raw.epoch);
	ext.chunk = raw.chunk;
	ext.nr = 1;
	ext.place = place;
	ext.epoch = raw.epoch;
	ext.kind = kind_of_slot[raw.kind];
	if (in_doubt && ext.kind != COW_ZERO)
		return add_suspect(l, &ext, SEQUENCE_OF_LOG, cowsnap_slot_crc(slot));
	add_logged(l, place, slot);
	return take_in(l, &ext);
}

static int load_log(struct cow_loader *l, const struct cowsnap_super *super)
{
	struct cow_replay replay = {
		.store = l->store, .context = l,
		.makes_sense = logged_makes_sense, .slot = load_logged,
	};
	unsigned int i;
	int r = 0;

	for (i = 0; i < COWSNAP_ZONES; i++)
		l->max_logged += le32_to_cpu(super->zone[i].chunks);
	if (!l->max_logged)
		return 0;
	l->logged = kvmalloc_array(l->max_logged, sizeof(*l->logged), GFP_KERNEL);
	if (!l->logged)
		return -ENOMEM;
	for (i = 0; i < COWSNAP_ZONES && !r; i++)
		if (cowsnap_zone_in_use(&super->zone[i]))
			r = cow_replay_zone(&replay, &super->zone[i]);
	l->lost_records_of_log = replay.nr_lost;
	return r;
}

/* ------------------------------------------------------- what is in doubt, settled */

enum cow_verdict {
	COW_BELIEVED,
	COW_UNFINISHED,
	COW_DAMAGED,
};

static bool buffer_has_crc(struct cow_loader *l, const struct cow_suspect *s)
{
	struct cow_store *store = l->store;
	u32 seed = cow_meta_seed(l->meta, cow_chunk_to_sector(store, s->ext.place));

	return crc32c(seed, l->buffer, (size_t)store->chunk_sectors << SECTOR_SHIFT) == s->crc;
}

static int read_data(struct cow_loader *l, const struct cow_suspect *s)
{
	struct cow_store *store = l->store;

	return cow_meta_io(store->bdev, REQ_OP_READ, cow_chunk_to_sector(store, s->ext.place),
			   l->buffer, (size_t)store->chunk_sectors << SECTOR_SHIFT);
}

/* Behind the end of the origin the copy has zeroes. */
static void buffer_cut_off(struct cow_loader *l, sector_t sector, u64 end)
{
	sector_t nr = l->store->chunk_sectors;

	if (end > sector && end < sector + nr)
		memset(l->buffer + ((end - sector) << SECTOR_SHIFT), 0,
		       (sector + nr - end) << SECTOR_SHIFT);
}

static bool home_has_it(struct cow_loader *l, const struct cow_suspect *s)
{
	struct cow_store *store = l->store;
	sector_t sector = cow_chunk_to_sector(store, s->ext.chunk), at = sector;
	u64 end = bdev_nr_sectors(store->origin->bdev);
	struct block_device *home = cow_seal_home(store, &at);

	if (sector >= end)
		return false;
	if (cow_meta_io(home, REQ_OP_READ, at, l->buffer,
			min_t(u64, store->chunk_sectors, end - sector) << SECTOR_SHIFT))
		return false;
	buffer_cut_off(l, sector, end);
	if (buffer_has_crc(l, s))
		return true;
	/* The origin may have grown since. */
	buffer_cut_off(l, sector, store->origin_sectors);
	return buffer_has_crc(l, s);
}

static enum cow_verdict judge(struct cow_loader *l, const struct cow_suspect *s)
{
	int r = read_data(l, s);

	if (!r && buffer_has_crc(l, s))
		return COW_BELIEVED;
	/* Home has what it had, and what is in doubt has not been written in place. */
	if (s->ext.kind == COW_CURRENT)
		return r ? COW_DAMAGED : COW_UNFINISHED;
	if (home_has_it(l, s))
		return COW_UNFINISHED;
	DMERR_LIMIT("store %pg: chunk %llu: wrong checksum, and the origin's %llu is another",
		    l->store->bdev, s->ext.place, s->ext.chunk);
	return COW_DAMAGED;
}

/* Whether its data is right or was damaged later, its record had ended. */
static void believe_logged(struct cow_loader *l, const struct cow_suspect *s)
{
	u8 kind = s->ext.kind == COW_CURRENT ? COWSNAP_SLOT_CURRENT : COWSNAP_SLOT_COPIED;
	struct cowsnap_slot slot;

	cowsnap_slot_set(&slot, s->ext.chunk, s->ext.epoch, kind, s->crc);
	add_logged(l, s->ext.place, &slot);
}

static int judge_one(struct cow_loader *l, const struct cow_suspect *s)
{
	enum cow_verdict verdict = judge(l, s);
	int r;

	if (verdict == COW_UNFINISHED) {
		l->suspects[l->nr_dropped++] = *s;
		return 0;
	}
	r = take_in(l, &s->ext);
	if (!r && verdict == COW_DAMAGED)
		l->nr_bad++;
	if (!r && s->sequence == SEQUENCE_OF_LOG)
		believe_logged(l, s);
	return r;
}

/*
 * Slots to be dropped move to the front of the list. Called again after a failure, this goes on
 * with the first that has not been judged.
 */
static int judge_suspects(struct cow_loader *l)
{
	int r = l->nr_judged ? 0 : believe_durable(l);

	/*
	 * What is believed because it can be read has to be durable: data, and tables and records
	 * that the device may still have in its cache from before a crash.
	 */
	if (!r && l->store->writable)
		r = cow_flush(l->store->origin, l->store->bdev);
	while (!r && l->nr_judged < l->nr_suspects) {
		r = judge_one(l, &l->suspects[l->nr_judged]);
		if (!r)
			l->nr_judged++;
		cond_resched();
	}
	return r ?: cow_intake_flush(&l->intake);
}

static int compare_places(const void *a, const void *b)
{
	const struct cow_placed_slot *x = a, *y = b;

	return x->place < y->place ? -1 : x->place > y->place;
}

/*
 * What is to change in the tables, by place: slots that are dropped are free, those of the log come
 * in. One that is dropped and stood in the log alone is free already.
 */
static struct cow_placed_slot *gather_slots(struct cow_loader *l, size_t *nr)
{
	struct cow_placed_slot *slots;
	size_t i;

	*nr = 0;
	slots = kvcalloc(l->nr_dropped + l->nr_logged, sizeof(*slots), GFP_KERNEL);
	if (!slots)
		return NULL;
	for (i = 0; i < l->nr_dropped; i++)
		if (l->suspects[i].sequence != SEQUENCE_OF_LOG)
			slots[(*nr)++].place = l->suspects[i].ext.place;
	if (l->nr_logged)
		memcpy(slots + *nr, l->logged, l->nr_logged * sizeof(*slots));
	*nr += l->nr_logged;
	sort(slots, *nr, sizeof(*slots), compare_places, NULL);
	return slots;
}

/* The first write since the store was opened. What may only be read is changed in memory. */
static int change_slots(struct cow_loader *l)
{
	struct cow_store *store = l->store;
	unsigned int losses = cow_meta_losses(l->meta);
	struct cow_placed_slot *slots;
	size_t nr;
	int r;

	if (!store->writable)
		return l->nr_logged ? cow_meta_keep_slots(l->meta, l->logged, l->nr_logged) : 0;
	if (!l->nr_dropped && !l->nr_logged)
		return 0;
	slots = gather_slots(l, &nr);
	if (!slots)
		return -ENOMEM;
	cow_meta_acquire(l->meta);
	r = cow_meta_set_slots(l->meta, slots, nr);
	cow_meta_release(l->meta);
	kvfree(slots);
	/* Durable before the superblock says that nothing is in doubt any more. */
	return r ?: cow_meta_flush(l->meta, losses);
}

/* All that they had is in the tables: the superblock that is written next names no zone. */
static void forget_zones(struct cow_store *store)
{
	unsigned int i;

	mutex_lock(&store->records_lock);
	for (i = 0; i < COWSNAP_ZONES; i++) {
		store->zone_name[i].start = 0;
		store->zone_name[i].nr = 0;
	}
	mutex_unlock(&store->records_lock);
}

static void report_suspects(struct cow_loader *l)
{
	struct cow_store *store = l->store;

	if (l->nr_dropped)
		DMINFO("store %pg: %u chunks of an unfinished commit dropped",
		       store->bdev, l->nr_dropped);
	if (l->nr_bad)
		DMERR("store %pg: %u chunks of the last commits are damaged: they read as errors",
		      store->bdev, l->nr_bad);
	atomic64_add(l->nr_bad, &store->bad_checksums);
}

/* Lost blocks of records are written anew, without snapshots. */
static int forget_lost_records(struct cow_loader *l)
{
	unsigned long number;
	void *entry;
	int r = 0;

	xa_for_each(&l->lost_records, number, entry) {
		r = cow_super_write_records(l->store, number);
		if (r)
			break;
	}
	if (r)
		DMERR("store %pg: lost records cannot be written (%d): copy it to another device",
		      l->store->bdev, r);
	return r;
}

static int forget_the_dead(struct cow_loader *l);
static void free_dead_current(struct cow_loader *l);

static void drop_suspects(struct cow_loader *l)
{
	struct cow_store *store = l->store;
	size_t i;

	spin_lock(&store->origin->state_lock);
	for (i = 0; i < l->nr_dropped; i++)
		cow_space_free(&store->space, l->suspects[i].ext.place, 1);
	spin_unlock(&store->origin->state_lock);
}

/* Nobody knows which of the two the origin has. */
static int refuse_twice(struct cow_store *store)
{
	if (store->map.twice == COW_NO_CHUNK)
		return 0;
	DMERR("store %pg has chunk %llu of its origin twice (redirect): run cowsnap check",
	      store->bdev, store->map.twice);
	return -EUCLEAN;
}

/* Called again if there was no memory: what has been done is done once. */
static int settle(struct cow_loader *l)
{
	struct cow_store *store = l->store;
	int r = l->judged ? 0 : judge_suspects(l) ?: refuse_twice(store);

	if (r)
		return r;
	if (!l->judged) {
		report_suspects(l);
		drop_suspects(l);
	}
	l->judged = true;
	r = change_slots(l);
	if (!r && store->writable)
		r = forget_lost_records(l);
	if (!r)
		r = forget_the_dead(l);
	if (r)
		return r;
	/* All of it was settled: older versions may come back. */
	if (!store->nr_current) {
		store->zeroes = COW_ZEROES_NONE;
		if (!store->options.redirect)
			store->has_current = false;
	}
	if (store->writable)
		forget_zones(store);
	cow_meta_set_sequence(l->meta, max(l->last, l->durable), max(l->last, l->durable));
	free_dead_current(l);
	return store->writable ? cow_super_write(store, NULL) : 0;
}

static void loader_free(struct cow_loader *l)
{
	xa_destroy(&l->lost_records);
	cow_intake_exit(&l->intake);
	kvfree(l->suspects);
	kvfree(l->pieces);
	kvfree(l->logged);
	kvfree(l->dead);
	kvfree(l->buffer);
	kfree(l);
}

int cow_load_settle(struct cow_store *store)
{
	struct cow_loader *l = store->loader;
	unsigned int noio;
	int r;

	if (!l)
		return 0;
	if (l->failed)
		return -EIO;
	/* A table is being resumed, and others may be suspended: memory must not wait for I/O. */
	noio = memalloc_noio_save();
	r = settle(l);
	memalloc_noio_restore(noio);
	l->failed = r && r != -ENOMEM;
	if (!r)
		cow_load_end(store);
	return r;
}

void cow_load_end(struct cow_store *store)
{
	if (store->loader)
		loader_free(store->loader);
	/* The map is whole: pairs with smp_load_acquire() in cow_merge_left(). */
	smp_store_release(&store->loader, NULL);
}

/* ----------------------------------------------------------------------- snapshots */

/*
 * It is unknown which snapshots there were, so the last epoch that was given out is unknown as
 * well. Epochs go on above the latest of any slot, so that no version is taken for one of a
 * snapshot that is made from now on. The known snapshots do not need versions that only the
 * lost ones saw.
 */
static void records_are_lost(struct cow_loader *l)
{
	struct cow_store *store = l->store;

	store->epoch = max_t(u64, store->epoch, l->epoch);
}

/* Its record is lost, or the slot that announced the chunk of it: home is half of each. */
static bool merge_is_lost(struct cow_store *store, const struct cowsnap_super *super,
			  char **error)
{
	u32 id = le32_to_cpu(super->merge_id);

	if (id == COWSNAP_NO_MERGE || cow_snap_find(store, id))
		return false;
	cow_fail(error,
		 "Store %pg: the record of snapshot %u, which is being merged, is lost: run cowsnap repair",
		 store->bdev, id);
	return true;
}

static int load_snapshots(struct cow_loader *l, const struct cowsnap_super *super,
			  char **error)
{
	struct cow_store *store = l->store;
	struct cow_snap *snap;
	unsigned long index;
	void *place;
	int i, r = 0;

	for (i = 0; i < COWSNAP_SUPER_RECORDS && !r; i++)
		r = cow_super_add_snap(store, i, &super->record[i], error);
	xa_for_each(&store->record_chunks, index, place) {
		if (r)
			break;
		r = cow_super_read_records(store, index, &l->lost_records, error);
	}
	if (!r && merge_is_lost(store, super, error))
		r = -EUCLEAN;
	if (!r && le32_to_cpu(super->merge_id) != COWSNAP_NO_MERGE) {
		store->merging = cow_snap_find(store, le32_to_cpu(super->merge_id));
		store->merge_chunk = le64_to_cpu(super->merge_chunk);
		if (store->merging && store->merging->state != COW_SNAP_MERGING)
			store->merging = NULL;
	}
	if (!r && !xa_empty(&l->lost_records))
		records_are_lost(l);
	cow_store_sort_snaps(store);
	/* A merge that is not named has not begun. */
	spin_lock(&store->origin->state_lock);
	list_for_each_entry(snap, &store->snaps, node) {
		if (snap->state == COW_SNAP_MERGING && snap != store->merging)
			cow_snap_set_state(snap, COW_SNAP_LIVE);
		if (snap->state == COW_SNAP_LIVE && snap->epoch <= store->invalid_epoch)
			cow_snap_set_state(snap, store->invalid_state);
	}
	spin_unlock(&store->origin->state_lock);
	return r;
}

/* Trackers, and where their blocks are. Pieces that are nobody's are free. */
static int load_trackers(struct cow_loader *l)
{
	struct cow_store *store = l->store;
	unsigned int nr = 0;
	struct cow_snap *snap;
	size_t i;

	list_for_each_entry(snap, &store->snaps, node) {
		if (snap->state != COW_SNAP_TRACKER)
			continue;
		if (nr++ == COWSNAP_MAX_TRACKERS) {
			DMERR("store %pg: more than %u trackers: run cowsnap repair",
			      store->bdev, COWSNAP_MAX_TRACKERS);
			return -EUCLEAN;
		}
		snap->tracker = cow_tracker_alloc(snap, l->geometry, snap->series);
		if (!snap->tracker)
			return -ENOMEM;
	}
	for (i = 0; i < l->nr_pieces; i++) {
		const struct cow_piece_slot *p = &l->pieces[i];

		if (cow_track_found(store, p->series, p->index, p->place))
			continue;
		spin_lock(&store->origin->state_lock);
		cow_space_free(&store->space, p->place, 1);
		spin_unlock(&store->origin->state_lock);
	}
	return 0;
}

/* Without memory for it, its slot stays: then nothing is settled that it could count against. */
static void add_dead(struct cow_loader *l, const struct cow_extent *ext)
{
	size_t max = max_t(size_t, DEAD_MIN, 2 * l->max_dead);
	struct cow_places *more;

	if (l->nr_dead == l->max_dead) {
		more = kvmalloc_array(max, sizeof(*more), GFP_KERNEL | __GFP_NORETRY);
		if (!more) {
			cow_slots_stay(l->store, -ENOMEM);
			return;
		}
		if (l->nr_dead)
			memcpy(more, l->dead, l->nr_dead * sizeof(*more));
		kvfree(l->dead);
		l->dead = more;
		l->max_dead = max;
	}
	l->dead[l->nr_dead++] = (struct cow_places){
		.first = ext->place, .nr = ext->nr, .redirected = true,
	};
}

static void dead_is_free(void *context, const struct cow_extent *ext)
{
	struct cow_loader *l = context;
	struct cow_store *store = l->store;

	if (cow_kind_is_current(ext->kind) && store->writable)
		add_dead(l, ext);
	spin_lock(&store->origin->state_lock);
	cow_space_free(&store->space, ext->place, ext->nr);
	if (cow_kind_is_current(ext->kind))
		store->nr_current -= ext->nr;
	spin_unlock(&store->origin->state_lock);
}

/* Drop versions that no snapshot sees: those of snapshots that were deleted. */
static int forget_the_dead(struct cow_loader *l)
{
	struct cow_store *store = l->store;
	int r = cow_store_renew_live(store);
	struct cow_live *live = cow_store_kept_epochs(store);
	u64 chunk = 0;

	if (r || !live) {
		kvfree(live);
		return -ENOMEM;
	}
	do {
		r = cow_map_reclaim(&store->map, live, U32_MAX, SIZE_MAX, &chunk, dead_is_free,
				    l) ?: r;
		cond_resched();
	} while (chunk);
	kvfree(live);
	return r;
}

/*
 * Slots of CURRENT versions that are dead would count again when the later ones are brought home.
 * They stay on the disk if they cannot be freed: then none is brought home until the store is
 * opened again.
 */
static void free_dead_current(struct cow_loader *l)
{
	sort(l->dead, l->nr_dead, sizeof(l->dead[0]), cow_places_compare, NULL);
	cow_slots_free_dead(l->store, l->dead, l->nr_dead);
	l->nr_dead = 0;
}

/* ------------------------------------------------------------------------- the whole */

static bool super_fits(struct cow_store *store, const struct cowsnap_super *super,
		       char **error)
{
	u64 origin = bdev_nr_sectors(store->origin->bdev);
	u64 had = le64_to_cpu(super->origin_sectors);

	if (had > origin && super->epoch && !store->meets_late)
		cow_fail(error,
			 "Store %pg was made for an origin of %llu sectors, %pg has %llu: use the right one",
			 store->bdev, had, store->origin->bdev, origin);
	else if (le64_to_cpu(super->store_sectors) > bdev_nr_sectors(store->bdev))
		cow_fail(error,
			 "Store %pg had %llu sectors and has %llu now: the rest of it is missing",
			 store->bdev, le64_to_cpu(super->store_sectors),
			 (u64)bdev_nr_sectors(store->bdev));
	else if (le32_to_cpu(super->blocks) > store->space.max_blocks ||
		 le32_to_cpu(super->blocks) < 2)
		cow_fail(error, "Store %pg: %u table blocks cannot be: run cowsnap repair",
			 store->bdev, le32_to_cpu(super->blocks));
	else if (!cowsnap_zones_fit(cow_meta_geometry(store->meta), super->zone,
				    store->space.nr_chunks, le32_to_cpu(super->blocks)))
		cow_fail(error, "Store %pg: the zones of its log cannot be: run cowsnap repair",
			 store->bdev);
	else if (!cowsnap_seal_fits(cow_meta_geometry(store->meta), super,
				    store->space.nr_chunks))
		cow_fail(error, "Store %pg: what it says of a seal cannot be: run cowsnap check",
			 store->bdev);
	else if (le64_to_cpu(super->durable) >= BIT_ULL(62) ||
		 le64_to_cpu(super->sequence) >= BIT_ULL(62))
		cow_fail(error, "Store %pg: numbers of commits cannot be: run cowsnap repair",
			 store->bdev);
	else if (le64_to_cpu(super->epoch) > COW_EPOCH_MAX)
		cow_fail(error, "Store %pg has had %llu snapshots, more than %u: make a new one",
			 store->bdev, le64_to_cpu(super->epoch), COW_EPOCH_MAX);
	else
		return true;
	return false;
}

static void take_zones(struct cow_store *store, const struct cowsnap_super *super)
{
	unsigned int i;

	for (i = 0; i < COWSNAP_ZONES; i++) {
		const struct cowsnap_zone *zone = &super->zone[i];

		store->zone_name[i].start = cowsnap_zone_start(zone);
		store->zone_name[i].series = cowsnap_zone_series(zone);
		store->zone_name[i].nr = le32_to_cpu(zone->chunks);
		store->zone_series = max(store->zone_series, store->zone_name[i].series);
		cow_log_set_zone(store->meta, i, cowsnap_zone_series(zone),
				 cowsnap_zone_durable(zone));
	}
	store->lost_epoch = min_t(u64, le64_to_cpu(super->lost_epoch), COW_EPOCH_MAX);
}

static void take_super(struct cow_store *store, const struct cowsnap_super *super)
{
	cow_meta_set_uuid(store->meta, super->uuid);
	store->super_sequence = le64_to_cpu(super->sequence);
	store->origin_sectors = le64_to_cpu(super->origin_sectors);
	store->epoch = le64_to_cpu(super->epoch);
	store->space.blocks = le32_to_cpu(super->blocks);
	store->damage_epoch = min_t(u64, le64_to_cpu(super->damage_epoch), COW_EPOCH_MAX);
	store->damaged_blocks = le32_to_cpu(super->damaged_blocks);
	store->damage_mark = le32_to_cpu(super->damage_mark);
	store->has_current = le64_to_cpu(super->incompat) & COWSNAP_INCOMPAT_CURRENT;
	if (le64_to_cpu(super->incompat) & COWSNAP_INCOMPAT_ZEROES)
		store->zeroes = COW_ZEROES_MARKED;
	store->has_tracked = le64_to_cpu(super->incompat) & COWSNAP_INCOMPAT_TRACK;
	store->invalid_epoch = min_t(u64, le64_to_cpu(super->invalid_epoch), COW_EPOCH_MAX);
	store->invalid_state = super->invalid_state == COWSNAP_RECORD_OVERFLOWED ?
			       COW_SNAP_OVERFLOWED : COW_SNAP_INVALID;
	cow_options_load(&store->options, super);
	take_zones(store, super);
	cow_seal_take_super(store, super);
}

/*
 * Copies from now on carry a later epoch than any snapshot that has lost versions. If the same
 * blocks were lost before, no further epoch is spent.
 */
static void note_damage(struct cow_loader *l)
{
	struct cow_store *store = l->store;

	if (!l->damaged) {
		store->damage_epoch = 0;
	} else if (l->damaged != store->damaged_blocks || l->damage_mark != store->damage_mark) {
		/* The slot of a chunk of records may be among what was lost. */
		store->epoch = max_t(u64, store->epoch, l->epoch);
		store->damage_epoch = store->epoch++;
	}
	store->damaged_blocks = l->damaged;
	store->damage_mark = l->damage_mark;
}

/*
 * The same for records of the log. Their zones will be gone, so it has to be remembered until the
 * snapshots are gone that may have lost something.
 */
static void note_lost_records(struct cow_loader *l)
{
	struct cow_store *store = l->store;
	bool concerned = false;
	struct cow_snap *snap;

	list_for_each_entry(snap, &store->snaps, node)
		concerned |= snap->epoch <= store->lost_epoch &&
			     (snap->state == COW_SNAP_LIVE || snap->state == COW_SNAP_MERGING);
	if (!concerned)
		store->lost_epoch = 0;
	/* How many there were is not known any more when it is opened again. */
	store->lost_records = l->lost_records_of_log ?: !!store->lost_epoch;
	if (!l->lost_records_of_log)
		return;
	store->epoch = max_t(u64, store->epoch, l->epoch);
	store->lost_epoch = store->epoch++;
}

/* With what is lost the origin may have lost data, and nobody knows where home is right. */
static bool origin_is_whole(struct cow_loader *l, char **error)
{
	struct cow_store *store = l->store;

	if (!store->has_current || (!l->damaged && !l->lost_records_of_log))
		return true;
	cow_fail(error,
		 "Store %pg has data of its origin (redirect), and lost %u table blocks and %u records of its log: run cowsnap check",
		 store->bdev, l->damaged, l->lost_records_of_log);
	return false;
}

static int load_all(struct cow_loader *l, const struct cowsnap_super *super, char **error)
{
	struct cow_store *store = l->store;
	int r = load_tables(l) ?: cow_seal_take_room(store) ?: load_log(l, super);

	if (!r)
		r = cow_intake_flush(&l->intake);
	if (r) {
		cow_fail(error, "Store %pg cannot be read (error %d)", store->bdev, r);
		return r;
	}
	if (!origin_is_whole(l, error))
		return -EUCLEAN;
	r = load_snapshots(l, super, error);
	if (r)
		return r;
	r = load_trackers(l);
	if (r) {
		*error = "Out of memory for a tracker";
		return r;
	}
	note_damage(l);
	note_lost_records(l);
	/* Until all is settled the superblock must not name later commits durable. */
	cow_meta_set_sequence(l->meta, max(l->last, l->durable), l->durable);
	if (store->meets_late)
		return 0;
	r = cow_load_settle(store);
	if (r)
		cow_fail(error, "Store %pg cannot be opened (error %d): see the log",
			 store->bdev, r);
	return r;
}

static struct cow_loader *loader_alloc(struct cow_store *store)
{
	struct cow_loader *l = kzalloc(sizeof(*l), GFP_KERNEL);

	if (!l)
		return NULL;
	xa_init(&l->lost_records);
	l->store = store;
	l->meta = store->meta;
	l->geometry = cow_meta_geometry(store->meta);
	l->origin_chunks = (store->origin_sectors + store->chunk_sectors - 1) >>
			   store->chunk_shift;
	l->buffer = kvmalloc((size_t)store->chunk_sectors << SECTOR_SHIFT, GFP_KERNEL);
	if (l->buffer && !cow_intake_init(&l->intake, &store->map))
		return l;
	kvfree(l->buffer);
	kfree(l);
	return NULL;
}

int cow_load(struct cow_store *store, const struct cowsnap_super *super, char **error)
{
	struct cow_loader *l;
	int r;

	if (!super_fits(store, super, error))
		return -EINVAL;
	take_super(store, super);
	l = loader_alloc(store);
	if (!l) {
		*error = "Out of memory reading the store";
		return -ENOMEM;
	}
	store->loader = l;
	l->durable = le64_to_cpu(super->durable);
	store->map.no_readers = true;
	r = load_all(l, super, error);
	store->map.no_readers = false;
	return r;
}

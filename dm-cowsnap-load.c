// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: opening a store
 *
 * Tables are read one after the other in large reads, every slot goes into the map, and
 * what no live snapshot needs is taken out of it again. Only slots of the last commit
 * that may not have ended are compared with their data; where that is missing they
 * are freed, as if the commit had never begun.
 *
 * Nothing on the disk is believed without its checksum, and no number without its
 * bounds: a wrong one means that the block it stands in counts as damaged.
 */
#include <linux/crc32c.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "dm-cowsnap.h"

/* The first superblock, and the second wherever it may be. */
#define PROBE_BYTES	8192U

/* A fresh slot of what may be an unfinished commit. */
struct cow_suspect {
	u64 place;
	struct cow_extent ext;
	u32 crc;
};

#define SUSPECTS_MAX	(COWSNAP_COMMIT_BLOCKS * (COWSNAP_MAX_BLOCK_BYTES / 14))

struct cow_loader {
	struct cow_store *store;
	struct cow_meta *meta;
	const struct cowsnap_geometry *geometry;
	u64 durable;			/* largest that anybody names */
	u64 last;			/* largest number of a commit */
	u32 damaged;
	struct cow_extent run;		/* what has not gone into the map yet */
	struct cow_suspect *suspects;	/* all of commit ->last */
	u32 nr_suspects;
	u8 *buffer;			/* a table, or a chunk */
};

/* ------------------------------------------------------------------ recognising */

static u32 super_crc(const struct cowsnap_super *super, sector_t sector)
{
	struct cowsnap_super copy = *super;
	__le64 location = cpu_to_le64(sector);
	u32 crc = crc32c(~0U, super->uuid, sizeof(super->uuid));

	copy.crc = 0;
	return crc32c(crc32c(crc, &location, sizeof(location)), &copy, sizeof(copy));
}

static bool super_is_right(const struct cowsnap_super *super, sector_t sector)
{
	return !memcmp(super->magic, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES) &&
	       le32_to_cpu(super->crc) == super_crc(super, sector);
}

/*
 * The better of the two copies. Where B stands only A knows; without A it may be
 * anywhere. With A, what an earlier store left elsewhere does not count.
 */
static const struct cowsnap_super *super_choose(const u8 *data, unsigned int bytes)
{
	const struct cowsnap_super *first = (const struct cowsnap_super *)data;
	const struct cowsnap_super *found = NULL;
	unsigned int at;

	if (super_is_right(first, 0))
		found = first;
	for (at = COWSNAP_MIN_BLOCK_BYTES;
	     at <= COWSNAP_MAX_BLOCK_BYTES && at + COWSNAP_SUPER_BYTES <= bytes; at *= 2) {
		const struct cowsnap_super *super = (const struct cowsnap_super *)(data + at);

		if (!super_is_right(super, at >> SECTOR_SHIFT) ||
		    le32_to_cpu(super->block_bytes) != at)
			continue;
		if (found == first && (le32_to_cpu(first->block_bytes) != at ||
				       memcmp(first->uuid, super->uuid, 16)))
			continue;
		if (!found || le64_to_cpu(super->sequence) > le64_to_cpu(found->sequence))
			found = super;
	}
	return found;
}

static enum cow_content refuse_content(struct block_device *bdev, const u8 *data,
				       char **error)
{
	if (!memcmp(data, "SnAp", 4))
		cow_fail(error,
			 "Store %pg holds a snapshot of dm-snapshot: let that merge or remove it, or zero 4 KiB",
			 bdev);
	else if (!memcmp(data, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES))
		cow_fail(error,
			 "Store %pg: both superblocks are damaged: run cowsnap repair",
			 bdev);
	else
		cow_fail(error,
			 "Store %pg holds something else: zero its first 4 KiB if it is not needed",
			 bdev);
	return COW_CONTENT_FOREIGN;
}

enum cow_content cow_load_probe(struct block_device *bdev, struct cowsnap_super *super,
				char **error)
{
	u8 *data = kzalloc(PROBE_BYTES, GFP_KERNEL);
	unsigned int bytes = min_t(u64, PROBE_BYTES, bdev_nr_bytes(bdev));
	enum cow_content content = COW_CONTENT_FOREIGN;
	const struct cowsnap_super *found;

	if (!data) {
		*error = "Out of memory reading the store";
		goto free;
	}
	if (cow_meta_io(bdev, REQ_OP_READ | REQ_META, 0, data, bytes)) {
		cow_fail(error, "Cannot read the store %pg: use another device", bdev);
		goto free;
	}
	found = super_choose(data, bytes);
	if (!memchr_inv(data, 0, min(bytes, 4096U)))
		content = COW_CONTENT_NEW;
	else if (!found)
		content = refuse_content(bdev, data, error);
	else
		content = COW_CONTENT_STORE;
	if (found)
		*super = *found;
free:
	kfree(data);
	return content;
}

/* ------------------------------------------------------------------- into the map */

static int flush_run(struct cow_loader *l)
{
	int r = l->run.nr ? cow_map_insert(&l->store->map, &l->run, 0) : 0;

	l->run.nr = 0;
	return r;
}

static int add_extent(struct cow_loader *l, const struct cow_extent *ext)
{
	struct cow_extent *run = &l->run;
	int r;

	if (run->nr && run->nr < COW_RUN_CHUNKS && run->kind == ext->kind &&
	    run->epoch == ext->epoch && run->chunk + run->nr == ext->chunk &&
	    run->place + run->nr == ext->place) {
		run->nr++;
		return 0;
	}
	r = flush_run(l);
	*run = *ext;
	return r;
}

/* Those of an earlier commit than the last are durable after all. */
static int believe_suspects(struct cow_loader *l)
{
	u32 i;
	int r = 0;

	for (i = 0; i < l->nr_suspects && !r; i++)
		r = add_extent(l, &l->suspects[i].ext);
	l->nr_suspects = 0;
	return r;
}

static const enum cow_kind slot_kinds[] = {
	[COWSNAP_SLOT_COPIED] = COW_COPIED,
	[COWSNAP_SLOT_ZERO] = COW_ZERO,
	[COWSNAP_SLOT_PRIVATE] = COW_PRIVATE,
	[COWSNAP_SLOT_PRIVATE_ZERO] = COW_PRIVATE_ZERO,
};

struct cow_raw_slot {
	u64 chunk, epoch;
	u8 kind;
	bool fresh;
};

static void slot_parse(const struct cowsnap_slot *slot, struct cow_raw_slot *raw)
{
	raw->chunk = le32_to_cpu(slot->chunk_low) |
		     (u64)(slot->chunk_high_kind & 0xf) << 32 | (u64)slot->chunk_wide << 36;
	raw->epoch = le32_to_cpu(slot->epoch_low);
	raw->kind = slot->chunk_high_kind >> 4 & 7;
	raw->fresh = slot->chunk_high_kind & COWSNAP_SLOT_FRESH;
}

static bool slot_makes_sense(struct cow_loader *l, const struct cow_raw_slot *raw,
			     u64 place)
{
	u64 chunks = (l->store->origin_sectors + l->store->chunk_sectors - 1) >>
		     l->store->chunk_shift;

	if (raw->kind == COWSNAP_SLOT_FREE)
		return true;
	if (place >= l->store->space.nr_chunks || raw->kind >= COWSNAP_SLOT_KINDS)
		return false;
	if (raw->kind == COWSNAP_SLOT_RECORDS)
		return raw->chunk < COWSNAP_MAX_SNAPSHOTS;
	return raw->epoch && raw->epoch <= COW_EPOCH_MAX && raw->chunk < chunks;
}

/* Commits are counted from 1: nobody gets that far. */
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
		slot_parse(&slots[i], &raw);
		if (!slot_makes_sense(l, &raw, place + i))
			return false;
	}
	return true;
}

static int load_slot(struct cow_loader *l, const struct cowsnap_slot *slot, u64 place,
		     u64 sequence)
{
	struct cow_raw_slot raw;
	struct cow_extent ext;
	int r;

	slot_parse(slot, &raw);
	if (raw.kind == COWSNAP_SLOT_FREE)
		return 0;
	r = cow_space_take(&l->store->space, place);
	if (r)
		return r;
	if (raw.kind == COWSNAP_SLOT_RECORDS)
		return xa_err(xa_store(&l->store->record_chunks, raw.chunk,
				       xa_mk_value(place + 1), GFP_KERNEL));
	ext.chunk = raw.chunk;
	ext.nr = 1;
	ext.place = place;
	ext.epoch = raw.epoch;
	ext.kind = slot_kinds[raw.kind];
	if (!raw.fresh || ext.kind != COW_COPIED || sequence < l->last)
		return add_extent(l, &ext);
	l->suspects[l->nr_suspects].place = place;
	l->suspects[l->nr_suspects].ext = ext;
	l->suspects[l->nr_suspects].crc = le32_to_cpu(slot->crc);
	l->nr_suspects++;
	if (l->nr_suspects == SUSPECTS_MAX)
		return believe_suspects(l);	/* more than any commit can have */
	return 0;
}

/* What a block that cannot be read spoke of is unknown: its chunks stay taken. */
static int block_is_lost(struct cow_loader *l, u64 place, u32 nr, sector_t sector)
{
	u32 i;
	int r = 0;

	DMERR("store %pg: the table at sector %llu is damaged: snapshots have lost chunks",
	      l->store->bdev, (u64)sector);
	l->damaged++;
	for (i = 0; i < nr && !r && place + i < l->store->space.nr_chunks; i++)
		r = cow_space_take(&l->store->space, place + i);
	return r;
}

static int load_block(struct cow_loader *l, const struct cowsnap_segment *seg, u32 block,
		      void *data)
{
	u64 number = seg->first_block + block;
	sector_t sector = cowsnap_block_sector(l->geometry, seg, block);
	u64 place = seg->data + cowsnap_first_slot(l->geometry, seg, block);
	u32 i, nr = cowsnap_block_slots(l->geometry, number);
	const struct cowsnap_block_header *header = data + cowsnap_area_offset(number);
	const struct cowsnap_slot *slots = (const struct cowsnap_slot *)(header + 1);
	u64 sequence;
	int r = 0;

	if (!nr)
		return 0;
	if (!cow_meta_mend_block(l->meta, number, sector, data) ||
	    !header_makes_sense(header) || !block_makes_sense(l, slots, nr, place)) {
		cow_meta_note_used(l->meta, number);
		return block_is_lost(l, place, nr, sector);
	}
	if (memchr_inv(slots, 0, nr * sizeof(*slots)))
		cow_meta_note_used(l->meta, number);
	if (number < 2)
		cow_meta_keep_block(l->meta, number, data);
	sequence = le64_to_cpu(header->sequence);
	l->durable = max_t(u64, l->durable, le64_to_cpu(header->durable));
	if (sequence > l->last) {
		r = believe_suspects(l);
		l->last = sequence;
	}
	for (i = 0; i < nr && !r; i++)
		r = load_slot(l, &slots[i], place + i, sequence);
	return r;
}

static int load_segment(struct cow_loader *l, const struct cowsnap_segment *seg, u32 blocks)
{
	u32 bytes = l->geometry->block_bytes;
	u32 at_once = (COWSNAP_MAX_TABLE_SECTORS << SECTOR_SHIFT) / bytes;
	u32 block, i;
	int r = 0;

	for (block = 0; block < blocks && !r; block += at_once) {
		u32 nr = min(blocks - block, at_once);

		r = cow_meta_io(l->store->bdev, REQ_OP_READ | REQ_META,
				cowsnap_block_sector(l->geometry, seg, block), l->buffer,
				(size_t)nr * bytes);
		for (i = 0; i < nr && !r; i++)
			r = load_block(l, seg, block + i, l->buffer + (size_t)i * bytes);
		cond_resched();
	}
	return r;
}

static int load_tables(struct cow_loader *l)
{
	u32 blocks = l->store->space.blocks;
	struct cowsnap_segment seg;
	u64 index;
	int r = 0;

	for (index = 0; !r; index++) {
		cowsnap_get_segment(l->geometry, index, &seg);
		if (seg.first_block >= blocks)
			break;
		r = load_segment(l, &seg, min_t(u64, seg.blocks, blocks - seg.first_block));
	}
	return r;
}

/* ------------------------------------------------- the commit that may be unfinished */

static int suspect_is_right(struct cow_loader *l, const struct cow_suspect *s, bool *right)
{
	struct cow_store *store = l->store;
	size_t bytes = (size_t)store->chunk_sectors << SECTOR_SHIFT;
	sector_t sector = cow_chunk_to_sector(store, s->place);
	int r = cow_meta_io(store->bdev, REQ_OP_READ, sector, l->buffer, bytes);

	if (!r)
		*right = crc32c(cow_meta_seed(l->meta, sector), l->buffer, bytes) == s->crc;
	return r;
}

static int drop_suspect(struct cow_loader *l, const struct cow_suspect *s)
{
	int r = 0;

	cow_space_free(&l->store->space, s->place, 1);
	if (l->store->writable) {
		cow_meta_acquire(l->meta);
		r = cow_meta_write_slot(l->meta, s->place, COWSNAP_SLOT_FREE, 0);
		cow_meta_release(l->meta);
	}
	return r;
}

static int judge_suspects(struct cow_loader *l)
{
	u32 i, dropped = 0;
	int r = 0;

	if (l->last <= l->durable)
		return believe_suspects(l);
	if (l->nr_suspects && l->store->writable)
		r = blkdev_issue_flush(l->store->bdev);
	for (i = 0; i < l->nr_suspects && !r; i++) {
		struct cow_suspect *s = &l->suspects[i];
		bool right;

		r = suspect_is_right(l, s, &right);
		if (!r && right) {
			r = add_extent(l, &s->ext);
		} else if (!r) {
			r = drop_suspect(l, s);
			dropped++;
		}
	}
	if (dropped)
		DMINFO("store %pg: %u chunks of an unfinished commit dropped",
		       l->store->bdev, dropped);
	return r;
}

/* ----------------------------------------------------------------------- snapshots */

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
		r = cow_super_read_records(store, index, xa_to_value(place) - 1, error);
	}
	if (!r && le32_to_cpu(super->merge_id) != COWSNAP_NO_MERGE) {
		store->merging = cow_snap_find(store, le32_to_cpu(super->merge_id));
		store->merge_chunk = le64_to_cpu(super->merge_chunk);
		if (store->merging && store->merging->state != COW_SNAP_MERGING)
			store->merging = NULL;
	}
	cow_store_sort_snaps(store);
	/* A merge that is not named has not begun. */
	list_for_each_entry(snap, &store->snaps, node)
		if (snap->state == COW_SNAP_MERGING && snap != store->merging)
			snap->state = COW_SNAP_LIVE;
	return r;
}

static void dead_is_free(void *context, const struct cow_extent *ext)
{
	struct cow_store *store = context;

	cow_space_free(&store->space, ext->place, ext->nr);
}

/* Versions that nobody falls on: of snapshots deleted since they were made. */
static int forget_the_dead(struct cow_store *store)
{
	int r = cow_store_renew_live(store);
	struct cow_live *live = cow_store_kept_epochs(store);
	u64 chunk = 0;

	if (r || !live) {
		kvfree(live);
		return -ENOMEM;
	}
	do {
		chunk = cow_map_reclaim(&store->map, live, U32_MAX, chunk, dead_is_free,
					store);
		cond_resched();
	} while (chunk);
	kvfree(live);
	return 0;
}

/* ------------------------------------------------------------------------- the whole */

static bool super_fits(struct cow_store *store, const struct cowsnap_super *super,
		       char **error)
{
	u64 origin = bdev_nr_sectors(store->origin->bdev);
	u64 had = le64_to_cpu(super->origin_sectors);

	if (had > origin && !store->early)
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
	else if (le64_to_cpu(super->epoch) > COW_EPOCH_MAX)
		cow_fail(error, "Store %pg has had %llu snapshots, more than %u: make a new one",
			 store->bdev, le64_to_cpu(super->epoch), COW_EPOCH_MAX);
	else
		return true;
	return false;
}

static void take_super(struct cow_store *store, const struct cowsnap_super *super)
{
	struct cow_options *opt = &store->options;

	cow_meta_set_uuid(store->meta, super->uuid);
	store->super_sequence = le64_to_cpu(super->sequence);
	store->origin_sectors = le64_to_cpu(super->origin_sectors);
	store->epoch = le64_to_cpu(super->epoch);
	store->space.blocks = le32_to_cpu(super->blocks);
	store->damage_epoch = min_t(u64, le64_to_cpu(super->damage_epoch), COW_EPOCH_MAX);
	store->damaged_blocks = le32_to_cpu(super->damaged_blocks);
	opt->on_full = min_t(u32, le32_to_cpu(super->on_full), COWSNAP_FULL_POLICIES - 1);
	opt->wait_timeout = clamp_t(u32, le32_to_cpu(super->wait_timeout), 1, 119);
	opt->throttle = clamp_t(u32, le32_to_cpu(super->throttle), 1, 100);
	opt->low_water = min_t(u32, le32_to_cpu(super->low_water), 100);
	opt->copy_around = cow_around_size(le32_to_cpu(super->copy_around));
	opt->copy_ahead = min_t(u32, le32_to_cpu(super->copy_ahead), COW_AHEAD_MAX);
}

/* Copies from now on carry a later epoch than any snapshot that lost something. */
static void note_damage(struct cow_loader *l)
{
	struct cow_store *store = l->store;

	if (l->damaged > store->damaged_blocks)
		store->damage_epoch = store->epoch++;
	if (!l->damaged)
		store->damage_epoch = 0;
	store->damaged_blocks = l->damaged;
}

static int load_all(struct cow_loader *l, const struct cowsnap_super *super, char **error)
{
	struct cow_store *store = l->store;
	int r = load_tables(l);

	if (!r)
		r = judge_suspects(l);
	if (!r)
		r = flush_run(l);
	if (r) {
		cow_fail(error, "Store %pg cannot be read (error %d)", store->bdev, r);
		return r;
	}
	r = load_snapshots(l, super, error);
	if (r)
		return r;
	note_damage(l);
	cow_meta_set_sequence(l->meta, max(l->last, l->durable));
	r = forget_the_dead(store);
	if (!r && store->writable)
		r = cow_super_write(store, NULL);
	if (r)
		cow_fail(error, "Store %pg cannot be opened (error %d)", store->bdev, r);
	return r;
}

int cow_load(struct cow_store *store, const struct cowsnap_super *super, char **error)
{
	struct cow_loader l = {
		.store = store,
		.meta = store->meta,
		.geometry = cow_meta_geometry(store->meta),
		.durable = le64_to_cpu(super->durable),
	};
	int r = -EINVAL;

	if (!super_fits(store, super, error))
		return r;
	take_super(store, super);
	l.suspects = kvmalloc_array(SUSPECTS_MAX, sizeof(*l.suspects), GFP_KERNEL);
	l.buffer = kvmalloc(max_t(size_t, COWSNAP_MAX_TABLE_SECTORS, store->chunk_sectors) <<
			    SECTOR_SHIFT, GFP_KERNEL);
	if (!l.suspects || !l.buffer) {
		*error = "Out of memory reading the store";
		r = -ENOMEM;
	} else {
		store->map.alone = true;
		r = load_all(&l, super, error);
		store->map.alone = false;
	}
	kvfree(l.buffer);
	kvfree(l.suspects);
	return r;
}

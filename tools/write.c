// SPDX-License-Identifier: GPL-2.0-only
/* A store in memory goes to disk: superblocks, table blocks, blocks of records. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "store.h"

#define SECTOR 512

static int by_place(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return (x->place > y->place) - (x->place < y->place);
}

void store_sort_entries(struct store *s)
{
	if (s->nr_entries)
		qsort(s->entry, s->nr_entries, sizeof(*s->entry), by_place);
	s->nr_order = 0;
}

void store_dirty(struct store *s, u64 place)
{
	u64 nr = store_block_of(s, place);

	if (nr < s->max_blocks)
		s->block[nr].marks |= BLOCK_DIRTY;
}

/* ---- records ---- */

static void encode_record(const struct record *r, struct cowsnap_record *disk)
{
	memset(disk, 0, sizeof(*disk));
	if (r->state == COWSNAP_RECORD_FREE)
		return;
	disk->id = htole16(r->id);
	disk->state = r->state;
	disk->flags = htole32(r->flags);
	disk->epoch = htole64(r->epoch);
	disk->sectors = htole64(r->sectors);
	disk->time = htole64(r->time);
}

static int write_records_block(struct store *s, const struct records_chunk *c, u32 block)
{
	u8 data[COWSNAP_MAX_BLOCK_BYTES] = { 0 };
	struct cowsnap_block_header header = {
		.blocks = htole32(block),
		.sequence = htole64(c->sequence + 1),
		.durable = htole64(s->epoch),
	};
	struct cowsnap_record disk;
	u32 per = cowsnap_block_records(&s->geo);
	u32 first = COWSNAP_SUPER_RECORDS + c->number * records_per_chunk(s) + block * per;
	u64 sector = chunk_sector(s, c->place) + (u64)block * (s->geo.block_bytes / SECTOR);
	size_t i;

	for (i = 0; i < s->nr_records; i++) {
		if (s->record[i].number < first || s->record[i].number >= first + per)
			continue;
		encode_record(&s->record[i], &disk);
		memcpy(data + sizeof(header) +
		       (s->record[i].number - first) * sizeof(disk), &disk, sizeof(disk));
	}
	memcpy(data, &header, sizeof(header));
	header.crc = htole32(crc32c(cowsnap_seed(s->super.uuid, sector), data + 4,
				    s->geo.block_bytes - 4));
	memcpy(data, &header, sizeof(header));
	return io_write(s->io, sector * SECTOR, data, s->geo.block_bytes);
}

int store_write_records(struct store *s)
{
	struct records_chunk *c;
	size_t i;
	u32 block;

	for (i = 0; i < s->nr_records_chunks; i++) {
		c = &s->records[i];
		for (block = 0; block < s->geo.chunk_blocks; block++)
			if (c->marks[block] & BLOCK_DIRTY && write_records_block(s, c, block))
				return -1;
	}
	return io_sync(s->io);
}

/* ---- table blocks ---- */

/* A slot of a commit not known to have ended stays fresh: the kernel judges it. */
static void encode_slot(const struct store *s, const struct entry *e, struct cowsnap_slot *slot)
{
	cowsnap_slot_set(slot, e->chunk, e->epoch, e->kind, e->crc);
	cowsnap_slot_set_fresh(slot, exception_is_unsure(s, e));
}

/* Slots of the entries from @e on that this block describes. */
static size_t encode_slots(const struct store *s, u64 nr, size_t e, u8 *area)
{
	struct cowsnap_segment seg;
	struct cowsnap_slot slot;
	u32 index = store_find_block(s, nr, &seg);
	u64 first = seg.data + cowsnap_first_slot(&s->geo, &seg, index);
	u64 end = first + cowsnap_block_slots(&s->geo, nr);

	for (; e < s->nr_entries && s->entry[e].place < end; e++) {
		if (s->entry[e].place < first || s->entry[e].kind == COWSNAP_SLOT_FREE)
			continue;
		encode_slot(s, &s->entry[e], &slot);
		memcpy(area + sizeof(struct cowsnap_block_header) +
		       (s->entry[e].place - first) * sizeof(slot), &slot, sizeof(slot));
	}
	return e;
}

/* The superblock in front of the slots of the first two, or zeros if it cannot be read. */
static void read_super_area(struct store *s, u64 nr, u8 *data)
{
	u32 area = cowsnap_area_offset(nr);

	if (area && io_read(s->io, store_block_sector(s, nr) * SECTOR, data, area))
		memset(data, 0, area);
}

/*
 * As part of the last durable commit, so that nothing in it is doubted; or, if it is of one
 * that may not have ended, as part of that one still.
 */
static int write_block(struct store *s, u64 nr, const u8 *slots)
{
	u8 data[COWSNAP_MAX_BLOCK_BYTES] = { 0 };
	struct cowsnap_block_header header = {
		.blocks = htole32((u32)s->blocks),
		.durable = htole64(s->durable),
	};
	u64 offset = store_block_sector(s, nr) * SECTOR;
	u32 area = cowsnap_area_offset(nr);
	struct block *b = &s->block[nr];

	if (!(b->marks & BLOCK_UNSURE))
		b->sequence = s->durable;
	header.sequence = htole64(b->sequence);
	read_super_area(s, nr, data);
	memcpy(data + area, slots, s->geo.block_bytes - area);
	memcpy(data + area, &header, sizeof(header));
	header.crc = htole32(block_crc(s, nr, data));
	memcpy(data + area, &header, sizeof(header));
	b->marks &= BLOCK_UNSURE;
	if (io_write(s->io, offset, data, s->geo.block_bytes))
		return -1;
	/* A power cut may tear one superblock, not both. */
	return area ? io_sync(s->io) : 0;
}

int store_write_blocks(struct store *s)
{
	u8 slots[COWSNAP_MAX_BLOCK_BYTES];
	size_t e = 0;
	u64 nr;

	if (io_sync(s->io))
		return -1;
	for (nr = 0; nr < s->blocks; nr++) {
		if (!cowsnap_block_slots(&s->geo, nr))
			continue;
		memset(slots, 0, sizeof(slots));
		e = encode_slots(s, nr, e, slots);
		if (s->block[nr].marks & BLOCK_DIRTY && write_block(s, nr, slots))
			return -1;
	}
	return io_sync(s->io);
}

/* ---- superblocks ---- */

static void fill_super(struct store *s)
{
	struct cowsnap_super *super = &s->super;
	size_t i;

	super->sequence = htole64(++s->super_sequence);
	super->store_sectors = htole64(s->sectors);
	super->epoch = htole64(s->epoch);
	super->durable = htole64(s->durable);
	super->blocks = htole32((u32)s->blocks);
	memset(super->record, 0, sizeof(super->record));
	for (i = 0; i < s->nr_records; i++)
		if (s->record[i].number < COWSNAP_SUPER_RECORDS)
			encode_record(&s->record[i], &super->record[s->record[i].number]);
}

/*
 * A whole block at once, as the device does it anyway; the slots in it stay. Slots that
 * cannot be read are lost: their block counts as damaged, as it did before.
 */
static int write_super(struct store *s, int copy)
{
	u8 data[COWSNAP_MAX_BLOCK_BYTES] = { 0 };
	u64 sector = store_super_sector(s, copy);
	u32 skip = COWSNAP_SUPER_BYTES, len = s->geo.block_bytes - skip;

	if (len && io_read(s->io, sector * SECTOR + skip, data + skip, len))
		memset(data + skip, 0, len);
	s->super.crc = htole32(super_crc(&s->super, sector));
	memcpy(data, &s->super, sizeof(s->super));
	if (io_write(s->io, sector * SECTOR, data, s->geo.block_bytes))
		return -1;
	s->copy[copy].state = COPY_GOOD;
	s->copy[copy].mended = false;
	return io_sync(s->io);
}

/* First the copy that does not count, so that one that counts is always whole. */
int store_write_supers(struct store *s)
{
	int first = s->copy[0].state == COPY_GOOD && !s->copy[0].mended;

	fill_super(s);
	if (io_sync(s->io))
		return -1;
	return write_super(s, first) || write_super(s, !first) ? -1 : 0;
}

int store_write_unusable(struct store *s)
{
	u8 data[COWSNAP_MAX_BLOCK_BYTES] = { 0 };
	int copy;

	/* Its name without a checksum: not to be taken for a device that is free. */
	memcpy(data, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES);
	for (copy = 0; copy < 2; copy++)
		if (io_write(s->io, store_super_sector(s, copy) * SECTOR, data,
			     s->geo.block_bytes) || io_sync(s->io))
			return -1;
	return 0;
}

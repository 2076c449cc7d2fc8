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
	header.crc = htole32(crc32c(crc32c_seed(s->super.uuid, sector), data + 4,
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
			if (c->dirty[block] && write_records_block(s, c, block))
				return -1;
	}
	return io_sync(s->io);
}

/* ---- table blocks ---- */

static void encode_slot(const struct entry *e, struct cowsnap_slot *slot)
{
	slot->crc = htole32(e->crc);
	slot->chunk_low = htole32((u32)e->chunk);
	slot->epoch_low = htole32((u32)e->epoch);
	slot->chunk_high_kind = (e->chunk >> 32 & 0xf) | e->kind << 4;
	slot->epoch_high = e->epoch >> 32;
}

/* Slots of the entries from @e on that this block describes. Never fresh: their
 * data is on the disk, and a fresh one would be doubted again.
 */
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
		encode_slot(&s->entry[e], &slot);
		memcpy(area + sizeof(struct cowsnap_block_header) +
		       (s->entry[e].place - first) * sizeof(slot), &slot, sizeof(slot));
	}
	return e;
}

static int write_block(struct store *s, u64 nr, const u8 *slots, u64 sequence)
{
	u8 data[COWSNAP_MAX_BLOCK_BYTES] = { 0 };
	struct cowsnap_block_header header = {
		.blocks = htole32((u32)s->blocks),
		.sequence = htole64(sequence),
		.durable = htole64(s->durable),
	};
	u64 offset = store_block_sector(s, nr) * SECTOR;
	u32 area = cowsnap_area_offset(nr);

	/* In the first two stands a superblock, and it stays. */
	if (area && io_read(s->io, offset, data, area))
		return -1;
	memcpy(data + area, slots, s->geo.block_bytes - area);
	memcpy(data + area, &header, sizeof(header));
	header.crc = htole32(block_crc(s, nr, data));
	memcpy(data + area, &header, sizeof(header));
	s->block[nr].sequence = sequence;
	s->block[nr].marks = 0;
	return io_write(s->io, offset, data, s->geo.block_bytes);
}

/* All that are dirty, as part of commit @sequence. */
int store_write_blocks(struct store *s, u64 sequence)
{
	u8 slots[COWSNAP_MAX_BLOCK_BYTES];
	size_t e = 0;
	u64 nr;

	for (nr = 0; nr < s->blocks; nr++) {
		if (!cowsnap_block_slots(&s->geo, nr))
			continue;
		memset(slots, 0, sizeof(slots));
		e = encode_slots(s, nr, e, slots);
		if (s->block[nr].marks & BLOCK_DIRTY && write_block(s, nr, slots, sequence))
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

/* A whole block at once, as the device does it anyway; the slots in it stay. */
static int write_super(struct store *s, int copy)
{
	u8 data[COWSNAP_MAX_BLOCK_BYTES] = { 0 };
	u64 sector = store_super_sector(s, copy);

	if (io_read(s->io, sector * SECTOR, data, s->geo.block_bytes))
		return -1;
	s->super.crc = htole32(super_crc(&s->super, sector));
	memcpy(data, &s->super, sizeof(s->super));
	if (io_write(s->io, sector * SECTOR, data, s->geo.block_bytes))
		return -1;
	s->copy[copy].state = COPY_GOOD;
	return io_sync(s->io);
}

/* First the copy that does not count, so that one that counts is always whole. */
int store_write_supers(struct store *s)
{
	int first = s->copy[0].state == COPY_GOOD;

	fill_super(s);
	return write_super(s, first) || write_super(s, !first) ? -1 : 0;
}

int store_write_unusable(struct store *s)
{
	u8 data[COWSNAP_SUPER_BYTES] = { 0 };
	int copy;

	/* Its name without a checksum: not to be taken for a device that is free. */
	memcpy(data, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES);
	for (copy = 0; copy < 2; copy++)
		if (io_write(s->io, store_super_sector(s, copy) * SECTOR, data, sizeof(data)))
			return -1;
	return io_sync(s->io);
}

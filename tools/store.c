// SPDX-License-Identifier: GPL-2.0-only
/* Sizes and table blocks: worked out, read from a device, and judged. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "log.h"
#include "store.h"

#define SECTOR 512

/* Table blocks are read so much at a time. */
#define RUN_BYTES	(256U << 10)

static u64 min_u64(u64 a, u64 b)
{
	return a < b ? a : b;
}

u64 chunk_sector(const struct store *s, u64 place)
{
	return place << s->geo.chunk_shift;
}

static u64 count_blocks(const struct store *s)
{
	struct cowsnap_segment seg;
	u64 blocks;

	cowsnap_get_segment(&s->geo, cowsnap_find_segment(&s->geo, s->nr_chunks - 1), &seg);
	blocks = (s->nr_chunks - seg.start) * s->geo.chunk_blocks;
	return seg.first_block + min_u64(seg.blocks, blocks);
}

/* Does the device reach as far as the first data chunk of any segment? */
static bool has_room(const struct store *s)
{
	u32 i;

	for (i = 0; i < s->geo.nr_early; i++)
		if (cowsnap_segment_room(&s->geo.early[i], s->nr_chunks))
			return true;
	return false;
}

int store_set_geometry(struct store *s)
{
	if (cowsnap_geometry_init(&s->geo, le32toh(s->super.block_bytes),
				  le32toh(s->super.chunk_sectors)))
		return -1;
	s->sectors = s->io->bytes / SECTOR;
	s->nr_chunks = s->sectors >> s->geo.chunk_shift;
	if (!has_room(s))
		return -1;
	s->nr_blocks = count_blocks(s);
	s->nr_origin_chunks = (le64toh(s->super.origin_sectors) - 1 +
			       s->geo.chunk_sectors) >> s->geo.chunk_shift;
	return 0;
}

enum store_kind store_open(struct store *s, struct io *io)
{
	enum store_kind kind = store_identify(io);

	memset(s, 0, sizeof(*s));
	s->io = io;
	if (kind == STORE_NEW || kind == STORE_DM_SNAPSHOT || super_choose(s))
		return kind;
	if (super_newer_format(&s->super))
		return STORE_NEWER;
	if (store_set_geometry(s))
		return STORE_SHORT;
	s->super_sequence = s->copy[0].sequence > s->copy[1].sequence ?
			    s->copy[0].sequence : s->copy[1].sequence;
	return STORE_OK;
}

void store_close(struct store *s)
{
	records_free(s);
	free(s->block);
	free(s->entry);
	log_free(s);
	free(s->order);
	free(s->live);
	memset(s, 0, sizeof(*s));
}

u64 store_super_sector(const struct store *s, int copy)
{
	return copy ? s->geo.block_bytes / SECTOR : 0;
}

/* ---- where table blocks are ---- */

u32 store_find_block(const struct store *s, u64 nr, struct cowsnap_segment *seg)
{
	const struct cowsnap_geometry *g = &s->geo;
	const struct cowsnap_segment *last = &g->early[g->nr_early - 1];
	u32 low = 0, high = g->nr_early - 1;

	if (nr >= last->first_block) {
		cowsnap_get_segment(g, high + (nr - last->first_block) / last->blocks, seg);
		return nr - seg->first_block;
	}
	while (low < high) {
		u32 mid = (low + high + 1) / 2;

		if (g->early[mid].first_block <= nr)
			low = mid;
		else
			high = mid - 1;
	}
	*seg = g->early[low];
	return nr - seg->first_block;
}

u64 store_block_sector(const struct store *s, u64 nr)
{
	struct cowsnap_segment seg;
	u32 index = store_find_block(s, nr, &seg);

	return cowsnap_block_sector(&s->geo, &seg, index);
}

u64 store_block_of(const struct store *s, u64 place)
{
	struct cowsnap_segment seg;
	u32 block, index;

	cowsnap_get_segment(&s->geo, cowsnap_find_segment(&s->geo, place), &seg);
	if (place < seg.data || place >= seg.end)
		return ~0ULL;
	cowsnap_find_slot(&s->geo, &seg, place - seg.data, &block, &index);
	return seg.first_block + block;
}

/* ---- reading them ---- */

u32 block_crc(const struct store *s, u64 nr, const u8 *block)
{
	u32 skip = cowsnap_area_offset(nr) + sizeof(__le32);

	return crc32c(cowsnap_seed(s->super.uuid, store_block_sector(s, nr)),
		      block + skip, s->geo.block_bytes - skip);
}

int store_add_entry(struct store *s, const struct entry *e)
{
	if (s->nr_entries == s->max_entries) {
		size_t max = s->max_entries ? s->max_entries * 2 : 64;
		struct entry *entry = realloc(s->entry, max * sizeof(*entry));

		if (!entry)
			return -1;
		s->entry = entry;
		s->max_entries = max;
	}
	s->entry[s->nr_entries++] = *e;
	return 0;
}

int store_grow_blocks(struct store *s, u64 count)
{
	struct block *block;
	u64 max = s->max_blocks ? s->max_blocks : 256;

	if (count <= s->max_blocks)
		return 0;
	while (max < count)
		max *= 2;
	block = realloc(s->block, max * sizeof(*block));
	if (!block)
		return -1;
	memset(block + s->max_blocks, 0, (max - s->max_blocks) * sizeof(*block));
	s->block = block;
	s->max_blocks = max;
	return 0;
}

static void decode_slot(const struct cowsnap_slot *slot, struct entry *e)
{
	e->crc = cowsnap_slot_crc(slot);
	e->chunk = cowsnap_slot_chunk(slot);
	e->epoch = cowsnap_slot_epoch(slot);
	e->kind = cowsnap_slot_kind(slot);
	e->older = 0;
	e->until = e->epoch;
	e->marks = cowsnap_slot_is_fresh(slot) ? ENTRY_FRESH : 0;
}

/* What no slot can say, whatever else is on the store. */
static u16 nonsense(const struct store *s, const struct entry *e)
{
	u16 marks = 0;

	if (e->place >= s->nr_chunks)
		marks |= ENTRY_BEYOND;
	if (e->kind >= COWSNAP_SLOT_KINDS || (exception_is_current(e) && !current_fits(s, e)) ||
	    (!s->bad_seal && cowsnap_seal_has(&s->geo, &s->super, e->place)))
		return marks | ENTRY_BAD_KIND;
	if (e->kind == COWSNAP_SLOT_RECORDS)
		return e->chunk < records_max_chunks(s) ? marks : marks | ENTRY_BAD_CHUNK;
	if (!e->epoch || e->epoch > COWSNAP_MAX_EPOCH)
		marks |= ENTRY_BAD_EPOCH;
	if (e->chunk >= (e->kind == COWSNAP_SLOT_TRACK ? COWSNAP_TRACK_PIECES_MAX :
			 s->nr_origin_chunks))
		marks |= ENTRY_BAD_CHUNK;
	return marks;
}

/* Slot @i of block @nr. False if it is free. */
static bool read_slot(const struct store *s, u64 nr, const u8 *area, u32 i, struct entry *e)
{
	struct cowsnap_segment seg;
	struct cowsnap_slot slot;
	u32 index = store_find_block(s, nr, &seg);

	memcpy(&slot, area + sizeof(struct cowsnap_block_header) + i * sizeof(slot),
	       sizeof(slot));
	decode_slot(&slot, e);
	e->place = seg.data + cowsnap_first_slot(&s->geo, &seg, index) + i;
	if (e->kind == COWSNAP_SLOT_FREE)
		return false;
	/* Its data was durable before it. */
	if (exception_is_current(e))
		e->marks &= ~ENTRY_FRESH;
	e->marks |= nonsense(s, e);
	return true;
}

static int read_slots(struct store *s, u64 nr, const u8 *area)
{
	struct entry e;
	u32 i;

	for (i = 0; i < cowsnap_block_slots(&s->geo, nr); i++)
		if (read_slot(s, nr, area, i, &e) && store_add_entry(s, &e))
			return -1;
	return 0;
}

/*
 * A right checksum is an accident once in 2^32 times, one that is right but for a bit
 * once in 2^17: not enough to believe just anything.
 */
static bool makes_sense(const struct store *s, u64 nr, const u8 *area)
{
	struct entry e;
	u32 i;

	for (i = 0; i < cowsnap_block_slots(&s->geo, nr); i++)
		if (read_slot(s, nr, area, i, &e) && e.marks & ~ENTRY_FRESH)
			return false;
	return true;
}

/* Numbers of commits count from 1: nobody gets that far, and the kernel takes no such block. */
static bool header_makes_sense(const struct cowsnap_block_header *header)
{
	return le64toh(header->sequence) < SEQUENCE_LIMIT &&
	       le64toh(header->durable) < SEQUENCE_LIMIT;
}

/* What of block @nr is table, at its place in @data. The superblock is not read with it. */
static int read_area(struct store *s, u64 nr, u8 *data)
{
	u32 area = cowsnap_area_offset(nr);

	return io_read(s->io, store_block_sector(s, nr) * SECTOR + area, data + area,
		       s->geo.block_bytes - area);
}

bool store_block_sequence(struct store *s, u64 nr, u64 *sequence)
{
	u8 data[COWSNAP_MAX_BLOCK_BYTES];
	struct cowsnap_block_header header;

	if (!cowsnap_block_slots(&s->geo, nr) || read_area(s, nr, data))
		return false;
	memcpy(&header, data + cowsnap_area_offset(nr), sizeof(header));
	*sequence = le64toh(header.sequence);
	return le32toh(header.crc) == block_crc(s, nr, data);
}

bool store_block_right(struct store *s, u64 nr)
{
	u64 sequence;

	return store_block_sequence(s, nr, &sequence);
}

/* A right checksum, or one that one wrong bit explains. */
static u8 judge_block(struct store *s, u64 nr, u8 *data)
{
	struct cowsnap_block_header header;
	u32 area = cowsnap_area_offset(nr), skip = area + sizeof(__le32), difference;
	u8 marks = 0;

	memcpy(&header, data + area, sizeof(header));
	difference = le32toh(header.crc) ^ block_crc(s, nr, data);
	if (difference) {
		if (!crc32c_mend(data + skip, s->geo.block_bytes - skip, difference) ||
		    !makes_sense(s, nr, data + area))
			return BLOCK_BAD;
		memcpy(&header, data + area, sizeof(header));
		marks = BLOCK_MENDED;
	}
	return header_makes_sense(&header) ? marks : BLOCK_BAD;
}

/* Header and slots of a block in @data; -1 only without memory. */
static int take_block(struct store *s, u64 nr, u8 *data, struct block *b)
{
	struct cowsnap_block_header header;
	u32 area = cowsnap_area_offset(nr);

	b->marks = judge_block(s, nr, data);
	if (b->marks & BLOCK_BAD)
		return 0;
	memcpy(&header, data + area, sizeof(header));
	b->sequence = le64toh(header.sequence);
	if (le64toh(header.durable) > s->durable)
		s->durable = le64toh(header.durable);
	if (b->sequence > s->sequence)
		s->sequence = b->sequence;
	return read_slots(s, nr, data + area);
}

/* @whole: it has been read. -1 only without memory. */
static int load_block(struct store *s, u64 nr, u8 *data, bool whole)
{
	struct block *b;

	if (store_grow_blocks(s, nr + 1))
		return -1;
	b = &s->block[nr];
	memset(b, 0, sizeof(*b));
	if (!cowsnap_block_slots(&s->geo, nr))
		return 0;	/* there is a superblock, and nothing else */
	if (!whole && read_area(s, nr, data)) {
		b->marks = BLOCK_BAD | BLOCK_UNREADABLE;
		return 0;
	}
	return take_block(s, nr, data, b);
}

/* How many blocks from @nr on stand side by side, at most as many as are read at once. */
static u64 run_of_blocks(const struct store *s, u64 nr, u64 end)
{
	struct cowsnap_segment seg;
	u32 index = store_find_block(s, nr, &seg);
	u64 run = min_u64(seg.blocks - index, RUN_BYTES / s->geo.block_bytes);

	return min_u64(run, end - nr);
}

/* In large reads; a read that fails is repeated block by block. -1: no memory. */
static int load_run(struct store *s, u64 run, u8 *data)
{
	u32 bytes = s->geo.block_bytes;
	bool whole = !io_read(s->io, store_block_sector(s, s->nr_read) * SECTOR, data,
			      run * bytes);
	u64 i;

	for (i = 0; i < run; i++, s->nr_read++)
		if (load_block(s, s->nr_read, data + i * bytes, whole))
			return -1;
	return 0;
}

/* @end is a count from the disk: memory is taken as blocks are read, not before. */
static int read_blocks(struct store *s, u64 end)
{
	u8 *data = malloc(RUN_BYTES);
	int r = data ? 0 : -1;

	while (!r && s->nr_read < end)
		r = load_run(s, run_of_blocks(s, s->nr_read, end), data);
	free(data);
	return r;
}

static int scan_blocks(struct store *s)
{
	u64 nr;

	s->durable = le64toh(s->super.durable);
	s->blocks = le32toh(s->super.blocks);
	if (read_blocks(s, min_u64(s->blocks, s->nr_blocks)))
		return -1;
	if (s->durable > s->sequence)
		s->sequence = s->durable;
	for (nr = 0; nr < s->nr_read; nr++)
		if (!(s->block[nr].marks & BLOCK_BAD) && s->block[nr].sequence > s->durable)
			s->block[nr].marks |= BLOCK_UNSURE;
	return 0;
}

int store_load(struct store *s)
{
	s->epoch = le64toh(s->super.epoch);
	s->bad_epoch = s->epoch > COWSNAP_MAX_EPOCH;
	if (s->bad_epoch)
		s->epoch = 0;
	s->bad_seal = !cowsnap_seal_fits(&s->geo, &s->super, s->nr_chunks);
	if (log_read(s) || scan_blocks(s) || log_merge(s) || exceptions_doubt(s) || records_load(s) ||
	    records_judge(s))
		return -1;
	return exceptions_judge(s);
}

// SPDX-License-Identifier: GPL-2.0-only
/* Superblocks and table blocks: read from a device and judged. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "store.h"

#define SECTOR 512

static u64 min_u64(u64 a, u64 b)
{
	return a < b ? a : b;
}

u64 chunk_sector(const struct store *s, u64 place)
{
	return place << s->geo.chunk_shift;
}

/* ---- superblocks ---- */

u32 super_crc(const struct cowsnap_super *super, u64 sector)
{
	struct cowsnap_super copy = *super;

	copy.crc = 0;
	return crc32c(crc32c_seed(super->uuid, sector), &copy, sizeof(copy));
}

static bool super_whole(const struct cowsnap_super *super, u64 sector)
{
	return !memcmp(super->magic, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES) &&
	       le32toh(super->crc) == super_crc(super, sector);
}

static bool power_of_two(u32 n)
{
	return n && !(n & (n - 1));
}

/* Sizes that a store can be worked out from. */
bool super_sane(const struct cowsnap_super *super)
{
	u32 block = le32toh(super->block_bytes), chunk = le32toh(super->chunk_sectors);
	u64 origin = le64toh(super->origin_sectors);

	return power_of_two(block) && block >= COWSNAP_MIN_BLOCK_BYTES &&
	       block <= COWSNAP_MAX_BLOCK_BYTES && power_of_two(chunk) &&
	       chunk <= COWSNAP_MAX_CHUNK_SECTORS && block <= chunk * SECTOR &&
	       origin && (origin - 1) / chunk < 1ULL << COWSNAP_CHUNK_BITS &&
	       le64toh(super->epoch) < 1ULL << COWSNAP_EPOCH_BITS;
}

static bool same_store(const struct cowsnap_super *a, const struct cowsnap_super *b)
{
	return !memcmp(a->uuid, b->uuid, sizeof(a->uuid)) &&
	       a->block_bytes == b->block_bytes && a->chunk_sectors == b->chunk_sectors;
}

/* A superblock as it stands at @sector, and what is to be thought of it. */
static enum copy_state read_super(struct io *io, u64 sector, struct cowsnap_super *super)
{
	if (io_read(io, sector * SECTOR, super, sizeof(*super)) ||
	    !super_whole(super, sector))
		return COPY_BAD;
	if (le32toh(super->version) == COWSNAP_FORMAT && !super_sane(super))
		return COPY_NOT_SANE;
	return COPY_GOOD;
}

/* Without copy A nothing says where B stands. */
static enum copy_state find_super_b(struct io *io, struct cowsnap_super *super)
{
	u32 bytes;

	for (bytes = COWSNAP_MIN_BLOCK_BYTES; bytes <= COWSNAP_MAX_BLOCK_BYTES; bytes *= 2)
		if (read_super(io, bytes / SECTOR, super) == COPY_GOOD &&
		    le32toh(super->block_bytes) == bytes)
			return COPY_GOOD;
	return COPY_BAD;
}

static bool newer_format(const struct cowsnap_super *super)
{
	return le32toh(super->version) != COWSNAP_FORMAT ||
	       le64toh(super->incompat) & ~COWSNAP_INCOMPAT_KNOWN;
}

static bool all_zero(const u8 *data, size_t len)
{
	return !data[0] && !memcmp(data, data + 1, len - 1);
}

enum store_kind store_identify(struct io *io)
{
	u8 head[4096];
	u32 bytes;

	if (io->bytes < sizeof(head))
		return STORE_SHORT;
	if (io_read(io, 0, head, sizeof(head)))
		return STORE_UNREADABLE;
	if (all_zero(head, sizeof(head)))
		return STORE_NEW;
	if (!memcmp(head, "SnAp", 4))
		return STORE_DM_SNAPSHOT;
	if (!memcmp(head, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES))
		return STORE_DAMAGED;
	/* Copy B alone may still have its name. */
	for (bytes = COWSNAP_MIN_BLOCK_BYTES; bytes < sizeof(head); bytes *= 2)
		if (!memcmp(head + bytes, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES))
			return STORE_DAMAGED;
	return STORE_FOREIGN;
}

/* Choose between the two copies. Without copy A, copy B may be old: see repair. */
static int choose_super(struct store *s)
{
	struct cowsnap_super a, b;
	enum copy_state *state_a = &s->copy[0].state, *state_b = &s->copy[1].state;
	u64 seq_a, seq_b;

	*state_a = read_super(s->io, 0, &a);
	if (*state_a != COPY_GOOD) {
		*state_b = find_super_b(s->io, &b);
		s->super = b;
		s->copy[1].sequence = le64toh(b.sequence);
		return *state_b == COPY_GOOD ? 0 : -1;
	}
	s->super = a;
	s->copy[0].sequence = le64toh(a.sequence);
	if (newer_format(&a))
		return 0;
	*state_b = read_super(s->io, le32toh(a.block_bytes) / SECTOR, &b);
	if (*state_b != COPY_GOOD)
		return 0;
	if (!same_store(&a, &b)) {
		*state_b = COPY_OTHER;
		return 0;
	}
	s->copy[1].sequence = le64toh(b.sequence);
	seq_a = s->copy[0].sequence;
	seq_b = s->copy[1].sequence;
	if (seq_a < seq_b)
		s->super = b;
	*state_a = seq_a < seq_b ? COPY_OLD : COPY_GOOD;
	*state_b = seq_b < seq_a ? COPY_OLD : COPY_GOOD;
	return 0;
}

static u64 count_blocks(const struct store *s)
{
	struct cowsnap_segment seg;
	u64 blocks;

	cowsnap_get_segment(&s->geo, cowsnap_find_segment(&s->geo, s->nr_chunks - 1), &seg);
	blocks = (s->nr_chunks - seg.start) * s->geo.chunk_blocks;
	return seg.first_block + min_u64(seg.blocks, blocks);
}

int store_set_geometry(struct store *s)
{
	if (cowsnap_geometry_init(&s->geo, le32toh(s->super.block_bytes),
				  le32toh(s->super.chunk_sectors)))
		return -1;
	s->sectors = s->io->bytes / SECTOR;
	s->nr_chunks = s->sectors >> s->geo.chunk_shift;
	if (s->nr_chunks < s->geo.early[0].data)
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
	if (kind != STORE_DAMAGED && kind != STORE_FOREIGN)
		return kind;
	if (choose_super(s))
		return kind;
	if (newer_format(&s->super))
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

	return crc32c(crc32c_seed(s->super.uuid, store_block_sector(s, nr)),
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
	u8 bits = slot->chunk_high_kind;

	e->crc = le32toh(slot->crc);
	e->chunk = le32toh(slot->chunk_low) | (u64)(bits & 0xf) << 32;
	e->epoch = le32toh(slot->epoch_low) | (u64)slot->epoch_high << 32;
	e->kind = bits >> 4 & 7;
	e->older = 0;
	e->marks = bits & COWSNAP_SLOT_FRESH ? ENTRY_FRESH : 0;
}

/* What no slot can say, whatever else is on the store. */
static u16 nonsense(const struct store *s, const struct entry *e)
{
	u16 marks = 0;

	if (e->place >= s->nr_chunks)
		marks |= ENTRY_BEYOND;
	if (e->kind >= COWSNAP_SLOT_KINDS)
		return marks | ENTRY_BAD_KIND;
	if (e->kind == COWSNAP_SLOT_RECORDS)
		return e->chunk < records_max_chunks(s) ? marks : marks | ENTRY_BAD_CHUNK;
	if (!e->epoch)
		marks |= ENTRY_BAD_EPOCH;
	if (e->chunk >= s->nr_origin_chunks)
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

/*
 * The crc of a block that differs in one bit differs by a value that says which one.
 * Two bits, or more, are damage. The first four bytes are the crc itself.
 */
static bool flip_back(u8 *area, size_t len, u32 difference)
{
	const u8 zero = 0;
	u32 value[8];
	u8 bit;

	if (power_of_two(difference))
		return true;
	for (bit = 0; bit < 8; bit++)
		value[bit] = crc32c(0, &(const u8){ 1U << bit }, 1);
	while (len-- > sizeof(__le32)) {
		for (bit = 0; bit < 8; bit++) {
			if (value[bit] == difference) {
				area[len] ^= 1U << bit;
				return true;
			}
			value[bit] = crc32c(value[bit], &zero, 1);
		}
	}
	return false;
}

/* Its header and slots; -1 only without memory. */
static int read_block(struct store *s, u64 nr, struct block *b)
{
	u8 data[COWSNAP_MAX_BLOCK_BYTES];
	struct cowsnap_block_header header;
	u32 area = cowsnap_area_offset(nr);

	memset(b, 0, sizeof(*b));
	if (!cowsnap_block_slots(&s->geo, nr))
		return 0;	/* there is a superblock, and nothing else */
	if (io_read(s->io, store_block_sector(s, nr) * SECTOR, data, s->geo.block_bytes)) {
		b->marks = BLOCK_BAD;
		return 0;
	}
	memcpy(&header, data + area, sizeof(header));
	if (le32toh(header.crc) != block_crc(s, nr, data)) {
		b->marks = BLOCK_MENDED;
		if (!flip_back(data + area, s->geo.block_bytes - area,
			       le32toh(header.crc) ^ block_crc(s, nr, data)) ||
		    !makes_sense(s, nr, data + area)) {
			b->marks = BLOCK_BAD;
			return 0;
		}
		memcpy(&header, data + area, sizeof(header));
	}
	b->sequence = le64toh(header.sequence);
	if (le64toh(header.durable) > s->durable)
		s->durable = le64toh(header.durable);
	if (b->sequence > s->sequence)
		s->sequence = b->sequence;
	return read_slots(s, nr, data + area);
}

/* @end is a count from the disk: memory is taken as blocks are read, not before. */
static int read_blocks(struct store *s, u64 end)
{
	for (; s->nr_read < end; s->nr_read++) {
		if (store_grow_blocks(s, s->nr_read + 1) ||
		    read_block(s, s->nr_read, &s->block[s->nr_read]))
			return -1;
	}
	return 0;
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
	if (scan_blocks(s) || exceptions_drop_unfinished(s) || records_load(s) ||
	    records_judge(s))
		return -1;
	return exceptions_judge(s);
}

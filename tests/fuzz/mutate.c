// SPDX-License-Identifier: GPL-2.0-only
/*
 * Damage to a store. Where something stands is worked out from the superblock as
 * far as one is whole; without one there are still bytes to be changed.
 */
#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mutate.h"

#define SECTOR 512

struct mutation {
	struct rng *r;
	struct image im;
	mutate_say *say;
};

static void __attribute__((format(printf, 2, 3))) say(struct mutation *m, const char *format, ...)
{
	char text[160];
	va_list args;

	if (!m->say)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	m->say(text);
}

static bool maybe(struct mutation *m)
{
	return rng_next(m->r) & 1;
}

/* A number that is just wrong, or wrong by far. */
static u64 odd_number(struct mutation *m, u64 was)
{
	switch (rng_below(m->r, 9)) {
	case 0:
		return 0;
	case 1:
		return was + 1;
	case 2:
		return was - 1;
	case 3:
		return ~0ULL;
	case 4:
		return 1ULL << rng_below(m->r, 64);
	case 5:
		return was ^ 1ULL << rng_below(m->r, 64);
	case 6:
		return (1ULL << rng_below(m->r, 64)) - 1;
	case 7:
		return rng_below(m->r, 100);
	default:
		return rng_next(m->r);
	}
}

/* ---- where ---- */

static u64 any_block(struct mutation *m)
{
	return rng_below(m->r, m->im.blocks);
}

static u64 any_data(struct mutation *m)
{
	u64 place, i;

	for (i = 0; i < 50; i++) {
		place = rng_below(m->r, image_chunks(&m->im));
		if (image_is_data(&m->im, place))
			return place;
	}
	return m->im.geo.early[0].data;
}

/* A slot in use if one is soon found: those that are free are many. */
static struct cowsnap_slot *any_slot(struct mutation *m, u64 *nr, u64 *place)
{
	struct cowsnap_slot *slot = NULL;
	int i;

	for (i = 0; i < 50; i++) {
		*place = any_data(m);
		if (i < 45)
			*place = rng_below(m->r, *place + 1);
		slot = image_slot(&m->im, *place, nr);
		if (slot && *nr < m->im.blocks && cowsnap_slot_kind(slot))
			return slot;
	}
	return slot && *nr < m->im.blocks ? slot : NULL;
}

/* Records: in the superblock, or in a chunk that a slot tells of. */
static u8 *any_records(struct mutation *m, size_t *offset)
{
	struct cowsnap_slot *slot;
	u64 place, nr;
	size_t block;
	int i;

	for (i = 0; i < 20; i++) {
		slot = any_slot(m, &nr, &place);
		if (!slot || cowsnap_slot_kind(slot) != COWSNAP_SLOT_RECORDS)
			continue;
		block = rng_below(m->r, m->im.geo.chunk_blocks);
		*offset = (place << m->im.geo.chunk_shift) * SECTOR +
			  block * m->im.geo.block_bytes;
		return m->im.data + *offset;
	}
	return NULL;
}

/* A record of the log: the chunk that it stands in, or 0. */
static u64 any_log_record(struct mutation *m)
{
	const struct cowsnap_super *super = image_super(&m->im, 0);
	const struct cowsnap_zone *zone = &super->zone[rng_below(m->r, COWSNAP_ZONES)];
	u64 chunk = cowsnap_zone_start(zone), end = cowsnap_zone_end(zone), found = 0, n = 0, at;

	if (!cowsnap_zones_fit(&m->im.geo, super->zone, image_chunks(&m->im), m->im.blocks) ||
	    !cowsnap_zone_in_use(zone))
		return 0;
	for (; chunk + 1 < end; chunk++) {
		const struct cowsnap_log_record *r;

		at = cowsnap_log_sector(&m->im.geo, chunk);
		r = (const void *)(m->im.data + at * SECTOR);
		if (le64toh(r->mark) == cowsnap_log_mark(m->im.uuid, at,
							 cowsnap_zone_series(zone)) &&
		    !rng_below(m->r, ++n))
			found = chunk;
	}
	return found;
}

/* ---- what a disk does ---- */

static void flip_bits(struct mutation *m, size_t from, size_t len, const char *what)
{
	u64 n = rng_below(m->r, 2) ? 1 : 1 + rng_below(m->r, 8), i;
	size_t at = from;

	/* What an earlier mutation has forged may say that there is more than there is. */
	if (from >= m->im.bytes)
		return;
	if (len > m->im.bytes - from)
		len = m->im.bytes - from;
	for (i = 0; i < n; i++) {
		at = from + rng_below(m->r, len);
		m->im.data[at] ^= 1U << rng_below(m->r, 8);
	}
	say(m, "%llu bits flipped in %s, the last in byte %zu", (unsigned long long)n, what, at);
}

static void flip_somewhere(struct mutation *m)
{
	struct image *im = &m->im;
	size_t offset, len = im->geo.chunk_sectors * SECTOR;
	u64 chunk;

	switch (rng_below(m->r, 6)) {
	case 4:
		chunk = any_log_record(m);
		if (chunk)
			flip_bits(m, cowsnap_log_sector(&im->geo, chunk) * SECTOR,
				  im->geo.block_bytes, "a record of the log");
		break;
	case 0:
		flip_bits(m, 0, SECTOR, "superblock A");
		break;
	case 1:
		flip_bits(m, im->geo.block_bytes, SECTOR, "superblock B");
		break;
	case 2:
		flip_bits(m, image_block_offset(im, any_block(m)), im->geo.block_bytes,
			  "a table block");
		break;
	case 3:
		flip_bits(m, (any_data(m) << im->geo.chunk_shift) * SECTOR, len, "data");
		break;
	default:
		if (any_records(m, &offset))
			flip_bits(m, offset, im->geo.block_bytes, "records");
		break;
	}
}

/* A sector that was not written, or with something else in it. */
static void tear(struct mutation *m)
{
	size_t at = rng_below(m->r, m->im.bytes / SECTOR) * SECTOR, i;
	size_t from = rng_below(m->r, m->im.bytes / SECTOR) * SECTOR;

	if (maybe(m))
		at = image_block_offset(&m->im, any_block(m)) +
		     rng_below(m->r, m->im.geo.block_bytes / SECTOR) * SECTOR;
	switch (rng_below(m->r, 3)) {
	case 0:
		memset(m->im.data + at, 0, SECTOR);
		break;
	case 1:
		memmove(m->im.data + at, m->im.data + from, SECTOR);
		break;
	default:
		for (i = 0; i < SECTOR; i++)
			m->im.data[at + i] = rng_next(m->r);
		break;
	}
	say(m, "sector %zu torn", at / SECTOR);
}

static void swap_blocks(struct mutation *m)
{
	size_t len = m->im.geo.block_bytes;
	size_t a = image_block_offset(&m->im, any_block(m));
	size_t b = maybe(m) ? image_block_offset(&m->im, any_block(m)) :
		   rng_below(m->r, m->im.bytes / len) * len;
	u8 keep[COWSNAP_MAX_BLOCK_BYTES];

	memcpy(keep, m->im.data + a, len);
	memmove(m->im.data + a, m->im.data + b, len);
	memcpy(m->im.data + b, keep, len);
	say(m, "blocks at sectors %zu and %zu swapped", a / SECTOR, b / SECTOR);
}

/* ---- what an enemy does ---- */

/* Integers of @width at @at, and what they become. */
static u64 forge(struct mutation *m, u8 *at, size_t width)
{
	u64 value = 0;

	memcpy(&value, at, width);
	value = htole64(odd_number(m, le64toh(value)));
	memcpy(at, &value, width);
	return le64toh(value);
}

static const struct {
	const char *name;
	u16 offset, width;
} super_fields[] = {
	{ "magic", 0, 8 }, { "version", 20, 4 }, { "compat", 24, 8 },
	{ "ro_compat", 32, 8 }, { "incompat", 40, 8 }, { "uuid", 48, 8 },
	{ "sequence", 64, 8 }, { "block_bytes", 72, 4 }, { "chunk_sectors", 76, 4 },
	{ "origin_sectors", 80, 8 }, { "store_sectors", 88, 8 }, { "epoch", 96, 8 },
	{ "durable", 104, 8 }, { "blocks", 112, 4 }, { "merge_id", 116, 4 },
	{ "merge_chunk", 120, 8 }, { "on_full", 128, 4 }, { "throttle", 136, 4 },
	{ "low_water", 140, 4 }, { "damage_epoch", 152, 8 }, { "damaged_blocks", 160, 4 },
	{ "damage_mark", 164, 4 },
	{ "invalid_state", 176, 1 }, { "invalid_epoch", 168, 8 },
	{ "log", 180, 4 }, { "lost_epoch", 232, 8 },
	{ "zone A's start", 184, 8 }, { "zone A's series", 192, 8 },
	{ "zone A's chunks", 200, 4 }, { "zone A's durable", 204, 4 },
	{ "zone B's start", 208, 8 }, { "zone B's series", 216, 8 },
	{ "zone B's chunks", 224, 4 }, { "zone B's durable", 228, 4 },
	{ "seal_start", 240, 8 }, { "seal_generation", 248, 4 }, { "seal_state", 252, 1 },
	{ "redirect", 177, 1 },
};

static void forge_super(struct mutation *m)
{
	u64 i = rng_below(m->r, sizeof(super_fields) / sizeof(*super_fields));
	bool both = maybe(m), seal = maybe(m);
	int copy = rng_below(m->r, 2);
	u8 *super = (u8 *)image_super(&m->im, copy);
	u64 value = forge(m, super + super_fields[i].offset, super_fields[i].width);

	if (both)
		memcpy(image_super(&m->im, !copy), super, SECTOR);
	if (seal) {
		image_seal_super(&m->im, copy);
		if (both)
			image_seal_super(&m->im, !copy);
	}
	say(m, "superblock %s%s: %s becomes %llu%s", copy ? "B" : "A", both ? " and the other" : "",
	    super_fields[i].name, (unsigned long long)value, seal ? ", checksum right" : "");
}

static void forge_header(struct mutation *m)
{
	u64 nr = any_block(m);
	struct cowsnap_block_header *header = image_block_header(&m->im, nr);
	bool seal = maybe(m);
	u64 value;

	if (!header)
		return;
	switch (rng_below(m->r, 3)) {
	case 0:
		value = forge(m, (u8 *)&header->blocks, 4);
		break;
	case 1:
		value = forge(m, (u8 *)&header->sequence, 8);
		break;
	default:
		value = forge(m, (u8 *)&header->durable, 8);
		break;
	}
	if (seal)
		image_seal_block(&m->im, nr);
	say(m, "table block %llu: a number of its header becomes %llu%s",
	    (unsigned long long)nr, (unsigned long long)value, seal ? ", checksum right" : "");
}

static void forge_slot(struct mutation *m)
{
	u64 nr, place;
	struct cowsnap_slot *slot = any_slot(m, &nr, &place);
	bool seal = maybe(m);

	if (!slot)
		return;
	switch (rng_below(m->r, 7)) {
	case 0:
		forge(m, (u8 *)&slot->crc, 4);
		break;
	case 1:
		forge(m, (u8 *)&slot->chunk_low, 4);
		break;
	case 2:
		forge(m, (u8 *)&slot->epoch_low, 4);
		break;
	case 3:
		slot->chunk_wide = rng_next(m->r);
		break;
	case 4:
		slot->chunk_high_kind ^= COWSNAP_SLOT_FRESH;
		break;
	case 5:
		slot->epoch_low ^= htole32(COWSNAP_SLOT_ZEROES);
		break;
	default:
		slot->chunk_high_kind = rng_next(m->r);
		break;
	}
	if (seal)
		image_seal_block(&m->im, nr);
	say(m, "slot of chunk %llu of the store: changed%s", (unsigned long long)place,
	    seal ? ", checksum right" : "");
}

/* Two slots for one chunk. */
static void double_slot(struct mutation *m)
{
	u64 nr, place, other_nr, other_place;
	struct cowsnap_slot *slot = any_slot(m, &nr, &place);
	struct cowsnap_slot *other = any_slot(m, &other_nr, &other_place);

	if (!slot || !other || slot == other)
		return;
	*other = *slot;
	if (cowsnap_slot_kind(slot) == COWSNAP_SLOT_COPIED && maybe(m)) {
		memcpy(m->im.data + (other_place << m->im.geo.chunk_shift) * SECTOR,
		       m->im.data + (place << m->im.geo.chunk_shift) * SECTOR,
		       m->im.geo.chunk_sectors * SECTOR);
		other->crc = htole32(image_data_crc(&m->im, other_place));
	}
	image_seal_block(&m->im, other_nr);
	say(m, "slot of chunk %llu of the store stands at chunk %llu too",
	    (unsigned long long)place, (unsigned long long)other_place);
}

static void forge_one_record(struct mutation *m, struct cowsnap_record *rec)
{
	switch (rng_below(m->r, 4)) {
	case 0:
		rec->id = htole16(rng_below(m->r, 10));
		break;
	case 1:
		rec->state = maybe(m) ? rng_next(m->r) :
			     rng_below(m->r, COWSNAP_RECORD_STATES);
		break;
	case 2:
		forge(m, (u8 *)&rec->epoch, 8);
		break;
	default:
		forge(m, (u8 *)&rec->sectors, 8);
		break;
	}
}

static void forge_record(struct mutation *m)
{
	struct cowsnap_block_header *header;
	size_t offset, per = cowsnap_block_records(&m->im.geo);
	bool seal = maybe(m);

	header = maybe(m) ? (void *)any_records(m, &offset) : NULL;
	if (!header) {
		forge_one_record(m, image_super(&m->im, 0)->record + rng_below(m->r, 8));
		*image_super(&m->im, 1) = *image_super(&m->im, 0);
		if (seal) {
			image_seal_super(&m->im, 0);
			image_seal_super(&m->im, 1);
		}
		say(m, "a record in the superblocks: changed%s", seal ? ", checksum right" : "");
		return;
	}
	if (rng_below(m->r, 4))
		forge_one_record(m, (struct cowsnap_record *)(header + 1) + rng_below(m->r, per));
	else
		forge(m, (u8 *)header + 4 * (1 + rng_below(m->r, 5)), 4);
	if (seal)
		image_seal_records(&m->im, offset);
	say(m, "a record at sector %zu: changed%s", offset / SECTOR,
	    seal ? ", checksum right" : "");
}

static void forge_log_record(struct mutation *m)
{
	u64 chunk = any_log_record(m);
	struct cowsnap_log_record *r;
	struct cowsnap_slot *slot;
	bool seal = maybe(m);

	if (!chunk)
		return;
	r = (void *)(m->im.data + cowsnap_log_sector(&m->im.geo, chunk) * SECTOR);
	slot = (struct cowsnap_slot *)(r + 1) + rng_below(m->r, le16toh(r->nr) + 1) %
					       cowsnap_log_slots(&m->im.geo);
	switch (rng_below(m->r, 7)) {
	case 0:
		forge(m, (u8 *)&r->index, 4);
		break;
	case 1:
		forge(m, (u8 *)&r->durable, 4);
		break;
	case 2:
		forge(m, (u8 *)&r->nr, 2);
		break;
	case 3:
		forge(m, (u8 *)&r->series, 8);
		break;
	case 4:
		forge(m, (u8 *)&slot->chunk_low, 4);
		break;
	case 5:
		forge(m, (u8 *)&slot->epoch_low, 4);
		break;
	default:
		slot->chunk_high_kind = rng_next(m->r);
		break;
	}
	if (seal)
		image_seal_log_record(&m->im, chunk);
	say(m, "the record of the log in chunk %llu: changed%s", (unsigned long long)chunk,
	    seal ? ", checksum right" : "");
}

/* A commit that had not ended: some of its slots without their data. */
static void unfinish(struct mutation *m)
{
	u64 nr = any_block(m), i;
	struct cowsnap_block_header *header = image_block_header(&m->im, nr);
	struct cowsnap_slot *slot;

	if (!header)
		return;
	slot = (struct cowsnap_slot *)(header + 1);
	for (i = 0; i < cowsnap_block_slots(&m->im.geo, nr); i++) {
		if (!rng_below(m->r, 4))
			cowsnap_slot_set_fresh(&slot[i], true);
		if (!rng_below(m->r, 8))
			slot[i].crc ^= htole32(1);
	}
	header->sequence = htole64(le64toh(image_super(&m->im, 0)->durable) + 1);
	header->durable = image_super(&m->im, 0)->durable;
	image_seal_block(&m->im, nr);
	say(m, "table block %llu: as of a commit that did not end", (unsigned long long)nr);
}

/* ---- something else altogether ---- */

static void foreign(struct mutation *m)
{
	static const struct {
		const char *name, *magic;
		size_t offset, len;
	} kinds[] = {
		{ "dm-snapshot", "SnAp\1\0\0\0\1\0\0\0", 0, 12 },
		{ "ext4", "\x53\xef", 1080, 2 },
		{ "xfs", "XFSB", 0, 4 },
		{ "LVM", "LABELONE", 512, 8 },
		{ "a partition table", "\x55\xaa", 510, 2 },
	};
	u64 i = rng_below(m->r, sizeof(kinds) / sizeof(*kinds) + 1);
	size_t head = m->im.bytes < 4096 ? m->im.bytes : 4096;

	if (i == sizeof(kinds) / sizeof(*kinds)) {
		memset(m->im.data, 0, head);
		say(m, "the first 4 KiB zeroed");
		return;
	}
	if (maybe(m))
		memset(m->im.data, 0, head);
	if (kinds[i].offset + kinds[i].len <= m->im.bytes)
		memcpy(m->im.data + kinds[i].offset, kinds[i].magic, kinds[i].len);
	say(m, "the head of %s", kinds[i].name);
}

static size_t cut(struct mutation *m)
{
	size_t bytes = rng_below(m->r, m->im.bytes + 1);

	if (maybe(m))
		bytes = m->im.bytes - rng_below(m->r, m->im.bytes / 4 + 1);
	if (maybe(m))
		bytes &= ~(size_t)511;
	say(m, "cut off at byte %zu", bytes);
	return bytes;
}

size_t mutate_as_disk(struct rng *r, u8 *data, size_t bytes, mutate_say *say_it)
{
	struct mutation m = { .r = r, .say = say_it };

	if (!bytes || !image_open(&m.im, data, bytes))
		return bytes;
	switch (rng_below(r, 8)) {
	case 0:
		return cut(&m);
	case 1:
		swap_blocks(&m);
		break;
	case 2:
	case 3:
		tear(&m);
		break;
	default:
		flip_somewhere(&m);
		break;
	}
	return bytes;
}

size_t mutate(struct rng *r, u8 *data, size_t bytes, mutate_say *say_it)
{
	static void (*const kinds[])(struct mutation *m) = {
		flip_somewhere, flip_somewhere, tear, swap_blocks, forge_super, forge_super,
		forge_header, forge_slot, forge_slot, double_slot, forge_record, unfinish,
		forge_log_record, forge_log_record,
	};
	struct mutation m = { .r = r, .say = say_it };
	u64 kind;

	if (!bytes)
		return 0;
	if (!image_open(&m.im, data, bytes)) {
		/* Too late for anything clever. */
		flip_bits(&m, 0, bytes, "what was a store");
		return bytes;
	}
	kind = rng_below(r, sizeof(kinds) / sizeof(*kinds) + 1);
	if (kind < sizeof(kinds) / sizeof(*kinds))
		kinds[kind](&m);
	else if (maybe(&m))
		return cut(&m);
	else if (!rng_below(r, 4))
		foreign(&m);
	else
		flip_somewhere(&m);
	return bytes;
}

/* Where it hurts: metadata more often than data, which is most of a store. */
static size_t any_sector(struct mutation *m)
{
	struct image *im = &m->im;
	size_t offset;
	u64 chunk;

	switch (rng_below(m->r, 7)) {
	case 0:
		return 0;
	case 6:
		chunk = any_log_record(m);
		if (chunk)
			return cowsnap_log_sector(&im->geo, chunk);
		return rng_below(m->r, im->bytes / SECTOR);
	case 1:
		return im->geo.block_bytes / SECTOR;
	case 2:
	case 3:
		return image_block_offset(im, any_block(m)) / SECTOR +
		       rng_below(m->r, im->geo.block_bytes / SECTOR);
	case 4:
		if (any_records(m, &offset))
			return offset / SECTOR;
		/* fall through */
	default:
		return rng_below(m->r, im->bytes / SECTOR);
	}
}

void mutate_lose(struct rng *r, u8 *data, size_t bytes, u8 *lost, mutate_say *say_it)
{
	struct mutation m = { .r = r, .say = say_it };
	u64 n = 1 + rng_below(r, 3), unit, i;
	size_t sector;

	if (bytes < SECTOR)
		return;
	/* Disks of physical sectors of 512 bytes, and of 4096. */
	unit = maybe(&m) ? 1 : 8;
	while (n--) {
		sector = image_open(&m.im, data, bytes) ? any_sector(&m) :
			 rng_below(r, bytes / SECTOR);
		sector -= sector % unit;
		for (i = sector; i < sector + unit && i < bytes / SECTOR; i++) {
			lost[i] = 1;
			memset(data + i * SECTOR, 0xa5 ^ (u8)i, SECTOR);
		}
		say(&m, "%llu sectors from %zu on cannot be read", (unsigned long long)unit,
		    sector);
	}
}

void mutate_one_bit(struct rng *r, u8 *data, size_t bytes, mutate_say *say_it)
{
	struct mutation m = { .r = r, .say = say_it };
	size_t at;
	u64 nr;

	if (!bytes || !image_open(&m.im, data, bytes))
		return;
	nr = any_block(&m);
	at = image_block_offset(&m.im, nr) + cowsnap_area_offset(nr);
	at += rng_below(r, m.im.geo.block_bytes - cowsnap_area_offset(nr));
	if (at < bytes)
		data[at] ^= 1U << rng_below(r, 8);
	say(&m, "one bit flipped in byte %zu", at);
}

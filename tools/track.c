// SPDX-License-Identifier: GPL-2.0-only
/* Blocks of trackers are found and read. See the format. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "track.h"

#define SECTOR 512

/* A block that is read while the module writes it is wrong: how often it is read again. */
#define READ_AGAIN 20

bool record_is_tracker(const struct record *r)
{
	return r->state == COWSNAP_RECORD_TRACKER;
}

/* What is read of one tracker. */
struct reader {
	const struct store *s;
	const struct record *record;
	struct cowsnap_track_layout layout;
	u64 nr_chunks;
	u64 nr_pieces;
	u64 *place;		/* of each; 0: nowhere */
	bool marks;
	int (*changed)(void *context, u64 chunk);
	void *context;
};

static u32 series_of(const struct record *r)
{
	return r->flags >> COWSNAP_RECORD_SERIES_SHIFT;
}

/* Where the pieces are. -1: there are not enough, or no memory. */
static int find_pieces(struct reader *r, u64 nr_blocks)
{
	const u16 nonsense = ENTRY_BAD_KIND | ENTRY_BAD_CHUNK | ENTRY_BAD_EPOCH | ENTRY_BEYOND;
	const struct entry *e;
	size_t i;

	r->nr_pieces = cowsnap_track_pieces(&r->s->geo, nr_blocks);
	if (!nr_blocks || !series_of(r->record) || r->nr_pieces > r->s->nr_entries)
		return -1;
	r->place = calloc(r->nr_pieces, sizeof(*r->place));
	for (i = 0; r->place && i < r->s->nr_entries; i++) {
		e = &r->s->entry[i];
		if (e->kind == COWSNAP_SLOT_TRACK && !(e->marks & nonsense) &&
		    e->epoch == series_of(r->record) && e->chunk < r->nr_pieces &&
		    !r->place[e->chunk])
			r->place[e->chunk] = e->place;
	}
	return r->place ? 0 : -1;
}

static bool bit_of(const u8 *bits, u64 bit)
{
	return bits[bit / 8] >> bit % 8 & 1;
}

/* Little endian words are bytes in their order. */
static int walk_block(const struct reader *r, u64 index, const u8 *data)
{
	const u8 *bits = data + sizeof(struct cowsnap_block_header);
	const u8 *marks = bits + r->layout.chunks / 8;
	u64 chunk = index * r->layout.chunks;
	u32 i;
	int ret;

	for (i = 0; i < r->layout.chunks && chunk < r->nr_chunks; i++, chunk++) {
		if (!bit_of(bits, i) && !(r->marks && bit_of(marks, i >> r->layout.region_shift)))
			continue;
		ret = r->changed(r->context, chunk);
		if (ret)
			return ret;
	}
	return 0;
}

static bool block_right(const struct reader *r, u64 index, u64 sector, const u8 *data)
{
	u32 bytes = r->s->geo.block_bytes;
	struct cowsnap_block_header header;

	memcpy(&header, data, sizeof(header));
	return le32toh(header.crc) == crc32c(cowsnap_seed(r->s->super.uuid, sector), data + 4,
					     bytes - 4) &&
	       le32toh(header.blocks) == index &&
	       le64toh(header.sequence) == series_of(r->record) &&
	       le64toh(header.durable) == COWSNAP_TRACK_ONES;
}

static int read_block(const struct reader *r, u64 index)
{
	const struct cowsnap_geometry *g = &r->s->geo;
	u8 data[COWSNAP_MAX_BLOCK_BYTES];
	u64 place = r->place[index / g->chunk_blocks];
	u64 sector = chunk_sector(r->s, place) +
		     index % g->chunk_blocks * (g->block_bytes / SECTOR);
	int i;

	for (i = 0; place && i < READ_AGAIN; i++) {
		if (io_read(r->s->io, sector * SECTOR, data, g->block_bytes))
			return 1;
		if (block_right(r, index, sector, data))
			return walk_block(r, index, data);
	}
	return 1;
}

int track_read(const struct store *s, const struct record *record, bool marks,
	       int (*changed)(void *context, u64 chunk), void *context)
{
	struct reader r = {
		.s = s, .record = record, .marks = marks, .changed = changed, .context = context,
		.nr_chunks = (record->sectors + s->geo.chunk_sectors - 1) >> s->geo.chunk_shift,
	};
	u64 index, nr;
	int ret;

	cowsnap_track_layout(&s->geo, &r.layout);
	nr = cowsnap_track_blocks(&s->geo, &r.layout, record->sectors);
	ret = find_pieces(&r, nr) ? 1 : 0;
	for (index = 0; index < nr && !ret; index++)
		ret = read_block(&r, index);
	free(r.place);
	return ret;
}

static int whatever(void *context, u64 chunk)
{
	(void)context;
	(void)chunk;
	return 0;
}

bool track_is_whole(const struct store *s, const struct record *r)
{
	return !track_read(s, r, true, whatever, NULL);
}

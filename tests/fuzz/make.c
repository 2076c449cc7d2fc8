// SPDX-License-Identifier: GPL-2.0-only
/*
 * A store that is whole, made up from a seed: as the kernel would leave it, with
 * several versions of chunks, private and dead ones, tombstones, and more
 * snapshots than the superblock holds.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "make.h"

#define SECTOR 512

struct maker {
	const struct make_options *o;
	struct image im;
	struct rng rng;
	u64 next;		/* first place not used */
	u64 epoch;
	u64 chunks;	/* of the origin */
	u64 chunk;	/* the first that no table has a version of */
	bool redirects;
	bool zeroes;	/* some of what is redirected is */
	u8 *live;		/* by epoch: */
	u64 sequence;
};

static u64 take_place(struct maker *m)
{
	while (m->next < image_chunks(&m->im) && !image_is_data(&m->im, m->next))
		m->next++;
	return m->next < image_chunks(&m->im) ? m->next++ : 0;
}

static bool put_slot(struct maker *m, u64 place, u8 kind, u64 chunk,
		     u64 epoch, u32 crc)
{
	u64 nr;
	struct cowsnap_slot *slot = image_slot(&m->im, place, &nr);

	if (!slot)
		return false;
	cowsnap_slot_set(slot, chunk, epoch, kind, crc);
	if (nr >= m->im.blocks)
		m->im.blocks = nr + 1;
	return true;
}

/* Content that differs between chunks, and is quick to make. */
static void fill_chunk(struct maker *m, u64 place)
{
	u64 *at = (u64 *)(m->im.data + (place << m->im.geo.chunk_shift) * SECTOR);
	u64 value = rng_next(&m->rng);
	size_t i;

	for (i = 0; i < m->im.geo.chunk_sectors * (SECTOR / 8); i++)
		at[i] = value + i;
}

/* ---- records ---- */

static void fill_record(struct maker *m, u32 id, struct cowsnap_record *rec)
{
	u8 state = COWSNAP_RECORD_LIVE;

	if (!m->o->plain && !rng_below(&m->rng, 4))
		state = COWSNAP_RECORD_OVERFLOWED + rng_below(&m->rng, 3);
	rec->id = htole16(id);
	rec->state = state;
	rec->flags = htole32(COWSNAP_RECORD_WRITTEN);
	rec->epoch = htole64(id + 1);
	rec->sectors = htole64(m->o->origin_sectors);
	rec->time = htole64(1700000000 + id);
	m->live[id + 1] = state == COWSNAP_RECORD_LIVE;
}

static bool fill_records_chunk(struct maker *m, u64 number, u32 first)
{
	u32 per = cowsnap_block_records(&m->im.geo), block, i;
	u64 place = take_place(m);
	size_t offset = (place << m->im.geo.chunk_shift) * SECTOR;
	struct cowsnap_block_header *header;

	if (!place || !put_slot(m, place, COWSNAP_SLOT_RECORDS, number, 0, 0))
		return false;
	for (block = 0; block < m->im.geo.chunk_blocks; block++) {
		header = (void *)(m->im.data + offset + block * m->im.geo.block_bytes);
		header->blocks = htole32(block);
		header->sequence = htole64(1 + rng_below(&m->rng, 9));
		header->durable = htole64(m->epoch);
		for (i = 0; i < per && first + block * per + i < m->o->snapshots; i++)
			fill_record(m, first + block * per + i,
				    (struct cowsnap_record *)(header + 1) + i);
		image_seal_records(&m->im, offset + block * m->im.geo.block_bytes);
	}
	return true;
}

static bool fill_records(struct maker *m)
{
	u32 per = cowsnap_block_records(&m->im.geo) * m->im.geo.chunk_blocks;
	u32 id, number = 0;

	for (id = 0; id < m->o->snapshots && id < COWSNAP_SUPER_RECORDS; id++)
		fill_record(m, id, &image_super(&m->im, 0)->record[id]);
	for (; id < m->o->snapshots; id += per)
		if (!fill_records_chunk(m, number++, id))
			return false;
	return true;
}

/* ---- trackers ---- */

/* A record in the superblock becomes that of a tracker. */
static struct cowsnap_record *pick_tracker(struct maker *m)
{
	u32 nr = m->o->snapshots < COWSNAP_SUPER_RECORDS ? m->o->snapshots : COWSNAP_SUPER_RECORDS;
	struct cowsnap_record *rec;

	if (m->o->plain || m->redirects || !nr || rng_below(&m->rng, 3))
		return NULL;
	rec = &image_super(&m->im, 0)->record[rng_below(&m->rng, nr)];
	rec->state = COWSNAP_RECORD_TRACKER;
	rec->flags = htole32((m->epoch + 1) << COWSNAP_RECORD_SERIES_SHIFT);
	m->live[le64toh(rec->epoch)] = 0;
	return rec;
}

static void fill_piece(struct maker *m, u64 place, u64 index)
{
	u32 bytes = m->im.geo.block_bytes, block;
	size_t offset = (place << m->im.geo.chunk_shift) * SECTOR;
	struct cowsnap_block_header *header;

	fill_chunk(m, place);
	for (block = 0; block < m->im.geo.chunk_blocks; block++) {
		header = (void *)(m->im.data + offset + block * bytes);
		header->blocks = htole32(index * m->im.geo.chunk_blocks + block);
		header->sequence = htole64(m->epoch + 1);
		header->durable = htole64(COWSNAP_TRACK_ONES);
		image_seal_records(&m->im, offset + block * bytes);
	}
}

static bool fill_tracker(struct maker *m)
{
	struct cowsnap_track_layout layout;
	u64 index, nr, place;

	if (!pick_tracker(m))
		return true;
	image_super(&m->im, 0)->incompat |= htole64(COWSNAP_INCOMPAT_TRACK);
	cowsnap_track_layout(&m->im.geo, &layout);
	nr = cowsnap_track_pieces(&m->im.geo, cowsnap_track_blocks(&m->im.geo, &layout,
								   m->o->origin_sectors));
	for (index = 0; index < nr; index++) {
		place = take_place(m);
		if (!place || !put_slot(m, place, COWSNAP_SLOT_TRACK, index, m->epoch + 1, 0))
			return false;
		fill_piece(m, place, index);
	}
	m->epoch++;
	return true;
}

/* ---- exceptions ---- */

static bool add_version(struct maker *m, u64 chunk, u64 epoch, u8 kind)
{
	u64 place = take_place(m);
	u32 crc = 0;

	if (!place)
		return false;
	if (kind == COWSNAP_SLOT_COPIED || kind == COWSNAP_SLOT_PRIVATE ||
	    kind == COWSNAP_SLOT_CURRENT)
		fill_chunk(m, place);
	/* That of a current one says nothing. */
	if (kind == COWSNAP_SLOT_CURRENT)
		crc = rng_next(&m->rng);
	if (kind == COWSNAP_SLOT_COPIED)
		crc = image_data_crc(&m->im, place);
	return put_slot(m, place, kind, chunk, epoch, crc);
}

static bool may_be_redirected(const struct maker *m, u64 chunk)
{
	return m->redirects && chunk >= cowsnap_seal_chunks(&m->im.geo);
}

/* Versions of one chunk are in blocks of their own as a rule: some places stay free. */
static void leave_places(struct maker *m)
{
	u64 n = rng_below(&m->rng, 3) ? 0 : m->im.geo.block_slots;

	while (n-- && m->next + 1 < image_chunks(&m->im))
		m->next++;
}

static u8 current_kind(struct maker *m)
{
	return m->zeroes && !rng_below(&m->rng, 3) ? COWSNAP_SLOT_CURRENT_ZERO :
	       COWSNAP_SLOT_CURRENT;
}

/* What the origin has had since one epoch, or more. */
static u64 add_current(struct maker *m, u64 chunk)
{
	u64 epoch = 1 + rng_below(&m->rng, 1 + m->epoch / 2), nr = 0, versions = 1 + rng_below(&m->rng, 4);

	if (!may_be_redirected(m, chunk) || rng_below(&m->rng, 2))
		return 0;
	while (epoch <= m->epoch && nr < versions && add_version(m, chunk, epoch, current_kind(m))) {
		leave_places(m);
		epoch += 1 + rng_below(&m->rng, 2);
		nr++;
	}
	return nr;
}

/* One to three versions of a chunk, ever newer; now and then a private one. */
static u64 add_chunk(struct maker *m, u64 chunk)
{
	u64 epoch = 1 + rng_below(&m->rng, m->epoch), nr = 0;
	u64 versions = m->o->plain ? 1 : 1 + rng_below(&m->rng, 3);
	u8 kind;

	/* Often nothing else: home is what snapshots see then. */
	nr = add_current(m, chunk);
	if (nr && rng_below(&m->rng, 2))
		return nr;
	versions += nr;
	for (; epoch <= m->epoch && nr < versions; nr++) {
		kind = m->o->plain || rng_below(&m->rng, 6) ? COWSNAP_SLOT_COPIED :
		       COWSNAP_SLOT_ZERO;
		if (!add_version(m, chunk, epoch, kind))
			return nr;
		epoch += 1 + rng_below(&m->rng, m->epoch);
	}
	if (!m->o->plain && !rng_below(&m->rng, 5))
		nr += add_version(m, chunk, 1 + rng_below(&m->rng, m->epoch),
				  COWSNAP_SLOT_PRIVATE + rng_below(&m->rng, 2));
	return nr;
}

static void add_exceptions(struct maker *m)
{
	u64 chunk = m->redirects ? rng_below(&m->rng, cowsnap_seal_chunks(&m->im.geo) + 1) : 0;
	u64 step = (m->chunks - chunk) / (m->o->exceptions + 1), done = 0, n;

	while (done < m->o->exceptions && chunk < m->chunks) {
		n = add_chunk(m, chunk);
		if (!n)
			break;
		done += n;
		chunk += step > 1 ? 1 + rng_below(&m->rng, 2 * step - 1) : 1;
	}
	m->chunk = chunk;
}

/* ---- the log ---- */

/* Chunks in a row behind all that is in use, in one segment. */
static u64 find_zone(struct maker *m, u64 *start)
{
	u64 most = 4 + rng_below(&m->rng, 40), nr = 0;

	*start = take_place(m);
	if (!*start)
		return 0;
	while (nr < most && *start + nr < image_chunks(&m->im) &&
	       image_is_data(&m->im, *start + nr))
		nr++;
	m->next = *start + nr;
	return nr;
}

/* A version of a chunk that no table has. @torn: its data did not arrive. */
static void fill_logged(struct maker *m, struct cowsnap_slot *slot, u64 place, bool torn)
{
	u8 kind = m->o->plain || rng_below(&m->rng, 6) ? COWSNAP_SLOT_COPIED : COWSNAP_SLOT_ZERO;
	u32 crc = 0;

	if (may_be_redirected(m, m->chunk) && rng_below(&m->rng, 2))
		kind = COWSNAP_SLOT_CURRENT;
	if (kind != COWSNAP_SLOT_ZERO) {
		fill_chunk(m, place);
		crc = image_data_crc(&m->im, place) ^ (torn ? 1 + rng_below(&m->rng, 1000) : 0);
	}
	/* Written in place since: the disk says of all these that they are durable. */
	if (kind == COWSNAP_SLOT_CURRENT && !m->o->unfinished && rng_below(&m->rng, 2))
		fill_chunk(m, place);
	cowsnap_slot_set(slot, m->chunk++, 1 + rng_below(&m->rng, m->epoch), kind, crc);
}

static void fill_log_record(struct maker *m, const struct cowsnap_zone *zone, u64 chunk, u32 index,
			    u32 nr, bool torn)
{
	u64 sector = cowsnap_log_sector(&m->im.geo, chunk), series = cowsnap_zone_series(zone);
	struct cowsnap_log_record *record = (void *)(m->im.data + sector * SECTOR);
	struct cowsnap_slot *slot = (struct cowsnap_slot *)(record + 1);
	u32 i;

	memset(record, 0, m->im.geo.block_bytes);
	record->index = htole32(index);
	record->series = htole64(series);
	record->mark = htole64(cowsnap_log_mark(m->im.uuid, sector, series));
	record->durable = htole32(torn ? index : rng_below(&m->rng, index + 1));
	record->nr = htole16(nr);
	for (i = 0; i < nr; i++)
		fill_logged(m, &slot[i], chunk + 1 + i, torn && !rng_below(&m->rng, 2));
	image_seal_log_record(&m->im, chunk);
}

/* One to three chunks a record; the last one may not have ended. */
static u32 fill_zone(struct maker *m, const struct cowsnap_zone *zone, u64 chunks)
{
	u64 at = 0, nr, most = cowsnap_log_slots(&m->im.geo);
	u32 index = 0;

	while (at + 1 < chunks && m->chunk + 3 < m->chunks && rng_below(&m->rng, 12)) {
		nr = 1 + rng_below(&m->rng, 3);
		if (nr > chunks - at - 1)
			nr = chunks - at - 1;
		if (nr > most)
			nr = most;
		fill_log_record(m, zone, cowsnap_zone_start(zone) + at, index++, nr, false);
		at += 1 + nr;
	}
	if (m->o->unfinished && at + 1 < chunks && m->chunk < m->chunks)
		fill_log_record(m, zone, cowsnap_zone_start(zone) + at, index, 1, true);
	return index;
}

static void add_log(struct maker *m)
{
	struct cowsnap_super *super = image_super(&m->im, 0);
	u64 start, nr = find_zone(m, &start), block;
	struct cowsnap_zone *zone = &super->zone[rng_below(&m->rng, COWSNAP_ZONES)];
	u32 records;

	if (nr < 2 || !image_slot(&m->im, start + nr - 1, &block))
		return;
	if (block >= m->im.blocks)
		m->im.blocks = block + 1;
	super->incompat |= htole64(COWSNAP_INCOMPAT_LOG);
	/* Off again, on, or only while writes are redirected. */
	super->log = htole32(rng_below(&m->rng, 3));
	zone->start = htole64(start);
	zone->series = htole64(1 + rng_below(&m->rng, 1000));
	zone->chunks = htole32(nr);
	records = fill_zone(m, zone, nr);
	/* Else the data of the last ones is in doubt. */
	zone->durable = htole32(m->o->unfinished ? rng_below(&m->rng, records + 1) : records);
}

/* ---- the seal ---- */

/* Chunks in a row that no slot speaks of. They are filled: data of the origin. */
static u64 take_row(struct maker *m, u64 nr)
{
	u64 start = take_place(m), n = 1;

	while (start && n < nr) {
		u64 next = take_place(m);

		n = next == start + n ? n + 1 : 1;
		start = n == 1 ? next : start;
	}
	for (n = 0; start && n < nr; n++)
		fill_chunk(m, start + n);
	return start;
}

static void add_seal(struct maker *m)
{
	struct cowsnap_super *super = image_super(&m->im, 0);
	u64 nr = cowsnap_seal_chunks(&m->im.geo), start, block;

	if (m->o->origin_sectors < cowsnap_seal_sectors(&m->im.geo))
		return;
	start = take_row(m, nr);
	if (!start || !image_slot(&m->im, start + nr - 1, &block))
		return;
	if (block >= m->im.blocks)
		m->im.blocks = block + 1;
	super->incompat |= htole64(COWSNAP_INCOMPAT_SEAL);
	super->seal_start = htole64(start);
	super->seal_generation = htole32(1 + rng_below(&m->rng, 1000));
	super->seal_state = m->o->redirected ? COWSNAP_SEAL_SEALED :
			    COWSNAP_SEAL_SEALING + rng_below(&m->rng, 3);
	if (!m->o->redirected)
		return;
	super->incompat |= htole64(COWSNAP_INCOMPAT_CURRENT);
	super->redirect = rng_below(&m->rng, 2) ? rng_below(&m->rng, COWSNAP_MAX_REDIRECT + 1) : 0;
	m->redirects = true;
	m->zeroes = rng_below(&m->rng, 2);
	if (m->zeroes)
		super->incompat |= htole64(COWSNAP_INCOMPAT_ZEROES);
}

/* ---- the whole ---- */

static void seal_blocks(struct maker *m)
{
	struct cowsnap_block_header *header;
	u64 nr;

	for (nr = 0; nr < m->im.blocks; nr++) {
		header = image_block_header(&m->im, nr);
		if (!header)
			continue;
		header->blocks = htole32(m->im.blocks);
		header->sequence = htole64(1 + rng_below(&m->rng, m->sequence));
		header->durable = htole64(le64toh(header->sequence) - 1);
		image_seal_block(&m->im, nr);
	}
}

static bool is_copied(const struct cowsnap_slot *slot)
{
	return cowsnap_slot_kind(slot) == COWSNAP_SLOT_COPIED;
}

/* The slots of a block become those of a commit of which some data never arrived. */
static bool unfinish_block(struct maker *m, u64 nr)
{
	struct cowsnap_block_header *header = image_block_header(&m->im, nr);
	struct cowsnap_slot *slot;
	bool any = false;
	u64 i;

	if (!header)
		return false;
	slot = (struct cowsnap_slot *)(header + 1);
	for (i = 0; i < cowsnap_block_slots(&m->im.geo, nr); i++, slot++) {
		if (!is_copied(slot))
			continue;
		cowsnap_slot_set_fresh(slot, true);
		if (!any || rng_below(&m->rng, 2))
			slot->crc ^= htole32(1 + (u32)rng_below(&m->rng, 1 << 30));
		any = true;
	}
	if (!any)
		return false;
	header->sequence = htole64(m->sequence + 1);
	header->durable = htole64(m->sequence);
	image_seal_block(&m->im, nr);
	return true;
}

/* The last blocks of all are ready, but empty. */
static void leave_unfinished(struct maker *m)
{
	u64 nr = m->im.blocks;

	while (nr && !unfinish_block(m, nr - 1))
		nr--;
}

static void fill_super(struct maker *m)
{
	struct cowsnap_super *super = image_super(&m->im, 0);

	memcpy(super->magic, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES);
	super->version = htole32(COWSNAP_FORMAT);
	memcpy(super->uuid, m->im.uuid, sizeof(super->uuid));
	super->sequence = htole64(1 + rng_below(&m->rng, 1000));
	super->block_bytes = htole32(m->o->block_bytes);
	super->chunk_sectors = htole32(m->o->chunk_sectors);
	super->origin_sectors = htole64(m->o->origin_sectors);
	super->store_sectors = htole64(m->im.bytes / SECTOR);
	super->epoch = htole64(m->epoch);
	super->durable = htole64(m->sequence);
	super->blocks = htole32(m->im.blocks);
	super->merge_id = htole32(COWSNAP_NO_MERGE);
	super->wait_timeout = htole32(60);
	super->throttle = htole32(100);
	image_seal_super(&m->im, 0);
	*image_super(&m->im, 1) = *super;
	image_seal_super(&m->im, 1);
}

/* Some blocks are ready and empty, as the kernel makes them. */
static void make_ready(struct maker *m)
{
	u64 more = rng_below(&m->rng, 8), end;

	for (end = m->im.blocks + more; m->im.blocks < end; m->im.blocks++)
		if (image_block_offset(&m->im, m->im.blocks) + m->im.geo.block_bytes >
		    (image_chunks(&m->im) << m->im.geo.chunk_shift) * SECTOR)
			break;
}

bool make_store(const struct make_options *o, u8 *data, size_t bytes)
{
	struct maker m = { .o = o, .rng.state = o->seed, .sequence = 20 };
	size_t i;
	bool r;

	if (cowsnap_geometry_init(&m.im.geo, o->block_bytes, o->chunk_sectors))
		return false;
	m.im.data = data;
	m.im.bytes = bytes;
	m.im.blocks = 2;
	m.chunks = (o->origin_sectors + o->chunk_sectors - 1) / o->chunk_sectors;
	m.epoch = o->snapshots + (o->plain ? 0 : rng_below(&m.rng, 3));
	for (i = 0; i < sizeof(m.im.uuid); i++)
		m.im.uuid[i] = rng_next(&m.rng);
	if (image_chunks(&m.im) < m.im.geo.early[0].data + 1)
		return false;
	m.live = calloc(1, m.epoch + 3);
	/* Only what is sealed is redirected. */
	if (o->redirected)
		add_seal(&m);
	r = m.live && fill_records(&m) && fill_tracker(&m);
	if (r && m.epoch)
		add_exceptions(&m);
	if (r && m.epoch && o->logged)
		add_log(&m);
	if (r && o->sealed && !o->redirected)
		add_seal(&m);
	if (r) {
		make_ready(&m);
		seal_blocks(&m);
		fill_super(&m);
		if (o->unfinished)
			leave_unfinished(&m);
	}
	free(m.live);
	return r;
}

size_t make_random_options(struct rng *r, size_t bytes, struct make_options *o)
{
	memset(o, 0, sizeof(*o));
	o->seed = rng_next(r);
	o->chunk_sectors = 1U << rng_below(r, 6);
	do {
		o->block_bytes = 512U << rng_below(r, 4);
	} while (o->block_bytes > o->chunk_sectors * SECTOR);
	bytes -= rng_below(r, bytes * 3 / 4);
	o->origin_sectors = 1 + rng_below(r, 4 * bytes / SECTOR);
	o->snapshots = rng_below(r, 4) ? rng_below(r, 9) : rng_below(r, 60);
	o->exceptions = rng_below(r, bytes / SECTOR / o->chunk_sectors);
	o->unfinished = !rng_below(r, 3);
	o->logged = rng_below(r, 2);
	o->redirected = !rng_below(r, 3);
	o->sealed = o->redirected || !rng_below(r, 4);
	return bytes / SECTOR * SECTOR;
}

// SPDX-License-Identifier: GPL-2.0-only
/* The records of snapshots: those in the superblock, those in chunks of their own. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "store.h"
#include "track.h"

#define SECTOR 512

const char *record_state_name(unsigned int state)
{
	static const char *const names[COWSNAP_RECORD_STATES] = {
		"free", "live", "overflowed", "invalid", "dropped", "merging", "merged",
		"tracker",
	};

	return state < COWSNAP_RECORD_STATES ? names[state] : "unknown";
}

bool record_live(const struct record *r)
{
	return r->state == COWSNAP_RECORD_LIVE || r->state == COWSNAP_RECORD_MERGING;
}

u32 records_per_chunk(const struct store *s)
{
	return s->geo.chunk_blocks * cowsnap_block_records(&s->geo);
}

u64 records_max_chunks(const struct store *s)
{
	u32 per = records_per_chunk(s);

	return (COWSNAP_MAX_SNAPSHOTS - COWSNAP_SUPER_RECORDS + per - 1) / per;
}

static bool records_header_right(u32 block, const u8 *data)
{
	struct cowsnap_block_header header;

	memcpy(&header, data, sizeof(header));
	return le32toh(header.blocks) == block && le64toh(header.durable) <= COWSNAP_MAX_EPOCH &&
	       le64toh(header.sequence) < SEQUENCE_LIMIT;
}

/*
 * A block that is right but for one bit is an accident once in 2^17 times: what it says
 * then has to be possible.
 */
static bool records_make_sense(const struct store *s, u32 block, const u8 *data)
{
	const u8 *at = data + sizeof(struct cowsnap_block_header);
	struct cowsnap_record disk;
	u32 i;

	if (!records_header_right(block, data))
		return false;
	for (i = 0; i < cowsnap_block_records(&s->geo); i++) {
		memcpy(&disk, at + i * sizeof(disk), sizeof(disk));
		if (disk.state >= COWSNAP_RECORD_STATES ||
		    (disk.state != COWSNAP_RECORD_FREE &&
		     (!disk.epoch || le64toh(disk.epoch) > COWSNAP_MAX_EPOCH ||
		      le64toh(disk.sectors) > le64toh(s->super.origin_sectors))))
			return false;
	}
	return true;
}

u8 records_read_block(struct store *s, u64 place, u32 block, u8 *data)
{
	u64 sector = chunk_sector(s, place) + (u64)block * (s->geo.block_bytes / SECTOR);
	size_t len = s->geo.block_bytes - sizeof(__le32);
	struct cowsnap_block_header header;
	u32 difference;

	if (io_read(s->io, sector * SECTOR, data, s->geo.block_bytes))
		return BLOCK_BAD | BLOCK_UNREADABLE;
	memcpy(&header, data, sizeof(header));
	difference = le32toh(header.crc) ^
		     crc32c(cowsnap_seed(s->super.uuid, sector), data + sizeof(__le32), len);
	if (!difference)
		return records_header_right(block, data) ? 0 : BLOCK_BAD;
	if (crc32c_mend(data + sizeof(__le32), len, difference) &&
	    records_make_sense(s, block, data))
		return BLOCK_MENDED;
	return BLOCK_BAD;
}

int records_add(struct store *s, const struct record *r)
{
	if (s->nr_records == s->max_records) {
		size_t max = s->max_records ? s->max_records * 2 : 16;
		struct record *record = realloc(s->record, max * sizeof(*record));

		if (!record)
			return -1;
		s->record = record;
		s->max_records = max;
	}
	s->record[s->nr_records++] = *r;
	return 0;
}

static int add_from_disk(struct store *s, u32 number, const struct cowsnap_record *disk)
{
	struct record r = {
		.number = number,
		.id = le16toh(disk->id),
		.state = disk->state,
		.flags = le32toh(disk->flags),
		.epoch = le64toh(disk->epoch),
		.sectors = le64toh(disk->sectors),
		.time = le64toh(disk->time),
	};

	return r.state == COWSNAP_RECORD_FREE ? 0 : records_add(s, &r);
}

/* The last chunk has room for more records than there can be. */
static bool within_limit(const struct store *s, u32 number, const u8 *data)
{
	struct cowsnap_record disk;
	u32 i;

	for (i = 0; i < cowsnap_block_records(&s->geo); i++) {
		memcpy(&disk, data + sizeof(struct cowsnap_block_header) + i * sizeof(disk),
		       sizeof(disk));
		if (number + i >= COWSNAP_MAX_SNAPSHOTS && disk.state != COWSNAP_RECORD_FREE)
			return false;
	}
	return true;
}

static int load_block(struct store *s, struct records_chunk *c, u32 block)
{
	u8 data[COWSNAP_MAX_BLOCK_BYTES];
	struct cowsnap_block_header header;
	struct cowsnap_record disk;
	u32 per = cowsnap_block_records(&s->geo), i;
	u32 number = COWSNAP_SUPER_RECORDS + c->number * records_per_chunk(s) + block * per;

	c->marks[block] = records_read_block(s, c->place, block, data);
	if (c->marks[block] & BLOCK_BAD)
		return 0;
	if (!within_limit(s, number, data)) {
		c->marks[block] = BLOCK_BAD;
		return 0;
	}
	memcpy(&header, data, sizeof(header));
	if (le64toh(header.sequence) > c->sequence)
		c->sequence = le64toh(header.sequence);
	if (le64toh(header.durable) > s->epoch)
		s->epoch = le64toh(header.durable);
	for (i = 0; i < per; i++) {
		memcpy(&disk, data + sizeof(header) + i * sizeof(disk), sizeof(disk));
		if (add_from_disk(s, number + i, &disk))
			return -1;
	}
	return 0;
}

struct records_chunk *records_new_chunk(struct store *s, u64 number, u64 place)
{
	struct records_chunk *c;

	c = realloc(s->records, (s->nr_records_chunks + 1) * sizeof(*c));
	if (!c)
		return NULL;
	s->records = c;
	c += s->nr_records_chunks++;
	memset(c, 0, sizeof(*c));
	c->number = number;
	c->place = place;
	c->marks = calloc(s->geo.chunk_blocks, 1);
	return c->marks ? c : NULL;
}

int records_add_chunk(struct store *s, u64 number, u64 place)
{
	struct records_chunk *c = records_new_chunk(s, number, place);
	u32 i;

	if (!c)
		return -1;
	for (i = 0; i < s->geo.chunk_blocks; i++)
		if (load_block(s, c, i))
			return -1;
	return 0;
}

static struct records_chunk *find_chunk(struct store *s, u64 number)
{
	size_t i;

	for (i = 0; i < s->nr_records_chunks; i++)
		if (s->records[i].number == number)
			return &s->records[i];
	return NULL;
}

/* Slots announce chunks of records; what they say is not taken on trust. */
static int announced(struct store *s, struct entry *e)
{
	if (e->kind != COWSNAP_SLOT_RECORDS ||
	    e->marks & (ENTRY_BEYOND | ENTRY_BAD_CHUNK | ENTRY_BAD_KIND))
		return 0;
	if (find_chunk(s, e->chunk)) {
		e->marks |= ENTRY_TWICE;
		return 0;
	}
	return records_add_chunk(s, e->chunk, e->place);
}

static int by_chunk_number(const void *a, const void *b)
{
	const struct records_chunk *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

static int by_number(const void *a, const void *b)
{
	const struct record *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

/* The last epoch may have stood in the block that is damaged. */
static void guess_epoch(struct store *s)
{
	const struct entry *e;
	size_t i;

	for (i = 0; i < s->nr_entries; i++) {
		e = &s->entry[i];
		if (!(e->marks & (ENTRY_DOUBTED | ENTRY_BAD_KIND | ENTRY_BAD_EPOCH)) &&
		    e->epoch > s->epoch && e->epoch <= COWSNAP_MAX_EPOCH)
			s->epoch = e->epoch;
	}
	for (i = 0; s->bad_epoch && i < s->nr_records; i++)
		if (s->record[i].epoch > s->epoch && s->record[i].epoch <= COWSNAP_MAX_EPOCH)
			s->epoch = s->record[i].epoch;
}

static bool any_bad(const struct store *s)
{
	size_t i;
	u32 block;
	u64 nr;

	/* One of a table may have announced records. */
	for (nr = 0; nr < s->nr_read; nr++)
		if (s->block[nr].marks & BLOCK_BAD)
			return true;
	for (i = 0; i < s->nr_records_chunks; i++)
		for (block = 0; block < s->geo.chunk_blocks; block++)
			if (s->records[i].marks[block] & BLOCK_BAD)
				return true;
	return s->bad_epoch;
}

/* What the superblock says of records that could not be, or are still to be, written. */
static void overrule(struct store *s)
{
	u64 epoch = le64toh(s->super.invalid_epoch);
	u32 merging = le32toh(s->super.merge_id);
	size_t i;

	for (i = 0; i < s->nr_records; i++) {
		struct record *r = &s->record[i];

		if (record_live(r) && r->epoch <= epoch &&
		    (r->state == COWSNAP_RECORD_LIVE || r->id != merging))
			r->state = s->super.invalid_state == COWSNAP_RECORD_OVERFLOWED ?
				   COWSNAP_RECORD_OVERFLOWED : COWSNAP_RECORD_INVALID;
	}
}

int records_load(struct store *s)
{
	size_t i;

	for (i = 0; i < COWSNAP_SUPER_RECORDS; i++)
		if (add_from_disk(s, i, &s->super.record[i]))
			return -1;
	for (i = 0; i < s->nr_entries; i++)
		if (announced(s, &s->entry[i]))
			return -1;
	if (s->nr_records_chunks)
		qsort(s->records, s->nr_records_chunks, sizeof(*s->records), by_chunk_number);
	if (s->nr_records)
		qsort(s->record, s->nr_records, sizeof(*s->record), by_number);
	if (any_bad(s))
		guess_epoch(s);
	overrule(s);
	return 0;
}

void records_free(struct store *s)
{
	size_t i;

	for (i = 0; i < s->nr_records_chunks; i++)
		free(s->records[i].marks);
	free(s->records);
	free(s->record);
}

struct record *record_by_id(struct store *s, u32 id)
{
	size_t i;

	for (i = 0; i < s->nr_records; i++)
		if (s->record[i].id == id && s->record[i].state != COWSNAP_RECORD_FREE)
			return &s->record[i];
	return NULL;
}

static void judge_record(struct store *s, struct record *r)
{
	if (r->state >= COWSNAP_RECORD_STATES)
		r->marks |= RECORD_BAD_STATE;
	if (!r->epoch || r->epoch > s->epoch)
		r->marks |= RECORD_BAD_EPOCH;
	if (r->sectors > le64toh(s->super.origin_sectors))
		r->marks |= RECORD_BAD_SECTORS;
}

static int by_epoch(const void *a, const void *b)
{
	const struct record *const *x = a, *const *y = b;

	if ((*x)->epoch != (*y)->epoch)
		return (*x)->epoch > (*y)->epoch ? 1 : -1;
	return ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

/* The epochs of the live, sorted and each once. */
static int collect_live(struct store *s)
{
	struct record **by = calloc(s->nr_records + 1, sizeof(struct record *));
	u64 *live = calloc(s->nr_records + 1, sizeof(*live));
	size_t count = 0, i;

	free(s->live);
	s->live = live;
	s->nr_live = 0;
	if (!by || !live) {
		free(by);
		return -1;
	}
	for (i = 0; i < s->nr_records; i++)
		if (record_live(&s->record[i]))
			by[count++] = &s->record[i];
	qsort(by, count, sizeof(*by), by_epoch);
	for (i = 0; i < count; i++) {
		if (i && by[i]->epoch == by[i - 1]->epoch)
			by[i]->marks |= RECORD_EPOCH_TWICE;
		else
			live[s->nr_live++] = by[i]->epoch;
	}
	free(by);
	return 0;
}

int records_judge(struct store *s)
{
	u8 *seen = calloc(1, COWSNAP_MAX_SNAPSHOTS / 8);
	struct record *r;
	size_t i;

	if (!seen)
		return -1;
	for (i = 0; i < s->nr_records; i++) {
		r = &s->record[i];
		r->marks = 0;
		if (r->state == COWSNAP_RECORD_FREE)
			continue;
		judge_record(s, r);
		if (seen[r->id / 8] & 1 << r->id % 8)
			r->marks |= RECORD_ID_TWICE;
		seen[r->id / 8] |= 1 << r->id % 8;
	}
	free(seen);
	return collect_live(s);
}

const struct record *record_merging(const struct store *s)
{
	size_t i;

	for (i = 0; i < s->nr_records; i++)
		if (le32toh(s->super.merge_id) == s->record[i].id && record_live(&s->record[i]))
			return &s->record[i];
	return NULL;
}

/* A tracker lacks the writes that went past it. */
void records_give_up(struct store *s, const struct record *but, unsigned int *nr)
{
	size_t i;

	for (i = 0; i < s->nr_records; i++) {
		const struct record *r = &s->record[i];

		if ((!record_live(r) && !record_is_tracker(r)) || r == but)
			continue;
		s->record[i].state = COWSNAP_RECORD_INVALID;
		++*nr;
	}
	for (i = 0; i < s->nr_records_chunks; i++)
		memset(s->records[i].marks, BLOCK_DIRTY, s->geo.chunk_blocks);
}

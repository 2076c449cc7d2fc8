// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rebuild what can be rebuilt.
 *
 * One rule above all: what a snapshot shows is what it was, or an error. An entry
 * that is lost would let newer data of the origin appear as old, so every snapshot
 * that may have had it becomes invalid, and this is on the disk before the block
 * that lost it counts as whole again. Data that is damaged costs nobody more than
 * an error on reading it: its entry stays.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "log.h"
#include "repair.h"
#include "track.h"

#define SECTOR 512

/* Both superblocks, twice: write_all(). */
#define SUPERS_WRITTEN 4

struct repair {
	struct store *s;
	const struct repair_options *o;
	struct report *r;
	u64 lost;		/* snapshots up to this epoch may lack entries */
	bool loses;		/* and so may the origin */
	bool failed;
	unsigned long kept;	/* damages that stay */
};

/* ---- snapshots ---- */

static void record_dirty(struct store *s, u32 number)
{
	u32 per = records_per_chunk(s), in;
	size_t i;

	if (number < COWSNAP_SUPER_RECORDS)
		return;		/* superblocks are always written */
	in = (number - COWSNAP_SUPER_RECORDS) % per;
	for (i = 0; i < s->nr_records_chunks; i++)
		if (s->records[i].number == (number - COWSNAP_SUPER_RECORDS) / per)
			s->records[i].marks[in / cowsnap_block_records(&s->geo)] |= BLOCK_DIRTY;
}

static void end_merge(struct repair *p)
{
	report(p->r, "the merge of snapshot %u ends, what was merged stays in the origin",
	       le32toh(p->s->super.merge_id));
	p->s->super.merge_id = htole32(COWSNAP_NO_MERGE);
	p->s->super.merge_chunk = 0;
}

static void set_state(struct repair *p, struct record *rec, u8 state, const char *why)
{
	struct cowsnap_super *super = &p->s->super;

	report(p->r, "snapshot %u becomes %s: %s", rec->id, record_state_name(state), why);
	if (le32toh(super->merge_id) == rec->id && record_live(rec))
		end_merge(p);
	rec->state = state;
	record_dirty(p->s, rec->number);
}

static void invalidate_range(struct repair *p, u64 older, u64 epoch, const char *why)
{
	struct store *s = p->s;
	size_t i;

	for (i = 0; i < s->nr_records; i++)
		if (record_live(&s->record[i]) && s->record[i].epoch > older &&
		    s->record[i].epoch <= epoch)
			set_state(p, &s->record[i], COWSNAP_RECORD_INVALID, why);
}

/* What is left of it has to be a record that the kernel takes. */
static void make_plausible(struct store *s, struct record *rec)
{
	if (rec->marks & RECORD_BAD_SECTORS)
		rec->sectors = le64toh(s->super.origin_sectors);
	if (!(rec->marks & RECORD_BAD_EPOCH))
		return;
	if (!s->epoch)
		s->epoch = 1;
	rec->epoch = s->epoch;
}

/* Those that contradict another one go; what contradicts itself is invalid. */
static void repair_record(struct repair *p, struct record *rec)
{
	if (rec->marks & RECORD_ID_TWICE)
		set_state(p, rec, COWSNAP_RECORD_FREE, "another one has its number");
	else if (rec->marks & RECORD_BAD_STATE)
		set_state(p, rec, COWSNAP_RECORD_INVALID, "its state was unknown");
	else if (rec->marks & RECORD_BAD_EPOCH)
		set_state(p, rec, COWSNAP_RECORD_INVALID, "its epoch was never given out");
	else if (rec->marks & RECORD_EPOCH_TWICE)
		set_state(p, rec, COWSNAP_RECORD_INVALID, "another one has its epoch");
	else if (rec->marks & RECORD_BAD_SECTORS)
		set_state(p, rec, COWSNAP_RECORD_INVALID, "its length cannot be");
	make_plausible(p->s, rec);
}

/* If two have one number, or one epoch, it is unknown which is the right one. */
static void distrust_twins(struct repair *p)
{
	struct store *s = p->s;
	struct record *first;
	size_t i, j;

	for (i = 0; i < s->nr_records; i++) {
		if (!(s->record[i].marks & (RECORD_ID_TWICE | RECORD_EPOCH_TWICE)))
			continue;
		for (j = 0; j < s->nr_records; j++) {
			first = &s->record[j];
			if (i == j || !record_live(first) || first->marks & RECORD_ID_TWICE)
				continue;
			if (first->id == s->record[i].id ||
			    first->epoch == s->record[i].epoch)
				set_state(p, first, COWSNAP_RECORD_INVALID,
					  "another one has its number or its epoch");
		}
	}
}

static void repair_records_block(struct repair *p, struct records_chunk *c, u32 block)
{
	if (c->marks[block] & BLOCK_BAD)
		report(p->r, "records chunk %" PRIu64 ", block %u: emptied, snapshots lost",
		       c->number, block);
	else if (c->marks[block] & BLOCK_MENDED)
		report(p->r, "records chunk %" PRIu64 ", block %u: one bit set right", c->number,
		       block);
	else
		return;
	c->marks[block] |= BLOCK_DIRTY;
}

static void repair_trackers(struct repair *p)
{
	struct store *s = p->s;
	unsigned int nr = 0;
	size_t i;

	for (i = 0; i < s->nr_records; i++) {
		if (!record_is_tracker(&s->record[i]))
			continue;
		if (!track_is_whole(s, &s->record[i]))
			set_state(p, &s->record[i], COWSNAP_RECORD_INVALID,
				  "a block of the tracker is missing or damaged");
		else if (nr++ >= COWSNAP_MAX_TRACKERS)
			set_state(p, &s->record[i], COWSNAP_RECORD_INVALID,
				  "it is one tracker too many");
	}
}

static void repair_records(struct repair *p)
{
	struct store *s = p->s;
	size_t i;
	u32 block;

	distrust_twins(p);
	for (i = 0; i < s->nr_records; i++)
		if (s->record[i].marks)
			repair_record(p, &s->record[i]);
	repair_trackers(p);
	for (i = 0; i < s->nr_records_chunks; i++)
		for (block = 0; block < s->geo.chunk_blocks; block++)
			repair_records_block(p, &s->records[i], block);
}

/* ---- table blocks ---- */

static bool number_taken(const struct store *s, u64 number)
{
	size_t i;

	for (i = 0; i < s->nr_records_chunks; i++)
		if (s->records[i].number == number)
			return true;
	return false;
}

/* A whole chunk of records at @place, of which no slot tells any more? */
static bool looks_like_records(struct store *s, u64 place)
{
	u8 data[COWSNAP_MAX_BLOCK_BYTES];
	u32 i;

	for (i = 0; i < s->geo.chunk_blocks; i++)
		if (records_read_block(s, place, i, data))
			return false;
	return true;
}

static int find_records(struct repair *p, u64 place)
{
	struct store *s = p->s;
	struct entry e = { .kind = COWSNAP_SLOT_RECORDS, .place = place };

	while (e.chunk < records_max_chunks(s) && number_taken(s, e.chunk))
		e.chunk++;
	/* What is sealed of the origin may look like anything. */
	if (place >= s->nr_chunks || e.chunk >= records_max_chunks(s) ||
	    cowsnap_seal_has(&s->geo, &s->super, place) || !looks_like_records(s, place))
		return 0;
	report(p->r, "records found at sector %" PRIu64 ": chunk %" PRIu64 " of records again",
	       chunk_sector(s, place), e.chunk);
	return store_add_entry(s, &e) || records_add_chunk(s, e.chunk, place);
}

static int rescue_records(struct repair *p, u64 nr)
{
	struct cowsnap_segment seg;
	u32 index = store_find_block(p->s, nr, &seg), i;
	u64 first = seg.data + cowsnap_first_slot(&p->s->geo, &seg, index);

	for (i = 0; i < cowsnap_block_slots(&p->s->geo, nr); i++)
		if (find_records(p, first + i))
			return -1;
	return 0;
}

static void repair_bad_blocks(struct repair *p)
{
	struct store *s = p->s;
	u64 nr = 0, end;

	for (; next_bad_blocks(s, &nr, &end); nr = end) {
		report(p->r, "table blocks %" PRIu64 " to %" PRIu64 " (from sector %" PRIu64
		       "): emptied", nr, end - 1, store_block_sector(s, nr));
		for (; nr < end; nr++) {
			s->block[nr].marks |= BLOCK_DIRTY;
			if (rescue_records(p, nr))
				p->failed = true;
		}
	}
}

static void repair_blocks(struct repair *p)
{
	struct store *s = p->s;
	u64 nr;

	repair_bad_blocks(p);
	/* Records found again may contradict the others. */
	if (records_judge(s))
		p->failed = true;
	if (s->blocks > s->nr_blocks) {
		report(p->r, "%" PRIu64 " table blocks in use become %" PRIu64
		       ", as many as the device has", s->blocks, s->nr_blocks);
		s->blocks = s->nr_blocks;
	}
	if (s->blocks < 2) {
		report(p->r, "%" PRIu64 " table blocks in use become 2", s->blocks);
		s->blocks = 2;
		p->failed |= store_grow_blocks(s, 2);
		if (p->failed)
			return;
		s->nr_read = 2;
		s->block[0].marks |= BLOCK_DIRTY;
		s->block[1].marks |= BLOCK_DIRTY;
	}
	for (nr = 0; nr < s->nr_read; nr++) {
		if (!(s->block[nr].marks & BLOCK_MENDED))
			continue;
		report(p->r, "table block %" PRIu64 ": one bit set right", nr);
		s->block[nr].marks |= BLOCK_DIRTY;
	}
}

/* ---- exceptions ---- */

static void drop_slot(struct repair *p, struct entry *e)
{
	store_dirty(p->s, e->place);
	e->kind = COWSNAP_SLOT_FREE;
}

static bool same_data(struct repair *p, const struct entry *a, const struct entry *b)
{
	size_t len = (size_t)p->s->geo.chunk_sectors * SECTOR;
	u8 *data = malloc(2 * len);
	bool same = false;

	if (!data) {
		p->failed = true;
		return false;
	}
	if (!io_read(p->s->io, chunk_sector(p->s, a->place) * SECTOR, data, len) &&
	    !io_read(p->s->io, chunk_sector(p->s, b->place) * SECTOR, data + len, len))
		same = !memcmp(data, data + len, len);
	free(data);
	return same;
}

/* Two slots for the same: no loss if they hold the same. */
static bool interchangeable(struct repair *p, const struct entry *a, const struct entry *b)
{
	if (a->kind != b->kind || (a->marks | b->marks) & (ENTRY_BAD_DATA | ENTRY_BEYOND))
		return false;
	return exception_is_zero(a) || same_data(p, a, b);
}

static void repair_twice(struct repair *p, struct entry *before, struct entry *e)
{
	if (interchangeable(p, before, e)) {
		report(p->r, "chunk %" PRIu64 " at sector %" PRIu64
		       ": freed, another slot has the same data", e->chunk,
		       chunk_sector(p->s, before->place));
		drop_slot(p, before);
		return;
	}
	report(p->r, "chunk %" PRIu64 " of epoch %" PRIu64
	       ": two slots that do not agree", e->chunk, e->epoch);
	invalidate_range(p, e->older, e->until, "one of its chunks had two contents");
	/* One of them stays, and is the origin's: it was told to go on. */
	if (exception_is_current(e))
		drop_slot(p, before);
}

static void repair_pointers(struct repair *p, struct entry *e)
{
	if (e->marks & (ENTRY_BAD_KIND | ENTRY_BAD_EPOCH | ENTRY_BAD_CHUNK)) {
		report(p->r, "slot of chunk %" PRIu64 " of the store: freed, it cannot be",
		       e->place);
		drop_slot(p, e);
		return;
	}
	if ((e->kind == COWSNAP_SLOT_RECORDS || e->kind == COWSNAP_SLOT_TRACK) &&
	    e->marks & (ENTRY_TWICE | ENTRY_BEYOND)) {
		report(p->r, "slot of chunk %" PRIu64 " of the store: freed, no %s there",
		       e->place, e->kind == COWSNAP_SLOT_TRACK ? "tracker" : "records");
		drop_slot(p, e);
		return;
	}
	if (e->marks & ENTRY_BEYOND) {
		report(p->r, "chunk %" PRIu64 " of epoch %" PRIu64 ": was beyond the device",
		       e->chunk, e->epoch);
		invalidate_range(p, e->older, e->until, "the device was cut off");
		drop_slot(p, e);
	}
}

static void repair_exceptions(struct repair *p)
{
	struct store *s = p->s;
	struct entry *e, *before = NULL;
	size_t i;

	for (i = 0; i < s->nr_order; i++) {
		e = &s->entry[s->order[i]];
		if (before && e->marks & before->marks & ENTRY_TWICE &&
		    e->epoch == before->epoch && exceptions_alike(e, before))
			repair_twice(p, before, e);
		if (e->marks & ENTRY_BAD_DATA && p->o->invalidate)
			invalidate_range(p, e->older, e->until, "data of it is damaged");
		before = e;
	}
	for (i = 0; i < s->nr_entries; i++)
		if (s->entry[i].kind != COWSNAP_SLOT_FREE && !(s->entry[i].marks & ENTRY_DOUBTED))
			repair_pointers(p, &s->entry[i]);
	/* They are dead because of a later one, which may be among those that were freed. */
	for (i = 0; p->loses && i < s->nr_entries; i++)
		if (exception_is_current(&s->entry[i]) && s->entry[i].marks & ENTRY_DEAD)
			drop_slot(p, &s->entry[i]);
}

/* ---- what stays ---- */

/* Whether an unfinished commit is to blame, the origin says, and that only the kernel reads. */
static void give_up_doubted(struct repair *p, struct entry *e)
{
	report(p->r, "chunk %" PRIu64 " (sector %" PRIu64 ") of an unfinished commit: freed",
	       e->chunk, chunk_sector(p->s, e->place));
	invalidate_range(p, 0, e->epoch, "data of a commit cannot be read");
	drop_slot(p, e);
}

static void repair_doubted(struct repair *p)
{
	struct store *s = p->s;
	size_t i;

	for (i = 0; p->o->invalidate && i < s->nr_entries; i++)
		if (s->entry[i].marks & ENTRY_DOUBTED && s->entry[i].marks & ENTRY_UNREADABLE)
			give_up_doubted(p, &s->entry[i]);
}

static void keep(struct repair *p, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void keep(struct repair *p, const char *format, ...)
{
	char text[320];
	va_list args;

	if (p->kept++ >= REPORT_FIRST)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	report(p->r, "%s", text);
}

/* What is damaged, and alive even so. */
static void count_kept(struct repair *p)
{
	struct store *s = p->s;
	const struct entry *e;
	char names[64];
	size_t i;

	for (i = 0; i < s->nr_order; i++) {
		e = &s->entry[s->order[i]];
		if (e->marks & ENTRY_BAD_DATA && !(e->marks & ENTRY_DEAD))
			keep(p, e->until == EPOCH_NOW ?
			     "chunk %" PRIu64 " of the origin, and of snapshots %s (sector %" PRIu64
			     "): cannot be read until it is written anew" :
			     "chunk %" PRIu64 " of snapshots %s (sector %" PRIu64
			     "): damaged, reads of it fail; --invalidate gives the snapshots up",
			     e->chunk, affected_names(s, e, names, sizeof(names)),
			     chunk_sector(s, e->place));
	}
	for (i = 0; i < s->nr_entries; i++) {
		e = &s->entry[i];
		if (e->marks & ENTRY_DOUBTED && e->marks & ENTRY_UNREADABLE &&
		    e->kind != COWSNAP_SLOT_FREE)
			keep(p, "chunk %" PRIu64 " (sector %" PRIu64 ") of an unfinished commit: "
			     "cannot be read; the kernel asks the origin whether it was written",
			     e->chunk, chunk_sector(s, e->place));
	}
	if (p->kept > REPORT_FIRST)
		report(p->r, "and %lu more damaged chunks", p->kept - REPORT_FIRST);
}

/* ---- superblock ---- */

static void repair_merge(struct repair *p)
{
	struct cowsnap_super *super = &p->s->super;
	u32 id = le32toh(super->merge_id);
	struct record *rec = record_by_id(p->s, id);

	if (id == COWSNAP_NO_MERGE ||
	    (rec && le64toh(super->merge_chunk) <= p->s->nr_origin_chunks))
		return;
	if (rec && record_live(rec))
		set_state(p, rec, COWSNAP_RECORD_INVALID, "nobody knows how far it was merged");
	else
		end_merge(p);
}

static void limit_option(struct repair *p, const char *name, __le32 *value, u32 limit, u32 preset)
{
	if (le32toh(*value) <= limit)
		return;
	report(p->r, "%s becomes %u", name, preset);
	*value = htole32(preset);
}

/* Whatever is on, the feature is: who does not know of it does not open the store. */
static void repair_redirect(struct repair *p)
{
	struct cowsnap_super *super = &p->s->super;

	if (super->redirect > COWSNAP_MAX_REDIRECT) {
		report(p->r, "redirect becomes 0");
		super->redirect = 0;
	}
	if (super->settle >= COWSNAP_SETTLE_MODES) {
		report(p->r, "settle becomes idle");
		super->settle = COWSNAP_SETTLE_IDLE;
	}
	if (super->redirect && !may_have_current(p->s)) {
		report(p->r, "the feature of redirect is set");
		super->incompat |= htole64(COWSNAP_INCOMPAT_CURRENT);
	}
	if (p->loses)
		report(p->r, "data of the origin that was redirected to the store may be lost");
}

static void repair_super(struct repair *p)
{
	struct store *s = p->s;
	int copy;

	limit_option(p, "on_full", &s->super.on_full, COWSNAP_FULL_POLICIES - 1,
		     COWSNAP_FULL_INVALIDATE);
	limit_option(p, "throttle", &s->super.throttle, 100, 100);
	limit_option(p, "low_water", &s->super.low_water, 100, 0);
	limit_option(p, "log", &s->super.log, COWSNAP_LOG_MODES - 1, COWSNAP_LOG_ON);
	repair_redirect(p);
	if (s->mended_records)
		report(p->r, "log: one bit set right in %u records", s->mended_records);
	if (s->lost_records)
		report(p->r, "log: %u records are lost", s->lost_records);
	if (s->bad_zones) {
		report(p->r, "log: its zones cannot be: forgotten, with the records in them");
		log_forget_zones(s);
	}
	if (le64toh(s->super.store_sectors) > s->sectors)
		report(p->r, "the store has %" PRIu64 " sectors now", s->sectors);
	if (s->bad_epoch)
		report(p->r, "epochs go on from %" PRIu64 ", the last one in use", s->epoch);
	for (copy = 0; copy < 2; copy++)
		if ((s->copy[copy].state != COPY_GOOD && s->copy[copy].state != COPY_OLD) ||
		    s->copy[copy].mended)
			report(p->r, "superblock %c: written anew", 'A' + copy);
}

static void repair_sequences(struct repair *p)
{
	if (p->s->super_sequence >= SEQUENCE_LIMIT)
		report(p->r, "superblocks are numbered from 1 again");
	if (p->s->durable >= SEQUENCE_LIMIT)
		report(p->r, "all table blocks are numbered from 1 again");
}

/* ---- to the disk ---- */

static bool blocks_dirty(const struct store *s)
{
	u64 nr;

	for (nr = 0; nr < s->nr_read; nr++)
		if (s->block[nr].marks & BLOCK_DIRTY)
			return true;
	return false;
}

/*
 * The old superblock counts until both have low numbers; and by what it calls durable
 * all blocks are believed, whatever their numbers. No number that is written here may
 * reach the limit either.
 */
static void renumber(struct store *s)
{
	u64 nr;

	if (s->super_sequence >= SEQUENCE_LIMIT - SUPERS_WRITTEN)
		s->super_sequence = 0;
	if (s->durable < SEQUENCE_LIMIT)
		return;
	for (nr = 0; nr < s->nr_read; nr++)
		s->block[nr].marks |= BLOCK_DIRTY;
}

/*
 * In an order that may stop anywhere, and be begun anew or left to the kernel:
 *
 * 1. Records, then superblocks: snapshots are invalid on the disk before what they lack
 *    is forgotten, be it that a superblock says that the store is shorter now.
 * 2. Table blocks, as part of the last durable commit. The commit that may not have
 *    ended is left as it is, its doubtful slots too: the kernel can judge them by the
 *    origin, and nobody believes them sooner because other blocks were written.
 *    What records of the log have is among them. Until 3 their zones are named, and change nothing.
 * 3. Superblocks: nothing is missing any more.
 */
static int write_all(struct repair *p)
{
	struct store *s = p->s;
	bool tables, log;

	renumber(s);
	log = log_into_tables(s);
	tables = blocks_dirty(s) || log;
	if (store_write_records(s) || store_write_supers(s))
		return -1;
	if (!tables)
		return 0;
	if (s->durable >= SEQUENCE_LIMIT)
		s->durable = 1;
	store_sort_entries(s);
	if (store_write_blocks(s))
		return -1;
	s->super.damage_epoch = 0;
	s->super.damaged_blocks = 0;
	s->super.damage_mark = 0;
	s->super.lost_epoch = 0;
	log_forget_zones(s);
	return store_write_supers(s);
}

/* Give up what depends on entries lost, now that all of them are known. */
static int settle(struct repair *p)
{
	invalidate_range(p, 0, p->lost, "entries of it may be lost");
	repair_merge(p);
	return records_judge(p->s) || exceptions_judge(p->s) ? -1 : 0;
}

/* What is not the store's own fault: cowsnap check says the same, with the remedy. */
static bool beyond_repair(struct repair *p)
{
	const struct store *s = p->s;

	if (le64toh(s->super.ro_compat) & ~COWSNAP_RO_COMPAT_KNOWN)
		report(p->r, "features are unknown here; use the tools of a newer version");
	else if (s->bad_seal)
		report(p->r, "the first sectors of the origin cannot be where the superblock says; restore it from a dump");
	else if (p->loses && !p->o->lose_redirected)
		report(p->r, "data of the origin that was redirected to the store may be lost with what is damaged; --lose-redirected goes on without");
	else if (s->io->logical_bytes > s->geo.block_bytes)
		report(p->r, "the device has logical blocks of %u bytes, the store writes %u; copy it to another device",
		       s->io->logical_bytes, s->geo.block_bytes);
	else if (s->nr_chunks >= 1ULL << COWSNAP_CHUNK_BITS)
		report(p->r, "the device has too many chunks; make it shorter");
	else
		return false;
	return true;
}

enum repair_result repair_store(struct store *s, const struct repair_options *o,
				struct report *r)
{
	struct repair p = { .s = s, .o = o, .r = r, .lost = exceptions_lost_epoch(s),
			    .loses = current_is_lost(s) };
	unsigned long before = r->lines;
	bool act;

	if (beyond_repair(&p))
		return REPAIR_FAILED;
	repair_super(&p);
	repair_sequences(&p);
	repair_blocks(&p);
	repair_exceptions(&p);
	repair_doubted(&p);
	repair_records(&p);
	if (p.failed || settle(&p))
		return REPAIR_FAILED;
	act = r->lines > before;
	count_kept(&p);
	if (act && !o->dry && write_all(&p))
		return REPAIR_FAILED;
	if (p.kept)
		return REPAIR_LEFT;
	return act ? REPAIR_DONE : REPAIR_NOTHING;
}

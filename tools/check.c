// SPDX-License-Identifier: GPL-2.0-only
/* Every damage that marks and numbers of a loaded store tell of, one line each. */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "track.h"

#define REPAIR "run cowsnap repair"
#define GIVES_UP "cowsnap repair makes the snapshots invalid that it may belong to"

/* ---- superblocks ---- */

static const char *copy_trouble(const struct super_copy *copy)
{
	switch (copy->state) {
	case COPY_BAD:
		return "wrong magic or checksum";
	case COPY_UNREADABLE:
		return "cannot be read";
	case COPY_NOT_SANE:
		return "sizes that cannot be";
	case COPY_OTHER:
		return "belongs to another store";
	case COPY_GOOD:
	case COPY_OLD:
		break;
	}
	return copy->mended ? "one bit is wrong" : NULL;
}

static void check_copies(struct store *s, struct report *r)
{
	const char *trouble;
	int copy;

	for (copy = 0; copy < 2; copy++) {
		trouble = copy_trouble(&s->copy[copy]);
		if (trouble)
			report(r, "superblock %c (sector %" PRIu64 "): %s; %s", 'A' + copy,
			       store_super_sector(s, copy), trouble, REPAIR);
	}
}

/* What the kernel refuses, or what costs safety, whatever stands on the device. */
static void check_device(struct store *s, struct report *r)
{
	const struct io *io = s->io;
	u32 block = s->geo.block_bytes;

	if (io->logical_bytes > block)
		report(r, "the device has logical blocks of %u bytes, the store writes %u; "
		       "copy the store as it is (dd) to a device with blocks of %u bytes or less",
		       io->logical_bytes, block, block);
	if (s->nr_chunks >= 1ULL << COWSNAP_CHUNK_BITS)
		report(r, "the device has %" PRIu64
		       " chunks, the kernel takes less than 2^%u; make it shorter", s->nr_chunks,
		       COWSNAP_CHUNK_BITS);
	if (io->offset_bytes && io->physical_bytes > io->logical_bytes)
		report_note(r, "note: the device does not start with a physical block of %u bytes: "
			    "a power cut while one block is written can damage another; "
			    "let the partition start at a multiple of %u bytes",
			    io->physical_bytes, io->physical_bytes);
	else if (io->physical_bytes > block && io->physical_bytes <= COWSNAP_MAX_BLOCK_BYTES)
		report_note(r, "note: the device has physical blocks of %u bytes, the store writes %u: "
			    "a power cut while one is written can damage another; make the store "
			    "anew on this device", io->physical_bytes, block);
}

static void check_features(struct store *s, struct report *r)
{
	u64 unknown = le64toh(s->super.ro_compat) & ~COWSNAP_RO_COMPAT_KNOWN;

	if (unknown)
		report(r, "superblock: features %#" PRIx64 " are unknown here, so the kernel opens "
		       "the store only if the device is read-only; use a newer version", unknown);
}

static void check_lengths(struct store *s, struct report *r)
{
	u64 was = le64toh(s->super.store_sectors);

	if (was > s->sectors)
		report(r, "the device has %" PRIu64 " sectors, the store had %" PRIu64
		       "; make it as long again, or %s", s->sectors, was, REPAIR);
	if (s->blocks < 2)
		report(r, "superblock: %" PRIu64 " table blocks in use, there are always two; %s",
		       s->blocks, GIVES_UP);
	if (s->blocks > s->nr_blocks)
		report(r, "%" PRIu64 " table blocks in use, the device has room for %" PRIu64
		       "; make it as long as it was, or %s", s->blocks, s->nr_blocks, REPAIR);
}

static void check_sequences(struct store *s, struct report *r)
{
	if (s->durable >= SEQUENCE_LIMIT)
		report(r, "superblock: commit %" PRIu64 " is called durable, which cannot be; %s",
		       s->durable, REPAIR);
	if (s->super_sequence >= SEQUENCE_LIMIT)
		report(r, "superblock: its sequence is %" PRIu64 ", which cannot be; %s",
		       s->super_sequence, REPAIR);
	if (s->bad_epoch)
		report(r, "superblock: epoch %" PRIu64 " cannot be, the last one is %u; %s",
		       (u64)le64toh(s->super.epoch), COWSNAP_MAX_EPOCH, REPAIR);
}

static void check_merge(struct store *s, struct report *r)
{
	u32 id = le32toh(s->super.merge_id);

	if (id == COWSNAP_NO_MERGE)
		return;
	if (!record_by_id(s, id))
		report(r, "superblock: a merge of snapshot %u, which does not exist; %s", id,
		       REPAIR);
	else if (le64toh(s->super.merge_chunk) > s->nr_origin_chunks)
		report(r, "superblock: merged up to chunk %" PRIu64 ", beyond the origin; %s",
		       (u64)le64toh(s->super.merge_chunk), REPAIR);
}

static void check_options(struct store *s, struct report *r)
{
	if (le32toh(s->super.on_full) >= COWSNAP_FULL_POLICIES)
		report(r, "superblock: on_full %u is unknown; %s",
		       le32toh(s->super.on_full), REPAIR);
	if (le32toh(s->super.throttle) > 100)
		report(r, "superblock: throttle %u is above 100 percent; %s",
		       le32toh(s->super.throttle), REPAIR);
	if (le32toh(s->super.low_water) > 100)
		report(r, "superblock: low_water %u is above 100 percent; %s",
		       le32toh(s->super.low_water), REPAIR);
	if (s->super.redirect > COWSNAP_MAX_REDIRECT)
		report(r, "superblock: redirect %u is above %u percent; %s", s->super.redirect,
		       COWSNAP_MAX_REDIRECT, REPAIR);
	if (s->super.settle >= COWSNAP_SETTLE_MODES)
		report(r, "superblock: settle %u is none of those there are; %s", s->super.settle, REPAIR);
	if (s->super.redirect && !(le64toh(s->super.incompat) & COWSNAP_INCOMPAT_CURRENT))
		report(r, "superblock: redirect is on, and its feature is not; %s", REPAIR);
}

/* ---- the log ---- */

static void check_log(struct store *s, struct report *r)
{
	u64 lost = le64toh(s->super.lost_epoch);

	if (le32toh(s->super.log) >= COWSNAP_LOG_MODES)
		report(r, "superblock: log %u is unknown; %s", le32toh(s->super.log), REPAIR);
	if (s->bad_zones)
		report(r, "superblock: zones of the log overlap, or are beyond the tables; %s",
		       GIVES_UP);
	if (epochs_live(s, 0, lost))
		report(r, "superblock: snapshots up to epoch %" PRIu64 " may lack records of the log "
		       "that were lost before; %s", lost, GIVES_UP);
	if (s->mended_records)
		report(r, "log: one bit is wrong in %u records; %s", s->mended_records, REPAIR);
	if (s->lost_records)
		report(r, "log: %u records are damaged, missing or cannot be read; %s",
		       s->lost_records, GIVES_UP);
}

/* ---- the seal ---- */

static void check_seal(struct store *s, struct report *r)
{
	if (s->bad_seal)
		report(r, "superblock: the first sectors of the origin cannot be in chunk %" PRIu64
		       "; restore it from a dump", (u64)le64toh(s->super.seal_start));
}

/* ---- data of the origin ---- */

static void check_current(struct store *s, struct report *r)
{
	if (current_is_lost(s))
		report(r, "the store has data of its origin (redirect), and may have lost some with what "
		       "is damaged, so the kernel refuses it; cowsnap repair --lose-redirected goes on "
		       "without");
}

/* ---- table blocks ---- */

bool next_bad_blocks(const struct store *s, u64 *nr, u64 *end)
{
	u64 limit = s->blocks < s->nr_read ? s->blocks : s->nr_read;

	while (*nr < limit && !(s->block[*nr].marks & BLOCK_BAD))
		++*nr;
	for (*end = *nr; *end < limit && s->block[*end].marks & BLOCK_BAD; ++*end)
		;
	return *nr < limit;
}

/* Does this damage, one of a sort, get a line? All are counted. */
static bool gets_line(struct report *r, unsigned long *seen)
{
	if (++*seen <= REPORT_FIRST)
		return true;
	r->lines++;
	return false;
}

static void say_rest(struct report *r, unsigned long seen, const char *what)
{
	if (seen > REPORT_FIRST)
		report_note(r, "and %lu more %s", seen - REPORT_FIRST, what);
}

static const char *block_trouble(u8 marks)
{
	return marks & BLOCK_UNREADABLE ? "cannot be read" : "wrong checksum, or impossible";
}

/* Those side by side with the same trouble as @nr: where they end. */
static u64 end_of_alike(const struct store *s, u64 nr, u64 end)
{
	u8 marks = s->block[nr].marks;

	while (nr < end && s->block[nr].marks == marks)
		nr++;
	return nr;
}

static void check_bad_blocks(struct store *s, struct report *r)
{
	unsigned long seen = 0;
	u64 nr = 0, end;

	for (; next_bad_blocks(s, &nr, &end); nr = end) {
		end = end_of_alike(s, nr, end);
		if (!gets_line(r, &seen))
			continue;
		if (end == nr + 1)
			report(r, "table block %" PRIu64 " (sector %" PRIu64 "): %s; %s", nr,
			       store_block_sector(s, nr), block_trouble(s->block[nr].marks),
			       GIVES_UP);
		else
			report(r, "table blocks %" PRIu64 " to %" PRIu64 " (from sector %" PRIu64
			       "): %s; %s", nr, end - 1, store_block_sector(s, nr),
			       block_trouble(s->block[nr].marks), GIVES_UP);
	}
	say_rest(r, seen, "runs of damaged table blocks");
}

static void check_blocks(struct store *s, struct report *r)
{
	unsigned long seen = 0;
	u64 nr;

	check_bad_blocks(s, r);
	for (nr = 0; nr < s->nr_read; nr++)
		if (s->block[nr].marks & BLOCK_MENDED && gets_line(r, &seen))
			report(r, "table block %" PRIu64 " (sector %" PRIu64
			       "): one bit is wrong; %s", nr, store_block_sector(s, nr), REPAIR);
	say_rest(r, seen, "table blocks with a wrong bit");
}

/* ---- records ---- */

static void check_record(const struct record *rec, struct report *r)
{
	if (rec->marks & RECORD_BAD_STATE)
		report(r, "record %u: snapshot %u has the unknown state %u; %s", rec->number,
		       rec->id, rec->state, REPAIR);
	if (rec->marks & RECORD_BAD_EPOCH)
		report(r, "record %u: snapshot %u has epoch %" PRIu64
		       ", never given out; %s", rec->number, rec->id, rec->epoch, REPAIR);
	if (rec->marks & RECORD_BAD_SECTORS)
		report(r, "record %u: snapshot %u has %" PRIu64
		       " sectors, the origin has not; %s", rec->number, rec->id, rec->sectors,
		       REPAIR);
	if (rec->marks & RECORD_ID_TWICE)
		report(r, "record %u: there are two snapshots %u; %s", rec->number, rec->id,
		       REPAIR);
	if (rec->marks & RECORD_EPOCH_TWICE)
		report(r, "record %u: snapshot %u has the epoch %" PRIu64
		       " of another one; %s", rec->number, rec->id, rec->epoch, REPAIR);
}

static void check_records_block(struct store *s, const struct records_chunk *c, u32 block,
				struct report *r)
{
	u64 sector = chunk_sector(s, c->place) + (u64)block * s->geo.block_bytes / 512;
	u8 marks = c->marks[block];

	if (marks & BLOCK_BAD)
		report(r, "block %u of records chunk %" PRIu64 " (sector %" PRIu64 "): %s; "
		       "cowsnap repair forgets the snapshots in it", block, c->number, sector,
		       block_trouble(marks));
	else if (marks & BLOCK_MENDED)
		report(r, "block %u of records chunk %" PRIu64 " (sector %" PRIu64
		       "): one bit is wrong; %s", block, c->number, sector, REPAIR);
}

static void check_records(struct store *s, struct report *r)
{
	unsigned long seen = 0;
	size_t i;
	u32 block;

	for (i = 0; i < s->nr_records; i++)
		check_record(&s->record[i], r);
	for (i = 0; i < s->nr_records_chunks; i++)
		for (block = 0; block < s->geo.chunk_blocks; block++)
			if (s->records[i].marks[block] & (BLOCK_BAD | BLOCK_MENDED) &&
			    gets_line(r, &seen))
				check_records_block(s, &s->records[i], block, r);
	say_rest(r, seen, "damaged blocks of records");
}

static void check_trackers(struct store *s, struct report *r)
{
	unsigned int nr = 0;
	size_t i;

	for (i = 0; i < s->nr_records; i++) {
		if (!record_is_tracker(&s->record[i]))
			continue;
		if (!track_is_whole(s, &s->record[i]))
			report(r, "tracker %u: a block of it is missing or damaged; cowsnap repair "
			       "makes it invalid", s->record[i].id);
		if (nr++ == COWSNAP_MAX_TRACKERS)
			report(r, "there are more than %u trackers; %s", COWSNAP_MAX_TRACKERS,
			       REPAIR);
	}
}

/* ---- exceptions ---- */

const char *affected_names(const struct store *s, const struct entry *e, char *text,
			   size_t len)
{
	const size_t max = 4;
	size_t found = 0, at = 0, i;

	for (i = 0; i < s->nr_records; i++) {
		const struct record *rec = &s->record[i];

		if (!record_live(rec) || rec->epoch <= e->older || rec->epoch > e->until)
			continue;
		if (found++ < max && at < len)
			at += snprintf(text + at, len - at, "%s%u", found > 1 ? ", " : "", rec->id);
	}
	if (!found)
		snprintf(text, len, "none");
	else if (found > max && at < len)
		snprintf(text + at, len - at, " and %zu more", found - max);
	return text;
}

/* What stands in a chunk that only a snapshot has, or the origin too. */
static const char *whose(const struct store *s, const struct entry *e, char *text, size_t len)
{
	char names[64];

	affected_names(s, e, names, sizeof(names));
	snprintf(text, len, "%ssnapshots %s", e->until == EPOCH_NOW ? "the origin, and of " : "", names);
	return text;
}

static const char *data_remedy(const struct entry *e)
{
	return e->until == EPOCH_NOW ?
	       "reads of it fail until it is written anew" :
	       "reads of it fail, cowsnap repair --invalidate gives the snapshots up";
}

static void check_exception(struct store *s, const struct entry *e, struct report *r)
{
	const char *kind = kind_name(e->kind);
	u64 sector = chunk_sector(s, e->place);
	char names[96];

	whose(s, e, names, sizeof(names));
	if (e->marks & ENTRY_BAD_EPOCH)
		report(r, "slot of chunk %" PRIu64 " of the store: epoch %" PRIu64
		       " was never given out; %s", e->place, e->epoch, GIVES_UP);
	if (e->marks & ENTRY_BAD_CHUNK)
		report(r, "slot of chunk %" PRIu64 " of the store: %s chunk %" PRIu64
		       " is beyond the origin; %s", e->place, kind, e->chunk, GIVES_UP);
	if (e->marks & ENTRY_BEYOND)
		report(r, "%s chunk %" PRIu64 " of %s: its place, sector %" PRIu64
		       ", is beyond the device; make it as long as it was, or %s", kind,
		       e->chunk, names, sector, REPAIR);
	if (e->marks & ENTRY_DEAD)
		return;
	if (e->marks & ENTRY_TWICE)
		report(r, "%s chunk %" PRIu64 " of %s: two slots, one for sector %"
		       PRIu64 "; %s", kind, e->chunk, names, sector, REPAIR);
	if (e->marks & ENTRY_BAD_DATA)
		report(r, "%s chunk %" PRIu64 " of %s (sector %" PRIu64 "): %s; %s", kind, e->chunk,
		       names, sector, e->marks & ENTRY_UNREADABLE ?
		       "cannot be read" : "wrong checksum", data_remedy(e));
}

static const char *kind_trouble(const struct store *s, const struct entry *e)
{
	if (e->kind >= COWSNAP_SLOT_KINDS)
		return "is unknown";
	if (cowsnap_seal_has(&s->geo, &s->super, e->place))
		return "cannot be, what is sealed of the origin is there";
	if (e->chunk < cowsnap_seal_chunks(&s->geo))
		return "cannot be, that chunk of the origin is sealed";
	if (e->kind == COWSNAP_SLOT_CURRENT_ZERO && !may_have_zeroes(s))
		return "cannot be, the store lacks the feature of redirected zeroes";
	return "cannot be, the store has no sealed origin that is redirected";
}

/* Slots that belong to no chunk of the origin, by their place. */
static void check_other(struct store *s, const struct entry *e, struct report *r)
{
	if (e->marks & ENTRY_DOUBTED) {
		if (e->marks & ENTRY_UNREADABLE)
			report(r, "chunk %" PRIu64 " (sector %" PRIu64 ") of a commit not known to "
			       "have ended: cannot be read; the kernel asks the origin whether it "
			       "was written, cowsnap repair --invalidate gives the snapshots up",
			       e->chunk, chunk_sector(s, e->place));
		return;
	}
	if (e->marks & ENTRY_BAD_KIND)
		report(r, "slot of chunk %" PRIu64 " of the store: kind %u %s; %s", e->place,
		       e->kind, kind_trouble(s, e), GIVES_UP);
	if (e->kind == COWSNAP_SLOT_TRACK)
		report(r, "slot of chunk %" PRIu64 " of the store: there is no piece %" PRIu64
		       " of a tracker there; %s", e->place, e->chunk, REPAIR);
	if (e->kind != COWSNAP_SLOT_RECORDS)
		return;
	if (e->marks & ENTRY_BAD_CHUNK)
		report(r, "slot of chunk %" PRIu64 " of the store: there is no records chunk %"
		       PRIu64 "; %s", e->place, e->chunk, REPAIR);
	if (e->marks & ENTRY_TWICE)
		report(r, "slot of chunk %" PRIu64 " of the store: records chunk %" PRIu64
		       " is elsewhere too; %s", e->place, e->chunk, REPAIR);
	if (e->marks & ENTRY_BEYOND)
		report(r, "slot of chunk %" PRIu64 " of the store: records chunk %" PRIu64
		       " is beyond the device; make it as long as it was, or %s", e->place,
		       e->chunk, REPAIR);
}

static void check_others(struct store *s, struct report *r)
{
	const u16 trouble = ENTRY_BAD_KIND | ENTRY_BAD_CHUNK | ENTRY_TWICE | ENTRY_BEYOND |
			    ENTRY_BAD_EPOCH | ENTRY_UNREADABLE;
	unsigned long seen = 0;
	const struct entry *e;
	size_t i;

	for (i = 0; i < s->nr_entries; i++) {
		e = &s->entry[i];
		if (entry_is_exception(e) &&
		    (e->marks & (ENTRY_DOUBTED | ENTRY_UNREADABLE)) !=
		    (ENTRY_DOUBTED | ENTRY_UNREADABLE))
			continue;
		if (e->marks & trouble && gets_line(r, &seen))
			check_other(s, e, r);
	}
	say_rest(r, seen, "slots like these");
}

static void check_exceptions(struct store *s, struct report *r)
{
	const u16 nonsense = ENTRY_BAD_EPOCH | ENTRY_BAD_CHUNK | ENTRY_BEYOND;
	const u16 trouble = ENTRY_TWICE | ENTRY_BAD_DATA;
	unsigned long seen = 0;
	const struct entry *e;
	size_t i;

	for (i = 0; i < s->nr_order; i++) {
		e = &s->entry[s->order[i]];
		if (!(e->marks & nonsense) && (!(e->marks & trouble) || e->marks & ENTRY_DEAD))
			continue;
		if (gets_line(r, &seen))
			check_exception(s, e, r);
	}
	say_rest(r, seen, "damaged chunks");
}

void check_store(struct store *s, struct report *r)
{
	check_device(s, r);
	check_features(s, r);
	check_copies(s, r);
	check_lengths(s, r);
	check_sequences(s, r);
	check_merge(s, r);
	check_options(s, r);
	check_log(s, r);
	check_seal(s, r);
	check_current(s, r);
	check_blocks(s, r);
	check_records(s, r);
	check_trackers(s, r);
	check_others(s, r);
	check_exceptions(s, r);
}

void count_totals(const struct store *s, struct totals *t)
{
	const struct entry *e;
	size_t i;

	memset(t, 0, sizeof(*t));
	for (i = 0; i < s->nr_records; i++)
		t->live += record_live(&s->record[i]);
	for (i = 0; i < s->nr_read; i++)
		t->unsure += !!(s->block[i].marks & BLOCK_UNSURE);
	t->unsure += s->log_unsure;
	for (i = 0; i < s->nr_entries; i++) {
		e = &s->entry[i];
		t->doubted += e->marks & ENTRY_DOUBTED && !exception_is_current(e);
		t->void_current += e->marks & ENTRY_DOUBTED && exception_is_current(e);
	}
	for (i = 0; i < s->nr_order; i++) {
		e = &s->entry[s->order[i]];
		t->dead += !!(e->marks & ENTRY_DEAD);
		t->exceptions += !(e->marks & ENTRY_DEAD) && !exception_is_current(e);
		t->current += !(e->marks & ENTRY_DEAD) && exception_is_current(e);
		t->bad_data += !!(e->marks & ENTRY_BAD_DATA);
	}
}

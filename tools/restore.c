// SPDX-License-Identifier: GPL-2.0-only
/*
 * A store from a dump: tables, records and superblocks written anew, every exception
 * at the place it had. The uuid stays, because the checksums of the data depend on it.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "log.h"
#include "restore.h"

#define SECTOR 512

/* More than anybody makes snapshots in one store between two dumps. */
#define EPOCHS_SINCE_DUMP	65536

/* A log with more zones than one since a dump was made has not been seen. */
#define SERIES_SINCE_DUMP	(1ULL << 32)

/*
 * No series is given out twice, on this device or on another that the dump is restored to: old
 * records would be taken for new ones.
 */
static void leave_out_series(struct dump *d)
{
	if (d->log_series)
		d->s.super.zone[0].series = htole64(d->log_series + SERIES_SINCE_DUMP);
}

static bool zeroes_are_there(const struct store *s)
{
	size_t i;

	for (i = 0; i < s->nr_entries; i++)
		if (s->entry[i].kind == COWSNAP_SLOT_CURRENT_ZERO)
			return true;
	return false;
}

/* A dump names no features: those of a store follow from what is in it. */
static void set_features(struct store *s)
{
	struct cowsnap_super *super = &s->super;
	u64 origin = le64toh(super->origin_sectors), chunk = le32toh(super->chunk_sectors);

	if (super->zone[0].series)
		super->incompat |= htole64(COWSNAP_INCOMPAT_LOG);
	if (super->seal_state != COWSNAP_SEAL_OPEN)
		super->incompat |= htole64(COWSNAP_INCOMPAT_SEAL);
	if (origin && chunk && (origin - 1) / chunk >= 1ULL << COWSNAP_CHUNK_BITS)
		super->incompat |= htole64(COWSNAP_INCOMPAT_WIDE);
	if (super->redirect || current_is_there(s))
		super->incompat |= htole64(COWSNAP_INCOMPAT_CURRENT);
	if (zeroes_are_there(s))
		super->incompat |= htole64(COWSNAP_INCOMPAT_ZEROES);
}

static int set_sizes(struct dump *d)
{
	struct cowsnap_super *super = &d->s.super;

	memcpy(super->magic, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES);
	super->version = htole32(COWSNAP_FORMAT);
	super->epoch = htole64(d->s.epoch);
	leave_out_series(d);
	set_features(&d->s);
	if (!super_sane(super) || d->s.epoch > COWSNAP_MAX_EPOCH)
		return dump_fail(d, "a size or the epoch cannot be");
	if (store_set_geometry(&d->s))
		return dump_fail(d, "the device is too short for a store");
	if (d->s.sequence >= SEQUENCE_LIMIT || d->s.super_sequence >= SEQUENCE_LIMIT)
		return dump_fail(d, "sequence or super_sequence cannot be");
	if (le32toh(super->on_full) >= COWSNAP_FULL_POLICIES ||
	    le32toh(super->throttle) > 100 || le32toh(super->low_water) > 100 ||
	    le32toh(super->log) >= COWSNAP_LOG_MODES || d->log_series >= SEQUENCE_LIMIT ||
	    super->redirect > COWSNAP_MAX_REDIRECT || super->settle >= COWSNAP_SETTLE_MODES)
		return dump_fail(d, "on_full, throttle, low_water, log, log_series, redirect or settle "
				    "cannot be");
	return 0;
}

/* ---- records ---- */

static int place_records(struct dump *d, struct entry *e)
{
	struct store *s = &d->s;
	struct records_chunk *c;
	size_t i;

	if (e->chunk >= records_max_chunks(s))
		return dump_fail(d, "there is no records chunk %" PRIu64, e->chunk);
	for (i = 0; i < s->nr_records_chunks; i++)
		if (s->records[i].number == e->chunk)
			return dump_fail(d, "records chunk %" PRIu64 " is there twice",
					 e->chunk);
	c = records_new_chunk(s, e->chunk, e->place);
	if (!c)
		return dump_fail(d, "out of memory");
	memset(c->marks, BLOCK_DIRTY, s->geo.chunk_blocks);
	return 0;
}

/* A dump written by hand may leave it to us where the records are. */
static int find_room(struct dump *d, u64 number)
{
	struct store *s = &d->s;
	struct entry e = { .kind = COWSNAP_SLOT_RECORDS, .chunk = number };
	size_t i = 0;

	store_sort_entries(s);
	for (e.place = 0; e.place < s->nr_chunks; e.place++) {
		while (i < s->nr_entries && s->entry[i].place < e.place)
			i++;
		if (store_block_of(s, e.place) != ~0ULL &&
		    !cowsnap_seal_has(&s->geo, &s->super, e.place) &&
		    (i == s->nr_entries || s->entry[i].place != e.place))
			break;
	}
	if (e.place == s->nr_chunks)
		return dump_fail(d, "no room for the records of so many snapshots");
	return store_add_entry(s, &e) ? dump_fail(d, "out of memory") :
	       place_records(d, &e);
}

static bool has_chunk(const struct store *s, u64 number)
{
	size_t i;

	for (i = 0; i < s->nr_records_chunks; i++)
		if (s->records[i].number == number)
			return true;
	return false;
}

static int set_records(struct dump *d)
{
	struct store *s = &d->s;
	u32 per = records_per_chunk(s);
	u64 need = 0, number;
	size_t i;

	for (i = 0; i < s->nr_entries; i++)
		if (s->entry[i].kind == COWSNAP_SLOT_RECORDS && place_records(d, &s->entry[i]))
			return -1;
	if (s->nr_records > COWSNAP_SUPER_RECORDS)
		need = (s->nr_records - COWSNAP_SUPER_RECORDS + per - 1) / per;
	for (number = 0; number < need; number++)
		if (!has_chunk(s, number) && find_room(d, number))
			return -1;
	if (records_judge(s))
		return dump_fail(d, "out of memory");
	for (i = 0; i < s->nr_records; i++)
		if (s->record[i].marks)
			return dump_fail(d, "snapshot %u: it cannot be, or is there twice",
					 s->record[i].id);
	return 0;
}

static const char *why_given_up(const struct dump *d)
{
	if (!d->outdated)
		return "the dump may lack entries of it";
	if (!d->seen_end)
		return "the dump has no end, it may be cut off; -f keeps the snapshot as the dump has it";
	return "the store is newer than the dump; -f keeps the snapshot as the dump has it";
}

/* What the dump does not know would appear as newer data of the origin. */
static int give_up_lost(struct dump *d, struct report *r)
{
	struct record *rec;
	size_t i;

	for (i = 0; i < d->s.nr_records; i++) {
		rec = &d->s.record[i];
		if (!record_live(rec) || (rec->epoch > d->lost_epoch && !d->outdated))
			continue;
		report(r, "snapshot %u becomes invalid: %s", rec->id, why_given_up(d));
		rec->state = COWSNAP_RECORD_INVALID;
	}
	if (!record_by_id(&d->s, le32toh(d->s.super.merge_id)) ||
	    le64toh(d->s.super.merge_chunk) > d->s.nr_origin_chunks) {
		d->s.super.merge_id = htole32(COWSNAP_NO_MERGE);
		d->s.super.merge_chunk = 0;
	}
	return records_judge(&d->s) ? dump_fail(d, "out of memory") : 0;
}

/* ---- exceptions ---- */

static int check_entry(struct dump *d, const struct entry *e, const struct entry *before)
{
	const struct store *s = &d->s;

	if (e->place >= s->nr_chunks || store_block_of(s, e->place) == ~0ULL)
		return dump_fail(d, "place %" PRIu64 " is none for data on this device", e->place);
	if (before && before->place == e->place)
		return dump_fail(d, "place %" PRIu64 " stands there twice", e->place);
	if (cowsnap_seal_has(&s->geo, &s->super, e->place))
		return dump_fail(d, "place %" PRIu64 " has what is sealed of the origin", e->place);
	if (e->kind == COWSNAP_SLOT_RECORDS)
		return 0;
	if (e->chunk >= s->nr_origin_chunks)
		return dump_fail(d, "chunk %" PRIu64 " is beyond the origin", e->chunk);
	if (exception_is_current(e) && !current_fits(s, e))
		return dump_fail(d, "chunk %" PRIu64 " of the origin cannot be in the store: it is sealed, or "
				 "the origin is not", e->chunk);
	if (!e->epoch || e->epoch > s->epoch)
		return dump_fail(d, "chunk %" PRIu64 ": epoch %" PRIu64 " was never given out",
				 e->chunk, e->epoch);
	return 0;
}

static int set_exceptions(struct dump *d)
{
	struct store *s = &d->s;
	u64 block;
	size_t i;

	if (exceptions_judge(s))
		return dump_fail(d, "out of memory");
	for (i = 0; i < s->nr_entries; i++)
		if (s->entry[i].marks & ENTRY_TWICE)
			return dump_fail(d, "chunk %" PRIu64 " of epoch %" PRIu64
					 " stands there twice", s->entry[i].chunk,
					 s->entry[i].epoch);
	store_sort_entries(s);
	for (i = 0; i < s->nr_entries; i++) {
		if (check_entry(d, &s->entry[i], i ? &s->entry[i - 1] : NULL))
			return -1;
		block = store_block_of(s, s->entry[i].place);
		if (block >= s->blocks)
			s->blocks = block + 1;
	}
	return 0;
}

static int set_blocks(struct dump *d)
{
	struct store *s = &d->s;
	u64 nr;

	/* A dump of a larger device: what it had beyond has no exceptions. */
	if (s->blocks > s->nr_blocks)
		s->blocks = s->nr_blocks;
	if (s->blocks < 2)
		s->blocks = 2;
	if (store_grow_blocks(s, s->blocks))
		return dump_fail(d, "out of memory");
	for (nr = 0; nr < s->blocks; nr++)
		s->block[nr].marks = BLOCK_DIRTY;
	return 0;
}

/* ---- data ---- */

/* Without a checksum nothing would tell that this chunk is not what it was. */
static void give_up_chunk(struct dump *d, const struct entry *e, struct report *r)
{
	struct cowsnap_super *super = &d->s.super;
	struct record *rec;
	size_t i;

	for (i = 0; i < d->s.nr_records; i++) {
		rec = &d->s.record[i];
		if (!record_live(rec) || rec->epoch != e->epoch)
			continue;
		report(r, "snapshot %u becomes invalid: data of it is lost", rec->id);
		rec->state = COWSNAP_RECORD_INVALID;
		if (le32toh(super->merge_id) != rec->id)
			continue;
		super->merge_id = htole32(COWSNAP_NO_MERGE);
		super->merge_chunk = 0;
	}
}

static int copy_chunk(struct dump *d, const struct entry *e, struct io *from, u8 *data,
		      struct report *r)
{
	struct store *s = &d->s;
	u64 sector = chunk_sector(s, e->place);
	size_t len = (size_t)s->geo.chunk_sectors * SECTOR;

	if (io_read(from, sector * SECTOR, data, len)) {
		if (exception_is_current(e))
			return dump_fail(d, "chunk %" PRIu64 " of the origin cannot be copied", e->chunk);
		report(r, "chunk %" PRIu64 " of epoch %" PRIu64 " (sector %" PRIu64
		       "): its data cannot be read", e->chunk, e->epoch, sector);
		if (!exception_has_crc(e))
			give_up_chunk(d, e, r);
		return 0;
	}
	/* It is copied even so: the kernel will find the same and give an error. */
	if (exception_has_crc(e) && !(e->marks & ENTRY_FRESH) &&
	    crc32c(cowsnap_seed(s->super.uuid, sector), data, len) != e->crc)
		report(r, "chunk %" PRIu64 " of epoch %" PRIu64 " (sector %" PRIu64
		       "): its data is damaged there", e->chunk, e->epoch, sector);
	return io_write(s->io, sector * SECTOR, data, len) ?
	       dump_fail(d, "data cannot be written") : 0;
}

/* The origin has no other copy of it. */
static int copy_sealed(struct dump *d, struct io *from, u8 *data)
{
	struct store *s = &d->s;
	u64 place = le64toh(s->super.seal_start), end = place + cowsnap_seal_chunks(&s->geo);
	size_t len = (size_t)s->geo.chunk_sectors * SECTOR;

	for (; cowsnap_is_sealed(&s->super) && place < end; place++)
		if (io_read(from, chunk_sector(s, place) * SECTOR, data, len) ||
		    io_write(s->io, chunk_sector(s, place) * SECTOR, data, len))
			return dump_fail(d, "what is sealed of the origin cannot be copied");
	return 0;
}

static int copy_data(struct dump *d, struct io *from, struct report *r)
{
	u8 *data = malloc((size_t)d->s.geo.chunk_sectors * SECTOR);
	size_t i;
	int ret;

	if (!data)
		return dump_fail(d, "out of memory");
	ret = copy_sealed(d, from, data);
	for (i = 0; i < d->s.nr_entries && !ret; i++)
		if (exception_has_data(&d->s.entry[i]))
			ret = copy_chunk(d, &d->s.entry[i], from, data, r);
	free(data);
	return ret;
}

/*
 * The numbers are those of the dump, so that a restore that was interrupted can be begun
 * anew. Slots that the kernel has to judge stay in a commit that nobody calls durable.
 */
static void set_sequences(struct store *s)
{
	bool any = false;
	u64 nr;
	size_t i;

	if (s->super_sequence)
		s->super_sequence--;
	s->nr_read = s->blocks;
	for (i = 0; i < s->nr_entries; i++) {
		if (!(s->entry[i].marks & ENTRY_FRESH))
			continue;
		nr = store_block_of(s, s->entry[i].place);
		s->block[nr].marks |= BLOCK_UNSURE;
		s->block[nr].sequence = s->sequence + !s->sequence;
		any = true;
	}
	s->durable = any && s->sequence ? s->sequence - 1 : s->sequence;
}

/* The superblocks come last: until then it is no store, whenever this ends. */
static int write_store(struct dump *d, struct io *from, struct report *r)
{
	struct store *s = &d->s;

	s->copy[0].state = COPY_BAD;
	s->copy[1].state = COPY_BAD;
	set_sequences(s);
	if (store_write_unusable(s))
		return dump_fail(d, "it cannot be written");
	if (from && copy_data(d, from, r))
		return -1;
	if (store_write_records(s) || store_write_blocks(s) || store_write_supers(s))
		return dump_fail(d, "it cannot be written");
	return 0;
}

/* ---- is it newer than the dump? ---- */

static enum restore_age age_of_blocks(struct store *s, u64 sequence)
{
	enum restore_age age = RESTORE_NOTHING;
	u64 nr, found;

	/* All that the device has room for: the dump may name fewer than there are now. */
	for (nr = 0; nr < s->nr_blocks; nr++) {
		if (store_block_sequence(s, nr, &found)) {
			if (found > sequence)
				return RESTORE_NEWER;
			age = RESTORE_SAME;
		} else if (nr >= s->blocks + COWSNAP_COMMIT_BLOCKS) {
			/* Beyond what was ever written there is nothing of this store. */
			break;
		}
	}
	return age;
}

/* The device may have had a log since: its records there have the dump's uuid, and right marks. */
static void take_series(struct dump *d, const struct store *s)
{
	u64 series = log_series(s);

	if (series > d->log_series && series < SEQUENCE_LIMIT)
		d->log_series = series;
}

int restore_look(struct dump *d, struct io *io, enum restore_age *age, u64 *epoch)
{
	struct store s;
	int r;

	*age = RESTORE_NOTHING;
	*epoch = 0;
	if (store_open(&s, io) == STORE_OK &&
	    !memcmp(s.super.uuid, d->s.super.uuid, sizeof(s.super.uuid))) {
		r = store_load(&s);
		*age = s.super_sequence > d->s.super_sequence || s.sequence > d->s.sequence ?
		       RESTORE_NEWER : RESTORE_SAME;
		*epoch = s.epoch;
		take_series(d, &s);
		store_close(&s);
		return r;
	}
	store_close(&s);
	/* No superblock of it, but its tables may be there still. */
	memset(&s, 0, sizeof(s));
	s.io = io;
	set_features(&d->s);
	s.super = d->s.super;
	s.blocks = d->s.blocks;
	if (super_sane(&s.super) && !store_set_geometry(&s))
		*age = age_of_blocks(&s, d->s.sequence);
	return 0;
}

/*
 * Since the dump was made its store may have given out epochs, here or on a device that was lost.
 * None is given out a second time: receivers know what they have by the store's uuid and an epoch.
 * Only a store that has been restored from this dump before, and not been used since, has left them
 * out already.
 */
u64 restore_go_on(const struct dump *d, enum restore_age age, u64 epoch)
{
	u64 last = epoch > d->s.epoch ? epoch : d->s.epoch;

	if (age == RESTORE_SAME && last > d->s.epoch)
		return last;
	return last + EPOCHS_SINCE_DUMP <= COWSNAP_MAX_EPOCH ? last + EPOCHS_SINCE_DUMP : last;
}

static void leave_out_epochs(struct dump *d)
{
	struct store *s = &d->s;

	if (d->go_on <= s->epoch)
		return;
	s->epoch = d->go_on;
	s->super.epoch = htole64(s->epoch);
}

/* The blocks that a dump of a sealed store needs are those that its superblock had. */
static int set_seal(struct dump *d, bool has_data)
{
	struct store *s = &d->s;

	s->super.blocks = htole32((u32)s->blocks);
	if (!cowsnap_seal_fits(&s->geo, &s->super, s->nr_chunks))
		return dump_fail(d, "what it says of a seal cannot be on this device");
	return has_data || !cowsnap_is_sealed(&s->super) ? 0 :
	       dump_fail(d, "its origin is sealed, and the first sectors of that are not on this "
			    "device; --data-from copies them");
}

int restore_store(struct dump *d, struct io *io, struct io *from, struct report *r)
{
	d->s.io = io;
	if (set_sizes(d) || set_records(d) || set_exceptions(d) || set_blocks(d) ||
	    set_seal(d, from || d->in_place) || give_up_lost(d, r))
		return -1;
	leave_out_epochs(d);
	return write_store(d, from, r);
}

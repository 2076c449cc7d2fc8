// SPDX-License-Identifier: GPL-2.0-only
/* A model of how the kernel opens a store. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/crc32c.h"
#include "kernel.h"

#define SECTOR 512

#define EPOCH_MAX	((1ULL << 28) - 2)

struct loader {
	const u8 *data;
	size_t bytes;
	const u8 *lost;
	bool highest_only;
	struct kernel_view *v;
	struct cowsnap_super super;
	struct cowsnap_geometry geo;
	u64 chunks, origin_chunks, epoch, durable, last;
	u32 damaged, damage_mark, lost_records;
	u64 *lost_block;	/* numbers of the damaged ones */
	size_t max_lost;
	u64 *sequence;		/* of the block of each slot */
	size_t max_slots, max_snaps;
};

static bool readable(const struct loader *l, size_t offset, size_t len)
{
	size_t sector;

	if (offset > l->bytes || len > l->bytes - offset)
		return false;
	for (sector = offset / SECTOR; l->lost && sector * SECTOR < offset + len; sector++)
		if (l->lost[sector])
			return false;
	return true;
}

static void *grown(void *array, size_t nr, size_t *max, size_t size)
{
	if (nr < *max)
		return array;
	*max = *max ? 2 * *max : 64;
	array = realloc(array, *max * size);
	if (!array)
		abort();
	return array;
}

static void refuse(struct loader *l, const char *why)
{
	if (!l->v->refused)
		l->v->refused = why;
}

static void complain(struct loader *l, const char *what)
{
	if (!l->v->damaged)
		l->v->damaged = what;
}

/* ---- superblocks ---- */

static bool super_right(struct loader *l, size_t offset, struct cowsnap_super *super)
{
	if (!readable(l, offset, sizeof(*super)))
		return false;
	memcpy(super, l->data + offset, sizeof(*super));
	return !memcmp(super->magic, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES) &&
	       le32toh(super->crc) == cowsnap_super_crc(super, offset / SECTOR);
}

static bool second_right(struct loader *l, u32 at, struct cowsnap_super *super)
{
	return super_right(l, at, super) && le32toh(super->block_bytes) == at;
}

static bool choose(struct loader *l)
{
	struct cowsnap_super second;
	u32 at;

	if (super_right(l, 0, &l->super)) {
		at = le32toh(l->super.block_bytes);
		if (at < 512 || at > 4096 || at & (at - 1) || !second_right(l, at, &second)) {
			complain(l, "a superblock");
			return true;
		}
		if (memcmp(second.uuid, l->super.uuid, 16))
			complain(l, "a superblock of another store");
		else if (le64toh(second.sequence) > le64toh(l->super.sequence))
			l->super = second;
		return true;
	}
	complain(l, "superblock A");
	for (at = 512; at <= 4096; at *= 2)
		if (second_right(l, at, &l->super))
			return true;
	return false;
}

static bool any_room(struct loader *l)
{
	struct cowsnap_segment seg;
	u64 i;

	for (i = 0; ; i++) {
		cowsnap_get_segment(&l->geo, i, &seg);
		if (seg.start >= l->chunks)
			return false;
		if (cowsnap_segment_room(&seg, l->chunks))
			return true;
	}
}

static u64 blocks_of_device(struct loader *l)
{
	struct cowsnap_segment seg;
	u64 blocks;

	cowsnap_get_segment(&l->geo, cowsnap_find_segment(&l->geo, l->chunks - 1), &seg);
	blocks = (l->chunks - seg.start) * l->geo.chunk_blocks;
	return seg.first_block + (blocks < seg.blocks ? blocks : seg.blocks);
}

static bool super_fits(struct loader *l)
{
	const struct cowsnap_super *s = &l->super;
	u64 sectors = l->bytes / SECTOR;
	u32 chunk = le32toh(s->chunk_sectors);

	if (le32toh(s->version) != COWSNAP_FORMAT)
		refuse(l, "format");
	else if (le64toh(s->incompat) & ~COWSNAP_INCOMPAT_KNOWN ||
		 le64toh(s->ro_compat) & ~COWSNAP_RO_COMPAT_KNOWN)
		refuse(l, "features");
	else if (cowsnap_geometry_init(&l->geo, le32toh(s->block_bytes), chunk))
		refuse(l, "sizes");
	else if (!(l->chunks = sectors >> l->geo.chunk_shift) || !any_room(l))
		refuse(l, "too small");
	else if (le64toh(s->store_sectors) > sectors)
		refuse(l, "shorter than it was");
	else if (le32toh(s->blocks) < 2 || le32toh(s->blocks) > blocks_of_device(l))
		refuse(l, "table blocks");
	else if (le64toh(s->epoch) > EPOCH_MAX)
		refuse(l, "epoch");
	else if (!cowsnap_seal_fits(&l->geo, s, l->chunks))
		refuse(l, "seal");
	else if (!cowsnap_zones_fit(&l->geo, s->zone, l->chunks, le32toh(s->blocks)))
		refuse(l, "zones of the log");
	if (!l->v->refused)
		l->origin_chunks = (le64toh(s->origin_sectors) + chunk - 1) / chunk;
	return !l->v->refused;
}

/* ---- tables ---- */

static bool current_sane(const struct loader *l, const struct kernel_slot *s)
{
	if (s->kind == COWSNAP_SLOT_CURRENT_ZERO &&
	    !(l->super.incompat & htole64(COWSNAP_INCOMPAT_ZEROES)))
		return false;
	return l->super.incompat & htole64(COWSNAP_INCOMPAT_CURRENT) && cowsnap_is_sealed(&l->super) &&
	       l->super.seal_state == COWSNAP_SEAL_SEALED && s->chunk >= cowsnap_seal_chunks(&l->geo);
}

static bool slot_sane(struct loader *l, const struct kernel_slot *s)
{
	if (s->kind == COWSNAP_SLOT_FREE)
		return true;
	if (s->place >= l->chunks || s->kind >= COWSNAP_SLOT_KINDS ||
	    cowsnap_seal_has(&l->geo, &l->super, s->place))
		return false;
	if (s->kind == COWSNAP_SLOT_RECORDS)
		return s->chunk < COWSNAP_MAX_SNAPSHOTS;
	if (cowsnap_kind_is_current(s->kind) && !current_sane(l, s))
		return false;
	return s->epoch && s->epoch <= EPOCH_MAX &&
	       s->chunk < (s->kind == COWSNAP_SLOT_TRACK ? COWSNAP_TRACK_PIECES_MAX :
			   l->origin_chunks);
}

static void parse_slot(const u8 *at, u64 place, struct kernel_slot *s, bool *fresh)
{
	struct cowsnap_slot slot;

	memcpy(&slot, at, sizeof(slot));
	s->crc = cowsnap_slot_crc(&slot);
	s->chunk = cowsnap_slot_chunk(&slot);
	s->epoch = cowsnap_slot_epoch(&slot);
	s->kind = cowsnap_slot_kind(&slot);
	s->place = place;
	*fresh = cowsnap_slot_is_fresh(&slot);
}

static bool block_sane(struct loader *l, const u8 *slots, u32 nr, u64 place)
{
	struct kernel_slot s;
	bool fresh;
	u32 i;

	for (i = 0; i < nr; i++) {
		parse_slot(slots + i * sizeof(struct cowsnap_slot), place + i, &s, &fresh);
		if (!slot_sane(l, &s))
			return false;
	}
	return true;
}

static void take_slots(struct loader *l, const u8 *slots, u32 nr, u64 place, u64 sequence)
{
	struct kernel_view *v = l->v;
	size_t had;
	u32 i;

	for (i = 0; i < nr; i++) {
		struct kernel_slot s = { 0 };

		parse_slot(slots + i * sizeof(struct cowsnap_slot), place + i, &s, &s.unsure);
		if (s.kind == COWSNAP_SLOT_FREE)
			continue;
		had = l->max_slots;
		v->slot = grown(v->slot, v->nr_slots, &l->max_slots, sizeof(s));
		if (had != l->max_slots) {
			l->sequence = realloc(l->sequence, l->max_slots * sizeof(u64));
			if (!l->sequence)
				abort();
		}
		l->sequence[v->nr_slots] = sequence;
		v->slot[v->nr_slots++] = s;
	}
}

static void lose_block(struct loader *l, u64 number)
{
	l->lost_block = grown(l->lost_block, l->damaged, &l->max_lost, sizeof(u64));
	l->lost_block[l->damaged] = number;
	l->damaged++;
	l->damage_mark = cowsnap_damage_mark(l->damage_mark, number);
}

static void load_block(struct loader *l, const struct cowsnap_segment *seg, u32 block)
{
	u64 number = seg->first_block + block;
	u64 place = seg->data + cowsnap_first_slot(&l->geo, seg, block);
	u64 sector = cowsnap_block_sector(&l->geo, seg, block);
	u32 nr = cowsnap_block_slots(&l->geo, number), area = cowsnap_area_offset(number);
	u32 len = l->geo.block_bytes - area;
	const u8 *at = l->data + sector * SECTOR + area;
	struct cowsnap_block_header header;

	if (!nr)
		return;
	if (!readable(l, sector * SECTOR + area, len)) {
		lose_block(l, number);
		return;
	}
	memcpy(&header, at, sizeof(header));
	if (le32toh(header.crc) != crc32c(cowsnap_seed(l->super.uuid, sector), at + 4, len - 4) ||
	    le64toh(header.sequence) >> 62 || le64toh(header.durable) >> 62 ||
	    !block_sane(l, at + sizeof(header), nr, place)) {
		lose_block(l, number);
		return;
	}
	if (le64toh(header.durable) > l->durable)
		l->durable = le64toh(header.durable);
	if (le64toh(header.sequence) > l->last)
		l->last = le64toh(header.sequence);
	take_slots(l, at + sizeof(header), nr, place, le64toh(header.sequence));
}

static void load_tables(struct loader *l)
{
	u64 blocks = le32toh(l->super.blocks), i;
	struct cowsnap_segment seg;
	u32 block;

	l->durable = le64toh(l->super.durable);
	for (i = 0; ; i++) {
		cowsnap_get_segment(&l->geo, i, &seg);
		if (seg.first_block >= blocks)
			break;
		for (block = 0; block < seg.blocks && seg.first_block + block < blocks; block++)
			load_block(l, &seg, block);
	}
	if (l->damaged)
		complain(l, "table blocks");
}

/* ---- the log ---- */

/* Has a table a slot for it, or is it unknown what the table had? @nr: slots of tables. */
static bool table_knows(const struct loader *l, u64 place, size_t nr)
{
	struct cowsnap_segment seg;
	u32 block, index, i;
	size_t at;

	for (at = 0; at < nr; at++)
		if (l->v->slot[at].place == place)
			return true;
	cowsnap_get_segment(&l->geo, cowsnap_find_segment(&l->geo, place), &seg);
	cowsnap_find_slot(&l->geo, &seg, place - seg.data, &block, &index);
	for (i = 0; i < l->damaged; i++)
		if (l->lost_block[i] == seg.first_block + block)
			return true;
	return false;
}

static bool logged_sane(struct loader *l, const u8 *slots, u32 nr, u64 place)
{
	struct kernel_slot s;
	bool fresh;
	u32 i;

	for (i = 0; i < nr; i++) {
		parse_slot(slots + i * sizeof(struct cowsnap_slot), place + i, &s, &fresh);
		if ((s.kind != COWSNAP_SLOT_COPIED && s.kind != COWSNAP_SLOT_ZERO &&
		     s.kind != COWSNAP_SLOT_CURRENT) ||
		    !slot_sane(l, &s))
			return false;
	}
	return true;
}

/* 1: a record; 0: none; -1: there was one, or may have been. */
static int look_for_record(struct loader *l, const struct cowsnap_zone *zone, u64 chunk, u32 least)
{
	u64 sector = cowsnap_log_sector(&l->geo, chunk), series = cowsnap_zone_series(zone);
	u64 mark = cowsnap_log_mark(l->super.uuid, sector, series);
	const u8 *at = l->data + sector * SECTOR;
	struct cowsnap_log_record r;

	if (!readable(l, sector * SECTOR, l->geo.block_bytes))
		return -1;
	memcpy(&r, at, sizeof(r));
	if (!cowsnap_log_mark_is_near(le64toh(r.mark), mark))
		return 0;
	return le32toh(r.crc) == cowsnap_log_crc(l->super.uuid, sector, at, l->geo.block_bytes) &&
	       le64toh(r.mark) == mark && le64toh(r.series) == series &&
	       cowsnap_log_makes_sense(&l->geo, &r, cowsnap_zone_end(zone) - chunk) &&
	       le32toh(r.index) >= least &&
	       logged_sane(l, at + sizeof(r), le16toh(r.nr), chunk + 1) ? 1 : -1;
}

static void take_record(struct loader *l, const struct cowsnap_log_record *r, const u8 *slots,
			u64 place, size_t nr_tables)
{
	u32 i;

	for (i = 0; i < le16toh(r->nr); i++) {
		/* For now its sequence is the index of its record: see doubt_zone(). */
		if (!table_knows(l, place + i, nr_tables))
			take_slots(l, slots + i * sizeof(struct cowsnap_slot), 1, place + i,
				   le32toh(r->index));
	}
}

/* Slots from @from on are of this zone: which of them are in doubt? */
static void doubt_zone(struct loader *l, size_t from, u32 durable)
{
	size_t i;

	for (i = from; i < l->v->nr_slots; i++) {
		l->v->slot[i].unsure = l->sequence[i] >= durable;
		l->sequence[i] = UINT64_MAX;
	}
}

static void load_zone(struct loader *l, const struct cowsnap_zone *zone, size_t nr_tables)
{
	u64 chunk = cowsnap_zone_start(zone), end = cowsnap_zone_end(zone);
	u32 least = 0, durable = cowsnap_zone_durable(zone), found = 0;
	u32 index[COWSNAP_ZONE_CHUNKS], i;
	size_t from = l->v->nr_slots;
	struct cowsnap_log_record r;

	for (; chunk + 1 < end; chunk++) {
		const u8 *at = l->data + cowsnap_log_sector(&l->geo, chunk) * SECTOR;
		int what = look_for_record(l, zone, chunk, least);

		l->lost_records += what < 0;
		if (what <= 0)
			continue;
		memcpy(&r, at, sizeof(r));
		take_record(l, &r, at + sizeof(r), chunk + 1, nr_tables);
		index[found++] = le32toh(r.index);
		least = le32toh(r.index) + 1;
		if (le32toh(r.durable) > durable)
			durable = le32toh(r.durable);
		chunk += le16toh(r.nr);
	}
	doubt_zone(l, from, durable);
	/* Those that are durable have to be there. */
	for (i = 0; i < found && index[i] < durable; i++)
		;
	l->lost_records += durable - i;
}

static void load_log(struct loader *l)
{
	size_t nr_tables = l->v->nr_slots;
	u32 i;

	for (i = 0; i < COWSNAP_ZONES; i++)
		if (cowsnap_zone_in_use(&l->super.zone[i]))
			load_zone(l, &l->super.zone[i], nr_tables);
	if (l->lost_records)
		complain(l, "records of the log");
}

/* ---- what is in doubt ---- */

static bool data_right(struct loader *l, const struct kernel_slot *s, bool *unreadable)
{
	u64 sector = s->place << l->geo.chunk_shift;
	size_t len = (size_t)l->geo.chunk_sectors * SECTOR;

	*unreadable = !readable(l, sector * SECTOR, len);
	return !*unreadable && crc32c(cowsnap_seed(l->super.uuid, sector),
				      l->data + sector * SECTOR, len) == s->crc;
}

/* Home has what is not there: the model's writers were never let go. */
static void settle(struct loader *l)
{
	struct kernel_view *v = l->v;
	size_t i, kept = 0;
	bool unreadable;

	for (i = 0; i < v->nr_slots; i++) {
		struct kernel_slot s = v->slot[i];

		s.unsure = s.unsure && l->sequence[i] > l->durable &&
			   (!l->highest_only || l->sequence[i] == l->last ||
			    l->sequence[i] == UINT64_MAX);
		/* Home has nothing to do with these, and in tables they are believed. */
		if (s.kind == COWSNAP_SLOT_CURRENT) {
			s.unsure &= l->sequence[i] == UINT64_MAX;
			if (s.unsure && !data_right(l, &s, &unreadable) && !unreadable)
				continue;
		}
		if (s.unsure && s.kind == COWSNAP_SLOT_COPIED && !data_right(l, &s, &unreadable)) {
			if (unreadable)
				complain(l, "unreadable data of a commit");
			continue;
		}
		v->slot[kept++] = s;
	}
	v->nr_slots = kept;
}

/* What nobody reads while the store is opened, but a reader of a snapshot would miss. */
static void look_at_data(struct loader *l)
{
	struct kernel_view *v = l->v;
	const struct kernel_slot *s;
	bool unreadable, error;
	size_t i, j;

	for (i = 0; i < v->nr_slots; i++) {
		s = &v->slot[i];
		if (s->kind != COWSNAP_SLOT_COPIED && s->kind != COWSNAP_SLOT_PRIVATE &&
		    s->kind != COWSNAP_SLOT_CURRENT)
			continue;
		if (data_right(l, s, &unreadable) || (s->kind != COWSNAP_SLOT_COPIED && !unreadable))
			continue;
		if (kernel_read_now(v, s->chunk) == s)
			complain(l, "data of the origin");
		for (j = 0; j < v->nr_snaps; j++)
			if (kernel_read(v, &v->snap[j], s->chunk, &error) == s && !error)
				complain(l, "data");
	}
}

/* With what is lost the origin may have lost data; and no chunk has two of one epoch. */
static void look_at_current(struct loader *l)
{
	const struct kernel_view *v = l->v;
	size_t i, j;

	if (l->super.incompat & htole64(COWSNAP_INCOMPAT_CURRENT) && (l->damaged || l->lost_records))
		refuse(l, "what is lost may have been data of the origin");
	for (i = 0; i < v->nr_slots; i++)
		for (j = 0; cowsnap_kind_is_current(v->slot[i].kind) && j < i; j++)
			if (cowsnap_kind_is_current(v->slot[j].kind) &&
			    v->slot[j].chunk == v->slot[i].chunk && v->slot[j].epoch == v->slot[i].epoch)
				complain(l, "data of the origin twice");
}

/* ---- records ---- */

static void add_record(struct loader *l, u32 number, const struct cowsnap_record *r)
{
	struct kernel_view *v = l->v;
	struct kernel_snap snap = {
		.id = le16toh(r->id), .state = r->state, .epoch = le64toh(r->epoch),
		.written = le32toh(r->flags) & COWSNAP_RECORD_WRITTEN,
	};
	size_t i;

	if (r->state == COWSNAP_RECORD_FREE)
		return;
	if (r->state >= COWSNAP_RECORD_STATES || !snap.epoch || snap.epoch > EPOCH_MAX ||
	    number >= COWSNAP_MAX_SNAPSHOTS ||
	    le64toh(r->sectors) > le64toh(l->super.origin_sectors))
		refuse(l, "a record");
	for (i = 0; i < v->nr_snaps; i++)
		if (v->snap[i].id == snap.id)
			refuse(l, "a snapshot twice");
	v->snap = grown(v->snap, v->nr_snaps, &l->max_snaps, sizeof(snap));
	v->snap[v->nr_snaps++] = snap;
	if (snap.epoch > l->epoch)
		l->epoch = snap.epoch;
}

static void load_records(struct loader *l, const struct kernel_slot *s)
{
	u32 per = cowsnap_block_records(&l->geo), bytes = l->geo.block_bytes, block, i;
	struct cowsnap_block_header header;
	struct cowsnap_record r;

	for (block = 0; block < l->geo.chunk_blocks; block++) {
		u64 sector = (s->place << l->geo.chunk_shift) + block * (bytes / SECTOR);
		u64 first = COWSNAP_SUPER_RECORDS + (s->chunk * l->geo.chunk_blocks + block) * per;
		const u8 *at = l->data + sector * SECTOR;

		if (!readable(l, sector * SECTOR, bytes)) {
			complain(l, "records");
			continue;
		}
		memcpy(&header, at, sizeof(header));
		if (le32toh(header.crc) != crc32c(cowsnap_seed(l->super.uuid, sector), at + 4,
						  bytes - 4) ||
		    le32toh(header.blocks) != block || le64toh(header.durable) > EPOCH_MAX) {
			complain(l, "records");
			continue;
		}
		for (i = 0; i < per; i++) {
			memcpy(&r, at + sizeof(header) + i * sizeof(r), sizeof(r));
			add_record(l, first + i > UINT32_MAX ? UINT32_MAX : first + i, &r);
		}
	}
}

static void load_snapshots(struct loader *l)
{
	size_t i, j;

	for (i = 0; i < COWSNAP_SUPER_RECORDS; i++)
		add_record(l, i, &l->super.record[i]);
	for (i = 0; i < l->v->nr_slots; i++) {
		if (l->v->slot[i].kind != COWSNAP_SLOT_RECORDS)
			continue;
		/* If two have one number the later place counts. */
		for (j = i + 1; j < l->v->nr_slots; j++)
			if (l->v->slot[j].kind == COWSNAP_SLOT_RECORDS &&
			    l->v->slot[j].chunk == l->v->slot[i].chunk)
				break;
		if (j == l->v->nr_slots)
			load_records(l, &l->v->slot[i]);
	}
	/* What the superblock says for records. */
	for (i = 0; i < l->v->nr_snaps; i++) {
		struct kernel_snap *snap = &l->v->snap[i];
		bool merging = snap->state == COWSNAP_RECORD_MERGING &&
			       snap->id == le32toh(l->super.merge_id);

		if (snap->epoch <= le64toh(l->super.invalid_epoch) && !merging &&
		    (snap->state == COWSNAP_RECORD_LIVE ||
		     snap->state == COWSNAP_RECORD_MERGING))
			snap->state = COWSNAP_RECORD_INVALID;
	}
}

void kernel_open(const u8 *data, size_t bytes, const u8 *lost, bool highest_only,
		 struct kernel_view *v)
{
	struct loader l = {
		.data = data, .bytes = bytes & ~(size_t)511, .lost = lost,
		.highest_only = highest_only, .v = v,
	};

	memset(v, 0, sizeof(*v));
	if (!choose(&l)) {
		refuse(&l, "no superblock");
		return;
	}
	if (!super_fits(&l))
		return;
	l.epoch = le64toh(l.super.epoch);
	load_tables(&l);
	load_log(&l);
	settle(&l);
	look_at_current(&l);
	load_snapshots(&l);
	if (l.damaged)
		v->lost_epoch = l.damaged == le32toh(l.super.damaged_blocks) &&
				l.damage_mark == le32toh(l.super.damage_mark) ?
				le64toh(l.super.damage_epoch) : l.epoch;
	if (le64toh(l.super.lost_epoch) > v->lost_epoch)
		v->lost_epoch = le64toh(l.super.lost_epoch);
	if (l.lost_records)
		v->lost_epoch = l.epoch;
	if (!v->refused)
		look_at_data(&l);
	free(l.sequence);
	free(l.lost_block);
}

void kernel_close(struct kernel_view *v)
{
	free(v->slot);
	free(v->snap);
	memset(v, 0, sizeof(*v));
}

/* ---- reading ---- */

static bool is_private(const struct kernel_slot *s)
{
	return s->kind == COWSNAP_SLOT_PRIVATE || s->kind == COWSNAP_SLOT_PRIVATE_ZERO;
}

static const struct kernel_slot *look_up(const struct kernel_view *v, u64 epoch, u64 chunk)
{
	const struct kernel_slot *s, *found = NULL, *current = NULL;
	size_t i;

	for (i = 0; i < v->nr_slots; i++) {
		s = &v->slot[i];
		if (s->chunk != chunk || s->kind == COWSNAP_SLOT_RECORDS ||
		    s->kind == COWSNAP_SLOT_TRACK)
			continue;
		if (is_private(s)) {
			if (s->epoch == epoch)
				return s;
		} else if (cowsnap_kind_is_current(s->kind)) {
			if (s->epoch < epoch && (!current || s->epoch > current->epoch))
				current = s;
		} else if (s->epoch >= epoch && (!found || s->epoch < found->epoch)) {
			found = s;
		}
	}
	return found ? found : current;
}

const struct kernel_slot *kernel_read_now(const struct kernel_view *v, u64 chunk)
{
	return look_up(v, UINT64_MAX, chunk);
}

static bool is_live(const struct kernel_snap *snap)
{
	return snap->state == COWSNAP_RECORD_LIVE || snap->state == COWSNAP_RECORD_MERGING;
}

const struct kernel_slot *kernel_read(const struct kernel_view *v,
				      const struct kernel_snap *snap, u64 chunk, bool *error)
{
	const struct kernel_slot *s = look_up(v, snap->epoch, chunk);

	*error = !is_live(snap);
	if (v->lost_epoch && snap->epoch <= v->lost_epoch && !(s && is_private(s)))
		*error |= !s || s->epoch != snap->epoch || snap->written;
	return s;
}

/* ---- the seal ---- */

static bool is_own_seal(const struct loader *l, const u8 *home, u64 sector)
{
	return cowsnap_is_seal_of(home + sector * SECTOR, sector, l->super.uuid,
				  le32toh(l->super.seal_generation));
}

/* A sector for each write, from the end. */
static void open_seal(const struct loader *l, u8 *home, const u8 *content, size_t len,
		      unsigned long stop)
{
	u64 sector = len / SECTOR;

	while (sector-- && stop) {
		if (!is_own_seal(l, home, sector))
			continue;
		memcpy(home + sector * SECTOR, content + sector * SECTOR, SECTOR);
		stop--;
	}
}

const char *kernel_settle_seal(const u8 *data, size_t bytes, u8 *home, unsigned long stop,
			       const u8 **content, size_t *len)
{
	struct kernel_view v = { 0 };
	struct loader l = { .data = data, .bytes = bytes, .v = &v };
	u64 sector;

	if (!choose(&l) || !super_fits(&l))
		return v.refused ? v.refused : "no superblock";
	*content = home;
	*len = (size_t)cowsnap_seal_sectors(&l.geo) * SECTOR;
	if (!cowsnap_is_sealed(&l.super))
		return kernel_takes_bare(home, *len) ? NULL : "the seal of another store";
	*content = data + (le64toh(l.super.seal_start) << l.geo.chunk_shift) * SECTOR;
	for (sector = 0; sector < *len / SECTOR; sector++)
		if (!is_own_seal(&l, home, sector) &&
		    (l.super.seal_state == COWSNAP_SEAL_SEALED ||
		     memcmp(home + sector * SECTOR, *content + sector * SECTOR, SECTOR)))
			return "written without its store";
	if (l.super.seal_state == COWSNAP_SEAL_SEALED)
		return NULL;
	open_seal(&l, home, *content, *len, stop);
	*content = home;
	return NULL;
}

bool kernel_takes_bare(const u8 *home, size_t bytes)
{
	u64 sector;

	for (sector = 0; sector < COWSNAP_SEAL_SECTORS && (sector + 1) * SECTOR <= bytes; sector++)
		if (cowsnap_is_seal(home + sector * SECTOR, sector))
			return false;
	return true;
}

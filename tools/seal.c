// SPDX-License-Identifier: GPL-2.0-only
/* An origin is sealed with its store, and opened again: see the format for the steps. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seal.h"
#include "track.h"

#define SECTOR 512

/* Copied and looked at so much at a time: a whole number of logical blocks. */
#define PIECE	4096U

/* All origins that are sealed have seals here. */
#define LOOKED_AT (COWSNAP_SEAL_SECTORS * SECTOR)

static u64 sealed_bytes(const struct store *s)
{
	return (u64)cowsnap_seal_sectors(&s->geo) * SECTOR;
}

static u64 content_at(const struct store *s)
{
	return chunk_sector(s, le64toh(s->super.seal_start)) * SECTOR;
}

static bool is_ours(const struct store *s, const u8 *data, u64 sector)
{
	return cowsnap_is_seal_of(data, sector, s->super.uuid, le32toh(s->super.seal_generation));
}

/* ---- looking ---- */

/* What cannot be read may be damaged alone: the next sector may have a seal. */
int seal_find(struct io *home, struct cowsnap_seal *seal)
{
	int r = 0;
	u64 sector;

	for (sector = 0; sector < COWSNAP_SEAL_SECTORS && (sector + 1) * SECTOR <= home->bytes;
	     sector++) {
		if (io_read(home, sector * SECTOR, seal, sizeof(*seal)))
			r = -1;
		else if (cowsnap_is_seal(seal, sector))
			return 1;
	}
	return r;
}

static void look_at_sector(const struct store *s, struct io *home, u64 at, const u8 *content,
			   struct seal_look *l)
{
	u8 data[SECTOR];

	if (io_read(home, at, data, SECTOR))
		l->unreadable++;
	else if (is_ours(s, data, at / SECTOR) || (content && !memcmp(data, content, SECTOR)))
		return;
	else if (cowsnap_is_seal(data, at / SECTOR))
		l->other++;
	l->missing++;
}

int seal_look(const struct store *s, struct io *home, struct seal_look *l)
{
	bool under_way = s->super.seal_state != COWSNAP_SEAL_SEALED;
	u8 content[PIECE];
	u64 at, i;

	memset(l, 0, sizeof(*l));
	for (at = 0; at < sealed_bytes(s); at += PIECE) {
		if (under_way && io_read(s->io, content_at(s) + at, content, PIECE))
			return -1;
		for (i = 0; i < PIECE; i += SECTOR)
			look_at_sector(s, home, at + i, under_way ? content + i : NULL, l);
	}
	return 0;
}

/* ---- room for the content ---- */

static int by_number(const void *a, const void *b)
{
	const u64 *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The places of all slots, dead ones too, in order. NULL without memory. */
static u64 *used_places(const struct store *s, size_t *nr)
{
	u64 *used = malloc((s->nr_entries + s->nr_logged + 1) * sizeof(*used));
	size_t i;

	*nr = 0;
	for (i = 0; used && i < s->nr_entries; i++)
		used[(*nr)++] = s->entry[i].place;
	for (i = 0; used && i < s->nr_logged; i++)
		used[(*nr)++] = s->logged[i].place;
	if (used)
		qsort(used, *nr, sizeof(*used), by_number);
	return used;
}

/* What is in the way of a run from @at on ends there; 0: nothing is. *@i goes through @used. */
static u64 end_of_obstacle(const struct store *s, const u64 *used, size_t nr, size_t *i, u64 at)
{
	u32 chunks = cowsnap_seal_chunks(&s->geo);
	unsigned int z;

	for (z = 0; z < COWSNAP_ZONES; z++)
		if (cowsnap_zone_meets(&s->super.zone[z], at, chunks))
			return cowsnap_zone_end(&s->super.zone[z]);
	while (*i < nr && used[*i] < at)
		++*i;
	return *i < nr && used[*i] < at + chunks ? used[*i] + 1 : 0;
}

/* The first run of chunks that no slot speaks of, in one segment whose table is ready. */
static int find_run(const struct store *s, const u64 *used, size_t nr, u64 *start)
{
	u32 chunks = cowsnap_seal_chunks(&s->geo);
	struct cowsnap_segment seg;
	u64 at = 0, next;
	size_t i = 0;

	for (;;) {
		if (at >= s->nr_chunks)
			return -1;
		cowsnap_get_segment(&s->geo, cowsnap_find_segment(&s->geo, at), &seg);
		if (at < seg.data)
			at = seg.data;
		if (at + chunks > seg.end) {
			at = seg.end;
			continue;
		}
		if (!cowsnap_run_fits(&s->geo, at, chunks, s->nr_chunks,
				      le32toh(s->super.blocks)))
			return -1;
		next = end_of_obstacle(s, used, nr, &i, at);
		if (!next)
			break;
		at = next;
	}
	*start = at;
	return 0;
}

static int find_room(const struct store *s, u64 *start)
{
	size_t nr;
	u64 *used = used_places(s, &nr);
	int r = used ? find_run(s, used, nr, start) : -1;

	free(used);
	return r;
}

/* ---- sealing ---- */

static const char *origin_hinders(const struct store *s, struct io *home)
{
	struct cowsnap_seal seal;

	if (home->bytes / SECTOR < le64toh(s->super.origin_sectors))
		return "the store was made for a longer origin";
	if (sealed_bytes(s) > le64toh(s->super.origin_sectors) * SECTOR)
		return "the origin is shorter than what is sealed of it";
	if (home->logical_bytes > PIECE)
		return "the origin has logical blocks of more than 4096 bytes";
	switch (seal_find(home, &seal)) {
	case 0:
		return NULL;
	case 1:
		return "the origin is sealed; cowsnap unseal opens it";
	default:
		return "the origin cannot be read";
	}
}

const char *seal_hinders(const struct store *s, struct io *home)
{
	u64 start;

	if (cowsnap_is_sealed(&s->super))
		return "the store has a sealed origin; cowsnap unseal opens it";
	if (le32toh(s->super.merge_id) != COWSNAP_NO_MERGE)
		return "a rollback is under way; start it with the module, so that it ends";
	if (find_room(s, &start))
		return "the store has no room for the first sectors of the origin, in a row that "
		       "was never used; take a new one, with chunks of 4 KiB or more";
	return origin_hinders(s, home);
}

static int copy(struct io *from, u64 from_byte, struct io *to, u64 to_byte, u64 bytes)
{
	u8 piece[PIECE];
	u64 at;

	for (at = 0; at < bytes; at += PIECE)
		if (io_read(from, from_byte + at, piece, PIECE) ||
		    io_write(to, to_byte + at, piece, PIECE))
			return -1;
	return 0;
}

static int write_state(struct store *s, enum cowsnap_seal_state state)
{
	u64 bit = COWSNAP_INCOMPAT_SEAL, incompat = le64toh(s->super.incompat);

	s->super.seal_state = state;
	if (state == COWSNAP_SEAL_OPEN)
		s->super.seal_start = 0;
	s->super.incompat = htole64(state == COWSNAP_SEAL_OPEN ? incompat & ~bit : incompat | bit);
	return store_write_supers(s);
}

static void describe(const struct store *s, struct cowsnap_seal *seal)
{
	char uuid[33];
	size_t i;

	for (i = 0; i < sizeof(s->super.uuid); i++)
		snprintf(uuid + 2 * i, 3, "%02x", s->super.uuid[i]);
	memset(seal, 0, sizeof(*seal));
	memcpy(seal->magic, COWSNAP_SEAL_MAGIC, sizeof(seal->magic));
	seal->generation = s->super.seal_generation;
	memcpy(seal->uuid, s->super.uuid, sizeof(seal->uuid));
	seal->store_sector = htole64(content_at(s) / SECTOR);
	seal->sectors = htole32(cowsnap_seal_sectors(&s->geo));
	snprintf(seal->text, sizeof(seal->text),
		 "\nThis device is the origin of snapshots of dm-cowsnap. It is sealed: its first\n"
		 "%u sectors are in the store %s.\n"
		 "Do not write to it: use it with its store (cowsnap create --existing), or open\n"
		 "it with cowsnap unseal. See cowsnap(8).\n",
		 cowsnap_seal_sectors(&s->geo), uuid);
}

static int write_seals(const struct store *s, struct io *home)
{
	struct cowsnap_seal seal;
	u8 piece[PIECE];
	u64 at, i;

	describe(s, &seal);
	for (at = 0; at < sealed_bytes(s); at += PIECE) {
		/* Who looks for a seal does not look behind these. */
		if (at == LOOKED_AT && io_sync(home))
			return -1;
		for (i = 0; i < PIECE; i += SECTOR) {
			seal.crc = htole32(cowsnap_seal_crc(&seal, (at + i) / SECTOR));
			memcpy(piece + i, &seal, sizeof(seal));
		}
		if (io_write(home, at, piece, PIECE))
			return -1;
	}
	return io_sync(home);
}

static int fail(const char **why, const char *what)
{
	*why = what;
	return -1;
}

int seal_on(struct store *s, struct io *home, u32 generation, const char **why)
{
	u32 last = le32toh(s->super.seal_generation);
	u64 start;

	if (find_room(s, &start))
		return fail(why, "the store has no room");
	s->super.seal_start = htole64(start);
	s->super.seal_generation = htole32(generation > last ? generation : last + 1);
	/* The content is durable in the store before a superblock names it ... */
	if (copy(home, 0, s->io, content_at(s), sealed_bytes(s)) || io_sync(s->io))
		return fail(why, "the first sectors of the origin cannot be copied to the store");
	if (write_state(s, COWSNAP_SEAL_SEALING))
		return fail(why, "the store cannot be written");
	/* ... which it does before home loses any of it. */
	if (write_seals(s, home))
		return fail(why, "the origin cannot be written; cowsnap unseal opens it again");
	if (write_state(s, COWSNAP_SEAL_SEALED))
		return fail(why, "the store cannot be written; cowsnap unseal opens it again");
	return 0;
}

/* ---- opening ---- */

/*
 * Snapshots cannot be believed, nor trackers: what was written at home went past them. A rollback
 * goes on: what home shows without it is half of the one and half of the other.
 */
static int give_up_snapshots(struct store *s, unsigned int *nr)
{
	records_give_up(s, record_merging(s), nr);
	return store_write_records(s) || store_write_supers(s) ? -1 : 0;
}

/*
 * The content comes back: where there is a seal, and else home has it already, or what came after
 * it; or, if what the store has counts, everywhere, and nothing is read at home.
 */
static int open_piece(const struct store *s, struct io *home, u64 at, bool all)
{
	u8 piece[PIECE], content[PIECE];
	bool any = all;
	u64 i;

	if (io_read(s->io, content_at(s) + at, content, PIECE) ||
	    (!all && io_read(home, at, piece, PIECE)))
		return -1;
	for (i = 0; i < PIECE; i += SECTOR) {
		if (!all && !is_ours(s, piece + i, (at + i) / SECTOR))
			continue;
		memcpy(piece + i, content + i, SECTOR);
		any = true;
	}
	return any ? io_write(home, at, piece, PIECE) : 0;
}

/* From the end, so that no seal is left behind those that are looked for. */
static int open_home(const struct store *s, struct io *home, bool all)
{
	u64 at;

	for (at = sealed_bytes(s); at; at -= PIECE)
		if ((at == LOOKED_AT && io_sync(home)) || open_piece(s, home, at - PIECE, all))
			return -1;
	return io_sync(home);
}

int seal_make_whole(struct store *s, struct io *home, unsigned int *nr, const char **why)
{
	if (give_up_snapshots(s, nr))
		return fail(why, "the store cannot be written");
	return write_seals(s, home) ? fail(why, "the origin cannot be written") : 0;
}

const char *seal_hinders_opening(const struct store *s, const struct seal_look *l,
				 enum seal_keep keep)
{
	if (!l->missing || keep == SEAL_KEEP_STORE)
		return NULL;
	if (l->other)
		return "it has seals of another store, or of another time; use the store that "
		       "belongs to it, or --keep-store, which overwrites them";
	if (l->unreadable)
		return "sectors that had a seal cannot be read; --keep-store writes them anew";
	if (keep == SEAL_KEEP_NONE)
		return "it was written without its store, so that its snapshots cannot be "
		       "believed, or is another device: --keep-home takes what is there, "
		       "--keep-store what the store has of its first sectors";
	if (record_merging(s))
		return "a rollback is under way, so that what is there is half of the one and half "
		       "of the other; --keep-store lets it go on";
	return NULL;
}

/* Only what is sealed is redirected: the option goes with the seal. */
static void end_redirect(struct store *s)
{
	s->super.redirect = 0;
	s->super.incompat &= ~htole64(COWSNAP_INCOMPAT_CURRENT | COWSNAP_INCOMPAT_ZEROES);
}

int seal_off(struct store *s, struct io *home, enum seal_keep keep, unsigned int *nr,
	     const char **why)
{
	struct cowsnap_seal seal;
	struct seal_look l;

	*nr = 0;
	if (current_is_there(s) || current_is_lost(s))
		return fail(why, "the store has data of the origin (redirect); cowsnap settle brings it home");
	if (seal_look(s, home, &l))
		return fail(why, "what the store has of it cannot be read");
	*why = seal_hinders_opening(s, &l, keep);
	if (*why)
		return -1;
	/* Somebody wrote the origin. From here on it is as if that had been right. */
	if (l.missing && give_up_snapshots(s, nr))
		return fail(why, "the store cannot be written");
	end_redirect(s);
	if (s->super.seal_state == COWSNAP_SEAL_SEALED && write_state(s, COWSNAP_SEAL_OPENING))
		return fail(why, "the store cannot be written");
	if (open_home(s, home, keep == SEAL_KEEP_STORE))
		return fail(why, "the origin cannot be written, or the store not read; try again");
	/* Whatever it is, while it is there the store must not forget the content. */
	if (seal_find(home, &seal))
		return fail(why, "it still has a seal, or cannot be read; --keep-store overwrites it");
	if (write_state(s, COWSNAP_SEAL_OPEN))
		return fail(why, "the store cannot be written; try again");
	return 0;
}

/* What cannot be read is taken for a seal. */
static bool is_to_go(struct io *home, const struct cowsnap_seal *first, u64 at)
{
	struct cowsnap_seal seal;

	return io_read(home, at, &seal, sizeof(seal)) ||
	       cowsnap_is_seal_of(&seal, at / SECTOR, first->uuid, le32toh(first->generation));
}

/*
 * The first seal says how far they go. From the end, as above: wherever this stops, who looks for a
 * seal finds one.
 */
long seal_take_away(struct io *home)
{
	static const u8 zeroes[SECTOR];
	struct cowsnap_seal first;
	long nr = 0;
	u64 at;

	if (seal_find(home, &first) <= 0)
		return -1;
	at = (u64)le32toh(first.sectors) * SECTOR;
	for (at = at < home->bytes ? at : home->bytes / SECTOR * SECTOR; at; at -= SECTOR) {
		if (at == LOOKED_AT && io_sync(home))
			return -1;
		if (!is_to_go(home, &first, at - SECTOR))
			continue;
		if (io_write(home, at - SECTOR, zeroes, sizeof(zeroes)))
			return -1;
		nr++;
	}
	return io_sync(home) ? -1 : nr;
}

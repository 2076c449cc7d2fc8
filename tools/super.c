// SPDX-License-Identifier: GPL-2.0-only
/*
 * Superblocks: what a device is, and which copy of a store's superblock counts.
 *
 * The rule is the kernel's. Copy A says where copy B stands; only a B of the same store
 * counts beside it, and of the two the higher sequence. Without A, copy B may stand at each
 * of four places, and an older store may have left one there: the one whose tables are
 * there counts. A copy with one wrong bit is read as if that bit were right.
 */
#include <endian.h>
#include <string.h>

#include "crc32c.h"
#include "store.h"

#define SECTOR 512

/* How much of a device says what it is. */
#define HEAD_BYTES	4096U

/* Table blocks looked at to tell a store from what an older one left. */
#define SCORE_BLOCKS	8

/* ---- one superblock ---- */

u32 super_crc(const struct cowsnap_super *super, u64 sector)
{
	return cowsnap_super_crc(super, sector);
}

static bool has_magic(const u8 *data)
{
	return !memcmp(data, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES);
}

static bool super_whole(const struct cowsnap_super *super, u64 sector)
{
	return has_magic(super->magic) && le32toh(super->crc) == super_crc(super, sector);
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
	bool wide = le64toh(super->incompat) & COWSNAP_INCOMPAT_WIDE;

	return power_of_two(block) && block >= COWSNAP_MIN_BLOCK_BYTES &&
	       block <= COWSNAP_MAX_BLOCK_BYTES && power_of_two(chunk) &&
	       chunk <= COWSNAP_MAX_CHUNK_SECTORS && block <= chunk * SECTOR &&
	       origin && (origin - 1) / chunk <
			 1ULL << (wide ? COWSNAP_WIDE_BITS : COWSNAP_CHUNK_BITS);
}

/* Bits of the magic that are wrong: more than one, and no bit will mend it. */
static int magic_distance(const struct cowsnap_super *super)
{
	int i, bits = 0;

	for (i = 0; i < COWSNAP_MAGIC_BYTES; i++)
		bits += __builtin_popcount(super->magic[i] ^ COWSNAP_MAGIC[i]);
	return bits;
}

/*
 * By how much the crc changes with each bit of what it is computed over: uuid and sector
 * first, then the superblock. A bit of the uuid counts in two places.
 */
#define SEED_BYTES	24

static u32 effect[SEED_BYTES + COWSNAP_SUPER_BYTES][8];

static void __attribute__((constructor)) make_effects(void)
{
	const u8 zero = 0;
	int at, bit;

	for (bit = 0; bit < 8; bit++) {
		u32 value = crc32c(0, &(const u8){ 1U << bit }, 1);

		for (at = SEED_BYTES + COWSNAP_SUPER_BYTES - 1; at >= 0; at--) {
			effect[at][bit] = value;
			value = crc32c(value, &zero, 1);
		}
	}
}

static u32 effect_of(size_t at, int bit)
{
	const size_t uuid = offsetof(struct cowsnap_super, uuid);
	u32 value = effect[SEED_BYTES + at][bit];

	if (at >= uuid && at < uuid + sizeof(((struct cowsnap_super *)0)->uuid))
		value ^= effect[at - uuid][bit];
	return value;
}

/* Set the one bit right that is wrong. False if it is not one. */
static bool super_mend(struct cowsnap_super *super, u64 sector)
{
	u32 right = super_crc(super, sector), difference = right ^ le32toh(super->crc);
	u8 *data = (u8 *)super;
	size_t at;
	int bit;

	if (magic_distance(super) > 1)
		return false;
	if (power_of_two(difference)) {
		super->crc = htole32(right);
		return super_whole(super, sector) && super_sane(super);
	}
	for (at = 0; at < sizeof(*super); at++) {
		if (at - offsetof(struct cowsnap_super, crc) < sizeof(super->crc))
			continue;
		for (bit = 0; bit < 8; bit++)
			if (effect_of(at, bit) == difference) {
				data[at] ^= 1U << bit;
				return super_whole(super, sector) && super_sane(super);
			}
	}
	return false;
}

/* A superblock as it stands at @sector, and what is to be thought of it. */
static enum copy_state read_super(struct io *io, u64 sector, struct cowsnap_super *super,
				  struct super_copy *copy)
{
	memset(copy, 0, sizeof(*copy));
	if (io_read(io, sector * SECTOR, super, sizeof(*super)))
		return COPY_UNREADABLE;
	if (!super_whole(super, sector)) {
		copy->mended = super_mend(super, sector);
		if (!copy->mended)
			return COPY_BAD;
	}
	copy->sequence = le64toh(super->sequence);
	if (le32toh(super->version) == COWSNAP_FORMAT && !super_sane(super))
		return COPY_NOT_SANE;
	return COPY_GOOD;
}

/* ---- which one counts ---- */

bool super_newer_format(const struct cowsnap_super *super)
{
	return le32toh(super->version) != COWSNAP_FORMAT ||
	       le64toh(super->incompat) & ~COWSNAP_INCOMPAT_KNOWN;
}

static bool same_store(const struct cowsnap_super *a, const struct cowsnap_super *b)
{
	return !memcmp(a->uuid, b->uuid, sizeof(a->uuid)) &&
	       a->block_bytes == b->block_bytes && a->chunk_sectors == b->chunk_sectors;
}

/* How many of its first table blocks are there, in percent; -1: it cannot be. */
static int super_score(struct io *io, const struct cowsnap_super *super)
{
	struct store s = { .io = io, .super = *super };
	u64 nr, end = le32toh(super->blocks);
	int right = 0, tried = 0;

	if (super_newer_format(super))
		return 0;
	if (store_set_geometry(&s))
		return -1;
	for (nr = 0; nr < end && nr < s.nr_blocks && tried < SCORE_BLOCKS; nr++) {
		if (!cowsnap_block_slots(&s.geo, nr))
			continue;
		right += store_block_right(&s, nr);
		tried++;
	}
	return tried ? 100 * right / tried : 0;
}

/* Without copy A nothing says where B stands. */
static int find_super_b(struct store *s)
{
	int best = -2, score;
	u32 bytes;

	s->copy[1].state = COPY_BAD;
	for (bytes = COWSNAP_MIN_BLOCK_BYTES; bytes <= COWSNAP_MAX_BLOCK_BYTES; bytes *= 2) {
		struct cowsnap_super super;
		struct super_copy copy;

		if (read_super(s->io, bytes / SECTOR, &super, &copy) != COPY_GOOD ||
		    le32toh(super.block_bytes) != bytes)
			continue;
		score = super_score(s->io, &super);
		if (score < best || (score == best && copy.sequence <= s->copy[1].sequence))
			continue;
		best = score;
		copy.state = COPY_GOOD;
		s->copy[1] = copy;
		s->super = super;
	}
	return s->copy[1].state == COPY_GOOD ? 0 : -1;
}

/* ---- both are damaged ---- */

/* Stretches of bytes in which two damaged copies may differ: 2 to that power are tried. */
#define JOIN_STRETCHES	10

struct stretch {
	size_t from, to;
};

/* Where the copies differ apart from the crc, or more than JOIN_STRETCHES. */
static int find_stretches(const u8 *a, const u8 *b, struct stretch *at)
{
	const size_t crc = offsetof(struct cowsnap_super, crc);
	size_t i, last = 0;
	int nr = 0;

	for (i = 0; i < COWSNAP_SUPER_BYTES; i++) {
		if (a[i] == b[i] || i - crc < sizeof(__le32))
			continue;
		if (nr && i == last + 1) {
			at[nr - 1].to = i + 1;
		} else {
			if (nr == JOIN_STRETCHES)
				return nr + 1;
			at[nr++] = (struct stretch){ .from = i, .to = i + 1 };
		}
		last = i;
	}
	return nr;
}

/* Every stretch from either copy: is that what copy A was, or copy B at @sector? */
static bool try_joints(struct io *io, const struct cowsnap_super *a, const struct cowsnap_super *b,
		       u64 sector, struct cowsnap_super *found)
{
	struct stretch at[JOIN_STRETCHES];
	int nr = find_stretches((const u8 *)a, (const u8 *)b, at), i;
	u32 from_b;

	if (nr > JOIN_STRETCHES)
		return false;
	for (from_b = 0; from_b < 1U << nr; from_b++) {
		*found = *a;
		for (i = 0; i < nr; i++)
			if (from_b >> i & 1)
				memcpy((u8 *)found + at[i].from, (const u8 *)b + at[i].from,
				       at[i].to - at[i].from);
		if ((super_crc(found, 0) == le32toh(a->crc) ||
		     super_crc(found, sector) == le32toh(b->crc)) &&
		    has_magic(found->magic) && super_sane(found) &&
		    le32toh(found->block_bytes) == sector * SECTOR &&
		    !super_newer_format(found) && super_score(io, found) > 0)
			return true;
	}
	return false;
}

/* Two damaged copies that are damaged in different places are one that is whole. */
static int join_copies(struct store *s)
{
	struct cowsnap_super a, b;
	u32 bytes;

	if (io_read(s->io, 0, &a, sizeof(a)))
		return -1;
	for (bytes = COWSNAP_MIN_BLOCK_BYTES; bytes <= COWSNAP_MAX_BLOCK_BYTES; bytes *= 2) {
		if (io_read(s->io, bytes, &b, sizeof(b)) ||
		    !try_joints(s->io, &a, &b, bytes / SECTOR, &s->super))
			continue;
		s->copy[0].sequence = le64toh(s->super.sequence);
		return 0;
	}
	return -1;
}

/* ---- choosing ---- */

int super_choose(struct store *s)
{
	struct super_copy *a = &s->copy[0], *b = &s->copy[1];
	struct cowsnap_super second;
	enum copy_state state;

	state = read_super(s->io, 0, &s->super, a);
	a->state = state;
	if (state != COPY_GOOD)
		return find_super_b(s) ? join_copies(s) : 0;
	if (super_newer_format(&s->super))
		return 0;
	state = read_super(s->io, le32toh(s->super.block_bytes) / SECTOR, &second, b);
	b->state = state;
	if (state != COPY_GOOD)
		return 0;
	if (!same_store(&s->super, &second)) {
		b->state = COPY_OTHER;
		b->sequence = 0;
		return 0;
	}
	if (a->sequence < b->sequence) {
		a->state = COPY_OLD;
		s->super = second;
	} else if (b->sequence < a->sequence) {
		b->state = COPY_OLD;
	}
	return 0;
}

/* ---- what a device is ---- */

static bool all_zero(const u8 *data, size_t len)
{
	return !data[0] && !memcmp(data, data + 1, len - 1);
}

/* Sector by sector: one that cannot be read does not hide the others. */
static bool read_head(struct io *io, u8 *head)
{
	bool all = true;
	u32 at;

	memset(head, 0, HEAD_BYTES);
	for (at = 0; at < HEAD_BYTES && at < io->bytes; at += SECTOR)
		if (io_read(io, at, head + at, SECTOR)) {
			memset(head + at, 0, SECTOR);
			all = false;
		}
	return all;
}

enum store_kind store_identify(struct io *io)
{
	u8 head[HEAD_BYTES], b[COWSNAP_MAGIC_BYTES];
	bool all = read_head(io, head);
	u32 bytes;

	if (!memcmp(head, "SnAp", 4))
		return STORE_DM_SNAPSHOT;
	if (has_magic(head))
		return STORE_DAMAGED;
	/* Copy B alone may still have its name. */
	for (bytes = COWSNAP_MIN_BLOCK_BYTES; bytes < HEAD_BYTES; bytes *= 2)
		if (has_magic(head + bytes))
			return STORE_DAMAGED;
	if (all && all_zero(head, sizeof(head)))
		return io->bytes < HEAD_BYTES ? STORE_FOREIGN : STORE_NEW;
	if (!io_read(io, HEAD_BYTES, b, sizeof(b)) && has_magic(b))
		return STORE_DAMAGED;
	return all ? STORE_FOREIGN : STORE_UNREADABLE;
}

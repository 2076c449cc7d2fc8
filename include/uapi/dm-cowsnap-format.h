/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: the persistent store on disk
 *
 * Shared by the kernel module and the tools. Integers are little endian. A chunk
 * is the unit of copying (a power of two of 512-byte sectors); a block is the unit
 * in which metadata is written: the physical block of the store when it was made,
 * 512 to 4096 bytes, never more than a chunk.
 *
 * The store is a row of segments. Each begins with a table, which describes the
 * data chunks after it: slot i says what the i-th of them holds. So an entry needs
 * no address, and what is where follows from the position alone: a store that
 * grows gets more segments, and nothing is written for it.
 *
 *   chunk 0                                                    end of the device
 *   +-------+-----------------+-------+-----------------+-------+-------- - -
 *   | table | data …          | table | data …          | table | data …
 *   +-------+-----------------+-------+-----------------+-------+-------- - -
 *   |<------- segment 0 ----->|<------- segment 1 ----->|
 *
 *   table of segment 0 (block = 512)              (block = 4096)
 *   +---------+---------+-------+-------+- -      +------------------+------------------+- -
 *   | super A | super B | slots | slots | …       | super A  | slots | super B  | slots | …
 *   +---------+---------+-------+-------+- -      +------------------+------------------+- -
 *   0         512       1024                      0          512     4096       4608
 *
 * Table sizes: the segment that begins at chunk c has a table of
 * c >> (10 + log2(chunk sectors)) chunks, at least one and at most 256 KiB; that of
 * segment 0 is two blocks, in whole chunks. With 14 bytes a slot this stays below
 * the 16 bytes a chunk, plus two chunks, that LVM gives a COW volume, at every size.
 *
 * Superblock, 512 bytes, twice          Slots of one block: header, then slots
 *   offset size                            offset size
 *     0     16  magic                        0     4  crc of all that follows
 *    16      4  crc of the other 508         4     4  blocks: table blocks in use
 *    20      4  version                      8     8  sequence of the commit
 *    24      8  compat features             16     8  sequence known durable then
 *    32      8  ro_compat features          24    14  slot, and so on:
 *    40      8  incompat features                     0  4  crc of the data
 *    48     16  uuid                                  4  4  chunk of origin, bits 0-31
 *    64      8  sequence                              8  4  epoch, bits 0-31
 *    72      4  block_bytes                          12  1  bits 0-3 chunk 32-35
 *    76      4  chunk_sectors                               bits 4-6 kind, bit 7 fresh
 *    80      8  origin_sectors                       13  1  chunk, bits 36-43
 *    88      8  store_sectors
 *    96      8  epoch                   Record of a snapshot, 32 bytes
 *   104      8  durable                      0     2  id
 *   112      4  blocks                       2     1  state
 *   116      4  merge_id                     3     1  reserved
 *   120      8  merge_chunk                  4     4  flags
 *   128      4  on_full                      8     8  epoch
 *   132      4  wait_timeout                16     8  sectors
 *   136      4  throttle                    24     8  time
 *   140      4  low_water
 *   144      4  copy_ahead              Block of records: header (crc, index,
 *   148      4  copy_around                sequence, epoch), then records
 *   152      8  damage_epoch
 *   160      4  damaged_blocks          Block of a tracker: header (crc, index,
 *   164      4  damage_mark                series, ones), then a bit for each chunk,
 *   168      8  invalid_epoch              then a mark for each region
 *   176      1  invalid_state
 *   177      1  redirect
 *   178      1  settle
 *   179      1  reserved
 *   180      4  log                    Record of the log, one block
 *   184     24  zone A of the log        0     4  crc of all that follows
 *   208     24  zone B                   4     4  index in its zone, from 0
 *   232      8  lost_epoch               8     8  series of the zone
 *   240      8  seal_start              16     8  mark
 *   248      4  seal_generation         24     4  durable: records known durable then
 *   252      1  seal_state              28     2  slots in use
 *   253      3  reserved                30     2  reserved
 *   256    256  records 0 to 7          32    14  slot, as in a table, and so on
 *
 * Zone of the log                    Seal, one sector of the origin
 *     0      8  start, a chunk          0    16  magic
 *     8      8  series                 16     4  crc of the other 508
 *    16      4  chunks, 0: not in use  20     4  generation
 *    20      4  durable: records       24    16  uuid of the store
 *               known durable          40     8  where in the store its content is, a sector
 *                                      48     4  sectors of the origin that are sealed
 *                                      52     4  reserved
 *                                      56   456  text, for who looks at it
 *
 * Chunks of the store have 36 bits. So have those of the origin, unless the store has the
 * incompatible feature WIDE, which it gets when its origin has more of them: then 44.
 *
 * Every crc is crc32c seeded with ~0, then the uuid, then the location: the sector
 * of the store, 8 bytes. So what an earlier store left behind never counts.
 *
 * Commit. Slots and data are written in parallel; the slots added by a commit have
 * the bit "fresh" until the block is next written. Commits are numbered, one is
 * under way at a time, and each block it writes names its number and the last
 * number known durable. With D the largest number that any block or superblock
 * names durable, a fresh slot in a block of a later commit is believed only if its
 * data has the right crc (or it has no data). If not, and home has data with that crc,
 * the commit had not ended, since home may only be written after that: the slot is void.
 * Everything else is believed, and a mismatch there is damage. A slot of kind private gets
 * no crc: its data is durable before the slot is written, and changes in place.
 *
 * "blocks" is how many table blocks, counted over all tables, have been made ready:
 * written empty and flushed before the superblock says so. Slots are only ever put into
 * those; what stands beyond is garbage. A block below it with a wrong crc is damage,
 * unless flipping one bit back makes the crc match: then the corrected block is used. If
 * not, or if it cannot be read, it is unknown which chunks it described: snapshots up to
 * damage_epoch answer with an error where their version is not known, and copies made from
 * then on carry later epochs, so that they are not taken for what was lost. When other blocks
 * are lost than damage_mark says, damage_epoch becomes the last epoch given out, and the
 * next one is spent. A snapshot's own version may be among what was lost only if it was
 * ever written to, which its record says beforehand.
 *
 * Snapshots. A slot (chunk C, epoch E) holds C for all snapshots with an epoch up to
 * E and above the next older slot of C. Deleting a snapshot rewrites its record and
 * nothing else: slots that no live epoch falls on are dead, and their chunks free. The
 * first 8 records stand in the superblock, the others in chunks of their own, each
 * announced by a slot of kind records whose chunk field says which it is: records
 * 8 + chunk * (records in a chunk) and on. Epochs are never given out twice. A block of records
 * that is lost costs the snapshots in it: it is written anew, empty, before anything
 * that only they needed is used again, and the next epoch is later than that of any slot.
 *
 * Log. With INCOMPAT_LOG the superblock may name two zones: runs of chunks, each behind one table,
 * in which runs of copied chunks are committed with one write. A record stands in the last block of
 * a chunk, and the data that it speaks of in the chunks behind that one: slot i is for the i-th of
 * them. The rest of the record's own chunk means nothing. So data is where a table would say, and
 * a zone's tables, which are written later, are the checkpoint of its log.
 *
 * Each zone has a series of its own, never given out twice, and its records an index that runs
 * without gaps. Records may be under way in any number, so any of the last ones may be missing. A
 * record is one if its mark (of the uuid, its own sector and its zone's series) and its crc are
 * right. What begins with the mark, or nearly so, and has a wrong crc was one: it is damaged.
 * "durable" is how many of the zone's first records are known durable; the largest number that a
 * record or the superblock has counts. COPIED slots of later records are in doubt, as fresh ones
 * are, and each chunk is judged by itself. A record below that number that is not there is damage,
 * and so is one that may have stood where nothing can be read, or that is damaged. One of the
 * others that is not there had not ended: nothing that waited for it went home.
 *
 * While a zone is named no slot of its chunks is in a table, but for what was written later than
 * the record: a version of it that became private, or the checkpoint. So where a table has a slot,
 * the table is right. Slots of dead versions are cleared before the zone is named, and its chunks,
 * free or not, are used for nothing but its own records while it is.
 *
 * Which chunks a lost record described is unknown, as for a lost table block: snapshots up to
 * lost_epoch answer with an error where their version is not known.
 *
 * Invalid. Until all records in blocks of their own say that their snapshots have become
 * invalid, the superblock says it for them: a snapshot that is live, with an epoch up to
 * invalid_epoch, is what invalid_state says (overflowed or invalid) whatever its record
 * says. The feature bit INVALID (incompatible) is set for as long.
 *
 * Superblocks. A is written first, then B, each with a sequence above all earlier ones.
 * A change is made when one of the two is durable. The two are never under way at once.
 *
 * Beyond one snapshot a store needs 32 bytes for each record after the eighth.
 *
 * Seal. With INCOMPAT_SEAL the first sectors of the origin, 68 KiB in whole chunks, are not at
 * home: the store has their content, in a run of chunks from seal_start on, and is read and written
 * for them. No slot of these chunks is in use. At home each of these sectors has a seal instead, so
 * that nobody takes the origin for what it is without its store. seal_state says how far that is:
 *
 *   SEALING   the store has what home has. At home any of the sectors may have its seal already.
 *   SEALED    every sector has its seal. If one has not, the origin was written without the store.
 *   OPENING   the content is on its way back. Any of the sectors may still have its seal.
 *
 * So SEALING and OPENING end in the same way: where a sector has the seal it gets its content back,
 * and where it has not it is left as it is. A sector behind the first 68 KiB has a seal only while
 * all of those have theirs, so who looks for a seal looks there. A seal counts with the uuid of the
 * store, its generation and a right crc. Generations only rise. The crc is seeded with the sector
 * of the origin.
 *
 * Redirect. With INCOMPAT_CURRENT slots may have the kind current: chunk C, epoch E, and the chunk
 * of the store holds C as it has been since epoch E, for all snapshots with a later epoch and for
 * the origin itself, up to the next such slot of C. A snapshot sees its private version, else the
 * least COPIED or ZERO with an epoch not below its own, else the greatest CURRENT with an epoch
 * below its own, else the origin's device. The origin is the greatest CURRENT, else its device.
 * CURRENT slots are never fresh. With INCOMPAT_ZEROES one may say in the highest bit of its epoch
 * that the chunk is zeroes: nothing is written at its place, and its crc says nothing. In memory
 * that is a kind of its own, current-zero; whatever is said of CURRENT is true of it. Such a slot
 * stands in tables alone, no record has one. Its place may be in a zone: then the record there has
 * what the chunk was before, and the table is right. In a record that is not known durable one is
 * believed if its data has the right crc, and void if not; anywhere else the crc says nothing,
 * since the data is written in place. No chunk has two of one epoch; none of them is of a sealed
 * chunk; there are none unless the seal is in state SEALED. A table block or a record that is lost
 * may have had some, and with them data of the origin: such a store is refused. A CURRENT that no
 * live epoch falls on is dead if there is a later one. Who frees the latest has freed the dead ones
 * before, durably.
 *
 * A tracker is a snapshot that was given up: its record stays, and says which chunks have
 * changed since its epoch, in blocks of its own. Each block has a bit for each chunk of a
 * stretch of the origin, and a mark for each region of it. A chunk has changed if its bit is
 * set, or the mark of its region: a region is marked before it is written to, and its mark is
 * taken away, in the one write that sets the bits, when the region has been left alone for a
 * while. The blocks stand in chunks that slots of kind TRACK announce: the slot's chunk is the
 * index of that piece, its epoch the tracker's series. No two attempts to make a tracker have
 * the same series, so that a slot of one that failed, or was deleted, never counts.
 */
#ifndef DM_COWSNAP_FORMAT_H
#define DM_COWSNAP_FORMAT_H

#include <linux/types.h>
#include <asm/byteorder.h>

#ifdef __KERNEL__
#include <linux/crc32c.h>
#include <linux/stddef.h>
#include <linux/string.h>
#else
#include <assert.h>
#include <stddef.h>
#include <string.h>

/* Castagnoli's, without inversion. Programs that use the checksums below have to define it. */
__u32 crc32c(__u32 crc, const void *data, size_t bytes);
#endif

#define COWSNAP_MAGIC		"dm-cowsnap store"	/* 16 bytes, no zero */
#define COWSNAP_MAGIC_BYTES	16
#define COWSNAP_FORMAT		1

/* Chunk numbers of the origin may have more than COWSNAP_CHUNK_BITS. */
#define COWSNAP_INCOMPAT_WIDE	1ULL
/* Set while invalid_epoch is not 0. */
#define COWSNAP_INCOMPAT_INVALID 2ULL
/* Trackers have been made in the store. Stays, since old slots of theirs do. */
#define COWSNAP_INCOMPAT_TRACK	4ULL
/* The store has, or had, a log. Stays, since old records do, and no series may come twice. */
#define COWSNAP_INCOMPAT_LOG	8ULL
/* Set while seal_state is not COWSNAP_SEAL_OPEN. */
#define COWSNAP_INCOMPAT_SEAL	16ULL
/* Set while redirect is not 0, or a CURRENT slot may be there. */
#define COWSNAP_INCOMPAT_CURRENT 32ULL
/* Set while a CURRENT slot may be there that says zeroes. */
#define COWSNAP_INCOMPAT_ZEROES	64ULL

/* Features this version knows. */
#define COWSNAP_COMPAT_KNOWN	0ULL
#define COWSNAP_RO_COMPAT_KNOWN	0ULL
#define COWSNAP_INCOMPAT_KNOWN	(COWSNAP_INCOMPAT_WIDE | COWSNAP_INCOMPAT_INVALID | \
				 COWSNAP_INCOMPAT_TRACK | COWSNAP_INCOMPAT_LOG | \
				 COWSNAP_INCOMPAT_SEAL | COWSNAP_INCOMPAT_CURRENT | \
				 COWSNAP_INCOMPAT_ZEROES)

#define COWSNAP_MIN_BLOCK_BYTES	512U
#define COWSNAP_MAX_BLOCK_BYTES	4096U
#define COWSNAP_SUPER_BYTES	512U
#define COWSNAP_SUPER_RECORDS	8U
#define COWSNAP_MAX_SNAPSHOTS	65536U
#define COWSNAP_MAX_TRACKERS	16U
#define COWSNAP_MAX_CHUNK_SECTORS 16384U

/* The largest value of redirect. */
#define COWSNAP_MAX_REDIRECT	90U

/* Most table blocks that one commit writes, and fewest that are made ready at a time. */
#define COWSNAP_COMMIT_BLOCKS	64U

/* Largest table, in sectors, unless one chunk is larger. */
#define COWSNAP_MAX_TABLE_SECTORS 512U

/* Zones of the log that a superblock can name, and the most chunks in one. */
#define COWSNAP_ZONES		2U
#define COWSNAP_ZONE_CHUNKS	4096U

#define COWSNAP_SEAL_MAGIC	"dm-cowsnap seal\n"	/* 16 bytes, no zero */
#define COWSNAP_SEAL_TEXT	456

/* What is sealed at least: 68 KiB. The last 4 KiB of it are where btrfs begins. */
#define COWSNAP_SEAL_SECTORS	136U

/* Bits of a chunk number, and of one of the origin with INCOMPAT_WIDE. */
#define COWSNAP_CHUNK_BITS	36U
#define COWSNAP_WIDE_BITS	44U

/* The last epoch that can be given out: the kernel keeps 28 bits of each. */
#define COWSNAP_MAX_EPOCH	((1U << 28) - 2)

/* merge_id when nothing is being merged. */
#define COWSNAP_NO_MERGE	0xffffffffU

enum cowsnap_slot_kind {
	COWSNAP_SLOT_FREE = 0,		/* the chunk holds nothing */
	COWSNAP_SLOT_COPIED = 1,	/* old data of the origin, with a crc */
	COWSNAP_SLOT_ZERO = 2,		/* old data, all zero; the chunk is not written */
	COWSNAP_SLOT_PRIVATE = 3,	/* written through the snapshot of that epoch */
	COWSNAP_SLOT_PRIVATE_ZERO = 4,	/* zeroed through it; the chunk is not written */
	COWSNAP_SLOT_RECORDS = 5,	/* records of snapshots */
	COWSNAP_SLOT_TRACK = 6,		/* blocks of a tracker */
	COWSNAP_SLOT_CURRENT = 7,	/* data of the origin since that epoch, written in place */
	COWSNAP_SLOT_CURRENT_ZERO = 8,	/* the same, all zero; see COWSNAP_SLOT_ZEROES */
	COWSNAP_SLOT_KINDS,
};

enum cowsnap_record_state {
	COWSNAP_RECORD_FREE = 0,
	COWSNAP_RECORD_LIVE = 1,
	COWSNAP_RECORD_OVERFLOWED = 2,	/* the store was full */
	COWSNAP_RECORD_INVALID = 3,	/* an error cost it its contents */
	COWSNAP_RECORD_DROPPED = 4,	/* given up to make room for newer ones */
	COWSNAP_RECORD_MERGING = 5,	/* on its way back into the origin */
	COWSNAP_RECORD_MERGED = 6,	/* there */
	COWSNAP_RECORD_TRACKER = 7,	/* given up: what has changed since is known */
	COWSNAP_RECORD_STATES,
};

/* Flags of a record. The snapshot may have versions of its own. */
#define COWSNAP_RECORD_WRITTEN	1U
/* And from this bit on the series of a tracker. */
#define COWSNAP_RECORD_SERIES_SHIFT 4

enum cowsnap_seal_state {
	COWSNAP_SEAL_OPEN = 0,		/* home has everything */
	COWSNAP_SEAL_SEALING = 1,
	COWSNAP_SEAL_SEALED = 2,
	COWSNAP_SEAL_OPENING = 3,
	COWSNAP_SEAL_STATES,
};

enum cowsnap_on_full {
	COWSNAP_FULL_INVALIDATE = 0,
	COWSNAP_FULL_DROP_OLDEST = 1,
	COWSNAP_FULL_WAIT = 2,
	COWSNAP_FULL_POLICIES,
};

/* Are copies committed by a log? */
enum cowsnap_log_mode {
	COWSNAP_LOG_OFF = 0,
	COWSNAP_LOG_ON = 1,
	COWSNAP_LOG_REDIRECTED = 2,	/* while redirect is not 0 */
	COWSNAP_LOG_MODES,
};

/* When what was redirected is brought home, while the origin is in use. */
enum cowsnap_settle {
	COWSNAP_SETTLE_IDLE = 0,	/* while nobody uses the origin, or the share is used up */
	COWSNAP_SETTLE_NOW = 1,
	COWSNAP_SETTLE_OFF = 2,
	COWSNAP_SETTLE_MODES,
};

struct cowsnap_record {
	__le16 id;
	__u8 state;		/* enum cowsnap_record_state */
	__u8 reserved1;
	__le32 flags;
	__le64 epoch;
	__le64 sectors;		/* length of the snapshot */
	__le64 time;		/* of creation, seconds since 1970 */
};

/* Where records of the log are. */
struct cowsnap_zone {
	__le64 start;		/* chunk of the store */
	__le64 series;		/* stays when the zone is in use no more; 0: it never was */
	__le32 chunks;		/* 0: it is not in use */
	__le32 durable;		/* records known durable */
};

struct cowsnap_super {
	__u8 magic[COWSNAP_MAGIC_BYTES];
	__le32 crc;		/* of the 512 bytes with this field zero */
	__le32 version;
	__le64 compat;		/* unknown bits: go on */
	__le64 ro_compat;	/* unknown bits: read only */
	__le64 incompat;	/* unknown bits: refuse */
	__u8 uuid[16];
	__le64 sequence;	/* of the two copies the higher one counts */
	__le32 block_bytes;
	__le32 chunk_sectors;
	__le64 origin_sectors;
	__le64 store_sectors;	/* of the device when this was written */
	__le64 epoch;		/* last one given out */
	__le64 durable;		/* number of a commit known durable */
	__le32 blocks;		/* table blocks made ready */
	__le32 merge_id;
	__le64 merge_chunk;	/* chunks of the origin below this are merged */
	__le32 on_full;		/* enum cowsnap_on_full */
	__le32 wait_timeout;	/* seconds */
	__le32 throttle;	/* percent of time */
	__le32 low_water;	/* percent used, 0: none */
	__le32 copy_ahead;	/* KiB */
	__le32 copy_around;	/* KiB */
	__le64 damage_epoch;	/* snapshots up to here may lack entries, 0: none */
	__le32 damaged_blocks;	/* table blocks that could not be read then */
	__le32 damage_mark;	/* which they were: see cowsnap_damage_mark() */
	__le64 invalid_epoch;	/* live snapshots up to here are invalid, 0: none */
	__u8 invalid_state;	/* enum cowsnap_record_state: what they are instead */
	__u8 redirect;		/* percent of the store that CURRENT may take, 0: none */
	__u8 settle;		/* enum cowsnap_settle: when what was redirected is brought home */
	__u8 reserved1;
	__le32 log;		/* enum cowsnap_log_mode */
	struct cowsnap_zone zone[COWSNAP_ZONES];
	__le64 lost_epoch;	/* snapshots up to here may lack records of the log, 0: none */
	__le64 seal_start;	/* chunk of the store: the content of the origin's first ones */
	__le32 seal_generation;	/* of the last seal; stays */
	__u8 seal_state;	/* enum cowsnap_seal_state */
	__u8 reserved[3];
	struct cowsnap_record record[COWSNAP_SUPER_RECORDS];
};

/* What a sealed sector of the origin has in the place of its content. */
struct cowsnap_seal {
	__u8 magic[COWSNAP_MAGIC_BYTES];
	__le32 crc;		/* of the 512 bytes with this field zero */
	__le32 generation;
	__u8 uuid[16];		/* of the store */
	__le64 store_sector;	/* where the content of the origin's first sector is */
	__le32 sectors;		/* of the origin that are sealed, from its start on */
	__le32 reserved;
	char text[COWSNAP_SEAL_TEXT];
};

/* In front of the slots of a block, and of the records of one. */
struct cowsnap_block_header {
	__le32 crc;		/* of what follows in the block's area */
	__le32 blocks;		/* table blocks in use; records: index of this block */
	__le64 sequence;	/* of the commit that wrote it; tracker: its series */
	__le64 durable;		/* commit known durable then; records: last epoch given out;
				 * tracker: all ones
				 */
};

struct cowsnap_slot {
	__le32 crc;
	__le32 chunk_low;
	__le32 epoch_low;	/* of a CURRENT: bit 31 zeroes */
	__u8 chunk_high_kind;	/* bits 0-3, kind 4-6, fresh 7 */
	__u8 chunk_wide;	/* bits 36-43 of the chunk; 0 without INCOMPAT_WIDE */
} __attribute__((packed));

/* The first bytes of a block; slots follow. */
struct cowsnap_log_record {
	__le32 crc;		/* of the rest of the block */
	__le32 index;
	__le64 series;
	__le64 mark;
	__le32 durable;		/* records of the zone known durable then */
	__le16 nr;		/* slots, and chunks behind this one */
	__le16 reserved;
};

static_assert(sizeof(struct cowsnap_record) == 32, "record");
static_assert(sizeof(struct cowsnap_zone) == 24, "zone");
static_assert(sizeof(struct cowsnap_log_record) == 32, "record of the log");
static_assert(offsetof(struct cowsnap_super, lost_epoch) == 232, "zones of the superblock");
static_assert(offsetof(struct cowsnap_super, record) == 256, "records of the superblock");
static_assert(sizeof(struct cowsnap_super) == COWSNAP_SUPER_BYTES, "superblock");
static_assert(sizeof(struct cowsnap_seal) == 512, "seal");
static_assert(sizeof(struct cowsnap_block_header) == 24, "block header");
static_assert(sizeof(struct cowsnap_slot) == 14, "slot");

#define COWSNAP_SLOT_FRESH	0x80U

/* In the epoch of a CURRENT: the kind is CURRENT_ZERO. No epoch has so many bits. */
#define COWSNAP_SLOT_ZEROES	0x80000000U

/*
 * ---------------------------------------------------------------------------
 * Slots: what they hold, whatever their bits are
 * ---------------------------------------------------------------------------
 */

static inline __u64 cowsnap_slot_chunk(const struct cowsnap_slot *slot)
{
	return __le32_to_cpu(slot->chunk_low) | (__u64)(slot->chunk_high_kind & 0xf) << 32 |
	       (__u64)slot->chunk_wide << 36;
}

/* An enum cowsnap_slot_kind, or what a damaged slot has there. */
static inline __u8 cowsnap_slot_kind(const struct cowsnap_slot *slot)
{
	__u8 kind = slot->chunk_high_kind >> 4 & 7;

	if (kind == COWSNAP_SLOT_CURRENT && __le32_to_cpu(slot->epoch_low) & COWSNAP_SLOT_ZEROES)
		return COWSNAP_SLOT_CURRENT_ZERO;
	return kind;
}

static inline int cowsnap_kind_is_current(__u8 kind)
{
	return kind == COWSNAP_SLOT_CURRENT || kind == COWSNAP_SLOT_CURRENT_ZERO;
}

static inline __u32 cowsnap_slot_epoch(const struct cowsnap_slot *slot)
{
	__u32 epoch = __le32_to_cpu(slot->epoch_low);

	if (cowsnap_slot_kind(slot) == COWSNAP_SLOT_CURRENT_ZERO)
		epoch &= ~COWSNAP_SLOT_ZEROES;
	return epoch;
}

static inline __u32 cowsnap_slot_crc(const struct cowsnap_slot *slot)
{
	return __le32_to_cpu(slot->crc);
}

static inline int cowsnap_slot_is_fresh(const struct cowsnap_slot *slot)
{
	return !!(slot->chunk_high_kind & COWSNAP_SLOT_FRESH);
}

static inline void cowsnap_slot_set_fresh(struct cowsnap_slot *slot, int fresh)
{
	if (fresh)
		slot->chunk_high_kind |= COWSNAP_SLOT_FRESH;
	else
		slot->chunk_high_kind &= ~COWSNAP_SLOT_FRESH;
}

/* All of it; it is not fresh. */
static inline void cowsnap_slot_set(struct cowsnap_slot *slot, __u64 chunk, __u32 epoch,
				    __u8 kind, __u32 crc)
{
	if (kind == COWSNAP_SLOT_CURRENT_ZERO) {
		kind = COWSNAP_SLOT_CURRENT;
		epoch |= COWSNAP_SLOT_ZEROES;
	}
	slot->crc = __cpu_to_le32(crc);
	slot->chunk_low = __cpu_to_le32((__u32)chunk);
	slot->epoch_low = __cpu_to_le32(epoch);
	slot->chunk_high_kind = (__u8)((chunk >> 32 & 0xf) | kind << 4);
	slot->chunk_wide = (__u8)(chunk >> 36);
}

/*
 * ---------------------------------------------------------------------------
 * Checksums
 * ---------------------------------------------------------------------------
 */

/* How each crc of a store begins: whose it is, and the sector it is for. */
static inline __u32 cowsnap_seed(const __u8 *uuid, __u64 sector)
{
	__le64 location = __cpu_to_le64(sector);

	return crc32c(crc32c(~0U, uuid, 16), &location, sizeof(location));
}

/* What a superblock at @sector has in its field crc. */
static inline __u32 cowsnap_super_crc(const struct cowsnap_super *super, __u64 sector)
{
	const size_t at = offsetof(struct cowsnap_super, crc);
	const size_t after = at + sizeof(super->crc);
	__le32 zero = 0;
	__u32 crc = crc32c(cowsnap_seed(super->uuid, sector), super, at);

	crc = crc32c(crc, &zero, sizeof(zero));
	return crc32c(crc, (const __u8 *)super + after, sizeof(*super) - after);
}

/* What the seal in sector @sector of the origin has in its field crc. */
static inline __u32 cowsnap_seal_crc(const struct cowsnap_seal *seal, __u64 sector)
{
	const size_t at = offsetof(struct cowsnap_seal, crc);
	const size_t after = at + sizeof(seal->crc);
	__le32 zero = 0;
	__u32 crc = crc32c(cowsnap_seed(seal->uuid, sector), seal, at);

	crc = crc32c(crc, &zero, sizeof(zero));
	return crc32c(crc, (const __u8 *)seal + after, sizeof(*seal) - after);
}

/* Is sector @sector of an origin, which is in @data, a seal, whoever's? */
static inline int cowsnap_is_seal(const void *data, __u64 sector)
{
	const struct cowsnap_seal *seal = data;

	return !memcmp(seal->magic, COWSNAP_SEAL_MAGIC, sizeof(seal->magic)) &&
	       __le32_to_cpu(seal->crc) == cowsnap_seal_crc(seal, sector);
}

/* And is it that of this store, of this generation? */
static inline int cowsnap_is_seal_of(const void *data, __u64 sector, const __u8 *uuid,
				     __u32 generation)
{
	const struct cowsnap_seal *seal = data;

	return cowsnap_is_seal(data, sector) && !memcmp(seal->uuid, uuid, sizeof(seal->uuid)) &&
	       __le32_to_cpu(seal->generation) == generation;
}

/*
 * Which table blocks could not be read: from 0, with the number of each of them in turn,
 * in ascending order.
 */
static inline __u32 cowsnap_damage_mark(__u32 mark, __u64 number)
{
	mark = (mark ^ ((__u32)number + 1)) * 0x9e3779b1U;
	return mark ^ mark >> 15;
}

/*
 * ---------------------------------------------------------------------------
 * Geometry: pure arithmetic, the same in kernel and tools
 * ---------------------------------------------------------------------------
 */

/* One segment. Chunks are those of the store, intervals half open. */
struct cowsnap_segment {
	__u64 start;		/* first chunk: the table */
	__u64 data;		/* first chunk that the table describes */
	__u64 end;		/* of what it could describe: the next segment */
	__u64 first_block;	/* number of its first table block over all segments */
	__u32 blocks;		/* of its table */
	__u32 slots;
};

/* Segments grow up to a point and are all alike from then on. */
#define COWSNAP_EARLY_MAX	512

struct cowsnap_geometry {
	__u32 block_bytes;
	__u32 chunk_sectors;
	__u32 chunk_shift;	/* log2(chunk_sectors) */
	__u32 chunk_blocks;	/* blocks in a chunk */
	__u32 block_slots;	/* slots in a whole block */
	__u32 super_slots;	/* slots in each of the first two */
	__u32 nr_early;		/* the last of these is like all that follow */
	struct cowsnap_segment early[COWSNAP_EARLY_MAX];
};

/* Bytes in front of the slots' header in table block @block. */
static inline __u32 cowsnap_area_offset(__u64 block)
{
	return block < 2 ? COWSNAP_SUPER_BYTES : 0;
}

static inline __u32 cowsnap_block_slots(const struct cowsnap_geometry *g, __u64 block)
{
	return block < 2 ? g->super_slots : g->block_slots;
}

static inline __u32 cowsnap_slots_in_bytes(__u32 bytes)
{
	if (bytes < sizeof(struct cowsnap_block_header) + sizeof(struct cowsnap_slot))
		return 0;
	return (bytes - sizeof(struct cowsnap_block_header)) / sizeof(struct cowsnap_slot);
}

/* Records in a block of records. */
static inline __u32 cowsnap_block_records(const struct cowsnap_geometry *g)
{
	return (g->block_bytes - sizeof(struct cowsnap_block_header)) /
	       sizeof(struct cowsnap_record);
}

static inline __u32 cowsnap_max_table_chunks(const struct cowsnap_geometry *g)
{
	__u32 chunks = COWSNAP_MAX_TABLE_SECTORS >> g->chunk_shift;

	return chunks ? chunks : 1;
}

static inline __u32 cowsnap_table_chunks(const struct cowsnap_geometry *g, __u64 start)
{
	__u64 chunks = start >> (10 + g->chunk_shift);
	__u32 max = cowsnap_max_table_chunks(g);

	if (!start)
		return g->chunk_blocks >= 2 ? 1 : 2;
	if (chunks > max)
		return max;
	return chunks ? chunks : 1;
}

/* The segment that begins at @start, with table blocks from number @first_block on. */
static inline void cowsnap_make_segment(const struct cowsnap_geometry *g, __u64 start,
					__u64 first_block, struct cowsnap_segment *seg)
{
	__u32 chunks = cowsnap_table_chunks(g, start);

	seg->start = start;
	seg->data = start + chunks;
	seg->first_block = first_block;
	seg->blocks = chunks * g->chunk_blocks;
	seg->slots = seg->blocks * g->block_slots;
	if (!start)
		seg->slots -= 2 * (g->block_slots - g->super_slots);
	seg->end = seg->data + seg->slots;
}

/* 0, or -1 if these are no sizes of a store. */
static inline int cowsnap_geometry_init(struct cowsnap_geometry *g, __u32 block_bytes,
					__u32 chunk_sectors)
{
	struct cowsnap_segment *seg = g->early;

	if (block_bytes < COWSNAP_MIN_BLOCK_BYTES || block_bytes > COWSNAP_MAX_BLOCK_BYTES ||
	    (block_bytes & (block_bytes - 1)) || !chunk_sectors ||
	    chunk_sectors > COWSNAP_MAX_CHUNK_SECTORS ||
	    (chunk_sectors & (chunk_sectors - 1)) || block_bytes > chunk_sectors * 512)
		return -1;
	g->block_bytes = block_bytes;
	g->chunk_sectors = chunk_sectors;
	for (g->chunk_shift = 0; 1U << g->chunk_shift < chunk_sectors; g->chunk_shift++)
		;
	g->chunk_blocks = chunk_sectors * 512 / block_bytes;
	g->block_slots = cowsnap_slots_in_bytes(block_bytes);
	g->super_slots = cowsnap_slots_in_bytes(block_bytes - COWSNAP_SUPER_BYTES);
	cowsnap_make_segment(g, 0, 0, seg);
	for (g->nr_early = 1; g->nr_early < COWSNAP_EARLY_MAX; g->nr_early++, seg++) {
		cowsnap_make_segment(g, seg->end, seg->first_block + seg->blocks, seg + 1);
		if (seg[1].start &&
		    seg[1].data - seg[1].start == cowsnap_max_table_chunks(g)) {
			g->nr_early++;
			return 0;
		}
	}
	return -1;
}

/* Segment number @index, from 0. Its end may lie beyond that of the device. */
static inline void cowsnap_get_segment(const struct cowsnap_geometry *g, __u64 index,
				       struct cowsnap_segment *seg)
{
	const struct cowsnap_segment *last = &g->early[g->nr_early - 1];
	__u64 more;

	if (index < g->nr_early) {
		*seg = g->early[index];
		return;
	}
	more = index - (g->nr_early - 1);
	*seg = *last;
	seg->start += more * (last->end - last->start);
	seg->data += more * (last->end - last->start);
	seg->end += more * (last->end - last->start);
	seg->first_block += more * last->blocks;
}

/* Number of the segment that @chunk of the store lies in. */
static inline __u64 cowsnap_find_segment(const struct cowsnap_geometry *g, __u64 chunk)
{
	const struct cowsnap_segment *last = &g->early[g->nr_early - 1];
	__u32 low = 0, high = g->nr_early - 1;

	if (chunk >= last->start)
		return g->nr_early - 1 +
		       (chunk - last->start) / (last->end - last->start);
	while (low < high) {
		__u32 mid = (low + high + 1) / 2;

		if (g->early[mid].start <= chunk)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

/* Where in the segment's table slot number @slot stands. */
static inline void cowsnap_find_slot(const struct cowsnap_geometry *g,
				     const struct cowsnap_segment *seg, __u32 slot,
				     __u32 *block, __u32 *index)
{
	if (!seg->start) {
		__u32 first = 2 * g->super_slots;

		if (slot < first) {
			*block = slot / g->super_slots;
			*index = slot % g->super_slots;
			return;
		}
		*block = 2 + (slot - first) / g->block_slots;
		*index = (slot - first) % g->block_slots;
		return;
	}
	*block = slot / g->block_slots;
	*index = slot % g->block_slots;
}

/* Number of the first slot of table block @block (counted within the segment). */
static inline __u32 cowsnap_first_slot(const struct cowsnap_geometry *g,
				       const struct cowsnap_segment *seg, __u32 block)
{
	if (seg->start)
		return block * g->block_slots;
	if (block < 2)
		return block * g->super_slots;
	return 2 * g->super_slots + (block - 2) * g->block_slots;
}

/* Sector of the store where table block @block of the segment stands. */
static inline __u64 cowsnap_block_sector(const struct cowsnap_geometry *g,
					 const struct cowsnap_segment *seg, __u32 block)
{
	return (seg->start << g->chunk_shift) + (__u64)block * (g->block_bytes / 512);
}

/* How many data chunks of the segment a device of @nr_chunks has. */
static inline __u32 cowsnap_segment_room(const struct cowsnap_segment *seg, __u64 nr_chunks)
{
	if (nr_chunks <= seg->data)
		return 0;
	return nr_chunks >= seg->end ? seg->slots : nr_chunks - seg->data;
}

/*
 * ---------------------------------------------------------------------------
 * The log: zones, and the records in them
 * ---------------------------------------------------------------------------
 */

/* Half open: the first chunk of a zone, and the one behind its last. */
static inline __u64 cowsnap_zone_start(const struct cowsnap_zone *zone)
{
	return __le64_to_cpu(zone->start);
}

static inline __u64 cowsnap_zone_end(const struct cowsnap_zone *zone)
{
	return __le64_to_cpu(zone->start) + __le32_to_cpu(zone->chunks);
}

static inline int cowsnap_zone_in_use(const struct cowsnap_zone *zone)
{
	return !!zone->chunks;
}

static inline __u64 cowsnap_zone_series(const struct cowsnap_zone *zone)
{
	return __le64_to_cpu(zone->series);
}

static inline __u32 cowsnap_zone_durable(const struct cowsnap_zone *zone)
{
	return __le32_to_cpu(zone->durable);
}

/*
 * Are @chunks from @start on data of one segment? The device has @nr_chunks, and @blocks table
 * blocks are ready.
 */
static inline int cowsnap_run_fits(const struct cowsnap_geometry *g, __u64 start, __u32 chunks,
				   __u64 nr_chunks, __u32 blocks)
{
	struct cowsnap_segment seg;
	__u32 block, index;

	if (start >= nr_chunks || chunks > nr_chunks - start)
		return 0;
	cowsnap_get_segment(g, cowsnap_find_segment(g, start), &seg);
	if (start < seg.data || start + chunks > seg.end)
		return 0;
	cowsnap_find_slot(g, &seg, (__u32)(start + chunks - 1 - seg.data), &block, &index);
	return seg.first_block + block < blocks;
}

/* The same of a zone. */
static inline int cowsnap_zone_fits(const struct cowsnap_geometry *g,
				    const struct cowsnap_zone *zone, __u64 nr_chunks,
				    __u32 blocks)
{
	__u32 chunks = __le32_to_cpu(zone->chunks);

	if (!chunks)
		return 1;
	return chunks >= 2 && chunks <= COWSNAP_ZONE_CHUNKS && zone->series &&
	       cowsnap_zone_durable(zone) <= chunks &&
	       cowsnap_run_fits(g, cowsnap_zone_start(zone), chunks, nr_chunks, blocks);
}

/* Can the zones of a superblock be? They have no chunk, and no series, in common. */
static inline int cowsnap_zones_fit(const struct cowsnap_geometry *g,
				    const struct cowsnap_zone *zone, __u64 nr_chunks,
				    __u32 blocks)
{
	if (!cowsnap_zone_fits(g, &zone[0], nr_chunks, blocks) ||
	    !cowsnap_zone_fits(g, &zone[1], nr_chunks, blocks))
		return 0;
	if (!zone[0].chunks || !zone[1].chunks)
		return 1;
	return zone[0].series != zone[1].series &&
	       (cowsnap_zone_end(&zone[0]) <= cowsnap_zone_start(&zone[1]) ||
		cowsnap_zone_end(&zone[1]) <= cowsnap_zone_start(&zone[0]));
}

/* The slots that a record has room for. */
static inline __u32 cowsnap_log_slots(const struct cowsnap_geometry *g)
{
	return (g->block_bytes - (__u32)sizeof(struct cowsnap_log_record)) /
	       (__u32)sizeof(struct cowsnap_slot);
}

/* Where the record in front of chunk @chunk + 1 stands. */
static inline __u64 cowsnap_log_sector(const struct cowsnap_geometry *g, __u64 chunk)
{
	return ((chunk + 1) << g->chunk_shift) - g->block_bytes / 512;
}

static inline __u64 cowsnap_log_mark(const __u8 *uuid, __u64 sector, __u64 series)
{
	__le64 le = __cpu_to_le64(series);
	__u32 low = crc32c(cowsnap_seed(uuid, sector), &le, sizeof(le));

	return low | (__u64)crc32c(~low, &le, sizeof(le)) << 32;
}

/* So many bits of a mark may be wrong where a record was: by chance once in 2^31 times. */
#define COWSNAP_MARK_BITS	8U

static inline int cowsnap_log_mark_is_near(__u64 mark, __u64 other)
{
	__u64 wrong = mark ^ other;
	__u32 bits;

	for (bits = 0; wrong; bits++)
		wrong &= wrong - 1;
	return bits <= COWSNAP_MARK_BITS;
}

/* What the record in the block @data, at @sector, has in its field crc. */
static inline __u32 cowsnap_log_crc(const __u8 *uuid, __u64 sector, const void *data,
				    __u32 block_bytes)
{
	return crc32c(cowsnap_seed(uuid, sector), (const __u8 *)data + sizeof(__le32),
		      block_bytes - (__u32)sizeof(__le32));
}

/* Do the numbers of a record with a right crc make sense, @left chunks before its zone's end? */
static inline int cowsnap_log_makes_sense(const struct cowsnap_geometry *g,
					  const struct cowsnap_log_record *record, __u32 left)
{
	__u32 nr = __le16_to_cpu(record->nr), index = __le32_to_cpu(record->index);

	return nr && nr <= cowsnap_log_slots(g) && nr < left && index < COWSNAP_ZONE_CHUNKS &&
	       __le32_to_cpu(record->durable) <= index;
}

/*
 * ---------------------------------------------------------------------------
 * The seal: what is sealed, and where its content is
 * ---------------------------------------------------------------------------
 */

/* Chunks of the origin, and as many of the store. */
static inline __u32 cowsnap_seal_chunks(const struct cowsnap_geometry *g)
{
	return (COWSNAP_SEAL_SECTORS + g->chunk_sectors - 1) >> g->chunk_shift;
}

static inline __u32 cowsnap_seal_sectors(const struct cowsnap_geometry *g)
{
	return cowsnap_seal_chunks(g) << g->chunk_shift;
}

static inline int cowsnap_is_sealed(const struct cowsnap_super *super)
{
	return !!(super->incompat & __cpu_to_le64(COWSNAP_INCOMPAT_SEAL));
}

/* Has chunk @place of the store the content of a sealed one? */
static inline int cowsnap_seal_has(const struct cowsnap_geometry *g,
				   const struct cowsnap_super *super, __u64 place)
{
	__u64 start = __le64_to_cpu(super->seal_start);

	return cowsnap_is_sealed(super) && place >= start &&
	       place - start < cowsnap_seal_chunks(g);
}

/* Have @zone and the run of @chunks from @start on a chunk in common? */
static inline int cowsnap_zone_meets(const struct cowsnap_zone *zone, __u64 start, __u32 chunks)
{
	return cowsnap_zone_in_use(zone) && start < cowsnap_zone_end(zone) &&
	       cowsnap_zone_start(zone) < start + chunks;
}

/* Can what a superblock says of a seal be? The device has @nr_chunks. */
static inline int cowsnap_seal_fits(const struct cowsnap_geometry *g,
				    const struct cowsnap_super *super, __u64 nr_chunks)
{
	__u64 start = __le64_to_cpu(super->seal_start);
	__u32 chunks = cowsnap_seal_chunks(g);

	if (!cowsnap_is_sealed(super))
		return 1;
	return super->seal_state > COWSNAP_SEAL_OPEN && super->seal_state < COWSNAP_SEAL_STATES &&
	       cowsnap_seal_sectors(g) <= __le64_to_cpu(super->origin_sectors) &&
	       cowsnap_run_fits(g, start, chunks, nr_chunks, __le32_to_cpu(super->blocks)) &&
	       !cowsnap_zone_meets(&super->zone[0], start, chunks) &&
	       !cowsnap_zone_meets(&super->zone[1], start, chunks);
}

/*
 * ---------------------------------------------------------------------------
 * Trackers: what a block of one speaks of
 * ---------------------------------------------------------------------------
 */

/* A region is 8 MiB, or one chunk if that is larger; less where a block has no room for it. */
#define COWSNAP_REGION_SHIFT	14U
#define COWSNAP_REGION_CHUNKS	2048U

struct cowsnap_track_layout {
	__u32 region_shift;		/* log2(chunks in a region) */
	__u32 regions;			/* in a block */
	__u32 chunks;			/* in a block: a multiple of 64 */
};

static inline void cowsnap_track_layout(const struct cowsnap_geometry *g,
					struct cowsnap_track_layout *l)
{
	__u32 bits = (g->block_bytes - (__u32)sizeof(struct cowsnap_block_header)) * 8;
	__u32 step;

	l->region_shift = 0;
	while (l->region_shift + g->chunk_shift < COWSNAP_REGION_SHIFT &&
	       1U << l->region_shift < COWSNAP_REGION_CHUNKS)
		l->region_shift++;
	step = l->region_shift < 6 ? 64U >> l->region_shift : 1;
	l->regions = bits / ((1U << l->region_shift) + 1) / step * step;
	while ((l->regions << l->region_shift) + (l->regions + 63) / 64 * 64 > bits)
		l->regions -= step;
	l->chunks = l->regions << l->region_shift;
}

/* Blocks of a tracker of @sectors. */
static inline __u64 cowsnap_track_blocks(const struct cowsnap_geometry *g,
					 const struct cowsnap_track_layout *l, __u64 sectors)
{
	__u64 chunks = (sectors + g->chunk_sectors - 1) >> g->chunk_shift;

	return (chunks + l->chunks - 1) / l->chunks;
}

/* Chunks of the store that these take. */
static inline __u64 cowsnap_track_pieces(const struct cowsnap_geometry *g, __u64 blocks)
{
	return (blocks + g->chunk_blocks - 1) / g->chunk_blocks;
}

/* In the header's durable, so that no block of a tracker is taken for one of records. */
#define COWSNAP_TRACK_ONES	(~0ULL)

/* The most pieces that a tracker can have. */
#define COWSNAP_TRACK_PIECES_MAX ((1ULL << COWSNAP_WIDE_BITS) / 1024)

static inline __u32 cowsnap_record_series(const struct cowsnap_record *record)
{
	return __le32_to_cpu(record->flags) >> COWSNAP_RECORD_SERIES_SHIFT;
}

#endif

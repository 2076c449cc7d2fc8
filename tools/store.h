/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A persistent store in memory: what the tools share.
 *
 *   io.h         bytes, from a device, a file or (fuzzing) from memory
 *   super.c      what a device is, and which of its superblocks counts
 *   store.c      sizes; table blocks are read and judged
 *   records.c    the snapshots
 *   log.c        the commit log: slots that tables lack
 *   exceptions.c which versions are alive, which data is what it was
 *   write.c      a store in memory goes to disk
 *
 * Reading never says anything: it leaves marks (BLOCK_*, ENTRY_*, ...) that
 * check, dump and repair go by. Nothing on the disk is trusted: each count is
 * held against the length of the device before it is used.
 */
#ifndef COWSNAP_TOOLS_STORE_H
#define COWSNAP_TOOLS_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dm-cowsnap-format.h"
#include "io.h"

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;

/* What store_open() found. */
enum store_kind {
	STORE_OK,
	STORE_NEW,		/* zeroed: the kernel makes a store of it */
	STORE_FOREIGN,		/* something else, or nothing */
	STORE_DM_SNAPSHOT,	/* a store of dm-snapshot */
	STORE_NEWER,		/* a format or a feature unknown here */
	STORE_DAMAGED,		/* was a store; no superblock of it is whole */
	STORE_SHORT,		/* the device has no room for the least store */
	STORE_UNREADABLE,
	STORE_NO_MEMORY,
};

enum copy_state {
	COPY_GOOD,
	COPY_OLD,		/* whole, but the other one is newer */
	COPY_BAD,
	COPY_UNREADABLE,
	COPY_NOT_SANE,		/* right checksum, fields that cannot be */
	COPY_OTHER,		/* whole, but of another store */
};

struct super_copy {
	enum copy_state state;
	bool mended;		/* one bit of it was wrong */
	u64 sequence;
};

/* Marks of a table block. */
#define BLOCK_BAD	0x01	/* wrong checksum, or cannot be read */
#define BLOCK_UNSURE	0x02	/* of a commit not known to have ended */
#define BLOCK_MENDED	0x04	/* one bit of it was wrong */
#define BLOCK_DIRTY	0x08	/* to be written */
#define BLOCK_UNREADABLE 0x10	/* why it is bad */

struct block {
	u64 sequence;
	u8 marks;
};

/* No store gets as far as this: a number beyond is damage. The kernel's limit is twice that. */
#define SEQUENCE_LIMIT	(1ULL << 61)

/* Marks of a slot in use. */
#define ENTRY_FRESH	0x001
#define ENTRY_DOUBTED	0x002	/* of a commit not known to have ended, its data is not there */
#define ENTRY_DEAD	0x004	/* no live snapshot has it, nor the origin */
#define ENTRY_VERIFIED	0x008	/* its data has the right checksum */
#define ENTRY_BAD_DATA	0x010
#define ENTRY_BAD_KIND	0x020	/* or nothing may stand there: it has sealed content */
#define ENTRY_BAD_CHUNK	0x040	/* the origin has no such chunk */
#define ENTRY_BAD_EPOCH	0x080	/* never given out */
#define ENTRY_BEYOND	0x100	/* its data would be beyond the device */
#define ENTRY_TWICE	0x200	/* another one claims the same */
#define ENTRY_UNREADABLE 0x400	/* why its data is bad, or doubted */
#define ENTRY_LOGGED	0x800	/* a record of the log has it, no table; fresh: it is in doubt */
#define ENTRY_GONE	0x1000	/* settle: its place is another one's by now */

/* Above all others: that of the origin. */
#define EPOCH_NOW	(~0ULL)

/* A slot in use. Those of a store stand in the order of their places. */
struct entry {
	u64 chunk;		/* of the origin; or number of a chunk of records, or piece */
	u64 epoch;		/* of a piece of a tracker: its series */
	u64 older;		/* seen by (older, until], but for those with a version of their own */
	u64 until;		/* its epoch; of a current version the next one's, or EPOCH_NOW */
	u64 place;		/* chunk of the store */
	u32 crc;
	u8 kind;
	u16 marks;
};

/* Marks of a record. */
#define RECORD_BAD_STATE	0x01
#define RECORD_BAD_EPOCH	0x02
#define RECORD_BAD_SECTORS	0x04
#define RECORD_ID_TWICE		0x08
#define RECORD_EPOCH_TWICE	0x10

struct record {
	u32 number;		/* where it stands, counted over all */
	u16 id;
	u8 state;
	u8 marks;
	u32 flags;
	u64 epoch;
	u64 sectors;
	u64 time;
};

/* A chunk of records. */
struct records_chunk {
	u64 number;
	u64 place;
	u64 sequence;		/* highest of its blocks */
	u8 *marks;		/* of each block: BLOCK_* */
};

struct store {
	struct io *io;
	u64 sectors;		/* of the device */
	u64 nr_chunks;
	u64 nr_blocks;		/* table blocks a device so long has */
	u64 nr_origin_chunks;
	struct cowsnap_geometry geo;

	struct cowsnap_super super;	/* the copy that counts */
	struct super_copy copy[2];
	u64 super_sequence;	/* highest of the copies of this store */

	struct block *block;
	u64 max_blocks;
	u64 nr_read;		/* how many blocks were looked at */
	u64 blocks;		/* how many there should be */
	u64 durable;
	u64 sequence;		/* highest of any block */

	struct entry *entry;
	size_t nr_entries;
	size_t max_entries;
	struct entry *logged;	/* of records of the log, whether or not tables have them */
	size_t nr_logged;
	size_t max_logged;
	u32 lost_records;	/* that there were, or may have been */
	u32 mended_records;	/* one bit of them was wrong */
	bool bad_zones;		/* the superblock names zones that cannot be */
	bool bad_seal;		/* what the superblock says of a seal cannot be */
	bool log_unsure;	/* some records are not known to have ended */
	size_t *order;		/* those that count, by chunk and epoch */
	size_t nr_order;

	struct record *record;	/* those in use, by number */
	size_t nr_records;
	size_t max_records;
	struct records_chunk *records;	/* by number */
	size_t nr_records_chunks;
	u64 epoch;		/* last one given out */
	bool bad_epoch;		/* that of the superblock cannot be */
	u64 *live;		/* epochs, sorted */
	size_t nr_live;
};

/* ---- super.c ---- */

/* What a device without a superblock of ours is. */
enum store_kind store_identify(struct io *io);
/* s->super becomes the copy that counts. 0, or -1 if there is none. */
int super_choose(struct store *s);
bool super_sane(const struct cowsnap_super *super);
bool super_newer_format(const struct cowsnap_super *super);
u32 super_crc(const struct cowsnap_super *super, u64 sector);

/* ---- store.c ---- */

enum store_kind store_open(struct store *s, struct io *io);
void store_close(struct store *s);
/* Everything but the data of finished commits. 0, or -1 without memory. */
int store_load(struct store *s);
/* Sizes that follow from those in s->super. 0, or -1 if they cannot be. */
int store_set_geometry(struct store *s);

/* Sector of copy A (0) or B (1). */
u64 store_super_sector(const struct store *s, int copy);

/* The segment of a table block, and its number in there. */
u32 store_find_block(const struct store *s, u64 nr, struct cowsnap_segment *seg);
/* The table block that describes the data chunk at @place, or all ones. */
u64 store_block_of(const struct store *s, u64 place);
/* Where on the store a table block stands. */
u64 store_block_sector(const struct store *s, u64 nr);
/* Can it be read, with the right checksum? */
bool store_block_right(struct store *s, u64 nr);
/* The same, and the number of the commit that wrote it. */
bool store_block_sequence(struct store *s, u64 nr, u64 *sequence);
u32 block_crc(const struct store *s, u64 nr, const u8 *block);
u64 chunk_sector(const struct store *s, u64 place);

int store_grow_blocks(struct store *s, u64 count);
int store_add_entry(struct store *s, const struct entry *e);

/* ---- records.c ---- */

/* The chunks of records that entries announce, and all records. */
int records_load(struct store *s);
void records_free(struct store *s);
int records_add(struct store *s, const struct record *r);
/* One with nothing in it, and one as it stands on the disk. */
struct records_chunk *records_new_chunk(struct store *s, u64 number, u64 place);
int records_add_chunk(struct store *s, u64 number, u64 place);
/* Find what contradicts another record, and which epochs are alive. */
int records_judge(struct store *s);
u32 records_per_chunk(const struct store *s);
u64 records_max_chunks(const struct store *s);
/* A block of records at this place of a chunk: BLOCK_BAD, _UNREADABLE or _MENDED, or 0. */
u8 records_read_block(struct store *s, u64 place, u32 block, u8 *data);
struct record *record_by_id(struct store *s, u32 id);
const char *record_state_name(unsigned int state);
bool record_live(const struct record *r);
/* That of the snapshot to which the origin is being rolled back, or NULL. */
const struct record *record_merging(const struct store *s);
/*
 * Snapshots and trackers become invalid, but for @but, which may be NULL; *@nr counts them. Nothing
 * is written yet.
 */
void records_give_up(struct store *s, const struct record *but, unsigned int *nr);

/* ---- exceptions.c ---- */

/* The versions of one chunk in s->order, half open: copied from @first, @current, @private ones. */
struct chunk_group {
	size_t first, current, private, end;
};

/* Those of the chunk that begins at @first. */
void exceptions_group(const struct store *s, size_t first, struct chunk_group *g);
/* The last epoch that copied versions of it have, 0 if there are none. */
u64 group_copied_epoch(const struct store *s, const struct chunk_group *g);
/* Does a live snapshot of (older, until] see the chunk without a version of its own? */
bool group_is_seen(const struct store *s, const struct chunk_group *g, u64 older, u64 until);

/* Sort them; say which are dead, and which contradict others. */
int exceptions_judge(struct store *s);
/* Read the data of all that are alive, or (unsure) of those that need it. */
int exceptions_verify(struct store *s);
/* Find what cannot be believed of a commit that is not known to have ended. */
int exceptions_doubt(struct store *s);
bool exception_has_crc(const struct entry *e);
/* Is it one: a version of a chunk, neither free nor metadata? */
bool entry_is_exception(const struct entry *e);
bool exception_is_private(const struct entry *e);
/* Does the origin show it, or has it? */
bool exception_is_current(const struct entry *e);
/* Is it zeroes, without data at its place? Else an exception has data. */
bool exception_is_zero(const struct entry *e);
bool exception_has_data(const struct entry *e);
/* Versions of one chunk that are told apart by their epochs alone. */
bool exceptions_alike(const struct entry *x, const struct entry *y);
/* Has the store the feature? */
bool may_have_current(const struct store *s);
bool may_have_zeroes(const struct store *s);
/* May this current version of a chunk of the origin be in this store? */
bool current_fits(const struct store *s, const struct entry *e);
/* Slots of that kind, whatever else is to be said of them. */
bool current_is_there(const struct store *s);
/* Tables and log lack some that nobody knows of: data of the origin may be among that. */
bool current_is_lost(const struct store *s);
/* Fresh, in a block of a commit not known to have ended: it stays so when it is written. */
bool exception_is_unsure(const struct store *s, const struct entry *e);
/* The last epoch whose snapshots may lack entries; 0 if all entries are there. */
u64 exceptions_lost_epoch(const struct store *s);
/* Does a live epoch lie in (older, epoch]? */
bool epochs_live(const struct store *s, u64 older, u64 epoch);
const char *kind_name(unsigned int kind);

/* ---- write.c ---- */

/* By place, as writing wants them; what s->order says is void then. */
void store_sort_entries(struct store *s);
/* Mark the block that describes @place. */
void store_dirty(struct store *s, u64 place);
int store_write_supers(struct store *s);
/*
 * All that are dirty. No commit is begun or ended by that: wherever this stops, what was
 * believed is believed, and what was doubted is doubted.
 */
int store_write_blocks(struct store *s);
int store_write_records(struct store *s);
/* A store that cannot be opened any more until its superblocks are written. */
int store_write_unusable(struct store *s);

#endif

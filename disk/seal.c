// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the seal of an origin
 *
 * An origin that is written without its store makes the snapshots in it wrong, and nobody
 * notices. A sealed one cannot be taken for anything: its first sectors are in the store, and at
 * home each of them has a seal, which names the store. So nothing mounts, assembles or boots from
 * it by itself, and where it was written to all the same a seal is missing.
 *
 *   sectors of the origin    0 .. sealed_end                 sealed_end ..
 *   home                     seals                           content
 *   store                    content, from seal_start on
 *
 * cowsnap seal and unseal write seals and take them away, while nothing is in use (tools/seal.c).
 * Here they are recognised, and what a power cut interrupted there is ended.
 *
 * Writes to the sealed sectors are in place, as they are at home, with the same FUA; a flush of the
 * origin flushes the store as well. An error of the store's device is an error of these sectors. It
 * does not matter to them whether the store is full, invalid or fenced.
 *
 * What a crash leaves: the seal is only changed while home and store have the same content in every
 * sector that has lost its seal, or has none yet. So a home in which a sector has neither was
 * written since, or is not the store's, and is left alone.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "disk/io.h"
#include "disk/meta.h"
#include "disk/seal.h"
#include "disk/super.h"
#include "origin/flush.h"
#include "origin/origin.h"
#include "origin/registry.h"
#include "origin/tables.h"
#include "store/error.h"
#include "store/space.h"
#include "store/store.h"

/* Home is read and written so much at a time. What is sealed is a whole number of these. */
#define PIECE_BYTES	4096U
#define PIECE_SECTORS	(PIECE_BYTES >> SECTOR_SHIFT)

/* Where a seal is looked for. */
#define HEAD_BYTES	(COWSNAP_SEAL_SECTORS << SECTOR_SHIFT)

/* ------------------------------------------------------- what the store says of it */

void cow_seal_take_super(struct cow_store *store, const struct cowsnap_super *super)
{
	store->seal_generation = le32_to_cpu(super->seal_generation);
	if (!cowsnap_is_sealed(super))
		return;
	store->seal_start = le64_to_cpu(super->seal_start);
	store->seal_state = super->seal_state;
	/* It does not settle what is in doubt by a home that may be another's. */
	store->meets_late = true;
}

static bool has_content(const struct cow_store *store)
{
	return store->seal_state != COWSNAP_SEAL_OPEN;
}

static u32 sealed_chunks(const struct cow_store *store)
{
	return cowsnap_seal_chunks(cow_meta_geometry(store->meta));
}

static sector_t sealed_sectors(const struct cow_store *store)
{
	return cowsnap_seal_sectors(cow_meta_geometry(store->meta));
}

bool cow_seal_has(const struct cow_store *store, u64 place)
{
	return has_content(store) && place >= store->seal_start &&
	       place - store->seal_start < sealed_chunks(store);
}

/* Those of a table block that is lost are taken already. */
int cow_seal_take_room(struct cow_store *store)
{
	u64 place = store->seal_start, end = place + sealed_chunks(store);
	int r = 0;

	for (; has_content(store) && place < end && !r; place++)
		if (!cow_space_is_taken(&store->space, place))
			r = cow_space_take(&store->space, place, 1);
	return r;
}

struct block_device *cow_seal_home(const struct cow_store *store, sector_t *sector)
{
	if (!has_content(store) || *sector >= sealed_sectors(store))
		return store->origin->bdev;
	*sector += cow_chunk_to_sector(store, store->seal_start);
	return store->bdev;
}

/* --------------------------------------------------------------------- looking */

static bool is_ours(const struct cow_store *store, const void *data, sector_t sector)
{
	return cowsnap_is_seal_of(data, sector, cow_meta_uuid(store->meta),
				  store->seal_generation);
}

/* The first seal in a piece of the origin, or NULL. */
static const struct cowsnap_seal *find_seal(const u8 *piece, sector_t sector)
{
	unsigned int i;

	for (i = 0; i < PIECE_SECTORS; i++, piece += SECTOR_SIZE)
		if (cowsnap_is_seal(piece, sector + i))
			return (const struct cowsnap_seal *)piece;
	return NULL;
}

/*
 * One of the first seals that are there, whoever's, in @head. NULL if there is none. With one read;
 * only if that fails piece by piece, of which those that cannot be read have none; then *@all is
 * false.
 */
static const struct cowsnap_seal *look_for_seal(struct block_device *home, u8 *head, bool *all)
{
	sector_t end = min_t(sector_t, COWSNAP_SEAL_SECTORS,
			     round_down(bdev_nr_sectors(home), PIECE_SECTORS));
	bool whole = !cow_meta_io(home, REQ_OP_READ, 0, head, end << SECTOR_SHIFT);
	const struct cowsnap_seal *seal = NULL;
	sector_t sector;

	*all = true;
	for (sector = 0; sector < end && !seal; sector += PIECE_SECTORS) {
		u8 *piece = head + (sector << SECTOR_SHIFT);

		if (whole || !cow_meta_io(home, REQ_OP_READ, sector, piece, PIECE_BYTES))
			seal = find_seal(piece, sector);
		else
			*all = false;
	}
	return seal;
}

static u8 *alloc_head(char **error)
{
	u8 *head = kvmalloc(HEAD_BYTES, GFP_KERNEL);

	if (!head)
		*error = "Out of memory reading the origin: try again";
	return head;
}

int cow_seal_bare(struct block_device *home, bool *sure, char **error)
{
	const struct cowsnap_seal *seal;
	u8 *head = alloc_head(error);

	if (!head)
		return -ENOMEM;
	seal = look_for_seal(home, head, sure);
	if (seal)
		cow_fail(error,
			 "Origin %pg is sealed by store %pU: name that with the feature store, or run cowsnap unseal",
			 home, seal->uuid);
	else if (!*sure)
		DMWARN("origin %pg cannot be read where it begins: taken for one without a seal",
		       home);
	kvfree(head);
	return seal ? -EINVAL : 0;
}

static bool is_uuid_of(const struct cow_store *store, const struct cowsnap_seal *seal)
{
	return store->meta &&
	       !memcmp(seal->uuid, cow_meta_uuid(store->meta), sizeof(seal->uuid));
}

/* @seal is not the one that the store would have written. */
static void refuse_seal(struct cow_store *store, const struct cowsnap_seal *seal, char **error)
{
	struct block_device *home = store->origin->bdev;

	if (!is_uuid_of(store, seal))
		cow_fail(error,
			 "Origin %pg is sealed by store %pU, not by %pg: use that one, or run cowsnap unseal",
			 home, seal->uuid, store->bdev);
	else if (store->seal_state == COWSNAP_SEAL_OPEN)
		cow_fail(error,
			 "Origin %pg has seal %u of store %pg, which says that it was unsealed: one of them is an old copy",
			 home, le32_to_cpu(seal->generation), store->bdev);
	else
		cow_fail(error,
			 "Origin %pg has seal %u, store %pg has seal %u: one of them is an old copy",
			 home, le32_to_cpu(seal->generation), store->bdev,
			 store->seal_generation);
}

/* The store is not sealed: has it met the origin of another one? */
static int check_open(struct cow_store *store, u8 *head, char **error)
{
	bool all;
	const struct cowsnap_seal *seal = look_for_seal(store->origin->bdev, head, &all);

	if (seal)
		refuse_seal(store, seal, error);
	return seal ? -EINVAL : 0;
}

/*
 * Of a piece of what is sealed, as it is at home and as the store has it: each sector has its seal.
 * While it is sealed or opened it may have its content instead.
 */
static int check_sectors(struct cow_store *store, const u8 *at_home, const u8 *content,
			 sector_t sector, char **error)
{
	bool under_way = store->seal_state != COWSNAP_SEAL_SEALED;
	unsigned int i;

	for (i = 0; i < PIECE_SECTORS; i++, at_home += SECTOR_SIZE, content += SECTOR_SIZE) {
		if (is_ours(store, at_home, sector + i) ||
		    (under_way && !memcmp(at_home, content, SECTOR_SIZE)))
			continue;
		if (cowsnap_is_seal(at_home, sector + i))
			refuse_seal(store, (const struct cowsnap_seal *)at_home, error);
		else
			cow_fail(error,
				 "Origin %pg was written without its store %pg, or is another one (sector %llu): run cowsnap unseal with --keep-home or --keep-store",
				 store->origin->bdev, store->bdev, (u64)sector + i);
		return -EINVAL;
	}
	return 0;
}

static int check_piece(struct cow_store *store, u8 *pieces, sector_t sector, char **error)
{
	struct block_device *home = store->origin->bdev;
	sector_t from = cow_chunk_to_sector(store, store->seal_start) + sector;
	u8 *content = pieces + PIECE_BYTES;
	int r = cow_meta_io(home, REQ_OP_READ, sector, pieces, PIECE_BYTES);

	if (r) {
		cow_fail(error,
			 "Origin %pg: its seal from sector %llu on cannot be read (error %d): cowsnap unseal --keep-store writes what is there anew",
			 home, (u64)sector, r);
		return r;
	}
	/* Only what may stand there instead of a seal is compared with the content. */
	if (store->seal_state != COWSNAP_SEAL_SEALED)
		r = cow_meta_io(store->bdev, REQ_OP_READ, from, content, PIECE_BYTES);
	if (r)
		cow_fail(error,
			 "Store %pg: what the origin %pg begins with cannot be read (error %d)",
			 store->bdev, home, r);
	return r ?: check_sectors(store, pieces, content, sector, error);
}

static int check_sealed(struct cow_store *store, u8 *pieces, char **error)
{
	sector_t sector;
	int r = 0;

	for (sector = 0; sector < sealed_sectors(store) && !r; sector += PIECE_SECTORS)
		r = check_piece(store, pieces, sector, error);
	return r;
}

int cow_seal_alone(struct cow_store *store, char **error)
{
	struct cow_origin *o = store->origin;
	struct cow_store *other;

	lockdep_assert_held(&cow_registry_mutex);
	list_for_each_entry(other, &o->all_stores, all_node)
		if (has_content(store) && has_content(other)) {
			cow_fail(error,
				 "Origin %pg is sealed by store %pg, which is in use, and not by its copy %pg: remove the tables of one of them",
				 o->bdev, other->bdev, store->bdev);
			return -EINVAL;
		}
	return 0;
}

int cow_seal_check(struct cow_store *store, char **error)
{
	u8 *head = alloc_head(error);
	int r;

	if (!head)
		return -ENOMEM;
	r = has_content(store) ? check_sealed(store, head, error) :
	    check_open(store, head, error);
	kvfree(head);
	return r;
}

/* ------------------------------------------------------------------- opening it */

/* The sectors of a piece that still have their seal get their content back. */
static int open_piece(struct cow_store *store, u8 *at_home, u8 *content, sector_t sector)
{
	struct block_device *home = store->origin->bdev;
	sector_t from = cow_chunk_to_sector(store, store->seal_start) + sector;
	bool any = false;
	size_t i;
	int r;

	r = cow_meta_io(home, REQ_OP_READ, sector, at_home, PIECE_BYTES) ?:
	    cow_meta_io(store->bdev, REQ_OP_READ, from, content, PIECE_BYTES);
	for (i = 0; i < PIECE_BYTES && !r; i += SECTOR_SIZE) {
		if (!is_ours(store, at_home + i, sector + (i >> SECTOR_SHIFT)))
			continue;
		memcpy(at_home + i, content + i, SECTOR_SIZE);
		any = true;
	}
	return any && !r ? cow_meta_io(home, REQ_OP_WRITE, sector, at_home, PIECE_BYTES) : r;
}

/*
 * From the end, so that no seal is left behind those that are looked for. All of it is durable
 * before the superblock says that the store has nothing of it any more.
 */
static int open_home(struct cow_store *store)
{
	struct block_device *home = store->origin->bdev;
	u8 *pieces = kmalloc(2 * PIECE_BYTES, GFP_KERNEL);
	sector_t end = sealed_sectors(store);
	int r = pieces ? 0 : -ENOMEM;

	for (; end && !r; end -= PIECE_SECTORS) {
		if (end == COWSNAP_SEAL_SECTORS)
			r = cow_flush(store->origin, home);
		if (!r)
			r = open_piece(store, pieces, pieces + PIECE_BYTES, end - PIECE_SECTORS);
	}
	kfree(pieces);
	return r ?: cow_flush(store->origin, home);
}

/* Until it is opened again its chunks in the store stay taken. */
static int note_open(struct cow_store *store)
{
	struct cow_change change;

	cow_change_begin(&change, store, NULL);
	change.seal_state = COWSNAP_SEAL_OPEN;
	/* Home has it all, and so has the store, as long as nobody writes. */
	change.either = true;
	return cow_change_end(&change);
}

static int end_interrupted(struct cow_store *store)
{
	const char *what = store->seal_state == COWSNAP_SEAL_SEALING ? "sealed" : "unsealed";
	struct block_device *home = store->origin->bdev;
	bool read_only = bdev_read_only(home);
	int r;

	if (read_only || !store->writable) {
		DMERR("origin %pg was being %s, and %s %pg is read-only: make it writable",
		      home, what, read_only ? "its device" : "store",
		      read_only ? home : store->bdev);
		return -EROFS;
	}
	r = open_home(store);
	if (!r)
		r = note_open(store);
	if (r)
		DMERR("origin %pg was being %s, store %pg cannot end this (%d): run cowsnap unseal",
		      home, what, store->bdev, r);
	else
		DMINFO("origin %pg was being %s with store %pg: it is not sealed now",
		       home, what, store->bdev);
	return r;
}

static int tell_origin(struct cow_store *store)
{
	struct cow_origin *o = store->origin;

	/* It may be this one, if its activation has failed at a later step. */
	if (READ_ONCE(o->sealed_end) && o->sealed_bdev != store->bdev) {
		DMERR("origin %pg is sealed by a store in use, not by %pg: remove its tables first",
		      o->bdev, store->bdev);
		return -EBUSY;
	}
	/* Where home could not be read when that came into force. */
	if (cow_origin_is_bare(o)) {
		DMERR("origin %pg is sealed, but a table shows it without %pg: remove that",
		      o->bdev, store->bdev);
		return -EBUSY;
	}
	o->sealed_bdev = store->bdev;
	o->sealed_at = cow_chunk_to_sector(store, store->seal_start);
	/* Pairs with smp_load_acquire() in flush_is_mapped() and has_origin(). */
	smp_store_release(&o->sealed_end, sealed_sectors(store));
	return 0;
}

int cow_seal_settle(struct cow_store *store)
{
	lockdep_assert_held(&store->origin->admin_lock);
	switch (store->seal_state) {
	case COWSNAP_SEAL_SEALED:
		return tell_origin(store);
	case COWSNAP_SEAL_OPEN:
		return 0;
	default:
		return end_interrupted(store);
	}
}

void cow_seal_forget(struct cow_store *store)
{
	struct cow_origin *o = store->origin;

	/* It may be a copy of the one that has told it, or have been loaded and no more. */
	if (READ_ONCE(o->sealed_end) && o->sealed_bdev == store->bdev)
		WRITE_ONCE(o->sealed_end, 0);
}

// SPDX-License-Identifier: GPL-2.0-only
/* What stands on a device that is to be a store. */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "device.h"
#include "lib/snapshot.h"
#include "room.h"
#include "seal.h"
#include "store.h"

/*
 * Both superblocks are in here, whatever the size of a block, and the first of the old data, in
 * which another program could see what the origin was.
 */
#define HEAD_BYTES (1 << 20)

/* Has it never had a snapshot but that with which create makes it? */
static bool only_begun(const struct store *s)
{
	const struct cowsnap_record *first = &s->super.record[0];

	return le64toh(s->super.epoch) <= 1 &&
	       (first->state == COWSNAP_RECORD_FREE || le16toh(first->id) == SNAPSHOT_SETUP_ID);
}

static void uuid_text(const u8 uuid[16], char text[33])
{
	size_t i;

	for (i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", uuid[i]);
}

static const char *way_home(const struct store *s)
{
	if (!cowsnap_is_sealed(&s->super))
		return NULL;
	return may_have_current(s) ? "cowsnap settle and cowsnap unseal" : "cowsnap unseal";
}

/*
 * What is left where restore or enable was interrupted, before there was a store: a superblock of
 * which there is nothing but its name, and the second of its kind, or not yet.
 */
static bool is_unfinished(struct device *dev)
{
	static const char name[COWSNAP_SUPER_BYTES] = COWSNAP_MAGIC, zeroes[COWSNAP_SUPER_BYTES];
	char head[4096];
	size_t at;

	if (io_read(&dev->io, 0, head, sizeof(head)) || memcmp(head, name, sizeof(name)))
		return false;
	for (at = sizeof(name); at < sizeof(head); at += sizeof(name))
		if (memcmp(head + at, name, sizeof(name)) &&
		    memcmp(head + at, zeroes, sizeof(zeroes)))
			return false;
	return true;
}

static int judge(struct room *r, struct device *dev)
{
	enum store_kind kind;
	struct store s;
	char content[32];

	kind = store_open(&s, &dev->io);
	if (kind == STORE_OK) {
		r->state = only_begun(&s) ? ROOM_BEGUN : ROOM_STORE;
		r->origin_sectors = le64toh(s.super.origin_sectors);
		r->chunk_sectors = le32toh(s.super.chunk_sectors);
		r->has_snapshots = r->state == ROOM_STORE &&
				   (store_load(&s) || s.nr_records || s.nr_records_chunks);
		if (cowsnap_is_sealed(&s.super))
			r->sealed_since = le32toh(s.super.seal_generation);
		r->way_home = way_home(&s);
		uuid_text(s.super.uuid, r->uuid);
	} else if (device_content(dev, content, sizeof(content))) {
		r->state = ROOM_OTHER;
		snprintf(r->content, sizeof(r->content), "it holds %s", content);
	} else if (kind == STORE_DAMAGED && is_unfinished(dev)) {
		r->state = ROOM_UNFINISHED;
	} else if (kind == STORE_NEW) {
		r->state = ROOM_EMPTY;
	} else {
		r->state = ROOM_OTHER;
		snprintf(r->content, sizeof(r->content), "%s",
			 kind == STORE_UNREADABLE ? "it cannot be read" :
			 kind == STORE_DM_SNAPSHOT ? "it is a COW device of dm-snapshot" :
			 kind == STORE_NEWER ? "it is a store of a newer dm-cowsnap" :
			 kind == STORE_DAMAGED ? "it is a damaged store (cowsnap check)" :
			 kind == STORE_SHORT ? "it is too short for the store on it" :
			 "its first 4 KiB are not zero");
	}
	store_close(&s);
	return 0;
}

int room_look(struct room *r, const char *path)
{
	struct device dev;
	int status;

	memset(r, 0, sizeof(*r));
	if (device_open(&dev, path, false))
		return cannot(path, dev.error);
	status = judge(r, &dev);
	device_close(&dev);
	return status;
}

static const char *way_home_from(struct device *dev)
{
	struct store s;
	const char *way = store_open(&s, &dev->io) == STORE_OK ? way_home(&s) : NULL;

	store_close(&s);
	device_close(dev);
	return way;
}

const char *room_way_home(const char *path)
{
	struct device dev;

	return device_open_shared(&dev, path) ? NULL : way_home_from(&dev);
}

const char *room_way_home_of(const struct cowsnap_item *store)
{
	const char *way = room_way_home(cowsnap_get(store, "device"));

	if (way || !cowsnap_number(store, "sealed"))
		return way;
	return "cowsnap settle and cowsnap unseal, once it can be read again";
}

bool room_sealed_by(const char *path, char uuid[33])
{
	struct cowsnap_seal seal;
	struct device dev;
	bool found;

	if (device_open_shared(&dev, path))
		return false;
	found = seal_find(&dev.io, &seal) > 0;
	if (found)
		uuid_text(seal.uuid, uuid);
	device_close(&dev);
	return found;
}

const char *room_content(struct device *dev, char *text, size_t len)
{
	struct cowsnap_seal seal;
	struct store s;
	enum store_kind kind = store_open(&s, &dev->io);

	store_close(&s);
	switch (kind) {
	case STORE_OK:
	case STORE_NEWER:
	case STORE_DAMAGED:
	case STORE_SHORT:
		snprintf(text, len, "a store of dm-cowsnap");
		return text;
	case STORE_UNREADABLE:
		snprintf(text, len, "what cannot be read");
		return text;
	default:
		break;
	}
	/* A seal hides what libblkid would know. */
	if (seal_find(&dev->io, &seal) > 0) {
		snprintf(text, len, "the sealed origin of a store");
		return text;
	}
	return device_content(dev, text, len);
}

static int refuse_to_take(const char *path, const char *way)
{
	return cannot_because(path, "it has what its sealed origin needs; first bring that home with "
			      "%s, or leave it here with cowsnap remove --keep", way);
}

int room_keeps_origin(const char *path)
{
	struct device dev;
	const char *way;

	if (device_open_shared(&dev, path))
		return cannot(path, dev.error);
	way = way_home_from(&dev);
	return way ? refuse_to_take(path, way) : 0;
}

int room_keeps_origin_of(const struct cowsnap_item *store)
{
	const char *way = room_way_home_of(store);

	return way ? refuse_to_take(cowsnap_get(store, "device"), way) : 0;
}

int room_clear(const char *path, bool dry)
{
	static const char zeroes[HEAD_BYTES];
	struct device dev;
	size_t bytes = HEAD_BYTES;
	int status = 0;

	if (dry) {
		printf("dd if=/dev/zero of=%s bs=1M count=1\n", path);
		return 0;
	}
	if (room_keeps_origin(path))
		return EXIT_CANNOT;
	if (device_open(&dev, path, true))
		return cannot(path, dev.error);
	if (bytes > dev.io.bytes)
		bytes = dev.io.bytes;
	if (io_write(&dev.io, 0, zeroes, bytes) || io_sync(&dev.io))
		status = cannot(path, "it cannot be written");
	device_close(&dev);
	return status;
}

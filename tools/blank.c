// SPDX-License-Identifier: GPL-2.0-only
/* Stores that nobody has open: one is made, or its snapshots are given up. */
#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "blank.h"
#include "command.h"
#include "device.h"
#include "lib/sys.h"
#include "maintain.h"
#include "restore.h"
#include "room.h"
#include "track.h"

#define SECTOR 512

/* The kernel's, for a store that it makes. */
#define WAIT_TIMEOUT	60
#define THROTTLE	100
#define COPY_AHEAD	2048
#define LARGE_CHUNK	1024	/* sectors; of these a rotational disk copies none ahead */
#define COPY_AROUND	256	/* of a rotational disk */

static uint32_t block_bytes(const struct device *dev, uint32_t chunk_sectors)
{
	uint32_t bytes = dev->io.physical_bytes;

	if (bytes < dev->io.logical_bytes)
		bytes = dev->io.logical_bytes;
	if (bytes < COWSNAP_MIN_BLOCK_BYTES)
		bytes = COWSNAP_MIN_BLOCK_BYTES;
	if (bytes > COWSNAP_MAX_BLOCK_BYTES)
		bytes = COWSNAP_MAX_BLOCK_BYTES;
	return bytes > chunk_sectors * SECTOR ? chunk_sectors * SECTOR : bytes;
}

/* What the module was told counts for stores that are made without it as well. */
static uint32_t copy_ahead(const char *origin, uint32_t chunk_sectors)
{
	int kib;

	if (sys_module_parameter("copy_ahead", &kib) && kib >= 0)
		return kib;
	return sys_rotational(origin) && chunk_sectors >= LARGE_CHUNK ? 0 : COPY_AHEAD;
}

static uint32_t copy_around(const char *origin)
{
	int kib;

	if (sys_module_parameter("copy_around", &kib) && kib >= 0)
		return kib;
	return sys_rotational(origin) ? COPY_AROUND : 0;
}

static uint32_t log_mode(const char *path)
{
	char number[16];
	int given;

	if (sys_module_parameter("log", &given) && given >= 0)
		return given ? COWSNAP_LOG_ON : COWSNAP_LOG_OFF;
	return sys_number(path, number, sizeof(number)) && sys_rotational(number) ?
	       COWSNAP_LOG_ON : COWSNAP_LOG_REDIRECTED;
}

static int describe(struct dump *d, const struct device *dev, const char *path, const char *origin,
		    uint32_t chunk_sectors)
{
	struct cowsnap_super *super = &d->s.super;

	memset(d, 0, sizeof(*d));
	super->block_bytes = htole32(block_bytes(dev, chunk_sectors));
	super->chunk_sectors = htole32(chunk_sectors);
	super->origin_sectors = htole64(sys_sectors(origin));
	super->merge_id = htole32(COWSNAP_NO_MERGE);
	super->wait_timeout = htole32(WAIT_TIMEOUT);
	super->throttle = htole32(THROTTLE);
	super->copy_ahead = htole32(copy_ahead(origin, chunk_sectors));
	super->copy_around = htole32(copy_around(origin));
	super->log = htole32(log_mode(path));
	d->s.sectors = dev->io.bytes / SECTOR;
	/* It has to differ from others, not to be a secret: no waiting for entropy. */
	return getrandom(super->uuid, sizeof(super->uuid), GRND_INSECURE) ==
	       sizeof(super->uuid) ? 0 : -1;
}

static void say_nothing(struct report *r, const char *text)
{
	(void)r;
	(void)text;
}

int blank_make(const char *path, const char *origin, uint32_t chunk_sectors, char *uuid)
{
	struct report quiet = { .line = say_nothing };
	struct device dev;
	struct dump d;
	size_t i;
	int status = room_keeps_origin(path);

	if (status)
		return status;
	if (device_open(&dev, path, true))
		return cannot(path, dev.error);
	if (describe(&d, &dev, path, origin, chunk_sectors))
		status = cannot(path, "no random numbers for its uuid");
	else if (restore_store(&d, &dev.io, NULL, &quiet))
		status = cannot(path, d.error);
	for (i = 0; i < sizeof(d.s.super.uuid); i++)
		snprintf(uuid + 2 * i, 3, "%02x", d.s.super.uuid[i]);
	dump_free(&d);
	device_close(&dev);
	return status;
}

/* ---- giving up ---- */

int blank_give_up(const char *path, uint64_t lost, unsigned int *nr)
{
	const struct record *merging;
	struct device dev;
	struct store s;
	int status = open_store(&dev, &s, path, true);

	*nr = 0;
	if (status)
		return status;
	merging = record_merging(&s);
	if (merging && merging->time <= lost) {
		close_store(&dev, &s);
		cannot(path, "a rollback is under way, and its device is half of the one and half of "
		       "the other; start it with the module, so that it ends");
		return BLANK_MERGING;
	}
	records_give_up(&s, merging, nr);
	/* Records first: no superblock says more than is there. */
	if (*nr && (store_write_records(&s) || store_write_supers(&s)))
		status = cannot(path, "it cannot be written");
	close_store(&dev, &s);
	return status;
}

int blank_count_live(const char *path, unsigned int *nr)
{
	struct device dev;
	struct store s;
	size_t i;

	*nr = 0;
	if (device_open_shared(&dev, path))
		return EXIT_CANNOT;
	if (store_open(&s, &dev.io) != STORE_OK || store_load(&s)) {
		device_close(&dev);
		return EXIT_CANNOT;
	}
	for (i = 0; i < s.nr_records; i++)
		*nr += record_live(&s.record[i]) || record_is_tracker(&s.record[i]);
	close_store(&dev, &s);
	return 0;
}

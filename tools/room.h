/* SPDX-License-Identifier: GPL-2.0-only */
/* What stands on a device that is to be a store. */
#ifndef COWSNAP_TOOLS_ROOM_H
#define COWSNAP_TOOLS_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"

struct cowsnap_item;

enum room_state {
	ROOM_EMPTY,		/* zeroes: the kernel makes a store of it */
	ROOM_UNFINISHED,	/* it was to become a store, and is none */
	ROOM_BEGUN,		/* a store without snapshots, of an interrupted create */
	ROOM_STORE,		/* one that has been used */
	ROOM_OTHER,		/* something else */
};

struct room {
	enum room_state state;
	char content[160];		/* of ROOM_OTHER, in words */
	uint64_t origin_sectors;	/* of a store */
	char uuid[33];
	uint32_t chunk_sectors;
	bool has_snapshots;		/* or nobody knows */
	uint32_t sealed_since;		/* so is its origin, since that time at the latest; 0 */
	const char *way_home;		/* as room_way_home() */
};

/* 0, or EXIT_CANNOT after a sentence. The device must not be in use. */
int room_look(struct room *r, const char *path);
/*
 * The commands that bring home what a store has of its sealed origin; NULL if there is no such store,
 * or it cannot be read. The device may be in use.
 */
const char *room_way_home(const char *path);
/*
 * The same of a store that is open. What the module says of it counts too: it knows a store that
 * cannot be read.
 */
const char *room_way_home_of(const struct cowsnap_item *store);
/* Is it an origin that is sealed, by the store with that uuid? The device may be in use. */
bool room_sealed_by(const char *path, char uuid[33]);
/*
 * A store whose origin is sealed has what that begins with: it is not to be overwritten. 0, or
 * EXIT_CANNOT after a sentence. The device may be in use.
 */
int room_keeps_origin(const char *path);
/* The same of a store that is open: see room_way_home_of(). */
int room_keeps_origin_of(const struct cowsnap_item *store);
/* So that nothing takes it for a store any more, or that one can be made. The same. */
int room_clear(const char *path, bool dry);

/*
 * What would be lost if it were written over, in words: a store as well, which libblkid does not
 * know, and a sealed origin. NULL if nobody knows of anything.
 */
const char *room_content(struct device *dev, char *text, size_t len);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * libcowsnap: the origins, stores and snapshots of dm-cowsnap on this machine.
 *
 *	struct cowsnap *c;
 *	const struct cowsnap_item *origin;
 *
 *	if (cowsnap_open(&c) || cowsnap_scan(c))
 *		errx(1, "%s", cowsnap_error(c));
 *	for (origin = cowsnap_first(c); origin; origin = cowsnap_next(origin))
 *		puts(cowsnap_get(origin, "name"));
 *	cowsnap_close(c);
 *
 * A handle is for one thread at a time. The user has to be root. Functions that return int
 * return COWSNAP_OK or a negative enum cowsnap_result, and then cowsnap_error() is a
 * sentence. What is here stays as it is; a later version may only add to it.
 */
#ifndef LIBCOWSNAP_H
#define LIBCOWSNAP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cowsnap;
struct cowsnap_item;

enum cowsnap_result {
	COWSNAP_OK = 0,
	COWSNAP_NO_MEMORY = -1,
	COWSNAP_NO_ACCESS = -2,		/* not root, or no device mapper */
	COWSNAP_BAD_NAME = -3,		/* not written as a name of that kind is */
	COWSNAP_NONE = -4,		/* there is none of that name */
	COWSNAP_EXISTS = -5,
	COWSNAP_BUSY = -6,		/* mounted, or open */
	COWSNAP_MANAGED = -7,		/* another program, LVM, has to do it */
	COWSNAP_TIMEOUT = -8,		/* undone, because it took too long */
	COWSNAP_REFUSED = -9,		/* the kernel did, and the sentence says why */
};

enum cowsnap_kind {
	COWSNAP_ORIGIN = 1,
	COWSNAP_STORE = 2,
	COWSNAP_SNAPSHOT = 3,
};

/* Highest COWSNAP_ABI of the library; a program may compare. */
#define COWSNAP_ABI	2
int cowsnap_abi(void);

/* *@c is set even if this fails, unless to NULL for lack of memory. */
int cowsnap_open(struct cowsnap **c);
void cowsnap_close(struct cowsnap *c);
/* Why the last function failed; "" before any did. Valid until the next call. */
const char *cowsnap_error(const struct cowsnap *c);

/*
 * From now on change nothing; hand each line of dmsetup that would do it to @line. NULL:
 * change things again.
 */
void cowsnap_dry_run(struct cowsnap *c, void (*line)(void *data, const char *text), void *data);

/*
 * ---- what there is ----
 *
 * A tree: origins, inside each its stores, inside each of these its snapshots, oldest first.
 * Each item is a list of keys with values: those of dm-cowsnap(7), in its units, and of what the
 * item is. The values of size, used, metadata, chunk and left are in bytes.
 * Items are those of the last cowsnap_scan() and gone with the next; each function below
 * that changes something scans as well.
 */
int cowsnap_scan(struct cowsnap *c);
const struct cowsnap_item *cowsnap_first(const struct cowsnap *c);
const struct cowsnap_item *cowsnap_next(const struct cowsnap_item *item);
const struct cowsnap_item *cowsnap_inside(const struct cowsnap_item *item);
/* The store of a snapshot, the origin of a store; NULL. */
const struct cowsnap_item *cowsnap_parent(const struct cowsnap_item *item);
/* An origin by its name or device, a snapshot by its name (ORIGIN@ID) or device; NULL. */
const struct cowsnap_item *cowsnap_find(const struct cowsnap *c, const char *name);

enum cowsnap_kind cowsnap_kind(const struct cowsnap_item *item);
/* The keys in turn; NULL after the last. */
const char *cowsnap_key(const struct cowsnap_item *item, unsigned int number);
/* NULL: the item has no such key. */
const char *cowsnap_get(const struct cowsnap_item *item, const char *key);
/* 0 if there is none, or if it is no number. */
uint64_t cowsnap_number(const struct cowsnap_item *item, const char *key);
int cowsnap_is_number(const struct cowsnap_item *item, const char *key);

/*
 * ---- what has changed ----
 *
 * Where the image of the snapshot @to, or with NULL that of the origin as it is, may differ from
 * that of the snapshot @from: all that differs is in it, exact to a chunk. No data is read. The
 * store has to be persistent. In ascending order; *@extents is for cowsnap_free_extents().
 */
struct cowsnap_extent {
	uint64_t offset, length;	/* in bytes */
};

int cowsnap_diff(struct cowsnap *c, const char *from, const char *to,
		 struct cowsnap_extent **extents, uint64_t *nr);
void cowsnap_free_extents(struct cowsnap_extent *extents);

/*
 * ---- changes ----
 *
 * Where a snapshot or an origin is named, a path of its device will do.
 *
 * Make a snapshot of each of @nr origins, all at one instant: they are suspended, with their
 * filesystems, for at most @seconds (3600), and resumed whatever happens, even if the program is
 * killed meanwhile. @ids gets the number of each. Either all are made or none.
 */
int cowsnap_snapshot(struct cowsnap *c, const char *const *origins, unsigned int nr,
		     unsigned int seconds, unsigned int *ids);
/* Delete a snapshot, ORIGIN@ID. One that has a device in use is refused. */
int cowsnap_delete(struct cowsnap *c, const char *snapshot);
/* Give it up to a tracker: only what has changed since stays known. The same. */
int cowsnap_track(struct cowsnap *c, const char *snapshot);
/* Give a snapshot the device /dev/mapper/ORIGIN@ID. If it has one, nothing is done. */
int cowsnap_activate(struct cowsnap *c, const char *snapshot, int writable);
int cowsnap_deactivate(struct cowsnap *c, const char *snapshot);

#ifdef __cplusplus
}
#endif

#endif

// SPDX-License-Identifier: GPL-2.0-only
/* Snapshots are deleted, and get or lose devices. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handle.h"
#include "item.h"
#include "map.h"
#include "sys.h"

#define SECTOR 512

static bool is_transient(const struct cowsnap_item *snap)
{
	return !strcmp(cowsnap_get(snap->parent, "type"), "transient");
}

static const char *map_name_of(const struct cowsnap_item *snap)
{
	const char *device = cowsnap_get(snap, "device");

	return device ? device + strlen("/dev/mapper/") : NULL;
}

/* Removes the device of a snapshot that nobody uses. */
static int drop_device(struct cowsnap *c, const struct cowsnap_item *snap)
{
	const char *name = map_name_of(snap);
	char where[512];
	int r;

	if (!name)
		return 0;
	if (sys_mounted(cowsnap_get(snap, "number"), where, sizeof(where)))
		return fail(c, COWSNAP_BUSY, "\"%s\" is mounted on %s: cowsnap umount %s first",
			    cowsnap_get(snap, "name"), where, cowsnap_get(snap, "name"));
	/* That is tried for some seconds: udev may be looking at it. */
	r = map_remove(c, name);
	if (r == COWSNAP_BUSY)
		r = fail(c, COWSNAP_BUSY, "\"%s\" is in use through %s: end that first",
			 cowsnap_get(snap, "name"), cowsnap_get(snap, "device"));
	return r;
}

/* What takes its data away, deleting it or giving it up to a tracker, is a message. */
static int give_up(struct cowsnap *c, const char *snapshot, const char *word)
{
	const struct cowsnap_item *snap, *origin;
	char message[64];
	int r = cowsnap_scan(c);

	snap = r ? NULL : need_snapshot(c, snapshot, &r);
	if (!snap)
		return r;
	origin = snap->parent->parent;
	r = refuse_managed(c, origin, "lvremove");
	if (r)
		return r;
	if (!strcmp(cowsnap_get(snap, "state"), "merging"))
		return fail(c, COWSNAP_BUSY, "\"%s\" is being rolled back to: let that end first",
			    snapshot);
	if (!strcmp(word, "track") && strcmp(cowsnap_get(snap, "state"), "live"))
		return fail(c, COWSNAP_REFUSED, "\"%s\" is %s: only a live snapshot can be given "
						"up to a tracker",
			    snapshot, cowsnap_get(snap, "state"));
	if (!strcmp(word, "track") && is_transient(snap))
		return fail(c, COWSNAP_REFUSED, "\"%s\" is transient: its store keeps no tracker",
			    snapshot);
	r = drop_device(c, snap);
	/* A transient snapshot goes with its device. */
	if (r || is_transient(snap))
		return r;
	if (!cowsnap_get(origin, "device"))
		return fail(c, COWSNAP_NONE, "\"%s\" has no origin device to take messages",
			    snapshot);
	snprintf(message, sizeof(message), "%s %s %s", word, cowsnap_get(snap, "id"),
		 cowsnap_get(snap->parent, "number"));
	return map_message(c, cowsnap_get(origin, "name"), message);
}

int cowsnap_delete(struct cowsnap *c, const char *snapshot)
{
	return give_up(c, snapshot, "delete");
}

int cowsnap_track(struct cowsnap *c, const char *snapshot)
{
	return give_up(c, snapshot, "track");
}

static int make_device(struct cowsnap *c, const struct cowsnap_item *snap, bool writable)
{
	const struct cowsnap_item *store = snap->parent, *origin = store->parent;
	struct map_line line;
	struct map table;
	char words[256];

	snprintf(words, sizeof(words), "%s %s P %" PRIu64 " 2 id %s", cowsnap_get(origin, "below"),
		 cowsnap_get(store, "number"), cowsnap_number(store, "chunk") / SECTOR,
		 cowsnap_get(snap, "id"));
	map_one_line(&table, &line, cowsnap_number(snap, "sectors"), "cowsnap", words);
	return map_create(c, cowsnap_get(snap, "name"), &table,
			  MAP_HIDDEN | (writable ? 0 : MAP_READ_ONLY));
}

int cowsnap_activate(struct cowsnap *c, const char *snapshot, int writable)
{
	const struct cowsnap_item *snap;
	const char *state;
	int r = cowsnap_scan(c);

	snap = r ? NULL : need_snapshot(c, snapshot, &r);
	if (!snap)
		return r;
	if (cowsnap_get(snap, "device")) {
		if (!writable || !strcmp(cowsnap_get(snap, "access"), "rw"))
			return 0;
		return fail(c, COWSNAP_BUSY, "\"%s\" has a read-only device: cowsnap deactivate "
					     "%s first",
			    snapshot, snapshot);
	}
	r = refuse_managed(c, snap->parent->parent, "lvchange -ay");
	if (r)
		return r;
	state = cowsnap_get(snap, "state");
	if (strcmp(state, "live"))
		return fail(c, COWSNAP_REFUSED, "\"%s\" is %s: it cannot be read, only deleted",
			    snapshot, state);
	return make_device(c, snap, writable);
}

int cowsnap_deactivate(struct cowsnap *c, const char *snapshot)
{
	const struct cowsnap_item *snap;
	int r = cowsnap_scan(c);

	snap = r ? NULL : need_snapshot(c, snapshot, &r);
	if (!snap)
		return r;
	if (is_transient(snap))
		return fail(c, COWSNAP_BUSY, "\"%s\" is transient, and would be gone: use "
					     "cowsnap delete",
			    snapshot);
	r = refuse_managed(c, snap->parent->parent, "lvchange -an");
	return r ? r : drop_device(c, snap);
}

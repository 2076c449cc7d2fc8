// SPDX-License-Identifier: GPL-2.0-only
/* remove: an origin and its store are taken away, the plain device stays. */
#include <stdio.h>
#include <string.h>

#include "lib/handle.h"
#include "lib/map.h"
#include "lib/sys.h"
#include "place.h"
#include "remove.h"
#include "room.h"
#include "session.h"

const struct option_text remove_options[] = {
	{ "force", 'f', NULL, "delete the snapshots too" },
	{ "keep", 'k', NULL, "keep store and snapshots, for create --existing" },
	{ "dry-run", 'n', NULL, "print the dmsetup lines, change nothing" },
	{ NULL },
};

#define MAX_STORES 8

struct removal {
	const struct words *w;
	struct cowsnap *c;
	const struct cowsnap_item *origin;
	char name[PLACE_NAME + 1];
	char store[MAX_STORES][300];	/* to be cleared */
	int nr_stores;
};

static bool is_persistent(const struct cowsnap_item *store)
{
	return !strcmp(cowsnap_get(store, "type"), "persistent");
}

static bool option(const struct removal *m, const char *name)
{
	return option_given(m->w, name);
}

/* May the snapshots go? */
static int look_at_snapshots(const struct removal *m)
{
	const struct cowsnap_item *store;
	int nr = 0;

	for (store = cowsnap_inside(m->origin); store; store = cowsnap_next(store)) {
		const struct cowsnap_item *s = cowsnap_inside(store);

		for (; s; s = cowsnap_next(s))
			nr += !option(m, "keep") || !is_persistent(store);
	}
	if (!nr || option(m, "force"))
		return 0;
	return cannot_because(m->name, "it has %d snapshot%s; --force deletes them%s", nr,
			      nr > 1 ? "s" : "",
			      option(m, "keep") ? ", since transient ones cannot be kept" :
			      ", --keep keeps them");
}

/* Would the device be of no use without its store? */
static bool is_sealed(const struct removal *m)
{
	const struct cowsnap_item *store;
	bool sealed = false;

	for (store = cowsnap_inside(m->origin); store; store = cowsnap_next(store))
		sealed |= is_persistent(store) && room_way_home_of(store);
	return sealed;
}

static int look_at_use(const struct removal *m)
{
	const char *number = cowsnap_get(m->origin, "number"), *below;
	char where[300], home[PLACE_NAME + 24];

	snprintf(home, sizeof(home), "/dev/mapper/%s-home", m->name);
	below = cowsnap_get(m->origin, "below_path");
	/* A volume that was taken over may stay in use: it gets its table back. */
	if (!strcmp(below, home) && !is_sealed(m))
		return 0;
	if (!strcmp(below, home) && use_of(cowsnap_get(m->origin, "device"), number, where,
					   sizeof(where)))
		return cannot_because(m->name, "%s, and it would begin with seals then, since its "
				      "origin is sealed: end that first", where);
	if (sys_mounted(number, where, sizeof(where)))
		return cannot_because(m->name, "mounted on %s: umount %s first", where, where);
	if (stays_open(m->c, m->name, 0))
		return cannot(m->name, "in use: end what has it open first");
	return 0;
}

/* Names first: each deletion looks at everything anew. */
static int drop_snapshot_devices(struct removal *m)
{
	const struct cowsnap_item *store, *s;
	const char *device;
	int r = refuse_used_snapshots(m->c, m->origin);

	for (store = cowsnap_inside(m->origin); store && !r; store = cowsnap_next(store))
		for (s = cowsnap_inside(store); s && !r; s = cowsnap_next(s)) {
			device = cowsnap_get(s, "device");
			if (device)
				r = map_remove(m->c, device + strlen("/dev/mapper/"));
		}
	return r;
}

/*
 * Before the origin goes: if this is killed later, nobody opens snapshots of an origin that was
 * written without them. What a broken store does not forget goes with its superblocks.
 */
static void forget_snapshots(struct removal *m)
{
	const struct cowsnap_item *store, *s;
	char message[64];

	for (store = cowsnap_inside(m->origin); store; store = cowsnap_next(store)) {
		if (!is_persistent(store) || option(m, "keep"))
			continue;
		for (s = cowsnap_inside(store); s; s = cowsnap_next(s)) {
			snprintf(message, sizeof(message), "delete %s %s", cowsnap_get(s, "id"),
				 cowsnap_get(store, "number"));
			map_message(m->c, m->name, message);
		}
	}
}

static int note_stores(struct removal *m)
{
	const struct cowsnap_item *s;

	for (s = cowsnap_inside(m->origin); s; s = cowsnap_next(s)) {
		if (is_persistent(s) && option(m, "keep"))
			continue;
		if (is_persistent(s) && room_keeps_origin_of(s))
			return EXIT_CANNOT;
		if (m->nr_stores == MAX_STORES)
			return cannot(m->name, "it has too many stores for this command");
		snprintf(m->store[m->nr_stores++], sizeof(m->store[0]), "%s",
			 cowsnap_get(s, "device"));
	}
	return 0;
}

static int remove_origin(struct removal *m)
{
	const char *state = cowsnap_get(m->origin, "state");
	int i, r;

	snprintf(m->name, sizeof(m->name), "%s", cowsnap_get(m->origin, "name"));
	r = refuse_managed(m->c, m->origin, "lvremove");
	if (r)
		return r;
	if (!cowsnap_get(m->origin, "device"))
		return cannot(m->name, "it has no device, only snapshots; dmsetup remove takes "
				       "them away");
	if (strncmp(state, "merg", 4) == 0)
		return cannot_because(m->name, "it is %s; cowsnap rollback %s@%s goes on with it",
				      state, m->name, cowsnap_get(m->origin, "merging"));
	if (note_stores(m) || look_at_snapshots(m) || look_at_use(m))
		return EXIT_CANNOT;
	r = drop_snapshot_devices(m);
	if (!r)
		forget_snapshots(m);
	if (!r)
		r = place_leave(m->c, m->origin);
	for (i = 0; i < m->nr_stores && !r; i++)
		r = room_clear(m->store[i], option(m, "dry-run"));
	return r;
}

int command_remove(const struct words *w)
{
	struct removal m = { .w = w, .c = session_open(w) };
	bool sealed;
	int r = 0;

	if (!m.c)
		return EXIT_CANNOT;
	if (option(&m, "force") && option(&m, "keep"))
		return session_end(m.c, cannot("remove", "--force and --keep contradict each "
							 "other"));
	m.origin = cowsnap_find(m.c, w->word[0]);
	if (!m.origin) {
		r = place_clear(m.c, w->word[0]);
		if (!r)
			need_origin(m.c, w->word[0], &r);
		else if (r > 0)
			r = 0;
		return session_end(m.c, r);
	}
	if (cowsnap_kind(m.origin) != COWSNAP_ORIGIN)
		return session_end(m.c, cannot_because(w->word[0], "a snapshot: cowsnap delete %s",
						       w->word[0]));
	sealed = is_sealed(&m);
	r = remove_origin(&m);
	if (!r)
		say_done(w, sealed ? "%s is sealed, and of no use without its store" :
			 "%s is a plain device again", cowsnap_get(m.origin, "below_path"));
	return session_end(m.c, r);
}

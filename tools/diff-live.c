// SPDX-License-Identifier: GPL-2.0-only
/* A store that is in use: see diff-live.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff-live.h"
#include "lib/handle.h"
#include "lib/item.h"
#include "lib/map.h"
#include "lib/sys.h"
#include "say.h"

/* ---- which store ---- */

/* The one that is on the device @number. */
static const struct cowsnap_item *store_on(const struct cowsnap *c, const char *number)
{
	const struct cowsnap_item *o, *store;

	for (o = cowsnap_first(c); o; o = cowsnap_next(o)) {
		store = item_with(o->inside, "number", number);
		if (store)
			return store;
	}
	return NULL;
}

/* If an origin has several, the persistent one. */
static const struct cowsnap_item *store_of(const struct cowsnap_item *item)
{
	const struct cowsnap_item *store;

	if (!item)
		return NULL;
	if (cowsnap_kind(item) == COWSNAP_SNAPSHOT)
		return cowsnap_parent(item);
	if (cowsnap_kind(item) == COWSNAP_STORE)
		return item;
	store = item_with(item->inside, "type", "persistent");
	return store ? store : cowsnap_inside(item);
}

static int take_store(struct live *l, const struct cowsnap_item *store)
{
	const struct cowsnap_item *origin = cowsnap_parent(store);

	snprintf(l->origin, sizeof(l->origin), "%s", cowsnap_get(origin, "name"));
	snprintf(l->number, sizeof(l->number), "%s", cowsnap_get(store, "number"));
	snprintf(l->store, sizeof(l->store), "%s", cowsnap_get(store, "device"));
	l->origin_bytes = cowsnap_number(origin, "size");
	l->unsettled = cowsnap_number(store, "unsettled");
	if (!strcmp(cowsnap_get(store, "type"), "persistent"))
		return 0;
	return cannot(l->origin, "its store is transient, and nothing on it says what has "
				 "changed; cowsnap create makes persistent ones");
}

/* A file is in use by nobody; a name has no slash, but LVM's: VG/LV. */
static bool may_be_live(const char *word, bool *is_device)
{
	struct stat st;

	*is_device = !stat(word, &st) && S_ISBLK(st.st_mode);
	return *is_device || (access(word, F_OK) && *word != '/' && strncmp(word, "./", 2) &&
			      strncmp(word, "../", 3));
}

/* If the snapshot is not there, the origin's: the reader of the store says what is missing. */
static const struct cowsnap_item *find_by_name(const struct live *l, const char *word)
{
	const struct cowsnap_item *item = cowsnap_find(l->c, word);
	const char *at = strrchr(word, '@');
	char origin[256];

	if (item || !at || at - word >= (long)sizeof(origin))
		return item;
	memcpy(origin, word, at - word);
	origin[at - word] = '\0';
	return cowsnap_find(l->c, origin);
}

static const struct cowsnap_item *find_in_use(const struct live *l, const char *word)
{
	char number[32];
	const struct cowsnap_item *store = NULL;

	if (sys_number(word, number, sizeof(number)))
		store = store_on(l->c, number);
	return store ? store : store_of(find_by_name(l, word));
}

long live_number(const char *word, char store[32])
{
	const struct cowsnap_item *item = NULL;
	struct cowsnap *c = NULL;
	bool is_device;
	long id = -1;

	if (may_be_live(word, &is_device) && !cowsnap_open(&c) && !cowsnap_scan(c))
		item = cowsnap_find(c, word);
	if (item && cowsnap_kind(item) == COWSNAP_SNAPSHOT) {
		id = cowsnap_number(item, "id");
		snprintf(store, 32, "%s", cowsnap_get(cowsnap_parent(item), "number"));
	}
	cowsnap_close(c);
	return id;
}

int live_find(struct live *l, const char *word)
{
	const struct cowsnap_item *store;
	bool is_device;
	int r = 0;

	memset(l, 0, sizeof(*l));
	if (!may_be_live(word, &is_device))
		return 0;
	if (cowsnap_open(&l->c) || cowsnap_scan(l->c)) {
		/* A device that nobody uses can be read without. */
		if (!is_device)
			r = say_error(l->c);
		live_close(l);
		return r;
	}
	store = find_in_use(l, word);
	if (store)
		return take_store(l, store);
	live_close(l);
	return is_device ? 0 : cannot(word, "there is no such store or origin; cowsnap list shows "
					    "what is in use");
}

void live_close(struct live *l)
{
	if (l->activated[0])
		cowsnap_deactivate(l->c, l->activated);
	cowsnap_close(l->c);
	memset(l, 0, sizeof(*l));
}

/* ---- asking the module ---- */

static const struct cowsnap_item *find_store(const struct live *l)
{
	const struct cowsnap_item *origin = cowsnap_find(l->c, l->origin);

	return origin ? item_with(origin->inside, "number", l->number) : NULL;
}

/* A device that messages for the store can be sent to. */
static const char *answers(const struct cowsnap_item *store)
{
	const struct cowsnap_item *snap;
	const char *device = cowsnap_get(cowsnap_parent(store), "device");

	for (snap = cowsnap_inside(store); snap && !device; snap = cowsnap_next(snap))
		device = cowsnap_get(snap, "device");
	return device;
}

bool live_commit(struct live *l)
{
	const struct cowsnap_item *store = find_store(l);
	const char *device = store ? answers(store) : NULL;
	char message[320];

	if (!device)
		return false;
	snprintf(message, sizeof(message), "commit %s", l->number);
	return !map_message(l->c, strrchr(device, '/') + 1, message);
}

/* The origin shows a snapshot, of whatever store, of which the other stores know nothing yet. */
static int refuse_merge(struct diff *d, const struct cowsnap_item *origin)
{
	const char *id = cowsnap_get(origin, "merging");

	return id ? diff_fail(d, "snapshot %s is being merged into the origin; wait for the end of "
				 "that", id) : 0;
}

int live_check(struct live *l, struct diff *d, const struct diff_side *side)
{
	const struct cowsnap_item *store, *snap;
	const char *state;
	bool same;

	if (cowsnap_scan(l->c))
		return diff_fail(d, "%s", cowsnap_error(l->c));
	store = find_store(l);
	if (!store)
		return diff_fail(d, "it has gone meanwhile");
	if (side->now)
		return refuse_merge(d, cowsnap_parent(store));
	snap = item_with_number(store->inside, "id", side->id);
	state = snap ? cowsnap_get(snap, "state") : "gone";
	/* LVM's have one snapshot a store, and do not say its epoch. */
	same = snap && (!cowsnap_get(snap, "epoch") ||
			cowsnap_number(snap, "epoch") == side->epoch);
	if (!strcmp(state, side->tracker ? "tracker" : "live") && same)
		return 0;
	return diff_fail(d, "%s %u is %s by now: what it had is lost",
			 side->tracker ? "tracker" : "snapshot", side->id,
			 same ? state : "another one");
}

/* ---- its data ---- */

/* Of several stores of an origin, as LVM has them, each has its own numbers. */
static const struct cowsnap_item *find_snap(const struct live *l, u32 id)
{
	const struct cowsnap_item *store = find_store(l);

	return store ? item_with_number(store->inside, "id", id) : NULL;
}

/* By its name, which has to be that of no other one. */
static int give_device(struct live *l, const struct cowsnap_item *snap)
{
	char name[300];

	snprintf(name, sizeof(name), "%s", cowsnap_get(snap, "name"));
	if (cowsnap_find(l->c, name) != snap)
		return cannot(name, "more than one store has a snapshot of that name; give it a "
				    "device first");
	if (cowsnap_activate(l->c, name, 0))
		return say_error(l->c);
	strcpy(l->activated, name);
	return cowsnap_scan(l->c) ? say_error(l->c) : 0;
}

int live_device(struct live *l, u32 id, char path[300])
{
	const struct cowsnap_item *snap = find_snap(l, id);
	int r;

	if (snap && !cowsnap_get(snap, "device")) {
		r = give_device(l, snap);
		if (r)
			return r;
		snap = find_snap(l, id);
	}
	if (!snap || !cowsnap_get(snap, "device"))
		return cannot_because(l->origin, "its snapshot %u has gone meanwhile", id);
	snprintf(path, 300, "%s", cowsnap_get(snap, "device"));
	return 0;
}

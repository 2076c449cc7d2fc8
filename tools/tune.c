// SPDX-License-Identifier: GPL-2.0-only
/* set and resize: an origin and its stores are changed as they run. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/handle.h"
#include "lib/map.h"
#include "lib/sys.h"
#include "session.h"
#include "size.h"
#include "tune.h"
#include "tuning.h"

#define SECTOR 512

/* An origin that takes messages. */
static const struct cowsnap_item *find(const struct words *w, struct cowsnap *c, int *r)
{
	const struct cowsnap_item *o = need_origin(c, w->word[0], r);

	if (!o || cowsnap_get(o, "device"))
		return o;
	*r = cannot(w->word[0], "it has no device, only snapshots: dmsetup message changes them");
	return NULL;
}

/* ---- set ---- */

static int set_one(struct cowsnap *c, const struct cowsnap_item *o, const char *text)
{
	const struct cowsnap_item *store;
	char message[128];
	int r = 0;

	for (store = cowsnap_inside(o); store && !r; store = cowsnap_next(store)) {
		snprintf(message, sizeof(message), "set %s %s", text,
			 cowsnap_get(store, "number"));
		r = map_message(c, cowsnap_get(o, "name"), message);
	}
	return r;
}

/* Its origin would have to be sealed, and LVM would show it without its store. */
static int refuse_redirect(const struct words *w, const struct cowsnap_item *o)
{
	int i;

	if (!cowsnap_get(o, "managed"))
		return 0;
	for (i = 1; i < w->nr_words; i += 2)
		if (!strcmp(w->word[i], "redirect") && strcmp(w->word[i + 1], "0"))
			return cannot_because(w->word[0], "its snapshots are LVM's, which names no store "
					      "for an origin: leave out redirect");
	return 0;
}

/* All are read before the first is sent. */
int command_set(const struct words *w)
{
	const struct cowsnap_item *o;
	struct cowsnap *c;
	char text[64];
	int i, r = 0;

	if (w->nr_words % 2 == 0)
		return cannot_because("set", "\"%s\" has no value", w->word[w->nr_words - 1]);
	for (i = 1; i < w->nr_words; i += 2)
		if (tuning_read("set", w->word[i], w->word[i + 1], text, sizeof(text)))
			return EXIT_CANNOT;
	c = session_open(w);
	if (!c)
		return EXIT_CANNOT;
	o = find(w, c, &r);
	if (o && !cowsnap_inside(o))
		r = cannot_because(w->word[0], "it has no store to be changed");
	if (o && !r)
		r = refuse_redirect(w, o);
	for (i = 1; i < w->nr_words && o && !r; i += 2)
		if (!tuning_read("set", w->word[i], w->word[i + 1], text, sizeof(text)))
			r = set_one(c, o, text);
	return session_end(c, r);
}

/* ---- resize ---- */

/* The same table, as long as the device below. */
static int grow_origin(const struct words *w, struct cowsnap *c, const struct cowsnap_item *o)
{
	uint64_t sectors = sys_sectors(cowsnap_get(o, "below"));
	const char *name = cowsnap_get(o, "name");
	char text[16];
	struct map m;
	int r;

	if (sectors <= cowsnap_number(o, "size") / SECTOR)
		return 0;
	r = refuse_managed(c, o, "lvextend");
	if (!r)
		r = map_read_table(c, name, &m);
	if (r)
		return r;
	m.line->sectors = sectors;
	r = map_reload(c, name, &m);
	map_free(&m);
	if (!r)
		say_done(w, "%s has %s now", name, size_text(sectors * SECTOR, text,
							     sizeof(text)));
	return r;
}

static int grow_store(struct cowsnap *c, const struct cowsnap_item *o,
		      const struct cowsnap_item *store)
{
	char message[64];

	snprintf(message, sizeof(message), "resize %s", cowsnap_get(store, "number"));
	return map_message(c, cowsnap_get(o, "name"), message);
}

static int say_stores(const struct words *w, struct cowsnap *c)
{
	const struct cowsnap_item *o, *store;
	char text[16];
	int r = cowsnap_scan(c);

	o = r ? NULL : need_origin(c, w->word[0], &r);
	for (store = o ? cowsnap_inside(o) : NULL; store; store = cowsnap_next(store))
		say_done(w, "%s has %s", cowsnap_get(store, "device"),
			 size_text(cowsnap_number(store, "size"), text, sizeof(text)));
	return r;
}

int command_resize(const struct words *w)
{
	const struct cowsnap_item *o, *store;
	struct cowsnap *c = session_open(w);
	int r = 0;

	if (!c)
		return EXIT_CANNOT;
	o = find(w, c, &r);
	if (o)
		r = grow_origin(w, c, o);
	for (store = o ? cowsnap_inside(o) : NULL; store && !r; store = cowsnap_next(store))
		r = grow_store(c, o, store);
	if (!r)
		r = say_stores(w, c);
	return session_end(c, r);
}

// SPDX-License-Identifier: GPL-2.0-only
/* Snapshots are made and deleted, and get or lose devices. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "itemjson.h"
#include "session.h"
#include "snapshots.h"

#define LIMIT_SECONDS 10

const struct option_text snapshot_options[] = {
	{ "group", 'g', NULL, "all origins at one instant, or none of them" },
	{ "limit", 0, "SECONDS", "the longest that writers may have to wait (default 10)" },
	{ "json", 0, NULL, "print JSON instead of text" },
	{ "dry-run", 'n', NULL, "print the dmsetup lines, change nothing" },
	{ NULL },
};

const struct option_text dry_options[] = {
	{ "dry-run", 'n', NULL, "print the dmsetup lines, change nothing" },
	{ NULL },
};

const struct option_text delete_options[] = {
	{ "track", 't', NULL, "give the data up only: what has changed since stays known" },
	{ "dry-run", 'n', NULL, "print the dmsetup lines, change nothing" },
	{ NULL },
};

const struct option_text activate_options[] = {
	{ "rw", 'w', NULL, "the snapshot can be written, which its origin does not see" },
	{ "dry-run", 'n', NULL, "print the dmsetup lines, change nothing" },
	{ NULL },
};

/* NAME@ID of each; the origin may have been named by a device. */
static void say_made(const struct words *w, struct cowsnap *c, const unsigned int *ids)
{
	json_object *list = json_object_new_array();
	const struct cowsnap_item *o;
	char name[300];
	int i;

	for (i = 0; i < w->nr_words; i++) {
		o = cowsnap_find(c, w->word[i]);
		snprintf(name, sizeof(name), "%s@%u", o ? cowsnap_get(o, "name") : w->word[i],
			 ids[i]);
		say_done(w, "%s", name);
		json_object_array_add(list, json_object_new_string(name));
	}
	if (option_given(w, "json"))
		json_print("made", list);
	else
		json_object_put(list);
}

static int make_each(const struct words *w, struct cowsnap *c, unsigned long limit,
		     unsigned int *ids)
{
	const char *const *names = (const char *const *)w->word;
	int i, r = 0;

	if (option_given(w, "group"))
		return cowsnap_snapshot(c, names, w->nr_words, limit, ids);
	for (i = 0; i < w->nr_words && !r; i++)
		r = cowsnap_snapshot(c, names + i, 1, limit, ids + i);
	return r;
}

int command_snapshot(const struct words *w)
{
	unsigned long limit = LIMIT_SECONDS;
	unsigned int *ids;
	struct cowsnap *c;
	int r;

	if (read_number("--limit", option_value(w, "limit"), 1, 60, &limit))
		return EXIT_CANNOT;
	c = session_open(w);
	if (!c)
		return EXIT_CANNOT;
	ids = calloc(w->nr_words, sizeof(*ids));
	/* While the system's own volume stands still, no page of this can be read from it. */
	mlockall(MCL_CURRENT | MCL_FUTURE);
	r = ids ? make_each(w, c, limit, ids) : COWSNAP_NO_MEMORY;
	munlockall();
	if (!r)
		say_made(w, c, ids);
	free(ids);
	return session_end(c, r);
}

/* The words in turn, until one fails. */
static int each_word(const struct words *w, int (*act)(struct cowsnap *c, const char *name))
{
	struct cowsnap *c = session_open(w);
	int i, r = 0;

	if (!c)
		return EXIT_CANNOT;
	for (i = 0; i < w->nr_words && !r; i++)
		r = act(c, w->word[i]);
	return session_end(c, r);
}

int command_delete(const struct words *w)
{
	return each_word(w, option_given(w, "track") ? cowsnap_track : cowsnap_delete);
}

int command_deactivate(const struct words *w)
{
	return each_word(w, cowsnap_deactivate);
}

int command_activate(const struct words *w)
{
	struct cowsnap *c = session_open(w);
	const struct cowsnap_item *snap;
	int i, r = 0;

	if (!c)
		return EXIT_CANNOT;
	for (i = 0; i < w->nr_words && !r; i++) {
		r = cowsnap_activate(c, w->word[i], option_given(w, "rw"));
		if (!r && !option_given(w, "dry-run"))
			r = cowsnap_scan(c);
		snap = r ? NULL : cowsnap_find(c, w->word[i]);
		if (snap && cowsnap_get(snap, "device"))
			say_done(w, "%s", cowsnap_get(snap, "device"));
	}
	return session_end(c, r);
}

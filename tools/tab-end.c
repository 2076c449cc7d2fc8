// SPDX-License-Identifier: GPL-2.0-only
/* Lines of /etc/cowsnaptab are stopped; and what the boot has begun comes to its end. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "blank.h"
#include "command.h"
#include "lib/handle.h"
#include "remove.h"
#include "rollback.h"
#include "session.h"
#include "tab.h"

#define INITRAMFS_SCRIPT "/usr/lib/cowsnap/update-initramfs"

static const struct command plain = { .name = "tab" };
static const struct command remove_it = { .name = "remove", .options = remove_options, .least = 1,
					  .most = 1, .run = command_remove };
static const struct command rollback = { .name = "rollback", .options = rollback_options,
					 .least = 1, .most = 1, .run = command_rollback };

/* The origin, if it is active. */
static const struct cowsnap_item *active(struct cowsnap *c, const char *name)
{
	const struct cowsnap_item *o = cowsnap_find(c, name);

	return o && cowsnap_kind(o) == COWSNAP_ORIGIN && cowsnap_get(o, "device") ? o : NULL;
}

/* ---- stopping ---- */

static bool is_live(const struct cowsnap_item *s)
{
	const char *state = cowsnap_get(s, "state");

	return strcmp(state, "invalid") && strcmp(state, "overflowed");
}

/*
 * A store that died could not be told that its snapshots miss something, and may be back at the
 * next boot.
 */
static bool knows_less(const struct cowsnap_item *store)
{
	const struct cowsnap_item *s;
	unsigned int live = 0, stored;
	bool invalid = false;

	for (s = cowsnap_inside(store); s; s = cowsnap_next(s)) {
		live += is_live(s);
		invalid |= !is_live(s);
	}
	return invalid && (blank_count_live(cowsnap_get(store, "device"), &stored) ||
			   stored > live);
}

static int note_death(const struct tab *t, const struct tab_line *l, const struct cowsnap_item *o)
{
	const struct cowsnap_item *store;
	char option[40];

	for (store = cowsnap_inside(o); store; store = cowsnap_next(store)) {
		if (!knows_less(store))
			continue;
		snprintf(option, sizeof(option), "%s=%" PRIu64,
			 cowsnap_number(store, "sealed") ? "died" : "invalid", (uint64_t)time(NULL));
		tab_note_told(l->name, 0);
		return tab_set_option(t->path, l->name, option);
	}
	return 0;
}

/* Users of a volume that was taken over would go on, past its snapshots. */
static int refuse_use(struct cowsnap *c, const struct tab_line *l, const struct cowsnap_item *o)
{
	const char *number = cowsnap_get(o, "number"), *path = cowsnap_get(o, "device");
	char use[300];

	if (!use_of(path, number, use, sizeof(use)) && !stays_open(c, l->name, 0))
		return 0;
	return cannot_because(l->name, "in use, and its snapshots would miss what is written then; "
			      "umount %s first", path);
}

static int stop(const struct tab *t, const struct tab_line *l)
{
	char *words[] = { "remove", "--keep", (char *)l->name, NULL };
	const struct words w = { .command = &plain };
	struct cowsnap *c = session_open(&w);
	const struct cowsnap_item *o;
	int status = 0;

	if (!c)
		return EXIT_CANNOT;
	o = active(c, l->name);
	if (o)
		status = note_death(t, l, o) | refuse_use(c, l, o);
	cowsnap_close(c);
	return o && !status ? command_run(&remove_it, 3, words) : status ? EXIT_CANNOT : 0;
}

int tab_stop(const struct tab *t, const struct tab_line *l)
{
	int lock = tab_lock(l->name), status = stop(t, l);

	if (lock >= 0)
		close(lock);
	return status;
}

/* ---- when the machine is up ---- */

static int end_rollback(const char *name)
{
	const struct words w = { .command = &plain };
	struct cowsnap *c = session_open(&w);
	const struct cowsnap_item *o = c ? active(c, name) : NULL;
	char snapshot[200] = "";
	char *words[] = { "rollback", "--force", "--quiet", snapshot, NULL };

	if (o && !strncmp(cowsnap_get(o, "state"), "merg", 4) && cowsnap_get(o, "merging"))
		snprintf(snapshot, sizeof(snapshot), "%s@%s", name, cowsnap_get(o, "merging"));
	cowsnap_close(c);
	return snapshot[0] ? command_run(&rollback, 4, words) : 0;
}

/* The store that was lost may come back: what it has is no snapshot any more. */
static int keep_note(const struct tab *t, const struct tab_line *l, bool *initramfs)
{
	struct tab_note n;
	char option[40];

	if (!tab_note_read(l->name, &n) || n.marked)
		return 0;
	/* Even if the line has it: whoever wrote it may have been ended before the initramfs. */
	*initramfs |= l->initramfs;
	if (l->invalid >= n.time)
		return 0;
	snprintf(option, sizeof(option), "invalid=%" PRIu64, n.time);
	return tab_set_option(t->path, l->name, option);
}

/* The store has been told. An initramfs that still has the word would tell it again. */
static int forget_loss(const struct tab *t, const struct tab_line *l, bool *initramfs)
{
	uint64_t told = tab_told(l->name);
	int status = 0;

	if (!told || (tab_lost(l) && tab_lost(l) != told))
		return 0;
	*initramfs |= l->initramfs;
	if (tab_lost(l))
		status = tab_forget_loss(t->path, l);
	if (!status)
		tab_note_told(l->name, 0);
	return status;
}

int tab_settle(const struct tab *t)
{
	const struct tab_line *l;
	bool initramfs = false;
	int status = 0;

	for (l = t->line; l < t->line + t->nr_lines; l++)
		if (l->legible)
			status |= keep_note(t, l, &initramfs) | forget_loss(t, l, &initramfs);
	for (l = t->line; l < t->line + t->nr_lines; l++)
		if (l->legible)
			status |= end_rollback(l->name);
	if (initramfs && !access(INITRAMFS_SCRIPT, X_OK) && system(INITRAMFS_SCRIPT))
		status = cannot(INITRAMFS_SCRIPT, "the initramfs was not made anew; run it again");
	return status ? EXIT_CANNOT : 0;
}

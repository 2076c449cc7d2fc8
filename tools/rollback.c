// SPDX-License-Identifier: GPL-2.0-only
/*
 * rollback: an origin shows a snapshot at once, and the data follows.
 *
 * The kernel goes on with it whatever happens to this process. Run again, it waits for the
 * end and puts the origin's own table back.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/handle.h"
#include "lib/map.h"
#include "lib/sys.h"
#include "progress.h"
#include "rollback.h"
#include "session.h"
#include "tab.h"

#define SECTOR 512

const struct option_text rollback_options[] = {
	{ "background", 'b', NULL, "do not wait; run again later to end it" },
	{ "force", 'f', NULL, "even if the origin is mounted or open" },
	{ "quiet", 'q', NULL, "do not show how far it is" },
	{ "dry-run", 'n', NULL, "print the dmsetup lines, change nothing" },
	{ NULL },
};

struct rollback {
	const struct words *w;
	struct cowsnap *c;
	char origin[128], below[300], store[300], store_number[32], id[8], discard[16];
	char name[150];		/* of the snapshot, however it was called */
	char mark[200];		/* of it, unlike that of another of the same name */
	uint64_t sectors, chunk_sectors, epoch;
	int claim;		/* the origin's device, for nobody but us; -1 */
};

static void note(struct rollback *k, const struct cowsnap_item *snap,
		 const struct cowsnap_item *store, const struct cowsnap_item *origin)
{
	const char *discard = cowsnap_get(origin, "discard");

	snprintf(k->origin, sizeof(k->origin), "%s", cowsnap_get(origin, "name"));
	snprintf(k->below, sizeof(k->below), "%s", cowsnap_get(origin, "below_path"));
	snprintf(k->store, sizeof(k->store), "%s", cowsnap_get(store, "device"));
	snprintf(k->store_number, sizeof(k->store_number), "%s", cowsnap_get(store, "number"));
	snprintf(k->id, sizeof(k->id), "%s", cowsnap_get(snap, "id"));
	snprintf(k->discard, sizeof(k->discard), "%s", discard ? discard : "");
	snprintf(k->name, sizeof(k->name), "%s", cowsnap_get(snap, "name"));
	k->epoch = cowsnap_number(snap, "epoch");
	snprintf(k->mark, sizeof(k->mark), "%s:%" PRIu64, k->id, k->epoch);
	k->sectors = cowsnap_number(origin, "size") / SECTOR;
	k->chunk_sectors = cowsnap_number(store, "chunk") / SECTOR;
}

/*
 * From here on nobody can mount it. The device mapper does not mind: it has the device already. A
 * program that has just closed it may take a while to be gone.
 */
static void claim_origin(struct rollback *k, const struct cowsnap_item *o)
{
	int i;

	for (i = 0; i < 10 && k->claim < 0; i++) {
		if (i)
			usleep(100000);
		k->claim = open(cowsnap_get(o, "device"), O_RDONLY | O_EXCL | O_CLOEXEC);
		if (k->claim < 0 && errno != EBUSY)
			return;
	}
}

static void release_origin(struct rollback *k)
{
	if (k->claim >= 0)
		close(k->claim);
	k->claim = -1;
}

/* If nobody uses it, nobody begins to before release_origin(). */
static int look_at_origin(struct rollback *k, const struct cowsnap_item *o)
{
	char where[300];

	if (option_given(k->w, "force"))
		return 0;
	if (sys_mounted(cowsnap_get(o, "number"), where, sizeof(where)))
		return cannot_because(k->origin, "mounted on %s: what it has in memory would be "
				      "written over the old data; umount %s first", where, where);
	claim_origin(k, o);
	if (k->claim < 0 && errno != EBUSY)
		return cannot_because(k->origin, "%s: %s", cowsnap_get(o, "device"),
				      strerror(errno));
	if (k->claim < 0 || stays_open(k->c, k->origin, 1))
		return cannot(k->origin, "in use: end what has it open first");
	return 0;
}

/* What look() finds beside what can be rolled back. */
#define ALREADY_MERGING	101
#define ALREADY_MERGED	102

static int look(struct rollback *k)
{
	const struct cowsnap_item *snap, *store, *o;
	const char *state;
	int r = 0;

	snap = need_snapshot(k->c, k->w->word[0], &r);
	if (!snap)
		return r;
	store = cowsnap_parent(snap);
	o = cowsnap_parent(store);
	note(k, snap, store, o);
	r = refuse_managed(k->c, o, "lvconvert --merge");
	if (r)
		return r;
	state = cowsnap_get(o, "state");
	if (!strncmp(state, "merg", 4)) {
		if (cowsnap_number(o, "merging") == cowsnap_number(snap, "id"))
			return ALREADY_MERGING;
		return fail(k->c, COWSNAP_BUSY, "\"%s\" is being rolled back to %s@%s: let that "
						"end first",
			    k->origin, k->origin, cowsnap_get(o, "merging"));
	}
	if (strcmp(state, "active"))
		return fail(k->c, COWSNAP_BUSY, "\"%s\" is %s: it cannot be rolled back now",
			    k->origin, state);
	if (!strcmp(cowsnap_get(store, "type"), "transient"))
		return fail(k->c, COWSNAP_REFUSED, "\"%s\" is in a transient store, from which "
						   "there is "
			    "no rollback: cowsnap clone copies it", k->w->word[0]);
	state = cowsnap_get(snap, "state");
	if (!strcmp(state, "merged"))
		return ALREADY_MERGED;
	/* Merging, though the origin is not: the machine went down meanwhile. */
	if (strcmp(state, "live") && strcmp(state, "merging"))
		return fail(k->c, COWSNAP_REFUSED, "\"%s\" is %s: there is nothing to go back to",
			    k->w->word[0], state);
	return look_at_origin(k, o);
}

static int begin(struct rollback *k)
{
	struct map_line line;
	struct map table;
	char words[1200];
	int r = cowsnap_deactivate(k->c, k->w->word[0]);

	if (r)
		return r;
	if (!option_given(k->w, "dry-run"))
		tab_note_discard(k->origin, k->mark, k->discard);
	snprintf(words, sizeof(words), "%s %s P %" PRIu64 " 2 id %s", k->below, k->store,
		 k->chunk_sectors, k->id);
	map_one_line(&table, &line, k->sectors, "cowsnap-merge", words);
	return map_reload(k->c, k->origin, &table);
}

/* Another run may have ended it, and the number may be that of a new snapshot. */
static bool is_still_there(struct rollback *k)
{
	const struct cowsnap_item *snap = cowsnap_find(k->c, k->name);

	return snap && cowsnap_number(snap, "epoch") == k->epoch;
}

static int end(struct rollback *k)
{
	struct map_line line;
	struct map table;
	char words[1200], message[64];
	int r;

	/* The table of an origin that is being rolled back has no such word. */
	if (!k->discard[0])
		tab_discard(k->origin, k->mark, k->discard, sizeof(k->discard));
	snprintf(words, sizeof(words), "%s %d store %s%s%s", k->below, k->discard[0] ? 4 : 2,
		 k->store, k->discard[0] ? " discard " : "", k->discard);
	map_one_line(&table, &line, k->sectors, "cowsnap-origin", words);
	r = map_reload(k->c, k->origin, &table);
	if (!r && !option_given(k->w, "dry-run"))
		tab_note_discard(k->origin, k->mark, "");
	if (!r)
		r = cowsnap_scan(k->c);
	if (r || !is_still_there(k))
		return r;
	snprintf(message, sizeof(message), "delete %s %s", k->id, k->store_number);
	return map_message(k->c, k->origin, message);
}

/* What is left, in bytes, or what went wrong. */
static int look_how_far(struct rollback *k, uint64_t *left)
{
	const struct cowsnap_item *o;
	int r = cowsnap_scan(k->c);

	o = r ? NULL : need_origin(k->c, k->origin, &r);
	if (!o)
		return r;
	*left = cowsnap_number(o, "left");
	if (strcmp(cowsnap_get(o, "state"), "merge failed"))
		return 0;
	return fail(k->c, COWSNAP_REFUSED, "rolling back \"%s\" has failed (dmesg says why); "
					   "when that is "
		    "mended, dmsetup suspend %s and dmsetup resume %s try again",
		    k->origin, k->origin, k->origin);
}

static int wait_for_end(struct rollback *k)
{
	struct progress p;
	uint64_t left, total;
	int r = look_how_far(k, &left);

	total = left;
	progress_begin(&p, "rolled back", total, 0, option_given(k->w, "quiet"));
	while (!r && left) {
		usleep(100000);
		r = look_how_far(k, &left);
		progress_show(&p, total > left ? total - left : 0);
	}
	progress_end(&p);
	return r;
}

static int rollback(struct rollback *k)
{
	int r = look(k);

	if (r == ALREADY_MERGED)
		return end(k);
	if (r && r != ALREADY_MERGING)
		return r;
	r = r ? 0 : begin(k);
	/* It shows the old data, whoever mounts it, or it is what it was. */
	release_origin(k);
	if (r)
		return r;
	if (option_given(k->w, "background")) {
		say_done(k->w, "%s shows the old data; cowsnap rollback %s ends it when it is "
			       "copied",
			 k->origin, k->w->word[0]);
		return 0;
	}
	if (!option_given(k->w, "dry-run"))
		r = wait_for_end(k);
	if (!r)
		r = end(k);
	if (!r)
		say_done(k->w, "%s is what %s was, which is gone", k->origin, k->w->word[0]);
	return r;
}

int command_rollback(const struct words *w)
{
	struct rollback k = { .w = w, .c = session_open(w), .claim = -1 };
	int r;

	if (!k.c)
		return EXIT_CANNOT;
	r = rollback(&k);
	release_origin(&k);
	return session_end(k.c, r);
}

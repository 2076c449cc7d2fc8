// SPDX-License-Identifier: GPL-2.0-only
/* What has changed between two snapshots, for programs: the answer of cowsnap diff. */
#include <stdlib.h>
#include <string.h>

#include "../diff-store.h"
#include "../say.h"
#include "handle.h"
#include "item.h"

/* For a store that is open. Returns 0 or the status that has been explained. */
static int compare(struct diff_store *ds, struct diff *d, const char *from, const char *to,
		   bool across)
{
	struct number n[2];
	const char *a, *b;

	b = !to ? "now" : across ? snapshot_number(to, &n[1]) : snapshot_beside(from, to, &n[1]);
	if (!b)
		return EXIT_CANNOT;
	if (across)
		return diff_across(ds, d, from, b);
	a = snapshot_number(from, &n[0]);
	return a ? diff_make(ds, d, a, b) : cannot(from, "it has gone meanwhile");
}

static int ask(struct diff *d, const char *from, const char *to)
{
	bool across = to && snapshot_elsewhere(from, to);
	struct diff_store ds;
	int status = diff_open(&ds, across ? to : from);

	if (status)
		return status;
	status = compare(&ds, d, from, to, across);
	diff_close(&ds);
	return status;
}

static int hand_out(struct cowsnap *c, const struct diff *d, struct cowsnap_extent **extents,
		    uint64_t *nr)
{
	size_t i;

	*extents = calloc(d->changed.nr + 1, sizeof(**extents));
	if (!*extents)
		return fail_no_memory(c);
	for (i = 0; i < d->changed.nr; i++)
		(*extents)[i] = (struct cowsnap_extent){ d->changed.at[i].offset,
							 d->changed.at[i].length };
	*nr = d->changed.nr;
	return 0;
}

static int check_names(struct cowsnap *c, const char *from, const char *to)
{
	int r = cowsnap_scan(c);

	if (!r)
		need_snapshot(c, from, &r);
	if (!r && to)
		need_snapshot(c, to, &r);
	return r;
}

int cowsnap_diff(struct cowsnap *c, const char *from, const char *to,
		 struct cowsnap_extent **extents, uint64_t *nr)
{
	struct diff d = { 0 };
	int r = check_names(c, from, to), status;

	*extents = NULL;
	*nr = 0;
	if (r)
		return r;
	say_into(c->error, sizeof(c->error));
	status = ask(&d, from, to);
	say_into(NULL, 0);
	r = status ? COWSNAP_REFUSED : hand_out(c, &d, extents, nr);
	diff_free(&d);
	return r;
}

void cowsnap_free_extents(struct cowsnap_extent *extents)
{
	free(extents);
}

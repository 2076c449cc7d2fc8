// SPDX-License-Identifier: GPL-2.0-only
/* The store that diff and send ask is opened, and asked. */
#include <string.h>

#include "command.h"
#include "diff-store.h"
#include "maintain.h"

#define SECTOR 512

int diff_open(struct diff_store *ds, const char *path)
{
	memset(ds, 0, sizeof(*ds));
	ds->path = path;
	return open_store(&ds->dev, &ds->s, path, false);
}

void diff_close(struct diff_store *ds)
{
	close_store(&ds->dev, &ds->s);
}

static int whole_image(struct diff *d)
{
	return extents_add(&d->changed, 0, d->b.sectors * SECTOR) ?
	       diff_fail(d, "out of memory") : 0;
}

static int ask(struct diff_store *ds, struct diff *d, const char *a, const char *b,
	       struct chunk_list *list)
{
	if (diff_side(d, &ds->s, b, &d->b))
		return -1;
	if (!a)
		return whole_image(d);
	if (diff_side(d, &ds->s, a, &d->a) || diff_collect(d, &ds->s, list))
		return -1;
	return diff_finish(d, list);
}

int diff_make(struct diff_store *ds, struct diff *d, const char *a, const char *b)
{
	struct chunk_list list = { 0 };
	int r;

	memset(d, 0, sizeof(*d));
	r = ask(ds, d, a, b, &list);
	chunk_list_free(&list);
	return r ? cannot(ds->path, d->error) : 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two snapshots of one origin in different stores, as LVM makes them. Each store knows what has
 * changed from its snapshot until now. What differs between the two has changed since the older
 * one, or is private to one of them: it is in the two answers together.
 */
#include <string.h>

#include "diff-store.h"
#include "say.h"

#define SECTOR 512

/* All of @from below @end bytes goes into the list of units of @unit bytes. */
static int add_units(struct chunk_list *list, const struct extents *from, u64 unit, u64 end)
{
	size_t i;
	u64 at;

	for (i = 0; i < from->nr; i++)
		for (at = from->at[i].offset / unit;
		     at * unit < from->at[i].offset + from->at[i].length && at * unit < end; at++)
			if (chunk_list_add(list, at))
				return -1;
	return 0;
}

/* d->changed becomes what is in it or in @more; of both chunk sizes @unit is the smaller. */
static int join(struct diff *d, const struct extents *more, u64 unit)
{
	u64 bytes = d->b.sectors * SECTOR, at;
	struct chunk_list list = { 0 };
	struct extents both = { 0 };
	size_t i;
	int r = add_units(&list, &d->changed, unit, bytes) || add_units(&list, more, unit, bytes);

	chunk_list_sort(&list);
	for (i = 0; i < list.nr && !r; i++) {
		at = list.chunk[i] * unit;
		r = extents_add(&both, at, bytes - at < unit ? bytes - at : unit);
	}
	chunk_list_free(&list);
	extents_free(&d->changed);
	d->changed = both;
	return r ? diff_fail(d, "out of memory") : 0;
}

static int put_together(struct diff *d, const struct diff *base)
{
	u64 unit = d->chunk_bytes < base->chunk_bytes ? d->chunk_bytes : base->chunk_bytes;

	d->b = d->a;
	d->a = base->a;
	memcpy(d->from_uuid, base->uuid, sizeof(d->from_uuid));
	return join(d, &base->changed, unit);
}

int diff_across(struct diff_store *ds, struct diff *d, const char *a, const char *b)
{
	struct diff_store other;
	struct diff base = { 0 };
	struct number n;
	int r = diff_open(&other, a);

	if (r)
		return r;
	r = diff_make(&other, &base, snapshot_number(a, &n), "now");
	if (!r)
		r = diff_make(ds, d, b, "now");
	if (!r && put_together(d, &base))
		r = cannot(ds->path, d->error);
	diff_free(&base);
	diff_close(&other);
	return r;
}

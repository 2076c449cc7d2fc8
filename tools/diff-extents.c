// SPDX-License-Identifier: GPL-2.0-only
/* Lists of chunks, and of extents. */
#include <stdlib.h>
#include <string.h>

#include "diff.h"

int chunk_list_add(struct chunk_list *list, u64 chunk)
{
	if (list->nr && list->chunk[list->nr - 1] == chunk)
		return 0;
	if (list->nr == list->max) {
		size_t max = list->max ? list->max * 2 : 256;
		u64 *more = realloc(list->chunk, max * sizeof(*more));

		if (!more)
			return -1;
		list->chunk = more;
		list->max = max;
	}
	list->chunk[list->nr++] = chunk;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	const u64 *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

void chunk_list_sort(struct chunk_list *list)
{
	size_t i, nr = 0;

	if (!list->nr)
		return;
	qsort(list->chunk, list->nr, sizeof(*list->chunk), by_number);
	for (i = 1; i < list->nr; i++)
		if (list->chunk[i] != list->chunk[nr])
			list->chunk[++nr] = list->chunk[i];
	list->nr = nr + 1;
}

void chunk_list_free(struct chunk_list *list)
{
	free(list->chunk);
	memset(list, 0, sizeof(*list));
}

int extents_add(struct extents *e, u64 offset, u64 length)
{
	struct extent *last = e->nr ? &e->at[e->nr - 1] : NULL;

	e->bytes += length;
	if (last && last->offset + last->length == offset) {
		last->length += length;
		return 0;
	}
	if (e->nr == e->max) {
		size_t max = e->max ? e->max * 2 : 64;
		struct extent *more = realloc(e->at, max * sizeof(*more));

		if (!more)
			return -1;
		e->at = more;
		e->max = max;
	}
	e->at[e->nr++] = (struct extent){ offset, length };
	return 0;
}

void extents_cut(struct extents *e, u64 position)
{
	size_t i, nr = 0;

	e->bytes = 0;
	for (i = 0; i < e->nr; i++) {
		struct extent x = e->at[i];
		u64 end = x.offset + x.length;

		if (end <= position)
			continue;
		if (x.offset < position)
			x.offset = position;
		x.length = end - x.offset;
		e->bytes += x.length;
		e->at[nr++] = x;
	}
	e->nr = nr;
}

void extents_free(struct extents *e)
{
	free(e->at);
	memset(e, 0, sizeof(*e));
}

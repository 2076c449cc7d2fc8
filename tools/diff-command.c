// SPDX-License-Identifier: GPL-2.0-only
/* cowsnap diff: which chunks differ, as a line, as a list or as JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "diff-command.h"
#include "diff-store.h"

#define SECTOR 512

const struct option_text diff_options[] = {
	{ "json", 0, NULL, "print JSON: both ends, and a list of extents" },
	{ "extents", 0, NULL, "print a line for each extent: offset and length in bytes" },
	{ NULL },
};

static void print_side(const char *name, const struct diff_side *side)
{
	if (side->now)
		printf("\"%s\":{\"now\":true,\"bytes\":%" PRIu64 "},\n", name,
		       side->sectors * SECTOR);
	else
		printf("\"%s\":{\"id\":%u,\"epoch\":%" PRIu64 ",\"time\":%" PRIu64
		       ",\"bytes\":%" PRIu64 "},\n", name, side->id, side->epoch, side->time,
		       side->sectors * SECTOR);
}

static void print_json(const struct diff *d)
{
	size_t i;

	printf("{\"store\":\"");
	for (i = 0; i < sizeof(d->uuid); i++)
		printf("%02x", d->uuid[i]);
	printf("\",\"chunk_bytes\":%" PRIu64 ",\n", d->chunk_bytes);
	print_side("from", &d->a);
	print_side("to", &d->b);
	printf("\"changed_bytes\":%" PRIu64 ",\n\"extents\":[", d->changed.bytes);
	for (i = 0; i < d->changed.nr; i++)
		printf("%s\n{\"offset\":%" PRIu64 ",\"length\":%" PRIu64 "}", i ? "," : "",
		       d->changed.at[i].offset, d->changed.at[i].length);
	printf("]}\n");
}

static void print_extents(const struct diff *d)
{
	size_t i;

	for (i = 0; i < d->changed.nr; i++)
		printf("%" PRIu64 " %" PRIu64 "\n", d->changed.at[i].offset,
		       d->changed.at[i].length);
}

static void print_summary(const struct diff *d)
{
	u64 bytes = d->b.sectors * SECTOR;

	printf("%" PRIu64 " of %" PRIu64 " bytes differ (%.1f %%), in %zu extents of chunks of %"
	       PRIu64 " bytes\n", d->changed.bytes, bytes,
	       bytes ? 100. * d->changed.bytes / bytes : 0., d->changed.nr, d->chunk_bytes);
}

/* What the words mean: a store or a name to open, and two numbers or "now". */
struct question {
	const char *where, *a, *b;
	struct number n[2];
	bool across;		/* a is the name of a snapshot in another store */
};

static int read_question(struct question *q, const struct words *w)
{
	const char *number = snapshot_number(w->word[0], &q->n[0]);
	int first = number ? 0 : 1;

	if (w->nr_words <= first)
		return cannot(w->word[0], "which snapshot? name one as ORIGIN@NUMBER, or a store "
					  "and a number");
	if (w->nr_words > first + 2)
		return cannot(w->word[first + 2], "a word too many; there are two sides to "
						  "compare");
	q->where = w->word[0];
	if (w->nr_words == 2 && snapshot_elsewhere(w->word[0], w->word[1])) {
		q->across = true;
		q->a = w->word[0];
		q->where = w->word[1];
		q->b = snapshot_number(w->word[1], &q->n[1]);
		return 0;
	}
	q->a = number ? number : w->word[1];
	q->b = w->nr_words > first + 1 ? snapshot_beside(q->where, w->word[first + 1],
								   &q->n[1]) : "now";
	return q->b ? 0 : EXIT_CANNOT;
}

static int print(const struct diff *d, const struct words *w)
{
	if (option_given(w, "json"))
		print_json(d);
	else if (option_given(w, "extents"))
		print_extents(d);
	else
		print_summary(d);
	return fflush(stdout) || ferror(stdout) ? cannot("the list", "it cannot be written") : 0;
}

int command_diff(const struct words *w)
{
	struct question q = { 0 };
	struct diff_store ds;
	struct diff d = { 0 };
	int r = read_question(&q, w);

	if (!r)
		r = diff_open(&ds, q.where);
	if (r)
		return r;
	r = q.across ? diff_across(&ds, &d, q.a, q.b) : diff_make(&ds, &d, q.a, q.b);
	if (!r)
		r = print(&d, w);
	diff_free(&d);
	diff_close(&ds);
	return r;
}

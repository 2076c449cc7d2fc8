// SPDX-License-Identifier: GPL-2.0-only
/*
 * map: a drawing of a store. Each live snapshot has a row, in which the origin lies from left to
 * right. A column is as dark as the share of its chunks that were changed after this snapshot
 * and before the next one was made. What was written to the snapshot itself has another colour.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chart.h"
#include "maintain.h"
#include "size.h"

#define SECTOR	512ULL
#define COLUMNS	1000
#define LEFT	150
#define TOP	40
#define ROW	26
#define HEIGHT	18

const struct option_text map_options[] = {
	{ "output", 'o', "FILE", "the drawing (default: standard output)" },
	{ NULL },
};

struct row {
	const struct record *snapshot;
	uint64_t changed, written;		/* chunks */
	uint32_t column[COLUMNS], own[COLUMNS];	/* the same, of each column */
};

struct chart {
	const struct store *s;
	struct row *row;
	size_t nr;
	uint64_t per_column;
};

static int by_epoch(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->snapshot->epoch < y->snapshot->epoch ? -1 :
	       x->snapshot->epoch > y->snapshot->epoch;
}

static int add_rows(struct chart *c)
{
	size_t i;

	c->row = calloc(c->s->nr_records + 1, sizeof(*c->row));
	if (!c->row)
		return cannot("map", "out of memory");
	for (i = 0; i < c->s->nr_records; i++)
		if (record_live(&c->s->record[i]))
			c->row[c->nr++].snapshot = &c->s->record[i];
	qsort(c->row, c->nr, sizeof(*c->row), by_epoch);
	c->per_column = (c->s->nr_origin_chunks + COLUMNS - 1) / COLUMNS;
	if (!c->per_column)
		c->per_column = 1;
	return 0;
}

/* A version is labelled with the newest snapshot there was; that may have been deleted. */
static struct row *row_of(struct chart *c, uint64_t epoch)
{
	size_t i = c->nr;

	while (i && c->row[i - 1].snapshot->epoch > epoch)
		i--;
	return i ? &c->row[i - 1] : NULL;
}

static void count(struct chart *c)
{
	const struct entry *e;
	struct row *r;
	size_t i;

	for (i = 0; i < c->s->nr_order; i++) {
		e = &c->s->entry[c->s->order[i]];
		r = e->marks & (ENTRY_DEAD | ENTRY_DOUBTED) ||
		    e->chunk >= c->s->nr_origin_chunks ? NULL : row_of(c, e->epoch);
		if (!r)
			continue;
		if (exception_is_private(e)) {
			r->written++;
			r->own[e->chunk / c->per_column]++;
		} else {
			r->changed++;
			r->column[e->chunk / c->per_column]++;
		}
	}
}

/* ---- drawing ---- */

/* A share that is not nothing is seen. */
static void draw_cells(FILE *out, const struct chart *c, const uint32_t *column, int y,
		       const char *colour)
{
	double dark;
	int i;

	for (i = 0; i < COLUMNS; i++) {
		if (!column[i])
			continue;
		dark = .25 + .75 * column[i] / c->per_column;
		fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"1\" height=\"%d\" fill=\"%s\" "
			"fill-opacity=\"%.2f\"/>\n", LEFT + i, y, HEIGHT, colour,
			dark < 1 ? dark : 1);
	}
}

static void draw_row(FILE *out, const struct chart *c, const struct row *r, int y)
{
	uint64_t chunk_bytes = c->s->geo.chunk_sectors * SECTOR;
	time_t made = r->snapshot->time;
	char size[16], when[32] = "";
	struct tm tm;

	if (made && gmtime_r(&made, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm);
	fprintf(out, "<g><title>%" PRIu64 " chunks changed after snapshot %u, %" PRIu64
		" written through it</title>\n", r->changed, r->snapshot->id, r->written);
	fprintf(out, "<text x=\"4\" y=\"%d\">%u  %s</text>\n", y + 13, r->snapshot->id, when);
	fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f2f2f2\"/>\n",
		LEFT, y, COLUMNS, HEIGHT);
	draw_cells(out, c, r->column, y, "#1f4e8c");
	draw_cells(out, c, r->own, y, "#c25a00");
	fprintf(out, "<text x=\"%d\" y=\"%d\">%s</text></g>\n", LEFT + COLUMNS + 6, y + 13,
		size_text((r->changed + r->written) * chunk_bytes, size, sizeof(size)));
}

static void draw(FILE *out, const struct chart *c)
{
	int height = TOP + (int)c->nr * ROW + 10, width = LEFT + COLUMNS + 70;
	char size[16];
	size_t i;

	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n", width,
		height, width, height);
	fprintf(out, "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n");
	fprintf(out, "<text x=\"4\" y=\"24\">snapshot</text>\n<text x=\"%d\" y=\"24\">origin of %s: "
		"blue was changed before the next snapshot, orange written through this one"
		"</text>\n", LEFT, size_text(le64toh(c->s->super.origin_sectors) * SECTOR, size,
					      sizeof(size)));
	for (i = 0; i < c->nr; i++)
		draw_row(out, c, &c->row[i], TOP + (int)i * ROW);
	fprintf(out, "</svg>\n");
}

static int write_to(const struct chart *c, const char *path)
{
	FILE *out = path ? fopen(path, "we") : stdout;
	int bad;

	if (!out)
		return cannot(path, strerror(errno));
	draw(out, c);
	bad = fflush(out) || ferror(out);
	if (path)
		bad |= fclose(out);
	return bad ? cannot(path ? path : "the drawing", "it cannot be written") : 0;
}

int command_map(const struct words *w)
{
	struct chart c = { 0 };
	struct device dev;
	struct store s;
	int status = open_store(&dev, &s, w->word[0], false);

	if (status)
		return status;
	c.s = &s;
	status = add_rows(&c);
	if (!status) {
		count(&c);
		status = write_to(&c, option_value(w, "output"));
	}
	free(c.row);
	close_store(&dev, &s);
	return status;
}

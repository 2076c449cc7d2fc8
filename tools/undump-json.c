// SPDX-License-Identifier: GPL-2.0-only
/*
 * The JSON form of a dump, read as it comes: one object of values and of lists of flat
 * objects. Nothing is kept but the item being read, so the length of a dump does not
 * matter; and what is not of this shape is refused, not skipped.
 */
#include <ctype.h>
#include <string.h>

#include "dump.h"

#define ITEM_BYTES	(DUMP_RUN * 8 + 1024)

struct reader {
	struct dump *d;
	FILE *in;
	char text[ITEM_BYTES];	/* words of the item being read */
	size_t used;
};

static int fail_shape(struct reader *r)
{
	return dump_fail(r->d, "it is not JSON of a dump, or cut off");
}

/* The next character that is no space, left where it is. */
static int peek(struct reader *r)
{
	int c;

	do {
		c = getc(r->in);
	} while (c != EOF && isspace(c));
	ungetc(c, r->in);
	return c;
}

static int expect(struct reader *r, int wanted)
{
	if (peek(r) != wanted)
		return fail_shape(r);
	getc(r->in);
	return 0;
}

/* Between two of a list there is a comma, after the last its end: 1, or 0. */
static int more(struct reader *r, int end)
{
	int c = peek(r);

	if (c != ',' && c != end)
		return fail_shape(r);
	getc(r->in);
	return c == ',';
}

static int add_char(struct reader *r, int c)
{
	if (r->used == sizeof(r->text))
		return dump_fail(r->d, "an item of it is too long");
	r->text[r->used++] = c;
	return 0;
}

/* No name and no value of a dump needs an escape. */
static const char *read_string(struct reader *r)
{
	const char *start = r->text + r->used;
	int c;

	if (expect(r, '"'))
		return NULL;
	while ((c = getc(r->in)) != '"') {
		if (c == EOF || c == '\\' || iscntrl(c)) {
			fail_shape(r);
			return NULL;
		}
		if (add_char(r, c))
			return NULL;
	}
	return add_char(r, '\0') ? NULL : start;
}

static const char *read_number(struct reader *r)
{
	const char *start = r->text + r->used;

	while (isdigit(peek(r)))
		if (add_char(r, getc(r->in)))
			return NULL;
	if (start == r->text + r->used) {
		fail_shape(r);
		return NULL;
	}
	return add_char(r, '\0') ? NULL : start;
}

static const char *read_scalar(struct reader *r)
{
	return peek(r) == '"' ? read_string(r) : read_number(r);
}

static const char *read_name(struct reader *r)
{
	const char *name = read_string(r);

	return name && !expect(r, ':') ? name : NULL;
}

static int read_item(struct reader *r, const char *list)
{
	struct dump_field fields[DUMP_MAX_FIELDS];
	size_t before = r->used;
	int count = 0, again = 1;

	if (expect(r, '{'))
		return -1;
	while (again > 0) {
		if (count == DUMP_MAX_FIELDS)
			return dump_fail(r->d, "%s: an item with too many fields", list);
		fields[count].name = read_name(r);
		fields[count].value = fields[count].name ? read_scalar(r) : NULL;
		if (!fields[count++].value)
			return -1;
		again = more(r, '}');
	}
	r->used = before;
	return again < 0 ? -1 : dump_item(r->d, list, fields, count);
}

static int read_list(struct reader *r, const char *list)
{
	int again = 1;

	if (expect(r, '['))
		return -1;
	if (peek(r) == ']')
		return expect(r, ']');
	while (again > 0) {
		if (read_item(r, list))
			return -1;
		again = more(r, ']');
	}
	return again;
}

static int read_pair(struct reader *r)
{
	const char *name, *value;

	r->used = 0;
	name = read_name(r);
	if (!name)
		return -1;
	if (peek(r) == '[')
		return read_list(r, name);
	value = read_scalar(r);
	return value ? dump_set(r->d, name, value) : -1;
}

int dump_read_json(struct dump *d, FILE *in)
{
	struct reader r = { .d = d, .in = in };
	int again = 1;

	if (expect(&r, '{'))
		return -1;
	while (again > 0) {
		if (read_pair(&r))
			return -1;
		again = more(&r, '}');
	}
	if (again)
		return -1;
	d->seen_end = true;
	return peek(&r) == EOF ? 0 : fail_shape(&r);
}

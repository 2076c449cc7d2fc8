// SPDX-License-Identifier: GPL-2.0-only
/* A dump becomes a store in memory; whatever it says is held against what can be. */
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "dump.h"

int dump_fail(struct dump *d, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(d->error, sizeof(d->error), format, args);
	va_end(args);
	return -1;
}

static bool to_number(const char *text, u64 *value)
{
	char *end;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !*end && !errno;
}

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;

	return at ? at - digits : -1;
}

static bool to_hex(const char *text, u8 *bytes, size_t len)
{
	size_t i;
	int high, low;

	if (!text || strlen(text) != len * 2)
		return false;
	for (i = 0; i < len; i++) {
		high = hex_digit(text[2 * i]);
		low = hex_digit(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		bytes[i] = high << 4 | low;
	}
	return true;
}

/* ---- values ---- */

#define SUPER_VALUE(field) { #field, offsetof(struct cowsnap_super, field), \
			     sizeof(((struct cowsnap_super *)0)->field) }

static const struct super_value {
	const char *name;
	size_t offset, size;
} super_values[] = {
	SUPER_VALUE(block_bytes),
	SUPER_VALUE(chunk_sectors),
	SUPER_VALUE(origin_sectors),
	SUPER_VALUE(store_sectors),
	SUPER_VALUE(merge_id),
	SUPER_VALUE(merge_chunk),
	SUPER_VALUE(on_full),
	SUPER_VALUE(wait_timeout),
	SUPER_VALUE(throttle),
	SUPER_VALUE(low_water),
	SUPER_VALUE(copy_ahead),
	SUPER_VALUE(copy_around),
	SUPER_VALUE(log),
	SUPER_VALUE(redirect),
	SUPER_VALUE(settle),
	SUPER_VALUE(seal_start),
	SUPER_VALUE(seal_generation),
	SUPER_VALUE(seal_state),
};

static int set_super_value(struct dump *d, const char *name, u64 value)
{
	u8 *super = (u8 *)&d->s.super;
	__le64 le64 = htole64(value);
	__le32 le32 = htole32((u32)value);
	u8 byte = value;
	size_t i;

	for (i = 0; i < sizeof(super_values) / sizeof(*super_values); i++) {
		const struct super_value *v = &super_values[i];

		if (strcmp(v->name, name))
			continue;
		if ((v->size == 4 && value > UINT32_MAX) || (v->size == 1 && value > UINT8_MAX))
			return dump_fail(d, "%s is too large", name);
		memcpy(super + v->offset, v->size == 1 ? (void *)&byte :
		       v->size == 4 ? (void *)&le32 : (void *)&le64, v->size);
		return 0;
	}
	return dump_fail(d, "%s is unknown", name);
}

static u64 *own_value(struct dump *d, const char *name)
{
	if (!strcmp(name, "super_sequence"))
		return &d->s.super_sequence;
	if (!strcmp(name, "sequence"))
		return &d->s.sequence;
	if (!strcmp(name, "blocks"))
		return &d->s.blocks;
	if (!strcmp(name, "epoch"))
		return &d->s.epoch;
	if (!strcmp(name, "lost_epoch"))
		return &d->lost_epoch;
	if (!strcmp(name, "lost_redirected"))
		return &d->lost_redirected;
	if (!strcmp(name, "log_series"))
		return &d->log_series;
	return NULL;
}

static int end_dump(struct dump *d, u64 items)
{
	d->seen_end = true;
	return items == d->items ? 0 :
	       dump_fail(d, "it should have %llu items and has %llu: lines are missing or too many",
			 (unsigned long long)items, (unsigned long long)d->items);
}

int dump_set(struct dump *d, const char *name, const char *value)
{
	u64 number, *own = own_value(d, name);

	if (d->seen_end)
		return dump_fail(d, "%s stands after its end", name);
	if (!strcmp(name, "uuid"))
		return to_hex(value, d->s.super.uuid, 16) ? 0 :
		       dump_fail(d, "uuid is not 32 digits");
	if (!to_number(value, &number))
		return dump_fail(d, "%s is not a number", name);
	if (!strcmp(name, "cowsnap-dump")) {
		d->seen_head = true;
		return number == DUMP_VERSION ? 0 :
		       dump_fail(d, "a dump of version %s; this program knows 1", value);
	}
	if (!strcmp(name, "end"))
		return end_dump(d, number);
	if (own) {
		*own = number;
		return 0;
	}
	return set_super_value(d, name, number);
}

/* ---- items ---- */

static const char *field(const struct dump_field *fields, int count, const char *name)
{
	int i;

	for (i = 0; i < count; i++)
		if (!strcmp(fields[i].name, name))
			return fields[i].value;
	return NULL;
}

static int name_to_state(const char *name)
{
	int state;

	for (state = COWSNAP_RECORD_LIVE; name && state < COWSNAP_RECORD_TRACKER; state++)
		if (!strcmp(name, record_state_name(state)))
			return state;
	return -1;
}

static int name_to_kind(const char *name)
{
	int kind;

	for (kind = COWSNAP_SLOT_COPIED; name && kind < COWSNAP_SLOT_KINDS; kind++)
		if (kind != COWSNAP_SLOT_RECORDS && kind != COWSNAP_SLOT_TRACK &&
		    !strcmp(name, kind_name(kind)))
			return kind;
	return -1;
}

static int add_snapshot(struct dump *d, const struct dump_field *f, int count)
{
	struct record r = { .number = d->s.nr_records };
	int state = name_to_state(field(f, count, "state"));
	u64 id, flags;

	if (state < 0 || !to_number(field(f, count, "id"), &id) ||
	    !to_number(field(f, count, "flags"), &flags) || flags > UINT32_MAX ||
	    id >= COWSNAP_MAX_SNAPSHOTS || d->s.nr_records >= COWSNAP_MAX_SNAPSHOTS ||
	    !to_number(field(f, count, "epoch"), &r.epoch) ||
	    !to_number(field(f, count, "sectors"), &r.sectors) ||
	    !to_number(field(f, count, "time"), &r.time))
		return dump_fail(d, "snapshot %zu of the dump is incomplete or wrong",
				 d->s.nr_records);
	r.id = id;
	r.flags = flags;
	r.state = state;
	return records_add(&d->s, &r) ? dump_fail(d, "out of memory") : 0;
}

static int add_records(struct dump *d, const struct dump_field *f, int count)
{
	struct entry e = { .kind = COWSNAP_SLOT_RECORDS };

	if (!to_number(field(f, count, "number"), &e.chunk) ||
	    !to_number(field(f, count, "place"), &e.place))
		return dump_fail(d, "records of the dump are incomplete or wrong");
	return store_add_entry(&d->s, &e) ? dump_fail(d, "out of memory") : 0;
}

static int add_run(struct dump *d, struct entry e, u64 count, const char *crcs)
{
	char one[9] = "";
	u8 crc[4];
	u64 i;

	for (i = 0; i < count; i++, e.chunk++, e.place++) {
		if (crcs) {
			memcpy(one, crcs + i * 8, 8);
			if (!to_hex(one, crc, 4))
				return dump_fail(d, "crc of chunk %llu: no such digits",
						 (unsigned long long)e.chunk);
			e.crc = (u32)crc[0] << 24 | crc[1] << 16 | crc[2] << 8 | crc[3];
		}
		if (store_add_entry(&d->s, &e))
			return dump_fail(d, "out of memory");
	}
	return 0;
}

static int add_exception(struct dump *d, const struct dump_field *f, int count)
{
	struct entry e = { 0 };
	const char *crcs = field(f, count, "crc");
	int kind = name_to_kind(field(f, count, "kind"));
	const char *fresh = field(f, count, "fresh");
	u64 run, is_fresh = 0;

	if (kind < 0 || !to_number(field(f, count, "epoch"), &e.epoch) ||
	    !to_number(field(f, count, "chunk"), &e.chunk) ||
	    !to_number(field(f, count, "place"), &e.place) ||
	    (fresh && !to_number(fresh, &is_fresh)) ||
	    !to_number(field(f, count, "count"), &run) || !run || run > DUMP_RUN)
		return dump_fail(d, "exception %zu of the dump is incomplete or wrong",
				 d->s.nr_entries);
	e.kind = kind;
	e.marks = is_fresh ? ENTRY_FRESH : 0;
	if (!exception_has_crc(&e))
		crcs = NULL;
	else if (!crcs || strlen(crcs) != run * 8)
		return dump_fail(d, "chunk %llu: not as many crcs as chunks",
				 (unsigned long long)e.chunk);
	return add_run(d, e, run, crcs);
}

int dump_item(struct dump *d, const char *list, const struct dump_field *fields, int count)
{
	if (d->seen_end)
		return dump_fail(d, "%s stands after its end", list);
	d->items++;
	if (!strcmp(list, "snapshot") || !strcmp(list, "snapshots"))
		return add_snapshot(d, fields, count);
	if (!strcmp(list, "records"))
		return add_records(d, fields, count);
	if (!strcmp(list, "exception") || !strcmp(list, "exceptions"))
		return add_exception(d, fields, count);
	return dump_fail(d, "%s is unknown", list);
}

/* ---- text ---- */

/* A line "name value", or "list field value field value ...". */
static int read_line(struct dump *d, char *line)
{
	struct dump_field fields[DUMP_MAX_FIELDS];
	char *save = NULL, *name = strtok_r(line, " \t\n", &save), *word;
	char *first = name ? strtok_r(NULL, " \t\n", &save) : NULL;
	int count = 0;

	if (!name || *name == '#')
		return 0;
	word = first ? strtok_r(NULL, " \t\n", &save) : NULL;
	if (!word)
		return dump_set(d, name, first);
	for (; first && word && count < DUMP_MAX_FIELDS; count++) {
		fields[count].name = first;
		fields[count].value = word;
		first = strtok_r(NULL, " \t\n", &save);
		word = first ? strtok_r(NULL, " \t\n", &save) : NULL;
	}
	if (first)
		return dump_fail(d, "a line of %s with a word too many", name);
	return dump_item(d, name, fields, count);
}

int dump_read_text(struct dump *d, FILE *in)
{
	char *line = NULL;
	size_t len = 0;
	int r = 0;

	while (!r && getline(&line, &len, in) > 0)
		r = read_line(d, line);
	free(line);
	if (!r && ferror(in))
		r = dump_fail(d, "it cannot be read");
	return r;
}

int dump_read(struct dump *d, const char *path)
{
	FILE *in;
	int first, r;

	memset(d, 0, sizeof(*d));
	d->s.super.merge_id = htole32(COWSNAP_NO_MERGE);
	in = strcmp(path, "-") ? fopen(path, "re") : stdin;
	if (!in)
		return dump_fail(d, "%s", strerror(errno));
	first = getc(in);
	ungetc(first, in);
	r = first == '{' ? dump_read_json(d, in) : dump_read_text(d, in);
	if (in != stdin)
		fclose(in);
	if (!r && !d->seen_head)
		r = dump_fail(d, "it is no dump of cowsnap");
	return r;
}

bool dump_has_current(const struct dump *d)
{
	return d->s.super.redirect || d->lost_redirected || current_is_there(&d->s);
}

void dump_free(struct dump *d)
{
	store_close(&d->s);
}

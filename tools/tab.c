// SPDX-License-Identifier: GPL-2.0-only
/* /etc/cowsnaptab is read, and every mistake in it is named. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "lib/snapshot.h"
#include "tab.h"

#define MAX_LINE	4096
#define MAX_FIELDS	5
#define BLANKS		" \t"

static void mistake(struct tab *t, unsigned int number, const char *format, ...)
{
	char where[300], text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(where, sizeof(where), "%s:%u", t->path, number);
	cannot(where, text);
	t->mistakes++;
}

/* ---- fields ---- */

static void read_name(struct tab *t, struct tab_line *l, const char *text)
{
	const char *why = place_bad_name(text);

	if (why)
		mistake(t, l->number, "the name \"%.*s\" %s", PLACE_NAME, text, why);
	else if (tab_find(t, text))
		mistake(t, l->number, "\"%s\" stands in line %u already; give each origin a name "
			"of its own", text, tab_find(t, text)->number);
	snprintf(l->name, sizeof(l->name), "%s", text);
}

const char *tab_bad_spec(const char *spec)
{
	static const char *const tags[] = { "UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=" };
	size_t i, n;

	if (strlen(spec) >= TAB_SPEC)
		return "is too long; use UUID= or PARTUUID=";
	for (i = 0; i < sizeof(tags) / sizeof(*tags); i++) {
		n = strlen(tags[i]);
		if (strncmp(spec, tags[i], n))
			continue;
		if (!spec[n])
			return "lacks what comes after the =; blkid prints it";
		if (strpbrk(spec + n, "\"'"))
			return "has quotes; write it without";
		return NULL;
	}
	if (strchr(spec, '=') && *spec != '/')
		return "has an unknown tag; use UUID=, LABEL=, PARTUUID=, PARTLABEL= or a path";
	if (strncmp(spec, "/dev/", 5) || !spec[5])
		return "is no path in /dev; use one, or UUID=, LABEL=, PARTUUID=, PARTLABEL=";
	if (strstr(spec, "/../") || ends_with(spec, "/.."))
		return "goes up with ..; write the path without";
	if (!strncmp(spec, "/dev/disk/by-uuid/", 18))
		return "is a link that only the origin has; write UUID= instead";
	if (!strncmp(spec, "/dev/disk/by-label/", 19))
		return "is a link that only the origin has; write LABEL= instead";
	if (!strncmp(spec, "/dev/mapper/", 12) && strchr(spec, '@'))
		return "is a snapshot; name a device that is none";
	return NULL;
}

static void read_spec(struct tab *t, const struct tab_line *l, const char *what, char *field,
		      const char *text)
{
	const char *why = tab_bad_spec(text);

	if (why)
		mistake(t, l->number, "%s \"%.300s\" %s", what, text, why);
	snprintf(field, TAB_SPEC, "%s", text);
}

/* A device is in one place of the file only. */
static void check_devices(struct tab *t, const struct tab_line *l)
{
	const struct tab_line *o;

	if (!strcmp(l->device, l->store))
		mistake(t, l->number, "device and store are both %s; a store needs a device of "
			"its own", l->device);
	for (o = t->line; o < t->line + t->nr_lines; o++) {
		if (!strcmp(l->device, o->device))
			mistake(t, l->number, "%s is the device of line %u already; remove one "
				"of the lines", l->device, o->number);
		if (!strcmp(l->store, o->store))
			mistake(t, l->number, "%s is the store of line %u already; each origin "
				"needs one of its own", l->store, o->number);
		if (!strcmp(l->store, o->device) || !strcmp(l->device, o->store))
			mistake(t, l->number, "%s is in line %u already, as %s; a device is one "
				"or the other", !strcmp(l->store, o->device) ? l->store : l->device,
				o->number, !strcmp(l->store, o->device) ? "device" : "store");
	}
}

/* ---- options ---- */

static bool is_number(const char *text, uint64_t max, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && !*end && *value <= max;
}

static void read_timeout(struct tab *t, struct tab_line *l, char *value)
{
	uint64_t seconds;

	if (ends_with(value, "s"))
		value[strlen(value) - 1] = '\0';
	if (is_number(value, 3600, &seconds) && seconds)
		l->timeout = seconds;
	else
		mistake(t, l->number, "\"%s\" is no time for x-systemd.device-timeout; use seconds, "
			"1 to 3600", value);
}

static void read_snapshot(struct tab *t, struct tab_line *l, char *value)
{
	uint64_t id;
	unsigned int i;

	if (!is_number(value, SNAPSHOT_MAX_ID, &id)) {
		mistake(t, l->number, "\"%s\" is no number of a snapshot; cowsnap list has it after "
			"the @", value);
		return;
	}
	for (i = 0; i < l->nr_snapshots; i++)
		if (l->snapshot[i] == id) {
			mistake(t, l->number, "snapshot=%s is there twice; remove one", value);
			return;
		}
	if (l->nr_snapshots == TAB_SNAPSHOTS)
		mistake(t, l->number, "there are more than %d snapshot=; cowsnap activate gives "
			"others a device", TAB_SNAPSHOTS);
	else
		l->snapshot[l->nr_snapshots++] = id;
}

static void read_uuid(struct tab *t, struct tab_line *l, char *value)
{
	if (strlen(value) == 32 && !value[strspn(value, "0123456789abcdef")])
		snprintf(l->store_uuid, sizeof(l->store_uuid), "%s", value);
	else
		mistake(t, l->number, "\"%s\" is no uuid of a store; cowsnap dump prints it, 32 "
			"digits from 0 to f", value);
}

static void read_discard(struct tab *t, struct tab_line *l, char *value)
{
	if (!strcmp(value, "skip") || !strcmp(value, "preserve") || !strcmp(value, "none"))
		snprintf(l->discard, sizeof(l->discard), "%s", value);
	else
		mistake(t, l->number, "discard=\"%s\" is none of skip, preserve, none", value);
}

static void read_time(struct tab *t, const struct tab_line *l, const char *word, const char *value,
		      uint64_t *time)
{
	if (!is_number(value, UINT64_MAX / 2, time) || !*time)
		mistake(t, l->number, "%s=\"%s\" is no time in seconds since 1970, as date +%%s "
			"prints it", word, value);
}

static void read_invalid(struct tab *t, struct tab_line *l, char *value)
{
	read_time(t, l, "invalid", value, &l->invalid);
}

static void read_died(struct tab *t, struct tab_line *l, char *value)
{
	read_time(t, l, "died", value, &l->died);
}

uint64_t tab_lost(const struct tab_line *l)
{
	return l->invalid > l->died ? l->invalid : l->died;
}

static const struct tab_option {
	const char *word;
	size_t flag;		/* what it sets, or 0 */
	void (*read)(struct tab *t, struct tab_line *l, char *value);
} options[] = {
	{ "nofail", offsetof(struct tab_line, nofail), NULL },
	{ "noauto", offsetof(struct tab_line, noauto), NULL },
	{ "initramfs", offsetof(struct tab_line, initramfs), NULL },
	{ "x-systemd.device-timeout", 0, read_timeout },
	{ "snapshot", 0, read_snapshot },
	{ "store-uuid", 0, read_uuid },
	{ "discard", 0, read_discard },
	{ "invalid", 0, read_invalid },
	{ "died", 0, read_died },
};

#define NR_OPTIONS	(sizeof(options) / sizeof(*options))

static void set_option(struct tab *t, struct tab_line *l, size_t i, char *value, bool *seen)
{
	const struct tab_option *o = &options[i];

	if (seen[i] && o->read != read_snapshot)
		mistake(t, l->number, "option %s is there twice; remove one", o->word);
	else if (!o->read && value)
		mistake(t, l->number, "option %s takes no value; remove \"=%s\"", o->word, value);
	else if (o->read && (!value || !*value))
		mistake(t, l->number, "option %s lacks its value; write %s=VALUE", o->word, o->word);
	else if (o->read)
		o->read(t, l, value);
	else
		*(bool *)((char *)l + o->flag) = true;
	seen[i] = true;
}

static void read_options(struct tab *t, struct tab_line *l, char *text)
{
	bool seen[NR_OPTIONS] = { false };
	char *word, *value;
	size_t i;

	if (!strcmp(text, "-") || !strcmp(text, "defaults"))
		return;
	while ((word = strsep(&text, ","))) {
		value = strchr(word, '=');
		if (value)
			*value++ = '\0';
		for (i = 0; i < NR_OPTIONS && strcmp(word, options[i].word); i++)
			;
		if (i < NR_OPTIONS)
			set_option(t, l, i, value, seen);
		else if (!*word)
			mistake(t, l->number, "an option is empty; remove a comma");
		else
			mistake(t, l->number, "option \"%s\" is unknown; cowsnaptab(5) lists them",
				word);
	}
	if (l->noauto && l->initramfs)
		mistake(t, l->number, "noauto and initramfs contradict each other; remove one");
}

/* ---- lines ---- */

static void read_fields(struct tab *t, struct tab_line *l, char **field, int n)
{
	unsigned int before = t->mistakes;

	if (n < 3) {
		mistake(t, l->number, "%s; a line is NAME DEVICE STORE [OPTION,...]",
			n == 1 ? "device and store are missing" : "the store is missing");
		return;
	}
	l->timeout = TAB_TIMEOUT;
	read_name(t, l, field[0]);
	read_spec(t, l, "device", l->device, field[1]);
	read_spec(t, l, "store", l->store, field[2]);
	if (t->mistakes == before)
		check_devices(t, l);
	l->legible = t->mistakes == before;
	if (n > 3)
		read_options(t, l, field[3]);
	if (n > 4)
		mistake(t, l->number, "\"%s\" is a word too many; write options with commas, without "
			"blanks", field[4]);
}

/* What no line may have. */
static const char *bad_text(const char *text, size_t n)
{
	size_t i;

	if (strlen(text) < n)
		return "there is a zero byte; write the line anew";
	if (n >= MAX_LINE)
		return "the line is too long; use at most 4095 characters";
	if (n && text[n - 1] == '\r')
		return "it ends as lines of Windows do; remove the carriage return";
	for (i = 0; i < n; i++)
		if (iscntrl((unsigned char)text[i]) && text[i] != '\t')
			return "there is a control character; write the line anew";
	return NULL;
}

/* What else the line says counts: it tells which device must not be used as it is. */
static void clean_text(char *text)
{
	for (; *text; text++)
		if (iscntrl((unsigned char)*text))
			*text = ' ';
}

static int add_line(struct tab *t, unsigned int number, char *text, size_t n)
{
	struct tab_line *more, l = { .number = number };
	const char *why = bad_text(text, n);
	unsigned int before = t->mistakes;
	char *field[MAX_FIELDS], *word;
	int fields = 0;

	if (why)
		mistake(t, number, "%s", why);
	clean_text(text);
	for (word = strtok(text, BLANKS); word && fields < MAX_FIELDS; word = strtok(NULL, BLANKS))
		field[fields++] = word;
	if (!fields || *field[0] == '#')
		return 0;
	read_fields(t, &l, field, fields);
	l.wrong = t->mistakes != before;
	more = realloc(t->line, (t->nr_lines + 1) * sizeof(l));
	if (!more)
		return cannot(t->path, "out of memory");
	t->line = more;
	t->line[t->nr_lines++] = l;
	return 0;
}

static int read_lines(struct tab *t, FILE *in)
{
	unsigned int number = 0;
	char *text = NULL;
	size_t room = 0;
	ssize_t n;
	int r = 0;

	while (!r && (n = getline(&text, &room, in)) >= 0) {
		if (n && text[n - 1] == '\n')
			text[--n] = '\0';
		r = add_line(t, ++number, text, n);
	}
	if (!r && ferror(in))
		r = cannot_because(t->path, "%s", strerror(errno));
	free(text);
	return r;
}

int tab_try(struct tab *t, const char *name, const char *line)
{
	struct tab_line *old = tab_find(t, name);
	unsigned int last = t->nr_lines ? t->line[t->nr_lines - 1].number : 0;
	unsigned int number = old ? old->number : last + 1;
	char *text = strdup(line);
	int r;

	if (!text)
		return cannot(t->path, "out of memory");
	if (old)
		*old = t->line[--t->nr_lines];
	r = add_line(t, number, text, strlen(text));
	free(text);
	return r || t->mistakes ? EXIT_CANNOT : 0;
}

int tab_read(struct tab *t, const char *path)
{
	struct stat st;
	FILE *in;
	int r;

	memset(t, 0, sizeof(*t));
	t->path = path;
	in = fopen(path, "re");
	if (!in && errno == ENOENT)
		return 0;
	if (!in)
		return cannot_because(path, "%s", strerror(errno));
	if (fstat(fileno(in), &st) || !S_ISREG(st.st_mode))
		r = cannot(path, "no file; it has to be one of lines NAME DEVICE STORE "
			   "[OPTION,...]");
	else
		r = read_lines(t, in);
	fclose(in);
	return r || t->mistakes ? EXIT_CANNOT : 0;
}

void tab_free(struct tab *t)
{
	free(t->line);
	t->line = NULL;
	t->nr_lines = 0;
}

struct tab_line *tab_find(const struct tab *t, const char *name)
{
	unsigned int i;

	for (i = 0; i < t->nr_lines; i++)
		if (!strcmp(t->line[i].name, name))
			return &t->line[i];
	return NULL;
}

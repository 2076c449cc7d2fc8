// SPDX-License-Identifier: GPL-2.0-only
/* The options of a store. The module checks them too, but can only say so in its log. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dm-cowsnap-format.h"
#include "session.h"
#include "size.h"
#include "tuning.h"

#define KIB 1024

enum unit { WORD, PLAIN, SIZE };

static const struct tuning {
	const char *name;
	enum unit unit;
	unsigned long min, max;		/* of a size: KiB */
} tunings[] = {
	{ "on_full", WORD, 0, 0 },
	{ "wait_timeout", PLAIN, 1, 119 },
	{ "low_water", PLAIN, 1, 100 },
	{ "throttle", PLAIN, 1, 100 },
	{ "copy_ahead", SIZE, 0, 65536 },
	{ "copy_around", SIZE, 0, 1024 },
	{ "undo_buffer", SIZE, 0, 1048576 },
	{ "log", WORD, 0, 0 },
	{ "redirect", PLAIN, 0, COWSNAP_MAX_REDIRECT },
	{ "settle", WORD, 0, 0 },
};

#define NR ((int)(sizeof(tunings) / sizeof(*tunings)))

/* on-full is on_full. */
static bool is_name(const char *name, const char *given)
{
	for (; *name && *given; name++, given++)
		if (*name != *given && (*name != '_' || *given != '-'))
			return false;
	return !*name && !*given;
}

static const struct tuning *find(const char *name)
{
	int i;

	for (i = 0; i < NR; i++)
		if (is_name(tunings[i].name, name))
			return &tunings[i];
	return NULL;
}

static int read_word(const char *what, const struct tuning *t, const char *value)
{
	if (!strcmp(t->name, "log"))
		return !strcmp(value, "on") || !strcmp(value, "off") ||
		       !strcmp(value, "redirected") ? 0 :
		       cannot_because(what, "log \"%s\" is none of off, on, redirected", value);
	if (!strcmp(t->name, "settle"))
		return !strcmp(value, "idle") || !strcmp(value, "now") || !strcmp(value, "off") ? 0 :
		       cannot_because(what, "settle \"%s\" is none of idle, now, off", value);
	if (!strcmp(value, "invalidate") || !strcmp(value, "drop_oldest") ||
	    !strcmp(value, "wait"))
		return 0;
	return cannot_because(what, "%s \"%s\" is none of invalidate, drop_oldest, wait", t->name,
			      value);
}

static int read_kib(const char *what, const struct tuning *t, const char *value,
		    unsigned long *number)
{
	uint64_t bytes;

	if (size_read(value, &bytes) || bytes % KIB || bytes / KIB > t->max)
		return cannot_because(what, "%s \"%s\" is no size from 0 to %luK", t->name, value,
				      t->max);
	*number = bytes / KIB;
	if (!strcmp(t->name, "copy_around") && *number &&
	    (*number < 32 || (*number & (*number - 1))))
		return cannot_because(what, "%s \"%s\" is neither 0 nor a power of two from 32K "
					    "to 1024K",
				      t->name, value);
	return 0;
}

int tuning_read(const char *what, const char *name, const char *value, char *text, size_t len)
{
	const struct tuning *t = find(name);
	unsigned long number = 0;
	char about[64];
	int status;

	if (!t)
		return cannot_because(what, "\"%s\" is no option of a store, which are on_full, "
				      "wait_timeout, low_water, throttle, copy_ahead, copy_around, "
				      "undo_buffer, log, redirect, settle", name);
	snprintf(about, sizeof(about), "%s: %s", what, t->name);
	status = t->unit == WORD ? read_word(what, t, value) :
		 t->unit == SIZE ? read_kib(what, t, value, &number) :
		 read_number(about, value, t->min, t->max, &number);
	if (status)
		return status;
	if (t->unit == WORD)
		snprintf(text, len, "%s %s", t->name, value);
	else
		snprintf(text, len, "%s %lu", t->name, number);
	return 0;
}

int tuning_given(const struct words *w, char *text, size_t len)
{
	const struct option_text *o;
	char one[64];
	int words = 0;

	*text = '\0';
	for (o = w->command->options; o->name; o++) {
		if (!find(o->name) || !option_given(w, o->name))
			continue;
		if (tuning_read(w->command->name, o->name, option_value(w, o->name), one,
				sizeof(one)))
			return -1;
		snprintf(text + strlen(text), len - strlen(text), " %s", one);
		words += 2;
	}
	return words;
}

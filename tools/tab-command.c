// SPDX-License-Identifier: GPL-2.0-only
/* cowsnap tab: what /etc/cowsnaptab lists is checked, started and stopped. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "session.h"
#include "tab-command.h"
#include "tab.h"

const struct option_text tab_options[] = {
	{ "file", 0, "FILE", "another file than /etc/cowsnaptab" },
	{ "wait", 'w', "SECONDS", "wait so long for devices (default: do not)" },
	{ NULL },
};

struct request {
	const struct words *w;
	struct tab tab;
	unsigned long wait;
	int status;		/* of reading the file */
};

static int do_check(struct request *r)
{
	if (!r->status)
		printf("%s: %u line%s, nothing wrong\n", r->tab.path, r->tab.nr_lines,
		       r->tab.nr_lines == 1 ? "" : "s");
	return r->status;
}

static int start_one(struct request *r, const struct tab_line *l)
{
	const struct tab_start s = { .tab = &r->tab, .wait = r->wait };

	return tab_start(&s, l);
}

static int stop_one(struct request *r, const struct tab_line *l)
{
	return tab_stop(&r->tab, l);
}

/* What cannot be said to be about some device is nobody's; other lines have their own status. */
static int status_of_file(const struct request *r)
{
	const struct tab_line *l;

	if (!r->tab.mistakes)
		return r->status;
	for (l = r->tab.line; r->w->nr_words == 1 && l < r->tab.line + r->tab.nr_lines; l++)
		if (!l->legible)
			return r->status;
	return 0;
}

/* The lines that are named, or all but noauto. A wrong one costs the others nothing. */
static int each(struct request *r, int (*act)(struct request *r, const struct tab_line *l),
		bool noauto)
{
	const struct tab_line *l;
	int i, status = status_of_file(r);

	for (i = 1; i < r->w->nr_words; i++) {
		l = tab_find(&r->tab, r->w->word[i]);
		if (!l)
			status |= cannot_because(r->w->word[i], "there is no line of that name in %s",
						 r->tab.path);
		else if (l->legible)
			status |= act(r, l);
	}
	for (l = r->tab.line; r->w->nr_words == 1 && l < r->tab.line + r->tab.nr_lines; l++)
		if (l->legible && (noauto || !l->noauto))
			status |= act(r, l);
	return status ? EXIT_CANNOT : 0;
}

static int do_start(struct request *r)
{
	return each(r, start_one, false);
}

static int do_stop(struct request *r)
{
	return each(r, stop_one, true);
}

static int do_settle(struct request *r)
{
	return r->status | tab_settle(&r->tab);
}

static int do_units(struct request *r)
{
	if (r->w->nr_words != 2)
		return cannot("tab units", "name one directory for the units");
	return r->status | tab_write_units(&r->tab, r->w->word[1]);
}

static int do_owns(struct request *r)
{
	return tab_owns(&r->tab);
}

static const struct verb {
	const char *name;
	int (*run)(struct request *r);
	bool words;
} verbs[] = {
	{ "check", do_check, false },
	{ "start", do_start, true },
	{ "stop", do_stop, true },
	{ "settle", do_settle, false },
	{ "units", do_units, true },
	{ "owns", do_owns, false },
};

static const struct verb *find(const struct words *w)
{
	size_t i;

	for (i = 0; i < sizeof(verbs) / sizeof(*verbs); i++)
		if (!strcmp(w->word[0], verbs[i].name))
			return &verbs[i];
	cannot_because("tab", "\"%s\" is none of check, start, stop, settle, units, owns",
		       w->word[0]);
	return NULL;
}

int command_tab(const struct words *w)
{
	const char *file = option_value(w, "file");
	const struct verb *v = find(w);
	struct request r = { .w = w };
	int status;

	if (!v || read_number("--wait", option_value(w, "wait"), 0, 3600, &r.wait))
		return EXIT_CANNOT;
	if (!v->words && w->nr_words > 1)
		return cannot_because("tab", "\"%s\" is a word too many for %s", w->word[1],
				      v->name);
	r.status = tab_read(&r.tab, file ? file : TAB_FILE);
	status = v->run(&r);
	tab_free(&r.tab);
	return status;
}

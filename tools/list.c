// SPDX-License-Identifier: GPL-2.0-only
/* What there is: list as a tree, status with every counter. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "itemjson.h"
#include "list.h"
#include "prometheus.h"
#include "session.h"
#include "size.h"

const struct option_text list_options[] = {
	{ "json", 0, NULL, "print JSON instead of text" },
	{ NULL },
};

const struct option_text status_options[] = {
	{ "json", 0, NULL, "print JSON instead of text" },
	{ "prometheus", 0, NULL, "print metrics for Prometheus instead" },
	{ NULL },
};

static const char *or_dash(const char *text)
{
	return text ? text : "-";
}

static void print_row(int indent, const char *name, const char *size, const char *used,
		      const char *age, const char *state, const char *device)
{
	char left[300];

	snprintf(left, sizeof(left), "%*s%s", indent, "", name);
	printf("%-26s %7s %13s %8s  %-10s %s\n", left, size, used, age, state, device);
}

static void print_snapshot(const struct cowsnap_item *s)
{
	uint64_t made = cowsnap_number(s, "time"), now = time(NULL);
	char size[16], age[32];

	print_row(4, cowsnap_get(s, "name"), size_text(cowsnap_number(s, "size"), size,
						       sizeof(size)), "-",
		  made ? time_text(now > made ? now - made : 0, age, sizeof(age)) : "-",
		  cowsnap_get(s, "state"), or_dash(cowsnap_get(s, "device")));
}

/* What the store has of its origin: how much of how much it may. */
static void print_redirected(const struct cowsnap_item *s)
{
	uint64_t percent = cowsnap_number(s, "redirect"), size = cowsnap_number(s, "size");
	uint64_t used = cowsnap_number(s, "unsettled") * cowsnap_number(s, "chunk");
	char name[40], of[16], part[16];

	if (!percent && !used)
		return;
	snprintf(name, sizeof(name), "redirect %" PRIu64 "%%", percent);
	print_row(4, name, size_text(size * percent / 100, of, sizeof(of)),
		  size_text(used, part, sizeof(part)), "-", used ? "unsettled" : "settled", "-");
}

static void print_store(const struct cowsnap_item *s)
{
	uint64_t size = cowsnap_number(s, "size"), used = cowsnap_number(s, "used");
	const struct cowsnap_item *snap;
	char of[16], part[16], share[40];

	snprintf(share, sizeof(share), "%s %3.0f%%", size_text(used, part, sizeof(part)),
		 size ? 100.0 * used / size : 0);
	print_row(2, cowsnap_get(s, "device"), size_text(size, of, sizeof(of)), share, "-",
		  cowsnap_number(s, "sealed") ? "sealed" : cowsnap_get(s, "type"), "-");
	print_redirected(s);
	for (snap = cowsnap_inside(s); snap; snap = cowsnap_next(snap))
		print_snapshot(snap);
}

static void print_origin(const struct cowsnap_item *o)
{
	const struct cowsnap_item *store;
	char size[16];

	print_row(0, cowsnap_get(o, "name"), size_text(cowsnap_number(o, "size"), size,
						       sizeof(size)), "-", "-",
		  cowsnap_get(o, "state"), or_dash(cowsnap_get(o, "device")));
	for (store = cowsnap_inside(o); store; store = cowsnap_next(store))
		print_store(store);
}

/* What the command line names; *@chosen stays NULL: everything. */
static int choose(const struct words *w, struct cowsnap *c, const struct cowsnap_item **chosen)
{
	*chosen = NULL;
	if (!w->nr_words)
		return 0;
	*chosen = cowsnap_find(c, w->word[0]);
	if (*chosen)
		return 0;
	return cannot_because(w->word[0], "neither an origin nor a snapshot (ORIGIN@NUMBER); "
			      "cowsnap list shows all");
}

static void print_json(struct cowsnap *c, const struct cowsnap_item *chosen)
{
	json_object *list = json_object_new_array();
	const struct cowsnap_item *o;

	for (o = chosen ? chosen : cowsnap_first(c); o; o = chosen ? NULL : cowsnap_next(o))
		json_object_array_add(list, json_of_item(o));
	json_print(chosen && cowsnap_kind(chosen) == COWSNAP_SNAPSHOT ? "snapshots" : "origins",
		   list);
}

static void print_tree(struct cowsnap *c, const struct cowsnap_item *chosen)
{
	const struct cowsnap_item *o;

	print_row(0, "NAME", "SIZE", "USED", "AGE", "STATE", "DEVICE");
	if (chosen && cowsnap_kind(chosen) == COWSNAP_SNAPSHOT)
		print_snapshot(chosen);
	else
		for (o = chosen ? chosen : cowsnap_first(c); o;
		     o = chosen ? NULL : cowsnap_next(o))
			print_origin(o);
}

/* A session and what was chosen, which is printed if it is to be JSON. NULL without a session. */
static struct cowsnap *open_chosen(const struct words *w, const struct cowsnap_item **chosen,
				   int *status)
{
	struct cowsnap *c = session_open(w);

	if (!c)
		return NULL;
	*status = choose(w, c, chosen);
	if (!*status && option_given(w, "json"))
		print_json(c, *chosen);
	return c;
}

int command_list(const struct words *w)
{
	const struct cowsnap_item *chosen;
	int status;
	struct cowsnap *c = open_chosen(w, &chosen, &status);

	if (!c)
		return EXIT_CANNOT;
	if (!status && !option_given(w, "json"))
		print_tree(c, chosen);
	return session_end(c, status);
}

/* ---- status ---- */

static bool is_lost(const struct cowsnap_item *item)
{
	static const char *const lost[] = {
		"invalid", "overflowed", "dropped", "merge failed", "unprotected",
	};
	const char *state = cowsnap_get(item, "state");
	size_t i;

	for (i = 0; state && i < sizeof(lost) / sizeof(*lost); i++)
		if (!strcmp(state, lost[i]))
			return true;
	return false;
}

/* Is anything of it, or inside it, lost? */
static bool any_lost(const struct cowsnap_item *item)
{
	const struct cowsnap_item *i;

	if (is_lost(item))
		return true;
	for (i = cowsnap_inside(item); i; i = cowsnap_next(i))
		if (any_lost(i))
			return true;
	return false;
}

static void print_all(const struct cowsnap_item *item, int indent)
{
	static const char *const kinds[] = { "", "origin", "store", "snapshot" };
	const struct cowsnap_item *i;
	const char *key;
	unsigned int n;

	printf("%*s%s %s\n", indent, "", kinds[cowsnap_kind(item)],
	       cowsnap_get(item, cowsnap_kind(item) == COWSNAP_STORE ? "device" : "name"));
	for (n = 0; (key = cowsnap_key(item, n)); n++)
		printf("%*s%-18s %s\n", indent + 2, "", key, cowsnap_get(item, key));
	for (i = cowsnap_inside(item); i; i = cowsnap_next(i))
		print_all(i, indent + 2);
}

int command_status(const struct words *w)
{
	const struct cowsnap_item *chosen, *o;
	bool lost = false;
	int status;
	struct cowsnap *c = open_chosen(w, &chosen, &status);

	if (!c)
		return EXIT_CANNOT;
	if (!status && option_given(w, "prometheus"))
		status = prometheus_print(c, chosen);
	for (o = chosen ? chosen : cowsnap_first(c); o && !status;
	     o = chosen ? NULL : cowsnap_next(o)) {
		lost |= any_lost(o);
		if (!option_given(w, "json") && !option_given(w, "prometheus"))
			print_all(o, 0);
	}
	return session_end(c, status ? status : lost ? EXIT_DAMAGE : EXIT_CLEAN);
}

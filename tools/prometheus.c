// SPDX-License-Identifier: GPL-2.0-only
/*
 * Numbers as Prometheus reads them: cowsnap_KIND_KEY{labels} value, a metric's lines together. What
 * is no number but a state is a label of cowsnap_KIND_state, whose value is 1.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "prometheus.h"

#define MAX_METRICS 256

struct metric {
	enum cowsnap_kind kind;
	char key[64];
};

struct metrics {
	struct metric list[MAX_METRICS];
	int nr;
};

static const char *const kinds[] = { "", "origin", "store", "snapshot" };

/* Which are names, of the device or of the item, and change with each boot. */
static bool is_shown(const struct cowsnap_item *item, const char *key)
{
	return !strcmp(key, "state") || (cowsnap_is_number(item, key) && strcmp(key, "id"));
}

static void note(struct metrics *m, enum cowsnap_kind kind, const char *key)
{
	int i;

	for (i = 0; i < m->nr; i++)
		if (m->list[i].kind == kind && !strcmp(m->list[i].key, key))
			return;
	if (m->nr == MAX_METRICS)
		return;
	m->list[m->nr].kind = kind;
	snprintf(m->list[m->nr++].key, sizeof(m->list->key), "%s", key);
}

static void collect(struct metrics *m, const struct cowsnap_item *item)
{
	const struct cowsnap_item *i;
	const char *key;
	unsigned int n;

	for (n = 0; (key = cowsnap_key(item, n)); n++)
		if (is_shown(item, key))
			note(m, cowsnap_kind(item), key);
	for (i = cowsnap_inside(item); i; i = cowsnap_next(i))
		collect(m, i);
}

static void print_label(const char *name, const char *value, const char *before)
{
	printf("%s%s=\"", before, name);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			putchar('\\');
		putchar(*value);
	}
	putchar('"');
}

static void print_line(const struct metric *m, const struct cowsnap_item *item)
{
	const struct cowsnap_item *up = cowsnap_parent(item);
	const char *value = cowsnap_get(item, m->key);

	printf("cowsnap_%s_%s{", kinds[m->kind], m->key);
	if (m->kind == COWSNAP_STORE) {
		print_label("origin", cowsnap_get(up, "name"), "");
		print_label("store", cowsnap_get(item, "device"), ",");
	} else {
		print_label(kinds[m->kind], cowsnap_get(item, "name"), "");
	}
	if (strcmp(m->key, "state")) {
		printf("} %s\n", value);
		return;
	}
	print_label("state", value, ",");
	puts("} 1");
}

static void print_metric(const struct metric *m, const struct cowsnap_item *item)
{
	const struct cowsnap_item *i;

	if (cowsnap_kind(item) == m->kind && cowsnap_get(item, m->key) && is_shown(item, m->key))
		print_line(m, item);
	for (i = cowsnap_inside(item); i; i = cowsnap_next(i))
		print_metric(m, i);
}

int prometheus_print(struct cowsnap *c, const struct cowsnap_item *chosen)
{
	struct metrics *m = calloc(1, sizeof(*m));
	const struct cowsnap_item *o;
	int i;

	if (!m)
		return cannot("status", "out of memory");
	for (o = chosen ? chosen : cowsnap_first(c); o; o = chosen ? NULL : cowsnap_next(o))
		collect(m, o);
	for (i = 0; i < m->nr; i++) {
		printf("# TYPE cowsnap_%s_%s untyped\n", kinds[m->list[i].kind], m->list[i].key);
		for (o = chosen ? chosen : cowsnap_first(c); o;
		     o = chosen ? NULL : cowsnap_next(o))
			print_metric(&m->list[i], o);
	}
	free(m);
	return 0;
}

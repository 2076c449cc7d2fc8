// SPDX-License-Identifier: GPL-2.0-only
/* Items: keys with values, in a tree. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "item.h"

struct cowsnap_item *item_add(struct cowsnap_item **list, struct cowsnap_item *parent,
			      enum cowsnap_kind kind)
{
	struct cowsnap_item *item = calloc(1, sizeof(*item));

	if (!item)
		return NULL;
	item->kind = kind;
	item->parent = parent;
	while (*list)
		list = &(*list)->next;
	*list = item;
	return item;
}

void item_free_all(struct cowsnap_item *item)
{
	struct cowsnap_item *next;
	unsigned int i;

	for (; item; item = next) {
		next = item->next;
		item_free_all(item->inside);
		for (i = 0; i < item->nr_properties; i++) {
			free(item->property[i].key);
			free(item->property[i].value);
		}
		free(item->property);
		free(item);
	}
}

static struct property *find(const struct cowsnap_item *item, const char *key)
{
	unsigned int i;

	for (i = 0; i < item->nr_properties; i++)
		if (!strcmp(item->property[i].key, key))
			return &item->property[i];
	return NULL;
}

static struct property *find_or_add(struct cowsnap_item *item, const char *key)
{
	struct property *p = find(item, key);

	if (p)
		return p;
	p = realloc(item->property, (item->nr_properties + 1) * sizeof(*p));
	if (!p)
		return NULL;
	item->property = p;
	p += item->nr_properties;
	*p = (struct property){ .key = strdup(key) };
	if (!p->key)
		return NULL;
	item->nr_properties++;
	return p;
}

static int set(struct cowsnap_item *item, const char *key, const char *value, bool number)
{
	struct property *p = find_or_add(item, key);
	char *copy = strdup(value);

	if (!p || !copy) {
		free(copy);
		return -1;
	}
	free(p->value);
	p->value = copy;
	p->number = number;
	return 0;
}

int item_set(struct cowsnap_item *item, const char *key, const char *value)
{
	return set(item, key, value, false);
}

int item_set_number(struct cowsnap_item *item, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	return set(item, key, text, true);
}

struct cowsnap_item *item_with(struct cowsnap_item *list, const char *key, const char *value)
{
	const char *has;

	for (; list; list = list->next) {
		has = cowsnap_get(list, key);
		if (has && !strcmp(has, value))
			return list;
	}
	return NULL;
}

struct cowsnap_item *item_with_number(struct cowsnap_item *list, const char *key,
				      uint64_t value)
{
	for (; list; list = list->next)
		if (cowsnap_is_number(list, key) && cowsnap_number(list, key) == value)
			return list;
	return NULL;
}

/* ---- what programs see ---- */

const struct cowsnap_item *cowsnap_next(const struct cowsnap_item *item)
{
	return item->next;
}

const struct cowsnap_item *cowsnap_inside(const struct cowsnap_item *item)
{
	return item->inside;
}

const struct cowsnap_item *cowsnap_parent(const struct cowsnap_item *item)
{
	return item->parent;
}

enum cowsnap_kind cowsnap_kind(const struct cowsnap_item *item)
{
	return item->kind;
}

const char *cowsnap_key(const struct cowsnap_item *item, unsigned int number)
{
	return number < item->nr_properties ? item->property[number].key : NULL;
}

const char *cowsnap_get(const struct cowsnap_item *item, const char *key)
{
	const struct property *p = find(item, key);

	return p ? p->value : NULL;
}

uint64_t cowsnap_number(const struct cowsnap_item *item, const char *key)
{
	const struct property *p = find(item, key);

	return p && p->number ? strtoull(p->value, NULL, 10) : 0;
}

int cowsnap_is_number(const struct cowsnap_item *item, const char *key)
{
	const struct property *p = find(item, key);

	return p && p->number;
}

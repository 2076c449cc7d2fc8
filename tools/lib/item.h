/* SPDX-License-Identifier: GPL-2.0-only */
/* Items: keys with values, in a tree. */
#ifndef LIBCOWSNAP_ITEM_H
#define LIBCOWSNAP_ITEM_H

#include <stdbool.h>

#include "cowsnap.h"

struct property {
	char *key;
	char *value;
	bool number;
};

struct cowsnap_item {
	enum cowsnap_kind kind;
	struct cowsnap_item *parent;
	struct cowsnap_item *next;
	struct cowsnap_item *inside;
	struct property *property;
	unsigned int nr_properties;
};

/* A new one at the end of *@list. NULL: no memory. */
struct cowsnap_item *item_add(struct cowsnap_item **list, struct cowsnap_item *parent,
			      enum cowsnap_kind kind);
/* @item, what is inside it, and those after it. */
void item_free_all(struct cowsnap_item *item);

/* A key gets a value, in the place of the one it had. 0, or -1: no memory. */
int item_set(struct cowsnap_item *item, const char *key, const char *value);
int item_set_number(struct cowsnap_item *item, const char *key, uint64_t value);

/* The one whose @key has this value; NULL. */
struct cowsnap_item *item_with(struct cowsnap_item *list, const char *key, const char *value);
struct cowsnap_item *item_with_number(struct cowsnap_item *list, const char *key,
				      uint64_t value);

#endif

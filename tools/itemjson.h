/* SPDX-License-Identifier: GPL-2.0-only */
/* Items of the library as JSON. */
#ifndef COWSNAP_TOOLS_ITEMJSON_H
#define COWSNAP_TOOLS_ITEMJSON_H

#include <json-c/json.h>

#include "lib/cowsnap.h"

/* An item, with what is inside it as a list of stores, or of snapshots. */
json_object *json_of_item(const struct cowsnap_item *item);
/* { "<key>": value }, printed; the value is gone then. */
void json_print(const char *key, json_object *value);

#endif

// SPDX-License-Identifier: GPL-2.0-only
/* Items of the library as JSON. */
#include <stdio.h>

#include "itemjson.h"

json_object *json_of_item(const struct cowsnap_item *item)
{
	json_object *object = json_object_new_object(), *list;
	const struct cowsnap_item *i;
	const char *key;
	unsigned int n;

	for (n = 0; (key = cowsnap_key(item, n)); n++)
		json_object_object_add(object, key, cowsnap_is_number(item, key) ?
				       json_object_new_int64(cowsnap_number(item, key)) :
				       json_object_new_string(cowsnap_get(item, key)));
	if (cowsnap_kind(item) == COWSNAP_SNAPSHOT)
		return object;
	list = json_object_new_array();
	for (i = cowsnap_inside(item); i; i = cowsnap_next(i))
		json_object_array_add(list, json_of_item(i));
	json_object_object_add(object, cowsnap_kind(item) == COWSNAP_ORIGIN ? "stores" :
			       "snapshots", list);
	return object;
}

void json_print(const char *key, json_object *value)
{
	json_object *object = json_object_new_object();

	json_object_object_add(object, key, value);
	puts(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY |
					    JSON_C_TO_STRING_SPACED));
	json_object_put(object);
}

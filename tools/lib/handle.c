// SPDX-License-Identifier: GPL-2.0-only
/* Handles, and how their functions fail. */
#include <libdevmapper.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handle.h"
#include "item.h"
#include "map.h"
#include "sys.h"

int cowsnap_abi(void)
{
	return COWSNAP_ABI;
}

int fail(struct cowsnap *c, enum cowsnap_result result, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->error, sizeof(c->error), format, args);
	va_end(args);
	return result;
}

int fail_no_memory(struct cowsnap *c)
{
	return fail(c, COWSNAP_NO_MEMORY, "out of memory");
}

int cowsnap_open(struct cowsnap **c)
{
	*c = calloc(1, sizeof(**c));
	if (!*c)
		return COWSNAP_NO_MEMORY;
	return map_init(*c);
}

void cowsnap_close(struct cowsnap *c)
{
	if (!c)
		return;
	item_free_all(c->origins);
	free(c);
}

const char *cowsnap_error(const struct cowsnap *c)
{
	return c ? c->error : "out of memory";
}

void cowsnap_dry_run(struct cowsnap *c, void (*line)(void *data, const char *text), void *data)
{
	c->line = line;
	c->data = data;
}

const struct cowsnap_item *cowsnap_first(const struct cowsnap *c)
{
	return c->origins;
}

/* ---- by name ---- */

/* The item of a path, or of LVM's volume, VG/LV. */
static bool number_of(const char *name, char *number, size_t len)
{
	char path[300];

	if (!strchr(name, '/'))
		return false;
	if (sys_number(name, number, len))
		return true;
	snprintf(path, sizeof(path), "/dev/%s", name);
	return *name != '/' && sys_number(path, number, len);
}

/* @name may be a path: of the origin's device, of one below it, or a link to one of these. */
static const struct cowsnap_item *find_origin(const struct cowsnap *c, const char *name)
{
	const struct cowsnap_item *o = item_with(c->origins, "name", name);
	char number[16];

	if (o || !number_of(name, number, sizeof(number)))
		return o;
	o = item_with(c->origins, "number", number);
	return o ? o : item_with(c->origins, "below", number);
}

/* The snapshot that has this device, or its name, as LVM's are called. */
static const struct cowsnap_item *find_by_device(const struct cowsnap *c, const char *name)
{
	const struct cowsnap_item *o, *store, *snap = NULL;
	char number[16], device[300];
	bool path = number_of(name, number, sizeof(number));

	if (!path && strchr(name, '/'))
		return NULL;
	snprintf(device, sizeof(device), "/dev/mapper/%s", name);
	for (o = c->origins; o && !snap; o = o->next)
		for (store = o->inside; store && !snap; store = store->next) {
			snap = path ? item_with(store->inside, "number", number) :
			       item_with(store->inside, "name", name);
			if (!snap && !path)
				snap = item_with(store->inside, "device", device);
		}
	return snap;
}

/* ORIGIN@ID, with the ID of digits. false: it is not written so. */
static bool take_apart(const char *name, char *origin, size_t len, unsigned int *id)
{
	const char *at = strrchr(name, '@');
	int end = 0;

	if (!at || at == name || (size_t)(at - name) >= len ||
	    strspn(at + 1, "0123456789") != strlen(at + 1) ||
	    sscanf(at + 1, "%5u%n", id, &end) != 1 || at[1 + end])
		return false;
	memcpy(origin, name, at - name);
	origin[at - name] = '\0';
	return true;
}

static const struct cowsnap_item *find_snapshot(const struct cowsnap_item *origin,
						unsigned int id)
{
	const struct cowsnap_item *store, *snap = NULL;

	for (store = origin->inside; store && !snap; store = store->next)
		snap = item_with_number(store->inside, "id", id);
	return snap;
}

const struct cowsnap_item *cowsnap_find(const struct cowsnap *c, const char *name)
{
	const struct cowsnap_item *found = find_origin(c, name), *origin;
	char before[256];
	unsigned int id;

	if (!found)
		found = find_by_device(c, name);
	if (found || !take_apart(name, before, sizeof(before), &id))
		return found;
	origin = find_origin(c, before);
	return origin ? find_snapshot(origin, id) : NULL;
}

const struct cowsnap_item *need_origin(struct cowsnap *c, const char *name, int *result)
{
	const struct cowsnap_item *o = find_origin(c, name);

	if (!o)
		*result = fail(c, COWSNAP_NONE,
			       "\"%s\" is no origin; cowsnap list shows them, cowsnap create "
			       "makes one",
			       name);
	return o;
}

const struct cowsnap_item *need_snapshot(struct cowsnap *c, const char *name, int *result)
{
	const struct cowsnap_item *item = find_by_device(c, name);
	char before[256];
	unsigned int id;

	if (item)
		return item;
	if (!take_apart(name, before, sizeof(before), &id)) {
		*result = fail(c, COWSNAP_BAD_NAME,
			       "\"%s\" is no name of a snapshot, which is ORIGIN@NUMBER", name);
		return NULL;
	}
	item = need_origin(c, before, result);
	if (!item)
		return NULL;
	item = find_snapshot(item, id);
	if (!item)
		*result = fail(c, COWSNAP_NONE,
			       "\"%s\" has no snapshot %u; cowsnap list %s shows which it has",
			       before, id, before);
	return item;
}

int refuse_managed(struct cowsnap *c, const struct cowsnap_item *origin, const char *instead)
{
	const char *by = cowsnap_get(origin, "managed");

	if (!by)
		return 0;
	return fail(c, COWSNAP_MANAGED, "\"%s\" is a volume of %s: use %s",
		    cowsnap_get(origin, "name"), by, instead);
}

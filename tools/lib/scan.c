// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finding what there is: tables say which devices stand for what, origins are asked for their
 * stores and snapshots.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handle.h"
#include "item.h"
#include "map.h"
#include "parse.h"
#include "sys.h"

#define SECTOR 512

/* What a mapped device of ours is. */
enum role { NOT_OURS, ROLE_ORIGIN, ROLE_MERGE, ROLE_SNAPSHOT };

static enum role role_of(const char *target)
{
	static const struct {
		const char *target;
		enum role role;
	} ours[] = {
		{ "cowsnap-origin", ROLE_ORIGIN }, { "snapshot-origin", ROLE_ORIGIN },
		{ "cowsnap-merge", ROLE_MERGE }, { "snapshot-merge", ROLE_MERGE },
		{ "cowsnap", ROLE_SNAPSHOT }, { "snapshot", ROLE_SNAPSHOT },
	};
	size_t i;

	for (i = 0; i < sizeof(ours) / sizeof(*ours); i++)
		if (!strcmp(target, ours[i].target))
			return ours[i].role;
	return NOT_OURS;
}

/* One that was found. */
struct found {
	char *name;
	struct map map;
	struct parsed_table table;
	enum role role;
};

struct scan {
	struct cowsnap *c;
	char **names;
	struct found *found;
	size_t nr;
};

static void scan_free(struct scan *s)
{
	size_t i;

	for (i = 0; i < s->nr; i++)
		map_free(&s->found[i].map);
	free(s->found);
	free(s->names);
}

/* 1: it is ours; 0: it is not, or it has just gone. */
static int look_at(struct scan *s, char *name)
{
	struct found *f = &s->found[s->nr];
	int r;

	memset(f, 0, sizeof(*f));
	f->name = name;
	r = map_read_table(s->c, name, &f->map);
	if (r)
		return r == COWSNAP_NONE ? 0 : r;
	if (f->map.nr_lines == 1)
		f->role = role_of(f->map.line->target);
	if (f->role && !parse_table(&f->table, f->map.line->target, f->map.line->words))
		return 1;
	map_free(&f->map);
	return 0;
}

static int find_all(struct scan *s)
{
	size_t n = 0;
	int r = map_names(s->c, &s->names);

	if (r)
		return r;
	while (s->names[n])
		n++;
	s->found = calloc(n + 1, sizeof(*s->found));
	if (!s->found)
		return fail_no_memory(s->c);
	for (n = 0; s->names[n]; n++) {
		r = look_at(s, s->names[n]);
		if (r < 0)
			return r;
		s->nr += r;
	}
	return 0;
}

/* ---- origins ---- */

/* A path that names the device itself. */
static int set_path(struct cowsnap_item *item, const char *key, const char *number)
{
	char path[300];

	return item_set(item, key, sys_path(number, path, sizeof(path)));
}

static struct cowsnap_item *origin_of(struct scan *s, const char *below)
{
	struct cowsnap_item *o = item_with(s->c->origins, "below", below);
	char path[300];

	if (o)
		return o;
	o = item_add(&s->c->origins, NULL, COWSNAP_ORIGIN);
	/* The name of one that only has snapshots; a device of its own gives it a better one. */
	sys_path(below, path, sizeof(path));
	if (!o || item_set(o, "name", strrchr(path, '/') ? strrchr(path, '/') + 1 : path) ||
	    item_set(o, "below", below) || item_set(o, "below_path", path) ||
	    item_set(o, "state", "unprotected") ||
	    item_set_number(o, "size", sys_sectors(below) * SECTOR))
		return NULL;
	return o;
}

static int describe_device(struct cowsnap_item *o, const struct found *f)
{
	char path[300], number[32];

	snprintf(path, sizeof(path), "/dev/mapper/%s", f->name);
	snprintf(number, sizeof(number), "%u:%u", f->map.major, f->map.minor);
	return item_set(o, "name", f->name) || item_set(o, "device", path) ||
	       item_set(o, "number", number) ||
	       item_set(o, "target", f->map.line->target) ||
	       item_set_number(o, "size", f->map.line->sectors * SECTOR) ||
	       item_set_number(o, "open", f->map.open_count) ||
	       item_set(o, "state", f->map.suspended ? "suspended" :
			f->role == ROLE_MERGE ? "merging" : "active") ||
	       (f->table.discard[0] && item_set(o, "discard", f->table.discard)) ||
	       (!strncmp(f->map.uuid, "LVM-", 4) && item_set(o, "managed", "LVM")) ? -1 : 0;
}

/* The status line: counters, or how far a merge is. */
static int describe_status(struct scan *s, struct cowsnap_item *o, const struct found *f)
{
	struct map status;
	uint64_t left;
	int r = map_read_status(s->c, f->name, &status);

	if (r)
		return r == COWSNAP_NONE ? 0 : r;
	/* Somebody may have put another table in its place meanwhile, at the end of a merge say. */
	if (!status.nr_lines || strcmp(status.line->target, f->map.line->target))
		r = 0;
	else if (f->role == ROLE_ORIGIN)
		r = parse_origin_status(o, status.line->words);
	else if (!parse_merge_left(status.line->words, &left))
		r = item_set_number(o, "merging", f->table.id) ||
		    item_set_number(o, "left", left * SECTOR) ? PARSE_NO_MEMORY : 0;
	else
		r = item_set_number(o, "merging", f->table.id) ||
		    item_set(o, "state", "merge failed") ? PARSE_NO_MEMORY : 0;
	map_free(&status);
	return r == PARSE_NO_MEMORY ? fail_no_memory(s->c) : 0;
}

static int describe_origin(struct scan *s, const struct found *f)
{
	struct cowsnap_item *o = origin_of(s, f->table.below);

	if (!o)
		return fail_no_memory(s->c);
	/* Two devices may stand over one: the first counts. */
	if (f->role == ROLE_SNAPSHOT || cowsnap_get(o, "device"))
		return 0;
	if (describe_device(o, f))
		return fail_no_memory(s->c);
	return describe_status(s, o, f);
}

/* ---- stores and snapshots ---- */

static int name_inside(struct cowsnap_item *origin)
{
	struct cowsnap_item *store, *snap;
	char name[300];
	int r = 0;

	for (store = origin->inside; store; store = store->next) {
		r |= set_path(store, "device", cowsnap_get(store, "number"));
		for (snap = store->inside; snap; snap = snap->next) {
			snprintf(name, sizeof(name), "%s@%s", cowsnap_get(origin, "name"),
				 cowsnap_get(snap, "id"));
			r |= item_set(snap, "name", name);
		}
	}
	return r;
}

/* A device through which the origin answers, or NULL. */
static const struct found *asked(const struct scan *s, const struct cowsnap_item *o)
{
	const struct found *any = NULL;
	size_t i;

	for (i = 0; i < s->nr; i++) {
		if (strcmp(s->found[i].table.below, cowsnap_get(o, "below")))
			continue;
		if (s->found[i].role != ROLE_SNAPSHOT)
			return &s->found[i];
		any = &s->found[i];
	}
	return any;
}

/* A store and its snapshot, as the device of the latter has them. */
static int add_from_table(struct scan *s, struct cowsnap_item *o, const struct found *f)
{
	struct cowsnap_item *store = item_add(&o->inside, o, COWSNAP_STORE), *snap;
	struct map status;
	int r;

	snap = store ? item_add(&store->inside, store, COWSNAP_SNAPSHOT) : NULL;
	if (!snap || item_set(store, "number", f->table.store) ||
	    set_path(store, "device", f->table.store) ||
	    item_set(store, "type", f->table.kind == 'P' ? "persistent" : "transient") ||
	    item_set_number(store, "chunk", f->table.chunk_sectors * SECTOR) ||
	    item_set(snap, "name", f->name) || item_set_number(snap, "id", f->table.id) ||
	    item_set_number(snap, "size", f->map.line->sectors * SECTOR))
		return fail_no_memory(s->c);
	r = map_read_status(s->c, f->name, &status);
	if (r)
		return r == COWSNAP_NONE ? 0 : r;
	r = status.nr_lines ? parse_snapshot_status(snap, status.line->words) : 0;
	map_free(&status);
	return r == PARSE_NO_MEMORY ? fail_no_memory(s->c) : 0;
}

/* In the place of dm-snapshot, or dm-snapshot itself: there are no messages. */
static int list_from_tables(struct scan *s, struct cowsnap_item *o)
{
	size_t i;
	int r = 0;

	for (i = 0; i < s->nr && !r; i++)
		if (s->found[i].role == ROLE_SNAPSHOT &&
		    !strcmp(s->found[i].table.below, cowsnap_get(o, "below")))
			r = add_from_table(s, o, &s->found[i]);
	return r;
}

static int list_origin(struct scan *s, struct cowsnap_item *o)
{
	const struct found *f = asked(s, o);
	char *answer = NULL;
	int r;

	if (!f)
		return 0;
	r = map_ask(s->c, f->name, "list", &answer);
	if (r == COWSNAP_NO_MEMORY)
		return r;
	if (r)
		return list_from_tables(s, o);
	r = parse_list(o, answer);
	free(answer);
	if (!r && name_inside(o))
		r = PARSE_NO_MEMORY;
	if (r == PARSE_BAD)
		return fail(s->c, COWSNAP_REFUSED,
			    "the module and this library do not belong together: install one "
			    "version");
	return r ? fail_no_memory(s->c) : 0;
}

/* The device of a snapshot is noted with it. */
static int attach_device(struct scan *s, const struct found *f)
{
	struct cowsnap_item *o = item_with(s->c->origins, "below", f->table.below), *snap;
	char path[300], number[32];

	o = o ? item_with(o->inside, "number", f->table.store) : NULL;
	snap = o ? item_with_number(o->inside, "id", f->table.id) : NULL;
	if (!snap || cowsnap_get(snap, "device"))
		return 0;
	snprintf(path, sizeof(path), "/dev/mapper/%s", f->name);
	snprintf(number, sizeof(number), "%u:%u", f->map.major, f->map.minor);
	return item_set(snap, "device", path) || item_set(snap, "number", number) ||
	       item_set_number(snap, "open", f->map.open_count) ||
	       item_set(snap, "access", f->map.read_only ? "ro" : "rw") ?
	       fail_no_memory(s->c) : 0;
}

int cowsnap_scan(struct cowsnap *c)
{
	struct scan s = { .c = c };
	struct cowsnap_item *o;
	size_t i;
	int r;

	item_free_all(c->origins);
	c->origins = NULL;
	r = find_all(&s);
	for (i = 0; i < s.nr && !r; i++)
		r = describe_origin(&s, &s.found[i]);
	for (o = c->origins; o && !r; o = o->next)
		r = list_origin(&s, o);
	for (i = 0; i < s.nr && !r; i++)
		if (s.found[i].role == ROLE_SNAPSHOT)
			r = attach_device(&s, &s.found[i]);
	scan_free(&s);
	return r;
}

// SPDX-License-Identifier: GPL-2.0-only
/* Where an origin stands. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "lib/map.h"
#include "lib/sys.h"
#include "place.h"

#define HOME "-home"
#define SETUP "-setup"	/* see create.c */

const char *use_of(const char *path, const char *number, char *text, size_t len)
{
	char where[256];
	int fd;

	if (sys_mounted(number, where, sizeof(where))) {
		snprintf(text, len, "mounted on %s", where);
		return text;
	}
	fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	if (fd >= 0 || errno != EBUSY)
		return NULL;
	snprintf(text, len, "in use");
	return text;
}

bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

_Static_assert(PLACE_NAME == 100, "the first sentence has it");

const char *place_bad_name(const char *name)
{
	if (strlen(name) > PLACE_NAME)
		return "is too long; use at most 100 characters";
	if (!*name || !strcmp(name, ".") || !strcmp(name, "..") ||
	    name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			      "0123456789_.+:-")])
		return "is no name for an origin; use letters, digits and _.+:-";
	if (*name == '-')
		return "begins as an option does; use a name that begins with a letter or a digit";
	if (ends_with(name, HOME) || ends_with(name, SETUP))
		return "is a name that cowsnap uses itself; use one that does not end in -home or "
		       "-setup";
	return NULL;
}

int place_check_name(const char *command, const char *name)
{
	const char *why = place_bad_name(name);

	return why ? cannot_because(command, "the name \"%.*s\" %s (--name gives another)",
				    PLACE_NAME, name, why) : 0;
}

/* ---- in the place of a mapped device ---- */

static bool can_stand_twice(const struct map *m)
{
	unsigned int i;

	for (i = 0; i < m->nr_lines; i++)
		if (strcmp(m->line[i].target, "linear") && strcmp(m->line[i].target, "striped"))
			return false;
	return m->nr_lines;
}

static int cannot_take_over(const char *device, const struct map *m)
{
	if (!strncmp(m->uuid, "LVM-", 4))
		return cannot_because(device, "a volume of LVM, which would load its own table "
					      "again: "
				      "use lvcreate -s (docs/lvm.md)");
	if (m->uuid[0])
		return cannot_because(device, "another program manages it (uuid %s), and would "
					      "load "
				      "its own table again; unmount it and give --name, then an "
				      "origin is put over it", m->uuid);
	return cannot_because(device, "its table is of %s, which cannot stand twice; unmount it "
			      "and give --name, then an origin is put over it",
			      m->nr_lines ? m->line[0].target : "nothing");
}

/* An interrupted run has moved the table already. */
static bool same_table(const struct map *a, const struct map *b)
{
	unsigned int i;

	if (a->nr_lines != b->nr_lines)
		return false;
	for (i = 0; i < a->nr_lines; i++)
		if (a->line[i].start != b->line[i].start ||
		    a->line[i].sectors != b->line[i].sectors ||
		    strcmp(a->line[i].target, b->line[i].target) ||
		    strcmp(a->line[i].words, b->line[i].words))
			return false;
	return true;
}

static int take_over(struct place *p, struct cowsnap *c, const char *device)
{
	struct map now, home;
	int r = map_read_table(c, p->name, &now), status = 0;

	if (r)
		return cannot(device, cowsnap_error(c));
	if (now.uuid[0] || !can_stand_twice(&now))
		status = cannot_take_over(device, &now);
	snprintf(p->home, sizeof(p->home), "%s" HOME, p->name);
	snprintf(p->path, sizeof(p->path), "/dev/mapper/%s", p->home);
	if (!status && !map_read_table(c, p->home, &home)) {
		p->home_exists = true;
		if (!same_table(&now, &home))
			status = cannot_because(device, "%s exists, and is something else: "
						"rename or remove it", p->path);
		map_free(&home);
	}
	/* What an interrupted run was about to put there has the store in use. */
	if (!status && now.inactive && map_clear(c, p->name))
		status = cannot(device, cowsnap_error(c));
	map_free(&now);
	return status;
}

/* ---- over a device ---- */

static int stand_over(struct place *p, struct cowsnap *c, const char *device)
{
	char use[300];
	struct map m;

	/* What an interrupted run has put over it is no use that matters. */
	if (!cowsnap_find(c, p->path) && use_of(p->path, p->number, use, sizeof(use)))
		return cannot_because(device, "%s, and no volume of the device mapper, so that "
					      "nothing "
				      "can be put under what uses it; end that, run this again, "
				      "and use /dev/mapper/%s from then on", use, p->name);
	if (map_read_table(c, p->name, &m))
		return 0;
	map_free(&m);
	return cannot_because(device, "/dev/mapper/%s exists already; --name gives another name",
			      p->name);
}

int place_find(struct place *p, struct cowsnap *c, const char *device, const char *name)
{
	char mapped[256] = "";
	int status;

	memset(p, 0, sizeof(*p));
	if (!sys_number(device, p->number, sizeof(p->number)))
		return cannot(device, "no block device; name the device to take snapshots of");
	p->sectors = sys_sectors(p->number);
	sys_path(p->number, p->path, sizeof(p->path));
	sys_map_name(p->number, mapped, sizeof(mapped));
	if (!name)
		name = mapped[0] ? mapped : strrchr(p->path, '/') + 1;
	status = place_check_name("create", name);
	if (status)
		return status;
	snprintf(p->name, sizeof(p->name), "%s", name);
	return !strcmp(mapped, name) ? take_over(p, c, device) : stand_over(p, c, device);
}

int place_prepare(const struct place *p, struct cowsnap *c)
{
	struct map m;
	int r;

	if (!p->home[0] || p->home_exists)
		return 0;
	r = map_read_table(c, p->name, &m);
	if (r)
		return r;
	r = map_create(c, p->home, &m, MAP_HIDDEN);
	map_free(&m);
	return r;
}

/* ---- away again ---- */

static int give_back(struct cowsnap *c, const char *name, const char *home)
{
	struct map m;
	int r = map_read_table(c, home, &m);

	if (r)
		return r;
	r = map_reload(c, name, &m);
	map_free(&m);
	return r ? r : map_remove(c, home);
}

int place_leave(struct cowsnap *c, const struct cowsnap_item *origin)
{
	char name[PLACE_NAME + 1], home[PLACE_NAME + 8], path[PLACE_NAME + 24];

	snprintf(name, sizeof(name), "%s", cowsnap_get(origin, "name"));
	snprintf(home, sizeof(home), "%s" HOME, name);
	snprintf(path, sizeof(path), "/dev/mapper/%s", home);
	if (!strcmp(cowsnap_get(origin, "below_path"), path))
		return give_back(c, name, home);
	return map_remove(c, name);
}

int place_undo(const struct place *p, struct cowsnap *c)
{
	return p->home[0] ? give_back(c, p->name, p->home) : map_remove(c, p->name);
}

int place_clear(struct cowsnap *c, const char *name)
{
	struct map now, home;
	char path[PLACE_NAME + 8];
	bool same;
	int r;

	snprintf(path, sizeof(path), "%.*s" HOME, PLACE_NAME, name);
	if (map_read_table(c, name, &now))
		return 0;
	r = map_read_table(c, path, &home);
	same = !r && same_table(&now, &home);
	map_free(&now);
	if (!r)
		map_free(&home);
	if (!same)
		return 0;
	r = map_remove(c, path);
	return r ? r : 1;
}

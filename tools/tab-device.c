// SPDX-License-Identifier: GPL-2.0-only
/* Which device a line of /etc/cowsnaptab means. */
#include <blkid/blkid.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/sys.h"
#include "tab.h"

static const struct tag {
	const char *prefix, *value;	/* as a line has it, as libblkid does */
} tags[] = {
	{ "UUID=", "UUID" },
	{ "LABEL=", "LABEL" },
	{ "PARTUUID=", "PART_ENTRY_UUID" },
	{ "PARTLABEL=", "PART_ENTRY_NAME" },
};

#define NR_TAGS	(sizeof(tags) / sizeof(*tags))

static const struct tag *tag_of(const char *spec)
{
	size_t i;

	for (i = 0; i < NR_TAGS; i++)
		if (!strncmp(spec, tags[i].prefix, strlen(tags[i].prefix)))
			return &tags[i];
	return NULL;
}

static blkid_probe probe_open(const char *path)
{
	blkid_probe p = blkid_new_probe_from_filename(path);

	if (!p)
		return NULL;
	blkid_probe_enable_superblocks(p, 1);
	blkid_probe_set_superblocks_flags(p, BLKID_SUBLKS_UUID | BLKID_SUBLKS_LABEL |
					  BLKID_SUBLKS_TYPE);
	blkid_probe_enable_partitions(p, 1);
	blkid_probe_set_partitions_flags(p, BLKID_PARTS_ENTRY_DETAILS);
	if (blkid_do_safeprobe(p) >= 0)
		return p;
	blkid_free_probe(p);
	return NULL;
}

/* Digits of a number may be of either case; a label's letters are what they are. */
static bool same_value(const struct tag *tag, const char *a, const char *b)
{
	return strstr(tag->prefix, "UUID") ? !strcasecmp(a, b) : !strcmp(a, b);
}

static bool has_value(const char *path, const struct tag *tag, const char *value)
{
	blkid_probe p = probe_open(path);
	const char *has;
	bool same;

	if (!p)
		return false;
	same = !blkid_probe_lookup_value(p, tag->value, &has, NULL) && same_value(tag, has, value);
	blkid_free_probe(p);
	return same;
}

/* An origin, or a snapshot: what shows the content of another device. */
static bool is_ours(struct cowsnap *c, const char *number)
{
	const struct cowsnap_item *o, *store, *s;
	const char *has;

	for (o = c ? cowsnap_first(c) : NULL; o; o = cowsnap_next(o)) {
		has = cowsnap_get(o, "number");
		if (has && !strcmp(has, number))
			return true;
		for (store = cowsnap_inside(o); store; store = cowsnap_next(store))
			for (s = cowsnap_inside(store); s; s = cowsnap_next(s)) {
				has = cowsnap_get(s, "number");
				if (has && !strcmp(has, number))
					return true;
			}
	}
	return false;
}

static bool number_of(const char *kernel_name, char *number, size_t len)
{
	char path[300];
	FILE *in;
	bool done;

	snprintf(path, sizeof(path), "/sys/class/block/%s/dev", kernel_name);
	in = fopen(path, "re");
	done = in && fgets(number, len, in);
	if (in)
		fclose(in);
	number[done ? strcspn(number, "\n") : 0] = '\0';
	return done;
}

/* Each device that has it, but ours. */
static void each_tagged(struct cowsnap *c, const char *spec,
			void (*see)(void *data, const char *number), void *data)
{
	const struct tag *tag = tag_of(spec);
	DIR *dir = opendir("/sys/class/block");
	char one[16], path[300];
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		if (d->d_name[0] == '.' || !number_of(d->d_name, one, sizeof(one)) ||
		    !sys_sectors(one) || is_ours(c, one))
			continue;
		sys_path(one, path, sizeof(path));
		if (has_value(path, tag, spec + strlen(tag->prefix)))
			see(data, one);
	}
	if (dir)
		closedir(dir);
}

struct found {
	int nr;
	char first[16], second[16];
};

static void note_found(void *data, const char *number)
{
	struct found *f = data;

	if (f->nr < 2)
		snprintf(f->nr ? f->second : f->first, sizeof(f->first), "%s", number);
	f->nr++;
}

/* 0: none, 1: @number; more: @why names two. */
static int find_tagged(struct cowsnap *c, const char *spec, char *number, size_t len, char *why,
		       size_t why_len)
{
	struct found f = { 0 };
	char first[300], second[300];

	each_tagged(c, spec, note_found, &f);
	if (f.nr)
		snprintf(number, len, "%s", f.first);
	if (f.nr > 1)
		snprintf(why, why_len, "%s and %s both have it; name one by its path in "
			 "/dev/disk/by-id", sys_path(f.first, first, sizeof(first)),
			 sys_path(f.second, second, sizeof(second)));
	return f.nr;
}

static int find_once(struct cowsnap *c, const char *spec, char *number, size_t len, char *why,
		     size_t why_len)
{
	if (tag_of(spec))
		return find_tagged(c, spec, number, len, why, why_len);
	return sys_number(spec, number, len);
}

bool tab_resolve(struct cowsnap *c, const char *spec, unsigned int seconds, char *number,
		 size_t len, char *why, size_t why_len)
{
	unsigned int tenths = 10 * seconds;
	int found = find_once(c, spec, number, len, why, why_len);

	while (!found && tenths--) {
		usleep(100000);
		found = find_once(c, spec, number, len, why, why_len);
	}
	if (!found)
		snprintf(why, why_len, "there is no such device; is it connected, and written as "
			 "blkid prints it?");
	return found == 1;
}

bool tab_stands_on(const char *spec, const char *path)
{
	const struct tag *tag = tag_of(spec);

	/* Those of a partition stand elsewhere. */
	return tag && strncmp(tag->value, "PART", 4) &&
	       has_value(path, tag, spec + strlen(tag->prefix));
}

static void tell(void *data, const char *number)
{
	(void)data;
	tab_tell_udev(number);
}

void tab_tell_udev_of(struct cowsnap *c, const char *spec)
{
	char number[16];

	if (tag_of(spec))
		each_tagged(c, spec, tell, NULL);
	else if (sys_number(spec, number, sizeof(number)))
		tab_tell_udev(number);
}

/* ---- names that last ---- */

static bool by_tag(struct cowsnap *c, const char *path, const struct tag *tag, char *spec,
		   size_t len)
{
	char number[16], why[512];
	blkid_probe p = probe_open(path);
	const char *value;
	bool has;

	if (!p)
		return false;
	has = !blkid_probe_lookup_value(p, tag->value, &value, NULL) && *value;
	if (has)
		snprintf(spec, len, "%s%s", tag->prefix, value);
	blkid_free_probe(p);
	/* Not one that another device has as well. */
	return has && !tab_bad_spec(spec) && !strpbrk(spec, " \t,#") &&
	       find_tagged(c, spec, number, sizeof(number), why, sizeof(why)) == 1;
}

static bool by_link(const char *path, char *spec, size_t len)
{
	DIR *dir = opendir("/dev/disk/by-id");
	char real[PATH_MAX], other[PATH_MAX], link[300];
	struct dirent *d;
	bool found = false;

	while (dir && realpath(path, real) && !found && (d = readdir(dir))) {
		snprintf(link, sizeof(link), "/dev/disk/by-id/%s", d->d_name);
		found = d->d_name[0] != '.' && realpath(link, other) && !strcmp(real, other) &&
			strlen(link) < len;
		if (found)
			snprintf(spec, len, "%.*s", (int)len - 1, link);
	}
	if (dir)
		closedir(dir);
	return found;
}

void tab_lasting_name(struct cowsnap *c, const char *path, bool filesystem, char *spec,
		      size_t len)
{
	if (!strncmp(path, "/dev/mapper/", 12))
		snprintf(spec, len, "%s", path);
	else if (!(filesystem && by_tag(c, path, &tags[0], spec, len)) &&
		 !by_tag(c, path, &tags[2], spec, len) && !by_link(path, spec, len))
		snprintf(spec, len, "%s", path);
}

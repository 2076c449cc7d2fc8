// SPDX-License-Identifier: GPL-2.0-only
/*
 * systemd's units for /etc/cowsnaptab, and the answer to udev's question.
 *
 * Origin and device below have the same filesystem, so the same links by UUID and label would
 * lead to either. A rule takes them from the device below as soon as it appears, and gives it
 * /dev/cowsnap/NAME, for which the unit waits. So whoever waits for the filesystem gets the
 * origin, and not before that is there.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "lib/map.h"
#include "lib/sys.h"
#include "tab.h"

#define UNIT_NAME 1100
#define LINKS "/dev/disk/by-"

/* ---- names ---- */

static void put_escaped(char **to, char *end, unsigned char c)
{
	if (end - *to > 4)
		*to += sprintf(*to, "\\x%02x", c);
}

/* As systemd-escape does it; of a path with --path. */
static void escape(const char *text, bool path, char *to, size_t len)
{
	char *end = to + len - 1;
	bool first = true;

	if (path)
		text += strspn(text, "/");
	for (; *text && to < end; text++, first = false) {
		if (*text == '/')
			*to++ = '-';
		else if (isalnum((unsigned char)*text) || *text == ':' || *text == '_' ||
			 (*text == '.' && !first))
			*to++ = *text;
		else
			put_escaped(&to, end, *text);
	}
	*to = '\0';
}

/* As udev writes it in a link. */
static void encode_link(const char *text, char *to, size_t len)
{
	char *end = to + len - 1;

	for (; *text && to < end; text++)
		if (isalnum((unsigned char)*text) || strchr("#+-.:=@_", *text) || *text & 0x80)
			*to++ = *text;
		else
			put_escaped(&to, end, *text);
	*to = '\0';
}

/* The path whose appearance says that the device is there. */
static void link_of(const char *spec, char *path, size_t len)
{
	static const char *const kinds[][2] = {
		{ "UUID=", "uuid" }, { "LABEL=", "label" }, { "PARTUUID=", "partuuid" },
		{ "PARTLABEL=", "partlabel" },
	};
	char value[4 * TAB_SPEC];
	size_t i;

	snprintf(path, len, "%s", spec);
	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (strncmp(spec, kinds[i][0], strlen(kinds[i][0])))
			continue;
		encode_link(spec + strlen(kinds[i][0]), value, sizeof(value));
		snprintf(path, len, LINKS "%s/%s", kinds[i][1], value);
	}
}

static void device_unit(const char *path, char *unit, size_t len)
{
	char name[UNIT_NAME - 20];

	escape(path, true, name, sizeof(name));
	snprintf(unit, len, "%s.device", name);
}

static void service_unit(const struct tab_line *l, char *unit, size_t len)
{
	char name[5 * PLACE_NAME];

	escape(l->name, false, name, sizeof(name));
	snprintf(unit, len, "cowsnap@%s.service", name);
}

/* ---- files ---- */

static FILE *open_in(const char *directory, const char *sub, const char *file)
{
	char path[3000];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", directory, sub);
	if (mkdir(path, 0755) && errno != EEXIST) {
		cannot_because(path, "%s", strerror(errno));
		return NULL;
	}
	snprintf(path, sizeof(path), "%s/%s%s%s", directory, sub, *sub ? "/" : "", file);
	out = fopen(path, "we");
	if (!out)
		cannot_because(path, "%s", strerror(errno));
	return out;
}

static int close_out(FILE *out, const char *what)
{
	return fclose(out) ? cannot(what, strerror(errno)) : 0;
}

/* A link in @unit.@kind to @to. */
static int add_link(const char *directory, const char *unit, const char *kind, const char *to)
{
	char path[3000], target[UNIT_NAME + 8];

	snprintf(path, sizeof(path), "%s/%s.%s", directory, unit, kind);
	if (mkdir(path, 0755) && errno != EEXIST)
		return cannot_because(path, "%s", strerror(errno));
	snprintf(path, sizeof(path), "%s/%s.%s/%s", directory, unit, kind, to);
	snprintf(target, sizeof(target), "../%s", to);
	return symlink(target, path) && errno != EEXIST ? cannot_because(path, "%s",
									  strerror(errno)) : 0;
}

static int write_timeout(const char *directory, const char *unit, unsigned int seconds)
{
	char sub[UNIT_NAME + 8];
	FILE *out;

	snprintf(sub, sizeof(sub), "%s.d", unit);
	out = open_in(directory, sub, "40-cowsnap.conf");
	if (!out)
		return EXIT_CANNOT;
	fprintf(out, "# Written by cowsnap-generator\n[Unit]\nJobRunningTimeoutSec=%us\n", seconds);
	return close_out(out, unit);
}

/* ---- units ---- */

static void write_service(FILE *out, const struct tab *t, const struct tab_line *l,
			  const char *below, const char *store)
{
	fprintf(out, "# Written by cowsnap-generator\n"
		"[Unit]\n"
		"Description=Origin %s of dm-cowsnap\n"
		"Documentation=man:cowsnaptab(5)\n"
		"SourcePath=%s\n"
		"DefaultDependencies=no\n"
		"IgnoreOnIsolate=true\n", l->name, t->path);
	/* Wants: where a device does not come, the command says so, and does what is to be done. */
	fprintf(out, "Wants=%s %s\n"
		"After=%s %s systemd-modules-load.service\n"
		"Conflicts=umount.target\n"
		"Before=umount.target\n\n", below, store, below, store);
	fprintf(out, "[Service]\n"
		"Type=oneshot\n"
		"RemainAfterExit=yes\n"
		"TimeoutStartSec=infinity\n"
		"ExecStart=/usr/sbin/cowsnap tab start %s\n"
		"ExecStop=-/usr/sbin/cowsnap tab stop %s\n", l->name, l->name);
}

static int link_service(const char *directory, const struct tab_line *l, const char *service)
{
	char path[5 * TAB_SPEC], unit[UNIT_NAME];
	int status = 0;

	snprintf(path, sizeof(path), "/dev/mapper/%s", l->name);
	device_unit(path, unit, sizeof(unit));
	status = add_link(directory, unit, "requires", service);
	if (!strncmp(l->device, "UUID=", 5) || !strncmp(l->device, "LABEL=", 6)) {
		link_of(l->device, path, sizeof(path));
		device_unit(path, unit, sizeof(unit));
		status = status ? status : add_link(directory, unit, "requires", service);
	}
	if (!status && !l->noauto)
		status = add_link(directory, "sysinit.target", "wants", service);
	return status;
}

static int write_line(const struct tab *t, const char *directory, const struct tab_line *l)
{
	char path[5 * TAB_SPEC], below[UNIT_NAME], store[UNIT_NAME], service[UNIT_NAME];
	FILE *out;
	int status;

	service_unit(l, service, sizeof(service));
	snprintf(path, sizeof(path), "/dev/cowsnap/%s", l->name);
	device_unit(path, below, sizeof(below));
	link_of(l->store, path, sizeof(path));
	device_unit(path, store, sizeof(store));
	out = open_in(directory, "", service);
	if (!out)
		return EXIT_CANNOT;
	write_service(out, t, l, below, store);
	status = close_out(out, service);
	if (!status)
		status = write_timeout(directory, below, l->timeout);
	if (!status)
		status = write_timeout(directory, store, l->timeout);
	return status ? status : link_service(directory, l, service);
}

static int write_settle(const char *directory, const struct tab *t)
{
	FILE *out = open_in(directory, "", "cowsnap-settle.service");
	char service[UNIT_NAME];
	unsigned int i;

	if (!out)
		return EXIT_CANNOT;
	fprintf(out, "# Written by cowsnap-generator\n"
		"[Unit]\n"
		"Description=Rollbacks and losses of this boot (dm-cowsnap)\n"
		"Documentation=man:cowsnaptab(5)\n"
		"SourcePath=%s\n"
		"After=local-fs.target", t->path);
	/* Nobody else waits for them: what they give up has to be noted. */
	for (i = 0; i < t->nr_lines; i++) {
		if (!t->line[i].legible)
			continue;
		service_unit(&t->line[i], service, sizeof(service));
		fprintf(out, " %s", service);
	}
	fprintf(out, "\n\n[Service]\nExecStart=/usr/sbin/cowsnap tab settle\n");
	if (close_out(out, "cowsnap-settle.service"))
		return EXIT_CANNOT;
	return add_link(directory, "multi-user.target", "wants", "cowsnap-settle.service");
}

int tab_write_units(const struct tab *t, const char *directory)
{
	unsigned int i;
	int status = 0, nr = 0;

	for (i = 0; i < t->nr_lines; i++) {
		if (!t->line[i].legible)
			continue;
		status |= write_line(t, directory, &t->line[i]);
		nr++;
	}
	/* An initramfs hands over before that is of use. */
	if (nr && access("/etc/initrd-release", F_OK))
		status |= write_settle(directory, t);
	return status ? EXIT_CANNOT : 0;
}

/* ---- udev ---- */

static bool env_is(const char *key, const char *value)
{
	const char *has = getenv(key);

	return has && !strcasecmp(has, value);
}

/* Does the event's device have this path? */
static bool has_path(const char *path)
{
	const char *links = getenv("DEVLINKS");
	size_t n = strlen(path);

	if (env_is("DEVNAME", path))
		return true;
	while (links && *links) {
		if (!strncmp(links, path, n) && (!links[n] || links[n] == ' '))
			return true;
		links += strcspn(links, " ");
		links += strspn(links, " ");
	}
	return false;
}

/* A volume of that name whose origin is yet to come in its place. */
static bool is_plain(const char *name)
{
	struct cowsnap *c;
	struct map m;
	bool plain = false;

	if (!cowsnap_open(&c) && !map_read_table(c, name, &m)) {
		plain = strncmp(m.line[0].target, "cowsnap", 7);
		map_free(&m);
	}
	cowsnap_close(c);
	return plain;
}

static bool is_below(const struct tab_line *l)
{
	const char *mapped = getenv("DM_NAME");
	char path[5 * TAB_SPEC], home[PLACE_NAME + 8];

	snprintf(home, sizeof(home), "%s-home", l->name);
	if (mapped && !strcmp(mapped, home))
		return true;
	if (mapped && !strcmp(mapped, l->name) && !is_plain(l->name))
		return false;
	if (!strncmp(l->device, "UUID=", 5))
		return env_is("ID_FS_UUID", l->device + 5);
	if (!strncmp(l->device, "PARTUUID=", 9))
		return env_is("ID_PART_ENTRY_UUID", l->device + 9);
	link_of(l->device, path, sizeof(path));
	return has_path(path);
}

static bool is_snapshot(const struct tab_line *l)
{
	const char *mapped = getenv("DM_NAME");
	size_t n = strlen(l->name);

	return mapped && !strncmp(mapped, l->name, n) && mapped[n] == '@';
}

/* The links that stay, as udev takes them, without those to what the origin shows as well. */
static void print_links(const struct tab_line *l)
{
	char *links = getenv("DEVLINKS") ? strdup(getenv("DEVLINKS")) : NULL, *at = links, *one;

	/* A snapshot of it has the same content, but is not what the unit waits for. */
	if (!is_snapshot(l))
		printf("cowsnap/%s", l->name);
	while (at && (one = strsep(&at, " ")))
		if (!strncmp(one, "/dev/", 5) && strncmp(one, LINKS "uuid/", 18) &&
		    strncmp(one, LINKS "label/", 19))
			printf(" %s", one + 5);
	putchar('\n');
	free(links);
}

/* Is a device that stands on it none of the line's: LUKS, LVM, RAID? */
static bool has_other_holder(const struct tab_line *l, const char *number)
{
	size_t n = strlen(l->name);
	char path[64], name[300];
	struct dirent *d;
	bool other = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/dev/block/%s/holders", number);
	dir = opendir(path);
	while (dir && !other && (d = readdir(dir))) {
		char holder[16];

		if (d->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "/dev/%s", d->d_name);
		other = !sys_number(name, holder, sizeof(holder)) ||
			!sys_map_name(holder, name, sizeof(name)) || strncmp(name, l->name, n) ||
			!(!name[n] || name[n] == '@' || !strcmp(name + n, "-home") ||
			  !strcmp(name + n, "-setup"));
	}
	if (dir)
		closedir(dir);
	return other;
}

/* Enabled while it was in use: until the next boot its links are its own. */
static bool is_used(const struct tab_line *l)
{
	const char *major = getenv("MAJOR"), *minor = getenv("MINOR");
	char number[40], where[256];

	if (!major || !minor)
		return false;
	snprintf(number, sizeof(number), "%.10s:%.10s", major, minor);
	return sys_mounted(number, where, sizeof(where)) || has_other_holder(l, number);
}

int tab_owns(const struct tab *t)
{
	const struct tab_line *l;
	struct tab_note n;

	for (l = t->line; l < t->line + t->nr_lines; l++) {
		if (!l->legible || !is_below(l) || is_used(l) || tab_note_read(l->name, &n))
			continue;
		print_links(l);
		return 0;
	}
	return EXIT_DAMAGE;
}

// SPDX-License-Identifier: GPL-2.0-only
/* What the system knows of a block device. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "sys.h"

bool sys_number(const char *path, char *number, size_t len)
{
	struct stat st;

	if (stat(path, &st) || !S_ISBLK(st.st_mode))
		return false;
	snprintf(number, len, "%u:%u", major(st.st_rdev), minor(st.st_rdev));
	return true;
}

/* The first line of a file of sysfs. */
static bool read_attribute(const char *number, const char *name, char *text, size_t len)
{
	char path[128];
	FILE *in;
	bool done;

	snprintf(path, sizeof(path), "/sys/dev/block/%s/%s", number, name);
	in = fopen(path, "re");
	if (!in)
		return false;
	done = fgets(text, len, in);
	fclose(in);
	if (done)
		text[strcspn(text, "\n")] = '\0';
	return done;
}

bool sys_map_name(const char *number, char *name, size_t len)
{
	return read_attribute(number, "dm/name", name, len);
}

bool sys_map_uuid(const char *number, char *uuid, size_t len)
{
	return read_attribute(number, "dm/uuid", uuid, len);
}

const char *sys_path(const char *number, char *path, size_t len)
{
	char link[64], target[512], name[256];
	char *at;
	ssize_t n;

	if (sys_map_name(number, name, sizeof(name))) {
		snprintf(path, len, "/dev/mapper/%s", name);
		return path;
	}
	snprintf(link, sizeof(link), "/sys/dev/block/%s", number);
	n = readlink(link, target, sizeof(target) - 1);
	if (n < 0) {
		snprintf(path, len, "%s", number);
		return path;
	}
	target[n] = '\0';
	at = strrchr(target, '/');
	snprintf(path, len, "/dev/%s", at ? at + 1 : target);
	/* cciss!c0d0: sysfs has no slash in a name. */
	for (at = path; *at; at++)
		if (*at == '!')
			*at = '/';
	return path;
}

uint64_t sys_sectors(const char *number)
{
	char text[32];
	uint64_t sectors = 0;

	if (read_attribute(number, "size", text, sizeof(text)))
		sscanf(text, "%" SCNu64, &sectors);
	return sectors;
}

/* The kernel writes spaces, tabs, newlines and backslashes as three octal digits. */
static void unescape(char *text)
{
	char *to = text;
	unsigned int c;
	int n;

	for (; *text; to++) {
		n = 0;
		if (*text == '\\' && sscanf(text + 1, "%3o%n", &c, &n) == 1 && n == 3) {
			*to = c;
			text += 4;
		} else {
			*to = *text++;
		}
	}
	*to = '\0';
}

bool sys_read_only(const char *number)
{
	char text[8];

	return read_attribute(number, "ro", text, sizeof(text)) && !strcmp(text, "1");
}

/* A partition has no queue: that is of its disk, the directory above. */
bool sys_rotational(const char *number)
{
	char text[8];

	return (read_attribute(number, "queue/rotational", text, sizeof(text)) ||
		read_attribute(number, "../queue/rotational", text, sizeof(text))) &&
	       !strcmp(text, "1");
}

bool sys_module_parameter(const char *name, int *value)
{
	char path[128];
	FILE *in;
	bool done;

	snprintf(path, sizeof(path), "/sys/module/dm_cowsnap/parameters/%s", name);
	in = fopen(path, "re");
	if (!in)
		return false;
	done = fscanf(in, "%d", value) == 1;
	fclose(in);
	return done;
}

/* btrfs gives a number of its own to what is mounted; then the source tells. */
static bool is_source(const char *line, const char *number)
{
	const char *rest = strstr(line, " - ");
	char source[4096], device[32];

	return rest && sscanf(rest, " - btrfs %4095s", source) == 1 && *source == '/' &&
	       sys_number(source, device, sizeof(device)) && !strcmp(device, number);
}

/* One line of mountinfo: where is that, and is it @number? */
static bool read_mount(const char *line, const char *number, char point[4096], bool *ours)
{
	char device[32];

	if (sscanf(line, "%*d %*d %31s %*s %4095s", device, point) != 2)
		return false;
	unescape(point);
	*ours = !strcmp(device, number) || is_source(line, number);
	return true;
}

bool sys_mounted(const char *number, char *where, size_t len)
{
	FILE *in = fopen("/proc/self/mountinfo", "re");
	char line[8192], point[4096];
	bool found = false;

	while (in && !found && fgets(line, sizeof(line), in))
		if (read_mount(line, number, point, &found) && found)
			snprintf(where, len, "%s", point);
	if (in)
		fclose(in);
	return found;
}

unsigned int sys_mounts(const char *number, const char *where)
{
	FILE *in = fopen("/proc/self/mountinfo", "re");
	char line[8192], point[4096];
	unsigned int nr = 0;
	bool ours;

	while (in && fgets(line, sizeof(line), in))
		if (read_mount(line, number, point, &ours) && ours)
			nr += !where || !strcmp(point, where);
	if (in)
		fclose(in);
	return nr;
}

bool sys_mounted_on_top(const char *number, const char *where)
{
	FILE *in = fopen("/proc/self/mountinfo", "re");
	char line[8192], point[4096];
	bool ours, top = false;

	/* In the order in which they were mounted. */
	while (in && fgets(line, sizeof(line), in))
		if (read_mount(line, number, point, &ours) && !strcmp(point, where))
			top = ours;
	if (in)
		fclose(in);
	return top;
}

bool sys_kernel_word(const char *word, char *value, size_t len)
{
	FILE *in = fopen("/proc/cmdline", "re");
	char line[8192] = "", *one, *at = line;
	size_t n = strlen(word);
	bool found = false;

	if (in) {
		if (!fgets(line, sizeof(line), in))
			line[0] = '\0';
		fclose(in);
	}
	while ((one = strsep(&at, " \n"))) {
		if (strncmp(one, word, n) || (value ? one[n] != '=' : one[n]))
			continue;
		if (value)
			snprintf(value, len, "%s", one + n + 1);
		found = true;
	}
	return found;
}

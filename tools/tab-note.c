// SPDX-License-Identifier: GPL-2.0-only
/*
 * What this boot has given up, in /run, which an initramfs hands on: udev lets the device have
 * its links then, and nobody starts its origin a second time. And what a rollback has begun with.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "tab.h"

#define NOTES	"/run/cowsnap"

static void path_of(const char *name, const char *kind, char *path, size_t len)
{
	snprintf(path, len, NOTES "/%s.%s", name, kind);
}

static void note_path(const char *name, char *path, size_t len)
{
	path_of(name, "dropped", path, len);
}

bool tab_note_read(const char *name, struct tab_note *n)
{
	char path[200];
	int marked = 0;
	FILE *in;
	bool done;

	memset(n, 0, sizeof(*n));
	note_path(name, path, sizeof(path));
	in = fopen(path, "re");
	if (!in)
		return false;
	done = fscanf(in, "%" SCNu64 " %d %399[^\n]", &n->time, &marked, n->why) >= 2;
	n->marked = marked;
	fclose(in);
	return done;
}

int tab_note_write(const char *name, const struct tab_note *n)
{
	char path[200], new_path[210];
	FILE *out;
	int bad;

	mkdir(NOTES, 0755);
	note_path(name, path, sizeof(path));
	snprintf(new_path, sizeof(new_path), "%s.new", path);
	out = fopen(new_path, "we");
	if (!out)
		return cannot(new_path, "it cannot be written");
	bad = fprintf(out, "%" PRIu64 " %d %s\n", n->time, n->marked, n->why) < 0;
	bad |= fclose(out);
	return bad || rename(new_path, path) ? cannot(path, "it cannot be written") : 0;
}

void tab_note_remove(const char *name)
{
	char path[200];

	note_path(name, path, sizeof(path));
	unlink(path);
}

uint64_t tab_told(const char *name)
{
	char path[200];
	uint64_t lost = 0;
	FILE *in;

	path_of(name, "told", path, sizeof(path));
	in = fopen(path, "re");
	if (!in)
		return 0;
	if (fscanf(in, "%" SCNu64, &lost) != 1)
		lost = 0;
	fclose(in);
	return lost;
}

void tab_note_told(const char *name, uint64_t lost)
{
	char path[200];
	FILE *out;

	mkdir(NOTES, 0755);
	path_of(name, "told", path, sizeof(path));
	unlink(path);
	out = lost ? fopen(path, "we") : NULL;
	if (!out)
		return;
	fprintf(out, "%" PRIu64 "\n", lost);
	fclose(out);
}

void tab_note_discard(const char *name, const char *snapshot, const char *discard)
{
	char path[200];
	FILE *out;

	mkdir(NOTES, 0755);
	path_of(name, "rollback", path, sizeof(path));
	unlink(path);
	out = *discard ? fopen(path, "we") : NULL;
	if (!out)
		return;
	fprintf(out, "%s %s\n", snapshot, discard);
	fclose(out);
}

void tab_discard(const char *name, const char *snapshot, char *discard, size_t len)
{
	char path[200], noted[300], word[16];
	FILE *in;

	path_of(name, "rollback", path, sizeof(path));
	in = fopen(path, "re");
	if (!in)
		return;
	if (fscanf(in, "%299s %15s", noted, word) == 2 && !strcmp(noted, snapshot))
		snprintf(discard, len, "%s", word);
	fclose(in);
}

int tab_lock(const char *name)
{
	char path[200];
	int fd;

	mkdir(NOTES, 0755);
	path_of(name, "lock", path, sizeof(path));
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		flock(fd, LOCK_EX);
	return fd;
}

// SPDX-License-Identifier: GPL-2.0-only
/* dmsetup, as a user would call it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

static int run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int run(const char *fmt, ...)
{
	char command[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	return system(command);
}

void dm_create(const struct view *v)
{
	if (run("dmsetup create %s --table '%s'", v->name, v->table))
		fail("dmsetup create %s --table '%s'", v->name, v->table);
}

/* udev may look at a device whenever it was closed after a write: try again. */
void dm_remove(const struct view *v)
{
	int tries;

	for (tries = 0; tries < 10; tries++) {
		if (!run("dmsetup remove --retry %s", v->name))
			return;
		sleep(1);
	}
	fail("dmsetup remove %s", v->name);
}

void dm_reload(const struct view *v)
{
	if (run("dmsetup reload %s --table '%s'", v->name, v->table))
		fail("dmsetup reload %s --table '%s'", v->name, v->table);
}

void dm_suspend(const struct view *v, const char *flags)
{
	if (run("dmsetup suspend %s %s", flags, v->name))
		fail("dmsetup suspend %s %s", flags, v->name);
}

void dm_resume(const struct view *v)
{
	if (run("dmsetup resume %s", v->name))
		fail("dmsetup resume %s", v->name);
}

void dm_status(const struct view *v, char *line, size_t size)
{
	char command[128];
	FILE *pipe;

	snprintf(command, sizeof(command), "dmsetup status --noflush %s", v->name);
	pipe = popen(command, "r");
	if (!pipe || !fgets(line, size, pipe))
		fail("%s", command);
	pclose(pipe);
	line[strcspn(line, "\n")] = '\0';
}

// SPDX-License-Identifier: GPL-2.0-only
/* What cowsnap diff says of a store that a cut has left: no sector that differs may be missing. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash.h"

static void list_extent(bool *listed, u64 offset, u64 length)
{
	u64 sector = offset / SECTOR_BYTES, end = (offset + length) / SECTOR_BYTES;

	for (; sector < end && sector < run.set.origin_sectors; sector++)
		listed[sector] = true;
}

static void read_extents(int fd, bool *listed)
{
	FILE *in = fdopen(fd, "re");
	u64 offset, length;

	if (!in)
		fail("the extents: %s", strerror(errno));
	rewind(in);
	while (fscanf(in, "%" SCNu64 " %" SCNu64, &offset, &length) == 2)
		list_extent(listed, offset, length);
	fclose(in);
}

bool changed_ask(const char *tool, const char *store, u32 id, bool *listed)
{
	char number[16];
	char *argv[] = { (char *)tool, "diff", "--extents", (char *)store, number, "now", NULL };
	posix_spawn_file_actions_t actions;
	int out = memfd_create("extents", MFD_CLOEXEC), status = -1;
	pid_t pid;

	memset(listed, 0, run.set.origin_sectors * sizeof(*listed));
	snprintf(number, sizeof(number), "%u", id);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	/* Why it refuses is nothing to be shown at each cut. */
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0);
	if (posix_spawn(&pid, tool, &actions, NULL, argv, environ) ||
	    waitpid(pid, &status, 0) != pid)
		fail("%s: %s", tool, strerror(errno));
	posix_spawn_file_actions_destroy(&actions);
	read_extents(out, listed);
	return !status;
}

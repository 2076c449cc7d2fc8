// SPDX-License-Identifier: GPL-2.0-only
/*
 * looks NAME: the status of a mapped device, once for each line of the input.
 *
 * As dmsetup status prints it. But no process has to be started for each, which would take the only
 * processor from what is measured for milliseconds.
 */
#include <libdevmapper.h>
#include <stdint.h>
#include <stdio.h>

static int look(const char *name)
{
	struct dm_task *task = dm_task_create(DM_DEVICE_STATUS);
	char *type = NULL, *params = NULL;
	uint64_t start, length;

	if (!task || !dm_task_set_name(task, name) || !dm_task_run(task))
		return -1;
	dm_get_next_target(task, NULL, &start, &length, &type, &params);
	printf("%llu %llu %s %s\n", (unsigned long long)start, (unsigned long long)length,
	       type ? type : "-", params ? params : "-");
	dm_task_destroy(task);
	return fflush(stdout);
}

int main(int argc, char **argv)
{
	int c;

	if (argc != 2) {
		fputs("Usage: looks NAME\n", stderr);
		return 2;
	}
	while ((c = getchar()) != EOF)
		if (c == '\n' && look(argv[1]))
			return 1;
	return 0;
}

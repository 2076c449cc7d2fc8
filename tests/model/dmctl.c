// SPDX-License-Identifier: GPL-2.0-only
/* Requests to device mapper by its ioctls: see dmctl.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "dmctl.h"

#define REMOVE_TRIES	600	/* 10 ms at first, 100 ms after a second */

static int control = -1;

int dmctl_open(void)
{
	if (control < 0)
		control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	return control < 0 ? -errno : 0;
}

int dmctl(struct dmctl_request *r, unsigned long command, const char *name, unsigned int flags)
{
	int ret = dmctl_open();

	if (ret)
		return ret;
	r->head.version[0] = DM_VERSION_MAJOR;
	r->head.data_size = sizeof(*r);
	r->head.data_start = offsetof(struct dmctl_request, target);
	r->head.flags = flags;
	snprintf(r->head.name, sizeof(r->head.name), "%s", name);
	return ioctl(control, command, r) ? -errno : 0;
}

int dmctl_plain(unsigned long command, const char *name, unsigned int flags)
{
	struct dmctl_request r = { 0 };

	return dmctl(&r, command, name, flags);
}

int dmctl_create(const char *name, char *path, size_t size)
{
	struct dmctl_request r = { 0 };
	int ret = dmctl(&r, DM_DEV_CREATE, name, 0);

	if (!ret)
		snprintf(path, size, "/dev/dm-%u", minor(r.head.dev));
	return ret;
}

int dmctl_load(const char *name, const char *table)
{
	struct dmctl_request r = { 0 };
	char *parameters = (char *)(&r.target + 1);
	unsigned long long start, length;
	int at = 0;

	if (sscanf(table, "%llu %llu %15s %n", &start, &length, r.target.target_type, &at) != 3 ||
	    !at)
		return -EINVAL;
	r.head.target_count = 1;
	r.target.sector_start = start;
	r.target.length = length;
	r.target.next = sizeof(r.bytes);
	snprintf(parameters, sizeof(r.bytes) - sizeof(r.target), "%s", table + at);
	return dmctl(&r, DM_TABLE_LOAD, name, 0);
}

int dmctl_suspend(const char *name, unsigned int flags)
{
	return dmctl_plain(DM_DEV_SUSPEND, name, DM_SUSPEND_FLAG | flags);
}

int dmctl_resume(const char *name, unsigned int flags)
{
	return dmctl_plain(DM_DEV_SUSPEND, name, flags);
}

int dmctl_remove(const char *name)
{
	int ret = -EBUSY, tries;

	for (tries = 0; tries < REMOVE_TRIES && ret == -EBUSY; tries++) {
		if (tries)
			usleep(tries < 100 ? 10000 : 100000);
		ret = dmctl_plain(DM_DEV_REMOVE, name, 0);
	}
	return ret;
}

int dmctl_message(const char *name, const char *text)
{
	struct dmctl_request r = { 0 };

	snprintf(r.message.message, sizeof(r.bytes) - sizeof(r.message), "%s", text);
	return dmctl(&r, DM_TARGET_MSG, name, 0);
}

int dmctl_status(const char *name, char *line, size_t size)
{
	struct dmctl_request r = { 0 };
	int ret = dmctl(&r, DM_TABLE_STATUS, name, DM_NOFLUSH_FLAG);

	snprintf(line, size, "%s", ret ? "" : (char *)(&r.target + 1));
	return ret;
}

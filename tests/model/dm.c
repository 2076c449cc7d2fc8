// SPDX-License-Identifier: GPL-2.0-only
/*
 * Device mapper by its own ioctls: one dmsetup would take a fifth of a second in
 * an emulated machine, and the controller is to interfere often.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "model.h"

#define REMOVE_TRIES	600

struct request {
	struct dm_ioctl head;
	struct dm_target_spec target;
	char text[512];
};

static int dm_ioctl(struct request *r, unsigned long command, const char *name, u32 flags)
{
	static int control = -1;

	if (control < 0)
		control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		fail("/dev/mapper/control: %s", strerror(errno));
	r->head.version[0] = DM_VERSION_MAJOR;
	r->head.data_size = sizeof(*r);
	r->head.data_start = offsetof(struct request, target);
	r->head.flags = flags;
	snprintf(r->head.name, sizeof(r->head.name), "%s", name);
	return ioctl(control, command, r);
}

/* @v->table is "<start> <length> <type> <parameters>", as dmsetup takes it. */
static int load_table(const struct view *v)
{
	struct request r = { 0 };
	unsigned long long start, length;
	int parameters = 0;

	if (sscanf(v->table, "%llu %llu %15s %n", &start, &length, r.target.target_type,
		   &parameters) != 3 || !parameters)
		fail("table '%s'", v->table);
	r.head.target_count = 1;
	r.target.sector_start = start;
	r.target.length = length;
	r.target.next = sizeof(r.target) + sizeof(r.text);
	snprintf(r.text, sizeof(r.text), "%s", v->table + parameters);
	return dm_ioctl(&r, DM_TABLE_LOAD, v->name, 0);
}

void dm_create(struct view *v)
{
	struct request r = { 0 };

	if (dm_ioctl(&r, DM_DEV_CREATE, v->name, 0))
		fail("create %s: %s", v->name, strerror(errno));
	snprintf(v->path, sizeof(v->path), "/dev/dm-%u", minor(r.head.dev));
	dm_reload(v);
	dm_resume(v);
}

/* udev may look at a device whenever it was closed after a write: try again. */
void dm_remove(const struct view *v)
{
	struct request r;
	int tries;

	for (tries = 0; tries < REMOVE_TRIES; tries++) {
		memset(&r, 0, sizeof(r));
		if (!dm_ioctl(&r, DM_DEV_REMOVE, v->name, 0))
			return;
		if (errno != EBUSY)
			break;
		usleep(100000);
	}
	fail("remove %s: %s", v->name, strerror(errno));
}

void dm_reload(const struct view *v)
{
	if (load_table(v))
		fail("load '%s' into %s: %s", v->table, v->name, strerror(errno));
}

void dm_suspend(const struct view *v, u32 flags)
{
	struct request r = { 0 };

	if (dm_ioctl(&r, DM_DEV_SUSPEND, v->name, DM_SUSPEND_FLAG | flags))
		fail("suspend %s: %s", v->name, strerror(errno));
}

void dm_resume(const struct view *v)
{
	struct request r = { 0 };

	if (dm_ioctl(&r, DM_DEV_SUSPEND, v->name, 0))
		fail("resume %s: %s", v->name, strerror(errno));
}

void dm_status(const struct view *v, char *line, size_t size)
{
	struct request r = { 0 };

	if (dm_ioctl(&r, DM_TABLE_STATUS, v->name, DM_NOFLUSH_FLAG))
		fail("status of %s: %s", v->name, strerror(errno));
	snprintf(line, size, "%.*s", (int)sizeof(r.text) - 1, r.text);
}

void dm_message(const struct view *v, const char *message)
{
	struct request r = { 0 };
	struct dm_target_msg *msg = (struct dm_target_msg *)&r.target;

	snprintf(msg->message, sizeof(r.text), "%s", message);
	if (dm_ioctl(&r, DM_TARGET_MSG, v->name, 0))
		fail("message '%s' to %s: %s", message, v->name, strerror(errno));
}

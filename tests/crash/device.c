// SPDX-License-Identifier: GPL-2.0-only
/*
 * Device mapper and loop devices by their own ioctls: a process for each would
 * cost more than the rest of a cut. Unlike those of tests/model these return errors:
 * that a device cannot be activated is what is being looked for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/loop.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "crash.h"

#define REMOVE_TRIES	300

struct request_buffer {
	struct dm_ioctl head;
	union {
		struct dm_target_spec target;
		struct dm_target_msg message;
		u8 bytes[1024];
	};
};

static int dm_ioctl(struct request_buffer *r, unsigned long command, const char *name, u32 flags)
{
	static int control = -1;

	if (control < 0)
		control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		fail("/dev/mapper/control: %s", strerror(errno));
	r->head.version[0] = DM_VERSION_MAJOR;
	r->head.data_size = sizeof(*r);
	r->head.data_start = offsetof(struct request_buffer, target);
	r->head.flags = flags;
	snprintf(r->head.name, sizeof(r->head.name), "%s", name);
	return ioctl(control, command, r) ? -errno : 0;
}

/* The table is "LENGTH TYPE PARAMETERS": it has one line, and begins at 0. */
static int load_table(const char *name, const char *table)
{
	struct request_buffer r = { 0 };
	char *parameters = (char *)(&r.target + 1);
	unsigned long long length;
	int at = 0;

	if (sscanf(table, "%llu %15s %n", &length, r.target.target_type, &at) != 2 || !at)
		fail("table '%s'", table);
	r.head.target_count = 1;
	r.target.length = length;
	r.target.next = sizeof(r.bytes);
	snprintf(parameters, sizeof(r.bytes) - sizeof(r.target), "%s", table + at);
	return dm_ioctl(&r, DM_TABLE_LOAD, name, 0);
}

int dm_load(const char *name, const char *fmt, ...)
{
	char table[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(table, sizeof(table), fmt, ap);
	va_end(ap);
	return load_table(name, table);
}

#define TARGET_BYTES	256

static void add_target(struct request_buffer *r, const char *type, u32 from, u32 to,
		       const char *below)
{
	u8 *at = r->bytes + r->head.target_count * TARGET_BYTES;
	struct dm_target_spec *target = (struct dm_target_spec *)at;

	if (from == to)
		return;
	target->sector_start = from;
	target->length = to - from;
	target->next = TARGET_BYTES;
	snprintf(target->target_type, sizeof(target->target_type), "%s", type);
	if (below)
		snprintf((char *)(target + 1), TARGET_BYTES - sizeof(*target), "%s %u", below, from);
	r->head.target_count++;
}

int dm_load_bad(const char *name, const char *below, u32 sectors, u32 bad, u32 nr)
{
	struct request_buffer r = { 0 };

	add_target(&r, "linear", 0, bad, below);
	add_target(&r, "error", bad, bad + nr, NULL);
	add_target(&r, "linear", bad + nr, sectors, below);
	return dm_ioctl(&r, DM_TABLE_LOAD, name, 0);
}

/* 0, or what it failed with; then there is no such device. */
int dm_make(const char *name, char *path, size_t size, const char *fmt, ...)
{
	struct request_buffer r = { 0 };
	char table[400];
	va_list ap;
	int ret;

	va_start(ap, fmt);
	vsnprintf(table, sizeof(table), fmt, ap);
	va_end(ap);
	ret = dm_ioctl(&r, DM_DEV_CREATE, name, 0);
	if (ret)
		fail("create %s: %s", name, strerror(-ret));
	snprintf(path, size, "/dev/dm-%u", minor(r.head.dev));
	ret = load_table(name, table);
	if (!ret)
		ret = dm_resume(name);
	if (ret)
		dm_remove(name);
	return ret;
}

int dm_suspend(const char *name)
{
	struct request_buffer r = { 0 };

	return dm_ioctl(&r, DM_DEV_SUSPEND, name, DM_SUSPEND_FLAG | DM_SKIP_LOCKFS_FLAG);
}

int dm_resume(const char *name)
{
	struct request_buffer r = { 0 };

	return dm_ioctl(&r, DM_DEV_SUSPEND, name, DM_SKIP_LOCKFS_FLAG);
}

int dm_remove(const char *name)
{
	struct request_buffer r;
	int tries, ret = -EBUSY;

	for (tries = 0; tries < REMOVE_TRIES && ret == -EBUSY; tries++) {
		if (tries)
			usleep(10000);
		memset(&r, 0, sizeof(r));
		ret = dm_ioctl(&r, DM_DEV_REMOVE, name, 0);
	}
	if (ret)
		fail("remove %s: %s", name, strerror(-ret));
	return ret;
}

int dm_message(const char *name, const char *fmt, ...)
{
	struct request_buffer r = { 0 };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r.message.message, sizeof(r.bytes) - sizeof(r.message), fmt, ap);
	va_end(ap);
	return dm_ioctl(&r, DM_TARGET_MSG, name, 0);
}

int dm_status(const char *name, char *line, size_t size)
{
	struct request_buffer r = { 0 };
	int ret = dm_ioctl(&r, DM_TABLE_STATUS, name, DM_NOFLUSH_FLAG);

	snprintf(line, size, "%s", ret ? "" : (char *)(&r.target + 1));
	return ret;
}

void loop_make(struct loop *loop, int file, u64 offset, u64 bytes, u32 block_bytes)
{
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	struct loop_config config = {
		.fd = file,
		.block_size = block_bytes,
		.info.lo_offset = offset,
		.info.lo_sizelimit = bytes,
	};
	int number = ioctl(control, LOOP_CTL_GET_FREE);

	if (control < 0 || number < 0)
		fail("no loop device: %s", strerror(errno));
	close(control);
	snprintf(loop->path, sizeof(loop->path), "/dev/loop%d", number);
	loop->fd = open(loop->path, O_RDWR | O_CLOEXEC);
	if (loop->fd < 0 || ioctl(loop->fd, LOOP_CONFIGURE, &config))
		fail("%s: %s", loop->path, strerror(errno));
}

void loop_free(struct loop *loop)
{
	if (ioctl(loop->fd, LOOP_CLR_FD))
		fail("%s: %s", loop->path, strerror(errno));
	close(loop->fd);
}

/* A file in memory, seen by us and through a loop device alike. */
int memory_file(const char *name, u64 bytes, u8 **map)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, bytes))
		fail("a file of %llu bytes in memory: %s", (unsigned long long)bytes,
		     strerror(errno));
	*map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*map == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	return fd;
}

int open_device(const char *path)
{
	int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);

	if (fd < 0)
		fail("open %s: %s", path, strerror(errno));
	return fd;
}

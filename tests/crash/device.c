// SPDX-License-Identifier: GPL-2.0-only
/*
 * Device mapper and loop devices by their own ioctls: a process for each would
 * cost more than the rest of a cut. Errors are returned: that a device cannot be
 * activated is what is being looked for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crash.h"
#include "dmctl.h"

/* The table is "LENGTH TYPE PARAMETERS": it has one line, and begins at 0. */
static int load_table(const char *name, const char *format, va_list ap)
{
	char table[400];
	int at = snprintf(table, sizeof(table), "0 ");

	vsnprintf(table + at, sizeof(table) - at, format, ap);
	return dmctl_load(name, table);
}

int dm_load(const char *name, const char *fmt, ...)
{
	va_list ap;
	int ret;

	va_start(ap, fmt);
	ret = load_table(name, fmt, ap);
	va_end(ap);
	return ret;
}

#define TARGET_BYTES	256

static void add_target(struct dmctl_request *r, const char *type, u32 from, u32 to,
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
	struct dmctl_request r = { 0 };

	add_target(&r, "linear", 0, bad, below);
	add_target(&r, "error", bad, bad + nr, NULL);
	add_target(&r, "linear", bad + nr, sectors, below);
	return dmctl(&r, DM_TABLE_LOAD, name, 0);
}

/* 0, or what it failed with; then there is no such device. */
int dm_make(const char *name, char *path, size_t size, const char *fmt, ...)
{
	va_list ap;
	int ret = dmctl_create(name, path, size);

	if (ret)
		fail("create %s: %s", name, strerror(-ret));
	va_start(ap, fmt);
	ret = load_table(name, fmt, ap);
	va_end(ap);
	if (!ret)
		ret = dm_resume(name);
	if (ret)
		dm_remove(name);
	return ret;
}

int dm_suspend(const char *name)
{
	return dmctl_suspend(name, DM_SKIP_LOCKFS_FLAG);
}

int dm_resume(const char *name)
{
	return dmctl_resume(name, DM_SKIP_LOCKFS_FLAG);
}

int dm_remove(const char *name)
{
	int ret = dmctl_remove(name);

	if (ret)
		fail("remove %s: %s", name, strerror(-ret));
	return ret;
}

int dm_message(const char *name, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return dmctl_message(name, text);
}

int dm_status(const char *name, char *line, size_t size)
{
	return dmctl_status(name, line, size);
}

/* Another process may be as fast to take the one that is free: 0, or the error. */
static int loop_try(struct loop *loop, const struct loop_config *config)
{
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int number = ioctl(control, LOOP_CTL_GET_FREE), ret = 0;

	if (control < 0 || number < 0)
		fail("no loop device: %s", strerror(errno));
	close(control);
	snprintf(loop->path, sizeof(loop->path), "/dev/loop%d", number);
	loop->fd = open(loop->path, O_RDWR | O_CLOEXEC);
	if (loop->fd < 0)
		return errno;
	if (ioctl(loop->fd, LOOP_CONFIGURE, config)) {
		ret = errno;
		close(loop->fd);
	}
	return ret;
}

void loop_make(struct loop *loop, int file, u64 offset, u64 bytes, u32 block_bytes)
{
	struct loop_config config = {
		.fd = file,
		.block_size = block_bytes,
		.info.lo_offset = offset,
		.info.lo_sizelimit = bytes,
	};
	int ret;

	do
		ret = loop_try(loop, &config);
	while (ret == EBUSY);
	if (ret)
		fail("%s: %s", loop->path, strerror(ret));
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

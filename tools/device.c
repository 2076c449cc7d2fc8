// SPDX-License-Identifier: GPL-2.0-only
/* Opening a block device or an image file that nobody else uses. */
#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/fs.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device.h"

/* What one direct read or write may cover. */
#define BOUNCE_BYTES	(1U << 20)

static struct device *device_of(struct io *io)
{
	return (struct device *)((char *)io - offsetof(struct device, io));
}

static bool may_repeat(ssize_t n)
{
	return n < 0 && errno == EINTR;
}

static int file_read(struct io *io, uint64_t offset, void *data, size_t len)
{
	char *at = data;
	ssize_t n;

	while (len) {
		n = pread(device_of(io)->fd, at, len, offset);
		if (may_repeat(n))
			continue;
		if (n <= 0)
			return -1;
		at += n;
		offset += n;
		len -= n;
	}
	return 0;
}

static int file_write(struct io *io, uint64_t offset, const void *data, size_t len)
{
	const char *at = data;
	ssize_t n;

	while (len) {
		n = pwrite(device_of(io)->fd, at, len, offset);
		if (may_repeat(n))
			continue;
		if (n <= 0)
			return -1;
		at += n;
		offset += n;
		len -= n;
	}
	return 0;
}

static int file_sync(struct io *io)
{
	return fsync(device_of(io)->fd);
}

/*
 * A block device is read and written past the page cache: what is read stands on the
 * device now, a sector that cannot be read costs no neighbour, and a write reads nothing.
 */
static int direct_span(struct device *dev, bool write, uint64_t start, size_t len)
{
	ssize_t n;

	do {
		n = write ? pwrite(dev->direct, dev->bounce, len, start) :
		    pread(dev->direct, dev->bounce, len, start);
	} while (may_repeat(n));
	return n == (ssize_t)len ? 0 : -1;
}

static int direct_read(struct io *io, uint64_t offset, void *data, size_t len)
{
	struct device *dev = device_of(io);
	uint32_t unit = io->logical_bytes;
	char *at = data;

	while (len) {
		size_t skip = offset % unit, n = BOUNCE_BYTES - skip;

		if (n > len)
			n = len;
		if (direct_span(dev, false, offset - skip, (skip + n + unit - 1) / unit * unit))
			return -1;
		memcpy(at, dev->bounce + skip, n);
		at += n;
		offset += n;
		len -= n;
	}
	return 0;
}

static int direct_write(struct io *io, uint64_t offset, const void *data, size_t len)
{
	struct device *dev = device_of(io);
	const char *at = data;

	/* A part of a logical block: the page cache has to read the rest of it. */
	if (offset % io->logical_bytes || len % io->logical_bytes)
		return file_write(io, offset, data, len);
	while (len) {
		size_t n = len < BOUNCE_BYTES ? len : BOUNCE_BYTES;

		memcpy(dev->bounce, at, n);
		if (direct_span(dev, true, offset, n))
			return -1;
		at += n;
		offset += n;
		len -= n;
	}
	return 0;
}

static int fail(struct device *dev, const char *text)
{
	snprintf(dev->error, sizeof(dev->error), "%s", text);
	return -1;
}

static int fail_errno(struct device *dev)
{
	return fail(dev, errno == EBUSY ?
		    "in use; remove the devices that use it first" : strerror(errno));
}

/* ---- loop devices on an image file ---- */

/* Is this file behind the loop device whose attribute stands at @attribute? */
static bool is_behind(const struct stat *file, const char *attribute)
{
	char path[4096];
	struct stat behind;
	FILE *in = fopen(attribute, "re");
	bool found = false;

	if (!in)
		return false;
	if (fgets(path, sizeof(path), in)) {
		path[strcspn(path, "\n")] = '\0';
		found = !stat(path, &behind) && behind.st_dev == file->st_dev &&
			behind.st_ino == file->st_ino;
	}
	fclose(in);
	return found;
}

static int hold_loop(struct device *dev, const char *attribute, bool write)
{
	char path[64];
	int number;

	if (sscanf(attribute, "/sys/block/loop%d/", &number) != 1)
		return 0;
	snprintf(path, sizeof(path), "/dev/loop%d", number);
	if (write) {
		/* What the loop device has cached would not be what we write. */
		snprintf(dev->error, sizeof(dev->error), "it is behind %s: name that, or detach it",
			 path);
		return -1;
	}
	dev->loop = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
	if (dev->loop >= 0 || errno != EBUSY)
		return 0;
	snprintf(dev->error, sizeof(dev->error), "in use through %s", path);
	return -1;
}

static int check_loops(struct device *dev, const struct stat *file, bool write)
{
	glob_t found;
	size_t i;
	int r = 0;

	if (glob("/sys/block/loop*/loop/backing_file", 0, NULL, &found))
		return 0;
	for (i = 0; i < found.gl_pathc && !r; i++)
		if (is_behind(file, found.gl_pathv[i]))
			r = hold_loop(dev, found.gl_pathv[i], write);
	globfree(&found);
	return r;
}

/* ---- open ---- */

static int open_file(struct device *dev, const struct stat *file, bool write)
{
	dev->io.bytes = file->st_size;
	/* Another of these programs. */
	if (flock(dev->fd, (write ? LOCK_EX : LOCK_SH) | LOCK_NB))
		return fail(dev, "in use by another program");
	return check_loops(dev, file, write);
}

static int open_disk(struct device *dev, const char *path, bool write)
{
	int logical = 0;
	unsigned int physical = 0;

	if (ioctl(dev->fd, BLKGETSIZE64, &dev->io.bytes) || ioctl(dev->fd, BLKSSZGET, &logical))
		return fail_errno(dev);
	/* Nobody needs these two to read a store. */
	ioctl(dev->fd, BLKPBSZGET, &physical);
	ioctl(dev->fd, BLKALIGNOFF, &dev->io.offset_bytes);
	dev->io.logical_bytes = logical;
	dev->io.physical_bytes = physical;
	/* What the cache has of it may be older than what a mapped device wrote. */
	ioctl(dev->fd, BLKFLSBUF);
	dev->direct = open(path, (write ? O_RDWR : O_RDONLY) | O_DIRECT | O_CLOEXEC);
	if (dev->direct < 0 || logical <= 0 || BOUNCE_BYTES % logical)
		return 0;
	if (posix_memalign((void **)&dev->bounce, BOUNCE_BYTES, BOUNCE_BYTES))
		return fail(dev, "out of memory");
	dev->io.read = direct_read;
	dev->io.write = direct_write;
	/* The page cache writes what it has gathered with a queue, and in order. */
	dev->io.write_soon = file_write;
	return 0;
}

static int open_content(struct device *dev, const char *path, bool write)
{
	struct stat st;
	int r = 0;

	if (fstat(dev->fd, &st))
		return fail_errno(dev);
	if (S_ISREG(st.st_mode))
		r = open_file(dev, &st, write);
	else if (S_ISBLK(st.st_mode))
		r = open_disk(dev, path, write);
	else
		return fail(dev, "neither a block device nor a file");
	dev->io.bytes &= ~511ULL;
	return r;
}

static int open_as(struct device *dev, const char *path, bool write, bool shared)
{
	int flags = (write ? O_RDWR : O_RDONLY) | O_CLOEXEC;
	struct stat st;

	memset(dev, 0, sizeof(*dev));
	dev->fd = -1;
	dev->loop = -1;
	dev->direct = -1;
	dev->io.read = file_read;
	dev->io.write = file_write;
	dev->io.sync = file_sync;
	if (stat(path, &st))
		return fail_errno(dev);
	/* For a block device, and nothing else, this means exclusive use. */
	if (S_ISBLK(st.st_mode) && !shared)
		flags |= O_EXCL;
	dev->fd = open(path, flags);
	if (dev->fd < 0)
		return fail_errno(dev);
	if (open_content(dev, path, write)) {
		device_close(dev);
		return -1;
	}
	return 0;
}

int device_open(struct device *dev, const char *path, bool write)
{
	return open_as(dev, path, write, false);
}

int device_open_shared(struct device *dev, const char *path)
{
	return open_as(dev, path, false, true);
}

void device_close(struct device *dev)
{
	if (dev->fd >= 0)
		close(dev->fd);
	if (dev->loop >= 0)
		close(dev->loop);
	if (dev->direct >= 0)
		close(dev->direct);
	free(dev->bounce);
	dev->bounce = NULL;
	dev->fd = -1;
	dev->loop = -1;
	dev->direct = -1;
}

/* What libblkid's safe probe returns for signatures of several kinds. */
#define AMBIGUOUS	(-2)

/* What libblkid's probe returns: 0 for one type, which is in @text then. */
static int probe_type(struct device *dev, char *text, size_t len)
{
	blkid_probe probe = blkid_new_probe();
	const char *type = NULL;
	int r = 1;

	if (!probe)
		return r;
	blkid_probe_enable_partitions(probe, 1);
	if (!blkid_probe_set_device(probe, dev->fd, 0, 0))
		r = blkid_do_safeprobe(probe);
	if (!r && blkid_probe_lookup_value(probe, "TYPE", &type, NULL) &&
	    blkid_probe_lookup_value(probe, "PTTYPE", &type, NULL))
		r = 1;
	if (!r)
		snprintf(text, len, "%s", type);
	blkid_free_probe(probe);
	return r;
}

const char *device_type(struct device *dev, char *text, size_t len)
{
	return probe_type(dev, text, len) ? NULL : text;
}

const char *device_content(struct device *dev, char *text, size_t len)
{
	int r = probe_type(dev, text, len);

	if (r == AMBIGUOUS)
		snprintf(text, len, "signatures of several kinds");
	return r && r != AMBIGUOUS ? NULL : text;
}

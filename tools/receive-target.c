// SPDX-License-Identifier: GPL-2.0-only
/* A file or a device that becomes an image. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc32c.h"
#include "receive-target.h"
#include "room.h"
#include "stream.h"

/* So many samples, of so many bytes each. */
#define SAMPLES		64
#define SAMPLE_BYTES	4096U

static int __attribute__((format(printf, 2, 3))) fail(struct target *t, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(t->error, sizeof(t->error), format, args);
	va_end(args);
	return -1;
}

static int open_existing(struct target *t)
{
	if (device_open(&t->dev, t->path, true))
		return fail(t, "%s", t->dev.error);
	t->opened = true;
	return 0;
}

int target_open(struct target *t, const char *path)
{
	struct stat st;

	memset(t, 0, sizeof(*t));
	t->path = path;
	if (stat(path, &st))
		return errno == ENOENT ? 0 : fail(t, "%s", strerror(errno));
	t->exists = true;
	t->is_device = S_ISBLK(st.st_mode);
	if (open_existing(t))
		return -1;
	t->bytes = t->is_device ? t->dev.io.bytes : (u64)st.st_size;
	return 0;
}

void target_close(struct target *t)
{
	if (t->opened)
		device_close(&t->dev);
	t->opened = false;
}

const char *target_content(struct target *t, char *text, size_t len)
{
	const char *content;

	if (!t->exists || !t->bytes)
		return NULL;
	content = room_content(&t->dev, text, len);
	/* A device without anything known on it is what one takes for a copy. */
	return content || t->is_device ? content : "data";
}

int target_check_room(struct target *t, u64 bytes)
{
	return t->is_device && t->dev.io.bytes < bytes ?
	       fail(t, "it has %" PRIu64 " bytes, and the image %" PRIu64, t->dev.io.bytes,
		    bytes) : 0;
}

int target_make(struct target *t)
{
	int fd;

	if (t->exists)
		return 0;
	fd = open(t->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return fail(t, "%s", strerror(errno));
	close(fd);
	t->exists = true;
	t->made = true;
	return open_existing(t);
}

void target_unmake(struct target *t)
{
	if (t->made)
		unlink(t->path);
}

int target_grow(struct target *t, u64 bytes)
{
	return !t->is_device && t->dev.io.bytes < bytes ? target_cut(t, bytes) : 0;
}

int target_cut(struct target *t, u64 bytes)
{
	if (t->is_device)
		return 0;
	if (ftruncate(t->dev.fd, bytes))
		return fail(t, "%s", strerror(errno));
	t->dev.io.bytes = bytes;
	return 0;
}

int target_write(struct target *t, u64 offset, const void *data, size_t len)
{
	errno = 0;
	if (!io_write(&t->dev.io, offset, data, len))
		return 0;
	return fail(t, "it cannot be written at byte %" PRIu64 ": %s", offset,
		    errno ? strerror(errno) : "no more room");
}

static int write_zeroes(struct target *t, u64 offset, u64 len)
{
	static const u8 zeroes[STREAM_MAX_DATA];
	size_t n;

	for (; len; offset += n, len -= n) {
		n = len < sizeof(zeroes) ? len : sizeof(zeroes);
		if (target_write(t, offset, zeroes, n))
			return -1;
	}
	return 0;
}

static bool zero_quickly(struct target *t, u64 offset, u64 len)
{
	uint64_t range[2] = { offset, len };

	if (!t->is_device)
		return !fallocate(t->dev.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
				  len);
	return !ioctl(t->dev.fd, BLKZEROOUT, range);
}

int target_zero(struct target *t, u64 offset, u64 len)
{
	return zero_quickly(t, offset, len) ? 0 : write_zeroes(t, offset, len);
}

int target_sync(struct target *t)
{
	if (!t->sync_failed && !io_sync(&t->dev.io))
		return 0;
	/* The kernel tells of what is lost once: to ask again would succeed. */
	if (!t->sync_failed)
		t->sync_errno = errno;
	t->sync_failed = true;
	return fail(t, "what was written is not durable: %s", strerror(t->sync_errno));
}

int target_sample(struct target *t, u64 bytes, u32 *crc)
{
	u8 data[SAMPLE_BYTES];
	size_t len = bytes < sizeof(data) ? bytes : sizeof(data);
	u64 step = (bytes - len) / (SAMPLES - 1), at;
	int i;

	*crc = ~0U;
	for (i = 0; i < SAMPLES; i++) {
		at = i == SAMPLES - 1 ? bytes - len : i * step / STREAM_UNIT * STREAM_UNIT;
		if (io_read(&t->dev.io, at, data, len))
			return fail(t, "it cannot be read at byte %" PRIu64, at);
		*crc = crc32c(*crc, data, len);
	}
	return 0;
}

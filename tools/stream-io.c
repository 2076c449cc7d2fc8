// SPDX-License-Identifier: GPL-2.0-only
/* Bytes from and to pipes. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "stream.h"

long stream_read(int fd, void *data, size_t len)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = read(fd, (char *)data + done, len - done);
		/* A signal that somebody waits for ends it: its handler has said so. */
		if (n < 0)
			return -1;
		if (!n)
			break;
		done += n;
	}
	return done;
}

int stream_write(int fd, const void *data, size_t len)
{
	const char *at = data;
	ssize_t n;

	while (len) {
		n = write(fd, at, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		at += n;
		len -= n;
	}
	return 0;
}

bool stream_is_zero(const void *data, size_t len)
{
	const char *bytes = data;

	return !len || (!bytes[0] && !memcmp(bytes, bytes + 1, len - 1));
}

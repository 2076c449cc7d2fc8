// SPDX-License-Identifier: GPL-2.0-only
/* Why the kernel refused something: it only says so in its log. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kmsg.h"

void kmsg_mark(struct kmsg *k)
{
	k->fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (k->fd >= 0)
		lseek(k->fd, 0, SEEK_END);
}

void kmsg_close(struct kmsg *k)
{
	if (k->fd >= 0)
		close(k->fd);
}

const char *kmsg_words(char *record)
{
	static const char ours[] = "device-mapper: ";
	char *words = strstr(record, ours), *end;

	if (!words)
		return NULL;
	words += strlen(ours);
	end = strchr(words, '\n');
	if (end)
		*end = '\0';
	/* "ioctl: error adding target to table", and the like, follow the line that says why. */
	if (!strncmp(words, "ioctl: ", 7) || strstr(words, ": preresume failed, error = "))
		return NULL;
	if (!strncmp(words, "table: ", 7))
		words += 7;
	end = strstr(words, " (-E");
	if (end)
		*end = '\0';
	return words;
}

/* What this adds to the line in front of it is no reason. */
static bool only_sums_up(const char *words)
{
	return strstr(words, ": cannot be used");
}

bool kmsg_since(struct kmsg *k, char *text, size_t len)
{
	char record[2048];
	const char *words;
	bool found = false;
	ssize_t n;

	if (k->fd < 0)
		return false;
	/* EPIPE: a record was overwritten before it was read. */
	while ((n = read(k->fd, record, sizeof(record) - 1)) > 0 || errno == EPIPE) {
		if (n <= 0)
			continue;
		record[n] = '\0';
		words = kmsg_words(record);
		if (words && !(found && only_sums_up(words))) {
			snprintf(text, len, "%s", words);
			found = true;
		}
	}
	return found;
}

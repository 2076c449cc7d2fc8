// SPDX-License-Identifier: GPL-2.0-only
/* Sizes and times, as people write and read them. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "size.h"

int size_read(const char *text, uint64_t *bytes)
{
	static const char units[] = "sKMGT";
	static const uint64_t unit_bytes[] = { 512, 1 << 10, 1 << 20, 1 << 30, 1ULL << 40 };
	const char *unit = NULL;
	uint64_t n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || errno)
		return -1;
	if (*end) {
		unit = strchr(units, *end == 's' ? 's' : toupper((unsigned char)*end));
		if (!unit || end[1])
			return -1;
	}
	return __builtin_mul_overflow(n, unit_bytes[unit ? unit - units : 1], bytes) ? -1 : 0;
}

const char *size_text(uint64_t bytes, char *text, size_t len)
{
	static const char units[] = "BKMGTPE";
	double size = bytes;
	int unit = 0;

	while (size >= 1024 && units[unit + 1]) {
		size /= 1024;
		unit++;
	}
	if (!unit || size >= 100 || size == (uint64_t)size)
		snprintf(text, len, "%.0f%c", size, units[unit]);
	else
		snprintf(text, len, "%.1f%c", size, units[unit]);
	return text;
}

const char *time_text(uint64_t seconds, char *text, size_t len)
{
	if (seconds < 60)
		snprintf(text, len, "%" PRIu64 "s", seconds);
	else if (seconds < 3600)
		snprintf(text, len, "%" PRIu64 "m %" PRIu64 "s", seconds / 60, seconds % 60);
	else if (seconds < 86400)
		snprintf(text, len, "%" PRIu64 "h %" PRIu64 "m", seconds / 3600,
			 seconds / 60 % 60);
	else
		snprintf(text, len, "%" PRIu64 "d %" PRIu64 "h", seconds / 86400,
			 seconds / 3600 % 24);
	return text;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where a stream goes on, as a word that can be copied from one machine to another:
 *
 *	cowsnap1-UUID-FROM-TO-POSITION-CRC
 *
 * The uuid is that of the store, FROM and TO are epochs, all digits are hexadecimal. The crc,
 * of all before its dash, finds what was copied only in part.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "crc32c.h"
#include "stream.h"

void stream_hex(const u8 *bytes, size_t len, char *text)
{
	size_t i;

	for (i = 0; i < len; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static int digit(char c)
{
	const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;

	return at ? at - digits : -1;
}

bool stream_unhex(const char *text, u8 *bytes, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++) {
		int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);

		if (low < 0)
			return false;
		bytes[i] = high << 4 | low;
	}
	return true;
}

void stream_token(const struct stream_what *what, u64 position, char *token)
{
	char uuid[33];
	int n;

	stream_hex(what->uuid, sizeof(what->uuid), uuid);
	n = snprintf(token, STREAM_TOKEN, "cowsnap1-%s-%" PRIx64 "-%" PRIx64 "-%" PRIx64, uuid,
		     what->from_epoch, what->to_epoch, position);
	snprintf(token + n, STREAM_TOKEN - n, "-%08x", crc32c(~0U, token, n));
}

bool stream_read_token(const char *token, struct stream_what *what, u64 *position)
{
	char uuid[33], again[STREAM_TOKEN];

	memset(what, 0, sizeof(*what));
	if (sscanf(token, "cowsnap1-%32[0-9a-f]-%" SCNx64 "-%" SCNx64 "-%" SCNx64 "-", uuid,
		   &what->from_epoch, &what->to_epoch, position) != 4 ||
	    strlen(uuid) != 32 || !stream_unhex(uuid, what->uuid, sizeof(what->uuid)))
		return false;
	/* Whatever sscanf() took for a number: only what stream_token() writes is a token. */
	stream_token(what, *position, again);
	return !strcmp(token, again);
}

const char *stream_name(const u8 *uuid, u64 epoch, u32 id, char *text, size_t len)
{
	char hex[9];

	stream_hex(uuid, 4, hex);
	snprintf(text, len, "snapshot %u (epoch %" PRIu64 " of store %s)", id, epoch, hex);
	return text;
}

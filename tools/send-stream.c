// SPDX-License-Identifier: GPL-2.0-only
/*
 * Extents of a snapshot become records of a stream. They are read in pieces, which are split
 * into what is zero and what is not. Runs of zeroes grow until something else comes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "send-stream.h"

/* Zeroes are looked for in units of it. */
#define ZERO_UNIT	4096U
#define AHEAD_BYTES	(8U << 20)

static int fail(struct sender *s, const char *text)
{
	snprintf(s->error, sizeof(s->error), "%s", text);
	return -1;
}

/* Sleeps until what has been sent is not too much for the time since the beginning. */
static void keep_rate(const struct sender *s)
{
	u64 due = s->begin + (u64)((double)s->sent / s->rate * 1000), now;

	while ((now = now_ms()) < due)
		usleep((due - now > 500 ? 500 : due - now) * 1000);
}

static int put(struct sender *s, const void *data, size_t len)
{
	if (stream_write(s->fd, data, len))
		return fail(s, errno == EPIPE ? "the program that received the stream has ended" :
			    strerror(errno));
	s->sent += len;
	if (s->rate)
		keep_rate(s);
	return 0;
}

static int put_record(struct sender *s, const struct stream_part *part, const void *payload)
{
	struct stream_record record;

	stream_pack_record(&record, part, &s->crc);
	s->records++;
	return put(s, &record, sizeof(record)) || put(s, payload, part->stored) ? -1 : 0;
}

static int put_zeroes(struct sender *s)
{
	struct stream_part part = { STREAM_ZERO, s->zeroes.offset, s->zeroes.length, 0, 0 };

	if (!part.length)
		return 0;
	part.payload_crc = stream_payload_crc(NULL, 0);
	s->zeroes.length = 0;
	return put_record(s, &part, NULL);
}

static int add_zeroes(struct sender *s, u64 offset, u64 len)
{
	if (s->zeroes.length && s->zeroes.offset + s->zeroes.length != offset && put_zeroes(s))
		return -1;
	if (!s->zeroes.length)
		s->zeroes.offset = offset;
	s->zeroes.length += len;
	return 0;
}

/* What does not become shorter is sent as it is. */
static size_t pack(struct sender *s, const u8 *data, size_t len)
{
	size_t n = s->compress ? ZSTD_compress2(s->zstd, s->packed, len - 1, data, len) : 0;

	return s->compress && !ZSTD_isError(n) ? n : len;
}

static int put_data(struct sender *s, u64 offset, const u8 *data, size_t len)
{
	struct stream_part part = { STREAM_DATA, offset, len, 0, 0 };
	const u8 *payload = data;

	if (put_zeroes(s))
		return -1;
	part.stored = pack(s, data, len);
	if (part.stored != len)
		payload = s->packed;
	part.payload_crc = stream_payload_crc(payload, part.stored);
	return put_record(s, &part, payload);
}

/* How many bytes from here on are zero, or are not. */
static size_t run_length(const u8 *data, size_t len, bool *zero)
{
	size_t at = 0, n;

	while (at < len) {
		n = len - at < ZERO_UNIT ? len - at : ZERO_UNIT;
		if (!at)
			*zero = stream_is_zero(data, n);
		else if (stream_is_zero(data + at, n) != *zero)
			break;
		at += n;
	}
	return at;
}

static int put_piece(struct sender *s, u64 offset, size_t len)
{
	size_t at, n;
	bool zero = false;

	for (at = 0; at < len; at += n) {
		n = run_length(s->data + at, len - at, &zero);
		if (zero ? add_zeroes(s, offset + at, n) :
			   put_data(s, offset + at, s->data + at, n))
			return -1;
	}
	return 0;
}

/* The device works while what it has read is on its way: so much is asked for beforehand. */
static void want_ahead(struct sender *s, const struct extents *extents)
{
	while (s->ahead < extents->nr && s->wanted < s->covered + AHEAD_BYTES) {
		const struct extent *x = &extents->at[s->ahead];
		u64 left = x->length - s->ahead_offset;
		u64 n = left < STREAM_MAX_DATA ? left : STREAM_MAX_DATA;

		source_wants(s->src, x->offset + s->ahead_offset, n);
		s->wanted += n;
		s->ahead_offset += n;
		if (n == left) {
			s->ahead++;
			s->ahead_offset = 0;
		}
	}
}

/* Pieces end at multiples of their greatest length. */
static int send_extent(struct sender *s, const struct extents *extents, const struct extent *x)
{
	u64 offset = x->offset, end = x->offset + x->length, len;

	for (; offset < end; offset += len) {
		len = STREAM_MAX_DATA - offset % STREAM_MAX_DATA;
		if (len > end - offset)
			len = end - offset;
		want_ahead(s, extents);
		if (source_read(s->src, offset, s->data, len))
			return fail(s, s->src->error);
		if (put_piece(s, offset, len))
			return -1;
		source_done(s->src, offset, len);
		s->covered += len;
		progress_show(&s->progress, s->covered);
	}
	return 0;
}

static int send_end(struct sender *s)
{
	struct stream_part part = { STREAM_END, s->info.what.to_bytes, 0, 0, 0 };

	if (put_zeroes(s))
		return -1;
	part.length = s->records;
	part.payload_crc = stream_payload_crc(NULL, 0);
	return put_record(s, &part, NULL);
}

static int send_all(struct sender *s, const struct extents *extents)
{
	struct stream_header header;
	size_t i;

	stream_pack_header(&header, &s->info);
	s->crc = s->info.crc;
	s->begin = now_ms();
	if (put(s, &header, sizeof(header)))
		return -1;
	for (i = 0; i < extents->nr; i++)
		if (send_extent(s, extents, &extents->at[i]))
			return -1;
	return send_end(s);
}

static int get_memory(struct sender *s)
{
	s->data = malloc(STREAM_MAX_DATA);
	s->packed = malloc(STREAM_MAX_DATA);
	s->zstd = s->compress ? ZSTD_createCCtx() : NULL;
	if (!s->data || !s->packed || (s->compress && !s->zstd))
		return fail(s, "out of memory");
	if (s->compress)
		ZSTD_CCtx_setParameter(s->zstd, ZSTD_c_checksumFlag, 1);
	return 0;
}

int send_stream(struct sender *s, const struct extents *extents)
{
	int r = get_memory(s);

	if (!r)
		r = send_all(s, extents);
	ZSTD_freeCCtx(s->zstd);
	free(s->data);
	free(s->packed);
	return r;
}

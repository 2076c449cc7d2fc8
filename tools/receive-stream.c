// SPDX-License-Identifier: GPL-2.0-only
/*
 * A stream is read, and applied to a target. Each record is held against its checksum before
 * anything of it is written; the target is not touched before the first one has been found
 * right. So a stream that is damaged or cut stops behind a record, and what is before that is
 * part of the image.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "receive-stream.h"

/* How much is written, and for how long, before it is made durable. */
#define SYNC_BYTES	(256U << 20)
#define SYNC_MS		10000

static int fail(struct receiver *r, const char *text)
{
	snprintf(r->error, sizeof(r->error), "%s", text);
	return -1;
}

static int get(struct receiver *r, void *data, size_t len)
{
	long n = stream_read(r->fd, data, len);

	if (n == (long)len)
		return 0;
	if (n < 0)
		return fail(r, errno == EINTR ? "interrupted" : strerror(errno));
	return fail(r, "the stream has ended early");
}

/* ---- header ---- */

int receive_header(struct receiver *r)
{
	u8 data[STREAM_MAX_HEADER];
	struct stream_header start;
	u32 len;

	if (get(r, data, sizeof(start)))
		return -1;
	memcpy(&start, data, sizeof(start));
	if (stream_check_start(&start, &len, r->error) ||
	    get(r, data + sizeof(start), len - sizeof(start)) ||
	    stream_unpack_header(data, len, &r->info, r->error))
		return -1;
	r->crc = r->info.crc;
	r->next = r->info.position;
	return 0;
}

/* ---- durable ---- */

/* r->state says what the file says, also if that cannot be written. */
int receive_save(struct receiver *r, const struct receive_state *state)
{
	if (receive_state_write(r->state_path, state)) {
		snprintf(r->error, sizeof(r->error), "%.100s: %s", r->state_path, strerror(errno));
		return -1;
	}
	r->state = *state;
	return 0;
}

int receive_checkpoint(struct receiver *r)
{
	struct receive_state state = r->state;

	/* One that goes over old ground does not lose what it had. */
	if (r->next > state.position)
		state.position = r->next;
	if (target_sync(r->target) ||
	    (state.position && target_sample(r->target, state.position, &state.sample)))
		return fail(r, r->target->error);
	r->unsafe = 0;
	r->synced = now_ms();
	return receive_save(r, &state);
}

static int checkpoint_if_due(struct receiver *r, u64 written)
{
	r->unsafe += written;
	if (r->unsafe < SYNC_BYTES && now_ms() - r->synced < SYNC_MS)
		return 0;
	return receive_checkpoint(r);
}

/* That the target is no image any more is known before it is none. */
static int begin(struct receiver *r)
{
	struct receive_state state = r->state;

	if (r->begun)
		return 0;
	if (target_make(r->target))
		return fail(r, r->target->error);
	if (!state.exists || state.whole || !stream_same(&state.what, &r->info.what)) {
		state.position = r->info.position;
		state.sample = 0;
	}
	state.exists = true;
	state.whole = false;
	state.what = r->info.what;
	memset(&state.kept, 0, sizeof(state.kept));
	if (receive_save(r, &state)) {
		target_unmake(r->target);
		return -1;
	}
	r->begun = true;
	return target_grow(r->target, state.what.to_bytes) ? fail(r, r->target->error) : 0;
}

/* ---- records ---- */

static int unpack(struct receiver *r, const struct stream_part *p, const u8 **data)
{
	size_t n;

	*data = r->payload;
	if (p->stored == p->length)
		return 0;
	n = ZSTD_decompressDCtx(r->zstd, r->data, p->length, r->payload, p->stored);
	*data = r->data;
	return ZSTD_isError(n) || n != p->length ?
	       fail(r, "compressed data in the stream is not what it was") : 0;
}

static int take_data(struct receiver *r, const struct stream_part *p)
{
	const u8 *data;

	if (get(r, r->payload, p->stored))
		return -1;
	if (stream_payload_crc(r->payload, p->stored) != p->payload_crc)
		return fail(r, "data in the stream is damaged");
	if (unpack(r, p, &data) || begin(r))
		return -1;
	return target_write(r->target, p->offset, data, p->length) ?
	       fail(r, r->target->error) : 0;
}

static int take_zeroes(struct receiver *r, const struct stream_part *p)
{
	if (begin(r))
		return -1;
	return target_zero(r->target, p->offset, p->length) ? fail(r, r->target->error) : 0;
}

static int take_end(struct receiver *r, const struct stream_part *p)
{
	const struct stream_what *what = &r->info.what;
	struct receive_state state;
	struct target *t = r->target;

	if (p->length != r->records)
		return fail(r, "the stream has lost records");
	if (begin(r))
		return -1;
	state = r->state;
	state.whole = true;
	state.position = what->to_bytes;
	if (target_cut(t, what->to_bytes) || target_sync(t) ||
	    target_sample(t, what->to_bytes, &state.sample))
		return fail(r, t->error);
	return receive_save(r, &state);
}

/* A full stream leaves nothing out. */
static int check_gap(struct receiver *r, const struct stream_part *p)
{
	return !r->info.what.from_epoch && p->offset != r->next ?
	       fail(r, "a part of the stream is missing") : 0;
}

/* One record. @end: it was the last one. */
static int take_record(struct receiver *r, bool *end)
{
	struct stream_record record;
	struct stream_part p;
	int ret;

	if (get(r, &record, sizeof(record)) ||
	    stream_unpack_record(&record, &p, &r->crc, r->error) ||
	    stream_check_part(&r->info, &p, r->next, r->error) || check_gap(r, &p))
		return -1;
	*end = p.type == STREAM_END;
	if (*end)
		return take_end(r, &p);
	ret = p.type == STREAM_DATA ? take_data(r, &p) : take_zeroes(r, &p);
	if (ret)
		return ret;
	r->records++;
	r->next = p.offset + p.length;
	r->covered += p.length;
	progress_show(&r->progress, r->covered);
	return checkpoint_if_due(r, p.length);
}

int receive_records(struct receiver *r)
{
	bool end = false;
	int ret = 0;

	r->payload = malloc(STREAM_MAX_DATA);
	r->data = malloc(STREAM_MAX_DATA);
	r->zstd = ZSTD_createDCtx();
	r->synced = now_ms();
	if (!r->payload || !r->data || !r->zstd)
		ret = fail(r, "out of memory");
	while (!ret && !end)
		ret = take_record(r, &end);
	ZSTD_freeDCtx(r->zstd);
	free(r->payload);
	free(r->data);
	return ret;
}

// SPDX-License-Identifier: GPL-2.0-only
/* Headers and records of a stream: packed, unpacked, and held against what can be. */
#include <endian.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "crc32c.h"
#include "stream.h"

static int __attribute__((format(printf, 2, 3))) wrong(char *error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, STREAM_ERROR, format, args);
	va_end(args);
	return -1;
}

u32 stream_payload_crc(const void *data, size_t len)
{
	return crc32c(~0U, data, len);
}

static u32 header_crc(const u8 *data, u32 len)
{
	const size_t skip = offsetof(struct stream_header, crc) + sizeof(__le32);

	return crc32c(~0U, data + skip, len - skip);
}

bool stream_same(const struct stream_what *x, const struct stream_what *y)
{
	return !memcmp(x->uuid, y->uuid, sizeof(x->uuid)) && x->from_epoch == y->from_epoch &&
	       !memcmp(x->from_uuid, y->from_uuid, sizeof(x->from_uuid)) &&
	       x->to_epoch == y->to_epoch;
}

bool stream_other_base(const struct stream_what *what)
{
	return what->from_epoch && memcmp(what->uuid, what->from_uuid, sizeof(what->uuid));
}

/* ---- header ---- */

void stream_pack_header(struct stream_header *h, struct stream_info *info)
{
	const struct stream_what *what = &info->what;

	memset(h, 0, sizeof(*h));
	memcpy(h->magic, STREAM_MAGIC, STREAM_MAGIC_BYTES);
	h->version = htole32(STREAM_VERSION);
	h->header_bytes = htole32(sizeof(*h));
	h->flags = htole32(info->flags);
	memcpy(h->uuid, what->uuid, sizeof(h->uuid));
	if (stream_other_base(what)) {
		h->flags |= htole32(STREAM_BASE);
		memcpy(h->base_uuid, what->from_uuid, sizeof(h->base_uuid));
	}
	h->from_epoch = htole64(what->from_epoch);
	h->to_epoch = htole64(what->to_epoch);
	h->from_bytes = htole64(what->from_bytes);
	h->to_bytes = htole64(what->to_bytes);
	h->position = htole64(info->position);
	h->planned = htole64(info->planned);
	h->time = htole64(what->time);
	h->chunk_bytes = htole32(info->chunk_bytes);
	h->from_id = htole16(what->from_id);
	h->to_id = htole16(what->to_id);
	info->crc = header_crc((const u8 *)h, sizeof(*h));
	h->crc = htole32(info->crc);
}

int stream_check_start(const struct stream_header *h, u32 *len, char *error)
{
	if (memcmp(h->magic, STREAM_MAGIC, STREAM_MAGIC_BYTES))
		return wrong(error, "this is no stream of cowsnap send");
	if (le32toh(h->version) != STREAM_VERSION)
		return wrong(error, "its format is version %u, and only %u is known here; use the "
				    "cowsnap of that version",
			     le32toh(h->version), STREAM_VERSION);
	*len = le32toh(h->header_bytes);
	if (*len < sizeof(*h) || *len > STREAM_MAX_HEADER)
		return wrong(error, "its header is damaged: a length of %u bytes", *len);
	return 0;
}

static bool is_length(u64 bytes)
{
	return bytes && !(bytes % STREAM_UNIT) && bytes <= INT64_MAX;
}

static bool header_can_be(const struct stream_info *info)
{
	const struct stream_what *what = &info->what;

	return what->to_epoch && is_length(what->to_bytes) &&
	       (what->to_epoch != what->from_epoch || stream_other_base(what)) &&
	       (what->from_epoch ? is_length(what->from_bytes) : !what->from_bytes) &&
	       info->position <= what->to_bytes && !(info->position % STREAM_UNIT);
}

int stream_unpack_header(const u8 *data, u32 len, struct stream_info *info, char *error)
{
	struct stream_header h;
	struct stream_what *what = &info->what;

	memcpy(&h, data, sizeof(h));
	memset(info, 0, sizeof(*info));
	info->crc = header_crc(data, len);
	if (info->crc != le32toh(h.crc))
		return wrong(error, "its header is damaged; send it again");
	memcpy(what->uuid, h.uuid, sizeof(what->uuid));
	memcpy(what->from_uuid, le32toh(h.flags) & STREAM_BASE ? h.base_uuid : h.uuid,
	       sizeof(what->from_uuid));
	what->from_epoch = le64toh(h.from_epoch);
	what->to_epoch = le64toh(h.to_epoch);
	what->from_bytes = le64toh(h.from_bytes);
	what->to_bytes = le64toh(h.to_bytes);
	what->from_id = le16toh(h.from_id);
	what->to_id = le16toh(h.to_id);
	what->time = le64toh(h.time);
	info->position = le64toh(h.position);
	info->planned = le64toh(h.planned);
	info->chunk_bytes = le32toh(h.chunk_bytes);
	info->flags = le32toh(h.flags);
	if (info->flags & ~STREAM_KNOWN_FLAGS)
		return wrong(error, "it has features unknown here (0x%x); use a newer cowsnap",
			     info->flags & ~STREAM_KNOWN_FLAGS);
	if (!header_can_be(info))
		return wrong(error, "its header has numbers that cannot be; it was not made by "
				    "cowsnap send");
	return 0;
}

/* ---- records ---- */

static u32 record_crc(const struct stream_record *r, u32 before)
{
	return crc32c(before, &r->type, sizeof(*r) - offsetof(struct stream_record, type));
}

void stream_pack_record(struct stream_record *r, const struct stream_part *p, u32 *crc)
{
	r->type = htole32(p->type);
	r->offset = htole64(p->offset);
	r->length = htole64(p->length);
	r->stored = htole32(p->stored);
	r->payload_crc = htole32(p->payload_crc);
	*crc = record_crc(r, *crc);
	r->crc = htole32(*crc);
}

int stream_unpack_record(const struct stream_record *r, struct stream_part *p, u32 *crc,
			 char *error)
{
	u32 right = record_crc(r, *crc);

	if (right != le32toh(r->crc))
		return wrong(error, "the stream is damaged, or a part of it is missing");
	*crc = right;
	p->type = le32toh(r->type);
	p->offset = le64toh(r->offset);
	p->length = le64toh(r->length);
	p->stored = le32toh(r->stored);
	p->payload_crc = le32toh(r->payload_crc);
	return 0;
}

static bool part_can_be(const struct stream_info *info, const struct stream_part *p, u64 position)
{
	u64 bytes = info->what.to_bytes;

	if (p->offset < position || p->offset >= bytes || p->length > bytes - p->offset ||
	    !p->length || p->offset % STREAM_UNIT || p->length % STREAM_UNIT)
		return false;
	if (p->type == STREAM_ZERO)
		return !p->stored;
	return p->length <= STREAM_MAX_DATA && p->stored && p->stored <= p->length &&
	       (p->stored == p->length || info->flags & STREAM_ZSTD);
}

int stream_check_part(const struct stream_info *info, const struct stream_part *p, u64 position,
		      char *error)
{
	if (p->type == STREAM_END && p->offset == info->what.to_bytes && !p->stored)
		return 0;
	if ((p->type == STREAM_DATA || p->type == STREAM_ZERO) && part_can_be(info, p, position))
		return 0;
	return wrong(error, "a record of the stream cannot be (type %u, offset %" PRIu64
		     ", length %" PRIu64 "); it was not made by cowsnap send",
		     (u32)p->type, p->offset, p->length);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A snapshot, or what makes one of another, as a stream of bytes: cowsnap-stream(5).
 *
 *   +--------+--------+---------+--------+---------+- -+-----+
 *   | header | record | payload | record | payload |   | end |
 *   +--------+--------+---------+--------+---------+- -+-----+
 *
 * Integers are little endian. Records come in ascending order of their offsets and do not
 * overlap. What no record speaks of is as it is in the base; a full stream leaves nothing out.
 *
 * Checksums are crc32c, those of the store's format. That of the header covers all of it. That
 * of a record begins with that of what stood before it, the header or a record, and covers its
 * other fields, among them the crc of its payload: so the end record's covers everything, and
 * nothing can be left out, repeated or moved.
 */
#ifndef COWSNAP_TOOLS_STREAM_H
#define COWSNAP_TOOLS_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "dm-cowsnap-format.h"
#include "store.h"

#define STREAM_MAGIC		"cowsnap stream\n"	/* 16 bytes with its zero */
#define STREAM_MAGIC_BYTES	16
#define STREAM_VERSION		1

/* Payloads shorter than their extent are frames of zstd. */
#define STREAM_ZSTD		1U
/* The base is in another store, as each of LVM's snapshots has one of its own. */
#define STREAM_BASE		2U
#define STREAM_KNOWN_FLAGS	(STREAM_ZSTD | STREAM_BASE)

/* Most bytes of the image in one record with data. */
#define STREAM_MAX_DATA		(1U << 20)
/* A header of a later version may be longer, up to this. */
#define STREAM_MAX_HEADER	4096U
/* Offsets and lengths are multiples of it. */
#define STREAM_UNIT		512U

struct stream_header {
	__u8 magic[STREAM_MAGIC_BYTES];
	__le32 crc;		/* of all that follows in the header */
	__le32 version;
	__le32 header_bytes;
	__le32 flags;		/* unknown bits: refuse */
	__u8 uuid[16];		/* of the store */
	__le64 from_epoch;	/* the base, 0: none, the stream is full */
	__le64 to_epoch;	/* the snapshot that the stream makes */
	__le64 from_bytes;	/* length of the base */
	__le64 to_bytes;	/* length of the image */
	__le64 position;	/* what lies below was in an earlier stream */
	__le64 planned;		/* bytes of the image that were to be read for it */
	__le64 time;		/* of the snapshot, seconds since 1970 */
	__le32 chunk_bytes;
	__le16 from_id;
	__le16 to_id;
	__u8 base_uuid[16];	/* of the base's store, with STREAM_BASE */
};

enum stream_type {
	STREAM_DATA = 1,
	STREAM_ZERO = 2,
	STREAM_END = 3,
};

struct stream_record {
	__le32 crc;
	__le32 type;		/* enum stream_type */
	__le64 offset;		/* in the image; end: its length */
	__le64 length;		/* end: how many records came before */
	__le32 stored;		/* bytes of payload that follow */
	__le32 payload_crc;
};

static_assert(sizeof(struct stream_header) == 128, "header of a stream");
static_assert(sizeof(struct stream_record) == 32, "record of a stream");

/* Which image a stream makes of which. */
struct stream_what {
	u8 uuid[16];
	u8 from_uuid[16];	/* of the base's store; the same, as a rule */
	u64 from_epoch, to_epoch;
	u64 from_bytes, to_bytes;
	u32 from_id, to_id;
	u64 time;
};

/* A header as numbers. */
struct stream_info {
	struct stream_what what;
	u64 position;
	u64 planned;
	u32 chunk_bytes;
	u32 flags;
	u32 crc;		/* what the first record's begins with */
};

/* A record as numbers. */
struct stream_part {
	enum stream_type type;
	u64 offset, length;
	u32 stored;
	u32 payload_crc;
};

#define STREAM_ERROR	200

/* ---- stream.c: bytes and numbers ---- */

/* Sets info->crc. */
void stream_pack_header(struct stream_header *h, struct stream_info *info);
/*
 * The first bytes: how long is the header? 0, or -1 with words in @error. Then all of it,
 * @len bytes.
 */
int stream_check_start(const struct stream_header *h, u32 *len, char *error);
int stream_unpack_header(const u8 *data, u32 len, struct stream_info *info, char *error);

/* *@crc is that of what stood before, and becomes this one's. */
void stream_pack_record(struct stream_record *r, const struct stream_part *p, u32 *crc);
int stream_unpack_record(const struct stream_record *r, struct stream_part *p, u32 *crc,
			 char *error);
/* Where may a record begin, and can it be there? */
int stream_check_part(const struct stream_info *info, const struct stream_part *p, u64 position,
		      char *error);
u32 stream_payload_crc(const void *data, size_t len);

bool stream_same(const struct stream_what *x, const struct stream_what *y);
/* Is the base in another store? */
bool stream_other_base(const struct stream_what *what);

/* ---- stream-token.c: where to go on, as a word ---- */

#define STREAM_TOKEN	128

void stream_token(const struct stream_what *what, u64 position, char *token);
/* What a token says; the lengths, ids and time of @what stay 0. False if it is none. */
bool stream_read_token(const char *token, struct stream_what *what, u64 *position);

/* "snapshot 3 (epoch 4 of store 00112233)" */
const char *stream_name(const u8 *uuid, u64 epoch, u32 id, char *text, size_t len);
void stream_hex(const u8 *bytes, size_t len, char *text);
bool stream_unhex(const char *text, u8 *bytes, size_t len);

/* ---- stream-io.c ---- */

/* How many bytes there were until the end, or -1. */
long stream_read(int fd, void *data, size_t len);
int stream_write(int fd, const void *data, size_t len);
bool stream_is_zero(const void *data, size_t len);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* Extents of a snapshot become records of a stream. */
#ifndef COWSNAP_TOOLS_SEND_STREAM_H
#define COWSNAP_TOOLS_SEND_STREAM_H

#include "progress.h"
#include "send-source.h"
#include "stream.h"

struct sender {
	int fd;
	struct source *src;
	struct stream_info info;
	struct progress progress;
	bool compress;
	u64 rate;		/* bytes a second, 0: any */
	u64 begin;		/* ms */
	u64 sent;		/* bytes of the stream */
	u64 records;
	u64 covered;		/* bytes of the image */
	u32 crc;		/* of the record before */
	struct extent zeroes;	/* not sent yet */
	size_t ahead;		/* the extent up to which reading ahead was asked for */
	u64 ahead_offset;	/* and how far in it */
	u64 wanted;		/* bytes asked for in all */
	void *zstd;
	u8 *data, *packed;
	char error[200];
};

/* Header, @extents and end. 0, or -1 with words in ->error. */
int send_stream(struct sender *s, const struct extents *extents);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* A stream is read, and applied to a target. */
#ifndef COWSNAP_TOOLS_RECEIVE_STREAM_H
#define COWSNAP_TOOLS_RECEIVE_STREAM_H

#include "progress.h"
#include "receive-history.h"
#include "receive-state.h"
#include "receive-target.h"
#include "stream.h"

struct receiver {
	int fd;
	struct stream_info info;
	struct target *target;
	struct receive_state state;
	const char *state_path;
	struct history *history;	/* NULL: no snapshot is made of the image */
	bool begun;		/* the target may have changed */
	u64 next;		/* no record may begin below */
	u64 records;
	u64 unsafe;		/* bytes written since the last sync */
	u64 synced;		/* when that was, ms */
	struct progress progress;
	u64 covered;
	u32 crc;		/* of the record before */
	void *zstd;
	u8 *payload, *data;
	char error[STREAM_ERROR];
};

/* All return 0, or -1 with words in ->error. */

/* r->info: no byte after the header is taken. */
int receive_header(struct receiver *r);
/* All the rest. The target and r->state are as the stream wants them. */
int receive_records(struct receiver *r);
/* What has been written so far is durable, and so is how far that is: r->state. */
int receive_checkpoint(struct receiver *r);
/* @state is durable, and is r->state. */
int receive_save(struct receiver *r, const struct receive_state *state);

#endif

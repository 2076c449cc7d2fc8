/* SPDX-License-Identifier: GPL-2.0-only */
/* The content of a snapshot, to be read. */
#ifndef COWSNAP_TOOLS_SEND_SOURCE_H
#define COWSNAP_TOOLS_SEND_SOURCE_H

#include "device.h"
#include "diff-store.h"

/* Where the snapshot has a chunk that it does not have at home. */
struct seen {
	u64 chunk;
	const struct entry *version;
};

struct source {
	/* The device of a snapshot in use, or -1. */
	int fd;
	/* A store that is not in use, and the origin. */
	struct store *s;
	struct seen *seen;	/* by chunk */
	size_t nr_seen;
	struct device origin;
	bool has_origin;
	u64 sealed;		/* so many bytes of it are in the store; 0: it has no seal */
	u8 *chunk;		/* the one last read from the store */
	u64 cached;		/* its number, or all ones */
	char error[200];
};

/* What @b has. @origin: NULL if it was not given; a store in use knows it. */
int source_open(struct source *src, struct diff_store *ds, const struct diff_side *b,
		const char *origin);
/* 0, or -1 with words in src->error. */
int source_read(struct source *src, u64 offset, void *data, size_t len);
/* It is going to be read; it will not be read again. */
void source_wants(struct source *src, u64 offset, u64 len);
void source_done(struct source *src, u64 offset, u64 len);
void source_close(struct source *src);

#endif

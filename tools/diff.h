/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which chunks differ between two instants of an origin, from the epochs of its store.
 *
 * A copied version (C, E) was made because C was about to be written, or might be, while E was
 * the newest epoch. So C may differ between epochs a < b only if it has a copied version with
 * an epoch in [a, b), or if one of the two snapshots has a private version of it. The same is true
 * of what was redirected: (C, E) was written when E was the newest epoch. "Now" is an epoch above
 * all others. No data is read. A tracker has a bit for each chunk that has changed
 * since its epoch, so between it and a snapshot may be chunks that have only changed later.
 */
#ifndef COWSNAP_TOOLS_DIFF_H
#define COWSNAP_TOOLS_DIFF_H

#include "store.h"

/* One end of a comparison: a snapshot, or the origin as it is. */
struct diff_side {
	bool now;
	bool tracker;		/* it has no data: what has changed since is all that is known */
	u32 id;
	u64 epoch;		/* DIFF_NOW for the origin */
	u64 sectors;		/* length of the image */
	u64 time;
};

#define DIFF_NOW	(~0ULL)

/* Chunks of the origin, in ascending order, each once. */
struct chunk_list {
	u64 *chunk;
	size_t nr, max;
};

/* A run of bytes of the image. */
struct extent {
	u64 offset, length;
};

struct extents {
	struct extent *at;
	size_t nr, max;
	u64 bytes;		/* of all of them */
};

struct diff {
	struct diff_side a, b;
	u8 uuid[16];
	u8 from_uuid[16];	/* of the store of a; the same, as a rule */
	u64 chunk_bytes;
	bool settled;		/* the module has written exact bits of trackers */
	struct extents changed;	/* of the image b */
	char error[200];
};

/* "now", or the id of a live snapshot or a tracker. 0, or -1 with words in d->error. */
int diff_side(struct diff *d, const struct store *s, const char *word, struct diff_side *side);

/* Adds what differs in this state of the store. 0, or -1 with words in d->error. */
int diff_collect(struct diff *d, const struct store *s, struct chunk_list *list);

/* The chunks become extents of the image b; where only b has something, it differs. */
int diff_finish(struct diff *d, struct chunk_list *list);

/* Is what the store knows of this snapshot all there? 0, or -1 with words in d->error. */
int diff_complete(struct diff *d, const struct store *s, u64 epoch);

int diff_fail(struct diff *d, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void diff_free(struct diff *d);

/* ---- diff-extents.c ---- */

int chunk_list_add(struct chunk_list *list, u64 chunk);
void chunk_list_sort(struct chunk_list *list);
void chunk_list_free(struct chunk_list *list);

/* Joined to the last one if it begins where that ends. */
int extents_add(struct extents *e, u64 offset, u64 length);
/* What lies below @position is taken away. */
void extents_cut(struct extents *e, u64 position);
void extents_free(struct extents *e);

#endif

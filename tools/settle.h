/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What writes have redirected to the store is brought home to the origin.
 *
 * Wherever this stops everybody sees what they saw, and it can be begun anew. Neither origin nor
 * store may be in use.
 */
#ifndef COWSNAP_TOOLS_SETTLE_H
#define COWSNAP_TOOLS_SETTLE_H

#include "store.h"

struct move;

struct settle {
	struct store *s;
	struct io *home;
	bool keep_store;	/* home was written without its store, which counts for nothing */
	u64 batch;		/* chunks brought home at a time; 0: as many as are good */
	void (*show)(struct settle *t);	/* how far it is; or NULL */
	/* For whoever looks: */
	u64 chunks, copies;	/* that come home; old content of which snapshots need copies */
	u64 done;		/* chunks that are home */
	unsigned int lost;	/* snapshots that became invalid */
	const char *why;	/* it failed, in a sentence */

	u8 *data;		/* of one chunk */
	struct move *move;	/* chunks that come home together */
	u8 *moved, *span;	/* their data; what is read at a time */
	u64 from, to;		/* the batch: these chunks of the origin, half open */
	u64 next, begin;	/* where a free place is looked for; where that began in this batch */
	bool around;		/* the end of the store has been reached since */
};

/* NULL, or why these two cannot be settled, in a sentence. Counts what there is to do. */
const char *settle_hinders(struct settle *t);
/* Nothing hinders it. 0, or -1 with t->why set. */
int settle_all(struct settle *t);

#endif

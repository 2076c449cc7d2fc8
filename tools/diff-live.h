/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A store that is in use: which one it is, and what the module says of its snapshots.
 *
 * The metadata is read from the store's device while the module writes there. That misses
 * nothing, for these reasons:
 *
 *  - No write reaches home before its exception is durable in the store. So what the origin
 *    had before the reading began is described by slots that were there by then.
 *  - A block that is being written has a wrong checksum, and is read again.
 *  - What says that a snapshot differs moves twice at most while that snapshot lives, each time
 *    to a slot that is there before the other one is freed. A current version is brought home: a
 *    copied one says it then. The snapshot gets a private version of the chunk, which stays: a
 *    copied one is freed. A reading misses it only if it moves meanwhile. So the tables are read
 *    once more than it can move, and what the readings say is put together: twice, or three times
 *    if there was something to bring home when the first one began.
 *  - At the end the module itself is asked whether the snapshots are what they were. One that
 *    has become invalid meanwhile is refused.
 */
#ifndef COWSNAP_TOOLS_DIFF_LIVE_H
#define COWSNAP_TOOLS_DIFF_LIVE_H

#include "diff.h"
#include "lib/cowsnap.h"

struct live {
	struct cowsnap *c;	/* NULL: nothing was found */
	char origin[256];	/* its name */
	char number[32];	/* of the store's device */
	char store[300];	/* its path */
	u64 origin_bytes;
	bool unsettled;		/* it had redirected data when it was found */
	char activated[300];	/* a snapshot that got a device for us */
};

/*
 * The store that @word means: a snapshot's or an origin's name, or a device. 0, with l->c NULL
 * if nothing of that sort is in use, or the status to end with.
 */
int live_find(struct live *l, const char *word);
/* The number of the snapshot whose name or device @word is, and its store's; -1: it is none. */
long live_number(const char *word, char store[32]);
/*
 * The module notes in the store what is durable, if it can be asked to: what it has not noted,
 * data has to be read for. It writes the exact bits of trackers. Was it asked?
 */
bool live_commit(struct live *l);
/* Is the snapshot still what it was? 0, or -1 with words in d->error. */
int live_check(struct live *l, struct diff *d, const struct diff_side *side);
/* The device of a snapshot, which gets one if it has none. 0, or the status to end with. */
int live_device(struct live *l, u32 id, char path[300]);
void live_close(struct live *l);

#endif

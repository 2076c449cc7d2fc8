/* SPDX-License-Identifier: GPL-2.0-only */
/* Trackers of a store: which chunks have changed since their epochs. */
#ifndef COWSNAP_TOOLS_TRACK_H
#define COWSNAP_TOOLS_TRACK_H

#include "store.h"

bool record_is_tracker(const struct record *r);

/*
 * Call @changed for each chunk that has changed, in ascending order, as long as it returns 0.
 * @marks: a mark counts as all chunks of its region, as it has to unless the module has just
 * written exact bits. Returns what @changed did; 1: a block is missing or damaged.
 */
int track_read(const struct store *s, const struct record *r, bool marks,
	       int (*changed)(void *context, u64 chunk), void *context);

/* Are all blocks there and right? */
bool track_is_whole(const struct store *s, const struct record *r);

#endif

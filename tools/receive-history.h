/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A target that is an origin with a persistent store: its snapshots keep what it was, and it gets
 * one more of each image that it becomes. Whether it still is that image is then known exactly:
 * the store says where it was written since, and only that is compared.
 */
#ifndef COWSNAP_TOOLS_RECEIVE_HISTORY_H
#define COWSNAP_TOOLS_RECEIVE_HISTORY_H

#include "lib/cowsnap.h"
#include "receive-state.h"
#include "receive-target.h"

struct history {
	struct cowsnap *c;
	char origin[256];	/* its name */
	char device[300];	/* its path */
};

/* All that return int: 0, or the status to end with after having said why. */

/* @word: an origin's name, or its device. */
int history_open(struct history *h, const char *word);
void history_close(struct history *h);
/* A snapshot of the origin as it is; state->kept says which. */
int history_snapshot(struct history *h, struct receive_state *state);

enum history_answer {
	HISTORY_SAME,
	HISTORY_CHANGED,
	HISTORY_UNKNOWN,	/* state->kept is gone, or there never was one */
};

/* Is the origin, @t, what its snapshot state->kept is? */
enum history_answer history_ask(const struct history *h, struct target *t,
				const struct receive_state *state);

#endif

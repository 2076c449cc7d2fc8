/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The seal of an origin: its first sectors are in the store, and home has seals in their place.
 *
 * Wherever one of these stops, the module or seal_off() ends it: sealing is undone, unsealing is
 * finished. Neither origin nor store may be in use.
 */
#ifndef COWSNAP_TOOLS_SEAL_H
#define COWSNAP_TOOLS_SEAL_H

#include "store.h"

/* Who is right where the origin was written without its store. */
enum seal_keep {
	SEAL_KEEP_NONE,		/* nobody: then nothing is done */
	SEAL_KEEP_HOME,		/* what is at home, but for seals */
	SEAL_KEEP_STORE,	/* what the store has of the first sectors */
};

/* The first seal that an origin has, whoever's. 1: there is one, 0, or -1 if it cannot be read. */
int seal_find(struct io *home, struct cowsnap_seal *seal);

/* In how many sectors of the origin the seal of its store is missing; -1: it cannot be read. */
long seal_missing(const struct store *s, struct io *home);

/* NULL, or why this origin cannot be sealed with this store, in a sentence. */
const char *seal_hinders(const struct store *s, struct io *home);
/* 0, or -1 with *@why set. Nothing hinders it. */
int seal_on(struct store *s, struct io *home, u32 generation, const char **why);

/*
 * The store is sealed, or was about to be, and nothing is missing or @keep says what counts. If
 * something is missing all snapshots become invalid, *@nr of them. 0, or -1 with *@why set.
 */
int seal_off(struct store *s, struct io *home, enum seal_keep keep, unsigned int *nr,
	     const char **why);

/* Without the store: seals become zeroes. Returns how many there were; -1: it failed. */
long seal_take_away(struct io *home);

#endif

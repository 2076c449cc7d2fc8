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

/*
 * The first seal that an origin has, whoever's. 1: there is one; 0; or -1 if none is found, and some
 * of it cannot be read.
 */
int seal_find(struct io *home, struct cowsnap_seal *seal);

/* Sectors that should have the store's seal, or, while it is sealed or opened, the content. */
struct seal_look {
	unsigned int missing;		/* and have neither */
	unsigned int unreadable;	/* of these: cannot be read */
	unsigned int other;		/* of these: have another seal */
};

/* 0, or -1: the store cannot be read. */
int seal_look(const struct store *s, struct io *home, struct seal_look *l);

/* NULL, or why this origin cannot be sealed with this store, in a sentence. */
const char *seal_hinders(const struct store *s, struct io *home);
/* 0, or -1 with *@why set. Nothing hinders it. */
int seal_on(struct store *s, struct io *home, u32 generation, const char **why);

/* NULL, or why it cannot be opened, if it looks like this, in a sentence. */
const char *seal_hinders_opening(const struct store *s, const struct seal_look *l,
				 enum seal_keep keep);
/*
 * The store is sealed, or was about to be. If something is missing, and @keep says what counts, all
 * snapshots become invalid, *@nr of them, but for one that is being rolled back to. 0, or -1 with
 * *@why set.
 */
int seal_off(struct store *s, struct io *home, enum seal_keep keep, unsigned int *nr,
	     const char **why);

/*
 * Home was written without its store, and that is to count for nothing: all snapshots become
 * invalid, *@nr of them, and the seals are written anew. 0, or -1 with *@why set.
 */
int seal_make_whole(struct store *s, struct io *home, unsigned int *nr, const char **why);

/* Without the store: seals become zeroes. Returns how many there were; -1: it failed. */
long seal_take_away(struct io *home);

#endif

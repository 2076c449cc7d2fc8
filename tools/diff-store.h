/* SPDX-License-Identifier: GPL-2.0-only */
/* The store that diff and send ask, in use or not. */
#ifndef COWSNAP_TOOLS_DIFF_STORE_H
#define COWSNAP_TOOLS_DIFF_STORE_H

#include "device.h"
#include "diff.h"
#include "diff-live.h"

struct diff_store {
	const char *path;
	struct device dev;
	struct store s;		/* of one in use, as it was read the last time */
	struct live live;	/* live.c is NULL if it is not in use */
	bool settled;		/* see struct diff */
};

/* The number of a snapshot, where it is not in the words. */
struct number {
	char text[24];
};

/*
 * A snapshot is ORIGIN@NUMBER, a number after its store, or has a device, as LVM's all have.
 * NULL: @word is the name of none.
 */
const char *snapshot_number(const char *word, struct number *n);
/*
 * The number of a second snapshot, @word, beside that of @where: a number, "now", or a name
 * with the same origin. NULL after having said that it has another one.
 */
const char *snapshot_beside(const char *where, const char *word, struct number *n);

/* Is @word a snapshot of the same origin as @where, in another store, and both are in use? */
bool snapshot_elsewhere(const char *where, const char *word);

/* All of these return 0, or the status to end with after having said why. */
int diff_open(struct diff_store *ds, const char *word);
void diff_close(struct diff_store *ds);
/* d->a, d->b and d->changed; with @a NULL all of @b has changed. Numbers, or "now". */
int diff_make(struct diff_store *ds, struct diff *d, const char *a, const char *b);
/* The same with a snapshot that is elsewhere, by its name: in diff-across.c. */
int diff_across(struct diff_store *ds, struct diff *d, const char *a, const char *b);

#endif

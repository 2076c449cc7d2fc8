/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where an origin stands: over a device, under a name of its own; or in the place of a mapped
 * device that is in use, whose table moves to NAME-home.
 */
#ifndef COWSNAP_TOOLS_PLACE_H
#define COWSNAP_TOOLS_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/cowsnap.h"

#define PLACE_NAME 100

struct place {
	char name[PLACE_NAME + 1];	/* of the origin's device */
	char home[PLACE_NAME + 8];	/* of the mapped device below it; "": a plain one */
	char path[300];			/* of the device below it */
	char number[16];		/* of the device that was given */
	uint64_t sectors;
	bool home_exists;		/* an earlier run has made it */
};

bool ends_with(const char *text, const char *end);

/* Why no origin can have that name: what comes after it in a sentence. NULL: it can. */
const char *place_bad_name(const char *name);
/* The same. 0, or EXIT_CANNOT after a sentence of @command. */
int place_check_name(const char *command, const char *name);

/*
 * Where the origin of @device is to stand, with @name or NULL. 0, or EXIT_CANNOT after a
 * sentence.
 */
int place_find(struct place *p, struct cowsnap *c, const char *device, const char *name);

/* Make the device below, if there is to be one. 0, or what the library says. */
int place_prepare(const struct place *p, struct cowsnap *c);
/* Take an origin's device away, or give it the table again that it had. The same. */
int place_leave(struct cowsnap *c, const struct cowsnap_item *origin);
/* The same of an origin that this run has put there. */
int place_undo(const struct place *p, struct cowsnap *c);
/* What an interrupted place_leave() has left of @name. 1: something; the same. */
int place_clear(struct cowsnap *c, const char *name);

/* Does anybody use a block device? The sentence, or NULL. */
const char *use_of(const char *path, const char *number, char *text, size_t len);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* What the commands that change mapped devices share. */
#ifndef COWSNAP_TOOLS_SESSION_H
#define COWSNAP_TOOLS_SESSION_H

#include "command.h"
#include "lib/cowsnap.h"

/*
 * A handle on what there is, scanned; with --dry-run it only prints lines. NULL: it has been
 * said why.
 */
struct cowsnap *session_open(const struct words *w);
/* Closes it; says what failed. @r is a result of the library. Returns an EXIT_ status. */
int session_end(struct cowsnap *c, int r);

/* Does its device stay, since it is the snapshot, or somebody else's? */
bool keeps_device(const struct cowsnap_item *snapshot);

/*
 * Is a mapped device open more than the @own times that we have it open, also after a second, in
 * which udev is done with it?
 */
bool stays_open(struct cowsnap *c, const char *name, int own);

/* 0 if no snapshot of @origin is mounted or open, or EXIT_CANNOT after a sentence about one. */
int refuse_used_snapshots(struct cowsnap *c, const struct cowsnap_item *origin);

/* A line for people, on stdout, unless there is --json or --dry-run. */
void say_done(const struct words *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * A whole number from @min to @max. 0, or EXIT_CANNOT after a sentence about @what; NULL:
 * @value stays as it is.
 */
int read_number(const char *what, const char *text, unsigned long min, unsigned long max,
		unsigned long *value);

#endif

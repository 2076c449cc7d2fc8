/* SPDX-License-Identifier: GPL-2.0-only */
/* Write a store from a dump. */
#ifndef COWSNAP_TOOLS_RESTORE_H
#define COWSNAP_TOOLS_RESTORE_H

#include "dump.h"
#include "report.h"

/* What stands on a device, seen from a dump. */
enum restore_age {
	RESTORE_NOTHING,	/* no store with the dump's uuid, nor tables of one */
	RESTORE_SAME,		/* or an older one */
	RESTORE_NEWER,		/* it was written to since the dump was made */
};

/* @epoch becomes the last one that store has given out, 0 if nobody knows. 0, or -1 without memory. */
int restore_look(struct dump *d, struct io *io, enum restore_age *age, u64 *epoch);
/* The epoch after which @d is to go on where that was found. */
u64 restore_go_on(const struct dump *d, enum restore_age age, u64 epoch);

/*
 * @from, if not NULL, is where the data chunks are read from. Lines to @r say what is
 * not as it was. 0, or -1 with d->error set.
 */
int restore_store(struct dump *d, struct io *io, struct io *from, struct report *r);

#endif

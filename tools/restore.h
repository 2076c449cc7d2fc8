/* SPDX-License-Identifier: GPL-2.0-only */
/* Write a store from a dump. */
#ifndef COWSNAP_TOOLS_RESTORE_H
#define COWSNAP_TOOLS_RESTORE_H

#include "dump.h"
#include "report.h"

/*
 * @from, if not NULL, is where the data chunks are read from. Lines to @r say what is
 * not as it was. 0, or -1 with d->error set.
 */
int restore_store(struct dump *d, struct io *io, struct io *from, struct report *r);

#endif

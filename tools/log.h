/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The commit log of a store: what its records say becomes entries like those of tables.
 *
 * A store that was closed has no zones, and its tables have everything. While it is in use, and
 * after a crash, the last copies are in records of the log alone. Zones are read before the tables:
 * one that the module leaves meanwhile has its slots in the tables by then.
 */
#ifndef COWSNAP_TOOLS_LOG_H
#define COWSNAP_TOOLS_LOG_H

#include "store.h"

/* Find the records in the zones that the superblock names. 0, or -1 without memory. */
int log_read(struct store *s);
/* Where the tables, which have been read, have no slot, that of a record counts. The same. */
int log_merge(struct store *s);
void log_free(struct store *s);
/* The last series that was given out. */
u64 log_series(const struct store *s);

/* ---- log-tables.c ---- */

/*
 * For a store that is to be written: the tables have it all, and no zone is named. What is in doubt
 * stays so, as fresh slots of a commit that nobody calls durable. Were there zones?
 */
bool log_into_tables(struct store *s);
/* Before superblocks are written that name no zone. */
void log_forget_zones(struct store *s);

#endif

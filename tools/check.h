/* SPDX-License-Identifier: GPL-2.0-only */
/* Say what is wrong with a store. */
#ifndef COWSNAP_TOOLS_CHECK_H
#define COWSNAP_TOOLS_CHECK_H

#include "report.h"
#include "store.h"

/* Numbers of a store, for a summary. */
struct totals {
	size_t live;		/* snapshots */
	size_t exceptions;	/* that a live snapshot has */
	size_t current;		/* that the origin has, or a snapshot */
	size_t dead;
	size_t doubted;		/* of a commit not known to have ended, not there */
	size_t void_current;	/* of a record that had not ended: they do not count */
	size_t unsure;		/* table blocks of one, or records of the log */
	size_t bad_data;
};

/* One line to @r for each damage found in a store that was loaded. */
void check_store(struct store *s, struct report *r);

void count_totals(const struct store *s, struct totals *t);

/* "snapshot 3", "snapshots 3, 5 and 7 more": those that see (older, until]. */
const char *affected_names(const struct store *s, const struct entry *e, char *text,
			   size_t len);

/* A run of blocks that are damaged, from *@nr on. False if there is none. */
bool next_bad_blocks(const struct store *s, u64 *nr, u64 *end);

#endif

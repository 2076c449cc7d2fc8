/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the tables of a store, read from the first to the last */
#ifndef DM_COWSNAP_DISK_SCAN_H
#define DM_COWSNAP_DISK_SCAN_H

#include "dm-cowsnap.h"

struct cow_scan;
struct cow_store;

/* Blocks of a table that have been read. */
struct cow_scanned {
	const struct cowsnap_segment *seg;
	u32 block, nr;			/* the first, counted in the segment's table; how many */
	u8 *data;
	const unsigned long *unreadable;	/* a bit for each */
};

/* NULL: no memory. @store->meta exists. May sleep. */
struct cow_scan *cow_scan_begin(struct cow_store *store);

/*
 * The next blocks, in order; @out and what it points to is right until the next call. False:
 * there are no more. May sleep.
 */
bool cow_scan_next(struct cow_scan *scan, struct cow_scanned *out);

/* May sleep. */
void cow_scan_end(struct cow_scan *scan);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* The snapshot with which a transient store begins. */
#ifndef LIBCOWSNAP_SNAPSHOT_H
#define LIBCOWSNAP_SNAPSHOT_H

#include <stdint.h>

#include "cowsnap.h"

/* Numbers up to this one are given to snapshots; the next is that of cowsnap create. */
#define SNAPSHOT_MAX_ID	65534
#define SNAPSHOT_SETUP_ID 65535

struct first_store {
	const char *store;		/* as a table names it */
	uint64_t chunk_sectors;
	const char *options;		/* " word word", or NULL */
	unsigned int nr_options;	/* words of it */
};

/* For an origin that cowsnap_scan() has found. As cowsnap_snapshot(), with number 1. */
int snapshot_first(struct cowsnap *c, const char *origin, const struct first_store *first,
		   unsigned int seconds);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: exceptions that are read from tables, gathered and put into the map in order */
#ifndef DM_COWSNAP_DISK_INTAKE_H
#define DM_COWSNAP_DISK_INTAKE_H

#include "dm-cowsnap-exception.h"

struct cow_intake {
	struct cow_map *map;
	struct cow_run *run;		/* the last one grows */
	size_t nr, max;			/* @run has as much room again behind it, to sort */
	struct cow_run *small;		/* what @run is while there is no more memory than that */
};

/* 0 or -ENOMEM. May sleep. */
int cow_intake_init(struct cow_intake *in, struct cow_map *map);
void cow_intake_exit(struct cow_intake *in);

/*
 * Gather @run. 0, or -ENOMEM with @run not taken: then it may be tried again. Nobody reads the
 * map. May sleep.
 */
int cow_intake_add(struct cow_intake *in, const struct cow_run *run);

/*
 * What has been gathered is in the map. 0, or -ENOMEM: part of it may be, all of it is still
 * here, to be tried again. Nobody reads the map. May sleep.
 */
int cow_intake_flush(struct cow_intake *in);

#endif

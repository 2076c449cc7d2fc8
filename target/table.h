/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: tables are read */
#ifndef DM_COWSNAP_TARGET_TABLE_H
#define DM_COWSNAP_TARGET_TABLE_H

#include <linux/device-mapper.h>

struct cow_snap_args;
struct cow_target;

extern const char * const cow_discard_words[];

/* The rest of a table of cowsnap-origin. 0, or a negative errno with ti->error set. */
int cow_read_origin_features(struct dm_target *ti, struct dm_arg_set *as,
			     struct cow_target *ct, const char **store);

/* What follows the devices in a table of cowsnap or cowsnap-merge. The same. */
int cow_read_snap_table(struct dm_target *ti, struct dm_arg_set *as,
			struct cow_target *ct, struct cow_snap_args *args);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the devices that a table names */
#ifndef DM_COWSNAP_TARGET_DEVICE_H
#define DM_COWSNAP_TARGET_DEVICE_H

#include <linux/device-mapper.h>

#include "dm-cowsnap-compat.h"

struct cow_target;

/* Open a device for the table. 0, or a negative errno with ti->error set. May sleep. */
int cow_open_device(struct dm_target *ti, const char *path, blk_mode_t mode,
		    struct dm_dev **dev);

/*
 * LVM loads tables before those of the devices below are in force: what depends on
 * these is looked at when the table is resumed. Is this such a table? Any context.
 */
bool cow_comes_early(struct dm_target *ti, struct cow_target *ct);

/* Is the origin as long as the table? 0, or -EINVAL with ti->error set. */
int cow_check_length(struct dm_target *ti, struct cow_target *ct);

/*
 * The number of the device with this name or number; 0: there is no such device. May
 * sleep.
 */
dev_t cow_device_number(const char *name);

/* Open the device of the store as ct->store_dev. The same. */
int cow_open_store(struct dm_target *ti, struct cow_target *ct, const char *path);

#endif

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the devices that a table names
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-compat.h"
#include "store/error.h"
#include "target/device.h"
#include "target/target.h"

int cow_open_device(struct dm_target *ti, const char *path, blk_mode_t mode,
		    struct dm_dev **dev)
{
	int r = dm_get_device(ti, path, mode, dev);

	if (r == -EBUSY)
		cow_fail(&ti->error,
			 "Device %s is in use: unmount it, or free its partitions",
			 path);
	else if (r == -EACCES || r == -EROFS || r == -EPERM)
		cow_fail(&ti->error,
			 "Device %s is read-only: make it writable, or use -r",
			 path);
	else if (r == -ENODEV || r == -ENXIO || r == -ENOENT || r == -EINVAL)
		cow_fail(&ti->error, "Device %s does not exist", path);
	else if (r)
		cow_fail(&ti->error, "Device %s cannot be opened (error %d)", path, r);
	return r;
}

bool cow_comes_early(struct dm_target *ti, struct cow_target *ct)
{
	return ct->claimed || MAJOR(ct->origin_dev->bdev->bd_dev) ==
		MAJOR(disk_devt(dm_disk(dm_table_get_md(ti->table))));
}

int cow_check_length(struct dm_target *ti, struct cow_target *ct)
{
	u64 has = bdev_nr_sectors(ct->origin_dev->bdev);

	if (ti->len <= has || cow_comes_early(ti, ct))
		return 0;
	cow_fail(&ti->error, "Length of %llu sectors is more than origin %s has: %llu",
		 (u64)ti->len, ct->origin_dev->name, has);
	return -EINVAL;
}

/* 0: there is no such device. */
dev_t cow_device_number(const char *name)
{
	unsigned int major, minor;
	dev_t dev;

	if (sscanf(name, "%u:%u", &major, &minor) == 2)
		return MKDEV(major, minor);
	return lookup_bdev(name, &dev) ? 0 : dev;
}

/* Old chunks are written even under a read-only table, if the device lets us. */
int cow_open_store(struct dm_target *ti, struct cow_target *ct, const char *path)
{
	bool writable = dm_table_get_mode(ti->table) & BLK_OPEN_WRITE;
	int r;

	/* Before it is opened: opened again for writing it is another dm_dev. */
	if (cow_device_number(path) == ct->origin_dev->bdev->bd_dev) {
		cow_fail(&ti->error, "Origin and store are the same device %s", path);
		return -EINVAL;
	}
	r = cow_open_device(ti, path, BLK_OPEN_READ | BLK_OPEN_WRITE, &ct->store_dev);
	if (!writable && (r == -EACCES || r == -EROFS || r == -EPERM))
		r = cow_open_device(ti, path, BLK_OPEN_READ, &ct->store_dev);
	return r;
}

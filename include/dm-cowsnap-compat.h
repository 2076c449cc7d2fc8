/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: the differences between kernels, so that no other file knows them.
 *
 * The code reads as if for the newest kernel; what older ones lack is made up
 * here. Kbuild asks the headers, not the version, since distributions backport.
 */
#ifndef DM_COWSNAP_COMPAT_H
#define DM_COWSNAP_COMPAT_H

#include <linux/blkdev.h>

/* Since 6.5 devices are opened with blk_mode_t instead of fmode_t. */
#ifndef COWSNAP_HAS_BLK_MODE
#define blk_mode_t	fmode_t
#define BLK_OPEN_READ	FMODE_READ
#define BLK_OPEN_WRITE	FMODE_WRITE
#endif

/* What later ones ask the other way round. */
#ifndef COWSNAP_HAS_BDEV_ROT
static inline bool bdev_rot(struct block_device *bdev)
{
	return !bdev_nonrot(bdev);
}
#endif

#endif

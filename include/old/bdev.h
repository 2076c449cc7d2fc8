/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: what older kernels lack of block devices */
#ifndef DM_COWSNAP_OLD_BDEV_H
#define DM_COWSNAP_OLD_BDEV_H

#include <linux/blkdev.h>
#include <linux/err.h>
#include <linux/fs.h>

/* Since 6.5 devices are opened with blk_mode_t instead of fmode_t. */
#ifndef COWSNAP_HAS_BLK_MODE
#define blk_mode_t	fmode_t
#define BLK_OPEN_READ	FMODE_READ
#define BLK_OPEN_WRITE	FMODE_WRITE
#endif

/* Asked the other way round until 7.0, and of the queue until 5.18. */
#ifndef COWSNAP_HAS_BDEV_ROT
static inline bool bdev_rot(struct block_device *bdev)
{
#ifdef COWSNAP_HAS_BDEV_NONROT
	return !bdev_nonrot(bdev);
#else
	return !blk_queue_nonrot(bdev_get_queue(bdev));
#endif
}
#endif

/* Since 5.16. */
#ifndef COWSNAP_HAS_BDEV_NR_BYTES
static inline loff_t bdev_nr_bytes(struct block_device *bdev)
{
	return i_size_read(bdev->bd_inode);
}
#endif

#ifndef COWSNAP_HAS_BDEV_NR_SECTORS
static inline sector_t bdev_nr_sectors(struct block_device *bdev)
{
	return bdev_nr_bytes(bdev) >> SECTOR_SHIFT;
}
#endif

/* Since 6.3. Before, the same devices could take one page without a bio. */
#ifndef COWSNAP_HAS_BDEV_SYNCHRONOUS
static inline bool bdev_synchronous(struct block_device *bdev)
{
	return bdev->bd_disk->fops->rw_page;
}
#endif

/* Since 6.0. */
#ifndef COWSNAP_HAS_BDEV_WRITE_CACHE
static inline bool bdev_write_cache(struct block_device *bdev)
{
	return test_bit(QUEUE_FLAG_WC, &bdev_get_queue(bdev)->queue_flags);
}
#endif

#ifndef COWSNAP_HAS_BDEV_FUA
static inline bool bdev_fua(struct block_device *bdev)
{
	return test_bit(QUEUE_FLAG_FUA, &bdev_get_queue(bdev)->queue_flags);
}
#endif

/* Until 5.10 the answer was an opened device, not its number. */
#ifndef COWSNAP_HAS_LOOKUP_NUMBER
static inline int cow_old_lookup_bdev(const char *path, dev_t *dev)
{
	struct block_device *bdev = lookup_bdev(path);

	if (IS_ERR(bdev))
		return PTR_ERR(bdev);
	*dev = bdev->bd_dev;
	bdput(bdev);
	return 0;
}

#define lookup_bdev(path, dev)	cow_old_lookup_bdev(path, dev)
#endif

#endif

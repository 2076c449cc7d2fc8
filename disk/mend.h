/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: metadata that a disk returns with an error or with a wrong bit */
#ifndef DM_COWSNAP_DISK_MEND_H
#define DM_COWSNAP_DISK_MEND_H

#include <linux/blkdev.h>

/*
 * Read @nr units of @unit_bytes each from @sector on, at once or, if that fails, one by
 * one. Those that cannot be read are zeroed and have their bits set in @unreadable. May sleep.
 */
void cow_read_units(struct block_device *bdev, sector_t sector, void *data,
		    unsigned int unit_bytes, unsigned int nr, unsigned long *unreadable);

/*
 * @data was to have the crc in @stored and has @crc: can one flipped bit explain this? Then it
 * is turned back, in one or the other. False: no, and nothing has changed. Any context.
 */
bool cow_crc_mend(void *data, size_t bytes, u32 crc, __le32 *stored);

#endif

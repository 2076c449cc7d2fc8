// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: metadata that a disk returns with an error or with a wrong bit
 *
 * An unreadable sector costs the block it is in and no other. One flipped bit is turned
 * back. Superblocks, table blocks and blocks of records are all read with these two.
 */
#include <linux/bitmap.h>
#include <linux/crc32c.h>
#include <linux/log2.h>
#include <linux/module.h>

#include "disk/io.h"
#include "disk/mend.h"

void cow_read_units(struct block_device *bdev, sector_t sector, void *data,
		    unsigned int unit_bytes, unsigned int nr, unsigned long *unreadable)
{
	unsigned int i;

	bitmap_zero(unreadable, nr);
	if (!cow_meta_io(bdev, REQ_OP_READ | REQ_META, sector, data, (size_t)nr * unit_bytes))
		return;
	for (i = 0; i < nr; i++, data += unit_bytes, sector += unit_bytes >> SECTOR_SHIFT) {
		if (!cow_meta_io(bdev, REQ_OP_READ | REQ_META, sector, data, unit_bytes))
			continue;
		memset(data, 0, unit_bytes);
		__set_bit(i, unreadable);
	}
}

/*
 * A crc is linear: a flipped bit changes it by a value that depends only on how
 * many bytes follow. Walk from the end of the data until that value is found.
 */
static bool flip_back(u8 *data, size_t bytes, u32 difference)
{
	u32 effect[BITS_PER_BYTE];
	u8 zero = 0;
	int bit;

	for (bit = 0; bit < BITS_PER_BYTE; bit++) {
		u8 one = 1U << bit;

		effect[bit] = crc32c(0, &one, 1);
	}
	while (bytes--) {
		for (bit = 0; bit < BITS_PER_BYTE; bit++) {
			if (effect[bit] == difference) {
				data[bytes] ^= 1U << bit;
				return true;
			}
			effect[bit] = crc32c(effect[bit], &zero, 1);
		}
	}
	return false;
}

bool cow_crc_mend(void *data, size_t bytes, u32 crc, __le32 *stored)
{
	u32 difference = crc ^ le32_to_cpu(*stored);

	if (is_power_of_2(difference))
		*stored = cpu_to_le32(crc);
	else if (difference)
		return flip_back(data, bytes, difference);
	return true;
}

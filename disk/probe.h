/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: what stands at the start of a device */
#ifndef DM_COWSNAP_DISK_PROBE_H
#define DM_COWSNAP_DISK_PROBE_H

#include <linux/blkdev.h>

#include "dm-cowsnap.h"

enum cow_content {
	COW_CONTENT_NEW,		/* zeroes */
	COW_CONTENT_STORE,		/* ours */
	COW_CONTENT_DM_SNAPSHOT,	/* a store of dm-snapshot */
	COW_CONTENT_DAMAGED,		/* ours, but no superblock is whole */
	COW_CONTENT_FOREIGN,		/* something else */
	COW_CONTENT_UNREADABLE,
	COW_CONTENT_NO_MEMORY,
};

/*
 * What stands at the start of @bdev? *@super is filled in for COW_CONTENT_STORE; from
 * COW_CONTENT_DM_SNAPSHOT on there are words in *@error. May sleep.
 */
enum cow_content cow_probe(struct block_device *bdev, struct cowsnap_super *super,
			   char **error);

#endif

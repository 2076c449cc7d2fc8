/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: slots of versions that are needed no more are freed on the disk */
#ifndef DM_COWSNAP_DISK_FREE_H
#define DM_COWSNAP_DISK_FREE_H

#include <linux/types.h>

struct cow_meta;

/* Places in a row, of one segment. */
struct cow_places {
	u64 first;
	u64 nr;
	bool redirected;		/* they had a CURRENT version */
};

/*
 * With the metadata acquired: the slots of these places, ascending, are free from now on, durably,
 * and then in memory. On failure memory is as it was, and the disk has any of them free, or none.
 * -ENOMEM: nothing was written. May sleep.
 */
int cow_slots_free(struct cow_meta *meta, const struct cow_places *places, size_t nr);

/*
 * After that has failed: the disk gets what memory has. If that fails as well, it is unknown what
 * the disk has. May sleep.
 */
int cow_slots_write(struct cow_meta *meta, const struct cow_places *places, size_t nr);

#endif

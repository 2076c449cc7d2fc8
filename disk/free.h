/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: slots of versions that are needed no more are freed on the disk */
#ifndef DM_COWSNAP_DISK_FREE_H
#define DM_COWSNAP_DISK_FREE_H

#include <linux/types.h>

struct cow_store;

/* Places in a row, of one segment. */
struct cow_places {
	u64 first;
	u64 nr;
	bool redirected;		/* they had a CURRENT version */
};

/*
 * The slots of these places, ascending, are free from now on, durably, and then in memory: those of
 * the first *@done. Without failure, 0, these are all. Else disk and memory have the slots of the
 * others as they were, and a negative errno says why: -ENOMEM may pass. -ENOTRECOVERABLE: it is
 * unknown which of them the disk has; the store is fenced, and writes of the origin fail. Acquires
 * the metadata, once in a while. May sleep.
 */
int cow_slots_free(struct cow_store *store, const struct cow_places *places, size_t nr,
		   size_t *done);

/*
 * Slots of dead CURRENT versions could not be freed, @r says why: nothing comes home any more until
 * the store is opened again, which drops them. Any context.
 */
void cow_slots_stay(struct cow_store *store, int r);

#endif

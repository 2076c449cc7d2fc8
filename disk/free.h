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

/* For sort(): by the first place. */
int cow_places_compare(const void *a, const void *b);

/*
 * The slots of the first of these places, ascending, are free from now on, durably, and then in
 * memory. Returns of how many, 1 at least: those that share a few table blocks. Else disk and
 * memory have all slots as they were, and a negative errno says why:
 *   -ENOMEM		it may pass
 *   -EUCLEAN		a table block of the first place cannot be read; others may go on
 *   -EIO		the device does not take it: it has been tried for some seconds
 *   -ENOTRECOVERABLE	the store is fenced; if it is unknown which slots the disk has,
 *			writes of the origin fail from now on
 * Acquires the metadata; may sleep. If there are more of @places, a commit that waits goes on
 * before this returns.
 */
int cow_slots_free(struct cow_store *store, const struct cow_places *places, size_t nr);

/*
 * The same of all places, which had CURRENT versions that are dead. As many as can be: if some
 * stay, so it is noted. May sleep.
 */
void cow_slots_free_dead(struct cow_store *store, const struct cow_places *places, size_t nr);

/*
 * Slots of dead CURRENT versions could not be freed, @r says why: nothing comes home any more until
 * the store is opened again, which drops them. Any context.
 */
void cow_slots_stay(struct cow_store *store, int r);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: stores are opened and closed */
#ifndef DM_COWSNAP_ADMIN_STORE_H
#define DM_COWSNAP_ADMIN_STORE_H

#include <linux/blkdev.h>

struct cow_origin;
struct cow_snap_args;
struct cow_store;

/*
 * Find or make the store on @bdev for @origin; takes a reference. ERR_PTR(): -EINVAL or
 * -ENOMEM, or what reading it failed with, and words for ti->error in @error.
 * Context: may sleep (a persistent store is read), registry_mutex held.
 */
struct cow_store *cow_store_get(struct cow_origin *origin, struct block_device *bdev,
				const struct cow_snap_args *args, char **error);

/*
 * Drop one. The last one waits for pendings and for users of the store; for these it drops
 * registry_mutex meanwhile. Context: as cow_store_get().
 */
void cow_store_put(struct cow_store *store);

/* Keep the last table of @store, and so its device, until cow_store_unuse(). registry_mutex. */
void cow_store_use(struct cow_store *store);
void cow_store_unuse(struct cow_store *store);

/*
 * The store comes into force: do origin and store belong together? LVM opens stores before the
 * device of the origin has its first table, and what a sealed one begins with is not looked at
 * before this either: then what could not be checked, and settled, so far is now. 0, or a negative
 * errno after a line in the log. origin->admin_lock held.
 */
int cow_store_meet_origin(struct cow_store *store);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the seal of an origin, and what the store has of it */
#ifndef DM_COWSNAP_DISK_SEAL_H
#define DM_COWSNAP_DISK_SEAL_H

#include <linux/blkdev.h>

#include "store/store.h"

/* What the superblock, which fits, says of it. While loading. */
void cow_seal_take_super(struct cow_store *store, const struct cowsnap_super *super);

/* Chunks of the store with sealed content hold something. While loading. 0 or a negative errno. */
int cow_seal_take_room(struct cow_store *store);

/* Has chunk @place of the store content of the origin's? Any context. */
bool cow_seal_has(const struct cow_store *store, u64 place);

/*
 * cow_home() for the loader: the origin does not know yet that it is sealed. Home has the content
 * of no sector that the store has. While loading.
 */
struct block_device *cow_seal_home(const struct cow_store *store, sector_t *sector);

/*
 * May this origin be shown by a table that names no store? -EINVAL with *@error set if it is
 * sealed. One that cannot be read may be, after a line in the log: else a disk with a bad sector
 * could not be used; then *@sure stays false. Reads from the device; may sleep.
 */
int cow_seal_bare(struct block_device *home, bool *sure, char **error);

/*
 * The content of a sealed origin is in one store: -EINVAL with *@error set if one that is open has
 * it, and @store as well. cow_registry_mutex held, @store not listed yet.
 */
int cow_seal_alone(struct cow_store *store, char **error);

/*
 * Do origin and store belong together? -EINVAL with *@error set if the origin has the seal of
 * another store, or another one of this store's, or has neither the seal that it should have nor,
 * while it is sealed or opened, its content. Nothing is written. May sleep.
 */
int cow_seal_check(struct cow_store *store, char **error);

/*
 * End what a power cut has interrupted: sealing is undone, unsealing is finished. Then the origin
 * is told whether it is sealed. Before the store is hooked into it. origin->admin_lock held, may
 * sleep. 0, or a negative errno after a line in the log.
 */
int cow_seal_settle(struct cow_store *store);

/* The store is closed: if it has told its origin so, that is not sealed any more, as is known. */
void cow_seal_forget(struct cow_store *store);

#endif

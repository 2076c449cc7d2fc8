/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: a store is read */
#ifndef DM_COWSNAP_DISK_LOAD_H
#define DM_COWSNAP_DISK_LOAD_H

#include "dm-cowsnap.h"

struct cow_store;

/*
 * Read the store; store->meta exists. If the origin has a length, and is not sealed, slots in doubt
 * are settled as well; else store->loader keeps them. Returns 0, or a negative errno with words in
 * *@error. May sleep.
 */
int cow_load(struct cow_store *store, const struct cowsnap_super *super, char **error);

/*
 * Settle the slots in doubt, now that the origin can be read, and note that in the superblock.
 * Returns 0 (also if there was nothing to do) or a negative errno. After -ENOMEM it may be called
 * again, and goes on; after another the store cannot be used until it is opened again. May
 * sleep. The store is not in use yet.
 */
int cow_load_settle(struct cow_store *store);

/* Free the loader. Slots that are still in doubt will be so at the next loading. */
void cow_load_end(struct cow_store *store);

#endif

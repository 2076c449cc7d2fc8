/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: records of snapshots get a place, and give it up */
#ifndef DM_COWSNAP_DISK_PLACES_H
#define DM_COWSNAP_DISK_PLACES_H

#include <linux/types.h>

struct cow_snap;
struct cow_store;

/* Find a place for the record of @snap, in a new chunk if need be. May sleep, admin_lock. */
int cow_super_add_record(struct cow_store *store, struct cow_snap *snap);

/* @snap is not on disk: free its place, if it has one. May sleep, admin_lock held. */
void cow_super_forget_record(struct cow_store *store, struct cow_snap *snap);

/* Free the record of @snap, durably. May sleep, admin_lock held. */
int cow_super_drop_record(struct cow_store *store, struct cow_snap *snap);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: a store that has part of what its origin shows */
#ifndef DM_COWSNAP_DISK_CURRENT_H
#define DM_COWSNAP_DISK_CURRENT_H

struct cow_bio;
struct cow_store;
struct work_struct;

/*
 * I/O of the origin asks @store from now on, if it redirects, or has CURRENT versions, and its
 * origin is sealed. Nothing happens before it is in force. origin->state_lock held.
 */
void cow_current_hook(struct cow_store *store);

/* No table shows the origin any more: nothing asks @store. */
void cow_current_unhook(struct cow_store *store);

/* Does @store redirect, or may it have CURRENT versions? Any context. */
bool cow_current_is_used(const struct cow_store *store);

/*
 * @cb writes in place, where the disk does not say yet that nothing is in doubt, or zeroes, of
 * which the disk does not say yet that there may be some (store->zeroes): it decides again when it
 * does. origin->state_lock held.
 */
void cow_current_wait(struct cow_store *store, struct cow_bio *cb);

/* The work item: has the superblock say so. */
void cow_current_work(struct work_struct *work);

#endif

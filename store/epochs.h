/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the live epochs of a store */
#ifndef DM_COWSNAP_STORE_EPOCHS_H
#define DM_COWSNAP_STORE_EPOCHS_H

#include <linux/types.h>

struct cow_extent;
struct cow_live;
struct cow_snap;
struct cow_store;

/* Does any snapshot read from the store? Any context. */
bool cow_store_has_readers(const struct cow_store *store);

/*
 * Does a snapshot newer than @epoch live? Beside a merge only that keeps writes from home.
 * Any context.
 */
bool cow_store_newer_ones_live(struct cow_store *store, u32 epoch);

/*
 * For how many chunks of @ext, a copied version, is @epoch the only live one that sees it?
 * origin->state_lock held.
 */
u64 cow_store_sole_owner(struct cow_store *store, const struct cow_extent *ext, u32 epoch);

/* May @snap be shown this version, or was its own one perhaps lost? Any context. */
bool cow_store_trusts(const struct cow_store *store, const struct cow_snap *snap,
		      const struct cow_extent *ext);

/* The epoch that a copy asked for now will carry. @live under RCU or held. */
u32 cow_store_copy_epoch(const struct cow_store *store, const struct cow_live *live);

/*
 * The epochs whose versions have to be kept; the caller frees them with kvfree().
 * NULL: no memory. origin->admin_lock held.
 */
struct cow_live *cow_store_kept_epochs(struct cow_store *store);

/*
 * Room for the epochs of all its snapshots. NULL: no memory. origin->admin_lock held, or
 * registry_mutex while the store is loaded.
 */
struct cow_live *cow_store_alloc_live(struct cow_store *store);

/* Replace store->live by @live, filled in from the snapshots' states. admin_lock held. */
void cow_store_take_live(struct cow_store *store, struct cow_live *live);

/* The same with room of its own. May sleep; -ENOMEM. */
int cow_store_renew_live(struct cow_store *store);

/* The same with origin->state_lock held. */
void __cow_store_take_live(struct cow_store *store, struct cow_live *live);

#endif

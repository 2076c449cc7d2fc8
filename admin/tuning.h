/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: options of a store change */
#ifndef DM_COWSNAP_ADMIN_TUNING_H
#define DM_COWSNAP_ADMIN_TUNING_H

#include <linux/types.h>

struct cow_given;
struct cow_store;
int cow_store_set_options(struct cow_store *store, const struct cow_given *given);

/* Pages for an undo buffer of @kib. origin->admin_lock held, may sleep. 0 or -ENOMEM. */
int cow_store_reserve_undo(struct cow_store *store, unsigned int kib);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the states of a store and of its snapshots */
#ifndef DM_COWSNAP_STORE_STATE_H
#define DM_COWSNAP_STORE_STATE_H

#include "store/store.h"

/* The one place where a snapshot's state changes. origin->state_lock held. */
void cow_snap_set_state(struct cow_snap *snap, enum cow_snap_state state);

/*
 * All errors that end a store's live snapshots come here. They get @state, on disk first if
 * the store is persistent; writes no longer make copies for them; the log gets a line, and
 * tables get an event. Any context but irq; the second with origin->state_lock held.
 */
void cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			  const char *why);
void __cow_store_invalidate(struct cow_store *store, enum cow_snap_state state,
			    const char *why);

/* The one place where store->blocked changes. origin->state_lock held. */
void cow_store_set_blocked(struct cow_store *store, enum cow_store_blocked blocked);

/* The store is open: what waited for it decides again. origin->state_lock held. */
void cow_store_unblock(struct cow_store *store);

/*
 * The end of that: the live snapshots get @state in memory, and bios that wait for the store
 * decide again. A snapshot that is being merged stays: it needs no more copies, and the
 * origin needs it. origin->state_lock held.
 */
void cow_store_let_go(struct cow_store *store, enum cow_snap_state state);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: reads that are under way from places in a store */
#ifndef DM_COWSNAP_STORE_READERS_H
#define DM_COWSNAP_STORE_READERS_H

struct cow_store;

/*
 * A read is about to look for a place in the map, and reads from it until cow_readers_leave(),
 * which gets what this returns. In between nothing may be waited for but the read. Any context.
 */
unsigned int cow_readers_enter(struct cow_store *store);
void cow_readers_leave(struct cow_store *store, unsigned int turn);

/*
 * Wait for the reads that may have found a place in the map which was taken out of it before this
 * was called. Later ones are not waited for. Context: may sleep, with no lock that a read needs to
 * end.
 */
void cow_readers_await(struct cow_store *store);

#endif

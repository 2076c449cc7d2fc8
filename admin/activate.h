/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: a store and its snapshots come into force */
#ifndef DM_COWSNAP_ADMIN_ACTIVATE_H
#define DM_COWSNAP_ADMIN_ACTIVATE_H

#include <linux/types.h>

struct cow_snap;
struct cow_store;

/*
 * A table that names the store was loaded: what takes its time is done now, as users of the origin
 * may be suspended when it is resumed. What fails is tried again then, and so is all of it if
 * admin_lock is held: the program that loads may have suspended what its holder waits for. May
 * sleep for memory.
 */
void cow_store_prepare(struct cow_store *store);

/* Protect the snapshots in the store from now on. May sleep. */
int cow_store_activate(struct cow_store *store);

/*
 * Make @snap live, or give it its new length, at one instant of the origin. May sleep.
 */
int cow_snap_activate(struct cow_snap *snap, sector_t nr_sectors);

/*
 * The log gets its first zones, if the store has just come into force. That writes, and holds the
 * lock of superblocks: so it is for when nobody who has suspended the origin waits for these any
 * more. Context: a task's.
 */
void cow_store_begin_log(struct cow_store *store);

#endif

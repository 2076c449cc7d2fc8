/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: snapshots are given up to trackers */
#ifndef DM_COWSNAP_ADMIN_TRACK_H
#define DM_COWSNAP_ADMIN_TRACK_H

#include <linux/workqueue.h>

struct cow_snap;
struct cow_store;

/* The message. May sleep. 0, or a negative errno after a line in the log. */
int cow_store_track_snap(struct cow_store *store, unsigned int id);

/* @snap was deleted, durably: so is its tracker, if it has one. May sleep, admin_lock held. */
void cow_tracker_drop(struct cow_snap *snap);

/*
 * The store is about to be used: read its trackers, and those that cannot be read are lost. May
 * sleep, admin_lock held.
 */
void cow_trackers_read(struct cow_store *store);

/* All of them are lost. The same. */
void cow_trackers_lose(struct cow_store *store, const char *why);

/* Writes look at them from now on. The origin is frozen. The same. */
void cow_trackers_hook(struct cow_store *store);

/*
 * Write what memory knows, so that the disk has exact bits instead of marks. -EROFS: the store is
 * read-only or not in use, and has a tracker. May sleep.
 */
int cow_trackers_settle(struct cow_store *store);

/*
 * No write looks at the store any more: the same for the last time. False: a tracker is lost, and
 * the disk does not say so. May sleep.
 */
bool cow_trackers_close(struct cow_store *store);

/* The work items. */
void cow_track_work(struct work_struct *work);
void cow_track_idle_work(struct work_struct *work);

#endif

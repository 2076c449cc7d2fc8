/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: zones of the log are left, and others are named */
#ifndef DM_COWSNAP_DISK_CHECKPOINT_H
#define DM_COWSNAP_DISK_CHECKPOINT_H

#include <linux/types.h>
#include <linux/workqueue.h>

struct cow_store;

/*
 * A work item: the slots of zones that are to be left are written into the tables, and the
 * superblock names other zones in their places, as far as the store wants some.
 */
void cow_zone_work(struct work_struct *work);

/*
 * Room is needed that zones keep back: leave them, if there are some. True: there were, and there
 * may be room now. May sleep.
 */
bool cow_zones_give_up(struct cow_store *store);

/*
 * The store is being closed, and has no records under way: leave all zones. If that fails they are
 * replayed when it is opened again. May sleep.
 */
void cow_zones_close(struct cow_store *store);

#endif

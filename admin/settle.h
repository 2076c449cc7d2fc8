/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: what was redirected is brought home while the origin is in use */
#ifndef DM_COWSNAP_ADMIN_SETTLE_H
#define DM_COWSNAP_ADMIN_SETTLE_H

#include <linux/workqueue.h>

struct cow_store;

/* The work item behind cow_store_settle(). */
void cow_settle_work(struct work_struct *work);

/*
 * All that can is to come home now, whatever the option says: the message. 0, or a negative errno
 * after a line in the log. It does not wait for the end.
 */
int cow_settle_ask(struct cow_store *store);

/* The store is closed: stop for now. May sleep until what is under way has ended. */
void cow_settle_stop(struct cow_store *store);

#endif

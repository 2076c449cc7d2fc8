/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: a full store drops its oldest snapshot, or gives up waiting */
#ifndef DM_COWSNAP_ADMIN_FULL_H
#define DM_COWSNAP_ADMIN_FULL_H

#include <linux/workqueue.h>

/* The store is full: waiting is over, or the oldest snapshot is dropped. A work item. */
void cow_store_full_work(struct work_struct *work);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: room that deleted snapshots left is given back */
#ifndef DM_COWSNAP_ADMIN_RECLAIM_H
#define DM_COWSNAP_ADMIN_RECLAIM_H

#include <linux/workqueue.h>

/* The work item behind cow_store_reclaim(). */
void cow_store_reclaim_work(struct work_struct *work);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the work of a merge */
#ifndef DM_COWSNAP_ADMIN_STRETCH_H
#define DM_COWSNAP_ADMIN_STRETCH_H

#include <linux/workqueue.h>

/* One step of a merge. A work item. */
void cow_merge_work(struct work_struct *work);

#endif

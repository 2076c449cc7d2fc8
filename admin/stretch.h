/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the work of a merge */
#ifndef DM_COWSNAP_ADMIN_STRETCH_H
#define DM_COWSNAP_ADMIN_STRETCH_H

#include <linux/workqueue.h>

struct cow_origin;

/* One step of a merge. A work item. */
void cow_merge_work(struct work_struct *work);

/*
 * No merge goes on: copying keeps to the throttle again, and the worker is a task like others.
 * Process context, never sleeps.
 */
void cow_merge_leave_engine(struct cow_origin *origin);

#endif

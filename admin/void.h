/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: what was redirected since a snapshot is forgotten when that is merged */
#ifndef DM_COWSNAP_ADMIN_VOID_H
#define DM_COWSNAP_ADMIN_VOID_H

#include <linux/types.h>

struct cow_merge;
struct cow_store;

/* What forgetting needs, for as long as @merge lasts. 0 or -ENOMEM. May sleep. */
int cow_void_init(struct cow_merge *merge);

/* After a failed cow_void_init() as well. May sleep. */
void cow_void_exit(struct cow_merge *merge);

/*
 * The stretch up to chunk @end is about to be closed. If there is something in it to forget,
 * store->dead_lock is held from here on, and zones of the log that would keep it are left, if they
 * can be. 0, or -EAGAIN: the store is closed. May sleep until a reclaim has ended.
 */
int cow_void_prepare(struct cow_merge *merge, u64 end);

/*
 * Between merge->done and merge->busy_end nobody has what need not be carried to be rolled back.
 * The stretch is closed. 0, or a negative errno: then it is so for part of it. May sleep.
 */
int cow_void_stretch(struct cow_merge *merge);

/* What cow_void_prepare() has taken is given back, in the same task. */
void cow_void_end(struct cow_merge *merge);

#endif

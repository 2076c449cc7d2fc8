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
 * The stretch up to chunk @end is about to be closed: zones of the log that would keep something in
 * it from being forgotten are left, if they can be. May sleep until they are.
 */
void cow_void_prepare(struct cow_merge *merge, u64 end);

/*
 * Between merge->done and merge->busy_end nobody has what need not be carried to be rolled back.
 * The stretch is closed. 0, or a negative errno: then it is so for part of it. May sleep.
 */
int cow_void_stretch(struct cow_merge *merge);

#endif

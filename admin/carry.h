/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: what a merged snapshot sees is carried to the origin */
#ifndef DM_COWSNAP_ADMIN_CARRY_H
#define DM_COWSNAP_ADMIN_CARRY_H

#include <linux/types.h>

struct cow_merge;
struct cow_store;

/* How many chunks a stretch has at most, and while users have the origin in use. */
u64 cow_stretch_chunks(const struct cow_store *store);
u64 cow_gentle_stretch_chunks(const struct cow_merge *merge);

/* What carrying needs, for as long as @merge lasts. 0 or -ENOMEM. May sleep. */
int cow_carry_init(struct cow_merge *merge);

/* Nothing is being carried. After a failed cow_carry_init() as well. May sleep. */
void cow_carry_exit(struct cow_merge *merge);

/*
 * Write all that the snapshot sees between merge->done and merge->busy_end, and the origin does not
 * have, to the origin, and wait for it. The stretch is closed. 0 or a negative errno: then the
 * origin may have any part of it. May sleep.
 */
int cow_carry_stretch(struct cow_merge *merge);

/* For sort(), of struct cow_extent: by place. */
int cow_carry_compare_places(const void *a, const void *b);

#endif

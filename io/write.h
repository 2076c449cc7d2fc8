/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: writes to the origin */
#ifndef DM_COWSNAP_IO_WRITE_H
#define DM_COWSNAP_IO_WRITE_H

#include <linux/types.h>

struct cow_bio;

/*
 * Decide on a write to the origin: DM_MAPIO_REMAPPED, DM_MAPIO_SUBMITTED or DM_MAPIO_KILL.
 * *@part is what the answer is about: @cb, or, in a worker, a piece cut off its front; then
 * the caller goes on with the rest in @cb. Context: process; never sleeps.
 */
int cow_origin_decide(struct cow_bio *cb, struct cow_bio **part);

#endif

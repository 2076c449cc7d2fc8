/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: reading and writing a snapshot */
#ifndef DM_COWSNAP_IO_SNAPSHOT_H
#define DM_COWSNAP_IO_SNAPSHOT_H

#include <linux/types.h>

struct cow_bio;
/*
 * Decide on I/O of a snapshot, as cow_origin_decide() does. -ENOSPC, for I/O by way of a merge
 * only: the store has no room, and the merge may make some.
 */
int cow_snap_decide(struct cow_bio *cb, struct cow_bio **part);

#endif

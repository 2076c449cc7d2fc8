/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: a write to the origin and its trackers */
#ifndef DM_COWSNAP_IO_TRACK_H
#define DM_COWSNAP_IO_TRACK_H

#include <linux/types.h>

struct cow_bio;

/*
 * @cb is about to go home: note it in all trackers. False: it waits until regions have been
 * marked on the disk, and then decides again. The gate is held.
 */
bool cow_track_write(struct cow_bio *cb);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: each bio passes one decision */
#ifndef DM_COWSNAP_IO_DECIDE_H
#define DM_COWSNAP_IO_DECIDE_H

#include <linux/workqueue.h>

struct cow_bio;

/*
 * Decide on a bio that came to map: DM_MAPIO_REMAPPED (send it where it points
 * now), DM_MAPIO_SUBMITTED (parked, or done) or DM_MAPIO_KILL.
 * Context: process; never sleeps.
 */
int cow_bio_map(struct cow_bio *cb);

/* A bio that has waited decides again, in pieces if it has to be cut. In a worker. */
void cow_bio_run(struct cow_bio *cb);

/* Bios that the engine's worker does not submit itself are sent where they point. A work item. */
void cow_origin_writeback_work(struct work_struct *work);

/*
 * Held bios decide again, and as many deferred ones as there is memory for. A work
 * item.
 */
void cow_origin_decide_work(struct work_struct *work);

#endif

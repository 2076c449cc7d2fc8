/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: reads of snapshots that were sent home */
#ifndef DM_COWSNAP_ORIGIN_READS_H
#define DM_COWSNAP_ORIGIN_READS_H

#include <linux/types.h>

struct cow_bio;
struct cow_pending;

/* From here on writes to the chunks that @cb reads at home wait for it. Any context. */
void cow_track_read(struct cow_bio *cb);
void cow_untrack_read(struct cow_bio *cb);

/*
 * @pending is published. If a tracked read overlaps it, @pending waits on its list and
 * goes to origin->drained when the last such read has ended. False: there is none.
 * Engine's worker.
 */
bool cow_reads_wait(struct cow_pending *pending);

#endif

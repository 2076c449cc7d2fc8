/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the data of a pending exception */
#ifndef DM_COWSNAP_COPY_DATA_H
#define DM_COWSNAP_COPY_DATA_H

#include <linux/types.h>

struct cow_job;
struct cow_pending;

/* Write what @job has read, except zeroes, to the room of @pending. From ->ready. */
void cow_pending_write(struct cow_pending *pending, struct cow_job *job);

/* Which chunks of what @job has read are all zero? From ->ready. */
void cow_pending_find_zeroes(struct cow_pending *pending, struct cow_job *job);

/*
 * The next stretch of the run, from *@from on, that is @zero or not. False at its end.
 */
bool cow_pending_next_stretch(const struct cow_pending *pending, bool zero, u64 *from,
			      u64 *to);

/*
 * Give back the room of zeroes (in a transient store they have no slot and need none)
 * and count what was copied, or redirected. From ->ready; of what has no data when it is published.
 */
void cow_pending_settle_room(struct cow_pending *pending);

#endif

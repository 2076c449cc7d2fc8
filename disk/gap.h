/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: how far behind the last record of the log the next one stands */
#ifndef DM_COWSNAP_DISK_GAP_H
#define DM_COWSNAP_DISK_GAP_H

#include <linux/types.h>

#define COW_GAP_RUNGS		18U

/* What has been learned of records of one size. Zeroed: nothing yet. */
struct cow_gap {
	u8 best;			/* the rung that records are given */
	u8 rung;			/* the one on trial, or @best while the ladder rests */
	u8 first, last;			/* those of this round, besides 0 */
	u8 top;				/* the largest that a zone has allowed so far */
	bool rests;
	u32 nr, sum;			/* records judged on this rung, and their microseconds */
	u32 quick;			/* of these, those that missed no turn */
	u32 mean[COW_GAP_RUNGS];	/* of the last round */
	u32 low;			/* the least mean of this round */
	u32 rest;			/* records until the next round */
	u32 pause;			/* records of the next rest */
	u32 kept;			/* records since @best has changed */
};

/* Chunks to leave free in front of the next record, at most @most. */
u32 cow_gap_chunks(const struct cow_gap *gap, u32 most);

/* The same, of what has been learned so far. */
u32 cow_gap_learned(const struct cow_gap *gap);

/* The record that was given cow_gap_chunks() took @us from its submission until it was durable. */
void cow_gap_note(struct cow_gap *gap, u32 us, u32 most);

#endif

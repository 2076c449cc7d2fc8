/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: records of the log are found when a store is opened */
#ifndef DM_COWSNAP_DISK_REPLAY_H
#define DM_COWSNAP_DISK_REPLAY_H

#include "dm-cowsnap.h"

struct cow_store;

/* What is done with the records that are found, in order. */
struct cow_replay {
	struct cow_store *store;
	void *context;
	/* Slots of a record that can be so? If not it is taken for damaged. */
	bool (*makes_sense)(void *context, const struct cowsnap_slot *slot, u32 nr, u64 place);
	/* @in_doubt: it is not known to have ended. 0 or a negative errno. */
	int (*slot)(void *context, const struct cowsnap_slot *slot, u64 place, bool in_doubt);
	u32 nr_lost;			/* records that there were, or may have been */
};

/*
 * Find the records in @zone, which fits the store. Nothing is written. 0, what ->slot returned, or
 * -ENOMEM. May sleep.
 */
int cow_replay_zone(struct cow_replay *replay, const struct cowsnap_zone *zone);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: snapshots are named by tables, created and deleted */
#ifndef DM_COWSNAP_ADMIN_SNAPSHOTS_H
#define DM_COWSNAP_ADMIN_SNAPSHOTS_H

#include <linux/types.h>

struct cow_snap;
struct cow_store;

/* What a table says of a snapshot. */
struct cow_snap_args {
	char persistence;		/* 'N' or 'P', 0: as the store has it */
	bool overflow_apart;		/* 'O' followed it */
	bool writable;			/* the table is, so the store must be */
	bool create;			/* make this id */
	bool merge;			/* to merge it, not to use it */
	bool claimed;			/* by a table under dm-snapshot's name */
	bool takes_over;		/* from a device that shows it and is to be suspended */
	unsigned int chunk_sectors;	/* 0: as the store has it */
	unsigned int id;
	sector_t nr_sectors;
};

/* Can the table make the first snapshot of a store? */
static inline bool cow_snap_may_be_first(const struct cow_snap_args *args)
{
	return !args->merge && (args->create || !args->id);
}

/* Find snapshot args->id of @store, or prepare to make it, as cow_store_get(). */
struct cow_snap *cow_snap_get(struct cow_store *store, const struct cow_snap_args *args,
			      char **error);

/*
 * Drop it. A snapshot that is on disk stays; one that only tables know goes with the last
 * reference. May sleep, registry_mutex held.
 */
void cow_snap_put(struct cow_snap *snap);

/* The messages. May sleep. 0, or a negative errno after a line in the log. */
int cow_store_create_snap(struct cow_store *store, unsigned int id);
int cow_store_delete_snap(struct cow_store *store, unsigned int id);

/* Forget @snap, in memory alone. May sleep, registry_mutex held. */
void cow_snap_forget(struct cow_snap *snap);

#endif

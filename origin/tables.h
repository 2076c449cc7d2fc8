/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: tables that name an origin, a store, a snapshot */
#ifndef DM_COWSNAP_ORIGIN_TABLES_H
#define DM_COWSNAP_ORIGIN_TABLES_H

#include <linux/device-mapper.h>
#include <linux/list.h>

struct cow_origin;
struct cow_snap;
struct cow_store;

/* The listed part of a table; a cowsnap-origin has no store, or no snapshot. */
struct cow_table {
	struct list_head store_node;	/* store->tables */
	struct list_head origin_node;	/* origin->tables */
	struct dm_target *ti;
	const struct cow_snap *snap;	/* NULL: none */
	bool shows_origin;		/* cowsnap-origin, cowsnap-merge */
	bool bare;			/* it shows the origin and names no store */
	bool shows_snap;		/* a snapshot that may be read and written; READ_ONCE */
	bool in_force;			/* was resumed, may be suspended */
	bool suspending;		/* counted in origin->nr_suspending; state_lock */
};

/*
 * The length of the origin for its users, in sectors: that of its longest table in force;
 * without one, of its snapshots' longest table; without those, of its device. May sleep.
 */
sector_t cow_origin_length(struct cow_origin *origin);

/* List a table; @store may be NULL. May sleep. */
void cow_table_add(struct cow_table *table, struct cow_origin *origin,
		   struct cow_store *store);
void cow_table_del(struct cow_table *table);

/* The table is in force from now on. May sleep. */
void cow_table_resumed(struct cow_table *table);

/* Does a device show @snap? May sleep. */
bool cow_snap_is_shown(const struct cow_snap *snap);

/* Is there a table of the origin's that names no store? May sleep. */
bool cow_origin_is_bare(struct cow_origin *origin);

/* Wake dmsetup wait on every table of every snapshot in the store. A work item. */
void cow_store_event_work(struct work_struct *work);

#endif

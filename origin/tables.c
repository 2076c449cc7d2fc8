// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: tables that name an origin, a store, a snapshot
 *
 * Tables come and go with ctr and dtr. They are listed here to find out how long the origin
 * is for its users, whether a device shows a snapshot, and which tables get events.
 */
#include <linux/module.h>

#include "origin/origin.h"
#include "origin/tables.h"
#include "store/store.h"

/* Guards the lists of tables, and which of them are in force. */
static DEFINE_MUTEX(table_mutex);

void cow_table_add(struct cow_table *table, struct cow_origin *o, struct cow_store *store)
{
	table->bare = table->shows_origin && !store;
	mutex_lock(&table_mutex);
	if (store)
		list_add_tail(&table->store_node, &store->tables);
	list_add_tail(&table->origin_node, &o->tables);
	mutex_unlock(&table_mutex);
}

void cow_table_del(struct cow_table *table)
{
	mutex_lock(&table_mutex);
	list_del(&table->store_node);
	list_del(&table->origin_node);
	mutex_unlock(&table_mutex);
}

void cow_table_resumed(struct cow_table *table)
{
	mutex_lock(&table_mutex);
	table->in_force = true;
	mutex_unlock(&table_mutex);
}

sector_t cow_origin_length(struct cow_origin *o)
{
	const struct cow_table *table;
	sector_t origin = 0, snaps = 0;

	mutex_lock(&table_mutex);
	list_for_each_entry(table, &o->tables, origin_node) {
		if (table->in_force && table->shows_origin)
			origin = max(origin, table->ti->len);
		else if (table->in_force)
			snaps = max(snaps, table->ti->len);
	}
	mutex_unlock(&table_mutex);
	return origin ?: snaps ?: bdev_nr_sectors(o->bdev);
}

bool cow_snap_is_shown(const struct cow_snap *snap)
{
	const struct cow_table *table;
	bool shown = false;

	mutex_lock(&table_mutex);
	list_for_each_entry(table, &snap->store->tables, store_node)
		shown |= table->snap == snap && READ_ONCE(table->shows_snap);
	mutex_unlock(&table_mutex);
	return shown;
}

bool cow_origin_is_bare(struct cow_origin *o)
{
	const struct cow_table *table;
	bool bare = false;

	mutex_lock(&table_mutex);
	list_for_each_entry(table, &o->tables, origin_node)
		bare |= table->bare;
	mutex_unlock(&table_mutex);
	return bare;
}

void cow_store_event_work(struct work_struct *work)
{
	struct cow_store *store = container_of(work, struct cow_store, event_work);
	struct cow_table *table;

	mutex_lock(&table_mutex);
	list_for_each_entry(table, &store->tables, store_node)
		dm_table_event(table->ti->table);
	mutex_unlock(&table_mutex);
}

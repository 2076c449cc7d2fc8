// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: records of snapshots get a place, and give it up
 *
 * A record beyond the eighth needs a chunk of records. Such a chunk is written empty
 * first and then announced by its slot.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "disk/checkpoint.h"
#include "disk/commit.h"
#include "disk/direct.h"
#include "disk/meta.h"
#include "disk/places.h"
#include "disk/records.h"
#include "disk/slots.h"
#include "disk/super.h"
#include "origin/origin.h"
#include "store/room.h"
#include "store/space.h"
#include "store/store.h"

/* Write the chunk empty, durably, then announce it by its slot. */
static int records_announce(struct cow_store *store, u64 index, u64 place)
{
	const struct cowsnap_geometry *g = cow_meta_geometry(store->meta);
	struct cowsnap_slot slot;
	unsigned int losses = cow_meta_losses(store->meta);
	struct cow_change c;
	u32 block;
	int r = 0;

	cow_change_fill(&c, store, NULL);
	for (block = 0; block < g->chunk_blocks && !r; block++)
		r = cow_records_write(&c, index, block, 0);
	r = r ?: cow_meta_flush(store->meta, losses);
	/* The slot's block has to be in memory, so that a failed write can be undone. */
	if (!r)
		r = cow_meta_read_slot(store->meta, place, &slot);
	if (r)
		return r;
	r = cow_meta_write_slot(store->meta, place, COWSNAP_SLOT_RECORDS, index);
	if (r && r != -ENOMEM && cow_meta_write_slot(store->meta, place, COWSNAP_SLOT_FREE, 0))
		cow_store_fence(store);
	return r;
}

static int records_find_room(struct cow_store *store, u64 *place)
{
	u32 got;

	do {
		spin_lock(&store->origin->state_lock);
		got = cow_store_room(store, 1, place);
		spin_unlock(&store->origin->state_lock);
	} while (!got && cow_zones_give_up(store));
	return got ? 0 : -ENOSPC;
}

static int records_make_chunk(struct cow_store *store, u64 index)
{
	u64 place;
	int r = records_find_room(store, &place);

	if (r)
		return r;
	cow_super_lock(store);
	r = xa_err(xa_store(&store->record_chunks, index, xa_mk_value(place + 1),
			    GFP_NOIO));
	if (!r)
		r = records_announce(store, index, place);
	if (r)
		xa_erase(&store->record_chunks, index);
	cow_super_unlock(store);
	if (r) {
		spin_lock(&store->origin->state_lock);
		cow_space_free(&store->space, place, 1);
		spin_unlock(&store->origin->state_lock);
	}
	return r;
}

int cow_super_add_record(struct cow_store *store, struct cow_snap *snap)
{
	u32 number;
	int r;

	lockdep_assert_held(&store->origin->admin_lock);
	if (!store->meta)
		return 0;
	r = xa_alloc(&store->records, &number, snap,
		     XA_LIMIT(0, COWSNAP_MAX_SNAPSHOTS - 1), GFP_KERNEL);
	if (r)
		return r;
	snap->record = number;
	if (number >= COWSNAP_SUPER_RECORDS) {
		u64 index = (number - COWSNAP_SUPER_RECORDS) / cow_records_in_chunk(store);

		if (!xa_load(&store->record_chunks, index))
			r = records_make_chunk(store, index);
	}
	if (r)
		cow_super_forget_record(store, snap);
	return r;
}

void cow_super_forget_record(struct cow_store *store, struct cow_snap *snap)
{
	lockdep_assert_held(&store->origin->admin_lock);
	/* Writing records looks at their snapshots. */
	mutex_lock(&store->records_lock);
	if (xa_load(&store->records, snap->record) == snap)
		xa_erase(&store->records, snap->record);
	mutex_unlock(&store->records_lock);
}

int cow_super_drop_record(struct cow_store *store, struct cow_snap *snap)
{
	struct cow_change c;

	lockdep_assert_held(&store->origin->admin_lock);
	if (!store->meta)
		return 0;
	cow_change_begin(&c, store, snap);
	c.drop = true;
	/* Either is true after a crash: its chunks are kept until it is gone in memory. */
	c.either = true;
	return cow_change_end(&c);
}

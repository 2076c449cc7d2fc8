// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: status lines
 */
#include <linux/module.h>

#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "admin/merge.h"
#include "disk/meta.h"
#include "disk/records.h"
#include "io/ahead.h"
#include "io/around.h"
#include "origin/origin.h"
#include "store/snapshots.h"
#include "store/store.h"
#include "target/options.h"
#include "target/status.h"
#include "target/table.h"
#include "target/target.h"

static void emit_copy_stats(struct cow_origin *o, char *result, unsigned int maxlen,
			    unsigned int *size)
{
	struct cow_engine_stats stats;
	unsigned int sz = *size;

	cow_engine_read_stats(o->engine, &stats);
	DMEMIT(" copies %llu read_sectors %llu written_sectors %llu", stats.jobs,
	       stats.read_sectors, stats.written_sectors);
	DMEMIT(" page_waits %llu pauses %llu throttle %u copy_memory %llu", stats.page_waits,
	       stats.throttled, cow_engine_throttle(o->engine), stats.kib);
	*size = sz;
}

/* ------------------------------------------------------------- cowsnap-origin */

static void origin_counts(struct cow_origin *o, unsigned int *nr_stores,
			  unsigned int *nr_snaps, unsigned int *nr_trackers)
{
	struct cow_store *store;
	struct cow_snap *snap;

	*nr_stores = 0;
	*nr_snaps = 0;
	*nr_trackers = 0;
	spin_lock(&o->state_lock);
	list_for_each_entry(store, &o->stores, node) {
		(*nr_stores)++;
		list_for_each_entry(snap, &store->snaps, node) {
			*nr_snaps += snap->state == COW_SNAP_LIVE;
			*nr_trackers += snap->state == COW_SNAP_TRACKER;
		}
	}
	spin_unlock(&o->state_lock);
}

void cow_origin_status(struct dm_target *ti, status_type_t type,
		       unsigned int flags, char *result, unsigned int maxlen)
{
	struct cow_target *ct = ti->private;
	struct cow_origin *o = ct->origin;
	struct cow_ahead_stats ahead;
	struct cow_around_stats around;
	unsigned int nr_stores, nr_snaps, nr_trackers;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		if (ct->claimed)
			break;
		origin_counts(o, &nr_stores, &nr_snaps, &nr_trackers);
		DMEMIT("stores %u snapshots %u trackers %u held %lld", nr_stores, nr_snaps,
		       nr_trackers, atomic64_read(&o->held_writes));
		DMEMIT(" parked %lld skipped_discards %lld",
		       atomic64_read(&o->parked_writes),
		       atomic64_read(&o->skipped_discards));
		cow_ahead_read_stats(o->ahead, &ahead);
		DMEMIT(" copied_ahead %llu wasted_ahead %llu", ahead.copied, ahead.wasted);
		cow_around_read_stats(o->around, &around);
		DMEMIT(" copied_around %llu unused_around %llu", around.copied, around.unused);
		DMEMIT(" read_rests %llu", READ_ONCE(o->pace.nr_waited));
		emit_copy_stats(o, result, maxlen, &sz);
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s", ct->origin_dev->name);
		if (ct->discard_given || ct->store)
			DMEMIT(" %u", 2 * ct->discard_given + 2 * !!ct->store);
		if (ct->store)
			DMEMIT(" store %s", ct->store_dev->name);
		if (ct->discard_given)
			DMEMIT(" discard %s", cow_discard_words[ct->discard]);
		break;
	case STATUSTYPE_IMA:
		DMEMIT_TARGET_NAME_VERSION(ti->type);
		DMEMIT(",origin_dev_name=%s;", ct->origin_dev->name);
		break;
	}
}

/* -------------------------------------------------- cowsnap and cowsnap-merge */

/* The one word for a snapshot that cannot be used any more, or NULL. */
static const char *snap_last_word(const struct cow_target *ct, bool merge)
{
	const struct cow_snap *snap = ct->snap;

	switch (READ_ONCE(snap->state)) {
	case COW_SNAP_OVERFLOWED:
	case COW_SNAP_DROPPED:
		if (!merge)
			return snap->overflow_apart ? "Overflow" : "Invalid";
		fallthrough;
	case COW_SNAP_INVALID:
		return merge ? "Merge failed" : "Invalid";
	default:
		return merge && cow_merge_failed(snap) ? "Merge failed" : NULL;
	}
}

static u64 metadata_sectors(struct cow_store *store)
{
	if (!store->meta)
		return 0;
	return cow_chunk_to_sector(store, store->space.table_chunks +
				   cow_super_record_chunks(store));
}

static u64 used_sectors(struct cow_store *store)
{
	u64 chunks = cow_space_filled(&store->space);

	if (store->meta)
		chunks += store->space.table_chunks;
	return cow_chunk_to_sector(store, chunks);
}

void cow_store_emit_room(struct cow_store *store, char *result, unsigned int maxlen,
			 unsigned int *size)
{
	unsigned int sz = *size;

	lockdep_assert_held(&store->origin->state_lock);
	DMEMIT("%llu/%llu %llu", used_sectors(store),
	       (u64)cow_chunk_to_sector(store, store->space.nr_chunks),
	       metadata_sectors(store));
	*size = sz;
}

static void emit_meta_stats(struct cow_store *store, char *result, unsigned int maxlen,
			    unsigned int *size)
{
	struct cow_meta_stats stats;
	unsigned int sz = *size;

	if (!store->meta)
		return;
	cow_meta_read_stats(store->meta, &stats);
	DMEMIT(" commits %llu table_writes %llu", stats.commits, stats.block_writes);
	DMEMIT(" unverified %lld bad_checksums %lld damaged %u",
	       atomic64_read(&store->unverified), atomic64_read(&store->bad_checksums),
	       store->damaged_blocks + store->lost_records);
	DMEMIT(" records %llu checkpoints %llu", stats.records, stats.checkpoints);
	DMEMIT(" log_gap %llu log_skipped %llu", (u64)cow_chunk_to_sector(store, stats.gap),
	       (u64)cow_chunk_to_sector(store, stats.skipped));
	DMEMIT(" redirected %llu unsettled %llu settled %llu", READ_ONCE(store->redirected),
	       READ_ONCE(store->nr_current), READ_ONCE(store->settled));
	*size = sz;
}

static void emit_store_stats(struct cow_store *store, char *result, unsigned int maxlen,
			     unsigned int *size)
{
	unsigned int sz = *size;

	lockdep_assert_held(&store->origin->state_lock);
	DMEMIT(" exceptions %llu copied %llu zero %llu", store->map.nr_chunks,
	       READ_ONCE(store->copied_chunks), READ_ONCE(store->zero_chunks));
	DMEMIT(" pending %u memory %llu freed %llu", store->nr_pendings,
	       store->map.nr_bytes, store->freed_chunks);
	cow_emit_options(&store->options, result, maxlen, &sz);
	DMEMIT(" buffered %llu", (u64)store->undo_sectors);
	*size = sz;
}

static void snap_emit_info(struct cow_target *ct, bool merge, char *result,
			   unsigned int maxlen)
{
	const char *last_word = snap_last_word(ct, merge);
	struct cow_snap *snap = ct->snap;
	struct cow_store *store = ct->store;
	unsigned int sz = 0;
	u64 used, left;

	if (last_word) {
		DMEMIT("%s", last_word);
		return;
	}
	left = merge ? cow_chunk_to_sector(store, cow_merge_left(snap)) : 0;
	spin_lock(&ct->origin->state_lock);
	used = merge ? metadata_sectors(store) + left : used_sectors(store);
	DMEMIT("%llu/%llu %llu", used,
	       (u64)cow_chunk_to_sector(store, store->space.nr_chunks),
	       metadata_sectors(store));
	if (!ct->claimed) {
		DMEMIT(" id %u epoch %u", snap->id, snap->epoch);
		emit_store_stats(store, result, maxlen, &sz);
	}
	spin_unlock(&ct->origin->state_lock);
	if (ct->claimed)
		return;
	emit_meta_stats(store, result, maxlen, &sz);
	emit_copy_stats(ct->origin, result, maxlen, &sz);
}

static void snap_emit_table(struct cow_target *ct, char *result, unsigned int maxlen)
{
	unsigned int count = 2 * (ct->id_given + hweight_long(ct->options.given)) +
			     ct->discard_zeroes_cow + ct->discard_passdown_origin;
	unsigned int sz = 0;

	DMEMIT("%s %s %c%s %u", ct->origin_dev->name, ct->store_dev->name,
	       ct->store->persistence, ct->snap->overflow_apart ? "O" : "",
	       ct->store->chunk_sectors);
	if (count)
		DMEMIT(" %u", count);
	if (ct->id_given)
		DMEMIT(" id %u", ct->snap->id);
	cow_emit_given(&ct->options, result, maxlen, &sz);
	if (ct->discard_zeroes_cow)
		DMEMIT(" discard_zeroes_cow");
	if (ct->discard_passdown_origin)
		DMEMIT(" discard_passdown_origin");
}

static void emit_status(struct dm_target *ti, status_type_t type, bool merge, char *result,
			unsigned int maxlen)
{
	struct cow_target *ct = ti->private;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		snap_emit_info(ct, merge, result, maxlen);
		break;
	case STATUSTYPE_TABLE:
		snap_emit_table(ct, result, maxlen);
		break;
	case STATUSTYPE_IMA:
		DMEMIT_TARGET_NAME_VERSION(ti->type);
		DMEMIT(",origin_dev_name=%s,store_dev_name=%s,id=%u;",
		       ct->origin_dev->name, ct->store_dev->name, ct->snap->id);
		break;
	}
}

void cow_snap_status(struct dm_target *ti, status_type_t type, unsigned int flags,
		     char *result, unsigned int maxlen)
{
	emit_status(ti, type, false, result, maxlen);
}

void cow_merge_status(struct dm_target *ti, status_type_t type, unsigned int flags,
		      char *result, unsigned int maxlen)
{
	emit_status(ti, type, true, result, maxlen);
}

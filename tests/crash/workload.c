// SPDX-License-Identifier: GPL-2.0-only
/*
 * The workload: workers write to the origin and to snapshots, the controller makes,
 * deletes, gives up, opens, closes and merges snapshots, grows the store, restarts all of it.
 *
 *   workload.c    from start to end; what the controller does next
 *   operation.c   numbers, marks and locks of operations
 *   worker.c      writes, discards, zeroes, fsyncs
 *   views.c       tables and devices
 *   snapshots.c   snapshots made, given up and deleted
 *   merging.c     a snapshot merged
 *
 * The gate is held shared by each operation of a worker and exclusively by whatever
 * the controller does to a device they use. Ranges are locked, so that the tag of
 * each sector is exact; but in a snapshot made while writers run, whose sectors are
 * read once it has been made to see which of the writes under way it has.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

#define PACE		10	/* operations of workers for one of the controller */
#define TRACKERS	3	/* most at a time */

struct load load = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

void allow_operations(u32 more)
{
	__atomic_fetch_add(&load.nr_allowed, more, __ATOMIC_RELAXED);
}

static u32 step_to_grow(void)
{
	return (run.set.store_most - run.set.store_sectors) / 4 & ~7U;
}

/* At the latest after each eighth: a store that only chance made grow could be full before. */
static bool is_time_to_grow(struct worker *w)
{
	if (!run.set.grows || load.store_sectors + step_to_grow() > run.set.store_most)
		return false;
	return chance(&w->random, 8) ||
	       __atomic_load_n(&load.nr_started, __ATOMIC_RELAXED) >
	       run.set.nr_operations * (load.nr_grown + 1) / 8;
}

static void grow(struct worker *w)
{
	u32 tag;
	int ret;

	load.store_sectors += step_to_grow();
	load.nr_grown++;
	tag = op_begin(w, OP_GROW, ORIGIN_VIEW, 0, load.store_sectors);
	record_grow(load.store_sectors);
	ret = dm_message(load.origin->name, "resize");
	if (ret)
		fail("resize: %s", strerror(-ret));
	op_ack(tag);
}

static void commit(struct worker *w)
{
	u32 tag = op_begin(w, OP_COMMIT, ORIGIN_VIEW, 0, 0);
	int ret = dm_message(load.origin->name, "commit");

	if (ret)
		fail("commit: %s", strerror(-ret));
	op_ack(tag);
}

/*
 * Most of the time there are some, with snapshots and without. A commit takes all marks away, so
 * that the next writes need new ones.
 */
static bool control_trackers(struct worker *w)
{
	if (!run.set.tracks || !chance(&w->random, 50))
		return false;
	if (chance(&w->random, 50))
		commit(w);
	else if (count_trackers() == TRACKERS)
		delete_tracker(w, pick_tracker(w));
	else if (count_snapshots())
		give_up_snapshot(w, pick_snapshot(w, false));
	else
		return false;
	return true;
}

static void control_snapshots(struct worker *w)
{
	const struct settings *set = &run.set;
	u32 nr = count_snapshots();
	struct view *v;

	if (!nr || (nr < set->snapshots && chance(&w->random, 60))) {
		snapshot_create(w, chance(&w->random, 40), set->running && chance(&w->random, 50));
		return;
	}
	v = pick_snapshot(w, false);
	if (set->merges && chance(&w->random, 20))
		merge_snapshot(w, v);
	else if (nr > 1 && !set->drops && chance(&w->random, 45))
		delete_snapshot(w, v);
	else if (!v->open)
		reopen_snapshot(w, v);
	else if (!set->drops)
		close_snapshot(w, v);
}

static void control(struct worker *w)
{
	const struct settings *set = &run.set;

	if (set->drops)
		look_for_dropped(w);
	if (set->stock) {
		if (set->merges && !load.merged_stock &&
		    __atomic_load_n(&load.nr_started, __ATOMIC_RELAXED) > set->nr_operations / 2)
			merge_snapshot(w, &run.views[1]);
		return;
	}
	if (is_time_to_grow(w))
		grow(w);
	else if (set->restarts && chance(&w->random, 8))
		restart_devices(w);
	else if (set->commits && chance(&w->random, 10))
		commit(w);
	else if (!control_trackers(w))
		control_snapshots(w);
}

static void worker_init(struct worker *w, u32 number)
{
	w->number = number;
	w->random = run.set.seed * 1000003 + number;
	w->buf = aligned(MAX_IO_SECTORS * SECTOR_BYTES);
}

static void init_gate(void)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&load.gate, &attr);
}

/* The origin's device first, as one that learns of its store later. */
static void start(struct worker *w)
{
	char table[400];
	struct view *v;
	u32 i;

	run.ops = allocate(MAX_OPS * sizeof(*run.ops));
	run.views = allocate(MAX_VIEWS * sizeof(*run.views));
	run.nr_ops = 2;
	run.ops[1] = (struct op){ .kind = OP_FILL, .count = run.set.origin_sectors };
	load.origin = view_new(0);
	for (i = 0; i < run.set.origin_sectors; i++)
		load.origin->tag[i] = 1;
	load.origin->open = true;
	load.store_sectors = run.set.store_sectors;
	load.block_sectors = run.set.block_bytes / SECTOR_BYTES;
	load.origin_discards = run.set.discards;
	record_start();
	if (run.set.stock) {
		snapshot_create(w, true, false);
		open_origin(true);
		return;
	}
	open_origin(false);
	v = snapshot_create(w, true, false);
	origin_table(table, sizeof(table), true);
	replace_origin_table(table);
	if (run.set.seals)
		seal_origin(w, v);
}

static void finish(struct worker *w)
{
	struct view *v;

	if (run.set.drops)
		look_for_dropped(w);
	if (run.set.seals)
		see_seal();
	for (v = run.views; v < run.views + run.nr_views; v++) {
		if (!v->open || v->gone)
			continue;
		compare_live(w, v);
		close_view(v);
	}
	for (v = run.views; v < run.views + run.nr_views; v++) {
		free(v->tag);
		v->tag = NULL;
	}
}

void workload_run(void)
{
	static struct worker workers[MAX_WORKERS + 1];
	struct worker *controller = &workers[run.set.nr_workers];
	u32 i;

	init_gate();
	for (i = 0; i <= run.set.nr_workers; i++)
		worker_init(&workers[i], i);
	start(controller);
	for (i = 0; i < run.set.nr_workers; i++)
		if (pthread_create(&workers[i].id, NULL, worker_run, &workers[i]))
			fail("no thread");
	while (__atomic_load_n(&load.nr_started, __ATOMIC_RELAXED) < run.set.nr_operations) {
		allow_operations(below(&controller->random, 2 * PACE));
		control(controller);
		usleep(below(&controller->random, 10000));
	}
	allow_operations(run.set.nr_operations);
	for (i = 0; i < run.set.nr_workers; i++)
		pthread_join(workers[i].id, NULL);
	finish(controller);
	record_stop();
	for (i = 0; i <= run.set.nr_workers; i++)
		free(workers[i].buf);
}

// SPDX-License-Identifier: GPL-2.0-only
/* A snapshot is merged, while workers write and other snapshots go. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

#define MERGE_SECONDS	120

static bool merge_is_finished(void)
{
	u64 used, total, metadata;
	char line[400];

	if (dm_status(load.origin->name, line, sizeof(line)) ||
	    sscanf(line, "%" SCNu64 "/%" SCNu64 " %" SCNu64, &used, &total, &metadata) != 3)
		fail("status of the merge: '%s'", line);
	return used == metadata;
}

static void wait_for_merge(void)
{
	int tries;

	for (tries = 0; !merge_is_finished(); tries++) {
		if (tries == MERGE_SECONDS * 100)
			fail("the merge does not end");
		allow_operations(1);
		usleep(10000);
	}
}

static void set_throttle(u32 percent)
{
	int ret = dm_message(load.origin->name, "set throttle %u", percent);

	if (ret)
		fail("set throttle: %s", strerror(-ret));
}

static void merge_begin(struct worker *w, struct view *v)
{
	char table[400];
	u32 tag;

	if (!v->open)
		reopen_snapshot(w, v);
	pthread_rwlock_wrlock(&load.gate);
	worker_fsync(w, v);
	close_view(v);
	v->open = false;
	v->last = allocate(run.set.origin_sectors * sizeof(u32));
	memcpy(v->last, v->tag, run.set.origin_sectors * sizeof(u32));
	if (run.set.throttle)
		set_throttle(run.set.throttle);
	load.merging = v;
	origin_table(table, sizeof(table), true);
	tag = op_begin(w, OP_MERGE, view_index(v), 0, 0);
	set_gone(v, GONE_MERGED, tag, tag);
	replace_origin_table(table);
	op_ack(tag);
	memcpy(load.origin->tag, v->last, run.set.origin_sectors * sizeof(u32));
	pthread_rwlock_unlock(&load.gate);
}

static void merge_end(struct worker *w, struct view *v)
{
	char table[400];
	u32 tag;

	pthread_rwlock_wrlock(&load.gate);
	load.merging = NULL;
	origin_table(table, sizeof(table), true);
	tag = op_begin(w, OP_MERGED, view_index(v), 0, 0);
	set_gone(v, GONE_MERGED, v->gone_begin, tag);
	replace_origin_table(table);
	op_ack(tag);
	if (run.set.throttle)
		set_throttle(100);
	load.merged_stock = run.set.stock;
	compare_live(w, load.origin);
	pthread_rwlock_unlock(&load.gate);
}

/* Meanwhile snapshots are deleted, and all is closed and opened. None is made. */
void merge_snapshot(struct worker *w, struct view *v)
{
	merge_begin(w, v);
	v = pick_snapshot(w, false);
	if (v && chance(&w->random, 40))
		delete_snapshot(w, v);
	v = load.merging;
	if (run.set.restarts && chance(&w->random, 40))
		restart_devices(w);
	wait_for_merge();
	merge_end(w, v);
	if (!run.set.stock)
		delete_id(w, v);
}

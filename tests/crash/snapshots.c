// SPDX-License-Identifier: GPL-2.0-only
/*
 * Snapshots are made, opened, closed, given up and deleted, and found to have been dropped.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

static bool is_tracker(const struct view *v)
{
	return v->track && v->gone && !v->untrack;
}

static bool id_is_taken(u32 id)
{
	const struct view *v;

	if (load.merging && load.merging->id == id)
		return true;
	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		if (v->created && (!v->gone || is_tracker(v)) && v->id == id)
			return true;
	return false;
}

static u32 pick_id(struct worker *w)
{
	u32 id;

	if (run.set.stock)
		return 0;
	do {
		id = chance(&w->random, 15) ? below(&w->random, 65536) : below(&w->random, 10);
	} while (id_is_taken(id));
	return id;
}

struct view *view_new(u32 id)
{
	struct view *v;
	size_t bytes = run.set.origin_sectors * sizeof(u32);

	if (run.nr_views == MAX_VIEWS)
		fail("more than %u snapshots", MAX_VIEWS);
	v = &run.views[run.nr_views];
	v->id = id;
	v->fd = -1;
	v->tag = allocate(bytes);
	snprintf(v->name, sizeof(v->name), "cowcrash-%d-v%u", getpid(), run.nr_views);
	if (run.nr_views) {
		v->before = allocate(bytes);
		v->first = allocate(bytes);
		v->window = allocate((run.set.nr_operations + MAX_WORKERS + 1) * sizeof(u32));
	}
	pthread_mutex_lock(&load.lock);
	run.nr_views++;
	pthread_mutex_unlock(&load.lock);
	return v;
}

/* What the snapshot has of the writes that ran while it was made. */
static void settle_snapshot(struct worker *w, struct view *v)
{
	const struct op *op;
	u32 i, j, tag, sector;

	for (i = 0; i < v->nr_window; i++) {
		op = &run.ops[v->window[i]];
		read_sectors(v, op->sector, op->count, w->buf);
		for (j = 0; j < op->count; j++) {
			sector = op->sector + j;
			tag = sector_tag(w->buf + (size_t)j * SECTOR_BYTES, sector);
			if (tag != v->before[sector] && !in_window(v, sector, tag)) {
				print_op(v->before[sector]);
				print_content(w->buf + (size_t)j * SECTOR_BYTES);
				fail("sector %u of snapshot %u, just made", sector,
				     view_index(v));
			}
			v->first[sector] = tag;
		}
	}
}

static void create_by(struct view *v, bool by_table)
{
	int ret = 0;

	if (by_table)
		open_snapshot(v, !run.set.stock);
	else
		ret = dm_message(load.origin->name, "create %u", v->id);
	if (ret)
		fail("create %u: %s", v->id, strerror(-ret));
}

struct view *snapshot_create(struct worker *w, bool by_table, bool running)
{
	struct view *v = view_new(pick_id(w));
	bool opens = by_table || running || chance(&w->random, 60) || run.set.drops;
	u32 tag;

	if (!running)
		pthread_rwlock_wrlock(&load.gate);
	window_open(v);
	tag = op_begin(w, OP_CREATE, view_index(v), 0, 0);
	create_by(v, by_table);
	op_ack(tag);
	window_close(v);
	v->looked = tag;
	if (!running)
		pthread_rwlock_unlock(&load.gate);
	if (opens && !by_table)
		open_snapshot(v, false);
	if (v->nr_window)
		settle_snapshot(w, v);
	memcpy(v->tag, v->first, run.set.origin_sectors * sizeof(u32));
	pthread_mutex_lock(&load.lock);
	v->created = tag;
	v->open = opens;
	pthread_mutex_unlock(&load.lock);
	return v;
}

struct view *pick_snapshot(struct worker *w, bool closed)
{
	struct view *v, *picked = NULL;
	u32 nr = 0;

	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		if (v->created && !v->gone && (!closed || !v->open) &&
		    !below(&w->random, ++nr))
			picked = v;
	return picked;
}

u32 count_snapshots(void)
{
	const struct view *v;
	u32 nr = 0;

	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		nr += v->created && !v->gone;
	return nr;
}

void set_gone(struct view *v, enum gone how, u32 begin, u32 end)
{
	pthread_mutex_lock(&load.lock);
	v->gone = how;
	v->gone_begin = begin;
	v->gone_end = end;
	pthread_mutex_unlock(&load.lock);
}

void close_snapshot(struct worker *w, struct view *v)
{
	u32 tag;

	pthread_rwlock_wrlock(&load.gate);
	tag = op_begin(w, OP_CLOSE, view_index(v), 0, 0);
	close_view(v);
	v->open = false;
	op_ack(tag);
	pthread_rwlock_unlock(&load.gate);
}

void reopen_snapshot(struct worker *w, struct view *v)
{
	u32 tag = op_begin(w, OP_OPEN, view_index(v), 0, 0);

	open_snapshot(v, false);
	op_ack(tag);
	pthread_mutex_lock(&load.lock);
	v->open = true;
	pthread_mutex_unlock(&load.lock);
}

/* By its id: what is left of one that was merged has to go as well. */
u32 delete_id(struct worker *w, const struct view *v)
{
	u32 tag = op_begin(w, OP_DELETE, view_index(v), 0, 0);
	int ret = dm_message(load.origin->name, "delete %u", v->id);

	if (ret)
		fail("delete %u: %s", v->id, strerror(-ret));
	op_ack(tag);
	return tag;
}

void delete_snapshot(struct worker *w, struct view *v)
{
	u32 tag;

	if (v->open)
		close_snapshot(w, v);
	tag = delete_id(w, v);
	set_gone(v, GONE_DELETED, tag, tag);
}

void give_up_snapshot(struct worker *w, struct view *v)
{
	u32 tag;
	int ret;

	if (v->open)
		close_snapshot(w, v);
	v->last = allocate(run.set.origin_sectors * sizeof(u32));
	memcpy(v->last, v->tag, run.set.origin_sectors * sizeof(u32));
	tag = op_begin(w, OP_TRACK, view_index(v), 0, 0);
	ret = dm_message(load.origin->name, "track %u", v->id);
	if (ret && ret != -ENOSPC)
		fail("track %u: %s", v->id, strerror(-ret));
	op_ack(tag);
	if (ret)
		return;
	v->track = tag;
	set_gone(v, GONE_DELETED, tag, tag);
}

u32 count_trackers(void)
{
	const struct view *v;
	u32 nr = 0;

	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		nr += is_tracker(v);
	return nr;
}

struct view *pick_tracker(struct worker *w)
{
	struct view *v, *picked = NULL;
	u32 nr = 0;

	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		if (is_tracker(v) && !below(&w->random, ++nr))
			picked = v;
	return picked;
}

void delete_tracker(struct worker *w, struct view *v)
{
	v->untrack = delete_id(w, v);
}

/* Which snapshots were dropped to make room? All are open where that may be. */
void look_for_dropped(struct worker *w)
{
	u32 tag = op_begin(w, OP_LOOK, ORIGIN_VIEW, 0, 0);
	struct view *v;

	for (v = run.views + 1; v < run.views + run.nr_views; v++) {
		if (!v->created || v->gone || !v->open)
			continue;
		if (!view_is_lost(v)) {
			v->looked = tag;
			continue;
		}
		set_gone(v, GONE_DROPPED, v->looked, tag);
	}
	op_ack(tag);
	for (v = run.views + 1; v < run.views + run.nr_views; v++) {
		if (v->gone != GONE_DROPPED || !v->open)
			continue;
		close_snapshot(w, v);
		set_gone(v, GONE_DELETED, v->gone_begin, delete_id(w, v));
	}
}

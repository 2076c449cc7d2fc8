// SPDX-License-Identifier: GPL-2.0-only
/*
 * Operations of the workload: their numbers, which are the tags of what they write, their
 * marks in the recording, the ranges they lock, and which of them run while a snapshot is
 * made (its window).
 */
#include <string.h>

#include "workload.h"

u32 view_index(const struct view *v)
{
	return v - run.views;
}

u32 op_begin(struct worker *w, enum op_kind kind, u32 view, u32 sector, u32 count)
{
	struct op *op;
	u32 tag;

	pthread_mutex_lock(&load.lock);
	tag = run.nr_ops++;
	if (tag == MAX_OPS)
		fail("more than %u operations", MAX_OPS);
	op = &run.ops[tag];
	op->kind = kind;
	op->view = view;
	op->sector = sector;
	op->count = count;
	op->begin = NEVER;
	op->ack = NEVER;
	if (view == ORIGIN_VIEW && kind >= OP_WRITE && kind <= OP_ZERO) {
		load.in_flight[w->number] = tag;
		if (load.window)
			load.window->window[load.window->nr_window++] = tag;
	}
	pthread_mutex_unlock(&load.lock);
	record_mark('b', tag);
	return tag;
}

void op_ack(u32 tag)
{
	record_mark('a', tag);
}

/* The change is over; each sector has @tag, or what @tags says. */
void change_end(struct worker *w, struct view *v, const struct op *op, const u32 *tags,
		       u32 tag)
{
	u32 i;

	pthread_mutex_lock(&load.lock);
	for (i = 0; i < op->count; i++)
		v->tag[op->sector + i] = tags ? tags[i] : tag;
	if (v == load.origin)
		load.in_flight[w->number] = 0;
	pthread_mutex_unlock(&load.lock);
}

static bool is_busy(const struct view *v, u32 sector, u32 count)
{
	const struct range *r;

	for (r = v->busy; r <= v->busy + MAX_WORKERS; r++)
		if (r->count && sector < r->sector + r->count && r->sector < sector + count)
			return true;
	return false;
}

void range_lock(struct worker *w, struct view *v, u32 sector, u32 count)
{
	pthread_mutex_lock(&load.lock);
	while (is_busy(v, sector, count))
		pthread_cond_wait(&load.changed, &load.lock);
	v->busy[w->number] = (struct range){ sector, count };
	pthread_mutex_unlock(&load.lock);
}

void range_unlock(struct worker *w, struct view *v)
{
	pthread_mutex_lock(&load.lock);
	v->busy[w->number].count = 0;
	pthread_cond_broadcast(&load.changed);
	pthread_mutex_unlock(&load.lock);
}

void window_open(struct view *v)
{
	u32 i;

	pthread_mutex_lock(&load.lock);
	memcpy(v->before, load.origin->tag, run.set.origin_sectors * sizeof(u32));
	for (i = 0; i <= MAX_WORKERS; i++)
		if (load.in_flight[i])
			v->window[v->nr_window++] = load.in_flight[i];
	load.window = v;
	pthread_mutex_unlock(&load.lock);
}

void window_close(struct view *v)
{
	pthread_mutex_lock(&load.lock);
	load.window = NULL;
	memcpy(v->first, v->before, run.set.origin_sectors * sizeof(u32));
	pthread_mutex_unlock(&load.lock);
}

bool in_window(const struct view *v, u32 sector, u32 tag)
{
	const struct op *op;
	u32 i;

	for (i = 0; i < v->nr_window; i++) {
		op = &run.ops[v->window[i]];
		if (sector - op->sector < op->count &&
		    (v->window[i] == tag || (!tag && op->kind != OP_WRITE)))
			return true;
	}
	return false;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: what an engine's worker does for its origin
 *
 * Between the end of old copies and the start of new ones the worker empties the lists that
 * completions have filled, and publishes what has become durable:
 *
 *   finished   pendings whose data needed no engine: into a commit, or published
 *   meta_work  stores with a record of the log to write, or a commit to go on with: what it made
 *              durable is published
 *   drained    published pendings whose tracked reads have ended: released
 *   unmapped   pendings that the map had no memory for: tried again
 */
#include <linux/module.h>

#include "copy/copy.h"
#include "copy/pending.h"
#include "copy/publish.h"
#include "copy/worker.h"
#include "disk/commit.h"
#include "disk/log.h"
#include "origin/origin.h"

/* The worker is woken after something was put on a list, so it may look without the lock. */
static struct cow_pending *pop_pending(struct cow_origin *o, struct list_head *list)
{
	struct cow_pending *p;

	if (list_empty_careful(list))
		return NULL;
	spin_lock_irq(&o->reads_lock);
	p = list_first_entry_or_null(list, struct cow_pending, node);
	if (p)
		list_del_init(&p->node);
	spin_unlock_irq(&o->reads_lock);
	return p;
}

/* The data is in place: in a persistent store its slots are next. */
static void pending_commit(struct cow_pending *p)
{
	if (p->again) {
		p->again = false;
		cow_pending_copy_again(p);
	} else if (!p->store->meta || p->status || !cow_meta_join(p, NULL)) {
		cow_pending_publish(p);
	}
}

static struct cow_meta *pop_meta(struct cow_origin *o)
{
	struct cow_meta *meta;

	if (list_empty_careful(&o->meta_work))
		return NULL;
	spin_lock_irq(&o->reads_lock);
	meta = cow_meta_pop(o);
	spin_unlock_irq(&o->reads_lock);
	return meta;
}

static struct cow_pending *pop_member(struct list_head *members)
{
	struct cow_pending *p = list_first_entry_or_null(members, struct cow_pending, member);

	if (p)
		list_del_init(&p->member);
	return p;
}

/* What a commit that has ended made durable is published before the next one begins. */
static void meta_go_on(struct cow_meta *meta)
{
	struct cow_pending *p;
	LIST_HEAD(ended);
	LIST_HEAD(retry);

	cow_log_send(meta);
	do {
		if (!cow_meta_collect(meta, &ended, &retry))
			return;
		while ((p = pop_member(&ended)))
			cow_pending_publish(p);
		while ((p = pop_member(&retry)))
			pending_commit(p);
		cond_resched();
	} while (cow_meta_go_on(meta));
}

void cow_copy_work(void *context)
{
	struct cow_origin *o = context;
	struct cow_meta *meta;
	struct cow_pending *p;

	cow_pending_map_again(o);
	while ((p = pop_pending(o, &o->finished)))
		pending_commit(p);
	while ((meta = pop_meta(o)))
		meta_go_on(meta);
	while ((p = pop_pending(o, &o->drained)))
		cow_pending_release(p);
}

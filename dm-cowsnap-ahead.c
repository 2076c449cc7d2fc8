// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: copying ahead of sequential writers
 *
 * Who writes chunk after chunk pays for a seek to the store and back with each. So
 * streams are recognised, and what they will come to is copied in one go:
 *
 *        next           trigger           done
 *   -----+--------------+-----------------+---------------
 *    written, or soon   | copied already, or asked for
 *                       +-- who gets here has the next window copied
 *
 * The window is as long as what the stream has written so far, up to the store's
 * copy_ahead: so a stream costs at most as much for nothing as it was good for. What
 * streams left behind unused is counted; where that is more than a 32nd of all that was
 * copied nothing more is copied ahead, nor when a store has less than an eighth left.
 *
 * origin->lock guards all of it; cow_ahead_due() takes a look without.
 */
#include <linux/module.h>

#include "dm-cowsnap.h"

/* How far behind its end, or ahead of it, a stream that has come so far may be written. */
#define SLACK_SECTORS		2048U

/* Waste that is not held against anybody: 1 MiB. */
#define WASTE_SECTORS		2048U

static unsigned int copy_ahead = 8192;
module_param(copy_ahead, uint, 0644);
MODULE_PARM_DESC(copy_ahead,
		 "KiB that new stores are copied to ahead of sequential writers, at most (0 to 65536; default 8192)");

static bool in_stream(const struct cow_stream *s, sector_t start)
{
	sector_t next = READ_ONCE(s->next);
	sector_t slack = min_t(u64, next - READ_ONCE(s->begin), SLACK_SECTORS);

	return next && start + slack >= next &&
	       start <= max(READ_ONCE(s->done), next);
}

/* What may be copied in front of @s, whatever the stores say. */
static sector_t window(const struct cow_ahead *a, const struct cow_stream *s)
{
	if (READ_ONCE(a->wasted) > WASTE_SECTORS + READ_ONCE(a->copied) / 32)
		return 0;
	return min(READ_ONCE(s->next) - READ_ONCE(s->begin), READ_ONCE(a->most));
}

static struct cow_stream *find_stream(struct cow_ahead *a, sector_t start)
{
	unsigned int i;

	for (i = 0; i < COW_STREAMS; i++)
		if (in_stream(&a->stream[i], start))
			return &a->stream[i];
	return NULL;
}

/* In place of the one that has had no write for longest. */
static void new_stream(struct cow_ahead *a, sector_t start, sector_t end)
{
	struct cow_stream *s = &a->stream[0];
	unsigned int i;

	for (i = 1; i < COW_STREAMS; i++)
		if (a->stream[i].used < s->used)
			s = &a->stream[i];
	if (s->done > s->next)
		a->wasted += s->done - s->next;
	WRITE_ONCE(s->begin, start);
	WRITE_ONCE(s->done, end);
	WRITE_ONCE(s->next, end);
	s->used = ++a->clock;
}

/* Has so much of the window been used up that it is time for the next? */
static bool window_is_short(const struct cow_stream *s, sector_t end, sector_t most)
{
	sector_t done = READ_ONCE(s->done);

	return done <= end || (done - end) * 2 < most;
}

sector_t cow_ahead_note(struct cow_origin *o, sector_t start, sector_t end)
{
	struct cow_ahead *a = &o->ahead;
	struct cow_stream *s;
	sector_t most;

	lockdep_assert_held(&o->lock);
	if (!a->most)
		return end;
	s = find_stream(a, start);
	if (!s) {
		new_stream(a, start, end);
		return end;
	}
	s->used = ++a->clock;
	if (end > s->next)
		WRITE_ONCE(s->next, end);
	most = window(a, s);
	if (!most || !window_is_short(s, end, most))
		return end;
	WRITE_ONCE(s->done, end + most);
	return end + most;
}

bool cow_ahead_due(struct cow_origin *o, sector_t start, sector_t end)
{
	struct cow_ahead *a = &o->ahead;
	struct cow_stream *s;
	sector_t most;

	if (!READ_ONCE(a->most))
		return false;
	s = find_stream(a, start);
	if (!s || end <= READ_ONCE(s->next))
		return false;
	most = window(a, s);
	if (most && window_is_short(s, end, most))
		return true;
	WRITE_ONCE(s->next, end);
	return false;
}

unsigned int cow_ahead_default(void)
{
	return min(READ_ONCE(copy_ahead), COW_AHEAD_MAX);
}

void cow_ahead_limit(struct cow_origin *o)
{
	struct cow_store *store;
	sector_t most = 0;

	lockdep_assert_held(&o->lock);
	list_for_each_entry(store, &o->stores, node)
		most = max(most, cow_store_ahead(store));
	WRITE_ONCE(o->ahead.most, most);
}

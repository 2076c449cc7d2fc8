// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the media hold after a cut.
 *
 * A device with a volatile cache: a write is durable when a flush that was issued after
 * its completion has completed, or, with FUA, when it has completed itself.
 * Each other write that had been issued may be there or not, whatever became of those
 * before it; of one, torn, any set of physical blocks. Never does an old write come
 * back over a durable one that was issued after it had completed.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash.h"

struct image {
	u8 *durable;
	u32 *writer;		/* of each sector: 1 + the request it is from, 0: none */
};

/* One that made it although nothing said it had to. */
struct applied {
	u32 request;
	bool torn;
	u64 blocks;		/* torn: which of the first 64 blocks, and then on as these */
};

enum lie lie;
u32 media_bytes[2];

static struct image images[2];
static u32 *pending;		/* requests that are not durable, in the order of issue */
static u32 nr_pending;
static struct applied *applied;
static u32 nr_applied;

void media_init(void)
{
	const struct settings *set = &run.set;
	u32 i, sectors;

	for (i = 0; i < set->nr_media; i++) {
		sectors = i ? set->store_most : set->origin_sectors;
		if (set->nr_media == 1)
			sectors += set->store_most;
		media_bytes[i] = sectors * SECTOR_BYTES;
		images[i].durable = aligned(media_bytes[i]);
		memset(images[i].durable, 0, media_bytes[i]);
		images[i].writer = allocate(sectors * sizeof(u32));
	}
	fill_sectors(images[0].durable, 0, set->origin_sectors, 1);
	pending = allocate(run.nr_requests * sizeof(*pending));
	applied = allocate(run.nr_requests * sizeof(*applied));
}

static void write_sector(const struct request *r, u8 *image, u32 i)
{
	u8 *to = image + (size_t)(r->sector + i) * SECTOR_BYTES;

	if (r->flags & REQUEST_DISCARD)
		memset(to, 0, SECTOR_BYTES);
	else
		memcpy(to, run.payload + r->payload + (size_t)i * SECTOR_BYTES, SECTOR_BYTES);
}

/* A promise of the device broken on purpose, to see that it is noticed. */
static bool lost(u32 request)
{
	u64 state = run.set.seed ^ (request * 0x2545f4914f6cdd1dULL);

	return lie == LIE_DROP && chance(&state, 3);
}

static void make_durable(u32 request)
{
	const struct request *r = &run.requests[request];
	struct image *image = &images[r->medium];
	u32 i, writer;

	if (lost(request))
		return;
	for (i = 0; i < r->count; i++) {
		writer = image->writer[r->sector + i];
		if (writer && run.requests[writer - 1].completed > r->completed)
			continue;
		write_sector(r, image->durable, i);
		image->writer[r->sector + i] = request + 1;
	}
}

/* Takes them off the list; the order of issue is kept for the others. */
static void make_pending_durable(bool (*is_durable)(const struct request *r, const void *arg),
				 const void *arg)
{
	u32 i, kept = 0;

	for (i = 0; i < nr_pending; i++) {
		if (is_durable(&run.requests[pending[i]], arg))
			make_durable(pending[i]);
		else
			pending[kept++] = pending[i];
	}
	nr_pending = kept;
}

static bool is_flushed(const struct request *r, const void *arg)
{
	const struct request *flush = arg;

	return r->medium == flush->medium && r->completed < flush->issued;
}

static bool is_this(const struct request *r, const void *arg)
{
	return r == arg;
}

void media_event(u32 event)
{
	const struct event *e = &run.events[event];
	const struct request *r = &run.requests[e->index];

	if (e->type == EVENT_ISSUE && r->count)
		pending[nr_pending++] = e->index;
	if (e->type != EVENT_COMPLETE)
		return;
	if (r->flags & REQUEST_FLUSH && lie != LIE_FLUSH)
		make_pending_durable(is_flushed, r);
	if (r->flags & REQUEST_FUA && lie != LIE_FUA)
		make_pending_durable(is_this, r);
}

static bool block_made_it(const struct applied *a, u32 sector)
{
	u32 block = sector / (run.set.block_bytes / SECTOR_BYTES);

	return !a->torn || a->blocks >> (block % 64) & 1;
}

static void apply(const struct applied *a, u8 *map)
{
	const struct request *r = &run.requests[a->request];
	const struct image *image = &images[r->medium];
	u32 i, writer;

	for (i = 0; i < r->count; i++) {
		writer = image->writer[r->sector + i];
		if (writer && r->completed < run.requests[writer - 1].issued)
			continue;
		if (block_made_it(a, i))
			write_sector(r, map, i);
	}
}

static void tear(struct applied *a, u64 *random)
{
	a->torn = true;
	switch (below(random, 3)) {
	case 0:			/* the beginning */
		a->blocks = (2ULL << below(random, 63)) - 1;
		if (chance(random, 50))
			a->blocks &= 0xff;
		break;
	case 1:			/* the end */
		a->blocks = ~((2ULL << below(random, 8)) - 1);
		break;
	default:
		a->blocks = next_random(random);
		break;
	}
}

/* Its data comes after a flush of its own, which covers this one. */
static bool has_flushed(u32 request, u32 other)
{
	const struct request *r = &run.requests[request];

	return r->flags & REQUEST_FLUSH && lie != LIE_FLUSH &&
	       is_flushed(&run.requests[other], r);
}

static bool is_forced(u32 request, const bool *chosen)
{
	u32 i;

	for (i = 0; i < nr_pending; i++)
		if (chosen[i] && has_flushed(pending[i], request))
			return true;
	return false;
}

static void shuffle(struct applied *list, u32 nr, u64 *random)
{
	struct applied swap;
	u32 i, other;

	for (i = 0; i + 1 < nr; i++) {
		other = i + below(random, nr - i);
		swap = list[i];
		list[i] = list[other];
		list[other] = swap;
	}
}

static void choose(u64 *random)
{
	static const u32 percents[] = { 100, 50, 50, 10, 90 };
	u32 percent = percents[below(random, 5)];
	bool tear_all = chance(random, 20);
	bool *chosen = allocate(nr_pending * sizeof(*chosen));
	u32 i, nr_forced;

	for (i = 0; i < nr_pending; i++)
		chosen[i] = chance(random, percent);
	for (i = 0; i < nr_pending; i++)
		if (is_forced(pending[i], chosen))
			applied[nr_applied++] = (struct applied){ .request = pending[i] };
	nr_forced = nr_applied;
	for (i = 0; i < nr_pending; i++)
		if (chosen[i] && !is_forced(pending[i], chosen))
			applied[nr_applied++] = (struct applied){ .request = pending[i] };
	shuffle(applied + nr_forced, nr_applied - nr_forced, random);
	for (i = nr_forced; i < nr_applied; i++)
		if (tear_all || (i + 1 == nr_applied && chance(random, 70)))
			tear(&applied[i], random);
	free(chosen);
}

/* @exact: what is durable and nothing else. */
void media_cut(u8 * const maps[2], u64 *random, bool exact)
{
	u32 i;

	for (i = 0; i < run.set.nr_media; i++)
		memcpy(maps[i], images[i].durable, media_bytes[i]);
	nr_applied = 0;
	if (!exact)
		choose(random);
	for (i = 0; i < nr_applied; i++)
		apply(&applied[i], maps[run.requests[applied[i].request].medium]);
}

void media_print(void)
{
	const struct request *r;
	u32 i;

	printf("# %u writes were not durable; of these the media have, in this order:\n",
	       nr_pending);
	for (i = 0; i < nr_applied; i++) {
		r = &run.requests[applied[i].request];
		printf("#   request %u: medium %u sectors %u+%u%s, events %u-%u",
		       applied[i].request, r->medium, r->sector, r->count,
		       r->flags & REQUEST_DISCARD ? " discard" :
		       r->flags & REQUEST_FUA ? " FUA" : "", r->issued, r->completed);
		if (applied[i].torn)
			printf(", torn, blocks %llx", (unsigned long long)applied[i].blocks);
		printf("\n");
	}
	printf("# and not:\n");
	for (i = 0; i < nr_pending; i++) {
		u32 j;

		for (j = 0; j < nr_applied && applied[j].request != pending[i]; j++)
			;
		r = &run.requests[pending[i]];
		if (j == nr_applied)
			printf("#   request %u: medium %u sectors %u+%u, events %u-%u\n",
			       pending[i], r->medium, r->sector, r->count, r->issued,
			       r->completed);
	}
}

u32 media_in_flight(u32 medium, u32 from, u32 event, u64 *random)
{
	const struct request *r;
	u32 i, nr = 0, found = NEVER;

	for (i = 0; i < nr_pending; i++) {
		r = &run.requests[pending[i]];
		if (r->medium != medium || r->sector < from || r->completed <= event ||
		    r->flags & REQUEST_DISCARD || below(random, ++nr))
			continue;
		found = r->sector + below(random, r->count);
	}
	return found;
}

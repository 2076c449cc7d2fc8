// SPDX-License-Identifier: GPL-2.0-only
/* settle, on an origin and a store that are not in use. */
#include <inttypes.h>
#include <stdio.h>

#include "pair.h"
#include "progress.h"
#include "settle.h"
#include "settle-command.h"
#include "size.h"

const struct option_text settle_options[] = {
	{ "dry-run", 'n', NULL, "say what would be done, write nothing" },
	{ "keep-store", 0, NULL, "the origin was written without its store: what the store has counts" },
	{ "quiet", 'q', NULL, "do not show how far it is" },
	{ NULL },
};

struct request {
	struct pair pair;
	struct settle settle;
	struct progress progress;
	bool quiet;
};

static void show(struct settle *t)
{
	struct request *q = (struct request *)((char *)t - offsetof(struct request, settle));

	progress_show(&q->progress, t->done * t->s->geo.chunk_sectors * 512);
}

static void say_what_is_to_do(const struct request *q)
{
	const struct settle *t = &q->settle;
	uint64_t chunk = t->s->geo.chunk_sectors * 512;
	char size[16];

	printf("%s: %" PRIu64 " chunks (%s) come home from %s; snapshots need copies of %" PRIu64
	       " of them\n", q->pair.origin_path, t->chunks,
	       size_text(t->chunks * chunk, size, sizeof(size)), q->pair.store_path, t->copies);
	fflush(stdout);
}

static int settle(struct request *q)
{
	struct pair *p = &q->pair;
	const char *why;
	int r;

	if (pair_is_damaged(p))
		return cannot(p->store_path, "it is damaged; cowsnap check says how");
	why = settle_hinders(&q->settle);
	if (why)
		return cannot_because(p->origin_path, "not settled with %s: %s", p->store_path, why);
	say_what_is_to_do(q);
	if (!p->write)
		return EXIT_CLEAN;
	progress_begin(&q->progress, "settled", q->settle.chunks * p->s.geo.chunk_sectors * 512, 0,
		       q->quiet);
	r = settle_all(&q->settle);
	progress_end(&q->progress);
	if (q->settle.lost)
		printf("%s: %u snapshots become invalid\n", p->store_path, q->settle.lost);
	if (r)
		return cannot_because(p->origin_path, "not settled to its end: %s; nothing is lost, run it "
				      "again", q->settle.why);
	printf("%s: settled\n", p->origin_path);
	return q->settle.lost ? EXIT_DAMAGE : EXIT_CLEAN;
}

int command_settle(const struct words *w)
{
	struct request q = {
		.pair = { .origin_path = w->word[0], .store_path = w->word[1],
			  .write = !option_given(w, "dry-run") },
		.quiet = option_given(w, "quiet"),
	};
	int status = pair_open(&q.pair);

	if (status)
		return status;
	q.settle = (struct settle){ .s = &q.pair.s, .home = &q.pair.origin.io, .show = show,
				    .keep_store = option_given(w, "keep-store") };
	status = settle(&q);
	pair_close(&q.pair);
	return status;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The learner of disk/gap.c beside a disk that is made up: when the next record comes, and what
 * passes under the head meanwhile. Microseconds.
 */
#include <stdio.h>
#include <stdlib.h>

#include "disk/gap.h"

#define CHUNK_US	33	/* of 4 KiB */
#define TURN_US		8333
#define MOST		128

/* What the host and the disk do. */
struct script {
	u32 pause_us;		/* from the end of a record to when the disk knows of the next */
	u32 jitter_us;		/* at most so much longer */
	u32 missed;		/* one of so many misses its turn whatever the gap; 0: none */
	bool head_leaves;	/* it is anywhere when the next record comes */
	bool no_turns;		/* the write takes as long as the transfer */
};

struct outcome {
	u32 us;			/* of a record, on average */
	u32 skipped;		/* chunks for 100 records */
};

static u32 dice = 1;
static int points, failures;

static u32 random_below(u32 n)
{
	dice = dice * 1664525 + 1013904223;
	return n ? (u32)((uint64_t)dice * n >> 32) : 0;
}

/* The next record stands behind @gap chunks and, in a chunk of its own, seven blocks of eight. */
static u32 take(const struct script *s, u32 gap)
{
	u32 passed = s->pause_us + random_below(s->jitter_us);
	u32 ahead = gap * CHUNK_US + CHUNK_US * 7 / 8;

	if (s->no_turns)
		return passed + 2 * CHUNK_US;
	if (s->head_leaves)
		return random_below(TURN_US) + 2 * CHUNK_US;
	while (ahead < passed)
		ahead += TURN_US;
	if (s->missed && !random_below(s->missed))
		ahead += TURN_US;
	return ahead - passed + 2 * CHUNK_US;
}

static struct outcome records(struct cow_gap *gap, const struct script *s, u32 nr, u32 most)
{
	uint64_t us = 0, skipped = 0;
	u32 i;

	for (i = 0; i < nr; i++) {
		u32 chunks = cow_gap_chunks(gap, most);
		u32 took = take(s, chunks);

		if (chunks > most)
			abort();
		us += took;
		skipped += chunks;
		cow_gap_note(gap, took, most);
	}
	return (struct outcome){ us / nr, skipped * 100 / nr };
}

static void ok(bool is, const char *what, const struct cow_gap *gap, struct outcome o)
{
	points++;
	failures += !is;
	printf("%sok %d - %s\n", is ? "" : "not ", points, what);
	printf("# gap %u; %u us and %u.%02u chunks skipped for a record\n", cow_gap_learned(gap),
	       o.us, o.skipped / 100, o.skipped % 100);
}

static void gap_is_learned(void)
{
	static const struct script stays = { .pause_us = 300, .jitter_us = 60 };
	static const struct script tracks = { .pause_us = 300, .jitter_us = 60, .missed = 30 };
	static const struct script jitters = { .pause_us = 300, .jitter_us = 600 };
	struct cow_gap gap = {};
	struct outcome o = records(&gap, &stays, 400, MOST);

	ok(cow_gap_learned(&gap), "400 records are enough to learn a gap", &gap, o);
	o = records(&gap, &stays, 20000, MOST);
	ok(cow_gap_learned(&gap) >= 10 && cow_gap_learned(&gap) <= 12 && o.us < 400,
	   "the head stays: the gap is as large as what passes", &gap, o);
	gap = (struct cow_gap){};
	records(&gap, &tracks, 400, MOST);
	o = records(&gap, &tracks, 20000, MOST);
	ok(cow_gap_learned(&gap) >= 10 && cow_gap_learned(&gap) <= 16 && o.us < 900,
	   "one in 30 misses its turn all the same: so it is learned", &gap, o);
	gap = (struct cow_gap){};
	records(&gap, &jitters, 400, MOST);
	o = records(&gap, &jitters, 20000, MOST);
	ok(cow_gap_learned(&gap) >= 24 && o.us < 1200,
	   "a host that is late at times: the gap waits for it", &gap, o);
}

static void no_gap_is_learned(void)
{
	static const struct script stays = { .pause_us = 1500 };
	static const struct script leaves = { .head_leaves = true };
	static const struct script none = { .pause_us = 300, .jitter_us = 100, .no_turns = true };
	struct cow_gap gap = {};
	struct outcome o = records(&gap, &none, 50000, MOST);

	ok(!cow_gap_learned(&gap) && !o.skipped, "nothing turns: no gap is even tried", &gap, o);
	gap = (struct cow_gap){};
	o = records(&gap, &leaves, 100000, MOST);
	ok(o.skipped < 100, "the head is anywhere: less than one chunk a record is lost", &gap, o);
	gap = (struct cow_gap){};
	o = records(&gap, &stays, 50000, 16);
	ok(!cow_gap_learned(&gap) && o.skipped < 10,
	   "a zone too small for the gap that would do: none", &gap, o);
	o = records(&gap, &stays, 1000, MOST);
	ok(cow_gap_learned(&gap) >= 48 && cow_gap_learned(&gap) <= 64,
	   "then larger zones: it is learned there", &gap, o);
	gap = (struct cow_gap){};
	o = records(&gap, &stays, 1000, 0);
	ok(!cow_gap_learned(&gap) && !o.skipped, "a zone too small for any: none", &gap, o);
}

static void changes_are_noticed(void)
{
	static const struct script near = { .pause_us = 300, .jitter_us = 60 };
	static const struct script far = { .pause_us = 1500, .jitter_us = 60 };
	static const struct script leaves = { .head_leaves = true };
	struct cow_gap gap = {};
	struct outcome o;

	records(&gap, &near, 20000, MOST);
	records(&gap, &far, 1000, MOST);
	o = records(&gap, &far, 10000, MOST);
	ok(cow_gap_learned(&gap) == 48 && o.us < 500, "a slower host: another gap", &gap, o);
	records(&gap, &near, 2000, MOST);
	o = records(&gap, &near, 20000, MOST);
	ok(cow_gap_learned(&gap) < 48 && o.us < 1000, "a quicker one: a smaller one", &gap, o);
	records(&gap, &leaves, 1000, MOST);
	o = records(&gap, &leaves, 50000, MOST);
	ok(o.skipped < 100, "the head begins to leave: none", &gap, o);
}

/* cowgap [SEED] */
int main(int argc, char **argv)
{
	if (argc > 1)
		dice = strtoul(argv[1], NULL, 0);
	gap_is_learned();
	no_gap_is_learned();
	changes_are_noticed();
	printf("1..%d\n", points);
	return failures != 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/* Where there is no libFuzzer: make stores up, damage them, and show them the target. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "make.h"
#include "mutate.h"
#include "target.h"

#define IMAGE_BYTES	(192 << 10)

/* One store is good for so many cases. */
#define CASES_A_STORE	16

/* And so many others are made with it, to be sealed, and to be settled. */
#define SEALED_A_STORE	8
#define SETTLED_A_STORE	6

static const char usage[] =
	"Usage: fuzz [-s SEED] [-k CASE] [-v] COUNT\n"
	"Show COUNT damaged stores to the tools. The same SEED gives the same stores;\n"
	"-k goes straight to one case, -v says what was done to it.\n";

static u64 seed, current;

static void tell_seed(int number)
{
	char text[120];
	int len = snprintf(text, sizeof(text), "fuzz: to repeat: fuzz -s %llu -k %llu -v 1\n",
			   (unsigned long long)seed, (unsigned long long)current);

	if (write(STDERR_FILENO, text, len) < 0)
		_exit(2);
	signal(number, SIG_DFL);
	raise(number);
}

static void print(const char *text)
{
	printf("  %s\n", text);
}

struct fuzz {
	u8 store[IMAGE_BYTES];
	u8 image[IMAGE_BYTES];
	u8 lost[IMAGE_BYTES / 512];
	size_t bytes;
	struct make_options made;
	u64 of;		/* cases this store is for, all ones: none */
};

/* Stores that have room for what is sealed are not many among the others. */
static void seal_some(u64 group)
{
	struct rng r = { .state = seed ^ group * 0x9e3779b97f4a7c15ULL };
	static u8 store[IMAGE_BYTES];
	struct make_options o;
	size_t bytes, i;

	for (i = 0; i < SEALED_A_STORE; i++) {
		memset(store, 0, sizeof(store));
		bytes = make_random_options(&r, sizeof(store), &o);
		o.origin_sectors += 8 * o.chunk_sectors + COWSNAP_SEAL_SECTORS;
		o.exceptions /= 4;
		o.sealed = false;
		o.redirected = false;
		if (make_store(&o, store, bytes))
			target_sealed(&(struct target_image){ .data = store, .size = bytes },
				      rng_next(&r));
	}
}

/* Small origins, of which all content is compared. They were closed. */
static void settle_some(u64 group)
{
	struct rng r = { .state = seed ^ group * 0xd1342543de82ef95ULL };
	static u8 store[4 * IMAGE_BYTES];
	struct make_options o;
	size_t bytes, i;

	for (i = 0; i < SETTLED_A_STORE; i++) {
		memset(store, 0, sizeof(store));
		bytes = make_random_options(&r, IMAGE_BYTES, &o);
		o.sealed = true;
		o.redirected = true;
		o.unfinished = false;
		o.logged = false;
		/* Many blocks, and many that see each version: what is out of order shows. */
		if (rng_below(&r, 2)) {
			o.block_bytes = 512;
			o.chunk_sectors = 4;
			o.snapshots = 4 + rng_below(&r, 5);
			o.exceptions = 40;
			bytes = sizeof(store);
		}
		o.origin_sectors = COWSNAP_SEAL_SECTORS + o.chunk_sectors +
				   rng_below(&r, 40 * o.chunk_sectors);
		if (make_store(&o, store, bytes))
			target_settled(&(struct target_image){ .data = store, .size = bytes },
				       rng_next(&r));
	}
}

static void new_store(struct fuzz *f, u64 group)
{
	struct rng r = { .state = seed ^ group * 0x2545f4914f6cdd1dULL };

	if (f->of == group)
		return;
	seal_some(group);
	settle_some(group);
	do {
		memset(f->store, 0, sizeof(f->store));
		f->bytes = make_random_options(&r, sizeof(f->store), &f->made);
	} while (!make_store(&f->made, f->store, f->bytes));
	f->of = group;
	target_try(&(struct target_image){ .data = f->store, .size = f->bytes });
}

static void run_case(struct fuzz *f, bool verbose)
{
	struct rng r = { .state = seed + current * 0x9e3779b97f4a7c15ULL };
	struct target_image whole, image;
	size_t bytes;
	u64 n;
	bool disk, unreadable, mild;

	new_store(f, current / CASES_A_STORE);
	memcpy(f->image, f->store, f->bytes);
	bytes = f->bytes;
	disk = rng_next(&r) & 1;
	n = rng_below(&r, 3) ? 1 : rng_below(&r, 6);
	if (verbose)
		printf("case %llu: %zu bytes, blocks of %u, chunks of %u sectors\n",
		       (unsigned long long)current, bytes, f->made.block_bytes,
		       f->made.chunk_sectors);
	/* So that repair has something to write, and snapshots live on: what a cut may spoil. */
	mild = f->made.unfinished && rng_next(&r) & 1;
	disk |= mild;
	while (n--)
		if (mild)
			mutate_one_bit(&r, f->image, bytes, verbose ? print : NULL);
		else
			bytes = (disk ? mutate_as_disk : mutate)(&r, f->image, bytes,
								 verbose ? print : NULL);
	unreadable = !mild && !rng_below(&r, 3);
	memset(f->lost, 0, sizeof(f->lost));
	if (unreadable)
		mutate_lose(&r, f->image, bytes, f->lost, verbose ? print : NULL);
	whole = (struct target_image){ .data = f->store, .size = f->bytes };
	image = (struct target_image){ .data = f->image, .size = bytes,
				       .lost = unreadable ? f->lost : NULL };
	/* Data of a commit that did not end is as well lost as never written. */
	if (disk && !f->made.unfinished)
		target_keeps_views(&whole, &image);
	if (disk)
		target_misses_nothing(&whole, &image);
	if (disk)
		target_interrupted(&whole, &image, rng_next(&r));
	target_try(&image);
}

static int bad_usage(void)
{
	fputs(usage, stderr);
	return 2;
}

int main(int argc, char **argv)
{
	static struct fuzz f = { .of = ~0ULL };
	const struct target_counts *c = &target_counts;
	bool verbose = false;
	u64 end;
	int opt;

	seed = time(NULL);
	while ((opt = getopt(argc, argv, "s:k:v")) != -1) {
		if (opt == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (opt == 'k')
			current = strtoull(optarg, NULL, 0);
		else if (opt == 'v')
			verbose = true;
		else
			return bad_usage();
	}
	if (optind != argc - 1)
		return bad_usage();
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGABRT, tell_seed);
	end = current + strtoull(argv[optind], NULL, 0);
	printf("fuzz: seed %llu\n", (unsigned long long)seed);
	for (; current < end; current++)
		run_case(&f, verbose);
	printf("fuzz: %lu refused, %lu clean, %lu repaired, %lu with data left, %lu not repaired,\n"
	       "fuzz: of which %lu were when told that data of the origin may be lost\n",
	       c->refused, c->clean, c->repaired, c->left, c->failed, c->lost);
	printf("fuzz: %lu origins sealed and opened, %lu times cut off\n", c->seals, c->seal_cuts);
	printf("fuzz: %lu stores settled, %lu times cut off, %lu times a write failed\n", c->settles,
	       c->settle_cuts, c->settle_errors);
	printf("fuzz: %lu of them with unreadable sectors; %lu repairs cut off; %lu comparisons\n",
	       c->unreadable, c->cuts, c->diffs);
	return 0;
}

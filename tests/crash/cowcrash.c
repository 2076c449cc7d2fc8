// SPDX-License-Identifier: GPL-2.0-only
/*
 * cowcrash: record a workload, then cut its power at many places (see crash.h). Run
 * it in a test machine.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "crash.h"

#define SECONDS_A_CUT	300

struct recording run = {
	.set = {
		.origin_sectors = 8192,
		.store_sectors = 16384,
		.block_bytes = 512,
		.chunk_sectors = 8,
		.nr_media = 1,
		.nr_operations = 300,
		.nr_workers = 3,
		.snapshots = 4,
		.discards = 1,
		.running = 1,
		.restarts = 1,
		.commits = 1,
	},
};

static u32 nr_cuts = 100;
static u32 only_cut = NEVER;
static u32 max_failures = 1;
static u32 grow_to;
static const char *save_path, *load_path, *writes_at;
static struct cut *cuts;

static u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ULL + ts.tv_nsec / 1000000;
}

/* ---- where to cut ---- */

static bool is_boundary(const struct event *e)
{
	const struct request *r = &run.requests[e->index];

	return e->type == EVENT_COMPLETE && r->flags & (REQUEST_FLUSH | REQUEST_FUA);
}

static bool is_control(const struct op *op)
{
	return op->begin != NEVER && op->ack != NEVER &&
	       (op->kind == OP_CREATE || op->kind == OP_DELETE || op->kind >= OP_MERGE);
}

static u32 *boundaries, nr_boundaries, *controls, nr_controls;

static void find_places(void)
{
	u32 i;

	boundaries = allocate(run.nr_events * sizeof(u32));
	controls = allocate(run.nr_ops * sizeof(u32));
	for (i = 0; i < run.nr_events; i++)
		if (is_boundary(&run.events[i]))
			boundaries[nr_boundaries++] = i;
	for (i = 1; i < run.nr_ops; i++)
		if (is_control(&run.ops[i]) && run.ops[i].kind != OP_LOOK)
			controls[nr_controls++] = i;
}

/* Anywhere; or while something was done to a whole device; or near a boundary. */
static u32 pick_event(u64 *random)
{
	const struct op *op;
	u32 dice = below(random, 3);

	if (dice == 0 && nr_controls) {
		op = &run.ops[controls[below(random, nr_controls)]];
		return op->begin + below(random, op->ack - op->begin + 3);
	}
	if (dice == 1 && nr_boundaries)
		return boundaries[below(random, nr_boundaries)] + below(random, 7) - 3;
	return below(random, run.nr_events);
}

static int compare_cuts(const void *a, const void *b)
{
	const struct cut *x = a, *y = b;

	if (x->event != y->event)
		return x->event < y->event ? -1 : 1;
	return x->exact < y->exact ? 1 : x->exact > y->exact ? -1 : 0;
}

/*
 * All boundaries, if a third of the cuts suffices for them; the same seed and number
 * of cuts give the same.
 */
static void plan_cuts(void)
{
	u64 random = run.set.seed;
	u32 i, nr_exact = nr_cuts / 3;

	find_places();
	cuts = allocate(nr_cuts * sizeof(*cuts));
	if (nr_exact > nr_boundaries)
		nr_exact = nr_boundaries;
	for (i = 0; i < nr_cuts; i++) {
		cuts[i].exact = i < nr_exact;
		if (cuts[i].exact)
			cuts[i].event = boundaries[(u64)i * nr_boundaries / nr_exact];
		else
			cuts[i].event = pick_event(&random);
		if (cuts[i].event >= run.nr_events)
			cuts[i].event = run.nr_events - 1;
	}
	qsort(cuts, nr_cuts, sizeof(*cuts), compare_cuts);
	for (i = 0; i < nr_cuts; i++)
		cuts[i].number = i;
}

/* ---- the cuts ---- */

static u32 make_cuts(void)
{
	u32 event = 0, failures = 0, i;

	for (i = 0; i < nr_cuts; i++) {
		for (; event <= cuts[i].event; event++) {
			media_event(event);
			verify_event(event);
		}
		if (only_cut != NEVER && i != only_cut)
			continue;
		alarm(SECONDS_A_CUT);
		failures += !verify_cut(&cuts[i]);
		if (failures == max_failures) {
			printf("# the other %u cuts are left out\n", nr_cuts - 1 - i);
			break;
		}
	}
	alarm(0);
	return failures;
}

static void print_recording(void)
{
	u32 counts[NR_OP_KINDS] = { 0 };
	u32 i, nr_dropped = 0;

	for (i = 1; i < run.nr_ops; i++)
		counts[run.ops[i].kind]++;
	for (i = 1; i < run.nr_views; i++)
		nr_dropped += run.views[i].gone == GONE_DELETED &&
			      run.views[i].gone_begin != run.views[i].gone_end;
	printf("# %u events: writes %u, discards %u, zeroes %u, fsyncs %u, creates %u, deletes %u, opens %u, closes %u, dropped %u, merges %u, grows %u, restarts %u, trackers %u; %u bios below, %u of them flushes or FUA\n",
	       run.nr_events, counts[OP_WRITE], counts[OP_DISCARD], counts[OP_ZERO], counts[OP_FSYNC],
	       counts[OP_CREATE], counts[OP_DELETE], counts[OP_OPEN], counts[OP_CLOSE],
	       nr_dropped, counts[OP_MERGE], counts[OP_GROW], counts[OP_RESTART],
	       counts[OP_TRACK], run.nr_requests,
	       nr_boundaries);
}

/* Helps to find the reason of a loss. */
static void print_writes(void)
{
	const struct request *r;
	u32 medium, sector;

	if (sscanf(writes_at, "%u:%u", &medium, &sector) != 2)
		fail("not MEDIUM:SECTOR: %s", writes_at);
	for (r = run.requests; r < run.requests + run.nr_requests; r++) {
		if (r->medium != medium || sector - r->sector >= r->count)
			continue;
		printf("# events %u-%u: sectors %u+%u%s%s\n", r->issued, r->completed, r->sector,
		       r->count, r->flags & REQUEST_FUA ? " FUA" : "",
		       r->flags & REQUEST_DISCARD ? " discard" : "");
		if (!(r->flags & REQUEST_DISCARD))
			print_content(run.payload + r->payload +
				      (size_t)(sector - r->sector) * SECTOR_BYTES);
	}
}

/* ---- the command line ---- */

static void usage(void)
{
	printf("usage: cowcrash [OPTION...]\n"
	       "  --seed N        repeat the choices of an earlier run (printed by each)\n"
	       "  --ops N         operations of all workers together (%u)\n"
	       "  --cuts N        how many cuts (%u); a third are exact, at flushes and FUA\n"
	       "  --cut N         only this one\n"
	       "  --failures N    end after so many (%u)\n"
	       "  --save FILE     keep the recording; --load FILE: cut an earlier one\n"
	       "  --devices N     1: origin and store on one device, 2: on two (1)\n"
	       "  --origin KIB, --store KIB, --grow KIB: sizes; the store grows up to --grow\n"
	       "  --block N       physical block, 512 or 4096\n"
	       "  --chunk N       sectors (8)\n"
	       "  --threads N     workers (3)\n"
	       "  --snapshots N   most at a time (4)\n"
	       "  --merge         merges, too; --throttle PERCENT: so slowly\n"
	       "  --drop          the store may fill: drop the oldest\n"
	       "  --track         snapshots are given up to trackers, too\n"
	       "  --log           the store has a log\n"
	       "  --seal          the origin is sealed, by the tool of --check\n"
	       "  --redirect N    and first writes go to the store, up to N percent of it\n"
	       "  --settle        from where they come home at once\n"
	       "  --zeroes        write-zeroes, too\n"
	       "  --no-fua        the devices have no FUA (nor have they with --zeroes)\n"
	       "  --no-discard, --no-running (no writes while a snapshot is made),\n"
	       "  --no-restart, --no-commit\n"
	       "  --check TOOL    run \"TOOL check STORE\" on what each cut leaves\n"
	       "  --again PERCENT of the cuts: another one while the store is opened, or while a\n"
	       "                  merge goes on (%u)\n"
	       "  --eio PERCENT of the other cuts: a copy that was being written, or one of the\n"
	       "                  superblocks, cannot be read (%u)\n"
	       "  --images DIR    keep what the last cut left of origin and store there\n"
	       "  --writes MEDIUM:SECTOR  only list what was written there\n"
	       "  --stock         dm-snapshot instead, one snapshot\n"
	       "  --lie drop|flush|fua  break the devices' promises; losses have to be found\n",
	       run.set.nr_operations, nr_cuts, max_failures, second_cuts, unreadables);
	exit(2);
}

enum letters {
	O_SEED, O_OPS, O_CUTS, O_CUT, O_FAILURES, O_SAVE, O_LOAD, O_DEVICES, O_ORIGIN, O_STORE,
	O_GROW, O_BLOCK, O_CHUNK, O_THREADS, O_SNAPSHOTS, O_MERGE, O_DROP, O_TRACK, O_LOG, O_SEAL,
	O_REDIRECT, O_SETTLE, O_ZEROES, O_NO_FUA,
	O_NO_DISCARD, O_NO_RUNNING, O_NO_RESTART, O_NO_COMMIT, O_THROTTLE, O_CHECK, O_AGAIN, O_EIO,
	O_IMAGES, O_WRITES, O_STOCK, O_LIE,
};

static const struct option long_options[] = {
	{ "seed", required_argument, NULL, O_SEED },
	{ "ops", required_argument, NULL, O_OPS },
	{ "cuts", required_argument, NULL, O_CUTS },
	{ "cut", required_argument, NULL, O_CUT },
	{ "failures", required_argument, NULL, O_FAILURES },
	{ "save", required_argument, NULL, O_SAVE },
	{ "load", required_argument, NULL, O_LOAD },
	{ "devices", required_argument, NULL, O_DEVICES },
	{ "origin", required_argument, NULL, O_ORIGIN },
	{ "store", required_argument, NULL, O_STORE },
	{ "grow", required_argument, NULL, O_GROW },
	{ "block", required_argument, NULL, O_BLOCK },
	{ "chunk", required_argument, NULL, O_CHUNK },
	{ "threads", required_argument, NULL, O_THREADS },
	{ "snapshots", required_argument, NULL, O_SNAPSHOTS },
	{ "merge", no_argument, NULL, O_MERGE },
	{ "throttle", required_argument, NULL, O_THROTTLE },
	{ "drop", no_argument, NULL, O_DROP },
	{ "track", no_argument, NULL, O_TRACK },
	{ "log", no_argument, NULL, O_LOG },
	{ "seal", no_argument, NULL, O_SEAL },
	{ "redirect", required_argument, NULL, O_REDIRECT },
	{ "settle", no_argument, NULL, O_SETTLE },
	{ "zeroes", no_argument, NULL, O_ZEROES },
	{ "no-fua", no_argument, NULL, O_NO_FUA },
	{ "no-discard", no_argument, NULL, O_NO_DISCARD },
	{ "no-running", no_argument, NULL, O_NO_RUNNING },
	{ "no-restart", no_argument, NULL, O_NO_RESTART },
	{ "no-commit", no_argument, NULL, O_NO_COMMIT },
	{ "check", required_argument, NULL, O_CHECK },
	{ "again", required_argument, NULL, O_AGAIN },
	{ "eio", required_argument, NULL, O_EIO },
	{ "images", required_argument, NULL, O_IMAGES },
	{ "writes", required_argument, NULL, O_WRITES },
	{ "stock", no_argument, NULL, O_STOCK },
	{ "lie", required_argument, NULL, O_LIE },
	{ NULL, 0, NULL, 0 },
};

static enum lie parse_lie(const char *word)
{
	static const char * const words[NR_LIES] = { "none", "drop", "flush", "fua" };
	int i;

	for (i = 0; i < NR_LIES; i++)
		if (!strcmp(word, words[i]))
			return i;
	usage();
	return LIE_NONE;
}

static void set_option(int letter)
{
	struct settings *set = &run.set;
	u64 number = optarg ? strtoull(optarg, NULL, 0) : 0;

	switch (letter) {
	case O_SEED: set->seed = number; break;
	case O_OPS: set->nr_operations = number; break;
	case O_CUTS: nr_cuts = number; break;
	case O_CUT: only_cut = number; break;
	case O_FAILURES: max_failures = number; break;
	case O_SAVE: save_path = optarg; break;
	case O_LOAD: load_path = optarg; break;
	case O_DEVICES: set->nr_media = number; break;
	case O_ORIGIN: set->origin_sectors = number * 2; break;
	case O_STORE: set->store_sectors = number * 2; break;
	case O_GROW: grow_to = number * 2; break;
	case O_BLOCK: set->block_bytes = number; break;
	case O_CHUNK: set->chunk_sectors = number; break;
	case O_THREADS: set->nr_workers = number; break;
	case O_SNAPSHOTS: set->snapshots = number; break;
	case O_MERGE: set->merges = 1; break;
	case O_THROTTLE: set->throttle = number; break;
	case O_DROP: set->drops = 1; break;
	case O_TRACK: set->tracks = 1; break;
	case O_LOG: set->logs = 1; break;
	case O_SEAL: set->seals = 1; break;
	case O_REDIRECT: set->redirects = number; break;
	case O_SETTLE: set->settles = 1; break;
	case O_ZEROES: set->zeroes = 1; break;
	case O_NO_FUA: set->no_fua = 1; break;
	case O_NO_DISCARD: set->discards = 0; break;
	case O_NO_RUNNING: set->running = 0; break;
	case O_NO_RESTART: set->restarts = 0; break;
	case O_NO_COMMIT: set->commits = 0; break;
	case O_CHECK: snprintf(check_tool, sizeof(check_tool), "%s", optarg); break;
	case O_AGAIN: second_cuts = number; break;
	case O_EIO: unreadables = number; break;
	case O_IMAGES: images_directory = optarg; break;
	case O_WRITES: writes_at = optarg; break;
	case O_STOCK: set->stock = 1; break;
	case O_LIE: lie = parse_lie(optarg); break;
	default: usage();
	}
}

static void parse_options(int argc, char **argv)
{
	struct settings *set = &run.set;
	int letter;

	set->seed = (now_ms() << 16) ^ (u64)time(NULL) ^ getpid();
	while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		set_option(letter);
	set->grows = grow_to > set->store_sectors;
	set->store_most = set->grows ? grow_to : set->store_sectors;
	if (optind != argc || set->nr_media < 1 || set->nr_media > 2 || !nr_cuts ||
	    set->nr_workers < 1 || set->nr_workers > MAX_WORKERS ||
	    set->origin_sectors < MAX_IO_SECTORS ||
	    (set->block_bytes != 512 && set->block_bytes != 4096))
		usage();
}

/* The last line. tests/functional/power-cut.t adds up what it says of cuts. */
static void print_result(u32 failures, u64 recorded_ms, u64 cut_ms)
{
	printf("# seed %" PRIu64 ": %u cuts, %u failed; %" PRIu64 " second cuts; %" PRIu64
	       " cuts of a merge that went on, %" PRIu64 " stores checked, %" PRIu64
	       " snapshots and %" PRIu64 " trackers compared with diff, %" PRIu64
	       " times no store yet, %" PRIu64 " with a bad sector, %" PRIu64
	       " of them a superblock; recorded in %" PRIu64 " ms, cut in %" PRIu64 " ms\n",
	       run.set.seed, nr_cuts, failures, nr_second, nr_merge_cuts, nr_checked, nr_compared,
	       nr_trackers, nr_unborn, nr_unreadable, nr_bad_supers, recorded_ms, cut_ms);
}

int main(int argc, char **argv)
{
	u64 start = now_ms(), recorded;
	u32 failures;

	parse_options(argc, argv);
	/* For the programs that are started; the rest of the environment is theirs as it is. */
	setenv("LC_ALL", "C", 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (load_path)
		recording_load(load_path);
	printf("# seed %" PRIu64 "\n", run.set.seed);
	if (!load_path)
		workload_run();
	recorded = now_ms();
	if (save_path)
		recording_save(save_path);
	if (writes_at) {
		print_writes();
		return 0;
	}
	media_init();
	verify_init();
	again_init();
	plan_cuts();
	print_recording();
	failures = make_cuts();
	verify_exit();
	again_exit();
	print_result(failures, recorded - start, now_ms() - recorded);
	return failures ? 1 : 0;
}

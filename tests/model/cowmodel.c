// SPDX-License-Identifier: GPL-2.0-only
/*
 * cowmodel: random parallel operations on an origin and its snapshots, checked
 * against a model in memory (see model.h). Run it in a test machine, on
 * devices that hold nothing: it writes all over them.
 *
 * Workers write, read, zero, discard and flush. The controller makes, removes,
 * reloads, suspends and resumes snapshots and the origin, now with the workers
 * at a stop, now in the middle of their I/O. Each snapshot is compared whole
 * when it is removed, and everything at the end.
 *
 * With --ids all snapshots are ids of one persistent store. Then they are deleted as
 * well, devices come and go without their snapshots, everything is closed and opened
 * again, and now and then a snapshot is merged into the origin with the workers at it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

struct options opt = {
	.ops = 4000,
	.threads = 4,
	.discard = true,
};

struct view views[MAX_STORES + 1];
int nr_views;
u64 device_sectors;
u32 block_sectors;
u64 nr_counted[NR_OP_KINDS];

static u64 nr_snapshots_made;
static u64 nr_snapshots_running;	/* of these, made while writers ran */
static u64 nr_snapshots_overflowed;
static u64 nr_deleted, nr_reopened, nr_merged;
static u64 nr_started;			/* operations given out to workers */
static u64 deadline_ns;
static bool stop;

/* ---- random numbers: one state a thread, so a seed says each thread's sequence ---- */

struct worker {
	int thread;
	u64 random;
	u64 stream_sector;		/* where its sequential writer stands */
	u8 *buf;
	pthread_t id;
};

static u64 next_random(struct worker *w)
{
	u64 z = (w->random += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static u64 below(struct worker *w, u64 limit)
{
	return next_random(w) % limit;
}

static bool chance(struct worker *w, unsigned int percent)
{
	return below(w, 100) < percent;
}

static void worker_init(struct worker *w, int thread)
{
	w->thread = thread;
	w->random = opt.seed * 1000003 + thread;
	w->stream_sector = below(w, device_sectors / block_sectors) * block_sectors;
	if (posix_memalign((void **)&w->buf, 4096, MAX_IO_SECTORS * SECTOR_BYTES))
		fail("no memory for a buffer");
}

/* ---- the gate: the controller stops the workers between two operations ---- */

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static int gate_inside;
static bool gate_closed;

static void gate_enter(void)
{
	pthread_mutex_lock(&gate_lock);
	while (gate_closed)
		pthread_cond_wait(&gate_changed, &gate_lock);
	gate_inside++;
	pthread_mutex_unlock(&gate_lock);
}

static void gate_leave(void)
{
	pthread_mutex_lock(&gate_lock);
	gate_inside--;
	pthread_cond_broadcast(&gate_changed);
	pthread_mutex_unlock(&gate_lock);
}

static void gate_close(void)
{
	pthread_mutex_lock(&gate_lock);
	gate_closed = true;
	while (gate_inside)
		pthread_cond_wait(&gate_changed, &gate_lock);
	pthread_mutex_unlock(&gate_lock);
}

static void gate_open(void)
{
	pthread_mutex_lock(&gate_lock);
	gate_closed = false;
	pthread_cond_broadcast(&gate_changed);
	pthread_mutex_unlock(&gate_lock);
}

/* ---- workers ---- */

static u32 pick_count(struct worker *w)
{
	static const u32 limits[] = { 1, 16, 16, 64, 64, 256, 1024, MAX_IO_SECTORS };
	u32 limit = limits[below(w, sizeof(limits) / sizeof(limits[0]))];
	u32 blocks = limit / block_sectors;

	return (1 + below(w, blocks ? blocks : 1)) * block_sectors;
}

/* Most of the work meets in one place, some at the end of the device. */
static u64 pick_sector(struct worker *w, u32 count)
{
	u64 room = (device_sectors - count) / block_sectors + 1;
	u64 sector;

	if (chance(w, 5))
		return device_sectors - count;
	if (chance(w, 20) && w->stream_sector + count <= device_sectors) {
		sector = w->stream_sector;
		w->stream_sector += count;
		return sector;
	}
	if (chance(w, 50) && room > 8)
		room /= 8;
	sector = below(w, room) * block_sectors;
	return chance(w, 30) ? sector & ~127ULL : sector;
}

static struct view *pick_view(struct worker *w)
{
	struct view *v = &views[ORIGIN_VIEW];

	if (chance(w, 45))
		v = &views[below(w, nr_views)];
	return view_get(v) ? v : NULL;
}

static void do_operation(struct worker *w, struct view *v)
{
	u32 count = pick_count(w);
	u64 sector = pick_sector(w, count);
	unsigned int dice = below(w, 100);
	unsigned int writes = v->index == ORIGIN_VIEW ? 60 : 30;

	if (dice < writes)
		view_write(v, w->thread, sector, count, w->buf);
	else if (dice < writes + 5)
		view_zeroout(v, w->thread, sector, count, w->buf);
	else if (dice < writes + 9 && v->discards)
		view_discard(v, w->thread, sector, count, w->buf);
	else if (dice < writes + 12)
		view_fsync(v, w->thread);
	else
		view_read(v, w->thread, sector, count, w->buf);
}

static bool take_turn(void)
{
	if (__atomic_load_n(&stop, __ATOMIC_RELAXED))
		return false;
	if (deadline_ns && now_ns() > deadline_ns)
		return false;
	return __atomic_fetch_add(&nr_started, 1, __ATOMIC_RELAXED) < opt.ops;
}

static void *worker_run(void *data)
{
	struct worker *w = data;
	struct view *v;

	while (take_turn()) {
		gate_enter();
		v = pick_view(w);
		if (v) {
			do_operation(w, v);
			view_put(v);
		}
		gate_leave();
	}
	return NULL;
}

/* ---- the controller ---- */

static struct view *origin = &views[ORIGIN_VIEW];

static u32 pick_suspend_flags(struct worker *w)
{
	static const u32 flags[] = { 0, DM_NOFLUSH_FLAG, DM_SKIP_LOCKFS_FLAG };

	return flags[below(w, 3)];
}

static void set_snapshot_table(struct worker *w, struct view *s, bool create, bool discards)
{
	int words = 2 * opt.ids + (opt.ids && create) + discards;
	const char *letters = opt.ids ? "P" : "N";
	char id[32] = "", count[16] = "";

	s->discards = discards;
	if (opt.ids)
		snprintf(id, sizeof(id), " id %d%s", s->index, create ? " create" : "");
	if (words)
		snprintf(count, sizeof(count), " %d", words);
	snprintf(s->table, sizeof(s->table), "0 %" PRIu64 " %s %s %s %s%s %u%s%s%s",
		 device_sectors, opt.stock ? "snapshot" : "cowsnap", opt.origin, s->store,
		 letters, chance(w, 30) && !opt.stock ? "O" : "", s->chunk_sectors, count, id,
		 discards ? " discard_zeroes_cow" : "");
}

static bool pick_discards(struct worker *w)
{
	return !opt.stock && opt.discard && chance(w, 50);
}

/* As LVM does it (the origin suspended meanwhile), or without that. */
static void make_snapshot(struct worker *w, struct view *s, bool running)
{
	bool suspended = opt.always_suspend || chance(w, 50);

	set_snapshot_table(w, s, true, pick_discards(w));
	note_control(s->index, running ? "create, running" : "create, stopped");
	if (suspended && views[ORIGIN_VIEW].state == VIEW_LIVE)
		dm_suspend(origin, 0);
	else
		suspended = false;
	dm_create(s);
	if (suspended)
		dm_resume(origin);
	/* What is loaded later must not make it again. */
	if (opt.ids)
		set_snapshot_table(w, s, false, s->discards);
	s->exists = true;
	nr_snapshots_made++;
	note_control(s->index, "created");
}

static void create_stopped(struct worker *w, struct view *s)
{
	gate_close();
	window_open(s, opt.threads);
	make_snapshot(w, s, false);
	window_close(s);
	view_open(s);
	gate_open();
}

static void create_running(struct worker *w, struct view *s)
{
	window_open(s, opt.threads);
	make_snapshot(w, s, true);
	window_close(s);
	view_open(s);
	nr_snapshots_running++;
}

static void create_snapshot(struct worker *w, struct view *s)
{
	if (chance(w, 50))
		create_stopped(w, s);
	else
		create_running(w, s);
}

static void check_status(struct view *s)
{
	char status[256];

	dm_status(s, status, sizeof(status));
	if (!strstr(status, "Invalid") && !strstr(status, "Overflow"))
		return;
	if (!s->may_overflow)
		fail("%s: status '%s', which nothing explains, seed %" PRIu64,
		     s->name, status, opt.seed);
	s->state = VIEW_INVALID;
	nr_snapshots_overflowed++;
}

static void delete_id(struct view *s)
{
	char message[32];

	snprintf(message, sizeof(message), "delete %d", s->index);
	note_control(s->index, "delete");
	dm_message(origin, message);
	s->exists = false;
	nr_deleted++;
}

/* Its device goes; of a persistent one the id stays, unless it is to go as well. */
static void remove_snapshot(struct worker *w, struct view *s, bool forget)
{
	check_status(s);
	if (s->state == VIEW_LIVE)
		view_compare(s, w->thread, w->buf);
	forget |= s->state == VIEW_INVALID;
	view_drain(s, VIEW_ABSENT);
	view_close(s);
	note_control(s->index, "remove");
	dm_remove(s);
	note_control(s->index, "removed");
	if (opt.ids && forget)
		delete_id(s);
	else if (!opt.ids)
		s->exists = false;
}

/* A device for an id that is in the store. */
static void attach_snapshot(struct worker *w, struct view *s)
{
	note_control(s->index, "attach");
	set_snapshot_table(w, s, false, pick_discards(w));
	dm_create(s);
	view_open(s);
}

static void reload_view(struct worker *w, struct view *v)
{
	note_control(v->index, "reload");
	dm_reload(v);
	if (chance(w, 50))
		dm_suspend(v, pick_suspend_flags(w));
	dm_resume(v);
	note_control(v->index, "reloaded");
}

static void suspend_view(struct worker *w, struct view *v)
{
	note_control(v->index, "suspend");
	dm_suspend(v, pick_suspend_flags(w));
	usleep(below(w, 20000));
	dm_resume(v);
	note_control(v->index, "resumed");
}

/* The origin device goes away and comes back; its snapshots stay. */
static void remake_origin(void)
{
	gate_close();
	view_close(origin);
	note_control(ORIGIN_VIEW, "remove");
	dm_remove(origin);
	dm_create(origin);
	note_control(ORIGIN_VIEW, "created");
	view_open(origin);
	gate_open();
}

/* Everything goes, and is read from the disk again. */
static void reopen_all(struct worker *w)
{
	bool had[MAX_STORES + 1] = { false };
	int i;

	gate_close();
	for (i = 1; i < nr_views; i++) {
		had[i] = views[i].state == VIEW_LIVE;
		if (views[i].state != VIEW_ABSENT)
			remove_snapshot(w, &views[i], false);
	}
	view_close(origin);
	dm_remove(origin);
	note_control(ORIGIN_VIEW, "all closed");
	dm_create(origin);
	view_open(origin);
	for (i = 1; i < nr_views; i++)
		if (had[i] && views[i].exists)
			attach_snapshot(w, &views[i]);
	note_control(ORIGIN_VIEW, "all opened");
	gate_open();
	nr_reopened++;
}

static bool merge_is_done(void)
{
	unsigned long long used, total, meta;
	char status[512];

	dm_status(origin, status, sizeof(status));
	if (strstr(status, "Merge failed"))
		fail("%s: merge failed, seed %" PRIu64, origin->name, opt.seed);
	return sscanf(status, "%llu/%llu %llu", &used, &total, &meta) == 3 && used == meta;
}

/* The origin becomes what the snapshot is; the workers write to it meanwhile. */
static void merge_snapshot(struct worker *w, struct view *s)
{
	char table[sizeof(origin->table)];
	bool again = chance(w, 30);

	memcpy(table, origin->table, sizeof(table));
	gate_close();
	view_compare(s, w->thread, w->buf);
	check_status(s);
	if (s->state != VIEW_LIVE) {
		gate_open();
		return;
	}
	remove_snapshot(w, s, false);
	memcpy(origin->tag, s->tag, device_sectors * sizeof(*s->tag));
	snprintf(origin->table, sizeof(origin->table),
		 "0 %" PRIu64 " cowsnap-merge %s %s P %u 2 id %d", device_sectors,
		 opt.origin, s->store, s->chunk_sectors, s->index);
	note_control(s->index, "merge");
	dm_reload(origin);
	dm_suspend(origin, 0);
	dm_resume(origin);
	gate_open();
	while (!merge_is_done()) {
		usleep(below(w, 20000));
		if (again && chance(w, 20)) {
			again = false;
			note_control(ORIGIN_VIEW, "reload while merging");
			dm_reload(origin);
			dm_suspend(origin, pick_suspend_flags(w));
			dm_resume(origin);
		}
	}
	note_control(s->index, "merged");
	memcpy(origin->table, table, sizeof(table));
	dm_reload(origin);
	dm_suspend(origin, pick_suspend_flags(w));
	dm_resume(origin);
	delete_id(s);
	nr_merged++;
}

static void control_snapshot(struct worker *w, struct view *s)
{
	if (s->state == VIEW_ABSENT)
		create_snapshot(w, s);
	else if (s->state == VIEW_INVALID || chance(w, 40))
		remove_snapshot(w, s, true);
	else if (chance(w, 50))
		reload_view(w, s);
	else
		suspend_view(w, s);
}

static void control_ids(struct worker *w, struct view *s)
{
	if (chance(w, 12))
		reopen_all(w);
	else if (s->state == VIEW_ABSENT && s->exists)
		attach_snapshot(w, s);
	/* A merge for which the store has no room fails, and so do writes beside it. */
	else if (s->state == VIEW_LIVE && !s->may_overflow && chance(w, 12))
		merge_snapshot(w, s);
	else if (s->state == VIEW_LIVE && chance(w, 30))
		remove_snapshot(w, s, false);
	else
		control_snapshot(w, s);
}

static void control_origin(struct worker *w)
{
	if (chance(w, 40))
		suspend_view(w, origin);
	else if (chance(w, 60))
		reload_view(w, origin);
	else
		remake_origin();
}

static bool work_is_left(void)
{
	return (!deadline_ns || now_ns() < deadline_ns) &&
	       __atomic_load_n(&nr_started, __ATOMIC_RELAXED) < opt.ops;
}

static void control(struct worker *w)
{
	while (work_is_left()) {
		if (chance(w, 20))
			control_origin(w);
		else if (opt.ids)
			control_ids(w, &views[1 + below(w, opt.nr_stores)]);
		else
			control_snapshot(w, &views[1 + below(w, opt.nr_stores)]);
		usleep(below(w, 50000));
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
}

/* ---- the watchdog: says what hangs, since what hangs cannot ---- */

#define WATCHDOG_SECONDS	180

static void *watchdog_run(void *data)
{
	u64 used, seen = 0, tag;

	(void)data;
	for (;;) {
		sleep(WATCHDOG_SECONDS);
		used = history_used();
		if (used == seen)
			break;
		seen = used;
	}
	fprintf(stderr, "# HANG: no operation began in %d s; unfinished ones:\n",
		WATCHDOG_SECONDS);
	for (tag = 1; tag < used; tag++)
		report_unfinished(tag);
	_exit(3);
}

static void start_watchdog(void)
{
	pthread_t id;

	if (pthread_create(&id, NULL, watchdog_run, NULL))
		fail("no thread for the watchdog");
	pthread_detach(id);
}

/* ---- from start to end ---- */

static void fill_origin(struct worker *w)
{
	int fd = open(opt.origin, O_RDWR | O_DIRECT | O_CLOEXEC);
	u64 sector, tag, i;
	u32 count;

	if (fd < 0)
		fail("open %s: %s", opt.origin, strerror(errno));
	for (sector = 0; sector < device_sectors; sector += count) {
		count = device_sectors - sector < 2048 ? device_sectors - sector : 2048;
		tag = history_add(OP_FILL, ORIGIN_VIEW, w->thread, sector, count);
		fill_sectors(w->buf, sector, count, tag);
		if (pwrite(fd, w->buf, (size_t)count * SECTOR_BYTES, sector * SECTOR_BYTES) < 0)
			fail("filling %s: %s", opt.origin, strerror(errno));
		for (i = 0; i < count; i++)
			origin->tag[sector + i] = tag;
		history_end(tag);
	}
	close(fd);
}

/* The first snapshot comes before the origin device, or after it. */
static void create_first(struct worker *w)
{
	/* A new store cannot be named by an origin before a snapshot is made in it. */
	bool snapshot_first = chance(w, 50) || opt.ids;
	char store[96] = "";

	if (opt.ids)
		snprintf(store, sizeof(store), " 2 store %s", views[1].store);
	snprintf(origin->table, sizeof(origin->table), "0 %" PRIu64 " %s %s%s",
		 device_sectors, opt.stock ? "snapshot-origin" : "cowsnap-origin", opt.origin,
		 store);
	origin->discards = opt.discard && !opt.stock;
	if (snapshot_first)
		create_stopped(w, &views[1]);
	note_control(ORIGIN_VIEW, "create");
	dm_create(origin);
	view_open(origin);
	if (!snapshot_first)
		create_stopped(w, &views[1]);
}

static void measure_origin(void)
{
	int fd = open(opt.origin, O_RDONLY | O_CLOEXEC);
	u64 bytes;
	int block_bytes;

	if (fd < 0 || ioctl(fd, BLKGETSIZE64, &bytes) || ioctl(fd, BLKSSZGET, &block_bytes))
		fail("%s: %s", opt.origin, strerror(errno));
	close(fd);
	device_sectors = bytes / SECTOR_BYTES;
	block_sectors = block_bytes / SECTOR_BYTES;
	if (device_sectors < 2 * MAX_IO_SECTORS)
		fail("%s is too small: %" PRIu64 " sectors", opt.origin, device_sectors);
}

static void init_views(void)
{
	char name[48];
	int i;

	nr_views = 1 + opt.nr_stores;
	snprintf(name, sizeof(name), "cowmodel-%d-origin", getpid());
	view_init(origin, ORIGIN_VIEW, name);
	for (i = 1; i < nr_views; i++) {
		snprintf(name, sizeof(name), "cowmodel-%d-snap%d", getpid(), i);
		view_init(&views[i], i, name);
	}
}

static void finish(struct worker *w)
{
	int i;

	view_compare(origin, w->thread, w->buf);
	if (opt.ids)
		reopen_all(w);
	for (i = 1; i < nr_views; i++) {
		if (views[i].state == VIEW_ABSENT && views[i].exists)
			attach_snapshot(w, &views[i]);
		if (views[i].state != VIEW_ABSENT)
			remove_snapshot(w, &views[i], true);
	}
	view_drain(origin, VIEW_ABSENT);
	view_close(origin);
	dm_remove(origin);
}

static void print_counts(void)
{
	printf("# seed %" PRIu64 ": writes %" PRIu64 ", reads %" PRIu64 ", zero-outs %" PRIu64
	       ", discards %" PRIu64 ", fsyncs %" PRIu64 "; snapshots made %" PRIu64
	       " (%" PRIu64 " with writers running), overflowed %" PRIu64 "; no difference\n",
	       opt.seed, nr_counted[OP_WRITE], nr_counted[OP_READ], nr_counted[OP_ZEROOUT],
	       nr_counted[OP_DISCARD], nr_counted[OP_FSYNC], nr_snapshots_made,
	       nr_snapshots_running, nr_snapshots_overflowed);
	if (opt.ids)
		printf("# deleted %" PRIu64 ", all closed and opened %" PRIu64 ", merged %" PRIu64
		       "\n", nr_deleted, nr_reopened, nr_merged);
}

static void run_all(void)
{
	static struct worker workers[MAX_THREADS + 1];
	struct worker *controller = &workers[opt.threads];
	int i;

	for (i = 0; i <= opt.threads; i++)
		worker_init(&workers[i], i);
	fill_origin(controller);
	create_first(controller);
	if (opt.time_seconds)
		deadline_ns = now_ns() + opt.time_seconds * 1000000000ULL;
	for (i = 0; i < opt.threads; i++)
		if (pthread_create(&workers[i].id, NULL, worker_run, &workers[i]))
			fail("no thread");
	control(controller);
	for (i = 0; i < opt.threads; i++)
		pthread_join(workers[i].id, NULL);
	finish(controller);
}

/* ---- the command line ---- */

static void usage(void)
{
	fprintf(stderr,
		"usage: cowmodel --origin DEV --store DEV[:CHUNK_SECTORS[:small]] ...\n"
		"  --seed N     repeat the choices of an earlier run (printed by each)\n"
		"  --ops N      operations of all workers together (%" PRIu64 ")\n"
		"  --time N     end after N seconds even if operations are left\n"
		"  --threads N  workers (%d)\n"
		"  --ids N      N snapshots in the one store given, which is persistent\n"
		"  --chunk N    chunk size in sectors of stores that name none (8)\n"
		"  --no-discard leave discards out\n"
		"  --suspend    suspend the origin around each creation\n"
		"  --stock      run on dm-snapshot instead\n"
		"A store marked small may overflow; its snapshot is then dropped.\n",
		opt.ops, opt.threads);
	exit(2);
}

static void add_store(char *arg)
{
	struct view *s = &views[1 + opt.nr_stores];
	char *field;

	if (opt.nr_stores == MAX_STORES)
		fail("more than %d stores", MAX_STORES);
	opt.nr_stores++;
	s->store = strsep(&arg, ":");
	field = strsep(&arg, ":");
	s->chunk_sectors = field && *field ? strtoul(field, NULL, 0) : 0;
	field = strsep(&arg, ":");
	s->may_overflow = field && !strcmp(field, "small");
}

/* The store given last, for @nr snapshots. */
static void share_store(int nr)
{
	int i;

	if (opt.nr_stores != 1 || nr < 1 || nr > MAX_STORES)
		fail("--ids: after one --store, and between 1 and %d", MAX_STORES);
	for (i = 2; i <= nr; i++) {
		views[i].store = views[1].store;
		views[i].chunk_sectors = views[1].chunk_sectors;
		views[i].may_overflow = views[1].may_overflow;
	}
	opt.nr_stores = nr;
	opt.ids = true;
}

static void set_chunks(u32 chunk_sectors)
{
	int i;

	for (i = 1; i <= opt.nr_stores; i++)
		if (!views[i].chunk_sectors)
			views[i].chunk_sectors = chunk_sectors;
}

static const struct option long_options[] = {
	{ "origin", required_argument, NULL, 'o' },
	{ "store", required_argument, NULL, 's' },
	{ "seed", required_argument, NULL, 'r' },
	{ "ops", required_argument, NULL, 'n' },
	{ "time", required_argument, NULL, 't' },
	{ "threads", required_argument, NULL, 'j' },
	{ "chunk", required_argument, NULL, 'c' },
	{ "ids", required_argument, NULL, 'i' },
	{ "no-discard", no_argument, NULL, 'D' },
	{ "suspend", no_argument, NULL, 'S' },
	{ "stock", no_argument, NULL, 'K' },
	{ NULL, 0, NULL, 0 },
};

static void set_option(int letter, u32 *chunk_sectors)
{
	switch (letter) {
	case 'o': opt.origin = optarg; break;
	case 's': add_store(optarg); break;
	case 'r': opt.seed = strtoull(optarg, NULL, 0); break;
	case 'n': opt.ops = strtoull(optarg, NULL, 0); break;
	case 't': opt.time_seconds = strtoull(optarg, NULL, 0); break;
	case 'j': opt.threads = atoi(optarg); break;
	case 'c': *chunk_sectors = strtoul(optarg, NULL, 0); break;
	case 'i': share_store(atoi(optarg)); break;
	case 'D': opt.discard = false; break;
	case 'S': opt.always_suspend = true; break;
	case 'K': opt.stock = true; break;
	default: usage();
	}
}

static void parse_options(int argc, char **argv)
{
	u32 chunk_sectors = 8;
	int letter;

	opt.seed = now_ns() ^ ((u64)getpid() << 40);
	while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		set_option(letter, &chunk_sectors);
	if (!opt.origin || !opt.nr_stores || optind != argc ||
	    opt.threads < 1 || opt.threads > MAX_THREADS)
		usage();
	set_chunks(chunk_sectors);
}

int main(int argc, char **argv)
{
	parse_options(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("# seed %" PRIu64 "\n", opt.seed);
	measure_origin();
	/* fills, controls (few a second) and reads of whole devices have lines too */
	history_init(opt.ops * 4 + 1000000);
	init_views();
	start_watchdog();
	run_all();
	print_counts();
	return 0;
}

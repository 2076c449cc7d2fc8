// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the devices must hold after a cut.
 *
 * A sector of the origin or of a snapshot holds the last write to it that was durable
 * (it was acknowledged before an acknowledged fsync began, or was itself O_DSYNC), or
 * any write begun later. A snapshot that had been made holds what it held then, but
 * for what was written to it. One whose making had begun may be there; then each of
 * its sectors is as before, or from a write that ran meanwhile.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash.h"
#include "dm-cowsnap-format.h"

#define READ_SECTORS	2048
#define AFTER_TAG	MAX_OPS		/* of what is written after the cut */
#define MERGE_TRIES	12000
#define MERGE_USECS	20000		/* most until a merge that goes on is cut */
#define EVENTS_SHOWN	24

/* What may be found in a view at the present event. */
struct state {
	u32 *durable;		/* tags */
	u32 floor;		/* of the view's own writes, only those after this count */
	u32 *unsettled;		/* writes that no fsync has covered */
	u32 nr_unsettled;
	u32 *discards;		/* and other zeroes */
	u32 nr_discards;
	/* of the cut */
	u32 *found;		/* tags, NULL: not looked at */
	bool asked;		/* cowsnap diff has been, and */
	bool *listed;		/* these sectors may have changed, it said */
	char name[40];
	char path[40];
	bool active;
};

u32 second_cuts, unreadables;
char check_tool[256];
const char *images_directory;
u64 nr_checked, nr_compared, nr_trackers, nr_unborn, nr_unreadable;
u64 nr_second, nr_merge_cuts, nr_bad_supers;

static struct state *states;
static u32 now;			/* event */
static u32 merging;		/* operation, 0: none */
static u32 store_now;		/* sectors of the store */
static u32 store_then;		/* sectors of the device that stands for it */
static u32 nr_created;		/* acknowledged, or begun if @nr_begun */
static u32 nr_begun;

static int files[2];
static u8 *maps[2];
static u8 *kept[2];		/* the media as they were before */
static int copy_file;		/* of the store, for the tool */
static u8 *copy_map;
static struct loop origin_loop, store_loop;
static char store_device[40], store_path[40];
static u8 *buf;
static const struct cut *cut;
static const char *phase;
static u64 random_state;

/* ---- the states, event by event ---- */

static u32 *new_tags(const u32 *from)
{
	size_t bytes = run.set.origin_sectors * sizeof(u32);
	u32 *tags = allocate(bytes);

	if (from)
		memcpy(tags, from, bytes);
	return tags;
}

static u32 *new_list(u32 view)
{
	u32 nr = 0, i;

	for (i = 0; i < run.nr_ops; i++)
		nr += run.ops[i].view == view;
	return allocate(nr * sizeof(u32));
}

static void init_states(void)
{
	struct state *s;
	u32 i;

	states = allocate(run.nr_views * sizeof(*states));
	for (i = 0; i < run.nr_views; i++) {
		s = &states[i];
		s->durable = new_tags(run.views[i].first);
		s->unsettled = new_list(i);
		s->discards = new_list(i);
		s->found = new_tags(NULL);
		s->listed = allocate(run.set.origin_sectors * sizeof(*s->listed));
		snprintf(s->name, sizeof(s->name), "cowcrash-%d-c%u", getpid(), i);
	}
	for (i = 0; i < run.set.origin_sectors; i++)
		states[ORIGIN_VIEW].durable[i] = 1;
}

static void settle(struct state *s, u32 tag)
{
	const struct op *op = &run.ops[tag];
	u32 i;

	for (i = op->sector; i < op->sector + op->count; i++)
		if (tag > s->durable[i])
			s->durable[i] = tag;
}

static void settle_before(struct state *s, u32 event)
{
	u32 i, kept = 0;

	for (i = 0; i < s->nr_unsettled; i++) {
		if (run.ops[s->unsettled[i]].ack < event)
			settle(s, s->unsettled[i]);
		else
			s->unsettled[kept++] = s->unsettled[i];
	}
	s->nr_unsettled = kept;
}

static void op_began(const struct op *op, u32 tag)
{
	struct state *s = &states[op->view];

	switch (op->kind) {
	case OP_WRITE:
		s->unsettled[s->nr_unsettled++] = tag;
		break;
	case OP_ZERO:
		s->unsettled[s->nr_unsettled++] = tag;
		/* fall through */
	case OP_DISCARD:
		s->discards[s->nr_discards++] = tag;
		break;
	case OP_CREATE:
		nr_begun++;
		break;
	case OP_MERGE:
		merging = tag;
		break;
	case OP_MERGED:
		merging = 0;
		break;
	case OP_GROW:
		store_now = op->count;
		break;
	}
}

static void op_acked(const struct op *op, u32 tag)
{
	struct state *s = &states[op->view], *origin = &states[ORIGIN_VIEW];

	switch (op->kind) {
	case OP_WRITE:
		if (op->dsync)
			settle(s, tag);
		break;
	case OP_FSYNC:
		settle_before(s, op->begin);
		break;
	case OP_CREATE:
		nr_created++;
		break;
	case OP_MERGE:
		memcpy(origin->durable, run.views[op->view].last,
		       run.set.origin_sectors * sizeof(u32));
		origin->floor = tag;
		origin->nr_unsettled = 0;
		origin->nr_discards = 0;
		break;
	}
}

void verify_event(u32 event)
{
	const struct event *e = &run.events[event];

	now = event;
	if (e->type == EVENT_BEGIN)
		op_began(&run.ops[e->index], e->index);
	else if (e->type == EVENT_ACK)
		op_acked(&run.ops[e->index], e->index);
}

static bool begun(u32 tag)
{
	return tag && run.ops[tag].begin <= now;
}

static bool acked(u32 tag)
{
	return tag && run.ops[tag].ack <= now;
}

/* ---- what a sector may hold ---- */

static bool covers(const struct op *op, u32 sector)
{
	return sector - op->sector < op->count;
}

static bool window_allows(const struct view *v, u32 sector, u32 tag)
{
	const struct op *op;
	u32 i;

	for (i = 0; i < v->nr_window; i++) {
		op = &run.ops[v->window[i]];
		if (covers(op, sector) && begun(v->window[i]) &&
		    (v->window[i] == tag || (!tag && op->kind != OP_WRITE)))
			return true;
	}
	return false;
}

static bool discard_allows(const struct state *s, u32 sector, u32 after)
{
	u32 i;

	for (i = 0; i < s->nr_discards; i++)
		if (s->discards[i] > after && covers(&run.ops[s->discards[i]], sector))
			return true;
	return false;
}

/* What a sector has of the operation. */
static u32 content_of(u32 tag)
{
	return run.ops[tag].kind == OP_ZERO ? 0 : tag;
}

static bool is_allowed(u32 view, u32 sector, u32 tag)
{
	const struct view *v = &run.views[view];
	const struct state *s = &states[view];
	u32 after = s->durable[sector] > s->floor ? s->durable[sector] : s->floor;

	if (merging && view == ORIGIN_VIEW && !acked(merging))
		return tag == run.views[run.ops[merging].view].last[sector];
	if (view != ORIGIN_VIEW && !acked(v->created))
		return tag == v->before[sector] || window_allows(v, sector, tag);
	if (tag == content_of(s->durable[sector]))
		return true;
	if (!tag)
		return discard_allows(s, sector, after);
	return tag < run.nr_ops && tag > after && run.ops[tag].view == view &&
	       run.ops[tag].kind == OP_WRITE && covers(&run.ops[tag], sector) && begun(tag);
}

/* ---- words ---- */

static void print_event(u32 event)
{
	const struct event *e = &run.events[event];
	const struct request *r = &run.requests[e->index];

	printf("#   event %u: ", event);
	if (e->type == EVENT_BEGIN || e->type == EVENT_ACK) {
		printf("%s of op %u\n", e->type == EVENT_BEGIN ? "begin" : "end", e->index);
		return;
	}
	printf("%s of request %u: medium %u ", e->type == EVENT_ISSUE ? "issue" : "end",
	       e->index, r->medium);
	if (r->count)
		printf("sectors %u+%u%s%s%s\n", r->sector, r->count,
		       r->flags & REQUEST_FLUSH ? " after a flush" : "",
		       r->flags & REQUEST_FUA ? " FUA" : "",
		       r->flags & REQUEST_DISCARD ? " discard" : "");
	else
		printf("flush\n");
}

static void print_cut(void)
{
	u32 tag, i;

	printf("# FAILED at cut %u (seed %" PRIu64 "), %s\n", cut->number, run.set.seed,
	       cut->exact ? "what is durable and nothing else" :
	       "with some of what was not durable");
	printf("# the last of %u events before it, of %u in all:\n", cut->event + 1, run.nr_events);
	for (i = cut->event < EVENTS_SHOWN ? 0 : cut->event - EVENTS_SHOWN; i <= cut->event; i++)
		print_event(i);
	printf("# operations under way:\n");
	for (tag = 1; tag < run.nr_ops; tag++)
		if (run.ops[tag].begin <= now && run.ops[tag].ack > now &&
		    run.ops[tag].kind != OP_FILL)
			print_op(tag);
	media_print();
}

static bool bad(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static bool bad(const char *fmt, ...)
{
	va_list ap;

	print_cut();
	printf("# %s: ", phase);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	return false;
}

static void print_medium_sector(u32 sector)
{
	const u8 *at = maps[0] + (size_t)sector * SECTOR_BYTES;

	printf("# on the origin's medium, there:\n");
	print_content(at);
}

static bool bad_sector(u32 view, u32 sector, u32 nr_bad, const u8 *got, u32 exact)
{
	bad("view %u (%s, id %u): sector %u (chunk %u of %u sectors), and %u more; expected:",
	    view, view ? "snapshot" : "origin", run.views[view].id, sector,
	    sector / run.set.chunk_sectors, run.set.chunk_sectors, nr_bad - 1);
	if (exact != BAD_TAG)
		printf("# (as before the devices were closed or written to)\n");
	print_op(exact != BAD_TAG ? exact : view && !acked(run.views[view].created) ?
		 run.views[view].before[sector] : states[view].durable[sector]);
	print_content(got);
	print_medium_sector(sector);
	print_history(sector);
	return false;
}

/* ---- devices ---- */

static u32 store_offset_bytes(void)
{
	return run.set.nr_media == 1 ? run.set.origin_sectors * SECTOR_BYTES : 0;
}

void verify_init(void)
{
	u32 i, last = run.set.nr_media - 1;

	init_states();
	buf = aligned(READ_SECTORS * SECTOR_BYTES);
	for (i = 0; i < run.set.nr_media; i++) {
		files[i] = memory_file("cut", media_bytes[i], &maps[i]);
		kept[i] = aligned(media_bytes[i]);
	}
	copy_file = memory_file("store", (u64)run.set.store_most * SECTOR_BYTES, &copy_map);
	loop_make(&origin_loop, files[0], 0, (u64)run.set.origin_sectors * SECTOR_BYTES,
		  run.set.block_bytes);
	loop_make(&store_loop, files[last], store_offset_bytes(),
		  (u64)run.set.store_most * SECTOR_BYTES, run.set.block_bytes);
	snprintf(store_device, sizeof(store_device), "cowcrash-%d-cs", getpid());
	store_now = run.set.store_sectors;
	store_then = store_now;
	if (dm_make(store_device, store_path, sizeof(store_path), "%u linear %s 0", store_now,
		    store_loop.path))
		fail("no linear device");
}

static u8 *store_bytes(void)
{
	return maps[run.set.nr_media - 1] + store_offset_bytes();
}

static void set_store_size(void)
{
	if (store_then == store_now)
		return;
	if (dm_load(store_device, "%u linear %s 0", store_now, store_loop.path) ||
	    dm_suspend(store_device) || dm_resume(store_device))
		fail("no linear device");
	store_then = store_now;
}

/* Making and removing devices takes longer than all else: they stay, as errors. */
static void unmake(u32 view)
{
	struct state *s = &states[view];
	int ret = dm_load(s->name, "%u error", run.set.origin_sectors);

	if (!ret)
		ret = dm_resume(s->name);
	if (ret)
		fail("taking the table from %s: %s", s->name, strerror(-ret));
	s->active = false;
}

static int make(u32 view, const char *table)
{
	struct state *s = &states[view];
	int ret;

	if (!s->path[0] && dm_make(s->name, s->path, sizeof(s->path), "%u error",
				   run.set.origin_sectors))
		fail("no device %s", s->name);
	ret = dm_load(s->name, "%u %s", run.set.origin_sectors, table);
	if (ret)
		return ret;
	ret = dm_resume(s->name);
	if (ret)
		unmake(view);
	s->active = !ret;
	return ret;
}

static int activate_origin(bool store)
{
	char table[300];

	if (run.set.stock)
		snprintf(table, sizeof(table), "snapshot-origin %s", origin_loop.path);
	else if (store)
		snprintf(table, sizeof(table), "cowsnap-origin %s 2 store %s",
			 origin_loop.path, store_path);
	else
		snprintf(table, sizeof(table), "cowsnap-origin %s", origin_loop.path);
	return make(ORIGIN_VIEW, table);
}

static int activate_merge(u32 view)
{
	char table[300];
	int n;

	n = snprintf(table, sizeof(table), "%s %s %s P %u",
		     run.set.stock ? "snapshot-merge" : "cowsnap-merge", origin_loop.path,
		     store_path, run.set.chunk_sectors);
	if (!run.set.stock)
		snprintf(table + n, sizeof(table) - n, " 2 id %u", run.views[view].id);
	return make(ORIGIN_VIEW, table);
}

static int activate_snapshot(u32 view)
{
	char table[300];
	int n;

	n = snprintf(table, sizeof(table), "%s %s %s P %u",
		     run.set.stock ? "snapshot" : "cowsnap", origin_loop.path, store_path,
		     run.set.chunk_sectors);
	if (!run.set.stock)
		snprintf(table + n, sizeof(table) - n, " 2 id %u", run.views[view].id);
	return make(view, table);
}

static void deactivate(void)
{
	u32 i;

	for (i = run.nr_views; i-- > 0; )
		if (states[i].active)
			unmake(i);
}

/* ---- which snapshots there must be ---- */

static bool must_exist(u32 view)
{
	const struct view *v = &run.views[view];

	return acked(v->created) && !begun(v->gone_begin);
}

/* A merged one is part of the origin. */
static bool may_exist(u32 view)
{
	const struct view *v = &run.views[view];

	if (!begun(v->created) || (v->gone == GONE_MERGED && begun(v->gone_begin)))
		return false;
	if (v->gone == GONE_DELETED)
		return !acked(v->gone_end);
	return true;
}

static char status_line[400];

static bool is_whole(u32 view)
{
	return !dm_status(states[view].name, status_line, sizeof(status_line)) &&
	       !strstr(status_line, "Invalid") && !strstr(status_line, "Overflow") &&
	       !strstr(status_line, "failed");
}

/* ---- comparing ---- */

static bool compare_piece(u32 view, u32 sector, u32 count, bool exact, u32 *nr_bad,
			  u32 *first_bad, u8 *first_content)
{
	u32 *found = states[view].found;
	const u8 *at;
	u32 i, tag;

	for (i = 0; i < count; i++) {
		at = buf + (size_t)i * SECTOR_BYTES;
		tag = sector_tag(at, sector + i);
		if (exact ? tag == found[sector + i] : is_allowed(view, sector + i, tag)) {
			found[sector + i] = tag;
			continue;
		}
		if (!(*nr_bad)++) {
			*first_bad = sector + i;
			memcpy(first_content, at, SECTOR_BYTES);
		}
	}
	return !*nr_bad;
}

/* @exact: it is as it was found before, and not only as it may be. */
static bool compare_path(u32 view, const char *path, bool exact)
{
	u32 sector, count, nr_bad = 0, first_bad = 0;
	u64 content[SECTOR_BYTES / sizeof(u64)];
	int fd = open_device(path);
	ssize_t done;

	for (sector = 0; sector < run.set.origin_sectors; sector += count) {
		count = run.set.origin_sectors - sector;
		if (count > READ_SECTORS)
			count = READ_SECTORS;
		done = pread(fd, buf, (size_t)count * SECTOR_BYTES, (off_t)sector * SECTOR_BYTES);
		if (done != (ssize_t)count * SECTOR_BYTES) {
			close(fd);
			return bad("view %u (id %u): read of sectors %u+%u: %s", view,
				   run.views[view].id, sector, count, strerror(errno));
		}
		compare_piece(view, sector, count, exact, &nr_bad, &first_bad, (u8 *)content);
	}
	close(fd);
	if (!nr_bad)
		return true;
	return bad_sector(view, first_bad, nr_bad, (u8 *)content,
			  exact ? states[view].found[first_bad] : BAD_TAG);
}

static bool compare(u32 view, bool exact)
{
	return compare_path(view, states[view].path, exact);
}

static bool compare_all(bool exact)
{
	u32 i;

	for (i = 0; i < run.nr_views; i++) {
		if (!states[i].active)
			continue;
		if (!compare(i, exact))
			return false;
		if (i && !is_whole(i))
			return bad("snapshot %u (id %u) is not whole any more: %s", i,
				   run.views[i].id, status_line);
	}
	return true;
}

/* ---- activation ---- */

static bool no_store_yet(void)
{
	return !run.set.stock && !nr_created;
}

/* Before the first snapshot was acknowledged there may be a store, or part of one. */
static bool activate_first(void)
{
	u32 merged = merging ? run.ops[merging].view : 0;
	int ret;

	if (merged) {
		ret = activate_merge(merged);
		if (!ret)
			return true;
		return bad("the merge of id %u cannot go on: %s", run.views[merged].id,
			   strerror(-ret));
	}
	if (no_store_yet()) {
		if (nr_begun && !activate_origin(true))
			return true;
		nr_unborn++;
		ret = activate_origin(false);
	} else {
		ret = activate_origin(true);
	}
	return ret ? bad("the origin cannot be activated: %s", strerror(-ret)) : true;
}

static bool id_may_exist(u32 id)
{
	u32 i;

	for (i = 1; i < run.nr_views; i++)
		if (run.views[i].id == id && may_exist(i))
			return true;
	return merging && run.views[run.ops[merging].view].id == id;
}

/* One that was deleted and is not made again. */
static bool check_deleted(u32 view)
{
	const struct view *v = &run.views[view];

	if (run.set.stock || v->gone != GONE_DELETED || !acked(v->gone_end) ||
	    id_may_exist(v->id) || chance(&random_state, 60))
		return true;
	if (activate_snapshot(view))
		return true;
	return bad("snapshot %u (id %u) was deleted and is there", view, v->id);
}

static bool activate_one(u32 view)
{
	int ret;

	if (!may_exist(view))
		return check_deleted(view);
	ret = activate_snapshot(view);
	if (!ret && is_whole(view))
		return true;
	if (must_exist(view))
		return bad("snapshot %u (id %u) cannot be activated: %s", view,
			   run.views[view].id, ret ? strerror(-ret) : status_line);
	if (!ret)
		unmake(view);
	return true;
}

/* dm-snapshot's origin has to come last: it takes its size of I/O from them. */
static bool activate_all(void)
{
	bool origin_first = merging || no_store_yet() ||
			    (!run.set.stock && chance(&random_state, 50));
	u32 i;

	if (origin_first && !activate_first())
		return false;
	for (i = 1; i < run.nr_views; i++)
		if (!activate_one(i))
			return false;
	return origin_first || activate_first();
}

/* ---- the tool ---- */

/*
 * On a copy in memory: that is ten times as fast as on the device. The file stays, since to get
 * its pages takes longer than to fill them.
 */
static void copy_store(void)
{
	if (ftruncate(copy_file, (u64)store_now * SECTOR_BYTES))
		fail("a copy of the store: %s", strerror(errno));
	memcpy(copy_map, store_bytes(), (size_t)store_now * SECTOR_BYTES);
}

static bool run_tool(const char *path)
{
	char *argv[] = { check_tool, "check", (char *)path, NULL };
	posix_spawn_file_actions_t actions;
	int out = memfd_create("output", MFD_CLOEXEC), status = -1;
	char text[2000];
	ssize_t n;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_adddup2(&actions, out, 2);
	if (posix_spawn(&pid, check_tool, &actions, NULL, argv, environ) ||
	    waitpid(pid, &status, 0) != pid)
		fail("%s: %s", check_tool, strerror(errno));
	posix_spawn_file_actions_destroy(&actions);
	n = pread(out, text, sizeof(text) - 1, 0);
	close(out);
	if (!status)
		return true;
	text[n > 0 ? n : 0] = 0;
	return bad("cowsnap check: status %d; it says:\n%s", WEXITSTATUS(status), text);
}

/* One of the snapshots, another at each cut; none of those that are going. */
static u32 choose_view(void)
{
	u32 i, view;

	for (i = 0; run.nr_views > 1 && i < run.nr_views; i++) {
		view = 1 + (cut->number + i) % (run.nr_views - 1);
		if (acked(run.views[view].created) && !begun(run.views[view].gone_begin))
			return view;
	}
	return 0;
}

/* It must be one, or still the snapshot that is being given up: both have an answer. */
static bool must_answer(u32 view)
{
	const struct view *v = &run.views[view];

	return begun(v->track) && !begun(v->untrack);
}

static void ask(u32 view, const char *path)
{
	struct state *s = &states[view];

	s->asked = view && changed_ask(check_tool, path, run.views[view].id, s->listed);
}

/* One snapshot, and all trackers. While a merge goes on nobody gets an answer. */
static bool ask_what_changed(const char *path)
{
	u32 i;

	for (i = 0; i < run.nr_views; i++)
		states[i].asked = false;
	if (merging)
		return true;
	ask(choose_view(), path);
	for (i = 1; i < run.nr_views; i++) {
		if (!must_answer(i))
			continue;
		ask(i, path);
		if (!states[i].asked)
			return bad("cowsnap diff of tracker %u (id %u) refuses", i,
				   run.views[i].id);
	}
	return true;
}

/* All sectors in which the origin differs from @tags have to be in the answer about @view. */
static bool has_all(u32 view, const u32 *tags)
{
	const struct state *s = &states[view];
	u32 i;

	for (i = 0; i < run.set.origin_sectors; i++) {
		if (tags[i] == states[ORIGIN_VIEW].found[i] || s->listed[i])
			continue;
		bad("cowsnap diff of %s %u (id %u) misses sector %u; then and now:",
		    must_answer(view) ? "tracker" : "snapshot", view, run.views[view].id, i);
		print_op(tags[i]);
		print_op(states[ORIGIN_VIEW].found[i]);
		print_history(i);
		return false;
	}
	return true;
}

/* The devices have been looked at. A tracker has none: its snapshot is remembered. */
static bool nothing_missed(void)
{
	const struct view *v;
	u32 i;

	for (i = 1; i < run.nr_views; i++) {
		v = &run.views[i];
		if (!states[i].asked)
			continue;
		if (must_answer(i)) {
			nr_trackers++;
			if (!has_all(i, v->first) || !has_all(i, v->last))
				return false;
		} else if (states[i].active) {
			nr_compared++;
			if (!has_all(i, states[i].found))
				return false;
		}
	}
	return true;
}

static bool check_store(void)
{
	char path[40];
	bool good;

	if (!check_tool[0] || no_store_yet())
		return true;
	nr_checked++;
	copy_store();
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), copy_file);
	good = run_tool(path);
	return ask_what_changed(path) && good;
}

/* ---- a sector cannot be read ---- */

/*
 * In a zone of the log any last block of a chunk may be that of a record: one that cannot be read
 * counts as lost, as a block of a table does.
 */
static bool place_is_in_zone(u32 place)
{
	const struct cowsnap_super *super;
	u32 copy, i;

	for (copy = 0; copy < 2; copy++) {
		super = (const void *)(store_bytes() + copy * run.set.block_bytes);
		for (i = 0; i < COWSNAP_ZONES; i++)
			if (cowsnap_zone_in_use(&super->zone[i]) &&
			    place >= cowsnap_zone_start(&super->zone[i]) &&
			    place < cowsnap_zone_end(&super->zone[i]))
				return true;
	}
	return false;
}

/*
 * Is @sector one of a copy that was being written? Its commit had not ended, so it is not
 * needed. What tables, records and writes to a snapshot said there would be lost.
 */
static bool sector_is_copy(u32 sector)
{
	u32 place = sector / run.set.chunk_sectors, block, index, kind;
	const struct cowsnap_slot *slots;
	struct cowsnap_geometry g;
	struct cowsnap_segment seg;

	if (cowsnap_geometry_init(&g, run.set.block_bytes, run.set.chunk_sectors))
		return false;
	cowsnap_get_segment(&g, cowsnap_find_segment(&g, place), &seg);
	if (place < seg.data || place_is_in_zone(place))
		return false;
	cowsnap_find_slot(&g, &seg, place - seg.data, &block, &index);
	slots = (const void *)(store_bytes() + cowsnap_block_sector(&g, &seg, block) * SECTOR_BYTES +
			       cowsnap_area_offset(seg.first_block + block) +
			       sizeof(struct cowsnap_block_header));
	kind = cowsnap_slot_kind(&slots[index]);
	return kind == COWSNAP_SLOT_COPIED || kind == COWSNAP_SLOT_FREE;
}

/* There are two, and with small blocks each is alone in its own. One of both suffices. */
static bool sector_is_super(u32 sector)
{
	return run.set.block_bytes == SECTOR_BYTES && sector < 2;
}

/* A merge would make copies in the room that the lost one leaves, and not get them written. */
static bool may_be_lost(u32 sector, u32 nr)
{
	return sector_is_super(sector) ||
	       (!merging && sector + nr < store_now && sector_is_copy(sector));
}

/* One that was being written, or else one of the superblocks, or NEVER. */
static u32 choose_lost(u32 nr)
{
	u32 offset = store_offset_bytes() / SECTOR_BYTES;
	u32 sector = media_in_flight(run.set.nr_media - 1, offset, cut->event, &random_state);
	u32 super = below(&random_state, 2);

	if (sector != NEVER) {
		sector = (sector - offset) / nr * nr;
		if (may_be_lost(sector, nr))
			return sector;
	}
	return sector_is_super(super) ? super : NEVER;
}

/* Until the next cut. */
static void make_unreadable(void)
{
	u32 nr = run.set.block_bytes / SECTOR_BYTES, sector = choose_lost(nr);

	if (sector == NEVER)
		return;
	if (dm_load_bad(store_device, store_loop.path, store_now, sector, nr) ||
	    dm_suspend(store_device) || dm_resume(store_device))
		fail("no device with a bad block");
	nr_unreadable++;
	nr_bad_supers += sector_is_super(sector);
}

static void make_readable(void)
{
	again_stop(store_device, store_loop.path, store_now);
}

/* ---- after the cut: what was recovered is fit for use ---- */

static bool write_after(u32 tag)
{
	u32 block_sectors = run.set.block_bytes / SECTOR_BYTES;
	u32 count = (1 + below(&random_state, 64 / block_sectors)) * block_sectors;
	u32 sector = below(&random_state, (run.set.origin_sectors - count) / block_sectors + 1) *
		     block_sectors;
	int fd = open_device(states[ORIGIN_VIEW].path);
	ssize_t bytes = (ssize_t)count * SECTOR_BYTES;
	u32 i;

	fill_sectors(buf, sector, count, tag);
	if (pwrite(fd, buf, bytes, (off_t)sector * SECTOR_BYTES) != bytes) {
		close(fd);
		return bad("a write to the origin after the cut: %s", strerror(errno));
	}
	close(fd);
	for (i = 0; i < count; i++)
		states[ORIGIN_VIEW].found[sector + i] = tag;
	return true;
}

static bool merge_is_over(void)
{
	u64 used, total, metadata;
	char line[400];

	return !dm_status(states[ORIGIN_VIEW].name, line, sizeof(line)) &&
	       sscanf(line, "%" SCNu64 "/%" SCNu64 " %" SCNu64, &used, &total, &metadata) == 3 &&
	       used == metadata;
}

static bool finish_merge(void)
{
	char line[400];
	u32 tries;

	if (run.set.throttle && dm_message(states[ORIGIN_VIEW].name, "set throttle 100"))
		return bad("the throttle cannot be set");
	for (tries = 0; !merge_is_over(); tries++) {
		if (tries == MERGE_TRIES) {
			dm_status(states[ORIGIN_VIEW].name, line, sizeof(line));
			return bad("the merge does not end after the cut: %s", line);
		}
		usleep(10000);
	}
	deactivate();
	/* A part of a sealed one is elsewhere. */
	return run.set.seals || compare_path(ORIGIN_VIEW, origin_loop.path, true);
}

static void keep_media(void)
{
	u32 i;

	for (i = 0; i < run.set.nr_media; i++)
		memcpy(kept[i], maps[i], media_bytes[i]);
}

/*
 * While the store stands still a merge ends what it was writing to the origin, and then waits. A
 * copy that equals what is there afterwards is of one moment. Is it as it was kept before?
 */
static bool keep_origin(void)
{
	size_t bytes = (size_t)run.set.origin_sectors * SECTOR_BYTES;
	bool same = true;

	while (memcmp(kept[0], maps[0], bytes)) {
		memcpy(kept[0], maps[0], bytes);
		same = false;
	}
	return same;
}

static void restore_media(void)
{
	u32 i;

	for (i = 0; i < run.set.nr_media; i++)
		memcpy(maps[i], kept[i], media_bytes[i]);
}

/*
 * Again all goes at once, but what has been written is there, as it may be with any cache: a store
 * that was recovered is one that can be recovered.
 */
static void cut_again(void)
{
	if (dm_suspend(store_device))
		fail("suspend the store");
	keep_media();
	keep_origin();
	if (dm_resume(store_device))
		fail("resume the store");
	deactivate();
	restore_media();
}

/* The power goes once more while the store is opened. */
static bool cut_while_opened(void)
{
	bool good;

	keep_media();
	phase = "after the cut, opened before a second one";
	again_start(store_device, store_loop.path, store_now);
	good = activate_all();
	deactivate();
	/* What was being sealed is opened at home before the store says so. */
	if (run.set.seals)
		keep_origin();
	again_stop(store_device, store_loop.path, store_now);
	restore_media();
	again_cut(store_bytes(), &random_state, false);
	phase = "after the cut and a second one while it was opened";
	return good && check_store();
}

/*
 * The power goes once more while the merge goes on. Of what the store has got only that is there
 * for sure which was durable. All that the origin has got is there: its cache may have written it.
 */
static bool cut_while_merging(void)
{
	bool good, same;

	keep_media();
	nr_merge_cuts++;
	phase = "after the cut, the merge opened before a second one";
	again_start(store_device, store_loop.path, store_now);
	good = activate_all();
	usleep(below(&random_state, MERGE_USECS));
	if (dm_suspend(store_device))
		fail("suspend the store");
	same = keep_origin();
	again_stop(store_device, store_loop.path, store_now);
	deactivate();
	restore_media();
	again_cut(store_bytes(), &random_state, !same);
	phase = "after the cut and a second one while the merge went on";
	return good && check_store();
}

/* By their numbers: so they are as many as was asked for, whatever the seed. */
static bool is_cut_twice(void)
{
	u64 nr = cut->number;

	return !no_store_yet() && (nr + 1) * second_cuts / 100 > nr * second_cuts / 100;
}

/* Writes and the merge went on beside each other. */
static bool cut_used_merge(void)
{
	nr_merge_cuts++;
	phase = "after writes to the origin and another cut of the merge that went on";
	cut_again();
	return check_store() && activate_all() && compare_all(true);
}

static bool use_again(void)
{
	u32 i, nr = 1 + below(&random_state, 24);

	for (i = 0; i < nr; i++)
		if (!write_after(AFTER_TAG + i))
			return false;
	phase = "after writes to the origin";
	if (!compare_all(true))
		return false;
	if (merging) {
		if (chance(&random_state, 50) && !cut_used_merge())
			return false;
		phase = "after writes to the origin, and the end of the merge";
		return finish_merge();
	}
	if (chance(&random_state, 50)) {
		phase = "after writes to the origin, closed and opened";
		deactivate();
	} else {
		phase = "after writes to the origin and another cut";
		cut_again();
	}
	return check_store() && activate_all() && compare_all(true) && nothing_missed();
}

/* ---- a cut ---- */

static void save_image(const char *name, const u8 *bytes, u32 sectors)
{
	char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", images_directory, name);
	file = fopen(path, "we");
	if (!file || fwrite(bytes, SECTOR_BYTES, sectors, file) != sectors || fclose(file))
		fail("%s: %s", path, strerror(errno));
}

static void save_images(void)
{
	if (!images_directory)
		return;
	save_image("origin", maps[0], run.set.origin_sectors);
	save_image("store", store_bytes(), store_now);
}

static bool verify_images(void)
{
	phase = "after the cut";
	if (!check_store())
		return false;
	/*
	 * Never both: what was being written at the first cut, and could be read after it, may have
	 * been believed then, so the second opening needs it.
	 */
	if (is_cut_twice()) {
		nr_second++;
		if (!(merging ? cut_while_merging() : cut_while_opened()))
			return false;
	} else if (!no_store_yet() && chance(&random_state, unreadables)) {
		make_unreadable();
		return activate_all() && compare_all(false);
	}
	if (!activate_all() || !compare_all(false) || !nothing_missed())
		return false;
	if (run.set.drops || no_store_yet() || chance(&random_state, 80))
		return true;
	return use_again();
}

bool verify_cut(const struct cut *c)
{
	bool good;

	cut = c;
	random_state = run.set.seed * 31 + c->number;
	media_cut(maps, &random_state, c->exact);
	set_store_size();
	save_images();
	good = verify_images();
	deactivate();
	if (unreadables)
		make_readable();
	return good;
}

void verify_exit(void)
{
	u32 i;

	for (i = 0; i < run.nr_views; i++)
		if (states[i].path[0])
			dm_remove(states[i].name);
	dm_remove(store_device);
	loop_free(&origin_loop);
	loop_free(&store_loop);
}

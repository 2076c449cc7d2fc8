// SPDX-License-Identifier: GPL-2.0-only
/*
 * The recording: what dm-log-writes logged and what the block layer traced, put together.
 *
 * The log has the data of all writes, but its order says when each was durable, not
 * when it was on its way: a write that overtook a flush it should have waited for
 * stands behind it. The trace (tracefs, in an instance of its own, with a clock that
 * only counts) has the true order of issues and completions on all devices at
 * once, and the marks of operations between them. A write is found in the log by its
 * place, length and flags; of several alike the first completed was logged first.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "crash.h"

#define LOG_MAGIC	0x6a736677736872ULL
#define LOG_BYTES	(512ULL << 20)
#define TRACE_KB	"32768"

/* Flags of an entry of the log. */
#define LOG_FLUSH	1
#define LOG_FUA		2
#define LOG_DISCARD	4
#define LOG_MARK	8

/* The log begins with this, in a sector of its own. */
struct log_super {
	u64 magic;
	u64 version;
	u64 nr_entries;
	u32 sector_bytes;
};

/* Each entry too, followed by its data. */
struct log_entry {
	u64 sector;
	u64 nr_sectors;
	u64 flags;
	u64 data_len;
};

struct medium {
	u8 *base;
	u8 *log;
	int base_file;
	int log_file;
	struct loop base_loop;
	struct loop log_loop;
	char name[40];
	char path[40];		/* that of the face, if there is one */
	char mid[40], face[40];	/* with write-zeroes, and without FUA */
	u32 major;
	u32 minor;
	u64 log_position;
};

char origin_below[40], store_below[40];

static struct medium media[2];
static char origin_name[40], store_name[40];
static char tracefs[64], instance[96];
static int marker = -1;

/* ---- tracefs ---- */

static void trace_set(const char *file, const char *value)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", instance, file);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		fail("%s to %s: %s", value, path, strerror(errno));
	close(fd);
}

static void find_tracefs(void)
{
	static const char * const places[] = {
		"/sys/kernel/tracing", "/sys/kernel/debug/tracing",
	};
	struct stat st;
	char path[96];
	size_t i;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/instances", places[i]);
		if (!stat(path, &st)) {
			snprintf(tracefs, sizeof(tracefs), "%s", places[i]);
			return;
		}
	}
	if (mount("tracefs", places[0], "tracefs", 0, NULL))
		fail("no tracefs: %s", strerror(errno));
	snprintf(tracefs, sizeof(tracefs), "%s", places[0]);
}

static void trace_start(void)
{
	char filter[96], path[160];
	u32 i;
	int n = 0;

	find_tracefs();
	snprintf(instance, sizeof(instance), "%s/instances/cowcrash-%d", tracefs, getpid());
	if (mkdir(instance, 0700))
		fail("%s: %s", instance, strerror(errno));
	for (i = 0; i < run.set.nr_media; i++)
		n += snprintf(filter + n, sizeof(filter) - n, "%sdev == %u", i ? " || " : "",
			      media[i].major << 20 | media[i].minor);
	trace_set("trace_clock", "counter");
	trace_set("buffer_size_kb", TRACE_KB);
	trace_set("options/overwrite", "0");
	trace_set("events/block/block_bio_queue/filter", filter);
	trace_set("events/block/block_bio_complete/filter", filter);
	trace_set("events/block/block_bio_queue/enable", "1");
	trace_set("events/block/block_bio_complete/enable", "1");
	snprintf(path, sizeof(path), "%s/trace_marker", instance);
	marker = open(path, O_WRONLY | O_CLOEXEC);
	if (marker < 0)
		fail("%s: %s", path, strerror(errno));
}

void record_mark(char what, u32 op)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%c%u", what, op);

	if (write(marker, text, n) != n)
		fail("a mark in the trace: %s", strerror(errno));
}

/* ---- devices ---- */

/*
 * log-writes takes no write-zeroes, so nothing above it would be asked for any, and it has FUA,
 * which most disks are without. What a device takes is found out when its table comes into force:
 * the face takes them, and has no FUA, since log-writes was not below it at that time, but a loop
 * device. One that is passed on ends with an error, and zeros are written in its place.
 */
static void medium_make_face(struct medium *m, u32 number, u64 bytes)
{
	u64 sectors = bytes / SECTOR_BYTES;
	char below[40], mid[40];

	snprintf(m->mid, sizeof(m->mid), "cowcrash-%d-mid%u", getpid(), number);
	snprintf(m->face, sizeof(m->face), "cowcrash-%d-face%u", getpid(), number);
	memcpy(below, m->path, sizeof(below));
	if (dm_make(m->mid, mid, sizeof(mid), "%" PRIu64 " linear %s 0", sectors,
		    m->base_loop.path) ||
	    dm_make(m->face, m->path, sizeof(m->path), "%" PRIu64 " linear %s 0", sectors, mid) ||
	    dm_load(m->mid, "%" PRIu64 " linear %s 0", sectors, below) || dm_suspend(m->mid) ||
	    dm_resume(m->mid))
		fail("no device above log-writes");
}

static bool has_faces(void)
{
	return run.set.zeroes || run.set.no_fua;
}

static void medium_make(struct medium *m, u32 number, u64 bytes)
{
	struct stat st;
	int ret;

	m->base_file = memory_file("base", bytes, &m->base);
	m->log_file = memory_file("log", LOG_BYTES, &m->log);
	loop_make(&m->base_loop, m->base_file, 0, bytes, run.set.block_bytes);
	loop_make(&m->log_loop, m->log_file, 0, LOG_BYTES, run.set.block_bytes);
	snprintf(m->name, sizeof(m->name), "cowcrash-%d-log%u", getpid(), number);
	ret = dm_make(m->name, m->path, sizeof(m->path), "%" PRIu64 " log-writes %s %s",
		      bytes / SECTOR_BYTES, m->base_loop.path, m->log_loop.path);
	if (ret || stat(m->path, &st))
		fail("%s: %s", m->name, strerror(ret ? -ret : errno));
	m->major = major(st.st_rdev);
	m->minor = minor(st.st_rdev);
	if (has_faces())
		medium_make_face(m, number, bytes);
}

static struct medium *store_medium(void)
{
	return &media[run.set.nr_media - 1];
}

static u32 store_offset(void)
{
	return run.set.nr_media == 1 ? run.set.origin_sectors : 0;
}

/* Linear devices even where they are the whole of it: the store's can grow. */
void record_start(void)
{
	const struct settings *set = &run.set;
	u64 origin_bytes = (u64)set->origin_sectors * SECTOR_BYTES;
	u64 store_bytes = (u64)set->store_most * SECTOR_BYTES;

	if (set->nr_media == 1) {
		medium_make(&media[0], 0, origin_bytes + store_bytes);
	} else {
		medium_make(&media[0], 0, origin_bytes);
		medium_make(&media[1], 1, store_bytes);
	}
	fill_sectors(media[0].base, 0, set->origin_sectors, 1);
	snprintf(origin_name, sizeof(origin_name), "cowcrash-%d-below", getpid());
	snprintf(store_name, sizeof(store_name), "cowcrash-%d-store", getpid());
	if (dm_make(origin_name, origin_below, sizeof(origin_below), "%u linear %s 0",
		    set->origin_sectors, media[0].path) ||
	    dm_make(store_name, store_below, sizeof(store_below), "%u linear %s %u",
		    set->store_sectors, store_medium()->path, store_offset()))
		fail("no linear devices");
	trace_start();
}

void record_grow(u32 store_sectors)
{
	if (dm_load(store_name, "%u linear %s %u", store_sectors, store_medium()->path,
		    store_offset()) || dm_suspend(store_name) || dm_resume(store_name))
		fail("growing the store");
}

/* ---- the trace, read ---- */

static u32 room_requests, room_events;

static u32 add_event(u32 type, u32 index)
{
	if (run.nr_events == room_events) {
		room_events = room_events ? room_events * 2 : 4096;
		run.events = realloc(run.events, room_events * sizeof(*run.events));
		if (!run.events)
			fail("no memory for events");
	}
	run.events[run.nr_events] = (struct event){ type, index };
	return run.nr_events++;
}

static u32 parse_rwbs(const char *rwbs)
{
	u32 flags = 0;

	if (rwbs[0] == 'F') {
		flags |= REQUEST_FLUSH;
		rwbs++;
	}
	if (rwbs[0] == 'D')
		flags |= REQUEST_DISCARD;
	if (rwbs[0] && strchr(rwbs + 1, 'F'))
		flags |= REQUEST_FUA;
	return flags;
}

static void trace_issue(const struct request *like)
{
	struct request *r;

	if (run.nr_requests == room_requests) {
		room_requests = room_requests ? room_requests * 2 : 1024;
		run.requests = realloc(run.requests, room_requests * sizeof(*run.requests));
		if (!run.requests)
			fail("no memory for requests");
	}
	r = &run.requests[run.nr_requests];
	*r = *like;
	r->issued = add_event(EVENT_ISSUE, run.nr_requests++);
	r->completed = NEVER;
	r->payload = UINT64_MAX;
}

/* Where data has a flush before it, that may have been dealt with on the way. */
static bool same_request(const struct request *a, const struct request *b)
{
	u32 differ = a->flags ^ b->flags;

	return a->medium == b->medium && a->sector == b->sector && a->count == b->count &&
	       !(differ & ~(a->count ? REQUEST_FLUSH : 0));
}

/*
 * Flushes are all alike. Taking the one that ended for the last issued errs on the safe
 * side where several are under way: more counts as durable for a moment, not less.
 */
static u32 find_request(const struct request *like)
{
	static u32 oldest;	/* all before it have completed */
	u32 i, found = NEVER;

	while (oldest < run.nr_requests && run.requests[oldest].completed != NEVER)
		oldest++;
	for (i = oldest; i < run.nr_requests; i++) {
		if (run.requests[i].completed != NEVER || !same_request(&run.requests[i], like))
			continue;
		found = i;
		if (like->count)
			break;
	}
	return found;
}

static void trace_complete(const struct request *like)
{
	u32 found = find_request(like);

	if (found == NEVER)
		fail("the trace has the end of a write at %u+%u of which it lacks the begin",
		     like->sector, like->count);
	run.requests[found].completed = add_event(EVENT_COMPLETE, found);
}

static void parse_bio(const char *text, bool complete)
{
	struct request like = { 0 };
	u32 dev_major, dev_minor;
	u64 sector;
	char rwbs[16];

	if (sscanf(text, "%u,%u %15s %" SCNu64 " + %u", &dev_major, &dev_minor, rwbs,
		   &sector, &like.count) != 5)
		fail("a line of the trace: %s", text);
	if (strchr(rwbs, 'R'))
		return;
	while (media[like.medium].minor != dev_minor || media[like.medium].major != dev_major)
		if (++like.medium == run.set.nr_media)
			return;
	like.flags = parse_rwbs(rwbs);
	like.sector = like.count ? sector : 0;
	if (complete)
		trace_complete(&like);
	else
		trace_issue(&like);
}

static void parse_mark(const char *text)
{
	struct op *op;
	u32 tag;

	if (sscanf(text + 1, "%u", &tag) != 1 || !tag || tag >= run.nr_ops)
		fail("a mark of the trace: %s", text);
	op = &run.ops[tag];
	if (text[0] == 'b')
		op->begin = add_event(EVENT_BEGIN, tag);
	else
		op->ack = add_event(EVENT_ACK, tag);
}

static void parse_line(const char *line)
{
	const char *at;

	if (strstr(line, "LOST"))
		fail("the trace is not complete: %s", line);
	at = strstr(line, "tracing_mark_write: ");
	if (at)
		return parse_mark(at + strlen("tracing_mark_write: "));
	at = strstr(line, "block_bio_queue: ");
	if (at)
		return parse_bio(at + strlen("block_bio_queue: "), false);
	at = strstr(line, "block_bio_complete: ");
	if (at)
		parse_bio(at + strlen("block_bio_complete: "), true);
}

static void trace_read(void)
{
	char path[160], *line = NULL;
	size_t room = 0;
	FILE *file;

	trace_set("tracing_on", "0");
	snprintf(path, sizeof(path), "%s/trace", instance);
	file = fopen(path, "re");
	if (!file)
		fail("%s: %s", path, strerror(errno));
	while (getline(&line, &room, file) > 0)
		if (line[0] != '#')
			parse_line(line);
	fclose(file);
	free(line);
	close(marker);
	if (rmdir(instance))
		fail("%s: %s", instance, strerror(errno));
}

/* ---- the log, read ---- */

static u32 *by_completion;	/* requests */

static int compare_completion(const void *a, const void *b)
{
	u32 x = run.requests[*(const u32 *)a].completed;
	u32 y = run.requests[*(const u32 *)b].completed;

	return x < y ? -1 : x > y;
}

static void sort_requests(void)
{
	u32 i;

	by_completion = allocate(run.nr_requests * sizeof(*by_completion));
	for (i = 0; i < run.nr_requests; i++) {
		if (run.requests[i].completed == NEVER)
			fail("a write never ended: %u+%u", run.requests[i].sector,
			     run.requests[i].count);
		by_completion[i] = i;
	}
	qsort(by_completion, run.nr_requests, sizeof(*by_completion), compare_completion);
}

static u64 log_sectors(const struct log_entry *entry)
{
	return entry->nr_sectors * (run.set.block_bytes / SECTOR_BYTES);
}

static void match_entry(struct request *like, u64 payload)
{
	struct request *r;
	u32 i;

	for (i = 0; i < run.nr_requests; i++) {
		r = &run.requests[by_completion[i]];
		if (r->payload != UINT64_MAX || !same_request(r, like))
			continue;
		r->payload = payload;
		return;
	}
	fail("the log has a write that the trace lacks: medium %u %u+%u flags %u",
	     like->medium, like->sector, like->count, like->flags);
}

static u64 take_data(const u8 *data, u64 bytes)
{
	static u64 room;
	u64 at = run.payload_bytes;

	if (at + bytes > room) {
		room = (at + bytes) * 2;
		run.payload = realloc(run.payload, room);
		if (!run.payload)
			fail("no memory for %" PRIu64 " bytes of log", room);
	}
	if (bytes)
		memcpy(run.payload + at, data, bytes);
	run.payload_bytes += bytes;
	return at;
}

bool log_next(const u8 *log, u64 *at, struct log_write *w)
{
	const struct log_super *super = (const struct log_super *)log;
	const struct log_entry *entry;

	if (super->magic != LOG_MAGIC || super->sector_bytes != run.set.block_bytes)
		fail("there is no log");
	do {
		u64 index = *at >> 40, offset = *at & ((1ULL << 40) - 1);

		if (!offset)
			offset = run.set.block_bytes;
		if (index == super->nr_entries)
			return false;
		entry = (const struct log_entry *)(log + offset);
		w->sector = entry->sector * (run.set.block_bytes / SECTOR_BYTES);
		w->count = log_sectors(entry);
		w->data = NULL;
		w->flags = (entry->flags & LOG_FLUSH ? REQUEST_FLUSH : 0) |
			   (entry->flags & LOG_FUA ? REQUEST_FUA : 0) |
			   (entry->flags & LOG_DISCARD ? REQUEST_DISCARD : 0);
		offset += run.set.block_bytes;
		if (!(entry->flags & LOG_DISCARD) && w->count) {
			w->data = log + offset;
			offset += (u64)w->count * SECTOR_BYTES;
		}
		*at = (index + 1) << 40 | offset;
	} while (entry->flags & LOG_MARK);
	return true;
}

static void log_read(u32 medium)
{
	struct log_write w;
	u64 at = 0;

	while (log_next(media[medium].log, &at, &w)) {
		struct request like = {
			.medium = medium, .sector = w.sector, .count = w.count, .flags = w.flags,
		};

		if (w.count)
			match_entry(&like, take_data(w.data, w.data ?
						     (u64)w.count * SECTOR_BYTES : 0));
	}
}

static void check_all_matched(void)
{
	const struct request *r;

	for (r = run.requests; r < run.requests + run.nr_requests; r++)
		if (r->count && r->payload == UINT64_MAX)
			fail("the trace has a write that the log lacks: medium %u %u+%u",
			     r->medium, r->sector, r->count);
}

static void medium_free(struct medium *m)
{
	loop_free(&m->base_loop);
	loop_free(&m->log_loop);
	close(m->base_file);
	close(m->log_file);
}

/* Removing the logged device is what makes the log whole. */
void record_stop(void)
{
	u32 i;

	dm_remove(origin_name);
	dm_remove(store_name);
	for (i = 0; i < run.set.nr_media; i++) {
		if (has_faces()) {
			dm_remove(media[i].face);
			dm_remove(media[i].mid);
		}
		dm_remove(media[i].name);
	}
	trace_read();
	sort_requests();
	for (i = 0; i < run.set.nr_media; i++) {
		log_read(i);
		medium_free(&media[i]);
	}
	check_all_matched();
	free(by_completion);
}

/* ---- recordings in files ---- */

#define FILE_MAGIC	0x32687361726377f0ULL

static void transfer(FILE *file, void *data, size_t bytes, bool save)
{
	if (bytes && (save ? fwrite(data, bytes, 1, file) : fread(data, bytes, 1, file)) != 1)
		fail("a recording: %s", strerror(errno));
}

static void transfer_tags(FILE *file, u32 **tags, u32 count, bool save)
{
	u8 present = *tags != NULL;

	transfer(file, &present, 1, save);
	if (!present)
		return;
	if (!save)
		*tags = allocate(count * sizeof(**tags));
	transfer(file, *tags, count * sizeof(**tags), save);
}

static void transfer_view(FILE *file, struct view *v, bool save)
{
	u32 count = run.set.origin_sectors;

	transfer(file, v, offsetof(struct view, window), save);
	transfer_tags(file, &v->window, v->nr_window, save);
	transfer_tags(file, &v->before, count, save);
	transfer_tags(file, &v->first, count, save);
	transfer_tags(file, &v->last, count, save);
}

static void transfer_all(const char *path, bool save)
{
	FILE *file = fopen(path, save ? "we" : "re");
	u64 magic = FILE_MAGIC;
	u32 i;

	if (!file)
		fail("%s: %s", path, strerror(errno));
	transfer(file, &magic, sizeof(magic), save);
	if (magic != FILE_MAGIC)
		fail("%s is no recording", path);
	transfer(file, &run, offsetof(struct recording, ops), save);
	if (!save) {
		run.ops = allocate(run.nr_ops * sizeof(*run.ops));
		run.views = allocate(run.nr_views * sizeof(*run.views));
		run.requests = allocate(run.nr_requests * sizeof(*run.requests));
		run.events = allocate(run.nr_events * sizeof(*run.events));
		run.payload = allocate(run.payload_bytes);
	}
	transfer(file, run.ops, run.nr_ops * sizeof(*run.ops), save);
	transfer(file, run.requests, run.nr_requests * sizeof(*run.requests), save);
	transfer(file, run.events, run.nr_events * sizeof(*run.events), save);
	transfer(file, run.payload, run.payload_bytes, save);
	for (i = 0; i < run.nr_views; i++)
		transfer_view(file, &run.views[i], save);
	if (fclose(file))
		fail("%s: %s", path, strerror(errno));
}

void recording_save(const char *path)
{
	transfer_all(path, true);
}

void recording_load(const char *path)
{
	transfer_all(path, false);
}

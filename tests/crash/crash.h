/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cowcrash: what power cuts leave of an origin and its snapshots.
 *
 * First a workload runs and is recorded: every write that reaches the devices
 * below, in the order in which writes and flushes were issued and completed, and
 * between them when each operation began and was acknowledged. Then the recording
 * is cut at many places; for each cut the media are made as a power cut there
 * could have left them, the devices are activated on these, and all they hold
 * is compared with what it may be.
 *
 * An operation's number is the tag of the sectors it writes, as in tests/model;
 * tag 0 stands for a sector of zeros, whichever operation has zeroed it.
 */
#ifndef COWSNAP_TESTS_CRASH_H
#define COWSNAP_TESTS_CRASH_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECTOR_BYTES	512
#define MAX_IO_SECTORS	2048
#define MAX_VIEWS	256
#define MAX_WORKERS	8
#define MAX_OPS		100000
#define ORIGIN_VIEW	0	/* views[0] is the origin, each snapshot ever made another */
#define NEVER		UINT32_MAX

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;

enum op_kind {
	OP_NONE,
	OP_FILL,		/* the content before all */
	OP_WRITE,
	OP_DISCARD,
	OP_ZERO,		/* a write of zeros without data */
	OP_FSYNC,
	OP_CREATE,
	OP_DELETE,
	OP_OPEN,		/* a snapshot's device is made */
	OP_CLOSE,		/* and removed */
	OP_MERGE,		/* the merge's table takes the place of the origin's */
	OP_MERGED,		/* the origin's is back */
	OP_GROW,		/* count: sectors of the store from now on */
	OP_RESTART,		/* all devices go and come back */
	OP_COMMIT,
	OP_LOOK,		/* at the states: which snapshots are left */
	OP_TRACK,		/* a snapshot is given up to a tracker */
	NR_OP_KINDS,
};

/* Its begin and its acknowledgement are places among the events. */
struct op {
	u8 kind;
	bool dsync;
	u16 view;
	u32 sector;
	u32 count;
	u32 begin;
	u32 ack;
};

enum gone {
	GONE_NOT,
	GONE_DELETED,		/* for good when acknowledged */
	GONE_DROPPED,		/* to make room, and not yet deleted */
	GONE_MERGED,
};

struct range {
	u32 sector;
	u32 count;		/* 0: none */
};

struct view {
	u32 id;
	u32 created;		/* operation; 0: never */
	u32 gone_begin;		/* operations */
	u32 gone_end;
	u32 gone;		/* enum gone */
	u32 track;		/* operation: it was given up to a tracker; 0: it was not */
	u32 untrack;		/* and that was deleted; 0: it was not */
	u32 nr_window;
	u32 *window;		/* changes of the origin under way while it was made */
	u32 *before;		/* tags of the origin when its making began */
	u32 *first;		/* its own tags when it had been made */
	u32 *last;		/* and when its merge began, or it was given up */
	/* the rest is not kept in a recording */
	u32 *tag;		/* what each sector holds now */
	u32 looked;		/* operation: was there then */
	int fd;
	bool open;
	char name[40];
	char path[40];
	struct range busy[MAX_WORKERS + 1];
};

enum request_flags {
	REQUEST_FLUSH = 1,
	REQUEST_FUA = 2,
	REQUEST_DISCARD = 4,
};

/* One bio at a logged device. */
struct request {
	u32 medium;
	u32 flags;
	u32 sector;
	u32 count;
	u32 issued;		/* events */
	u32 completed;
	u64 payload;		/* where its data begins */
};

enum event_type {
	EVENT_ISSUE,
	EVENT_COMPLETE,
	EVENT_BEGIN,
	EVENT_ACK,
};

struct event {
	u32 type;
	u32 index;		/* of a request or an operation */
};

/* What a recording is made with; all of it is needed to make sense of it later. */
struct settings {
	u64 seed;
	u32 origin_sectors;
	u32 store_sectors;	/* at first */
	u32 store_most;		/* after all growing */
	u32 block_bytes;
	u32 chunk_sectors;
	u32 nr_media;		/* 1: origin and store share a device and its cache */
	u32 nr_operations;	/* of the workers, all together */
	u32 nr_workers;
	u32 stock;		/* dm-snapshot's targets: a check of the checker */
	u32 snapshots;		/* most at a time */
	u32 merges;
	u32 grows;
	u32 drops;		/* on_full drop_oldest, in a store that fills */
	u32 discards;
	u32 running;		/* snapshots are made while writers run, too */
	u32 restarts;
	u32 commits;
	u32 throttle;		/* percent, while a snapshot is merged; 0: none */
	u32 tracks;		/* snapshots are given up to trackers */
	u32 logs;		/* the store has a log */
	u32 seals;		/* the origin is sealed, once there is a store */
	u32 redirects;		/* percent of the store for redirected writes; 0: none */
	u32 settles;		/* they are brought home at once */
	u32 zeroes;		/* write-zeroes, too; FUA is missing then as well */
	u32 no_fua;		/* the devices have a cache, and no FUA */
};

struct recording {
	struct settings set;
	u32 nr_ops;
	u32 nr_views;
	u32 nr_requests;
	u32 nr_events;
	u64 payload_bytes;
	struct op *ops;
	struct view *views;
	struct request *requests;
	struct event *events;
	u8 *payload;
};

extern struct recording run;

/* content.c: what a sector holds, random numbers, words for what went wrong */
u64 next_random(u64 *state);
u32 below(u64 *state, u32 limit);
bool chance(u64 *state, u32 percent);
void fill_sectors(u8 *buf, u32 sector, u32 count, u32 tag);
bool sector_is_zero(const u8 *buf);
u32 sector_tag(const u8 *buf, u32 sector);
void print_op(u32 tag);
void print_content(const u8 *buf);
void print_history(u32 sector);
void *allocate(size_t bytes);
void *aligned(size_t bytes);
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#define BAD_TAG		UINT32_MAX

/* device.c: device mapper and loop devices by their ioctls */
struct loop {
	int fd;
	char path[24];
};

int dm_make(const char *name, char *path, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
int dm_load(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* @nr sectors from @bad on give errors; all others are those of @below. */
int dm_load_bad(const char *name, const char *below, u32 sectors, u32 bad, u32 nr);
int dm_suspend(const char *name);
int dm_resume(const char *name);
int dm_remove(const char *name);
int dm_message(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int dm_status(const char *name, char *line, size_t size);
void loop_make(struct loop *loop, int file, u64 offset, u64 bytes, u32 block_bytes);
void loop_free(struct loop *loop);
int memory_file(const char *name, u64 bytes, u8 **map);
int open_device(const char *path);

/* record.c: the logged devices, and what the log and the trace say of them */
extern char origin_below[40], store_below[40];

void record_start(void);
void record_mark(char what, u32 op);
void record_grow(u32 store_sectors);
void record_stop(void);
void recording_save(const char *path);
void recording_load(const char *path);

/* The log of a device, entry by entry. */
struct log_write {
	u32 flags;		/* enum request_flags */
	u32 sector;
	u32 count;
	const u8 *data;		/* NULL: a discard, or no data at all */
};

/* Is there an entry at *@at, 0 for the first? Marks are none. */
bool log_next(const u8 *log, u64 *at, struct log_write *w);

/* again.c: another cut while a store is opened */
void again_init(void);
void again_start(const char *device, const char *below, u32 sectors);
void again_stop(const char *device, const char *below, u32 sectors);
/*
 * Apply to @image, the store before, what a cut among the writes logged may have left. @at_end:
 * after all of them, which leaves out what was not durable by then.
 */
void again_cut(u8 *image, u64 *random, bool at_end);
void again_exit(void);

/*
 * changed.c: what cowsnap diff says has changed since snapshot, or tracker, @id: true in @listed,
 * by sector. False: it refuses.
 */
bool changed_ask(const char *tool, const char *store, u32 id, bool *listed);

/* workload.c */
void workload_run(void);

/* media.c: what the media hold after a cut */
enum lie {
	LIE_NONE,
	LIE_DROP,		/* lose some of what was durable */
	LIE_FLUSH,		/* flushes do nothing */
	LIE_FUA,		/* FUA does nothing */
	NR_LIES,
};

extern enum lie lie;
extern u32 media_bytes[2];

void media_init(void);
void media_event(u32 event);
void media_cut(u8 * const maps[2], u64 *random, bool exact);
void media_print(void);
/* A sector of a write to @medium at or after @from that was on its way then, or NEVER. */
u32 media_in_flight(u32 medium, u32 from, u32 event, u64 *random);

/* verify.c: what the devices must hold after a cut */
struct cut {
	u32 number;
	u32 event;
	bool exact;		/* nothing but what is durable */
};

/* In percent of the cuts. */
extern u32 second_cuts, unreadables;

extern char check_tool[256];
extern const char *images_directory;
extern u64 nr_checked, nr_compared, nr_trackers, nr_unborn, nr_unreadable;
extern u64 nr_second, nr_merge_cuts, nr_bad_supers;

void verify_init(void);
void verify_event(u32 event);
bool verify_cut(const struct cut *cut);
void verify_exit(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The model checker of dm-cowsnap: what its parts share.
 *
 * Every operation gets a number, its place in one history. A sector written
 * by operation n holds content made from (seed, sector, n), so whatever is read
 * back says which write it came from. The model of a device is then one
 * number per sector, its tag; tag 0 stands for a sector of zeros.
 *
 * A thread locks the range it works on, so the tag of each sector is exact but
 * in one case: a snapshot made while writers run. Operations that overlap
 * the making are noted in the snapshot's window, and each sector they touch
 * may hold any of those values until the first read of it decides. All decisions
 * together must still be explained by one instant (see settle_sector()).
 */
#ifndef COWSNAP_TESTS_MODEL_H
#define COWSNAP_TESTS_MODEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECTOR_BYTES	512
#define MAX_IO_SECTORS	4096	/* 2 MiB */
#define MAX_THREADS	32	/* the controller is one more */
#define MAX_STORES	16
#define ORIGIN_VIEW	0	/* views[0] is the origin, the others are snapshots */

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint8_t u8;

enum op_kind {
	OP_FILL,		/* the content before the first snapshot */
	OP_WRITE,
	OP_ZEROOUT,
	OP_DISCARD,
	OP_READ,
	OP_FSYNC,
	OP_CONTROL,		/* create, remove, suspend, ...: see the note */
	NR_OP_KINDS,
};

/* One line of the history; the tag of what it writes is its index. */
struct op {
	enum op_kind kind;
	int view;
	int thread;
	u64 sector;
	u32 count;
	u64 start_ns;
	u64 end_ns;		/* 0: still going */
	char note[24];
};

/* What ran while a snapshot was being made: tags, in the order of their start. */
struct window {
	u64 *tags;
	size_t nr;
	u64 after_ns;		/* the instant is not before this ... */
	u64 before_ns;		/* ... and not after this */
	u64 after_tag;		/* the operations that drew the two lines, 0: the making */
	u64 before_tag;
};

enum view_state {
	VIEW_ABSENT,
	VIEW_LIVE,
	VIEW_LEAVING,		/* waits for its users, takes no new ones */
	VIEW_INVALID,		/* its store is full, which was allowed */
};

struct range {
	u64 sector;
	u64 count;		/* 0: none held */
};

struct view {
	int index;
	char name[48];
	char path[80];
	char table[256];
	int fd;
	enum view_state state;
	int users;
	u64 *tag;
	u8 *unsettled;		/* sectors whose tag is one of the window's */
	struct window window;
	pthread_mutex_t lock;	/* guards state, users and busy */
	pthread_cond_t changed;
	struct range busy[MAX_THREADS + 1];
	/* snapshots only */
	const char *store;
	u32 chunk_sectors;
	bool may_overflow;
	bool discards;
	bool exists;		/* its id is in the store, device or no device */
};

struct options {
	u64 seed;
	u64 ops;
	u64 time_seconds;
	int threads;
	const char *origin;
	int nr_stores;
	bool ids;			/* one persistent store for all snapshots */
	bool stock;		/* dm-snapshot's own targets: checks the checker */
	bool always_suspend;
	bool discard;
};

extern struct options opt;
extern struct view views[MAX_STORES + 1];
extern int nr_views;
extern u64 device_sectors;
extern u32 block_sectors;
extern u64 nr_counted[NR_OP_KINDS];

/* content.c: what a sector holds, and the history that explains it */
u64 now_ns(void);
void history_init(u64 capacity);
u64 history_add(enum op_kind kind, int view, int thread, u64 sector, u32 count);
void history_end(u64 tag);
struct op *history_op(u64 tag);
u64 history_used(void);
void note_control(int view, const char *note);
void fill_sectors(u8 *buf, u64 sector, u32 count, u64 tag);
bool sector_holds(const u8 *buf, u64 sector, u64 tag);
void report_mismatch(const struct view *v, u64 sector, const u8 *got);
void report_history(u64 sector);
void report_unfinished(u64 tag);
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* view.c: devices with their model */
void view_init(struct view *v, int index, const char *name);
bool view_get(struct view *v);
void view_put(struct view *v);
void view_drain(struct view *v, enum view_state next);
void view_open(struct view *v);
void view_close(struct view *v);
void view_write(struct view *v, int thread, u64 sector, u32 count, u8 *buf);
void view_zeroout(struct view *v, int thread, u64 sector, u32 count, u8 *buf);
void view_discard(struct view *v, int thread, u64 sector, u32 count, u8 *buf);
void view_read(struct view *v, int thread, u64 sector, u32 count, u8 *buf);
void view_fsync(struct view *v, int thread);
void view_compare(struct view *v, int thread, u8 *buf);
void window_open(struct view *snap, int threads);
void window_close(struct view *snap);

/* dm.c: device mapper */
void dm_create(struct view *v);
void dm_remove(const struct view *v);
void dm_reload(const struct view *v);
void dm_suspend(const struct view *v, u32 flags);
void dm_resume(const struct view *v);
void dm_status(const struct view *v, char *line, size_t size);
void dm_message(const struct view *v, const char *message);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the workload share; workload.c says which they are. */
#ifndef COWSNAP_TESTS_WORKLOAD_H
#define COWSNAP_TESTS_WORKLOAD_H

#include "crash.h"

struct worker {
	u32 number;
	u64 random;
	u8 *buf;
	pthread_t id;
};

/* The state of a workload that is under way. */
struct load {
	pthread_rwlock_t gate;	/* devices stay as they are: see workload.c */
	struct view *origin;

	/* Guards tags, busy ranges, which snapshots there are, and what follows. */
	pthread_mutex_t lock;
	pthread_cond_t changed;	/* a range is free */
	u32 in_flight[MAX_WORKERS + 1];	/* each worker's change of the origin, or 0 */
	struct view *window;	/* of the snapshot being made */

	/* Counters of the workers' operations; atomic. */
	u32 nr_started;
	u32 nr_allowed;		/* to start */

	/* Set at the start. */
	u32 block_sectors;
	bool origin_discards;	/* cleared by a worker that finds that it does not */

	/* The controller's own. */
	u32 store_sectors;	/* now */
	u32 nr_grown;
	struct view *merging;
	bool merged_stock;	/* dm-snapshot's store has been merged: there is no more */
};

extern struct load load;

/* operation.c */
u32 view_index(const struct view *v);
u32 op_begin(struct worker *w, enum op_kind kind, u32 view, u32 sector, u32 count);
void op_ack(u32 tag);
/* The change is over; each sector has @tag, or what @tags says. */
void change_end(struct worker *w, struct view *v, const struct op *op, const u32 *tags, u32 tag);
void range_lock(struct worker *w, struct view *v, u32 sector, u32 count);
void range_unlock(struct worker *w, struct view *v);
/* From now on changes of the origin are noted for @v, which is about to be made. */
void window_open(struct view *v);
void window_close(struct view *v);
/* May a change with @tag, made while @v was, have reached @sector of it? */
bool in_window(const struct view *v, u32 sector, u32 tag);

/* worker.c */
bool view_is_lost(const struct view *v);
void read_sectors(struct view *v, u32 sector, u32 count, u8 *buf);
/* All of @v must have the tags that the model has. */
void compare_live(struct worker *w, struct view *v);
void worker_fsync(struct worker *w, struct view *v);
void *worker_run(void *data);

/* views.c; the gate is held exclusively where workers use the device */
void origin_table(char *table, size_t size, bool store);
void replace_origin_table(const char *table);
void open_origin(bool store);
void open_snapshot(struct view *v, bool create);
void close_view(struct view *v);
void restart_devices(struct worker *w);
/* The origin's device has to begin with a seal. */
void see_seal(void);
/* The origin is sealed while nothing is open. Of the snapshots @v alone is. */
void seal_origin(struct worker *w, struct view *v);

/* snapshots.c */
struct view *view_new(u32 id);
struct view *snapshot_create(struct worker *w, bool by_table, bool running);
struct view *pick_snapshot(struct worker *w, bool closed);
u32 count_snapshots(void);
void set_gone(struct view *v, enum gone how, u32 begin, u32 end);
void close_snapshot(struct worker *w, struct view *v);
void reopen_snapshot(struct worker *w, struct view *v);
/* By its id: what is left of one that was merged has to go as well. */
u32 delete_id(struct worker *w, const struct view *v);
void delete_snapshot(struct worker *w, struct view *v);
/* It becomes a tracker, if the store has room for one. */
void give_up_snapshot(struct worker *w, struct view *v);
/* The trackers there are, and one of them, or NULL. */
u32 count_trackers(void);
struct view *pick_tracker(struct worker *w);
void delete_tracker(struct worker *w, struct view *v);
/* Which snapshots were dropped to make room? All are open where that may be. */
void look_for_dropped(struct worker *w);

/* merging.c */
void merge_snapshot(struct worker *w, struct view *v);

/* workload.c */
void allow_operations(u32 more);

#endif

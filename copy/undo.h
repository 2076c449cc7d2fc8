/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the undo buffer of transient stores */
#ifndef DM_COWSNAP_COPY_UNDO_H
#define DM_COWSNAP_COPY_UNDO_H

#include <linux/workqueue.h>

struct cow_bio;
struct cow_job;
struct cow_origin;
struct cow_pending;
struct cow_store;

/* The value of undo_buffer for a new store, in KiB. */
unsigned int cow_undo_default(void);

/* Shall the copy that @job has read stay in memory for now? Engine's worker. */
bool cow_undo_keep(struct cow_pending *pending, struct cow_job *job);

/* It is in the map, and no longer pending. origin->state_lock held. */
void cow_undo_add(struct cow_pending *pending);

/* It did not get there. Drops origin->state_lock, which is held, meanwhile. Worker. */
void cow_undo_drop(struct cow_pending *pending);

/* If any of these chunks is kept, @cb waits until it is written. origin->state_lock held. */
bool cow_undo_wait(struct cow_bio *cb, u64 first, u64 nr);

/* Memory is short: have everything written. origin->state_lock held. */
void cow_undo_kick(struct cow_origin *origin);

/* Wait until all is written; nothing is kept before cow_undo_open(). May sleep. */
void cow_undo_flush(struct cow_store *store);
void cow_undo_open(struct cow_store *store);

/* The store is closed, and nothing will be read: drop all copies. May sleep. */
void cow_undo_close(struct cow_store *store);
void cow_undo_work(struct work_struct *work);

#endif

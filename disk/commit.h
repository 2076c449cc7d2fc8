/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: commits */
#ifndef DM_COWSNAP_DISK_COMMIT_H
#define DM_COWSNAP_DISK_COMMIT_H

#include <linux/blkdev.h>
#include <linux/list.h>

struct cow_job;
struct cow_meta;
struct cow_meta_batch;
struct cow_origin;
struct cow_pending;
struct cow_store;
struct work_struct;

/*
 * Fill in the slots of @pending and have them committed together with its data; it is
 * published when both are durable. @job has the data (NULL: it is durable already).
 *
 * False: pending->status is set after an error, and the caller goes on. Without memory for
 * table blocks pending->again is set (with @job), and the data must not be written:
 * cow_meta_data_done() has it copied again. Without @job, joining is tried again later, and
 * the result is true. Engine's worker.
 */
bool cow_meta_join(struct cow_pending *pending, struct cow_job *job);

/*
 * The data of a pending that joined has ended, well or not. True: it is to be published
 * now, by the caller. Engine's worker.
 */
bool cow_meta_data_done(struct cow_pending *pending);

/* Take the first off origin->meta_work; NULL if it is empty. origin->reads_lock held. */
struct cow_meta *cow_meta_pop(struct cow_origin *origin);

/* Take @meta off that list, if it is on it. origin->reads_lock held. */
void cow_meta_unlist(struct cow_meta *meta);

/* Nothing but the caller writes metadata until cow_meta_release(). May sleep. */
void cow_meta_acquire(struct cow_meta *meta);
void cow_meta_release(struct cow_meta *meta);

/*
 * A caller that has released the metadata, and acquires it again soon, lets a commit go on for
 * which something waits: until it has ended, but for no more than 100 ms. May sleep.
 */
void cow_meta_yield(struct cow_meta *meta);

/*
 * Between two writes of one that has acquired the metadata, and says that it has time
 * (meta->unhurried): let the device serve others for 50 ms, and then until no bio waits for a
 * copy, for 100 ms at most. Only until somebody waits for the metadata, for table blocks or for the
 * zones of the log, or the store is closed. May sleep.
 */
void cow_meta_breathe(struct cow_meta *meta);

/*
 * A long copy that writes need has gone without a commit, or somebody waits for one of another kind
 * now: members that wait for others may wait no longer. Any context.
 */
void cow_meta_look_again(struct cow_meta *meta);

/* A commit has waited for long copies for as long as it may. Of store->alone_work. */
void cow_commit_alone_work(struct work_struct *work);

/* Somebody is about to wait for it: ends that. Any context. */
void cow_meta_hasten(struct cow_meta *meta);

/*
 * The same between two writes of empty table blocks, with nothing acquired, until somebody waits
 * for these. Only for a device that seeks. May sleep.
 */
void cow_store_breathe(struct cow_store *store);

/*
 * Before the first of several writes that nobody waits for, with nothing acquired: let the device
 * end the copies that bios wait for, for 100 ms at most. Only for a device that seeks. May sleep.
 */
void cow_store_be_calm(struct cow_store *store);

/* Have cow_meta_go_on() called. Any context. */
void cow_meta_kick(struct cow_meta *meta);

/* REQ_FUA if that is how writes to this store become durable, else 0. */
blk_opf_t cow_meta_fua(const struct cow_meta *meta);

/*
 * How many flushes of the store have failed: see origin/flush.h. And are there more by now than
 * then, so that what was written with cow_meta_fua() in between may be lost? Any context.
 */
unsigned int cow_meta_losses(const struct cow_meta *meta);
bool cow_meta_has_lost(const struct cow_meta *meta, unsigned int since);

/* What another flush may have lost is written, or flushed, so often in all. */
#define COW_WRITE_TRIES		3U

/*
 * Write metadata of the store and wait, with the metadata acquired or under a lock of its own. With
 * REQ_FUA it is durable. With REQ_PREFLUSH it comes behind a flush, unless the device has FUA; the
 * error of that is not its own: who relies on what was written before without cow_meta_fua() calls
 * cow_meta_flush(). Returns 0 or a negative errno. May sleep.
 */
int cow_meta_write(struct cow_meta *meta, blk_opf_t flags, sector_t sector, void *data,
		   size_t bytes);

/*
 * Begin a batch of writes (disk/io.h) to the store, with the flags of cow_meta_fua(). Its end
 * returns 0, or the negative errno of one that failed. May sleep.
 */
void cow_meta_batch_begin(struct cow_meta *meta, struct cow_meta_batch *batch, blk_opf_t flags);
int cow_meta_batch_end(struct cow_meta *meta, struct cow_meta_batch *batch);

/*
 * Flush the store. 0: all that was written without FUA since cow_meta_losses() was @since is
 * durable. Else a negative errno: any of it may be lost, and nobody says so a second time. May
 * sleep.
 */
int cow_meta_flush(struct cow_meta *meta, unsigned int since);

/*
 * A commit is durable: once the store has been idle for a second the superblocks name
 * it, and nothing of it is in doubt after a crash. Any context.
 */
void cow_meta_note(struct cow_meta *meta);

/*
 * If the commit under way has ended: those of its members that are to be published now, in
 * order, go to @ended, by ->member (with ->status if it failed); those that had found no
 * memory for their blocks go to @retry, to be copied (->again) or joined again. The caller
 * deals with both and then calls cow_meta_go_on(). False: a commit is still under way, and
 * there is nothing more to do. Engine's worker.
 */
bool cow_meta_collect(struct cow_meta *meta, struct list_head *ended,
		      struct list_head *retry);

/*
 * Begin the next commit, if there is something to commit. True: it is over already, and the caller
 * collects what it made durable. Engine's worker.
 */
bool cow_meta_go_on(struct cow_meta *meta);

#endif

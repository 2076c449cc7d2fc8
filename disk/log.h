/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: copies that are committed by records of the log */
#ifndef DM_COWSNAP_DISK_LOG_H
#define DM_COWSNAP_DISK_LOG_H

#include <linux/blkdev.h>
#include <linux/types.h>

struct cow_job;
struct cow_meta;
struct cow_pending;

/*
 * Commit @pending, a copy whose data is in @job, by a record of the log: it gets a place behind the
 * record, and gives back the one it had. False: the log does not take it, and the caller goes on
 * with the tables; nothing has changed. Only from the job's ->ready.
 */
bool cow_log_add(struct cow_pending *pending, struct cow_job *job);

/* Write the record that has been begun in this round, if there is one. Engine's worker. */
void cow_log_send(struct cow_meta *meta);

/*
 * The write of the record that has @pending has ended: its slots come into the tables in memory,
 * or pending->status says why not. It is to be published now. Engine's worker.
 */
void cow_log_done(struct cow_pending *pending);

/* What the superblock may say of zone @index: records known durable. Any context. */
u32 cow_log_durable(const struct cow_meta *meta, unsigned int index);

/*
 * Zone @index has records of series @series from now on, of which @durable are there. None of its
 * records is under way, and none is begun until the zone is open.
 */
void cow_log_set_zone(struct cow_meta *meta, unsigned int index, u64 series, u32 durable);

/* For this long no zone is asked for: there is none. Any context. */
void cow_log_rest(struct cow_meta *meta, unsigned long delay);

/* The value of the option for a new store on @bdev. Any context. */
unsigned int cow_log_default(struct block_device *bdev);

#endif

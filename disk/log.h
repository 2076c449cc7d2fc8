/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: copies that are committed by records of the log */
#ifndef DM_COWSNAP_DISK_LOG_H
#define DM_COWSNAP_DISK_LOG_H

#include <linux/blkdev.h>
#include <linux/types.h>

#include "dm-cowsnap.h"

/* Where the durable records of each zone end. */
struct cow_log_note {
	u64 end[COWSNAP_ZONES];
};

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

/* The most chunks in one run that is redirected: a record takes it, or it is long. Any context. */
u32 cow_log_run_max(const struct cow_meta *meta);

/* What the superblock may say of zone @index: records known durable. Any context. */
u32 cow_log_durable(const struct cow_meta *meta, unsigned int index);

/*
 * Zone @index has records of series @series from now on, of which @durable are there. None of its
 * records is under way, and none is begun until the zone is open.
 */
void cow_log_set_zone(struct cow_meta *meta, unsigned int index, u64 series, u32 durable);

/*
 * Around a write of the superblock, which says how many records are durable: when it has succeeded
 * these are noted. With the superblocks locked.
 */
void cow_log_begin_note(const struct cow_meta *meta, struct cow_log_note *note);
void cow_log_end_note(struct cow_meta *meta, const struct cow_log_note *note);

/* Would such a write note more than the disk says already? Any context. */
bool cow_log_can_note(const struct cow_meta *meta);

/*
 * Does the disk say of the record of these chunks, of one run, that it is durable, so that nobody
 * asks for their checksums after a crash? True also of what no record of a named zone has.
 * origin->state_lock held.
 */
bool cow_log_is_noted(const struct cow_meta *meta, u64 place, u64 nr);

/* How long a zone that is due waits to be left. origin->state_lock held. */
unsigned long cow_log_turn_delay(const struct cow_meta *meta);

/* For this long no zone is asked for: there is none. Any context. */
void cow_log_rest(struct cow_meta *meta, unsigned long delay);

/* The value of the option for a new store on @bdev. Any context. */
unsigned int cow_log_default(struct block_device *bdev);

#endif

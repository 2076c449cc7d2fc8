/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: checksums of what snapshots read */
#ifndef DM_COWSNAP_DISK_VERIFY_H
#define DM_COWSNAP_DISK_VERIFY_H

#include <linux/bio.h>
#include <linux/workqueue.h>

struct cow_bio;
struct cow_job;
struct cow_slot_window;
struct cow_store;
struct cow_version;

int cow_verify_init(void);
void cow_verify_exit(void);

/* What @store needs to verify. May sleep; 0 or -ENOMEM. Without it closing does nothing. */
int cow_verify_open(struct cow_store *store);
void cow_verify_close(struct cow_store *store);

/*
 * @bio reads copied chunks and is about to be sent to the store. Returns how many of its
 * sectors, from its start, are whole chunks, or part of one.
 */
u64 cow_verify_front(struct cow_store *store, const struct bio *bio);

/*
 * Send @cb, cut as cow_verify_front() asked for, to the place of @v, in which it starts.
 * DM_MAPIO_REMAPPED, DM_MAPIO_SUBMITTED or -ENOMEM. Context: process, never sleeps.
 */
int cow_verify_read(struct cow_bio *cb, struct cow_store *store, const struct cow_version *v);

/* A read that is to be verified has completed. Any context. */
void cow_verify_queue(struct cow_bio *cb);
void cow_verify_work(struct work_struct *work);

/*
 * Has @v this crc? 0: yes. -EILSEQ: no. -EUCLEAN: the slot is another version's. Another
 * errno: the slot cannot be read. May sleep. @window, or NULL: for who asks for many in the order
 * of their places.
 */
int cow_verify_crc(struct cow_store *store, const struct cow_version *v,
		   struct cow_slot_window *window, u32 crc);

/* Has the job read the chunk of @v, with the right checksum? Engine's worker. */
blk_status_t cow_verify_job(struct cow_store *store, struct cow_job *job,
			    const struct cow_version *v);

#endif

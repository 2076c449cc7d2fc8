/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: metadata that is written in the background, ahead of need */
#ifndef DM_COWSNAP_DISK_PREPARE_H
#define DM_COWSNAP_DISK_PREPARE_H

#include <linux/workqueue.h>

struct cow_store;

/*
 * Make a new store on a device of zeroes, or go on with one that was not made to its end. Nobody
 * else knows the store yet. May sleep. 0, or a negative errno: close it.
 */
int cow_super_format(struct cow_store *store);

/*
 * Make so many table blocks ready, as far as the device has them, while commits go on. May sleep.
 * 0, or a negative errno: those before are ready.
 */
int cow_super_extend(struct cow_store *store, u64 blocks);
void cow_super_note_work(struct work_struct *work);
void cow_super_extend_work(struct work_struct *work);
void cow_super_mark_work(struct work_struct *work);

/*
 * Write the mark "invalid", let waiting bios go on, and only then write the records. A work
 * item.
 */
void cow_super_fail_work(struct work_struct *work);

#endif

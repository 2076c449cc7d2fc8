/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: stores that went away while their snapshots lived */
#ifndef DM_COWSNAP_ORIGIN_ABSENT_H
#define DM_COWSNAP_ORIGIN_ABSENT_H

#include <linux/types.h>

struct block_device;
struct cow_origin;

/*
 * A store with live snapshots is closed while its origin may stay in use. @written: the
 * origin counts as written already. cow_absent_take() forgets the store and returns whether
 * its origin was written meanwhile. May sleep.
 */
void cow_absent_add(struct cow_origin *origin, const u8 *uuid, bool written);
bool cow_absent_take(struct cow_origin *origin, const u8 *uuid);
void cow_absent_exit(void);

/*
 * The origin is written: remember it for all of its stores that are away. Any context.
 */
void cow_absent_note_write(struct cow_origin *origin);

/* What stores that are away know the origin on @bdev by. Never 0. May sleep. */
u64 cow_origin_identity(struct block_device *bdev);

/* How many stores of the origin of this identity are away. May sleep. */
unsigned int cow_absent_count(u64 identity);

#endif

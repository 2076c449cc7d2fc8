/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the origins and stores in use */
#ifndef DM_COWSNAP_ORIGIN_REGISTRY_H
#define DM_COWSNAP_ORIGIN_REGISTRY_H

#include <linux/blkdev.h>
#include <linux/mutex.h>

struct cow_origin;
struct cow_store;

extern struct mutex cow_registry_mutex;

/* The origin on @bdev, or the store on it, if there is one. registry_mutex held. */
struct cow_origin *cow_origin_find(struct block_device *bdev);
struct cow_store *cow_store_find(struct block_device *bdev);

/* List an origin, or no longer. registry_mutex held. */
void cow_registry_add(struct cow_origin *origin);
void cow_registry_del(struct cow_origin *origin);

#endif

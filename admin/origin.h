/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: origins are made with the first table that names them, and go with the last */
#ifndef DM_COWSNAP_ADMIN_ORIGIN_H
#define DM_COWSNAP_ADMIN_ORIGIN_H

#include <linux/blkdev.h>

struct cow_origin;

/* Find or make. ERR_PTR() as cow_store_get(). Context: may sleep, registry_mutex held. */
struct cow_origin *cow_origin_get(struct block_device *bdev, char **error);
void cow_origin_put(struct cow_origin *origin);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: status lines */
#ifndef DM_COWSNAP_TARGET_STATUS_H
#define DM_COWSNAP_TARGET_STATUS_H

#include <linux/device-mapper.h>

struct cow_store;

/* Of struct target_type. */
void cow_origin_status(struct dm_target *ti, status_type_t type, unsigned int flags,
		       char *result, unsigned int maxlen);
void cow_snap_status(struct dm_target *ti, status_type_t type, unsigned int flags,
		     char *result, unsigned int maxlen);
void cow_merge_status(struct dm_target *ti, status_type_t type, unsigned int flags,
		      char *result, unsigned int maxlen);

/* "<used>/<total> <metadata>", in sectors. origin->state_lock held. */
void cow_store_emit_room(struct cow_store *store, char *result, unsigned int maxlen,
			 unsigned int *size);

#endif

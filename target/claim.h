/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: in dm-snapshot's place */
#ifndef DM_COWSNAP_TARGET_CLAIM_H
#define DM_COWSNAP_TARGET_CLAIM_H

#include <linux/device-mapper.h>

enum cow_target_kind {
	COW_TARGET_ORIGIN,
	COW_TARGET_SNAP,
	COW_TARGET_MERGE,
	COW_NR_TARGETS,
};

/* Does a table of this type stand in for one of dm-snapshot's? Any context. */
bool cow_target_is_claimed(const struct target_type *type);

/*
 * With claim_snapshot=1: register dm-snapshot's names for @own as well, all or none of them.
 * May sleep. -EBUSY, after a line in the log, if they are taken.
 */
int cow_claim_register(struct target_type * const own[COW_NR_TARGETS]);
void cow_claim_unregister(void);

#endif

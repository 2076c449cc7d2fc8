// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: in dm-snapshot's place
 *
 * With claim_snapshot=1 the module also serves the targets snapshot-origin, snapshot
 * and snapshot-merge, so that LVM's own snapshots are kept in our stores:
 *
 *   0 <len> snapshot-origin <origin_dev>
 *   0 <len> snapshot        <origin_dev> <store_dev> <P|PO|N|NO> <chunk_sectors> [...]
 *   0 <len> snapshot-merge  <origin_dev> <store_dev> <P|PO> <chunk_sectors> [...]
 *
 * They are our own targets under other names. What users see of them is dm-snapshot's:
 * versions, tables without our features, a status of three numbers or one word, no
 * messages. Each store has one snapshot, id 0.
 *
 * If dm-snapshot has registered its names already, nothing is registered.
 */
#include <linux/module.h>

#include "dm-cowsnap.h"
#include "target/claim.h"

static bool claim_snapshot;
module_param(claim_snapshot, bool, 0444);
MODULE_PARM_DESC(claim_snapshot, "Serve dm-snapshot's targets as well, for LVM");

static const struct {
	const char *name;
	unsigned int version[3];
} claims[COW_NR_TARGETS] = {
	[COW_TARGET_ORIGIN] = { "snapshot-origin", { 1, 9, 0 } },
	[COW_TARGET_SNAP] = { "snapshot", { 1, 16, 0 } },
	[COW_TARGET_MERGE] = { "snapshot-merge", { 1, 5, 0 } },
};

static struct target_type claim_types[COW_NR_TARGETS];

bool cow_target_is_claimed(const struct target_type *type)
{
	return type >= claim_types && type < claim_types + COW_NR_TARGETS;
}

static void claim_unregister(unsigned int nr)
{
	while (nr--)
		dm_unregister_target(&claim_types[nr]);
}

static int claim_one(unsigned int i, const struct target_type *own)
{
	struct target_type *type = &claim_types[i];
	int r;

	*type = *own;
	type->name = claims[i].name;
	memcpy(type->version, claims[i].version, sizeof(type->version));
	type->message = NULL;
	r = dm_register_target(type);
	/* Older kernels return -EEXIST, which modprobe reports as "already loaded": success. */
	if (r == -EEXIST || r == -EBUSY) {
		DMERR("claim_snapshot: target %s is there already: unload dm-snapshot first",
		      type->name);
		r = -EBUSY;
	}
	return r;
}

int cow_claim_register(struct target_type * const own[COW_NR_TARGETS])
{
	unsigned int i;
	int r;

	if (!claim_snapshot)
		return 0;
	for (i = 0; i < COW_NR_TARGETS; i++) {
		r = claim_one(i, own[i]);
		if (r) {
			claim_unregister(i);
			return r;
		}
	}
	DMINFO("serves snapshot, snapshot-origin and snapshot-merge in dm-snapshot's place");
	return 0;
}

void cow_claim_unregister(void)
{
	if (claim_snapshot)
		claim_unregister(COW_NR_TARGETS);
}

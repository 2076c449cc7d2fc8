/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: struct cow_target: a table of one of the three targets */
#ifndef DM_COWSNAP_TARGET_TARGET_H
#define DM_COWSNAP_TARGET_TARGET_H

#include <linux/device-mapper.h>

#include "origin/bio.h"
#include "origin/tables.h"
#include "store/options.h"

struct cow_origin;
struct cow_snap;
struct cow_store;

/* What all three targets have; a cowsnap-origin has no store, or no snapshot. */
struct cow_target {
	struct cow_table table;
	struct dm_dev *origin_dev;
	struct dm_dev *store_dev;
	struct cow_origin *origin;
	struct cow_store *store;
	struct cow_snap *snap;
	enum cow_discard discard;
	struct cow_given options;
	bool claimed;			/* in dm-snapshot's place */
	bool gathers;			/* cow_gate_let_go() is owed: not resumed since the load */
	bool not_sealed;		/* the origin was looked at, for a table without a store */
	bool discard_given;
	bool id_given;
	bool discard_zeroes_cow;
	bool discard_passdown_origin;
};

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* Rebuild what can be rebuilt. */
#ifndef COWSNAP_TOOLS_REPAIR_H
#define COWSNAP_TOOLS_REPAIR_H

#include "report.h"
#include "store.h"

enum repair_result {
	REPAIR_NOTHING = 0,	/* the store is whole */
	REPAIR_DONE = 1,
	REPAIR_LEFT = 2,	/* data that is damaged, and stays so */
	REPAIR_FAILED = 3,	/* could not write, or no memory */
};

struct repair_options {
	bool dry;		/* say, do not write */
	bool invalidate;	/* give up snapshots with damaged data */
	bool lose_redirected;	/* go on where data of the origin may be lost */
};

/* A store loaded and verified is mended; one line to @r for each thing done. */
enum repair_result repair_store(struct store *s, const struct repair_options *o,
				struct report *r);

#endif

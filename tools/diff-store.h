/* SPDX-License-Identifier: GPL-2.0-only */
/* The store that diff and send ask. */
#ifndef COWSNAP_TOOLS_DIFF_STORE_H
#define COWSNAP_TOOLS_DIFF_STORE_H

#include "device.h"
#include "diff.h"

struct diff_store {
	const char *path;
	struct device dev;
	struct store s;
};

/* All of these return 0, or the status to end with after having said why. */
int diff_open(struct diff_store *ds, const char *path);
void diff_close(struct diff_store *ds);
/* d->a, d->b and d->changed; with @a NULL all of @b has changed. */
int diff_make(struct diff_store *ds, struct diff *d, const char *a, const char *b);

#endif

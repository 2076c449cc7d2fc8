/* SPDX-License-Identifier: GPL-2.0-only */
/* An origin and its store, both of them not in use. */
#ifndef COWSNAP_TOOLS_PAIR_H
#define COWSNAP_TOOLS_PAIR_H

#include "device.h"
#include "store.h"

struct pair {
	const char *origin_path, *store_path;
	bool write;
	struct device origin, device;
	struct store s;
};

/* What is above has been set. 0, or the status to end with after a sentence. */
int pair_open(struct pair *p);
void pair_close(struct pair *p);
/* Are numbers wrong that a superblock is written with? */
bool pair_is_odd(const struct pair *p);
/* Has cowsnap check anything to say? */
bool pair_is_damaged(struct pair *p);

#endif

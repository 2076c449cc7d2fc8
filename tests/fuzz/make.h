/* SPDX-License-Identifier: GPL-2.0-only */
/* A store that is whole, made up from a seed. */
#ifndef COWSNAP_FUZZ_MAKE_H
#define COWSNAP_FUZZ_MAKE_H

#include "image.h"

struct make_options {
	u64 seed;
	u32 block_bytes;
	u32 chunk_sectors;
	u64 origin_sectors;
	u32 snapshots;
	u64 exceptions;
	bool unfinished;	/* end with a commit that did not */
	bool logged;		/* the last copies are in a log alone */
	bool sealed;		/* what the origin begins with is in the store */
	bool redirected;	/* and some of the rest of it, if there is room */
	bool plain;		/* copied chunks only, no snapshot but live ones */
};

/* Fill @bytes of zeros. False if they are too few for the sizes. */
bool make_store(const struct make_options *o, u8 *data, size_t bytes);

/* Any sizes that fit, for fuzzing: an image is at most @bytes. */
size_t make_random_options(struct rng *r, size_t bytes, struct make_options *o);

#endif

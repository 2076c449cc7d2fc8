/* SPDX-License-Identifier: GPL-2.0-only */
/* Damage to a store, of every sort that a disk or an enemy can do. */
#ifndef COWSNAP_FUZZ_MUTATE_H
#define COWSNAP_FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

#include "image.h"

/* Called with what was done, in words; may be NULL. */
typedef void mutate_say(const char *text);

/*
 * Damage @data once. Half of what is forged gets the right checksum, so that it
 * comes past that. The new length is returned: never more than @bytes.
 */
size_t mutate(struct rng *r, u8 *data, size_t bytes, mutate_say *say);

/* The same, but only what a disk does: nothing gets a right checksum that had none. */
size_t mutate_as_disk(struct rng *r, u8 *data, size_t bytes, mutate_say *say);

/*
 * A sector or a few that cannot be read: @lost has a byte for each. Their content is no
 * longer what it was, so that whoever looks at it even so is noticed.
 */
void mutate_lose(struct rng *r, u8 *data, size_t bytes, u8 *lost, mutate_say *say);

/* One wrong bit in one table block: the tools mend it, so that nothing is lost. */
void mutate_one_bit(struct rng *r, u8 *data, size_t bytes, mutate_say *say);

#endif

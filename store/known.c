// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: chunks known to be preserved
 *
 * The map answers for every chunk; this table remembers some of its answers, so that a
 * chunk that is written again and again costs a load and a comparison. A word is found by
 * the chunk's number, without chains; it is about 32 neighbouring chunks:
 *
 *   63              32 31               0
 *   +-----------------+-----------------+
 *   | chunk >> 5      | known to be     |   a word is read and written whole, so it
 *   |                 | preserved       |   is right whatever was there before
 *   +-----------------+-----------------+
 *
 * An answer stays true until a snapshot is made: a chunk that is preserved for all live
 * snapshots, and whose tracked reads have completed, remains so when snapshots are deleted.
 * Making one shuts the gate of the origin, and forgets all under origin->state_lock: a task
 * that adds to the table holds the gate, or has seen the newest epoch under that lock.
 * Two tasks that add to one word at the same time may lose an answer, never make one up.
 */
#include <linux/mm.h>
#include <linux/module.h>

#include "store/known.h"

/* A word has no place for numbers beyond 2^32, so nothing is known of those chunks. */
static void word_add(struct cow_known *known, u64 number, u32 bits)
{
	u64 *word = &known->word[number % COW_KNOWN_WORDS];
	u64 was = READ_ONCE(*word);

	if (was >> 32 == number)
		bits |= (u32)was;
	/* After the lookup in the map. Pairs with smp_load_acquire() in cow_known_all(). */
	smp_store_release(word, number << 32 | bits);
}

void cow_known_add(struct cow_known *known, u64 first, u64 nr)
{
	u64 number, end = first + nr;

	if (!known->word)
		return;
	while (first < end && first / COW_KNOWN_BITS <= U32_MAX) {
		number = first / COW_KNOWN_BITS;
		word_add(known, number, cow_known_mask(first, end - first));
		first = (number + 1) * COW_KNOWN_BITS;
	}
}

void cow_known_forget(struct cow_known *known)
{
	if (known->word)
		memset(known->word, 0, COW_KNOWN_WORDS * sizeof(*known->word));
}

void cow_known_init(struct cow_known *known)
{
	known->word = kvcalloc(COW_KNOWN_WORDS, sizeof(*known->word),
			       GFP_KERNEL | __GFP_NOWARN);
}

void cow_known_exit(struct cow_known *known)
{
	kvfree(known->word);
}

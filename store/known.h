/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: chunks known to be preserved */
#ifndef DM_COWSNAP_STORE_KNOWN_H
#define DM_COWSNAP_STORE_KNOWN_H

#include <asm/barrier.h>
#include <linux/bits.h>
#include <linux/types.h>

/* 64 KiB; with chunks of 4 KiB this covers 1 GiB. */
#define COW_KNOWN_WORDS	8192U

#define COW_KNOWN_BITS	32U

struct cow_known {
	u64 *word;			/* NULL: no memory, so nothing is known */
};

/* Bits for those of @nr chunks from @first on that share its word. */
static inline u32 cow_known_mask(u64 first, u64 nr)
{
	unsigned int low = first % COW_KNOWN_BITS;
	u64 high = min_t(u64, low + nr, COW_KNOWN_BITS);

	return GENMASK(high - 1, low);
}

/* Are all of these known? At least one. Any context. */
static inline bool cow_known_all(const struct cow_known *known, u64 first, u64 nr)
{
	u64 end = first + nr;

	if (unlikely(!known->word))
		return false;
	do {
		u64 number = first / COW_KNOWN_BITS;
		u32 mask = cow_known_mask(first, end - first);
		/* Before the write that it allows. Pairs with smp_store_release() in word_add(). */
		u64 word = smp_load_acquire(&known->word[number % COW_KNOWN_WORDS]);

		if (word >> 32 != number || ~(u32)word & mask)
			return false;
		first = (number + 1) * COW_KNOWN_BITS;
	} while (first < end);
	return true;
}

void cow_known_init(struct cow_known *known);
void cow_known_exit(struct cow_known *known);

/*
 * These chunks are preserved for all live snapshots, and no tracked read of them is in
 * flight. Any context; the gate is held, or the state_lock of the origin with the newest epoch
 * still the one that they are preserved for.
 */
void cow_known_add(struct cow_known *known, u64 first, u64 nr);

/* A snapshot is being made. The gate is shut. */
void cow_known_forget(struct cow_known *known);

#endif

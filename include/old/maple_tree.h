/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: an ordered map from ranges to pointers, for kernels without a maple tree
 *
 * As much of the maple tree as the map of exceptions needs, with the same names
 * and contracts, so that it need not know which of them it has. Ranges do not
 * overlap. One writer at a time, which the caller sees to; any number of readers
 * under RCU.
 */
#ifndef DM_COWSNAP_OLD_MAPLE_TREE_H
#define DM_COWSNAP_OLD_MAPLE_TREE_H

#include <linux/gfp.h>
#include <linux/rbtree_latch.h>

struct maple_tree {
	struct latch_tree_root ranges;
};

#define MT_FLAGS_USE_RCU	0

/* The pointer of the range around @index, or NULL. Under RCU, or as the writer. */
void *mtree_load(struct maple_tree *mt, unsigned long index);

/*
 * The pointer of the first range that ends at or after *@index and begins at or before @max;
 * *@index is then behind that range. NULL: there is none. Under RCU, or as the writer.
 */
void *mt_find(struct maple_tree *mt, unsigned long *index, unsigned long max);

/*
 * Let [@first, @last] have @entry: a new range, one that is there, or the end of one that is
 * there, which becomes shorter. Readers see what was or what is. -ENOMEM: nothing has changed,
 * which cannot be where the range is there already.
 */
int mtree_store_range(struct maple_tree *mt, unsigned long first, unsigned long last,
		      void *entry, gfp_t gfp);

void mt_init_flags(struct maple_tree *mt, unsigned int flags);

/* No reader is left, nor a writer. */
void mtree_destroy(struct maple_tree *mt);

static inline void mt_clear_in_rcu(struct maple_tree *mt)
{
}

static inline void mt_set_in_rcu(struct maple_tree *mt)
{
}

#endif

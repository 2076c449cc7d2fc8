// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: an ordered map from ranges to pointers, for kernels without a maple tree
 *
 * A red-black tree in two copies (rbtree_latch): a reader walks the one that is not being
 * changed, and begins again if it was changed after all. What becomes of a range:
 *
 *   replaced   its pointer is swapped
 *   split      the right part comes into the tree as a range of its own, beside the one that
 *              still reaches over it; then that one is cut
 *
 * So at each instant every index that has been stored is in a range. In between two ranges
 * have it, and what either pointer says of it is right.
 */
#include <linux/errno.h>
#include <linux/slab.h>

#include "dm-cowsnap-compat.h"

struct map_range {
	struct latch_tree_node node;
	unsigned long first, last;
	void __rcu *entry;
};

static struct map_range *range_of(struct latch_tree_node *node)
{
	return container_of(node, struct map_range, node);
}

static bool range_less(struct latch_tree_node *a, struct latch_tree_node *b)
{
	return range_of(a)->first < range_of(b)->first;
}

static const struct latch_tree_ops range_ops = {
	.less = range_less,
};

/* The lowest range in one copy of the tree that ends at or after @index. */
static struct map_range *walk(struct maple_tree *mt, unsigned int copy, unsigned long index)
{
	struct rb_node *at = rcu_dereference_raw(mt->ranges.tree[copy].rb_node);
	struct map_range *found = NULL;

	while (at) {
		struct map_range *range = range_of(container_of(at, struct latch_tree_node,
							    node[copy]));

		if (index > READ_ONCE(range->last)) {
			at = rcu_dereference_raw(at->rb_right);
		} else {
			found = range;
			if (index >= range->first)
				break;
			at = rcu_dereference_raw(at->rb_left);
		}
	}
	return found;
}

static struct map_range *find_range(struct maple_tree *mt, unsigned long index)
{
	struct map_range *range;
	unsigned int seq;

	do {
		seq = raw_read_seqcount_latch(&mt->ranges.seq);
		range = walk(mt, seq & 1, index);
	} while (read_seqcount_latch_retry(&mt->ranges.seq, seq));
	return range;
}

/*
 * Once a range has been cut its pointer may be one that knows nothing of the part cut off. So
 * its end is read again after the pointer; mtree_store_range() writes them in the other order.
 */
static void *range_entry(struct map_range *range, unsigned long index)
{
	/* Pairs with rcu_assign_pointer() there. */
	void *entry = (__force void *)smp_load_acquire(&range->entry);

	return index <= READ_ONCE(range->last) ? entry : NULL;
}

void *mtree_load(struct maple_tree *mt, unsigned long index)
{
	struct map_range *range;
	void *entry;

	rcu_read_lock();
	do {
		range = find_range(mt, index);
		entry = range && range->first <= index ? range_entry(range, index) : NULL;
	} while (!entry && range && range->first <= index);
	rcu_read_unlock();
	return entry;
}

void *mt_find(struct maple_tree *mt, unsigned long *index, unsigned long max)
{
	struct map_range *range;
	void *entry = NULL;

	rcu_read_lock();
	do {
		range = find_range(mt, *index);
		if (!range || range->first > max)
			break;
		entry = range_entry(range, *index);
	} while (!entry);
	if (entry)
		*index = READ_ONCE(range->last) + 1;
	rcu_read_unlock();
	return entry;
}

int mtree_store_range(struct maple_tree *mt, unsigned long first, unsigned long last,
		      void *entry, gfp_t gfp)
{
	struct map_range *old = find_range(mt, first), *range;

	if (old && old->first > last)
		old = NULL;
	if (WARN_ON_ONCE(!entry || (old && (old->first > first || old->last != last))))
		return -EINVAL;
	if (old && old->first == first) {
		rcu_assign_pointer(old->entry, entry);
		return 0;
	}
	range = kmalloc(sizeof(*range), gfp);
	if (!range)
		return -ENOMEM;
	range->first = first;
	range->last = last;
	RCU_INIT_POINTER(range->entry, entry);
	latch_tree_insert(&range->node, &mt->ranges, &range_ops);
	if (old)
		WRITE_ONCE(old->last, first - 1);
	return 0;
}

void mt_init_flags(struct maple_tree *mt, unsigned int flags)
{
	seqcount_latch_init(&mt->ranges.seq);
	mt->ranges.tree[0] = RB_ROOT;
	mt->ranges.tree[1] = RB_ROOT;
}

void mtree_destroy(struct maple_tree *mt)
{
	struct map_range *range, *next;

	rbtree_postorder_for_each_entry_safe(range, next, &mt->ranges.tree[0], node.node[0])
		kfree(range);
	mt_init_flags(mt, 0);
}

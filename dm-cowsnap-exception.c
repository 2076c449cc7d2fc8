// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the map of completed exceptions
 *
 * Which versions of a chunk exist, and where each of them is. One map serves all
 * snapshots of a store: an exception says "chunk C, as seen by every epoch up to
 * E and above the next older exception of C, is at this place". Those of kind CURRENT look the
 * other way: C as seen by every epoch above E, and by the origin, up to the next one.
 *
 *   maple tree:  chunk range --> leaf         the whole range belongs to that leaf
 *   leaf:        sorted, packed entries of 12 bytes, each a run of 1..64 chunks
 *
 *      group              group               group
 *   +--------+--------+--------+--------+----------+
 *   | 5+1 e3 | 9+4 e2 | 9+4 e3 | 9+4 e7 | 20+64 e7 |   (start+length epoch)
 *   +--------+--------+--------+--------+----------+
 *
 * Runs either have the same start and length (they form a group: the versions of
 * one run, by ascending epoch) or do not overlap at all. So a binary search finds
 * the group of a chunk, and the group has all its versions.
 *
 * Readers take no lock. The writer (one at a time: map->writer_lock) changes a leaf that they
 * may look at in two ways only, each of which is one store:
 *
 *  - A run where none was is put behind the sorted entries, and then counted (->added). Readers
 *    look through these few one by one: each of them is a group of its own.
 *  - An entry that is alone in its group, and ends where the run begins, becomes longer.
 *
 * For all else it builds a successor, in order, and swaps the pointer; readers see either leaf
 * whole. The pointer goes through the maple tree's rcu_assign_pointer(), which pairs with the
 * rcu_dereference() in mtree_load().
 *
 * Promise kept here: the map's share of I3. cow_map_insert() returns only when
 * every lookup that starts from then on finds the run.
 *
 * Memory: 12 bytes an entry, leaves of 41 to 82 entries in slabs of 64-byte steps, with
 * room for some that are added, a few bytes of tree for each leaf: about 15 bytes for a chunk
 * written at random, about a quarter of a byte for one in a long run.
 */
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "dm-cowsnap-exception.h"
#include "dm-cowsnap.h"

/* A leaf reaches over at most this many chunks: offsets in it have 22 bits. */
#define LEAF_SPAN_BITS	22
#define LEAF_SPAN	BIT_ULL(LEAF_SPAN_BITS)

/* Leaves grow in steps of this, up to LEAF_CLASSES steps; then they are split. */
#define LEAF_STEP_BYTES	64
#define LEAF_CLASSES	16

/* Longest run in one entry. */
#define ENTRY_RUN	64U

/* A leaf that is put in order gets room for at least so many to be added. */
#define LEAF_SPARE	6U

/*
 * word 0   bits 0-21 first chunk, from the leaf's; 22 bit 36 of the place; 23-25 kind;
 *          26-31 length - 1
 * word 1   bits 0-27 epoch; 28-31 bits 32-35 of the place
 * word 2   bits 0-31 of the place
 */
struct cow_entry {
	u32 word[3];
};

static_assert(sizeof(struct cow_entry) == 12);
static_assert(BITS_PER_LONG == 64, "chunk numbers need a 64-bit kernel");

struct cow_leaf {
	union {
		struct rcu_head rcu;
		struct cow_leaf *next;	/* until it comes into the tree: the one before it */
	};
	u64 first, last;	/* chunks this leaf answers for, both inclusive */
	u32 nr;			/* entries in order */
	u16 added;		/* more behind them; stored last, see leaf_add() */
	u16 class;		/* leaf_cache[] it came from, or LEAF_CLASSES */
	struct cow_entry entry[];
};

#define LEAF_MAX_ENTRIES \
	((LEAF_CLASSES * LEAF_STEP_BYTES - sizeof(struct cow_leaf)) / \
	 sizeof(struct cow_entry))

static struct kmem_cache *leaf_cache[LEAF_CLASSES];
static char leaf_cache_name[LEAF_CLASSES][24];

/* ------------------------------------------------------------ packed entries */

static u32 entry_start(const struct cow_entry *e)
{
	return READ_ONCE(e->word[0]) & (LEAF_SPAN - 1);
}

static enum cow_kind entry_kind(const struct cow_entry *e)
{
	return (READ_ONCE(e->word[0]) >> 23) & 7;
}

/* It may grow while a reader looks: see entry_grow(). */
static u32 entry_len(const struct cow_entry *e)
{
	return (READ_ONCE(e->word[0]) >> 26) + 1;
}

static u32 entry_epoch(const struct cow_entry *e)
{
	return e->word[1] & ((1U << 28) - 1);
}

static u64 entry_place(const struct cow_entry *e)
{
	return (u64)(READ_ONCE(e->word[0]) >> 22 & 1) << 36 | (u64)(e->word[1] >> 28) << 32 |
	       e->word[2];
}

static void entry_pack(struct cow_entry *e, u64 leaf_first,
		       const struct cow_extent *ext)
{
	e->word[0] = (u32)(ext->chunk - leaf_first) | (u32)(ext->place >> 36) << 22 |
		     (u32)ext->kind << 23 | (u32)(ext->nr - 1) << 26;
	e->word[1] = ext->epoch | (u32)(ext->place >> 32) << 28;
	e->word[2] = (u32)ext->place;
}

static void entry_unpack(const struct cow_entry *e, u64 leaf_first,
			 struct cow_extent *ext)
{
	ext->chunk = leaf_first + entry_start(e);
	ext->nr = entry_len(e);
	ext->place = entry_place(e);
	ext->epoch = entry_epoch(e);
	ext->kind = entry_kind(e);
}

/* Drop the first @nr chunks of a run. */
static void extent_advance(struct cow_extent *ext, u64 nr)
{
	ext->chunk += nr;
	ext->nr -= nr;
	ext->place += nr;
}

/* Does @b go on where @a ends, so that one run can describe both? */
static bool extent_continues(const struct cow_extent *a, const struct cow_extent *b)
{
	return a->kind == b->kind && a->epoch == b->epoch &&
	       a->chunk + a->nr == b->chunk &&
	       (a->kind == COW_HOME || a->place + a->nr == b->place);
}

/* --------------------------------------------------------------- leaf memory */

static struct cow_leaf *leaf_alloc_gfp(u32 nr, u32 room, gfp_t gfp)
{
	size_t bytes = struct_size((struct cow_leaf *)NULL, entry, room);
	u32 class = DIV_ROUND_UP(bytes, LEAF_STEP_BYTES) - 1;
	struct cow_leaf *leaf;

	if (class < LEAF_CLASSES) {
		leaf = kmem_cache_alloc(leaf_cache[class], gfp);
	} else {
		leaf = kvmalloc(bytes, gfp);
		class = LEAF_CLASSES;
	}
	if (leaf) {
		leaf->nr = nr;
		leaf->added = 0;
		leaf->class = class;
	}
	return leaf;
}

/*
 * Remembering an exception lets a write go on, which may free memory. So if ordinary memory
 * is short, this may use the kernel's reserve.
 */
static const gfp_t try_gfp[] = {
	GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN,
	GFP_NOIO | __GFP_MEMALLOC | __GFP_NOWARN,
};

/* A leaf of @nr entries, with room for at least @room. */
static struct cow_leaf *leaf_alloc_room(u32 nr, u32 room)
{
	struct cow_leaf *leaf = NULL;
	unsigned int i;

	for (i = 0; !leaf && i < ARRAY_SIZE(try_gfp); i++)
		leaf = leaf_alloc_gfp(nr, room, try_gfp[i]);
	return leaf;
}

static struct cow_leaf *leaf_alloc(u32 nr)
{
	return leaf_alloc_room(nr, nr);
}

static struct cow_extent *extents_alloc(u32 nr)
{
	struct cow_extent *ext = NULL;
	unsigned int i;

	for (i = 0; !ext && i < ARRAY_SIZE(try_gfp); i++)
		ext = kvmalloc_array(nr, sizeof(*ext), try_gfp[i]);
	return ext;
}

static size_t leaf_bytes(const struct cow_leaf *leaf)
{
	if (leaf->class < LEAF_CLASSES)
		return (leaf->class + 1) * LEAF_STEP_BYTES;
	return struct_size(leaf, entry, leaf->nr);
}

/* For how many entries has it room? A long one has no more than it was made with. */
static u32 leaf_room(const struct cow_leaf *leaf)
{
	return (leaf_bytes(leaf) - sizeof(*leaf)) / sizeof(*leaf->entry);
}

/* Entries in all, in whatever order. Under RCU, or as the writer. */
static u32 leaf_entries(const struct cow_leaf *leaf)
{
	/* Pairs with smp_store_release() in leaf_add(). */
	return leaf->nr + smp_load_acquire(&leaf->added);
}

static void leaf_free(struct cow_leaf *leaf)
{
	if (leaf->class < LEAF_CLASSES)
		kmem_cache_free(leaf_cache[leaf->class], leaf);
	else
		kvfree(leaf);
}

static void leaf_free_rcu(struct rcu_head *rcu)
{
	leaf_free(container_of(rcu, struct cow_leaf, rcu));
}

/* ------------------------------------------------------------------- lookups */

/* All versions of one run of chunks: entries [begin, end) of a leaf. */
struct cow_group {
	u32 begin, end;
	u64 first;		/* chunk */
	u64 nr;			/* chunks */
};

/* Index of the first entry that starts after @offset. */
static u32 leaf_upper_bound(const struct cow_leaf *leaf, u32 offset)
{
	u32 low = 0, high = leaf->nr;

	while (low < high) {
		u32 mid = (low + high) / 2;

		if (entry_start(&leaf->entry[mid]) <= offset)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Does one of the entries that were added cover @offset? If not, @group, a gap, ends at them. */
static bool leaf_find_added(const struct cow_leaf *leaf, u32 offset, struct cow_group *group)
{
	u32 i, start, end = leaf_entries(leaf);

	for (i = leaf->nr; i < end; i++) {
		start = entry_start(&leaf->entry[i]);
		if (start > offset) {
			group->nr = min_t(u64, group->nr, start - offset);
		} else if (offset - start < entry_len(&leaf->entry[i])) {
			group->begin = i;
			group->end = i + 1;
			group->first = leaf->first + start;
			group->nr = entry_len(&leaf->entry[i]);
			return true;
		}
	}
	return false;
}

/*
 * The group that covers @chunk. False if there is none; then @group says which
 * chunks, from @chunk on, none covers (begin == end: where one would stand).
 */
static bool leaf_find_group(const struct cow_leaf *leaf, u64 chunk,
			    struct cow_group *group)
{
	u32 offset = chunk - leaf->first;
	u32 end = leaf_upper_bound(leaf, offset);
	u32 start, begin;

	if (end) {
		start = entry_start(&leaf->entry[end - 1]);
		if (offset - start < entry_len(&leaf->entry[end - 1])) {
			for (begin = end - 1; begin; begin--)
				if (entry_start(&leaf->entry[begin - 1]) != start)
					break;
			group->begin = begin;
			group->end = end;
			group->first = leaf->first + start;
			group->nr = entry_len(&leaf->entry[begin]);
			return true;
		}
	}
	group->begin = end;
	group->end = end;
	group->first = chunk;
	if (end < leaf->nr)
		group->nr = entry_start(&leaf->entry[end]) - offset;
	else
		group->nr = leaf->last - chunk + 1;
	return leaf_find_added(leaf, offset, group);
}

static u32 live_below(const struct cow_live *live, u32 epoch)
{
	unsigned int low = 0, high = live->nr;

	while (low < high) {
		unsigned int mid = (low + high) / 2;

		if (live->epoch[mid] < epoch)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? live->epoch[low - 1] : 0;
}

/* Does every live epoch find this run in the store? */
static bool group_preserved(const struct cow_leaf *leaf, const struct cow_group *group,
			    const struct cow_live *live)
{
	u32 need = live->epoch[live->nr - 1];
	u32 i = group->end;

	while (i-- > group->begin) {
		const struct cow_entry *e = &leaf->entry[i];

		/* Home is not what the origin shows: it is not for such a write. */
		if (cow_kind_is_current(entry_kind(e)))
			return false;
		if (!cow_kind_is_private(entry_kind(e)))
			return entry_epoch(e) >= need;
		if (entry_epoch(e) < need)
			return false;
		if (entry_epoch(e) == need)
			need = live_below(live, need);
		if (!need)
			return true;
	}
	return false;
}

u64 cow_map_preserved(struct cow_map *map, const struct cow_live *live,
		      u64 chunk, u64 nr, bool *preserved)
{
	const struct cow_leaf *leaf = NULL;
	struct cow_group group;
	u64 at = chunk;

	*preserved = true;
	if (!live || !live->nr)
		return nr;
	rcu_read_lock();
	do {
		bool here = false;

		if (!leaf || at > leaf->last)
			leaf = mtree_load(&map->leaves, at);
		if (!leaf) {
			group.first = at;
			group.nr = LEAF_SPAN - (at & (LEAF_SPAN - 1));
		} else if (leaf_find_group(leaf, at, &group)) {
			here = group_preserved(leaf, &group, live);
		}
		if (at == chunk)
			*preserved = here;
		else if (*preserved != here)
			break;
		at = group.first + group.nr;
	} while (at < chunk + nr);
	rcu_read_unlock();
	return min(at - chunk, nr);
}

/* The newest CURRENT of the first entries of a group, up to @end. NULL: there is none. */
static const struct cow_entry *group_current(const struct cow_leaf *leaf,
					     const struct cow_group *group, u32 end)
{
	while (end-- > group->begin)
		if (cow_kind_is_current(entry_kind(&leaf->entry[end])))
			return &leaf->entry[end];
	return NULL;
}

/*
 * The version that @epoch sees: the oldest of its own or a later epoch, or else the newest of those
 * that have been current since an earlier one.
 */
static const struct cow_entry *group_version(const struct cow_leaf *leaf,
					     const struct cow_group *group, u32 epoch)
{
	const struct cow_entry *found = NULL;
	u32 i = group->end;

	for (; i > group->begin; i--) {
		const struct cow_entry *e = &leaf->entry[i - 1];

		if (entry_epoch(e) < epoch)
			break;
		if (cow_kind_is_copied(entry_kind(e)) ||
		    (cow_kind_is_private(entry_kind(e)) && entry_epoch(e) == epoch))
			found = e;
	}
	return found ?: group_current(leaf, group, i);
}

/* The run around @chunk, cut to begin there. */
static void leaf_view(const struct cow_leaf *leaf, u64 chunk, u32 epoch,
		      struct cow_extent *ext)
{
	const struct cow_entry *e = NULL;
	struct cow_group group;

	if (leaf_find_group(leaf, chunk, &group))
		e = group_version(leaf, &group, epoch);
	if (e) {
		entry_unpack(e, leaf->first, ext);
	} else {
		ext->chunk = group.first;
		ext->nr = group.nr;
		ext->place = 0;
		ext->epoch = 0;
		ext->kind = COW_HOME;
	}
	extent_advance(ext, chunk - ext->chunk);
}

static void leafless_view(u64 chunk, struct cow_extent *ext)
{
	ext->chunk = chunk;
	ext->nr = LEAF_SPAN - (chunk & (LEAF_SPAN - 1));
	ext->place = 0;
	ext->epoch = 0;
	ext->kind = COW_HOME;
}

void cow_map_lookup(struct cow_map *map, u64 chunk, u64 nr, u32 epoch,
		    struct cow_extent *ext)
{
	struct cow_leaf *leaf = NULL;
	struct cow_extent next;
	u64 at = chunk;

	rcu_read_lock();
	do {
		if (!leaf || at > leaf->last)
			leaf = mtree_load(&map->leaves, at);
		if (leaf)
			leaf_view(leaf, at, epoch, &next);
		else
			leafless_view(at, &next);
		if (at == chunk)
			*ext = next;
		else if (extent_continues(ext, &next))
			ext->nr += next.nr;
		else
			break;
		at = ext->chunk + ext->nr;
	} while (at < chunk + nr);
	rcu_read_unlock();
	ext->nr = min(ext->nr, nr);
}

/* -------------------------------------------------------------------- writer */

/* The entries of a leaf to be, unpacked. */
struct cow_draft {
	u32 nr, room;
	struct cow_extent *ext;
};

static int store_leaf(struct cow_map *map, u64 first, u64 last, struct cow_leaf *leaf)
{
	int r = -ENOMEM;
	unsigned int i;

	for (i = 0; r == -ENOMEM && i < ARRAY_SIZE(try_gfp); i++)
		r = mtree_store_range(&map->leaves, first, last, leaf, try_gfp[i]);
	return r;
}

/* Free @old after its last reader; the map's counts follow. */
static void retire_leaf(struct cow_map *map, struct cow_leaf *old)
{
	if (!old)
		return;
	map->nr_entries -= leaf_entries(old);
	map->nr_bytes -= leaf_bytes(old);
	if (map->no_readers)
		leaf_free(old);
	else
		call_rcu(&old->rcu, leaf_free_rcu);
}

static void account_leaf(struct cow_map *map, const struct cow_leaf *leaf)
{
	map->nr_entries += leaf_entries(leaf);
	map->nr_bytes += leaf_bytes(leaf);
}

/* Put @leaf where @old was. Needs memory only if @old is NULL. */
static int replace_leaf(struct cow_map *map, struct cow_leaf *old,
			struct cow_leaf *leaf)
{
	int r = store_leaf(map, leaf->first, leaf->last, leaf);

	if (r) {
		leaf_free(leaf);
		return r;
	}
	account_leaf(map, leaf);
	retire_leaf(map, old);
	return 0;
}

/* Put @entry among those of @leaf, which nobody else sees and which has room. */
static void leaf_put(struct cow_leaf *leaf, const struct cow_entry *entry)
{
	u32 at = leaf_upper_bound(leaf, entry_start(entry));

	memmove(&leaf->entry[at + 1], &leaf->entry[at], (leaf->nr - at) * sizeof(*entry));
	leaf->entry[at] = *entry;
	leaf->nr++;
}

/* What was added to @leaf, in order, at the same places of @fresh. There are only some. */
static void sort_added(struct cow_leaf *fresh, const struct cow_leaf *leaf)
{
	u32 i, at;

	for (i = leaf->nr; i < leaf_entries(leaf); i++) {
		u32 start = entry_start(&leaf->entry[i]);

		for (at = i; at > leaf->nr && entry_start(&fresh->entry[at - 1]) > start; at--)
			fresh->entry[at] = fresh->entry[at - 1];
		fresh->entry[at] = leaf->entry[i];
	}
}

/*
 * Merge the sorted entries of @leaf with those that sort_added() has put behind their places in
 * @fresh. What is written never gets ahead of what is still to be read there.
 */
static void merge_added(struct cow_leaf *fresh, const struct cow_leaf *leaf)
{
	u32 to = 0, sorted = 0, added = leaf->nr, end = leaf_entries(leaf), upto;

	for (; added < end; added++) {
		upto = leaf_upper_bound(leaf, entry_start(&fresh->entry[added]));
		memcpy(&fresh->entry[to], &leaf->entry[sorted],
		       (upto - sorted) * sizeof(*leaf->entry));
		to += upto - sorted;
		fresh->entry[to++] = fresh->entry[added];
		sorted = upto;
	}
	memcpy(&fresh->entry[to], &leaf->entry[sorted],
	       (leaf->nr - sorted) * sizeof(*leaf->entry));
}

/* The entries of @leaf in order, with room for @spare more. NULL: no memory. */
static struct cow_leaf *leaf_in_order(const struct cow_leaf *leaf, u32 spare)
{
	u32 nr = leaf_entries(leaf);
	u32 room = max_t(u32, nr, min_t(u32, nr + spare, LEAF_MAX_ENTRIES));
	struct cow_leaf *fresh = leaf_alloc_room(nr, room);

	if (!fresh)
		return NULL;
	fresh->first = leaf->first;
	fresh->last = leaf->last;
	sort_added(fresh, leaf);
	merge_added(fresh, leaf);
	return fresh;
}

/* The leaf that takes the place of @leaf, with the same entries in order. NULL: no memory. */
static struct cow_leaf *settle_leaf(struct cow_map *map, struct cow_leaf *leaf, u32 spare)
{
	struct cow_leaf *fresh = leaf_in_order(leaf, spare);

	return fresh && !replace_leaf(map, leaf, fresh) ? fresh : NULL;
}

static struct cow_leaf *draft_to_leaf(const struct cow_draft *draft, u32 begin,
				      u32 end, u64 first, u64 last)
{
	struct cow_leaf *leaf = leaf_alloc(end - begin);
	u32 i;

	if (!leaf)
		return NULL;
	leaf->first = first;
	leaf->last = last;
	for (i = begin; i < end; i++)
		entry_pack(&leaf->entry[i - begin], first, &draft->ext[i]);
	return leaf;
}

/* Where to cut a draft that is too long: at the start of a group, or 0 for nowhere. */
static u32 draft_split_at(const struct cow_draft *draft, bool appending)
{
	u32 want = appending ? draft->nr - 1 : draft->nr / 2;
	u32 at = want;

	while (at && draft->ext[at].chunk == draft->ext[at - 1].chunk)
		at--;
	if (at)
		return at;
	for (at = want + 1; at < draft->nr; at++)
		if (draft->ext[at].chunk != draft->ext[at - 1].chunk)
			return at;
	return 0;
}

/*
 * Publish a draft as the leaf, or the two leaves, of [first, last]. The right
 * half first: until the left one follows, the old leaf goes on answering for its
 * range. If the tree has no memory for a split, one long leaf does as well.
 */
static int publish_draft(struct cow_map *map, struct cow_leaf *old,
			 const struct cow_draft *draft, u64 first, u64 last,
			 bool appending)
{
	struct cow_leaf *left, *right;
	u32 at = 0;

	if (draft->nr > LEAF_MAX_ENTRIES)
		at = draft_split_at(draft, appending);
	if (at) {
		u64 middle = draft->ext[at].chunk;

		left = draft_to_leaf(draft, 0, at, first, middle - 1);
		right = draft_to_leaf(draft, at, draft->nr, middle, last);
		if (left && right && !store_leaf(map, middle, last, right)) {
			account_leaf(map, right);
			return replace_leaf(map, old, left);
		}
		if (left)
			leaf_free(left);
		if (right)
			leaf_free(right);
	}
	left = draft_to_leaf(draft, 0, draft->nr, first, last);
	if (!left)
		return -ENOMEM;
	return replace_leaf(map, old, left);
}

static void draft_add(struct cow_draft *draft, const struct cow_extent *ext)
{
	if (!WARN_ON_ONCE(draft->nr == draft->room))
		draft->ext[draft->nr++] = *ext;
}

/* Add a run, in entries of at most ENTRY_RUN chunks. */
static void draft_add_run(struct cow_draft *draft, struct cow_extent run)
{
	while (run.nr) {
		struct cow_extent part = run;

		part.nr = min_t(u64, run.nr, ENTRY_RUN);
		draft_add(draft, &part);
		extent_advance(&run, part.nr);
	}
}

/* Versions of one epoch stand in this order: private, copied, current. One of each at most. */
static unsigned int version_sort(const struct cow_extent *ext)
{
	return cow_kind_is_private(ext->kind) ? 0 : cow_kind_is_copied(ext->kind) ? 1 : 2;
}

static bool same_version(const struct cow_extent *a, const struct cow_extent *b)
{
	return a->epoch == b->epoch && version_sort(a) == version_sort(b);
}

static bool version_before(const struct cow_extent *a, const struct cow_extent *b)
{
	if (a->epoch != b->epoch)
		return a->epoch < b->epoch;
	return version_sort(a) < version_sort(b);
}

/*
 * Add chunks [from, to) of a group as they are, or with @added among them.
 * Returns how many versions that made more (or fewer).
 */
static int draft_add_group(struct cow_draft *draft, const struct cow_leaf *leaf,
			   const struct cow_group *group, u64 from, u64 to,
			   const struct cow_extent *added, u32 taken_over)
{
	bool placed = !added;
	int versions = 0;
	u32 i;

	for (i = group->begin; i < group->end; i++) {
		struct cow_extent ext;

		entry_unpack(&leaf->entry[i], leaf->first, &ext);
		extent_advance(&ext, from - ext.chunk);
		ext.nr = to - from;
		if (!placed && !version_before(&ext, added)) {
			draft_add(draft, added);
			placed = true;
			versions++;
		}
		if (added && (same_version(&ext, added) ||
			      (ext.epoch == taken_over &&
			       cow_kind_is_copied(ext.kind)))) {
			versions--;
			continue;
		}
		draft_add(draft, &ext);
	}
	if (!placed) {
		draft_add(draft, added);
		versions++;
	}
	return versions;
}

/* Add the groups of @leaf that lie wholly before @chunk, from entry @i on. */
static u32 draft_copy_until(struct cow_draft *draft, const struct cow_leaf *leaf,
			    u32 i, u64 chunk)
{
	while (i < leaf->nr) {
		struct cow_extent ext;

		entry_unpack(&leaf->entry[i], leaf->first, &ext);
		if (ext.chunk + ext.nr > chunk)
			break;
		draft_add(draft, &ext);
		i++;
	}
	return i;
}

/* One group, or gap, of the range being added to. Returns the chunk after it. */
static u64 draft_add_over(struct cow_draft *draft, const struct cow_leaf *leaf,
			  const struct cow_extent *ext, u64 at, u32 *next,
			  u32 taken_over, s64 *versions)
{
	struct cow_extent part = *ext;
	struct cow_group group;
	u64 end = ext->chunk + ext->nr;
	u64 stop;

	extent_advance(&part, at - ext->chunk);
	if (!leaf_find_group(leaf, at, &group)) {
		part.nr = min(part.nr, group.nr);
		draft_add_run(draft, part);
		*versions += part.nr;
		return at + part.nr;
	}
	*next = group.end;
	stop = min(end, group.first + group.nr);
	if (group.first < at)
		draft_add_group(draft, leaf, &group, group.first, at, NULL, 0);
	part.nr = stop - at;
	*versions += (s64)part.nr *
		draft_add_group(draft, leaf, &group, at, stop, &part, taken_over);
	if (stop < group.first + group.nr)
		draft_add_group(draft, leaf, &group, stop, group.first + group.nr,
				NULL, 0);
	return stop;
}

/*
 * The general case: rebuild the leaf, which is in order, with the run laid over what is there.
 */
static int rebuild_leaf(struct cow_map *map, struct cow_leaf *leaf,
			const struct cow_extent *ext, u32 taken_over)
{
	/* Two groups at most are cut; each group and gap gets one entry more. */
	struct cow_draft draft = {
		.room = leaf->nr * 5 + ext->nr / ENTRY_RUN + 8,
	};
	u64 at = ext->chunk, end = ext->chunk + ext->nr;
	s64 versions = 0;
	u32 next;
	int r;

	draft.ext = extents_alloc(draft.room);
	if (!draft.ext)
		return -ENOMEM;
	next = draft_copy_until(&draft, leaf, 0, at);
	while (at < end)
		at = draft_add_over(&draft, leaf, ext, at, &next, taken_over,
				    &versions);
	draft_copy_until(&draft, leaf, next, U64_MAX);
	r = publish_draft(map, leaf, &draft, leaf->first, leaf->last,
			  ext->chunk >= leaf->first + entry_start(&leaf->entry[leaf->nr - 1]));
	if (!r)
		map->nr_chunks += versions;
	kvfree(draft.ext);
	return r;
}

/* A first leaf where there is none: the aligned span around the run. */
static int first_leaf(struct cow_map *map, const struct cow_extent *ext)
{
	u64 first = ext->chunk & ~(LEAF_SPAN - 1);
	struct cow_extent entries[COW_RUN_CHUNKS / ENTRY_RUN + 1];
	struct cow_draft draft = { .room = ARRAY_SIZE(entries), .ext = entries };
	int r;

	draft_add_run(&draft, *ext);
	r = publish_draft(map, NULL, &draft, first, first + LEAF_SPAN - 1, false);
	if (!r)
		map->nr_chunks += ext->nr;
	return r;
}

/*
 * An entry that is alone in its group and ends right before @offset, or NULL. In the sorted part
 * that can only be the one before @at.
 */
static struct cow_entry *entry_before(struct cow_leaf *leaf, u32 at, u32 offset)
{
	u32 i, end = leaf_entries(leaf);
	struct cow_entry *e;

	if (at) {
		e = &leaf->entry[at - 1];
		if (entry_start(e) + entry_len(e) == offset)
			return at > 1 && entry_start(e - 1) == entry_start(e) ? NULL : e;
	}
	for (i = leaf->nr; i < end; i++) {
		e = &leaf->entry[i];
		if (entry_start(e) + entry_len(e) == offset)
			return e;
	}
	return NULL;
}

/* Have the entry before @ext take in as many chunks of it as it can. Returns how many. */
static u32 entry_grow(struct cow_leaf *leaf, u32 at, const struct cow_extent *ext)
{
	struct cow_entry *e = entry_before(leaf, at, ext->chunk - leaf->first);
	struct cow_extent before;
	u32 nr;

	if (!e)
		return 0;
	entry_unpack(e, leaf->first, &before);
	if (!extent_continues(&before, ext))
		return 0;
	nr = min_t(u64, ENTRY_RUN - before.nr, ext->nr);
	/*
	 * Nothing but the length changes. What was to be seen before the run is: pairs with
	 * smp_rmb() in those who look it up, as in origin_write_is_free().
	 */
	smp_store_release(&e->word[0], e->word[0] + (nr << 26));
	return nr;
}

/* Add @ext behind the entries of @leaf: it meets none of them, and there is room. */
static void leaf_add(struct cow_leaf *leaf, struct cow_extent ext)
{
	u32 at = leaf_entries(leaf);

	while (ext.nr) {
		struct cow_extent part = ext;

		part.nr = min_t(u64, ext.nr, ENTRY_RUN);
		entry_pack(&leaf->entry[at++], leaf->first, &part);
		extent_advance(&ext, part.nr);
	}
	/* They are counted when they are filled in. Pairs with leaf_entries(). */
	smp_store_release(&leaf->added, at - leaf->nr);
}

/*
 * The common case: a run where none was, which leaves the rest of the leaf alone. Returns how
 * many chunks of it are in the map now, from the first on. -EAGAIN if that is not the case, or
 * the leaf is full.
 */
static int insert_into_gap(struct cow_map *map, struct cow_leaf *leaf,
			   const struct cow_extent *ext)
{
	u32 more = DIV_ROUND_UP(ext->nr, ENTRY_RUN), nr = leaf_entries(leaf);
	struct cow_group gap;
	u32 grown;

	if (leaf_find_group(leaf, ext->chunk, &gap) || gap.nr < ext->nr)
		return -EAGAIN;
	grown = entry_grow(leaf, gap.begin, ext);
	map->nr_chunks += grown;
	if (grown)
		return grown;
	if (nr + more > LEAF_MAX_ENTRIES)
		return -EAGAIN;
	if (nr + more > leaf_room(leaf))
		leaf = settle_leaf(map, leaf, max(more, LEAF_SPARE));
	if (!leaf)
		return -ENOMEM;
	leaf_add(leaf, *ext);
	map->nr_entries += more;
	map->nr_chunks += ext->nr;
	return ext->nr;
}

/* The same, wherever it is; @ext lies in the range of @leaf. */
static int insert_into_leaf(struct cow_map *map, struct cow_leaf *leaf,
			    const struct cow_extent *ext, u32 taken_over)
{
	int r = taken_over ? -EAGAIN : insert_into_gap(map, leaf, ext);

	if (r != -EAGAIN)
		return r;
	if (leaf->added)
		leaf = settle_leaf(map, leaf, 0);
	if (!leaf)
		return -ENOMEM;
	return rebuild_leaf(map, leaf, ext, taken_over) ?: (int)ext->nr;
}

int cow_map_insert(struct cow_map *map, struct cow_extent *ext, u32 taken_over)
{
	int r = 0;

	mutex_lock(&map->writer_lock);
	while (ext->nr && r >= 0) {
		struct cow_leaf *leaf = mtree_load(&map->leaves, ext->chunk);
		struct cow_extent part = *ext;
		u64 last = leaf ? leaf->last : ext->chunk | (LEAF_SPAN - 1);

		part.nr = min3(ext->nr, last - ext->chunk + 1, (u64)COW_RUN_CHUNKS);
		if (leaf)
			r = insert_into_leaf(map, leaf, &part, taken_over);
		else
			r = first_leaf(map, &part) ?: (int)part.nr;
		if (r > 0)
			extent_advance(ext, r);
	}
	mutex_unlock(&map->writer_lock);
	return min(r, 0);
}

/* -------------------------------------------------------------------- many at once */

/* Entries in a leaf that is built of many runs: there is room for some that come later. */
#define LEAF_FILL	66U

/* Room for versions of one chunk, at first. */
#define BUILD_VERSIONS	32U

/* Leaves are built of runs and of what a leaf has, both in order. */
struct cow_build {
	const struct cow_run *run, *end;	/* runs to come */
	const struct cow_leaf *old;
	u32 old_at;				/* entry of @old to come */
	u64 at;					/* where the open versions begin */
	struct cow_extent *open;		/* versions of chunk @at, in order */
	u32 nr_open, max_open;
	u64 first;				/* chunk of the leaf that is being built */
	struct cow_entry *entry;		/* its entries; there is room for @max_open more */
	u32 nr;
	u64 twice;				/* see struct cow_map */
	struct cow_leaf *built;			/* leaves, the last one first */
	u64 nr_chunks;				/* in all of these */
};

static u64 run_chunk(const struct cow_run *run)
{
	return run->word[0] >> 20;
}

static u64 run_length(const struct cow_run *run)
{
	return (run->word[1] & (COW_RUN_MAX - 1)) + 1;
}

static void run_unpack(const struct cow_run *run, struct cow_extent *ext)
{
	bool zero = run->word[1] & COW_RUN_ZERO;

	ext->chunk = run_chunk(run);
	ext->nr = run_length(run);
	ext->place = run->word[1] >> 19 & (COW_CHUNKS_MAX - 1);
	ext->epoch = (u32)(run->word[0] & GENMASK_ULL(19, 0)) << 8 | (u32)(run->word[1] >> 56);
	if (run->word[1] & COW_RUN_CURRENT)
		ext->kind = zero ? COW_CURRENT_ZERO : COW_CURRENT;
	else if (run->word[1] & COW_RUN_COPIED)
		ext->kind = zero ? COW_ZERO : COW_COPIED;
	else
		ext->kind = zero ? COW_PRIVATE_ZERO : COW_PRIVATE;
}

/* Room for @max_open versions. */
static int build_reserve(struct cow_build *b, u32 max_open)
{
	struct cow_entry *entry = kvmalloc_array(LEAF_FILL + max_open, sizeof(*entry), GFP_NOIO);
	struct cow_extent *open = kvmalloc_array(max_open, sizeof(*open), GFP_NOIO);

	if (!entry || !open) {
		kvfree(entry);
		kvfree(open);
		return -ENOMEM;
	}
	if (b->max_open) {
		memcpy(entry, b->entry, b->nr * sizeof(*entry));
		memcpy(open, b->open, b->nr_open * sizeof(*open));
	}
	kvfree(b->entry);
	kvfree(b->open);
	b->entry = entry;
	b->open = open;
	b->max_open = max_open;
	return 0;
}

/* The leaf that is being built is complete: it answers for chunks up to @last. */
static int build_leaf(struct cow_build *b, u64 last)
{
	struct cow_leaf *leaf = leaf_alloc(b->nr);

	if (!leaf)
		return -ENOMEM;
	leaf->first = b->first;
	leaf->last = last;
	memcpy(leaf->entry, b->entry, b->nr * sizeof(*leaf->entry));
	leaf->next = b->built;
	b->built = leaf;
	b->first = last + 1;
	b->nr = 0;
	cond_resched();
	return 0;
}

static void build_entry(struct cow_build *b, const struct cow_extent *ext)
{
	entry_pack(&b->entry[b->nr++], b->first, ext);
	b->nr_chunks += ext->nr;
}

/* Is the next run one that nothing else meets, of a length that fits an entry? */
static bool run_is_alone(const struct cow_build *b, u64 last)
{
	u64 end;

	if (b->nr_open || b->run == b->end || b->old_at < b->old->nr)
		return false;
	end = run_chunk(b->run) + run_length(b->run);
	return run_length(b->run) <= ENTRY_RUN && end <= last + 1 &&
	       (b->run + 1 == b->end || run_chunk(b->run + 1) >= end);
}

/* The common case: runs that are alone. */
static int build_alone(struct cow_build *b, u64 last)
{
	struct cow_extent ext;
	int r = 0;

	while (!r && run_is_alone(b, last)) {
		if (b->nr >= LEAF_FILL)
			r = build_leaf(b, run_chunk(b->run) - 1);
		if (r)
			break;
		run_unpack(b->run++, &ext);
		build_entry(b, &ext);
	}
	return r;
}

static bool opened_before(const struct cow_extent *a, const struct cow_extent *b)
{
	return version_before(a, b) || (same_version(a, b) && a->place < b->place);
}

/* @ext begins at @b->at. */
static int open_version(struct cow_build *b, const struct cow_extent *ext)
{
	u32 i = b->nr_open;
	int r = i == b->max_open ? build_reserve(b, 2 * i) : 0;

	if (r)
		return r;
	for (; i && !opened_before(&b->open[i - 1], ext); i--)
		b->open[i] = b->open[i - 1];
	b->open[i] = *ext;
	b->nr_open++;
	return 0;
}

static u64 next_old(const struct cow_build *b)
{
	if (b->old_at == b->old->nr)
		return U64_MAX;
	return b->old->first + entry_start(&b->old->entry[b->old_at]);
}

static u64 next_run(const struct cow_build *b)
{
	return b->run == b->end ? U64_MAX : run_chunk(b->run);
}

/* All that begins at @b->at, which is where open versions go on, if there are any. */
static int open_versions(struct cow_build *b)
{
	struct cow_extent ext;
	int r = 0;

	if (!b->nr_open)
		b->at = min(next_old(b), next_run(b));
	while (!r && next_old(b) == b->at) {
		entry_unpack(&b->old->entry[b->old_at], b->old->first, &ext);
		r = open_version(b, &ext);
		b->old_at += !r;
	}
	while (!r && next_run(b) == b->at) {
		run_unpack(b->run, &ext);
		r = open_version(b, &ext);
		b->run += !r;
	}
	return r;
}

/* The group at @b->at reaches to where one of its versions ends or another begins. */
static u64 group_end(const struct cow_build *b, u64 last)
{
	u64 end = min3(last + 1, next_old(b), next_run(b));
	u32 i;

	end = min(end, b->at + ENTRY_RUN);
	for (i = 0; i < b->nr_open; i++)
		end = min(end, b->open[i].chunk + b->open[i].nr);
	return end;
}

/* The next open version is the same: damage can leave one twice. Then the later place counts. */
static bool open_again(struct cow_build *b, u32 i)
{
	const struct cow_extent *ext = &b->open[i], *next = ext + 1;

	if (i + 1 == b->nr_open || !same_version(ext, next))
		return false;
	/* What could not be added before for lack of memory may be here already. */
	if (cow_kind_is_current(ext->kind) && ext->place != next->place)
		b->twice = ext->chunk;
	return true;
}

/* The open versions, up to where they are the same. All of them stand in one leaf. */
static int build_group(struct cow_build *b, u64 last)
{
	u64 end = group_end(b, last);
	struct cow_extent part;
	u32 i, left = 0;
	int r = 0;

	if (b->nr && b->nr + b->nr_open > LEAF_FILL)
		r = build_leaf(b, b->at - 1);
	if (r)
		return r;
	for (i = 0; i < b->nr_open; i++) {
		if (open_again(b, i))
			continue;
		part = b->open[i];
		part.nr = end - b->at;
		build_entry(b, &part);
	}
	for (i = 0; i < b->nr_open; i++) {
		extent_advance(&b->open[i], end - b->at);
		if (b->open[i].nr)
			b->open[left++] = b->open[i];
	}
	b->nr_open = left;
	b->at = end;
	return 0;
}

/* All that begins up to @last. */
static int build_up_to(struct cow_build *b, u64 last)
{
	int r = 0;

	while (!r) {
		r = build_alone(b, last);
		if (!r && (b->nr_open ? b->at : min(next_old(b), next_run(b))) > last)
			return build_leaf(b, last);
		if (!r)
			r = open_versions(b);
		if (!r)
			r = build_group(b, last);
	}
	return r;
}

static u64 leaf_chunks(const struct cow_leaf *leaf)
{
	u64 nr = 0;
	u32 i;

	for (i = 0; i < leaf_entries(leaf); i++)
		nr += entry_len(&leaf->entry[i]);
	return nr;
}

/* @leaf has no readers: it answers for chunks up to @last from now on. */
static void cut_leaf(struct cow_leaf *leaf, u64 last)
{
	struct cow_extent ext;
	u32 i;

	for (i = 0; i < leaf->nr; i++) {
		entry_unpack(&leaf->entry[i], leaf->first, &ext);
		if (ext.chunk > last)
			break;
		ext.nr = min(ext.nr, last - ext.chunk + 1);
		entry_pack(&leaf->entry[i], leaf->first, &ext);
	}
	leaf->nr = i;
	leaf->last = last;
}

/*
 * The leaves that have been built take the place of @old, from the last one on: the tree takes
 * ranges in the right part of one that there is. Without memory the rest stays as it was.
 */
static int publish_built(struct cow_map *map, struct cow_build *b, struct cow_leaf *old)
{
	struct cow_leaf *leaf;
	int r = 0;

	map->nr_chunks += b->nr_chunks - leaf_chunks(old);
	map->nr_entries -= old->nr;
	map->nr_bytes -= leaf_bytes(old);
	while ((leaf = b->built)) {
		r = store_leaf(map, leaf->first, leaf->last, leaf);
		if (r)
			break;
		account_leaf(map, leaf);
		b->built = leaf->next;
	}
	if (!r) {
		leaf_free(old);
		return 0;
	}
	cut_leaf(old, leaf->last);
	account_leaf(map, old);
	map->nr_chunks += leaf_chunks(old);
	for (; leaf; leaf = leaf->next)
		map->nr_chunks -= leaf_chunks(leaf);
	return r;
}

/* Leaves that did not come into the tree. */
static void discard_built(struct cow_build *b)
{
	struct cow_leaf *leaf;

	while ((leaf = b->built)) {
		b->built = leaf->next;
		leaf_free(leaf);
	}
}

/* The leaf of the span around @chunk, where there is none: an empty one. */
static struct cow_leaf *empty_leaf(struct cow_map *map, u64 chunk)
{
	struct cow_leaf *leaf = leaf_alloc(0);

	if (!leaf)
		return NULL;
	leaf->first = chunk & ~(LEAF_SPAN - 1);
	leaf->last = leaf->first + LEAF_SPAN - 1;
	return replace_leaf(map, NULL, leaf) ? NULL : leaf;
}

/* The leaf around @chunk is built anew, with what runs add to it. */
static int build_over(struct cow_map *map, struct cow_build *b, u64 chunk)
{
	struct cow_leaf *old = mtree_load(&map->leaves, chunk) ?: empty_leaf(map, chunk);
	int r;

	if (old && old->added)
		old = settle_leaf(map, old, 0);
	if (!old)
		return -ENOMEM;
	b->old = old;
	b->old_at = 0;
	b->first = old->first;
	b->nr = 0;
	b->nr_chunks = 0;
	r = build_up_to(b, old->last) ?: publish_built(map, b, old);
	discard_built(b);
	return r;
}

int cow_map_insert_runs(struct cow_map *map, const struct cow_run *run, size_t nr)
{
	struct cow_build b = { .run = run, .end = run + nr, .twice = map->twice };
	int r = build_reserve(&b, BUILD_VERSIONS);

	mutex_lock(&map->writer_lock);
	/* Without readers the tree changes its nodes in place. */
	mt_clear_in_rcu(&map->leaves);
	while (!r && (b.nr_open || b.run < b.end))
		r = build_over(map, &b, b.nr_open ? b.at : run_chunk(b.run));
	mt_set_in_rcu(&map->leaves);
	map->twice = b.twice;
	mutex_unlock(&map->writer_lock);
	kvfree(b.open);
	kvfree(b.entry);
	return r;
}

/* ------------------------------------------------------------------- one goes */

/* Chunks [from, to) of a group, without the version @gone (NULL: with all). */
static u64 draft_add_without(struct cow_draft *draft, const struct cow_leaf *leaf,
			     const struct cow_group *group, u64 from, u64 to,
			     const struct cow_extent *gone)
{
	struct cow_extent ext;
	u64 left_out = 0;
	u32 i;

	for (i = group->begin; from < to && i < group->end; i++) {
		entry_unpack(&leaf->entry[i], leaf->first, &ext);
		extent_advance(&ext, from - ext.chunk);
		ext.nr = to - from;
		if (gone && same_version(&ext, gone))
			left_out += ext.nr;
		else
			draft_add(draft, &ext);
	}
	return left_out;
}

/* The leaf without @gone, whose chunks lie in its range. It is in order. */
static int remove_from_leaf(struct cow_map *map, struct cow_leaf *leaf,
			    const struct cow_extent *gone)
{
	/* Two groups at most are cut. */
	struct cow_draft draft = { .room = leaf->nr * 3 };
	u64 at = gone->chunk, end = gone->chunk + gone->nr, left_out = 0, stop;
	struct cow_group group;
	u32 next;
	int r = 0;

	draft.ext = extents_alloc(draft.room);
	if (!draft.ext)
		return -ENOMEM;
	next = draft_copy_until(&draft, leaf, 0, at);
	for (; at < end; at = group.first + group.nr) {
		if (!leaf_find_group(leaf, at, &group))
			continue;
		next = group.end;
		stop = min(end, group.first + group.nr);
		draft_add_without(&draft, leaf, &group, group.first, at, NULL);
		left_out += draft_add_without(&draft, leaf, &group, at, stop, gone);
		draft_add_without(&draft, leaf, &group, stop, group.first + group.nr, NULL);
	}
	draft_copy_until(&draft, leaf, next, U64_MAX);
	if (left_out)
		r = publish_draft(map, leaf, &draft, leaf->first, leaf->last, false);
	if (!r)
		map->nr_chunks -= left_out;
	kvfree(draft.ext);
	return r;
}

int cow_map_remove(struct cow_map *map, const struct cow_extent *gone)
{
	struct cow_extent part = *gone;
	u64 left = gone->nr;
	int r = 0;

	mutex_lock(&map->writer_lock);
	while (left && !r) {
		struct cow_leaf *leaf = mtree_load(&map->leaves, part.chunk);

		part.nr = min(left, leaf ? leaf->last - part.chunk + 1 :
			      LEAF_SPAN - (part.chunk & (LEAF_SPAN - 1)));
		if (leaf && leaf->added)
			leaf = settle_leaf(map, leaf, 0) ?: ERR_PTR(-ENOMEM);
		if (IS_ERR(leaf))
			r = PTR_ERR(leaf);
		else if (leaf && leaf->nr)
			r = remove_from_leaf(map, leaf, &part);
		left -= part.nr;
		part.chunk += part.nr;
	}
	mutex_unlock(&map->writer_lock);
	return r;
}

/* ------------------------------------------------------- what is not needed any more */

/* Does a private version in the group hide copied ones from @epoch? */
static bool group_has_private(const struct cow_leaf *leaf, const struct cow_group *group,
			      u32 epoch)
{
	u32 i;

	for (i = group->begin; i < group->end; i++)
		if (entry_epoch(&leaf->entry[i]) == epoch &&
		    cow_kind_is_private(entry_kind(&leaf->entry[i])))
			return true;
	return false;
}

/* Number of live epochs up to @epoch. */
static u32 live_up_to(const struct cow_live *live, u32 epoch)
{
	u32 low = 0, high = live ? live->nr : 0;

	while (low < high) {
		u32 mid = (low + high) / 2;

		if (live->epoch[mid] <= epoch)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The epoch of the next CURRENT behind entry @i; COW_EPOCH_NOW: there is none. */
static u32 current_until(const struct cow_leaf *leaf, const struct cow_group *group, u32 i)
{
	while (++i < group->end)
		if (cow_kind_is_current(entry_kind(&leaf->entry[i])))
			return entry_epoch(&leaf->entry[i]);
	return COW_EPOCH_NOW;
}

/* How many see entry @i, a CURRENT? The newest one is the origin's, so nobody has it alone. */
static unsigned int current_users(const struct cow_leaf *leaf, const struct cow_group *group,
				  u32 i, const struct cow_live *live, u32 *one)
{
	const struct cow_entry *e = &leaf->entry[i];
	u32 at, until = current_until(leaf, group, i);
	unsigned int users = 0;

	if (until == COW_EPOCH_NOW)
		return 2;
	at = live_up_to(live, until);
	while (at-- && live->epoch[at] > entry_epoch(e) && users < 2) {
		if (group_version(leaf, group, live->epoch[at]) != e)
			continue;
		*one = at;
		users++;
	}
	return users;
}

/* How many live epochs see entry @i: 0, 1 or more (2). *@one: index of the last. */
static unsigned int entry_users(const struct cow_leaf *leaf, const struct cow_group *group,
				u32 i, const struct cow_live *live, u32 *one)
{
	u32 epoch = entry_epoch(&leaf->entry[i]);
	u32 above = 0, at = live_up_to(live, epoch);
	unsigned int users = 0;
	u32 j;

	if (cow_kind_is_private(entry_kind(&leaf->entry[i]))) {
		*one = at - 1;
		return at && live->epoch[at - 1] == epoch;
	}
	if (cow_kind_is_current(entry_kind(&leaf->entry[i])))
		return current_users(leaf, group, i, live, one);
	for (j = i; j-- > group->begin; ) {
		if (!cow_kind_is_copied(entry_kind(&leaf->entry[j])))
			continue;
		above = entry_epoch(&leaf->entry[j]);
		break;
	}
	while (at-- && live->epoch[at] > above && users < 2) {
		if (group_has_private(leaf, group, live->epoch[at]))
			continue;
		*one = at;
		users++;
	}
	return users;
}

/* Entry @i and those around it that are of the same run: one that was added is alone. */
static void entry_group(const struct cow_leaf *leaf, u32 i, struct cow_group *group)
{
	u32 start = entry_start(&leaf->entry[i]);

	group->begin = i;
	while (group->begin && entry_start(&leaf->entry[group->begin - 1]) == start)
		group->begin--;
	group->end = i + 1;
	while (group->end < leaf->nr && entry_start(&leaf->entry[group->end]) == start)
		group->end++;
}

static struct cow_leaf *leaf_from(struct cow_map *map, u64 chunk)
{
	unsigned long index = chunk;

	return mt_find(&map->leaves, &index, ULONG_MAX);
}

static u64 after_leaf(struct cow_map *map, const struct cow_leaf *leaf)
{
	u64 next = leaf->last + 1;

	return leaf_from(map, next) ? next : 0;
}

/* Is entry @i a copied version, and the only version of its run? */
static bool entry_is_sole_copy(const struct cow_leaf *leaf, u32 i)
{
	u32 start = entry_start(&leaf->entry[i]);

	/* Those that were added are alone. */
	return cow_kind_is_copied(entry_kind(&leaf->entry[i])) &&
	       (!i || entry_start(&leaf->entry[i - 1]) != start) &&
	       (i + 1 >= leaf->nr || entry_start(&leaf->entry[i + 1]) != start);
}

static bool entry_is_dead(const struct cow_leaf *leaf, u32 i, const struct cow_live *live,
			  u32 up_to)
{
	u32 epoch = entry_epoch(&leaf->entry[i]);
	struct cow_group group;
	u32 one;

	if (epoch > up_to)
		return false;
	/* The oldest sees it then. */
	if (live && live->nr && epoch >= live->epoch[0] && entry_is_sole_copy(leaf, i))
		return false;
	entry_group(leaf, i, &group);
	/* Those who see it may be newer than @live. */
	if (cow_kind_is_current(entry_kind(&leaf->entry[i])) &&
	    current_until(leaf, &group, i) > up_to)
		return false;
	return !entry_users(leaf, &group, i, live, &one);
}

/* A leaf without its dead entries. NULL if there are none, ERR_PTR without memory. */
static struct cow_leaf *leaf_without_dead(const struct cow_leaf *leaf,
					  const struct cow_live *live, u32 up_to)
{
	u32 i, nr = 0, all = leaf_entries(leaf);
	struct cow_leaf *fresh;

	for (i = 0; i < all; i++)
		nr += !entry_is_dead(leaf, i, live, up_to);
	if (nr == all)
		return NULL;
	fresh = leaf_alloc(nr);
	if (!fresh)
		return ERR_PTR(-ENOMEM);
	fresh->first = leaf->first;
	fresh->last = leaf->last;
	fresh->nr = 0;
	for (i = 0; i < all; i++) {
		if (entry_is_dead(leaf, i, live, up_to))
			continue;
		if (i < leaf->nr)
			fresh->entry[fresh->nr++] = leaf->entry[i];
		else
			leaf_put(fresh, &leaf->entry[i]);
	}
	return fresh;
}

static int reclaim_leaf(struct cow_map *map, struct cow_leaf *leaf, const struct cow_live *live,
			u32 up_to, size_t max,
			void (*freed)(void *context, const struct cow_extent *ext), void *context)
{
	struct cow_leaf *fresh = leaf_without_dead(leaf, live, up_to);
	u32 i, all = leaf_entries(leaf);
	struct cow_extent ext;

	if (IS_ERR_OR_NULL(fresh))
		return PTR_ERR(fresh);
	if (all - fresh->nr > max) {
		leaf_free(fresh);
		return -ENOBUFS;
	}
	if (store_leaf(map, fresh->first, fresh->last, fresh)) {
		leaf_free(fresh);
		return -ENOMEM;
	}
	account_leaf(map, fresh);
	for (i = 0; i < all; i++) {
		if (!entry_is_dead(leaf, i, live, up_to))
			continue;
		entry_unpack(&leaf->entry[i], leaf->first, &ext);
		map->nr_chunks -= ext.nr;
		freed(context, &ext);
	}
	retire_leaf(map, leaf);
	return 0;
}

int cow_map_reclaim(struct cow_map *map, const struct cow_live *live, u32 up_to,
		    size_t max, u64 *chunk,
		    void (*freed)(void *context, const struct cow_extent *ext), void *context)
{
	struct cow_leaf *leaf;
	u64 next = 0;
	int r = 0;

	mutex_lock(&map->writer_lock);
	leaf = leaf_from(map, *chunk);
	if (leaf) {
		next = after_leaf(map, leaf);
		r = reclaim_leaf(map, leaf, live, up_to, max, freed, context);
	}
	mutex_unlock(&map->writer_lock);
	if (r != -ENOBUFS)
		*chunk = next;
	return r;
}

/* The newest epoch of a copied version. 0: there is none. */
static u32 newest_copy(const struct cow_leaf *leaf, const struct cow_group *group)
{
	u32 i = group->end;

	while (i-- > group->begin)
		if (cow_kind_is_copied(entry_kind(&leaf->entry[i])))
			return entry_epoch(&leaf->entry[i]);
	return 0;
}

/*
 * Is an epoch live, above @above and up to @up_to, that has no private version? Both lists ascend,
 * and are gone through once.
 */
static bool group_is_seen(const struct cow_leaf *leaf, const struct cow_group *group,
			  const struct cow_live *live, u32 above, u32 up_to)
{
	u32 at = live_up_to(live, up_to), i = group->end;
	bool has_own = true;

	while (has_own && at-- && live->epoch[at] > above) {
		has_own = false;
		for (; i > group->begin && entry_epoch(&leaf->entry[i - 1]) >= live->epoch[at]; i--)
			has_own |= entry_epoch(&leaf->entry[i - 1]) == live->epoch[at] &&
				   cow_kind_is_private(entry_kind(&leaf->entry[i - 1]));
	}
	return !has_own;
}

/* Does a live epoch up to @oldest, from which on the store has the chunks, see home? */
static bool group_shows_home(const struct cow_leaf *leaf, const struct cow_group *group,
			     const struct cow_live *live, u32 oldest)
{
	return group_is_seen(leaf, group, live, newest_copy(leaf, group), oldest);
}

bool cow_map_unsettled(struct cow_map *map, const struct cow_live *live, u64 chunk, u64 nr,
		       struct cow_unsettled *unsettled)
{
	const struct cow_entry *newest = NULL, *oldest;
	const struct cow_leaf *leaf;
	struct cow_group group;

	rcu_read_lock();
	leaf = mtree_load(&map->leaves, chunk);
	if (leaf && leaf_find_group(leaf, chunk, &group))
		newest = group_current(leaf, &group, group.end);
	if (newest) {
		entry_unpack(newest, leaf->first, &unsettled->ext);
		unsettled->ext.nr = min(unsettled->ext.nr, chunk - unsettled->ext.chunk + nr);
		extent_advance(&unsettled->ext, chunk - unsettled->ext.chunk);
		for (oldest = &leaf->entry[group.begin]; !cow_kind_is_current(entry_kind(oldest)); )
			oldest++;
		unsettled->has_older = oldest != newest;
		unsettled->oldest = entry_epoch(oldest);
		unsettled->home_is_seen = group_shows_home(leaf, &group, live,
							   unsettled->oldest);
	}
	rcu_read_unlock();
	return newest;
}

/* Does a live epoch see a CURRENT version that is not older than @epoch? There is one. */
static bool group_shows_later(const struct cow_leaf *leaf, const struct cow_group *group,
			      const struct cow_live *live, u32 epoch)
{
	u32 i, since = COW_EPOCH_NOW;

	for (i = group->end; i > group->begin && entry_epoch(&leaf->entry[i - 1]) >= epoch; i--)
		if (cow_kind_is_current(entry_kind(&leaf->entry[i - 1])))
			since = entry_epoch(&leaf->entry[i - 1]);
	return group_is_seen(leaf, group, live, max(since, newest_copy(leaf, group)),
			     COW_EPOCH_NOW);
}

bool cow_map_rolls_back(struct cow_map *map, const struct cow_live *live, u32 epoch, u64 chunk,
			u64 nr, struct cow_extent *ext)
{
	const struct cow_entry *newest = NULL, *seen;
	const struct cow_leaf *leaf;
	struct cow_group group;
	bool does = false;

	rcu_read_lock();
	leaf = mtree_load(&map->leaves, chunk);
	if (leaf && leaf_find_group(leaf, chunk, &group))
		newest = group_current(leaf, &group, group.end);
	if (newest && entry_epoch(newest) >= epoch) {
		seen = group_version(leaf, &group, epoch);
		does = (!seen || cow_kind_is_current(entry_kind(seen))) &&
		       !group_shows_later(leaf, &group, live, epoch);
		entry_unpack(newest, leaf->first, ext);
		ext->nr = min(ext->nr, chunk - ext->chunk + nr);
		extent_advance(ext, chunk - ext->chunk);
	}
	rcu_read_unlock();
	return does;
}

u64 cow_map_owned(struct cow_map *map, const struct cow_live *live, u64 chunk, u64 *owned)
{
	struct cow_leaf *leaf;
	struct cow_group group;
	u32 i, one, all;
	u64 next = 0;

	rcu_read_lock();
	leaf = leaf_from(map, chunk);
	all = leaf ? leaf_entries(leaf) : 0;
	for (i = 0; i < all; i++) {
		entry_group(leaf, i, &group);
		if (entry_users(leaf, &group, i, live, &one) == 1)
			owned[one] += entry_len(&leaf->entry[i]);
	}
	if (leaf)
		next = after_leaf(map, leaf);
	rcu_read_unlock();
	return next;
}

u64 cow_map_sole(struct cow_map *map, const struct cow_live *live,
		 const struct cow_extent *ext, u32 epoch)
{
	const struct cow_leaf *leaf;
	struct cow_group group;
	u64 nr = 0;
	u32 i, one;

	rcu_read_lock();
	leaf = mtree_load(&map->leaves, ext->chunk);
	if (leaf && leaf_find_group(leaf, ext->chunk, &group)) {
		for (i = group.begin; i < group.end; i++) {
			unsigned int users;

			if (entry_epoch(&leaf->entry[i]) != ext->epoch ||
			    entry_kind(&leaf->entry[i]) != ext->kind)
				continue;
			users = entry_users(leaf, &group, i, live, &one);
			if (!users || (users == 1 && live->epoch[one] == epoch))
				nr = group.first + group.nr - ext->chunk;
		}
	}
	rcu_read_unlock();
	return min(nr, ext->nr);
}

/* Has @epoch a version of what begins at @chunk? @ext is what it sees, a run of @leaf. */
static bool is_version(const struct cow_leaf *leaf, u64 chunk, u32 epoch, struct cow_extent *ext)
{
	leaf_view(leaf, chunk, epoch, ext);
	return ext->kind != COW_HOME;
}

/* A CURRENT version is at a place that no other version has. Home is at none. */
static bool same_thing(const struct cow_extent *a, const struct cow_extent *b)
{
	return a->kind == b->kind && (a->kind == COW_HOME || a->place == b->place);
}

/*
 * Does @epoch see something else there than the origin shows? If a version is added between the two
 * looks, it may seem so of a run that was in a gap.
 */
static bool is_different(const struct cow_leaf *leaf, u64 chunk, u32 epoch,
			 struct cow_extent *ext)
{
	struct cow_extent now;

	leaf_view(leaf, chunk, epoch, ext);
	leaf_view(leaf, chunk, COW_EPOCH_NOW, &now);
	/* A run may have become longer, too. */
	ext->nr = min(ext->nr, now.nr);
	return !same_thing(ext, &now);
}

/* The first run from @chunk on, before @end, that @is_it. One leaf at a time: there may be many. */
static bool map_walk(struct cow_map *map, u64 chunk, u64 end, u32 epoch, struct cow_extent *ext,
		     bool (*is_it)(const struct cow_leaf *leaf, u64 chunk, u32 epoch,
				   struct cow_extent *ext))
{
	struct cow_leaf *leaf;
	bool found = false;

	do {
		rcu_read_lock();
		leaf = leaf_from(map, chunk);
		if (leaf)
			chunk = max(chunk, leaf->first);
		while (leaf && !found && chunk < end && chunk <= leaf->last) {
			found = is_it(leaf, chunk, epoch, ext);
			chunk = ext->chunk + ext->nr;
		}
		rcu_read_unlock();
		cond_resched();
	} while (leaf && !found && chunk < end);
	if (found)
		ext->nr = min(ext->nr, end - ext->chunk);
	return found;
}

bool cow_map_next(struct cow_map *map, u64 chunk, u64 end, u32 epoch, struct cow_extent *ext)
{
	return map_walk(map, chunk, end, epoch, ext, is_version);
}

bool cow_map_next_differing(struct cow_map *map, u64 chunk, u64 end, u32 epoch,
			    struct cow_extent *ext)
{
	return map_walk(map, chunk, end, epoch, ext, is_different);
}

bool cow_map_agrees(struct cow_map *map, u64 chunk, u64 nr, u32 epoch, struct cow_extent *ext)
{
	struct cow_extent now;

	cow_map_lookup(map, chunk, nr, epoch, ext);
	if (ext->kind != COW_HOME && !cow_kind_is_current(ext->kind))
		return false;
	cow_map_lookup(map, chunk, ext->nr, COW_EPOCH_NOW, &now);
	ext->nr = now.nr;
	return same_thing(ext, &now);
}

/* -------------------------------------------------------------- set up, down */

void cow_map_init(struct cow_map *map)
{
	mt_init_flags(&map->leaves, MT_FLAGS_USE_RCU);
	mutex_init(&map->writer_lock);
	map->nr_entries = 0;
	map->nr_chunks = 0;
	map->nr_bytes = 0;
	map->twice = COW_NO_CHUNK;
	map->no_readers = false;
}

void cow_map_destroy(struct cow_map *map)
{
	struct cow_leaf *leaf;
	unsigned long index = 0;

	while ((leaf = mt_find(&map->leaves, &index, ULONG_MAX)))
		leaf_free(leaf);
	/*
	 * No readers are left, so the tree leaves RCU mode first: in that mode 6.1's
	 * mtree_destroy() spoils the last pointer of a full root and frees the wrong object.
	 */
	mt_clear_in_rcu(&map->leaves);
	mtree_destroy(&map->leaves);
	cow_map_init(map);
}

int cow_exception_init(void)
{
	unsigned int i;

	for (i = 0; i < LEAF_CLASSES; i++) {
		snprintf(leaf_cache_name[i], sizeof(leaf_cache_name[i]),
			 "cowsnap_leaf_%u", (i + 1) * LEAF_STEP_BYTES);
		leaf_cache[i] = kmem_cache_create(leaf_cache_name[i],
						  (i + 1) * LEAF_STEP_BYTES, 0, 0, NULL);
		if (!leaf_cache[i]) {
			cow_exception_exit();
			return -ENOMEM;
		}
	}
	return 0;
}

void cow_exception_exit(void)
{
	unsigned int i;

	/* Leaves that call_rcu() is still to free are in these caches. */
	rcu_barrier();
	for (i = 0; i < LEAF_CLASSES; i++) {
		kmem_cache_destroy(leaf_cache[i]);
		leaf_cache[i] = NULL;
	}
}

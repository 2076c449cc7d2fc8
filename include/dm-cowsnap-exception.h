/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the map of completed exceptions: which version of a chunk is where */
#ifndef DM_COWSNAP_EXCEPTION_H
#define DM_COWSNAP_EXCEPTION_H

#include <linux/mutex.h>

#include "dm-cowsnap.h"

enum cow_kind {
	COW_COPIED,		/* old data of the origin, in the store */
	COW_ZERO,		/* old data of the origin, all zero, not written */
	COW_PRIVATE,		/* written through a snapshot, in the store */
	COW_PRIVATE_ZERO,	/* zeroed through a snapshot, not written */
	COW_CURRENT,		/* of the origin since that epoch, in the store: redirected */
	COW_CURRENT_ZERO,	/* the same, all zero, not written */
	COW_HOME,		/* no exception: the origin itself (never stored) */
};

static inline bool cow_kind_is_private(enum cow_kind kind)
{
	return kind == COW_PRIVATE || kind == COW_PRIVATE_ZERO;
}

/* Does it hold what the origin had, up to its epoch? */
static inline bool cow_kind_is_copied(enum cow_kind kind)
{
	return kind == COW_COPIED || kind == COW_ZERO;
}

/* Is it what the origin shows, or has shown, since its epoch? */
static inline bool cow_kind_is_current(enum cow_kind kind)
{
	return kind == COW_CURRENT || kind == COW_CURRENT_ZERO;
}

/* Is there data at its place? */
static inline bool cow_kind_has_data(enum cow_kind kind)
{
	return kind == COW_COPIED || kind == COW_PRIVATE || kind == COW_CURRENT;
}

/* Is its slot written only when its data is durable, so that it is never in doubt? */
static inline bool cow_kind_needs_data(enum cow_kind kind)
{
	return cow_kind_is_private(kind) || cow_kind_is_current(kind);
}

/* Epochs count from 1 in memory; 0 means "none". 28 bits of them fit an entry. */
#define COW_EPOCH_MAX	COWSNAP_MAX_EPOCH

/* Above all: what this epoch sees is what the origin shows, unless there is a merge. */
#define COW_EPOCH_NOW	U32_MAX

/* Most chunks that a store can have, and that the origin of a transient store can have. */
#define COW_CHUNKS_MAX	BIT_ULL(COWSNAP_CHUNK_BITS)

/* Most chunks that the origin of a persistent store can have. */
#define COW_WIDE_MAX	BIT_ULL(COWSNAP_WIDE_BITS)

static inline u64 cow_origin_chunks_max(char persistence)
{
	return persistence == 'P' ? COW_WIDE_MAX : COW_CHUNKS_MAX;
}

#define COW_NO_CHUNK	U64_MAX

struct cow_map {
	struct maple_tree leaves;	/* first chunk .. last chunk -> struct cow_leaf */
	struct mutex writer_lock;		/* one at a time changes the map */
	u64 nr_entries;			/* packed entries */
	u64 nr_chunks;			/* exceptions: chunks times versions */
	u64 nr_bytes;			/* memory of the leaves */
	u64 twice;			/* a chunk with two CURRENT of one epoch, or COW_NO_CHUNK */
	bool no_readers;		/* no readers yet: leaves are freed at once */
};

/* A run of chunks with one version: an exception, or home. */
struct cow_extent {
	u64 chunk;		/* first chunk */
	u64 nr;			/* how many chunks follow in order, at least 1 */
	u64 place;		/* chunk in the store of the first one; see cow_placeless() */
	u32 epoch;		/* newest epoch that sees it; CURRENT: the last before it */
	enum cow_kind kind;
};

/*
 * An extent of a persistent store in 16 bytes. word[0]: from bit 20 on the chunk; below, the
 * high bits of the epoch. word[1]: from bit 56 on its low 8 bits; bit 55 copied, not private;
 * from bit 19 on the place; 18 zeroes; 17 current; below, the length - 1.
 */
struct cow_run {
	u64 word[2];
};

#define COW_RUN_COPIED		BIT_ULL(55)
#define COW_RUN_ZERO		BIT_ULL(18)
#define COW_RUN_CURRENT		BIT_ULL(17)

/* Longest run in one of these. */
#define COW_RUN_MAX		BIT_ULL(17)

/* The bits of word[0] that hold the chunk. */
#define COW_RUN_CHUNK		GENMASK_ULL(63, 20)

static_assert(COWSNAP_WIDE_BITS + 20 == 64, "the chunk of a run");
static_assert(COWSNAP_CHUNK_BITS == 55 - 19, "its place");

static inline void cow_run_pack(struct cow_run *run, const struct cow_extent *ext)
{
	run->word[0] = ext->chunk << 20 | ext->epoch >> 8;
	run->word[1] = (u64)ext->epoch << 56 | ext->place << 19 | (ext->nr - 1) |
		       (cow_kind_is_copied(ext->kind) ? COW_RUN_COPIED : 0) |
		       (cow_kind_is_current(ext->kind) ? COW_RUN_CURRENT : 0) |
		       (cow_kind_has_data(ext->kind) ? 0 : COW_RUN_ZERO);
}

/* Take the one chunk of @more into @run, if it goes on where @run ends. */
static inline bool cow_run_extend(struct cow_run *run, const struct cow_run *more)
{
	u64 more_chunks = run->word[1] & (COW_RUN_MAX - 1);	/* than one */

	if (more->word[0] != run->word[0] + ((more_chunks + 1) << 20) ||
	    more->word[1] != run->word[1] - more_chunks + ((more_chunks + 1) << 19) ||
	    more_chunks + 1 == COW_RUN_MAX)
		return false;
	run->word[1]++;
	return true;
}

/*
 * The place of a version without one: zeroes in a transient store. (In a persistent store
 * every version has a slot, and with it a place.) The number of the chunk is part of it,
 * so that runs of such versions are runs of places, too.
 */
static inline u64 cow_placeless(u64 chunk)
{
	return COW_CHUNKS_MAX + chunk;
}

/* One chunk of an extent: what a read of a copied version expects to find. */
struct cow_version {
	u64 chunk;		/* of the origin */
	u64 place;		/* chunk in the store */
	u32 epoch;
};

/* Does the version have a chunk of the store? */
static inline bool cow_has_place(const struct cow_extent *ext)
{
	return ext->kind != COW_HOME && ext->place < COW_CHUNKS_MAX;
}

/* Epochs of the live snapshots of a store, ascending. Replaced whole under RCU. */
struct cow_live {
	struct rcu_head rcu;
	unsigned int nr;
	u32 epoch[];
};

int cow_exception_init(void);
void cow_exception_exit(void);
void cow_map_init(struct cow_map *map);

/* No reader may be left. May sleep. */
void cow_map_destroy(struct cow_map *map);

/*
 * May an origin write touch @chunk without a copy, because no epoch in @live
 * still sees it at home? Not if it has a CURRENT version. Returns for how many chunks, from 1 to
 * @nr, the answer is the same.
 * Context: any; takes the RCU read lock itself. @live under RCU or held.
 */
u64 cow_map_preserved(struct cow_map *map, const struct cow_live *live,
		      u64 chunk, u64 nr, bool *preserved);

/*
 * What the snapshot of @epoch sees at @chunk and, in the same run, after it (at
 * most @nr chunks). Always fills @ext: kind COW_HOME where there is no exception. With
 * COW_EPOCH_NOW it is what the origin sees: CURRENT, or home.
 * Context: any; takes the RCU read lock itself.
 */
void cow_map_lookup(struct cow_map *map, u64 chunk, u64 nr, u32 epoch,
		    struct cow_extent *ext);

/*
 * Add the run @ext. A version of the same epoch and of the same sort (private, copied or
 * current) is replaced; where @taken_over is not 0 the copied version of that epoch
 * goes away in the same step. Readers see each leaf before or after, never between.
 * Context: may sleep. 0, or -ENOMEM with nothing lost: the first part of the run may be
 * added already. @ext becomes what is left to add, which the caller tries again.
 */
int cow_map_insert(struct cow_map *map, struct cow_extent *ext, u32 taken_over);

/*
 * Take the version @gone, of a run of chunks, out of the map; all of it is there, or some of it no
 * more. Context: as cow_map_insert(). 0, or -ENOMEM: some may be out already, and it is to be tried
 * again.
 */
int cow_map_remove(struct cow_map *map, const struct cow_extent *gone);

/* What the origin shows at some chunks, if that is a CURRENT version, and who sees others. */
struct cow_unsettled {
	struct cow_extent ext;	/* what the origin shows */
	u32 oldest;		/* epoch of the oldest CURRENT: from then on nobody sees home */
	bool has_older;		/* it is another one */
	bool home_is_seen;	/* by a live epoch */
};

/*
 * The CURRENT version at @chunk and, in the same run, after it (at most @nr chunks). False: home
 * is what the origin shows. Context: any; takes the RCU read lock itself. @live (NULL: none) must
 * stay.
 */
bool cow_map_unsettled(struct cow_map *map, const struct cow_live *live, u64 chunk, u64 nr,
		       struct cow_unsettled *unsettled);

/*
 * Does the snapshot of @epoch see at @chunk what the origin shows there, home or one CURRENT
 * version? For the chunks of @ext, which becomes what it sees, as cow_map_lookup(), the answer is
 * the same. Context: as there.
 */
bool cow_map_agrees(struct cow_map *map, u64 chunk, u64 nr, u32 epoch, struct cow_extent *ext);

/*
 * The next chunk from @chunk on, before @end, of which the snapshot of @epoch sees something else
 * than the origin shows; @ext is what it sees, which may be home, up to @end. False: there is none.
 * What is being added to the map may be found though it does not differ. Context: as
 * cow_map_next().
 */
bool cow_map_next_differing(struct cow_map *map, u64 chunk, u64 end, u32 epoch,
			    struct cow_extent *ext);

/*
 * May the origin be rolled back to @epoch at @chunk by forgetting what it has got since then? Not
 * if an epoch of @live (NULL: none) sees any of that, or if the snapshot has something of its own.
 * True: @ext is the newest CURRENT version, which goes first, there and, in the same run, after it
 * (at most @nr chunks). Context: as cow_map_unsettled().
 */
bool cow_map_rolls_back(struct cow_map *map, const struct cow_live *live, u32 epoch, u64 chunk,
			u64 nr, struct cow_extent *ext);

/*
 * Add @nr runs, by ascending chunk, while nobody reads the map. Where two have the same version
 * of a chunk (see above), or one and the map, the one at the higher place counts; if that is a
 * CURRENT at two places, map->twice is the chunk.
 * Context: may sleep. 0, or -ENOMEM: some may be added already, and all are to be added again.
 */
int cow_map_insert_runs(struct cow_map *map, const struct cow_run *run, size_t nr);

/*
 * Take versions that no epoch of @live sees out of the leaf at *@chunk, and call @freed for each
 * run. Versions with epochs above @up_to are left alone, since they are newer than @live.
 * *@chunk becomes the one after the leaf, 0 after the last one. 0, or -ENOMEM: then the leaf
 * stays as it is, and has to be tried again. -ENOBUFS: it has more than @max such runs, and
 * stays as it is, like *@chunk.
 * Context: as cow_map_insert(); @live (NULL: none) must stay.
 */
int cow_map_reclaim(struct cow_map *map, const struct cow_live *live, u32 up_to,
		    size_t max, u64 *chunk,
		    void (*freed)(void *context, const struct cow_extent *ext), void *context);

/*
 * How many chunks of the store does each epoch of @live alone keep, from the leaf at
 * @chunk? Adds to @owned, an array like @live->epoch. Returns the chunk after the leaf, 0 after
 * the last one.
 */
u64 cow_map_owned(struct cow_map *map, const struct cow_live *live, u64 chunk,
		  u64 *owned);

/*
 * For how many chunks, from the first of @ext on, is @epoch the only one of @live (NULL: none)
 * that sees the version @ext, a copied one? At most @ext->nr.
 * Context: any; takes the RCU read lock itself. @live must stay.
 */
u64 cow_map_sole(struct cow_map *map, const struct cow_live *live,
		 const struct cow_extent *ext, u32 epoch);

/*
 * The next chunk from @chunk on, before @end, for which @epoch has a version; @ext is that, up to
 * @end. False: there is none. It looks at all that is in between.
 * Context: may sleep; takes the RCU read lock itself.
 */
bool cow_map_next(struct cow_map *map, u64 chunk, u64 end, u32 epoch, struct cow_extent *ext);

#endif

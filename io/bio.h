/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: bios are cut, deferred, handed over and ended */
#ifndef DM_COWSNAP_IO_BIO_H
#define DM_COWSNAP_IO_BIO_H

#include <linux/bio.h>

#include "origin/absent.h"
#include "origin/origin.h"
#include "store/store.h"

struct cow_bio;

/*
 * A bio has completed. A read that may have seen new data becomes an error in *@status.
 * DM_ENDIO_DONE, or DM_ENDIO_INCOMPLETE: it is still to be verified, or what it wrote is
 * still to be published, or it goes on with the rest. Context: any.
 */
int cow_bio_ended(struct cow_bio *cb, blk_status_t *status);

/* No memory: decide again when some is free. Context: process. */
void cow_bio_defer(struct cow_bio *cb);

/* Have a worker take @cb. Sets @part to it, returns DM_MAPIO_SUBMITTED. Any context. */
int cow_bio_hand_over(struct cow_bio *cb, struct cow_bio **part);

/*
 * Cut @cb after @nr_sectors: in map dm does it, in a worker the front becomes a piece. The
 * caller goes on with the bio that is returned, and leaves @cb alone if that is another one.
 * NULL, in map only: a REQ_NOWAIT bio is not cut; the caller hands it over.
 */
struct cow_bio *cow_bio_front(struct cow_bio *cb, u64 nr_sectors);

/* How many chunks @bio touches, from *@first on. It has sectors. Any context. */
static inline u64 cow_bio_chunks(const struct cow_store *store, const struct bio *bio, u64 *first)
{
	*first = cow_sector_to_chunk(store, bio->bi_iter.bi_sector);
	return cow_sector_to_chunk(store, bio_end_sector((struct bio *)bio) - 1) - *first + 1;
}

/* How many sectors of @bio, from its start, lie in the @nr chunks from @first. Any context. */
static inline u64 cow_bio_sectors_within(const struct cow_store *store, const struct bio *bio,
					 u64 first, u64 nr)
{
	return min_t(u64, bio_sectors(bio),
		     cow_chunk_to_sector(store, first + nr) - bio->bi_iter.bi_sector);
}

/* @bio, which begins in chunk @first, goes to @place of the store. Any context. */
static inline void cow_bio_point_at_store(struct cow_store *store, struct bio *bio, u64 first,
					  u64 place)
{
	bio_set_dev(bio, store->bdev);
	bio->bi_iter.bi_sector += cow_chunk_to_sector(store, place) -
				  cow_chunk_to_sector(store, first);
}

/* The origin is written, at home or in a store. Any context. */
static inline void cow_bio_note_absent(struct cow_origin *o)
{
	/*
	 * After the look at the stores: a store is noted as absent before it leaves the list.
	 * Pairs with smp_wmb() in cow_absent_add().
	 */
	smp_rmb();
	if (unlikely(READ_ONCE(o->nr_absent)))
		cow_absent_note_write(o);
}

/* The pool that parts of bios come from. May sleep. 0 or a negative errno. */
int cow_pieces_init(struct bio_set *pieces);
void cow_pieces_exit(struct bio_set *pieces);

#endif

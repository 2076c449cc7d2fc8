/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: bios are cut, deferred, handed over and ended */
#ifndef DM_COWSNAP_IO_BIO_H
#define DM_COWSNAP_IO_BIO_H

#include <linux/bio.h>

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

/* The pool that parts of bios come from. May sleep. 0 or a negative errno. */
int cow_pieces_init(struct bio_set *pieces);
void cow_pieces_exit(struct bio_set *pieces);

#endif

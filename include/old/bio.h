/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: what older kernels lack of bios */
#ifndef DM_COWSNAP_OLD_BIO_H
#define DM_COWSNAP_OLD_BIO_H

#include <linux/bio.h>
#include <linux/highmem.h>
#include <linux/mm.h>

/* A type of its own since 6.0. */
#ifndef COWSNAP_HAS_BLK_OPF
typedef unsigned int __bitwise blk_opf_t;
#endif

/* Named so since 5.16. */
#ifndef COWSNAP_HAS_REQ_POLLED
#define REQ_POLLED	REQ_HIPRI
#endif

/* Named so since 5.12. */
#ifndef COWSNAP_HAS_BIO_MAX_VECS
#define BIO_MAX_VECS	((unsigned int)BIO_MAX_PAGES)
#endif

/* Since 5.18 a bio is told its device and what it is for from the start. */
#ifndef COWSNAP_HAS_BIO_INIT_BDEV
static inline void cow_old_bio_init(struct bio *bio, struct block_device *bdev,
				    struct bio_vec *table, unsigned short max_vecs,
				    blk_opf_t opf)
{
	bio_init(bio, table, max_vecs);
	if (bdev)
		bio_set_dev(bio, bdev);
	bio->bi_opf = (__force unsigned int)opf;
}

static inline struct bio *cow_old_bio_alloc(struct block_device *bdev,
					    unsigned short nr_vecs, blk_opf_t opf,
					    gfp_t gfp, struct bio_set *bs)
{
	struct bio *bio = bio_alloc_bioset(gfp, nr_vecs, bs);

	if (!bio)
		return NULL;
	if (bdev)
		bio_set_dev(bio, bdev);
	bio->bi_opf = (__force unsigned int)opf;
	return bio;
}

#define bio_init		cow_old_bio_init
#define bio_alloc_bioset	cow_old_bio_alloc
#endif

/* Until 5.11 a bio had no pointer to its device: it had disk and partition. */
static inline int cow_bio_cmp_device(const struct bio *x, const struct bio *y)
{
#ifdef COWSNAP_HAS_BI_BDEV
	if (x->bi_bdev != y->bi_bdev)
		return x->bi_bdev < y->bi_bdev ? -1 : 1;
	return 0;
#else
	if (x->bi_disk != y->bi_disk)
		return x->bi_disk < y->bi_disk ? -1 : 1;
	return (int)x->bi_partno - (int)y->bi_partno;
#endif
}

/* Where @bio goes, until it is sent: drivers of bios may send it elsewhere. */
static inline struct gendisk *cow_bio_disk(const struct bio *bio)
{
#ifdef COWSNAP_HAS_BI_BDEV
	return bio->bi_bdev->bd_disk;
#else
	return bio->bi_disk;
#endif
}

/*
 * @bio may go to @bdev. Unlike bio_set_dev() this takes no reference on what the block layer
 * knows of the submitter there: bio_associate_blkg() does, before the bio is submitted.
 */
static inline void cow_bio_note_dev(struct bio *bio, struct block_device *bdev)
{
#ifdef COWSNAP_HAS_BI_BDEV
	bio->bi_bdev = bdev;
#else
	bio->bi_disk = bdev->bd_disk;
	bio->bi_partno = bdev->bd_partno;
#endif
}

/* An empty bio for the device of @bio, with its flags. */
static inline struct bio *cow_bio_alloc_like(struct bio *bio, unsigned short nr_vecs,
					     gfp_t gfp, struct bio_set *bs)
{
#ifdef COWSNAP_HAS_BI_BDEV
	return bio_alloc_bioset(bio->bi_bdev, nr_vecs, bio->bi_opf, gfp, bs);
#else
	struct bio *like = bio_alloc_bioset(NULL, nr_vecs, (__force blk_opf_t)bio->bi_opf,
					    gfp, bs);

	if (like)
		bio_copy_dev(like, bio);
	return like;
#endif
}

/* The same data for the same device. */
static inline struct bio *cow_bio_clone(struct bio *bio, gfp_t gfp, struct bio_set *bs)
{
#ifdef COWSNAP_HAS_BIO_ALLOC_CLONE
	return bio_alloc_clone(bio->bi_bdev, bio, gfp, bs);
#else
	return bio_clone_fast(bio, gfp, bs);
#endif
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A store as bytes in memory, for those who make one or damage one. Written from
 * the format's header alone: nothing of tools/ but the crc is used, so that one
 * mistake cannot hide another.
 */
#ifndef COWSNAP_FUZZ_IMAGE_H
#define COWSNAP_FUZZ_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dm-cowsnap-format.h"

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;

struct image {
	u8 *data;
	size_t bytes;
	u8 uuid[16];
	u32 blocks;		/* in use, as the superblock says, and there */
	struct cowsnap_geometry geo;
};

/* Numbers that a seed repeats. */
struct rng {
	u64 state;
};

u64 rng_next(struct rng *r);
/* One below @limit; 0 if that is 0. */
u64 rng_below(struct rng *r, u64 limit);

/* Learn sizes from the superblock that is whole. False if none is. */
bool image_open(struct image *im, u8 *data, size_t bytes);

u64 image_chunks(const struct image *im);
/* Where table block @nr begins, in bytes. */
size_t image_block_offset(const struct image *im, u64 nr);
/* Its header, or NULL if it has none, or is not there. */
struct cowsnap_block_header *image_block_header(struct image *im, u64 nr);
/* The slot for a data chunk, or NULL if it is none. */
struct cowsnap_slot *image_slot(struct image *im, u64 place, u64 *nr);
bool image_is_data(const struct image *im, u64 place);

/* Give it the right crc. */
void image_seal_super(struct image *im, int copy);
void image_seal_block(struct image *im, u64 nr);
void image_seal_records(struct image *im, size_t offset);
/* The record of the log in the last block of @chunk. */
void image_seal_log_record(struct image *im, u64 chunk);
u32 image_data_crc(const struct image *im, u64 place);
struct cowsnap_super *image_super(struct image *im, int copy);

#endif

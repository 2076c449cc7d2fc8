/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef COWSNAP_FUZZ_TARGET_H
#define COWSNAP_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

/* As libFuzzer calls it: @data is an image of a device. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An image of a device. */
struct target_image {
	const uint8_t *data;
	size_t size;
	const uint8_t *lost;	/* a byte for each sector, not 0: it cannot be read; or NULL */
};

/* What LLVMFuzzerTestOneInput() does. */
void target_try(const struct target_image *image);

/*
 * Repair @image; a snapshot that is still alive then must show what it showed in @whole, or
 * an error. Not for images with forged checksums.
 */
void target_keeps_views(const struct target_image *whole, const struct target_image *image);

/*
 * What diff says of @image, if it says anything, has all chunks in which the snapshots differ
 * in @whole, as the kernel sees them. Not for images with forged checksums.
 */
void target_misses_nothing(const struct target_image *whole, const struct target_image *image);

/*
 * Repair, but the machine dies after one of repair's writes, as @seed says, and what was
 * not flushed is lost or not: neither the kernel nor a second repair may believe what was
 * not believed before.
 */
void target_interrupted(const struct target_image *whole, const struct target_image *image,
			uint64_t seed);

/*
 * The origin of @whole, a store that is clean, is sealed, written, and opened again, and the power
 * goes at one of the writes to either device: whoever opens it then finds what it had.
 */
void target_sealed(const struct target_image *whole, uint64_t seed);

/*
 * The same with a store that has data of its origin, which is settled until nothing is left: the
 * power goes, or a write fails, and everybody sees what they saw.
 */
void target_settled(const struct target_image *whole, uint64_t seed);

/* What has come of the images so far. */
struct target_counts {
	unsigned long refused, clean, repaired, left, failed, lost, unreadable, cuts, diffs;
	unsigned long seals, seal_cuts, settles, settle_cuts, settle_errors;
};

extern struct target_counts target_counts;

#endif

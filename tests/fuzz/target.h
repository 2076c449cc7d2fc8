/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef COWSNAP_FUZZ_TARGET_H
#define COWSNAP_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

/* As libFuzzer calls it: @data is an image of a device. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Repair the image @data; a snapshot that is still alive then must show what it
 * showed in the image @whole, or an error. Not for images with forged checksums.
 */
void target_keeps_views(const uint8_t *whole, size_t whole_size, const uint8_t *data,
			size_t size);

/* What has come of the images so far. */
struct target_counts {
	unsigned long refused, clean, repaired, left, failed;
};

extern struct target_counts target_counts;

#endif

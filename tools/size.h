/* SPDX-License-Identifier: GPL-2.0-only */
/* Sizes and times, as people write and read them. */
#ifndef COWSNAP_TOOLS_SIZE_H
#define COWSNAP_TOOLS_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* "4K", "1M", "512s" (sectors); a number alone is KiB, as lvm has it. 0, or -1. */
int size_read(const char *text, uint64_t *bytes);
/* "1.5G" */
const char *size_text(uint64_t bytes, char *text, size_t len);
/* "3d 4h", "5m 10s" */
const char *time_text(uint64_t seconds, char *text, size_t len);

#endif

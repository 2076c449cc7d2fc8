/* SPDX-License-Identifier: GPL-2.0-only */
/* crc32c (Castagnoli) as the kernel computes it: no inversion before or after. */
#ifndef COWSNAP_TOOLS_CRC32C_H
#define COWSNAP_TOOLS_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(uint32_t crc, const void *data, size_t len);

/*
 * The stored crc of @data and the computed one differ by @difference. If one wrong bit
 * explains that, in the data or in the stored crc, the bit of the data is set right, and
 * true is returned. Two wrong bits or more are beyond this.
 */
bool crc32c_mend(uint8_t *data, size_t len, uint32_t difference);

#endif

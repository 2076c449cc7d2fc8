/* SPDX-License-Identifier: GPL-2.0-only */
/* What disk/gap.c needs of the kernel. */
#ifndef COWGAP_KERNEL_H
#define COWGAP_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;

#define min_t(type, a, b)	((type)(a) < (type)(b) ? (type)(a) : (type)(b))
#define min(a, b)		min_t(u32, a, b)
#define max(a, b)		((a) > (b) ? (a) : (b))

#endif

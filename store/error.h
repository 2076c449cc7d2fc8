/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: why a table is refused */
#ifndef DM_COWSNAP_STORE_ERROR_H
#define DM_COWSNAP_STORE_ERROR_H

#include <linux/compiler.h>

/* Words for ti->error, with values in them. Context: any. */
__printf(2, 3) void cow_fail(char **error, const char *format, ...);

#endif

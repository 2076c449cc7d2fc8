// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: why a table is refused, in words with values in them
 */
#include <linux/atomic.h>
#include <linux/kernel.h>

#include "dm-cowsnap-compat.h"
#include "store/error.h"

void cow_fail(char **error, const char *format, ...)
{
	/* dm prints ti->error right after ctr, so a ring of a few buffers is enough. */
	static char words[8][192];
	static atomic_t turn;
	unsigned int i = atomic_inc_return(&turn);
	va_list args;

	*error = words[i % ARRAY_SIZE(words)];
	va_start(args, format);
	vscnprintf(*error, sizeof(words[0]), format, args);
	va_end(args);
}

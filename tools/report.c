// SPDX-License-Identifier: GPL-2.0-only
/* Lines about a store. */
#include <stdarg.h>
#include <stdio.h>

#include "report.h"

void report(struct report *r, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	r->lines++;
	r->line(r, text);
}

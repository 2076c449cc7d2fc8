// SPDX-License-Identifier: GPL-2.0-only
/* Lines about a store. */
#include <stdarg.h>
#include <stdio.h>

#include "report.h"

static void say(struct report *r, const char *format, va_list args)
{
	char text[512];

	vsnprintf(text, sizeof(text), format, args);
	r->line(r, text);
}

void report(struct report *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(r, format, args);
	va_end(args);
	r->lines++;
}

void report_note(struct report *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(r, format, args);
	va_end(args);
}

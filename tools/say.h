/* SPDX-License-Identifier: GPL-2.0-only */
/* What goes wrong is said in one sentence: on stderr, or to whoever called the library. */
#ifndef COWSNAP_TOOLS_SAY_H
#define COWSNAP_TOOLS_SAY_H

#include <stddef.h>

/* What a command ends with. */
#define EXIT_CLEAN	0
#define EXIT_DAMAGE	1	/* found, or mended */
#define EXIT_CANNOT	2

struct cowsnap;

/* "cowsnap: SENTENCE" on stderr; returns EXIT_CANNOT. */
int cannot_say(const char *sentence);

/* The last of them, without the program's name; "". */
const char *said_last(void);

/* "cowsnap: WHAT: WHY" on stderr; returns EXIT_CANNOT. */
int cannot(const char *what, const char *why);
int cannot_because(const char *what, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* What the library says, on stderr; returns EXIT_CANNOT. */
int say_error(const struct cowsnap *c);

/* The sentences of this thread go to @text, the last one stays; NULL: to stderr again. */
void say_into(char *text, size_t len);

#endif

// SPDX-License-Identifier: GPL-2.0-only
/* What goes wrong is said in one sentence: see say.h. */
#include <stdarg.h>
#include <stdio.h>

#include "lib/cowsnap.h"
#include "say.h"

static __thread char *caught;
static __thread size_t caught_len;
static __thread char last_sentence[600];

void say_into(char *text, size_t len)
{
	caught = text;
	caught_len = len;
}

/* A name may have any characters: it must not make two lines of one, nor speak to a terminal. */
static void in_one_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == '\x7f')
			*text = '?';
}

int cannot_say(const char *sentence)
{
	snprintf(last_sentence, sizeof(last_sentence), "%s", sentence);
	in_one_line(last_sentence);
	if (caught)
		snprintf(caught, caught_len, "%s", last_sentence);
	else
		fprintf(stderr, "cowsnap: %s\n", last_sentence);
	return EXIT_CANNOT;
}

const char *said_last(void)
{
	return last_sentence;
}

int cannot(const char *what, const char *why)
{
	char text[sizeof(last_sentence)];

	snprintf(text, sizeof(text), "%s: %s", what, why);
	return cannot_say(text);
}

int cannot_because(const char *what, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return cannot(what, text);
}

int say_error(const struct cowsnap *c)
{
	return cannot_say(cowsnap_error(c));
}

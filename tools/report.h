/* SPDX-License-Identifier: GPL-2.0-only */
/* Where lines about a store go, and how many there were. */
#ifndef COWSNAP_TOOLS_REPORT_H
#define COWSNAP_TOOLS_REPORT_H

struct report {
	void (*line)(struct report *r, const char *text);
	unsigned long lines;
};

/* Of damages of one sort, so many get a line each; then they are counted. */
#define REPORT_FIRST	10

/* One line of it, without its end. */
void report(struct report *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The same, but no damage: it is not counted. */
void report_note(struct report *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* How far long work has come: on stderr, in one line of a terminal, or a line now and then. */
#ifndef COWSNAP_TOOLS_PROGRESS_H
#define COWSNAP_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *doing;	/* "copied" */
	uint64_t total, first;	/* bytes; those done when it began */
	uint64_t begin, said;	/* ms */
	bool terminal, quiet;
};

/* @done: what an earlier run did. */
void progress_begin(struct progress *p, const char *doing, uint64_t total, uint64_t done,
		    bool quiet);
void progress_show(struct progress *p, uint64_t done);
/* The end of its line. */
void progress_end(struct progress *p);

uint64_t now_ms(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* How far long work has come: a line on stderr, with the rate and the time left. */
#ifndef COWSNAP_TOOLS_STREAM_PROGRESS_H
#define COWSNAP_TOOLS_STREAM_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool shown;		/* at all */
	bool terminal;		/* one line, written over; else a line each time */
	const char *what;
	uint64_t total;		/* bytes; 0: unknown */
	uint64_t done;
	double start, last;	/* seconds */
};

/* Shown if stderr is a terminal, or if @always. */
void progress_begin(struct progress *p, const char *what, uint64_t total, bool always);
/* @done bytes in all. Says something once a second. */
void progress_step(struct progress *p, uint64_t done);
/* The last line. */
void progress_end(struct progress *p);

double monotonic_seconds(void);

/* "1.5 GiB" */
const char *bytes_text(uint64_t bytes, char *text, unsigned int len);
/* A number with K, M, G or T; 0 if it is none. */
uint64_t read_bytes(const char *word);

#endif

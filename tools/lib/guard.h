/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process of its own that resumes devices when their time is up, or when whoever suspended
 * them has died.
 */
#ifndef LIBCOWSNAP_GUARD_H
#define LIBCOWSNAP_GUARD_H

#include <stdbool.h>
#include <sys/types.h>

struct guard {
	pid_t pid;
	int control;		/* the device mapper's */
	int end;		/* of a socket: closing it without a word means death */
};

/* Before anything is suspended. 0, or -1. */
int guard_start(struct guard *g, const char *const *names, unsigned int nr,
		unsigned int seconds);
/* Resume a device at once: udev, which may need another one of them, is not waited for. */
bool guard_resume(const struct guard *g, const char *name);
/* True: it has not resumed anything, and will not any more. */
bool guard_end(struct guard *g);

#endif

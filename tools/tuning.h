/* SPDX-License-Identifier: GPL-2.0-only */
/* The options of a store: as create takes them, and set. */
#ifndef COWSNAP_TOOLS_TUNING_H
#define COWSNAP_TOOLS_TUNING_H

#include <stddef.h>

#include "command.h"

/*
 * An option by its name, with - or _. @text gets what the module takes: "copy_ahead 512". 0, or
 * EXIT_CANNOT after a sentence.
 */
int tuning_read(const char *what, const char *name, const char *value, char *text, size_t len);

/* All that are given, each with a space before it. The number of words; -1 after a sentence. */
int tuning_given(const struct words *w, char *text, size_t len);

/* Those of create, for its list of options. */
#define TUNING_OPTIONS \
	{ "on-full", 0, "WHAT", "what a full store does: invalidate, drop_oldest, wait" }, \
	{ "wait-timeout", 0, "SECONDS", "how long writers wait with --on-full=wait" }, \
	{ "low-water", 0, "PERCENT", "raise an event when so much of the store is used" }, \
	{ "throttle", 0, "PERCENT", "share of time in which copies may run" }, \
	{ "copy-ahead", 0, "SIZE", "copy so far ahead of sequential writers" }, \
	{ "copy-around", 0, "SIZE", "copy regions of this size; 0: do not" }, \
	{ "undo-buffer", 0, "SIZE", "old data of a transient store kept in memory" }

#endif

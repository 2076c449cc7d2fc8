/* SPDX-License-Identifier: GPL-2.0-only */
/* What a handle has, and how its functions fail. */
#ifndef LIBCOWSNAP_HANDLE_H
#define LIBCOWSNAP_HANDLE_H

#include <stdbool.h>

#include "cowsnap.h"

struct cowsnap {
	struct cowsnap_item *origins;
	char error[640];
	/* Dry: what would be done is said here. */
	void (*line)(void *data, const char *text);
	void *data;
};

/* Notes the sentence, and returns @result. */
int fail(struct cowsnap *c, enum cowsnap_result result, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int fail_no_memory(struct cowsnap *c);

/* A snapshot by its name. NULL: failed, with *@result. */
const struct cowsnap_item *need_snapshot(struct cowsnap *c, const char *name, int *result);
const struct cowsnap_item *need_origin(struct cowsnap *c, const char *name, int *result);
/* Is the origin ours to change? 0, or a failure that names who does it. */
int refuse_managed(struct cowsnap *c, const struct cowsnap_item *origin, const char *instead);

#endif

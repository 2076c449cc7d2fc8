/* SPDX-License-Identifier: GPL-2.0-only */
/* Why the kernel refused something: it only says so in its log. */
#ifndef LIBCOWSNAP_KMSG_H
#define LIBCOWSNAP_KMSG_H

#include <stdbool.h>
#include <stddef.h>

struct kmsg {
	int fd;
};

void kmsg_mark(struct kmsg *k);
/* The last line of the device mapper since the mark, without what stands before its words. */
bool kmsg_since(struct kmsg *k, char *text, size_t len);
void kmsg_close(struct kmsg *k);

/* The words of a record of /dev/kmsg; NULL: it is not the device mapper's. */
const char *kmsg_words(char *record);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the module prints, as docs/reference.md has it. The functions return 0, -1 for a text
 * that is none of the module's, or -2 without memory.
 */
#ifndef LIBCOWSNAP_PARSE_H
#define LIBCOWSNAP_PARSE_H

#include "item.h"

#define PARSE_BAD	-1
#define PARSE_NO_MEMORY	-2

/* The status line of an origin: its counters become keys. */
int parse_origin_status(struct cowsnap_item *origin, const char *text);

/* The answer to the message list: stores and snapshots go inside. */
int parse_list(struct cowsnap_item *origin, const char *text);

/*
 * The status of a snapshot's device, of dm-snapshot too: the room becomes that of its store, a
 * last word its state.
 */
int parse_snapshot_status(struct cowsnap_item *snap, const char *text);

/* "<used>/<total> <metadata>" of a merge: sectors that are left. */
int parse_merge_left(const char *text, uint64_t *sectors);

/* A table of one of the targets, without start, length and target. */
struct parsed_table {
	char below[16], store[16];	/* "major:minor"; no store: "" */
	unsigned int id;
	char kind;			/* 'P' or 'N'; 0: an origin */
	unsigned int chunk_sectors;
	char discard[16];		/* of an origin; "" if its table has none */
};

int parse_table(struct parsed_table *t, const char *target, const char *text);

#endif

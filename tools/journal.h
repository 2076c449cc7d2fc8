/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How far a clone is, in a file, so that a run after a SIGKILL goes on. What the file says is
 * on the target, durably. The checksums are those of the last stretch copied, and of some pages of
 * all that was copied: if the target has something else there, it was used for something else, and
 * the copy begins anew.
 */
#ifndef COWSNAP_TOOLS_JOURNAL_H
#define COWSNAP_TOOLS_JOURNAL_H

#include <stdint.h>

#define JOURNAL_DIR "/var/lib/cowsnap"

struct journal {
	char path[300];
	char what[400];		/* which clone it is, in one line without spaces */
	uint64_t done;		/* bytes */
	uint64_t stretch;	/* how many of them the checksum is of, the last ones */
	uint32_t crc;
	uint32_t pages;		/* checksum of these */
};

/* The journal of the clone @what; ->done is 0 unless an earlier run of the same left more. */
void journal_open(struct journal *j, const char *what);
/* 0, or -1: it cannot be written. */
int journal_write(const struct journal *j);
void journal_remove(const struct journal *j);

#endif

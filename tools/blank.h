/* SPDX-License-Identifier: GPL-2.0-only */
/* Stores that nobody has open are made, and their snapshots given up, without the module. */
#ifndef COWSNAP_TOOLS_BLANK_H
#define COWSNAP_TOOLS_BLANK_H

#include <stdint.h>

/*
 * A store without snapshots, for the origin with that "major:minor", with the options that the
 * module would give it. It is no store before it is a whole one. @uuid: 33 bytes. 0, or
 * EXIT_CANNOT after a sentence.
 */
int blank_make(const char *path, const char *origin, uint32_t chunk_sectors, char *uuid);

#define BLANK_MERGING	3

/*
 * All snapshots become invalid, since at that second, of those since 1970, their origin was used
 * without them; *@nr is how many. By a clock that was wrong nothing is believed. Only one that is
 * being rolled back is refused if it was made before, or left alone: its origin is half of it.
 * 0, or EXIT_CANNOT or BLANK_MERGING after a sentence.
 */
int blank_give_up(const char *path, uint64_t lost, unsigned int *nr);

/* How many snapshots does a store that others may have open call live? 0, or EXIT_CANNOT. */
int blank_count_live(const char *path, unsigned int *nr);

#endif

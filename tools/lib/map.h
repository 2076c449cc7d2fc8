/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Mapped devices, through libdevmapper. The functions that change something only say so in a
 * dry run. They return 0, or a negative enum cowsnap_result with the sentence noted.
 */
#ifndef LIBCOWSNAP_MAP_H
#define LIBCOWSNAP_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "handle.h"

struct map_line {
	uint64_t start, sectors;
	char *target;
	char *words;		/* of the table, or of the status */
};

struct map {
	unsigned int major, minor;
	int open_count;
	bool suspended, read_only;
	bool inactive;		/* another table waits to come into force */
	char uuid[130];
	struct map_line *line;
	unsigned int nr_lines;
};

/* Once for a handle. */
int map_init(struct cowsnap *c);

/* The names of all mapped devices, NULL after the last; one piece of memory to be freed. */
int map_names(struct cowsnap *c, char ***names);
/* COWSNAP_NONE: there is none of that name, or it has no table. */
int map_read_table(struct cowsnap *c, const char *name, struct map *m);
int map_read_status(struct cowsnap *c, const char *name, struct map *m);
void map_free(struct map *m);

/* How a device is made. */
#define MAP_READ_ONLY	1
#define MAP_HIDDEN	2	/* udev makes no links to its contents */

int map_create(struct cowsnap *c, const char *name, const struct map *table, int flags);
/* Of a device that was made by somebody who was killed before its table came into force. */
int map_remove_remains(struct cowsnap *c, const char *name);
/*
 * A table comes into force: one step for whoever may be killed before it. If it is refused, the
 * device has the table that it had.
 */
int map_reload(struct cowsnap *c, const char *name, const struct map *table);
/* Drop a table that waits. */
int map_clear(struct cowsnap *c, const char *name);
int map_suspend(struct cowsnap *c, const char *name);
int map_resume(struct cowsnap *c, const char *name);
int map_remove(struct cowsnap *c, const char *name);
int map_message(struct cowsnap *c, const char *name, const char *message);
/* A message that is a question, also in a dry run. *@answer is to be freed. */
int map_ask(struct cowsnap *c, const char *name, const char *message, char **answer);

/* A table of one line, in @m and @line, that need not be freed. */
void map_one_line(struct map *m, struct map_line *line, uint64_t sectors, const char *target,
		  const char *words);

#endif

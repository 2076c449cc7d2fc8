/* SPDX-License-Identifier: GPL-2.0-only */
/* create, for the table of commands. */
#ifndef COWSNAP_TOOLS_CREATE_H
#define COWSNAP_TOOLS_CREATE_H

#include <stdint.h>

#include "command.h"

extern const struct option_text create_options[];
int command_create(const struct words *w);
/* The same; but udev makes no links to what is in the origin. */
int command_create_hidden(const struct words *w);

/* The option --chunk, in sectors. 0, or EXIT_CANNOT after a sentence. */
int read_chunk(const struct words *w, uint64_t *sectors);

#endif

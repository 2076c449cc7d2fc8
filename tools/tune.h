/* SPDX-License-Identifier: GPL-2.0-only */
/* set and resize, for the table of commands. */
#ifndef COWSNAP_TOOLS_TUNE_H
#define COWSNAP_TOOLS_TUNE_H

#include "command.h"

int command_set(const struct words *w);
int command_resize(const struct words *w);

#endif

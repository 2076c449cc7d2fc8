/* SPDX-License-Identifier: GPL-2.0-only */
/* watch, for the table of commands. */
#ifndef COWSNAP_TOOLS_WATCH_H
#define COWSNAP_TOOLS_WATCH_H

#include "command.h"

extern const struct option_text watch_options[];
int command_watch(const struct words *w);

#endif

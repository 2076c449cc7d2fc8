/* SPDX-License-Identifier: GPL-2.0-only */
/* diff, for the table of commands. */
#ifndef COWSNAP_TOOLS_DIFF_COMMAND_H
#define COWSNAP_TOOLS_DIFF_COMMAND_H

#include "command.h"

extern const struct option_text diff_options[];
int command_diff(const struct words *w);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* clone, for the table of commands. */
#ifndef COWSNAP_TOOLS_CLONE_H
#define COWSNAP_TOOLS_CLONE_H

#include "command.h"

extern const struct option_text clone_options[];
int command_clone(const struct words *w);

#endif

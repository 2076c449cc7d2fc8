/* SPDX-License-Identifier: GPL-2.0-only */
/* remove, for the table of commands. */
#ifndef COWSNAP_TOOLS_REMOVE_H
#define COWSNAP_TOOLS_REMOVE_H

#include "command.h"

extern const struct option_text remove_options[];
int command_remove(const struct words *w);

#endif

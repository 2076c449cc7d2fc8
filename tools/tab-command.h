/* SPDX-License-Identifier: GPL-2.0-only */
/* cowsnap tab, for the table of commands. */
#ifndef COWSNAP_TOOLS_TAB_COMMAND_H
#define COWSNAP_TOOLS_TAB_COMMAND_H

#include "command.h"

extern const struct option_text tab_options[];
int command_tab(const struct words *w);

#endif

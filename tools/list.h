/* SPDX-License-Identifier: GPL-2.0-only */
/* list and status, for the table of commands. */
#ifndef COWSNAP_TOOLS_LIST_H
#define COWSNAP_TOOLS_LIST_H

#include "command.h"

extern const struct option_text list_options[];
int command_list(const struct words *w);

extern const struct option_text status_options[];
int command_status(const struct words *w);

#endif

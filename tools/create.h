/* SPDX-License-Identifier: GPL-2.0-only */
/* create, for the table of commands. */
#ifndef COWSNAP_TOOLS_CREATE_H
#define COWSNAP_TOOLS_CREATE_H

#include "command.h"

extern const struct option_text create_options[];
int command_create(const struct words *w);

#endif

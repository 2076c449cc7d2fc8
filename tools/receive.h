/* SPDX-License-Identifier: GPL-2.0-only */
/* receive, for the table of commands. */
#ifndef COWSNAP_TOOLS_RECEIVE_H
#define COWSNAP_TOOLS_RECEIVE_H

#include "command.h"

extern const struct option_text receive_options[];
int command_receive(const struct words *w);

#endif

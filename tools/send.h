/* SPDX-License-Identifier: GPL-2.0-only */
/* send, for the table of commands. */
#ifndef COWSNAP_TOOLS_SEND_H
#define COWSNAP_TOOLS_SEND_H

#include "command.h"

extern const struct option_text send_options[];
int command_send(const struct words *w);

#endif

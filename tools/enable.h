/* SPDX-License-Identifier: GPL-2.0-only */
/* enable and disable, for the table of commands. */
#ifndef COWSNAP_TOOLS_ENABLE_H
#define COWSNAP_TOOLS_ENABLE_H

#include "command.h"

extern const struct option_text enable_options[];
int command_enable(const struct words *w);

extern const struct option_text disable_options[];
int command_disable(const struct words *w);

#endif

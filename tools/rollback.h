/* SPDX-License-Identifier: GPL-2.0-only */
/* rollback, for the table of commands. */
#ifndef COWSNAP_TOOLS_ROLLBACK_H
#define COWSNAP_TOOLS_ROLLBACK_H

#include "command.h"

extern const struct option_text rollback_options[];
int command_rollback(const struct words *w);

#endif

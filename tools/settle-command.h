/* SPDX-License-Identifier: GPL-2.0-only */
/* settle: what was redirected to the store is brought home. */
#ifndef COWSNAP_TOOLS_SETTLE_COMMAND_H
#define COWSNAP_TOOLS_SETTLE_COMMAND_H

#include "command.h"

extern const struct option_text settle_options[];

int command_settle(const struct words *w);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* map, for the table of commands. */
#ifndef COWSNAP_TOOLS_CHART_H
#define COWSNAP_TOOLS_CHART_H

#include "command.h"

extern const struct option_text map_options[];
int command_map(const struct words *w);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* check, dump, restore and repair, for the table of commands. */
#ifndef COWSNAP_TOOLS_MAINTAIN_H
#define COWSNAP_TOOLS_MAINTAIN_H

#include "command.h"
#include "loading.h"

extern const struct option_text check_options[];
int command_check(const struct words *w);

extern const struct option_text dump_options[];
int command_dump(const struct words *w);

extern const struct option_text restore_options[];
int command_restore(const struct words *w);

extern const struct option_text repair_options[];
int command_repair(const struct words *w);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* seal and unseal: an origin cannot be taken for anything without its store. */
#ifndef COWSNAP_TOOLS_SEAL_COMMAND_H
#define COWSNAP_TOOLS_SEAL_COMMAND_H

#include "command.h"

extern const struct option_text seal_options[];
extern const struct option_text unseal_options[];

int command_seal(const struct words *w);
int command_unseal(const struct words *w);

#endif

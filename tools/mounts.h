/* SPDX-License-Identifier: GPL-2.0-only */
/* mount and umount, for the table of commands. */
#ifndef COWSNAP_TOOLS_MOUNTS_H
#define COWSNAP_TOOLS_MOUNTS_H

#include "command.h"

extern const struct option_text mount_options[];
int command_mount(const struct words *w);

int command_umount(const struct words *w);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* snapshot, delete, activate, deactivate, for the table of commands. */
#ifndef COWSNAP_TOOLS_SNAPSHOTS_H
#define COWSNAP_TOOLS_SNAPSHOTS_H

#include "command.h"

extern const struct option_text snapshot_options[];
int command_snapshot(const struct words *w);

/* --dry-run and no more; also those of others. */
extern const struct option_text dry_options[];
int command_deactivate(const struct words *w);

extern const struct option_text delete_options[];
int command_delete(const struct words *w);

extern const struct option_text activate_options[];
int command_activate(const struct words *w);

#endif

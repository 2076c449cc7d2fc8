/* SPDX-License-Identifier: GPL-2.0-only */
/* check, dump, restore and repair, for the table of commands. */
#ifndef COWSNAP_TOOLS_MAINTAIN_H
#define COWSNAP_TOOLS_MAINTAIN_H

#include "command.h"
#include "device.h"
#include "store.h"

/* A store that is not in use, all of it read. 0, or the status to end with, after a sentence. */
int open_store(struct device *dev, struct store *s, const char *path, bool write);
void close_store(struct device *dev, struct store *s);
/* The same of a device that is open. It stays so. */
int load_store(struct device *dev, struct store *s, const char *path);

extern const struct option_text check_options[];
int command_check(const struct words *w);

extern const struct option_text dump_options[];
int command_dump(const struct words *w);

extern const struct option_text restore_options[];
int command_restore(const struct words *w);

extern const struct option_text repair_options[];
int command_repair(const struct words *w);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* A store is opened and read. */
#ifndef COWSNAP_TOOLS_LOADING_H
#define COWSNAP_TOOLS_LOADING_H

#include "device.h"
#include "store.h"

/* A store that is not in use, all of it read. 0, or the status to end with, after a sentence. */
int open_store(struct device *dev, struct store *s, const char *path, bool write);
void close_store(struct device *dev, struct store *s);
/* The same of a device that is open. It stays so. */
int load_store(struct device *dev, struct store *s, const char *path);
/* What a device without a store is, in a sentence; the status to end with. */
int say_kind(struct device *dev, const char *path, enum store_kind kind);

#endif

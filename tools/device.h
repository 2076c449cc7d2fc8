/* SPDX-License-Identifier: GPL-2.0-only */
/* A block device or an image file, for nobody but us. */
#ifndef COWSNAP_TOOLS_DEVICE_H
#define COWSNAP_TOOLS_DEVICE_H

#include <stdbool.h>

#include "io.h"

struct device {
	struct io io;
	int fd;
	int loop;		/* loop device on the file, or -1 */
	int direct;		/* the block device past the page cache, or -1 */
	char *bounce;		/* aligned, for ->direct */
	char error[160];
};

/* 0, or -1 with ->error set. */
int device_open(struct device *dev, const char *path, bool write);
/* The same to read a block device that others may use. */
int device_open_shared(struct device *dev, const char *path);
void device_close(struct device *dev);
/* The one filesystem, or the like, that is on it, as libblkid calls it; else NULL. */
const char *device_type(struct device *dev, char *text, size_t len);
/* What else there is on it, in words; NULL if nobody knows. */
const char *device_content(struct device *dev, char *text, size_t len);

#endif

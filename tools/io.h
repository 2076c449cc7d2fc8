/* SPDX-License-Identifier: GPL-2.0-only */
/* Bytes to read and write, wherever they are. */
#ifndef COWSNAP_TOOLS_IO_H
#define COWSNAP_TOOLS_IO_H

#include <stddef.h>
#include <stdint.h>

/* All return 0 or -1. The range was held against @bytes before. */
struct io {
	uint64_t bytes;
	int (*read)(struct io *io, uint64_t offset, void *data, size_t len);
	int (*write)(struct io *io, uint64_t offset, const void *data, size_t len);
	int (*sync)(struct io *io);
};

/* -1 as well if any of it lies beyond the end. */
int io_read(struct io *io, uint64_t offset, void *data, size_t len);
int io_write(struct io *io, uint64_t offset, const void *data, size_t len);
int io_sync(struct io *io);

#endif

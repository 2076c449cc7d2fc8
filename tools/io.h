/* SPDX-License-Identifier: GPL-2.0-only */
/* Bytes to read and write, wherever they are. */
#ifndef COWSNAP_TOOLS_IO_H
#define COWSNAP_TOOLS_IO_H

#include <stddef.h>
#include <stdint.h>

/*
 * All functions return 0 or -1. The range was held against @bytes before. A read fails only
 * if something in its own range cannot be read; a write needs no read.
 */
struct io {
	uint64_t bytes;
	/* What a block device says of itself; 0 for a file. */
	uint32_t logical_bytes;		/* least unit of a read or a write */
	uint32_t physical_bytes;	/* what it writes as a whole */
	int32_t offset_bytes;		/* where it starts in such a unit, -1: anywhere */
	int (*read)(struct io *io, uint64_t offset, void *data, size_t len);
	int (*write)(struct io *io, uint64_t offset, const void *data, size_t len);
	/* See io_write_soon(); NULL: as write. */
	int (*write_soon)(struct io *io, uint64_t offset, const void *data, size_t len);
	int (*sync)(struct io *io);
};

/* -1 as well if any of it lies beyond the end. */
int io_read(struct io *io, uint64_t offset, void *data, size_t len);
int io_write(struct io *io, uint64_t offset, const void *data, size_t len);
/*
 * The same for many small ones: they may reach the device in any order, at the same time, as late
 * as io_sync(), which then says so if one has failed.
 */
int io_write_soon(struct io *io, uint64_t offset, const void *data, size_t len);
/* Everything written so far is durable, whatever happens to the machine. */
int io_sync(struct io *io);

#endif

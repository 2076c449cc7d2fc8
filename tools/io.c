// SPDX-License-Identifier: GPL-2.0-only
/* The one place where a range is held against the length of a device. */
#include <stdbool.h>

#include "io.h"

static bool within(const struct io *io, uint64_t offset, size_t len)
{
	return offset <= io->bytes && len <= io->bytes - offset;
}

int io_read(struct io *io, uint64_t offset, void *data, size_t len)
{
	return within(io, offset, len) ? io->read(io, offset, data, len) : -1;
}

int io_write(struct io *io, uint64_t offset, const void *data, size_t len)
{
	return within(io, offset, len) ? io->write(io, offset, data, len) : -1;
}

int io_write_soon(struct io *io, uint64_t offset, const void *data, size_t len)
{
	if (!io->write_soon)
		return io_write(io, offset, data, len);
	return within(io, offset, len) ? io->write_soon(io, offset, data, len) : -1;
}

int io_sync(struct io *io)
{
	return io->sync(io);
}

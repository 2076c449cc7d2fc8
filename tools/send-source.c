// SPDX-License-Identifier: GPL-2.0-only
/*
 * The content of a snapshot. One in use is read through its device. Else it is read as the
 * kernel would: a private version, else the oldest copied version that is not older than the
 * snapshot, else the newest current one that is older, else home. What is sealed of home is in the
 * store.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "crc32c.h"
#include "send-source.h"

#define SECTOR 512
#define NONE (~0ULL)

static int __attribute__((format(printf, 2, 3))) fail(struct source *src, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(src->error, sizeof(src->error), format, args);
	va_end(args);
	return -1;
}

/* ---- which version of each chunk ---- */

static bool may_be_seen(const struct entry *e, u64 epoch)
{
	if (!entry_is_exception(e))
		return false;
	if (exception_is_current(e))
		return e->epoch < epoch && !(e->marks & ENTRY_DOUBTED);
	return exception_is_private(e) ? e->epoch == epoch : e->epoch >= epoch;
}

static int rank(const struct entry *e)
{
	return exception_is_private(e) ? 0 : exception_is_current(e) ? 2 : 1;
}

/* The order within one chunk: private ones first, then the oldest copied, then the newest current. */
static int by_chunk(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;
	int first = rank(x->version), second = rank(y->version), later;

	if (x->chunk != y->chunk)
		return x->chunk > y->chunk ? 1 : -1;
	if (first != second)
		return first - second;
	later = (x->version->epoch > y->version->epoch) - (x->version->epoch < y->version->epoch);
	return first == 2 ? -later : later;
}

static int find_versions(struct source *src, u64 epoch)
{
	struct store *s = src->s;
	size_t i, nr = 0;

	src->seen = calloc(s->nr_entries + 1, sizeof(*src->seen));
	src->chunk = malloc((size_t)s->geo.chunk_sectors * SECTOR);
	if (!src->seen || !src->chunk)
		return -1;
	for (i = 0; i < s->nr_entries; i++)
		if (may_be_seen(&s->entry[i], epoch))
			src->seen[nr++] = (struct seen){ s->entry[i].chunk, &s->entry[i] };
	qsort(src->seen, nr, sizeof(*src->seen), by_chunk);
	for (i = 0; i < nr; i++)
		if (!i || src->seen[i].chunk != src->seen[i - 1].chunk)
			src->seen[src->nr_seen++] = src->seen[i];
	return 0;
}

/* The first of src->seen that is not below @chunk. */
static size_t find_seen(const struct source *src, u64 chunk)
{
	size_t low = 0, high = src->nr_seen;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (src->seen[mid].chunk < chunk)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* ---- data ---- */

static size_t chunk_bytes(const struct source *src)
{
	return (size_t)src->s->geo.chunk_sectors * SECTOR;
}

/* What a sealed origin begins with is in the store: at home there are seals. */
static int read_sealed(struct source *src, u64 offset, void *data, size_t len)
{
	const struct store *s = src->s;
	u64 at = chunk_sector(s, le64toh(s->super.seal_start)) * SECTOR + offset;

	return io_read(s->io, at, data, len) ?
	       fail(src, "byte %" PRIu64 " of the origin, which is sealed, cannot be read from the "
		    "store", offset) : 0;
}

static int read_home(struct source *src, u64 offset, void *to, size_t len)
{
	char *data = to;
	u64 sealed = src->sealed;
	size_t n = offset >= sealed ? 0 : sealed - offset < len ? sealed - offset : len;

	if (n && read_sealed(src, offset, data, n))
		return -1;
	offset += n;
	data += n;
	len -= n;
	if (!len)
		return 0;
	if (!src->has_origin)
		return fail(src, "most of a snapshot is in its origin; name that with --origin");
	if (!io_read(&src->origin.io, offset, data, len))
		return 0;
	return fail(src, "the origin cannot be read at byte %" PRIu64, offset);
}

static bool crc_is_right(const struct source *src, const struct entry *e)
{
	const struct store *s = src->s;
	u64 sector = chunk_sector(s, e->place);

	return !exception_has_crc(e) ||
	       crc32c(cowsnap_seed(s->super.uuid, sector), src->chunk, chunk_bytes(src)) == e->crc;
}

/* If a commit had not ended, home still has what its slots speak of. */
static int read_doubted(struct source *src, const struct entry *e)
{
	u64 end = le64toh(src->s->super.origin_sectors) * SECTOR;
	u64 offset = e->chunk * chunk_bytes(src);
	size_t len = end - offset < chunk_bytes(src) ? end - offset : chunk_bytes(src);

	memset(src->chunk, 0, chunk_bytes(src));
	if (read_home(src, offset, src->chunk, len))
		return -1;
	return crc_is_right(src, e) ? 0 :
	       fail(src, "chunk %" PRIu64 " was in a commit that had not ended, and is lost",
		    e->chunk);
}

static int read_version(struct source *src, const struct entry *e)
{
	if (exception_is_zero(e)) {
		memset(src->chunk, 0, chunk_bytes(src));
		return 0;
	}
	if (e->marks & ENTRY_DOUBTED)
		return read_doubted(src, e);
	if (io_read(src->s->io, chunk_sector(src->s, e->place) * SECTOR, src->chunk,
		    chunk_bytes(src)))
		return fail(src, "chunk %" PRIu64 " cannot be read from the store", e->chunk);
	return crc_is_right(src, e) ? 0 :
	       fail(src, "chunk %" PRIu64 " is damaged in the store; see cowsnap check", e->chunk);
}

/* At most to the end of the chunk. Returns how much, or 0. */
static size_t read_from_store(struct source *src, const struct seen *seen, u64 offset, void *data,
			      size_t len)
{
	size_t skip = offset % chunk_bytes(src);
	size_t n = chunk_bytes(src) - skip < len ? chunk_bytes(src) - skip : len;

	if (src->cached != seen->chunk) {
		src->cached = NONE;
		if (read_version(src, seen->version))
			return 0;
		src->cached = seen->chunk;
	}
	memcpy(data, src->chunk + skip, n);
	return n;
}

/* At most to the next chunk that is not at home. Returns how much, or 0. */
static size_t read_from_home(struct source *src, size_t next, u64 offset, void *data, size_t len)
{
	u64 end = next < src->nr_seen ? src->seen[next].chunk * chunk_bytes(src) : NONE;
	size_t n = end - offset < len ? end - offset : len;

	return read_home(src, offset, data, n) ? 0 : n;
}

static int read_device(struct source *src, u64 offset, char *data, size_t len)
{
	ssize_t n;

	for (; len; data += n, offset += n, len -= n) {
		n = pread(src->fd, data, len, offset);
		if (n <= 0)
			return fail(src, "the snapshot cannot be read at byte %" PRIu64 ": %s",
				    offset, n ? strerror(errno) : "it ends there");
	}
	return 0;
}

void source_wants(struct source *src, u64 offset, u64 len)
{
	if (src->fd >= 0)
		posix_fadvise(src->fd, offset, len, POSIX_FADV_WILLNEED);
}

void source_done(struct source *src, u64 offset, u64 len)
{
	if (src->fd >= 0)
		posix_fadvise(src->fd, offset, len, POSIX_FADV_DONTNEED);
}

int source_read(struct source *src, u64 offset, void *data, size_t len)
{
	char *at = data;
	size_t i, n;

	if (src->fd >= 0)
		return read_device(src, offset, at, len);
	while (len) {
		i = find_seen(src, offset / chunk_bytes(src));
		if (i < src->nr_seen && src->seen[i].chunk == offset / chunk_bytes(src))
			n = read_from_store(src, &src->seen[i], offset, at, len);
		else
			n = read_from_home(src, i, offset, at, len);
		if (!n)
			return -1;
		at += n;
		offset += n;
		len -= n;
	}
	return 0;
}

/* ---- open ---- */

static int open_device(struct source *src, struct diff_store *ds, const struct diff_side *b)
{
	struct diff d = { 0 };
	char path[300];
	int r = live_device(&ds->live, b->id, path);

	if (r)
		return r;
	src->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (src->fd < 0)
		return cannot(path, strerror(errno));
	/* While it is open no other snapshot gets its number. */
	if (!live_check(&ds->live, &d, b))
		return 0;
	close(src->fd);
	src->fd = -1;
	return cannot(path, d.error);
}

static int open_origin(struct source *src, const struct diff_side *b, const char *origin)
{
	if (device_open(&src->origin, origin, false))
		return cannot(origin, src->origin.error);
	src->has_origin = true;
	if (src->origin.io.bytes >= b->sectors * SECTOR)
		return 0;
	return cannot_because(origin, "it has %" PRIu64 " bytes and the snapshot %" PRIu64
			      "; that is not its origin", src->origin.io.bytes,
			      b->sectors * SECTOR);
}

int source_open(struct source *src, struct diff_store *ds, const struct diff_side *b,
		const char *origin)
{
	int r = 0;

	memset(src, 0, sizeof(*src));
	src->fd = -1;
	src->s = &ds->s;
	src->cached = NONE;
	if (ds->live.c)
		return open_device(src, ds, b);
	if (cowsnap_is_sealed(&ds->s.super) && !ds->s.bad_seal)
		src->sealed = (u64)cowsnap_seal_sectors(&ds->s.geo) * SECTOR;
	if (origin)
		r = open_origin(src, b, origin);
	if (!r && find_versions(src, b->epoch))
		r = cannot(ds->path, "out of memory");
	if (r)
		source_close(src);
	return r;
}

void source_close(struct source *src)
{
	if (src->fd >= 0)
		close(src->fd);
	free(src->seen);
	free(src->chunk);
	if (src->has_origin)
		device_close(&src->origin);
	memset(src, 0, sizeof(*src));
}

// SPDX-License-Identifier: GPL-2.0-only
/* clone: what a snapshot shows is copied to a device, which then is a volume of its own. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "clone.h"
#include "crc32c.h"
#include "device.h"
#include "journal.h"
#include "lib/handle.h"
#include "lib/sys.h"
#include "progress.h"
#include "room.h"
#include "session.h"

#define BUFFER_BYTES	(1U << 20)
/* Time between two notes of how far it is; each of them waits for the target's disk. */
#define NOTE_MS		1000
/* So many pages are compared before an interrupted copy goes on. */
#define NR_PAGES	64
#define PAGE_BYTES	4096U

const struct option_text clone_options[] = {
	{ "force", 'f', NULL, "overwrite what TARGET holds" },
	{ "background", 'b', NULL, "go on in the background" },
	{ "quiet", 'q', NULL, "do not show how far it is" },
	{ "dry-run", 'n', NULL, "print the lines, change nothing" },
	{ NULL },
};

struct clone {
	const struct words *w;
	struct cowsnap *c;
	struct journal journal;
	struct device target;
	uint64_t bytes;
	int from;
	char *buffer;
	bool mute;		/* no journal: that has been said */
	bool active;		/* the snapshot keeps its device */
	char device[300];	/* the snapshot's */
};

/* ---- before ---- */

/* What is copied where: made when, of which device, how long, to which device. */
static void name_it(struct clone *k, const struct cowsnap_item *snap, const char *target)
{
	const struct cowsnap_item *store = cowsnap_parent(snap);
	const char *epoch = cowsnap_get(snap, "epoch"), *time = cowsnap_get(snap, "time");
	char what[sizeof(k->journal.what)], uuid[130] = "";

	/* LVM's do not say when they were made, but no two have the same uuid. */
	if (!epoch)
		sys_map_uuid(cowsnap_get(snap, "number"), uuid, sizeof(uuid));
	snprintf(what, sizeof(what), "%s:%s:%s:%s:%s:%s:%" PRIu64,
		 cowsnap_get(snap, "name"), cowsnap_get(cowsnap_parent(store), "below"),
		 cowsnap_get(store, "number"), epoch ? epoch : uuid, time ? time : "", target,
		 k->target.io.bytes);
	journal_open(&k->journal, what);
}

/* The pages that are compared stand so far apart, each at the start of a piece that is copied. */
static uint64_t page_distance(const struct clone *k)
{
	return (k->bytes / NR_PAGES / BUFFER_BYTES + 1) * BUFFER_BYTES;
}

/* The checksum with that of the piece of @n bytes at @at, which is in the buffer. */
static uint32_t add_page(const struct clone *k, uint32_t crc, uint64_t at, size_t n)
{
	return at % page_distance(k) ? crc :
	       crc32c(crc, k->buffer, n < PAGE_BYTES ? n : PAGE_BYTES);
}

static bool pages_are_there(struct clone *k)
{
	uint64_t at, n;
	uint32_t crc = ~0U;

	for (at = 0; at < k->journal.done; at += page_distance(k)) {
		n = k->bytes - at < PAGE_BYTES ? k->bytes - at : PAGE_BYTES;
		if (io_read(&k->target.io, at, k->buffer, n))
			return false;
		crc = add_page(k, crc, at, n);
	}
	return crc == k->journal.pages;
}

/* Does the target have what the last run has written? */
static bool still_there(struct clone *k)
{
	struct journal *j = &k->journal;

	return j->done && j->done <= k->bytes && j->stretch <= BUFFER_BYTES &&
	       !io_read(&k->target.io, j->done - j->stretch, k->buffer, j->stretch) &&
	       crc32c(~0U, k->buffer, j->stretch) == j->crc && pages_are_there(k);
}

static int look_at_target(struct clone *k, const char *path)
{
	char content[32];

	if (k->target.io.bytes < k->bytes)
		return cannot_because(path, "too small: it has %" PRIu64 " bytes, the snapshot %"
				      PRIu64, k->target.io.bytes, k->bytes);
	if (still_there(k))
		return 0;
	k->journal.done = 0;
	k->journal.pages = ~0U;
	if (option_given(k->w, "force") ||
	    !room_content(&k->target, content, sizeof(content)))
		return 0;
	return cannot_because(path, "it holds %s; --force overwrites it", content);
}

static int open_target(struct clone *k, const struct cowsnap_item *snap)
{
	const char *path = k->w->word[1];
	char number[16] = "";

	if (!sys_number(path, number, sizeof(number)))
		return cannot(path, "no block device; name the device that is to be the volume");
	if (device_open(&k->target, path, true))
		return cannot(path, k->target.error);
	k->buffer = aligned_alloc(4096, BUFFER_BYTES);
	if (!k->buffer)
		return cannot("clone", "out of memory");
	name_it(k, snap, number);
	return look_at_target(k, path);
}

static int open_snapshot(struct clone *k)
{
	const struct cowsnap_item *snap;
	int r = cowsnap_activate(k->c, k->w->word[0], 0);

	if (!r)
		r = cowsnap_scan(k->c);
	snap = r ? NULL : need_snapshot(k->c, k->w->word[0], &r);
	if (!snap)
		return r;
	snprintf(k->device, sizeof(k->device), "%s", cowsnap_get(snap, "device"));
	k->from = open(k->device, O_RDONLY | O_DIRECT | O_CLOEXEC);
	return k->from < 0 ? cannot(k->device, "it cannot be opened") : 0;
}

/* ---- copying ---- */

static bool is_zero(const char *data, size_t len)
{
	return !*data && !memcmp(data, data + 1, len - 1);
}

/* Zeroes are written only where the target has something else. */
static int write_piece(struct clone *k, char *old, uint64_t at, size_t n)
{
	if (is_zero(k->buffer, n) && !io_read(&k->target.io, at, old, n) && is_zero(old, n))
		return 0;
	return io_write(&k->target.io, at, k->buffer, n) ?
	       cannot(k->w->word[1], "it cannot be written") : 0;
}

static int note(struct clone *k, uint64_t done, size_t n)
{
	struct journal *j = &k->journal;

	if (io_sync(&k->target.io))
		return cannot(k->w->word[1], "it cannot be written");
	j->done = done;
	j->stretch = n;
	j->crc = crc32c(~0U, k->buffer, n);
	if (journal_write(j) && !k->mute) {
		k->mute = true;
		cannot(j->path, "it cannot be written: if it is interrupted, clone begins anew");
	}
	return 0;
}

static int copy(struct clone *k, struct progress *p)
{
	uint64_t at = k->journal.done, noted = now_ms();
	char *old = malloc(BUFFER_BYTES);
	int status = old ? 0 : cannot("clone", "out of memory");

	while (!status && at < k->bytes) {
		size_t n = k->bytes - at < BUFFER_BYTES ? k->bytes - at : BUFFER_BYTES;

		if (pread(k->from, k->buffer, n, at) != (ssize_t)n) {
			status = cannot(k->w->word[0], "it cannot be read; cowsnap status says "
					"whether it has become invalid");
			break;
		}
		status = write_piece(k, old, at, n);
		k->journal.pages = add_page(k, k->journal.pages, at, n);
		at += n;
		if (!status && (now_ms() - noted >= NOTE_MS || at == k->bytes)) {
			status = note(k, at, n);
			noted = now_ms();
		}
		progress_show(p, at);
	}
	free(old);
	return status;
}

/* The parent ends; what the child says still comes to the terminal. */
static bool go_to_background(void)
{
	pid_t pid = fork();

	if (pid > 0)
		_exit(EXIT_CLEAN);
	if (!pid)
		setsid();
	return !pid;
}

static int run(struct clone *k)
{
	struct progress p;
	int status = open_snapshot(k);

	if (status)
		return status;
	if (k->journal.done)
		say_done(k->w, "going on at %" PRIu64 " of %" PRIu64 " bytes", k->journal.done,
			 k->bytes);
	progress_begin(&p, "cloned", k->bytes, k->journal.done, option_given(k->w, "quiet"));
	status = copy(k, &p);
	progress_end(&p);
	close(k->from);
	if (status)
		return status;
	journal_remove(&k->journal);
	return k->active ? 0 : cowsnap_deactivate(k->c, k->w->word[0]);
}

static int dry_run(struct clone *k)
{
	int r = cowsnap_activate(k->c, k->w->word[0], 0);

	if (!r)
		printf("dd if=/dev/mapper/%s of=%s bs=1M oflag=direct\n", k->w->word[0],
		       k->w->word[1]);
	return r || k->active ? r : cowsnap_deactivate(k->c, k->w->word[0]);
}

static int clone(struct clone *k)
{
	const struct cowsnap_item *snap;
	int r = 0;

	snap = need_snapshot(k->c, k->w->word[0], &r);
	if (!snap)
		return r;
	k->bytes = cowsnap_number(snap, "size");
	/* One that nobody uses may be what a killed run has left. */
	k->active = keeps_device(snap) ||
		    (cowsnap_get(snap, "device") && cowsnap_number(snap, "open"));
	r = open_target(k, snap);
	if (r)
		return r;
	if (option_given(k->w, "dry-run"))
		return dry_run(k);
	if (option_given(k->w, "background") && !go_to_background())
		return cannot("clone", "no process for the background");
	r = run(k);
	if (!r)
		say_done(k->w, "%s is what %s shows; give its filesystem a new UUID before both "
			 "are mounted (xfs_admin -U generate, tune2fs -U random)", k->w->word[1],
			 k->w->word[0]);
	return r;
}

int command_clone(const struct words *w)
{
	struct clone k = { .w = w, .from = -1, .target = { .fd = -1, .loop = -1, .direct = -1 } };
	int r;

	k.c = session_open(w);
	if (!k.c)
		return EXIT_CANNOT;
	r = clone(&k);
	device_close(&k.target);
	free(k.buffer);
	return session_end(k.c, r);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Another cut while the store is opened.
 *
 * What opening (and closing) writes to the store is logged by dm-log-writes: one write
 * after the other. A cut somewhere among these leaves what is durable by then, any of
 * the others, and the one under way as a whole, in part, or not at all.
 *
 * A merge that goes on writes to the origin as well, which is not logged. Once it has, only a cut
 * after all that was logged fits what the origin holds.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crash.h"

#define LOG_BYTES	(64ULL << 20)

static u8 *log;
static int log_file;
static struct loop log_loop;

void again_init(void)
{
	log_file = memory_file("again", LOG_BYTES, &log);
	loop_make(&log_loop, log_file, 0, LOG_BYTES, run.set.block_bytes);
}

void again_exit(void)
{
	loop_free(&log_loop);
	close(log_file);
}

void again_start(const char *device, const char *below, u32 sectors)
{
	memset(log, 0, SECTOR_BYTES);
	if (dm_load(device, "%u log-writes %s %s", sectors, below, log_loop.path) ||
	    dm_suspend(device) || dm_resume(device))
		fail("no log for the second cut");
}

/* Taking the logged table away is what makes the log whole. */
void again_stop(const char *device, const char *below, u32 sectors)
{
	if (dm_load(device, "%u linear %s 0", sectors, below) || dm_suspend(device) ||
	    dm_resume(device))
		fail("no linear device");
}

static u32 count_writes(void)
{
	struct log_write w;
	u64 at = 0;
	u32 nr = 0;

	while (log_next(log, &at, &w))
		nr++;
	return nr;
}

/* Was write @nr, which ends before the cut, flushed by then? */
static bool is_durable(u32 nr, u32 cut)
{
	struct log_write w;
	u64 at = 0;
	u32 i;

	for (i = 0; i < cut && log_next(log, &at, &w); i++)
		if ((i == nr && w.flags & REQUEST_FUA) || (i > nr && w.flags & REQUEST_FLUSH))
			return true;
	return false;
}

static void apply_block(u8 *image, const struct log_write *w, u32 from)
{
	size_t bytes = run.set.block_bytes;
	u8 *to = image + (size_t)(w->sector + from) * SECTOR_BYTES;

	if (w->data)
		memcpy(to, w->data + (size_t)from * SECTOR_BYTES, bytes);
	else
		memset(to, 0, bytes);
}

void again_cut(u8 *image, u64 *random, bool at_end)
{
	u32 nr = count_writes(), cut = at_end ? nr : below(random, nr + 1), i, from;
	struct log_write w;
	u64 at = 0;

	printf("# a second cut at write %u of the %u of opening and closing\n", cut, nr);
	for (i = 0; i <= cut && log_next(log, &at, &w); i++) {
		u32 percent = i < cut && is_durable(i, cut) ? 100 : 50;
		bool whole = i < cut && chance(random, percent);

		for (from = 0; from < w.count; from += run.set.block_bytes / SECTOR_BYTES)
			if (whole || (i == cut && chance(random, 50)))
				apply_block(image, &w, from);
	}
}

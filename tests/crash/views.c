// SPDX-License-Identifier: GPL-2.0-only
/* The devices of the views: their tables, and how they are opened and closed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

static void merge_table(char *table, size_t size, const struct view *v)
{
	const struct settings *set = &run.set;

	if (set->stock)
		snprintf(table, size, "%u snapshot-merge %s %s P %u", set->origin_sectors,
			 origin_below, store_below, set->chunk_sectors);
	else
		snprintf(table, size, "%u cowsnap-merge %s %s P %u 2 id %u",
			 set->origin_sectors, origin_below, store_below, set->chunk_sectors,
			 v->id);
}

/* That of a merge while there is one. */
void origin_table(char *table, size_t size, bool store)
{
	u32 sectors = run.set.origin_sectors;

	if (load.merging)
		merge_table(table, size, load.merging);
	else if (run.set.stock)
		snprintf(table, size, "%u snapshot-origin %s", sectors, origin_below);
	else if (store)
		snprintf(table, size, "%u cowsnap-origin %s 2 store %s", sectors, origin_below,
			 store_below);
	else
		snprintf(table, size, "%u cowsnap-origin %s", sectors, origin_below);
}

static void snapshot_table(char *table, size_t size, const struct view *v, bool create)
{
	const struct settings *set = &run.set;
	const char *full = set->drops ? " on_full drop_oldest" : "";
	const char *log = set->logs ? " log on" : "";

	if (set->stock)
		snprintf(table, size, "%u snapshot %s %s P %u", set->origin_sectors,
			 origin_below, store_below, set->chunk_sectors);
	else
		snprintf(table, size, "%u cowsnap %s %s P %u %u id %u%s%s%s", set->origin_sectors,
			 origin_below, store_below, set->chunk_sectors,
			 2 + create + (*full ? 2 : 0) + (*log ? 2 : 0), v->id, create ? " create" : "", full, log);
}

void replace_origin_table(const char *table)
{
	int ret = dm_load(load.origin->name, "%s", table);

	if (!ret)
		ret = dm_suspend(load.origin->name);
	if (!ret)
		ret = dm_resume(load.origin->name);
	if (ret)
		fail("table '%s': %s", table, strerror(-ret));
}

static void open_view(struct view *v, const char *table)
{
	int ret = dm_make(v->name, v->path, sizeof(v->path), "%s", table);

	if (ret)
		fail("table '%s': %s", table, strerror(-ret));
	v->fd = open_device(v->path);
}

void open_origin(bool store)
{
	char table[400];

	origin_table(table, sizeof(table), store);
	open_view(load.origin, table);
}

void open_snapshot(struct view *v, bool create)
{
	char table[400];

	snapshot_table(table, sizeof(table), v, create);
	open_view(v, table);
}

void close_view(struct view *v)
{
	close(v->fd);
	v->fd = -1;
	dm_remove(v->name);
}

/* All devices go, and come back in another order. */
void restart_devices(struct worker *w)
{
	bool origin_first = chance(&w->random, 50);
	struct view *v;
	u32 tag;

	pthread_rwlock_wrlock(&load.gate);
	tag = op_begin(w, OP_RESTART, ORIGIN_VIEW, 0, 0);
	if (chance(&w->random, 50))
		close_view(load.origin);
	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		if (v->open)
			close_view(v);
	if (load.origin->fd >= 0)
		close_view(load.origin);
	if (origin_first)
		open_origin(true);
	for (v = run.views + 1; v < run.views + run.nr_views; v++)
		if (v->open)
			open_snapshot(v, false);
	if (!origin_first)
		open_origin(true);
	op_ack(tag);
	pthread_rwlock_unlock(&load.gate);
}

static void run_seal(void)
{
	char *argv[] = { check_tool, "seal", origin_below, store_below, NULL };
	int status = -1;
	pid_t pid;

	if (posix_spawn(&pid, check_tool, NULL, NULL, argv, environ) ||
	    waitpid(pid, &status, 0) != pid || status)
		fail("%s seal: status %d", check_tool, status);
}

void see_seal(void)
{
	static char data[4096] __attribute__((aligned(4096)));
	int fd = open(origin_below, O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (fd < 0 || pread(fd, data, sizeof(data), 0) != sizeof(data))
		fail("%s: %s", origin_below, strerror(errno));
	close(fd);
	if (memcmp(data, "dm-cowsnap seal\n", 16))
		fail("%s: does not begin with a seal", origin_below);
}

void seal_origin(struct worker *w, struct view *v)
{
	u32 tag = op_begin(w, OP_RESTART, ORIGIN_VIEW, 0, 0);

	close_view(v);
	close_view(load.origin);
	run_seal();
	see_seal();
	open_origin(true);
	open_snapshot(v, false);
	if (run.set.redirects &&
	    dm_message(load.origin->name, "set redirect %u", run.set.redirects))
		fail("the origin is not redirected");
	if (run.set.redirects &&
	    dm_message(load.origin->name, "set settle %s", run.set.settles ? "now" : "off"))
		fail("the origin is not settled");
	op_ack(tag);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * cownth: one device-mapper request again and again; the first time its first allocation
 * of memory fails, then its second, until one comes through with all of them. Needs a kernel
 * with fault injection (/proc/thread-self/fail-nth), whose filters the caller has opened.
 *
 *   cownth create NAME TABLE [STORE]  load the table into a new device, then resume it;
 *                                     at the end the device is there. What a resume made
 *                                     that succeeded in spite of a failed allocation goes:
 *                                     STORE begins with zeroes again
 *   cownth remove NAME TABLE          make it undisturbed, and remove it
 *   cownth message NAME TEXT [UNDO]   UNDO is sent after a TEXT that succeeded in spite of a
 *                                     failed allocation
 *
 * With COWNTH_STEP=N in the environment only each Nth allocation after the first 200 fails:
 * KASAN makes thousands of them.
 *
 * A request that fails has to fail with ENOMEM, and to succeed when it is tried again.
 * Prints a line for each kind of request. Exit status: 0; 1 for a failure of another kind;
 * 77 if this kernel fails no allocations.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dmctl.h"

#define MAX_NTH		20000
#define ALL_UP_TO	200
#define MAX_ERRNO	200
#define NO_FAULT_INJECTION 77

static int nth;
static int step = 1;
static int wrong;

static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf(": %s\n", strerror(errno));
	exit(1);
}

static void must(int r, const char *what, const char *name)
{
	if (!r)
		return;
	errno = -r;
	fail("%s %s, undisturbed", what, name);
}

static void set_nth(int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%d", n);

	if (pwrite(nth, text, len, 0) != len)
		fail("fail-nth");
}

/* What is left of the count: 0 if an allocation was failed. */
static int get_nth(void)
{
	char text[16] = "";

	if (pread(nth, text, sizeof(text) - 1, 0) < 0)
		fail("fail-nth");
	return atoi(text);
}

/* How a kind of request is tried, and what makes all as it was. */
struct walk {
	const char *words, *name, *text, *undo;
	int (*request)(const char *name, const char *text);
	void (*prepare)(const struct walk *w);
	void (*after)(const struct walk *w, int r);
};

static void walk(const struct walk *w)
{
	int counts[MAX_ERRNO] = { 0 };
	int n, left, r, taken = 0;

	for (n = 1; n < MAX_NTH; n += n < ALL_UP_TO ? 1 : step) {
		if (w->prepare)
			w->prepare(w);
		set_nth(n);
		r = w->request(w->name, w->text);
		left = get_nth();
		set_nth(0);
		if (left) {
			must(r, w->words, w->name);
			break;
		}
		if (r && -r < MAX_ERRNO)
			counts[-r]++;
		else
			taken++;
		if (r && r != -ENOMEM) {
			printf("%s, allocation %d: %s\n", w->words, n, strerror(-r));
			wrong++;
		}
		w->after(w, r);
	}
	printf("%s %s: about %d allocations, %d refused, %d taken\n", w->words, w->name, n - 1,
	       counts[ENOMEM], taken);
	if (n >= MAX_NTH)
		wrong++;
}

static int resume(const char *name, const char *table)
{
	(void)table;
	return dmctl_resume(name, 0);
}

static int remove_once(const char *name, const char *table)
{
	(void)table;
	return dmctl_plain(DM_DEV_REMOVE, name, 0);
}

static void new_name(const char *name)
{
	must(dmctl_plain(DM_DEV_CREATE, name, 0), "create", name);
}

static void remove_device(const char *name)
{
	must(dmctl_remove(name), "remove", name);
}

static void load_after(const struct walk *w, int r)
{
	if (!r)
		must(dmctl_plain(DM_TABLE_CLEAR, w->name, 0), "clear", w->name);
}

static void new_device(const struct walk *w)
{
	new_name(w->name);
	must(dmctl_load(w->name, w->text), "load", w->name);
}

static void zero_start(const char *store)
{
	static const char zeroes[4096];
	int fd = open(store, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, zeroes, sizeof(zeroes)) != sizeof(zeroes) || fsync(fd))
		fail("%s", store);
	close(fd);
}

static void resume_after(const struct walk *w, int r)
{
	remove_device(w->name);
	if (!r && w->undo)
		zero_start(w->undo);
}

static void create(const char *name, const char *table, const char *store)
{
	struct walk loading = { "load", name, table, .request = dmctl_load, .after = load_after };
	struct walk resuming = { "resume", name, table, store, .request = resume,
				 .prepare = new_device, .after = resume_after };

	new_name(name);
	walk(&loading);
	remove_device(name);
	walk(&resuming);
}

static void new_live_device(const struct walk *w)
{
	new_device(w);
	must(resume(w->name, w->text), "resume", w->name);
}

static void remove_after(const struct walk *w, int r)
{
	if (r)
		remove_device(w->name);
}

static void message_after(const struct walk *w, int r)
{
	if (!r && w->undo)
		must(dmctl_message(w->name, w->undo), w->undo, w->name);
}

int main(int argc, char **argv)
{
	/* Before any allocation is to fail. */
	must(dmctl_open(), "open", "/dev/mapper/control");
	nth = open(getenv("COWNTH_FILE") ?: "/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	setbuf(stdout, NULL);
	if (getenv("COWNTH_STEP"))
		step = atoi(getenv("COWNTH_STEP"));
	if (step < 1)
		step = 1;
	if (nth < 0)
		return NO_FAULT_INJECTION;
	if ((argc == 4 || argc == 5) && !strcmp(argv[1], "create")) {
		create(argv[2], argv[3], argv[4]);
	} else if (argc == 4 && !strcmp(argv[1], "remove")) {
		walk(&(struct walk){ "remove", argv[2], argv[3], .request = remove_once,
				     .prepare = new_live_device, .after = remove_after });
	} else if ((argc == 4 || argc == 5) && !strcmp(argv[1], "message")) {
		walk(&(struct walk){ argv[3], argv[2], argv[3], argv[4], .request = dmctl_message,
				     .after = message_after });
	} else {
		printf("usage: cownth create NAME TABLE [STORE] | remove NAME TABLE | message NAME TEXT [UNDO]\n");
		return 2;
	}
	return wrong ? 1 : 0;
}

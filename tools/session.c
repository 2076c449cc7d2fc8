// SPDX-License-Identifier: GPL-2.0-only
/* What the commands that change mapped devices share. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/map.h"
#include "lib/sys.h"
#include "session.h"

static void print_line(void *data, const char *text)
{
	(void)data;
	puts(text);
}

struct cowsnap *session_open(const struct words *w)
{
	struct cowsnap *c;

	if (cowsnap_open(&c) || cowsnap_scan(c)) {
		say_error(c);
		cowsnap_close(c);
		return NULL;
	}
	if (option_given(w, "dry-run")) {
		cowsnap_dry_run(c, print_line, NULL);
		return c;
	}
	/* While the system's own volume is suspended, no page of this can be read from it. */
	mlockall(MCL_CURRENT);
	return c;
}

int session_end(struct cowsnap *c, int r)
{
	if (r < 0)
		r = say_error(c);
	cowsnap_close(c);
	return r;
}

bool stays_open(struct cowsnap *c, const char *name, int own)
{
	struct map m = { .open_count = own + 1 };
	int i;

	for (i = 0; i < 10 && m.open_count > own; i++) {
		if (i)
			usleep(100000);
		if (map_read_table(c, name, &m))
			return false;
		map_free(&m);
	}
	return m.open_count > own;
}

static int refuse_use(struct cowsnap *c, const struct cowsnap_item *s)
{
	const char *device = cowsnap_get(s, "device"), *name = cowsnap_get(s, "name");
	char where[300];

	if (!device)
		return 0;
	if (sys_mounted(cowsnap_get(s, "number"), where, sizeof(where)))
		return cannot_because(name, "mounted on %s: cowsnap umount %s first", where, name);
	if (cowsnap_number(s, "open") && stays_open(c, device + strlen("/dev/mapper/"), 0))
		return cannot_because(name, "in use through %s: end that first", device);
	return 0;
}

int refuse_used_snapshots(struct cowsnap *c, const struct cowsnap_item *origin)
{
	const struct cowsnap_item *store, *s;

	for (store = cowsnap_inside(origin); store; store = cowsnap_next(store))
		for (s = cowsnap_inside(store); s; s = cowsnap_next(s))
			if (refuse_use(c, s))
				return EXIT_CANNOT;
	return 0;
}

bool keeps_device(const struct cowsnap_item *snapshot)
{
	const struct cowsnap_item *store = cowsnap_parent(snapshot);

	return !strcmp(cowsnap_get(store, "type"), "transient") ||
	       cowsnap_get(cowsnap_parent(store), "managed");
}

void say_done(const struct words *w, const char *format, ...)
{
	va_list args;

	if (option_given(w, "json") || option_given(w, "dry-run"))
		return;
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

int read_number(const char *what, const char *text, unsigned long min, unsigned long max,
		unsigned long *value)
{
	unsigned long n;
	char *end;

	if (!text)
		return 0;
	errno = 0;
	n = strtoul(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || n < min || n > max)
		return cannot_because(what, "\"%s\" is no number from %lu to %lu", text, min, max);
	*value = n;
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/* How far long work has come. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "stream-progress.h"

double monotonic_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

const char *bytes_text(uint64_t bytes, char *text, unsigned int len)
{
	static const char units[] = "KMGTPE";
	double value = bytes / 1024.;
	int i = 0;

	for (; value >= 1024 && units[i + 1]; i++)
		value /= 1024;
	if (bytes < 1024)
		snprintf(text, len, "%" PRIu64 " bytes", bytes);
	else
		snprintf(text, len, "%.1f %ciB", value, units[i]);
	return text;
}

uint64_t read_bytes(const char *word)
{
	static const char units[] = "KMGT";
	char *end;
	uint64_t value;
	const char *unit;
	int shift;

	if (*word < '0' || *word > '9')
		return 0;
	value = strtoull(word, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	if (*end && (!unit || end[1]))
		return 0;
	shift = unit ? 10 * (unit - units + 1) : 0;
	return value > UINT64_MAX >> shift ? 0 : value << shift;
}

static void time_text(double seconds, char *text, unsigned int len)
{
	unsigned long s = seconds < 0 ? 0 : seconds > 1e8 ? 1e8 : seconds;

	if (s >= 3600)
		snprintf(text, len, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
	else
		snprintf(text, len, "%lu:%02lu", s / 60, s % 60);
}

static void say(struct progress *p, double now, bool last)
{
	char done[24], total[24], rate[24], left[24];
	double seconds = now - p->start, speed = seconds > 0 ? p->done / seconds : 0;

	bytes_text(p->done, done, sizeof(done));
	bytes_text(p->total, total, sizeof(total));
	bytes_text(speed, rate, sizeof(rate));
	time_text(last || speed <= 0 || p->done >= p->total ? seconds :
		  (p->total - p->done) / speed, left, sizeof(left));
	fprintf(stderr, "%s%s: %s of %s, %s/s, %s %s%s", p->terminal ? "\r" : "", p->what, done,
		total, rate, left, last ? "in all" : "left",
		p->terminal ? "\033[K" : "\n");
	if (p->terminal && last)
		fputc('\n', stderr);
}

void progress_begin(struct progress *p, const char *what, uint64_t total, bool always)
{
	memset(p, 0, sizeof(*p));
	p->what = what;
	p->total = total;
	p->terminal = isatty(STDERR_FILENO);
	p->shown = p->terminal || always;
	p->start = monotonic_seconds();
	p->last = p->start;
}

void progress_step(struct progress *p, uint64_t done)
{
	double now;

	p->done = done;
	if (!p->shown)
		return;
	now = monotonic_seconds();
	if (now - p->last < 1)
		return;
	p->last = now;
	say(p, now, false);
}

void progress_end(struct progress *p)
{
	if (p->shown)
		say(p, monotonic_seconds(), true);
}

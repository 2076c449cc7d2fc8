// SPDX-License-Identifier: GPL-2.0-only
/* How far long work has come. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "progress.h"
#include "size.h"

#define TERMINAL_MS	500
#define FILE_MS		10000

uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ULL + now.tv_nsec / 1000000;
}

void progress_begin(struct progress *p, const char *doing, uint64_t total, uint64_t done,
		    bool quiet)
{
	*p = (struct progress){ .doing = doing, .total = total, .first = done,
				.terminal = isatty(STDERR_FILENO), .quiet = quiet };
	p->begin = now_ms();
	p->said = p->begin;
}

static void say(const struct progress *p, uint64_t done, uint64_t now)
{
	double seconds = (now - p->begin) / 1000.0;
	uint64_t rate = seconds > 0 ? (done - p->first) / seconds : 0;
	char size[16], total[16], each[16], left[32] = "?";

	if (rate)
		time_text((p->total - done) / rate, left, sizeof(left));
	fprintf(stderr, "%s%s %s of %s, %s/s, %s left%s", p->terminal ? "\r" : "", p->doing,
		size_text(done, size, sizeof(size)), size_text(p->total, total, sizeof(total)),
		size_text(rate, each, sizeof(each)), left, p->terminal ? "\033[K" : "\n");
}

void progress_show(struct progress *p, uint64_t done)
{
	uint64_t now = now_ms();

	if (p->quiet || now - p->said < (p->terminal ? TERMINAL_MS : FILE_MS))
		return;
	p->said = now;
	if (done < p->first)
		done = p->first;
	say(p, done > p->total ? p->total : done, now);
}

void progress_end(struct progress *p)
{
	if (p->terminal && !p->quiet && p->said != p->begin)
		fputc('\n', stderr);
}

// SPDX-License-Identifier: GPL-2.0-only
/* How far a clone is, in a file. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc32c.h"
#include "journal.h"

static void read_file(struct journal *j)
{
	FILE *in = fopen(j->path, "re");
	char what[sizeof(j->what)];

	if (!in)
		return;
	if (fscanf(in, "%399s %" SCNu64 " %" SCNu64 " %" SCNx32 " %" SCNx32, what, &j->done,
		   &j->stretch, &j->crc, &j->pages) != 5 || strcmp(what, j->what) || j->stretch > j->done)
		j->done = 0;
	fclose(in);
}

void journal_open(struct journal *j, const char *what)
{
	memset(j, 0, sizeof(*j));
	snprintf(j->what, sizeof(j->what), "%s", what);
	snprintf(j->path, sizeof(j->path), JOURNAL_DIR "/clone-%08" PRIx32,
		 crc32c(~0U, what, strlen(what)));
	read_file(j);
}

/* A new file in the place of the old one: a crash leaves one of them whole. */
int journal_write(const struct journal *j)
{
	char path[sizeof(j->path) + 8];
	FILE *out;
	int bad;

	mkdir(JOURNAL_DIR, 0700);
	snprintf(path, sizeof(path), "%s.new", j->path);
	out = fopen(path, "we");
	if (!out)
		return -1;
	bad = fprintf(out, "%s %" PRIu64 " %" PRIu64 " %08" PRIx32 " %08" PRIx32 "\n", j->what,
		      j->done, j->stretch, j->crc, j->pages) < 0;
	bad |= fflush(out) || fsync(fileno(out));
	bad |= fclose(out);
	return bad || rename(path, j->path) ? -1 : 0;
}

void journal_remove(const struct journal *j)
{
	unlink(j->path);
}

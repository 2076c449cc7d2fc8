// SPDX-License-Identifier: GPL-2.0-only
/* cowsnap send: a snapshot, or what has changed since another, to standard output. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "send.h"
#include "send-stream.h"
#include "size.h"
#include "track.h"

#define SECTOR 512

const struct option_text send_options[] = {
	{ "from", 0, "A", "send only what differs from snapshot A" },
	{ "origin", 0, "DEVICE", "the origin of a store that is not in use" },
	{ "compress", 0, NULL, "compress the data, with zstd" },
	{ "throttle", 0, "RATE", "send at most so much a second: 20M" },
	{ "resume", 0, "TOKEN", "go on where cowsnap receive has stopped" },
	{ "progress", 0, NULL, "say how far it is even if stderr is no terminal" },
	{ NULL },
};

struct request {
	const char *store, *from, *to, *origin, *resume;
	char from_word[16];
	struct number n[2];
	bool across;		/* from is the name of a snapshot in another store */
	struct stream_what token;
	u64 position;
	u64 rate;
};

/* ---- going on ---- */

static const struct record *record_of_epoch(const struct store *s, u64 epoch)
{
	size_t i;

	for (i = 0; i < s->nr_records; i++)
		if (s->record[i].epoch == epoch &&
		    (record_live(&s->record[i]) || record_is_tracker(&s->record[i])))
			return &s->record[i];
	return NULL;
}

/* The token says what to compare with; what it says of B has to be what was asked for. */
static int take_token(struct request *q, const struct store *s)
{
	const struct record *r;

	if (memcmp(q->token.uuid, s->super.uuid, sizeof(q->token.uuid)))
		return cannot(q->store, "the stream to be resumed is of another store");
	if (!q->token.from_epoch)
		return q->from ? cannot(q->from, "the stream to be resumed is a full one; leave "
						 "out --from") : 0;
	if (q->across)
		return 0;
	r = record_of_epoch(s, q->token.from_epoch);
	if (!r)
		return cannot_because(q->store, "the snapshot of epoch %" PRIu64
				      " that the stream compares with is gone; send in full",
				      q->token.from_epoch);
	snprintf(q->from_word, sizeof(q->from_word), "%u", r->id);
	if (q->from && strcmp(q->from, q->from_word))
		return cannot_because(q->from, "the stream to be resumed compares with snapshot %s",
				      q->from_word);
	q->from = q->from_word;
	return 0;
}

static int check_token(const struct request *q, const struct diff *d)
{
	if (q->resume && q->across && d->a.epoch != q->token.from_epoch)
		return cannot(q->from, "the stream to be resumed compares with another snapshot");
	if (!q->resume || (d->b.epoch == q->token.to_epoch && q->position <= d->b.sectors * SECTOR))
		return 0;
	return cannot_because(q->to, "the stream to be resumed is of epoch %" PRIu64
			      ", this snapshot has epoch %" PRIu64 "; name the other one",
			      q->token.to_epoch, d->b.epoch);
}

/* ---- sending ---- */

static void fill_info(struct stream_info *info, const struct request *q, const struct diff *d)
{
	struct stream_what *what = &info->what;

	memset(info, 0, sizeof(*info));
	memcpy(what->uuid, d->uuid, sizeof(what->uuid));
	memcpy(what->from_uuid, d->from_uuid, sizeof(what->from_uuid));
	what->to_epoch = d->b.epoch;
	what->to_bytes = d->b.sectors * SECTOR;
	what->to_id = d->b.id;
	what->time = d->b.time;
	if (q->from) {
		what->from_epoch = d->a.epoch;
		what->from_bytes = d->a.sectors * SECTOR;
		what->from_id = d->a.id;
	}
	info->position = q->position;
	info->planned = d->changed.bytes;
	info->chunk_bytes = d->chunk_bytes;
}

static volatile sig_atomic_t interrupted;

/* What cannot be written ends the stream; the device that a snapshot got goes with it. */
static void interrupt(int signal)
{
	interrupted = signal;
	dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = interrupt };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void say_sum(const struct sender *s)
{
	char read[16], sent[16], time[32];

	fprintf(stderr, "sent %s of the image as a stream of %s, in %s\n",
		size_text(s->covered, read, sizeof(read)), size_text(s->sent, sent, sizeof(sent)),
		time_text((now_ms() - s->begin) / 1000, time, sizeof(time)));
}

/* Some filesystems say only then that there was no room. */
static int end_output(void)
{
	int fd = dup(STDOUT_FILENO);

	/* A pipe has nothing to be written back. */
	if (fsync(STDOUT_FILENO) && errno != EINVAL && errno != EROFS) {
		close(fd);
		return -1;
	}
	return fd < 0 ? 0 : close(fd);
}

static int send_from(struct source *src, const struct words *w, const struct request *q,
		     const struct diff *d)
{
	struct sender s = { .fd = STDOUT_FILENO, .src = src, .rate = q->rate,
			    .compress = option_given(w, "compress") };
	bool shown;
	int r;

	fill_info(&s.info, q, d);
	s.info.flags = s.compress ? STREAM_ZSTD : 0;
	shown = option_given(w, "progress") || isatty(STDERR_FILENO);
	progress_begin(&s.progress, "sent", d->changed.bytes, 0, !shown);
	r = send_stream(&s, &d->changed);
	progress_end(&s.progress);
	if (r)
		return cannot("the stream", interrupted ? "interrupted" : s.error);
	if (end_output())
		return cannot("the stream", strerror(errno));
	if (shown)
		say_sum(&s);
	return EXIT_CLEAN;
}

static int send_diff(struct diff_store *ds, const struct words *w, const struct request *q,
		     struct diff *d)
{
	struct source src;
	int r = check_token(q, d);

	if (r)
		return r;
	if (d->b.now || d->a.now)
		return cannot("now", "what changes cannot be sent; make a snapshot and name it");
	if (d->b.tracker)
		return cannot(q->to, "it was given up to a tracker and has no data; make a snapshot");
	if (q->from && !q->across && d->a.epoch == d->b.epoch)
		return cannot(q->to, "nothing to send: it would be compared with itself");
	extents_cut(&d->changed, q->position);
	r = source_open(&src, ds, &d->b, q->origin);
	if (r)
		return r;
	r = send_from(&src, w, q, d);
	source_close(&src);
	return r;
}

static int send_snapshot(const struct words *w, struct request *q)
{
	struct diff_store ds;
	struct diff d = { 0 };
	int r = diff_open(&ds, q->store);

	if (r)
		return r;
	r = q->resume ? take_token(q, &ds.s) : 0;
	if (!r)
		r = q->across ? diff_across(&ds, &d, q->from, q->to) :
		    diff_make(&ds, &d, q->from, q->to);
	if (!r)
		r = send_diff(&ds, w, q, &d);
	diff_free(&d);
	diff_close(&ds);
	return r;
}

/* ---- the command line ---- */

static int read_request(struct request *q, const struct words *w)
{
	const char *rate = option_value(w, "throttle");

	memset(q, 0, sizeof(*q));
	q->store = w->word[0];
	q->to = snapshot_number(w->word[0], &q->n[0]);
	if (w->nr_words > 1 && q->to)
		return cannot(w->word[1], "a word too many; ORIGIN@NUMBER is all that is needed");
	if (w->nr_words < 2 && !q->to)
		return cannot(w->word[0], "which snapshot? name it as ORIGIN@NUMBER, or a store "
					  "and a number");
	if (!q->to)
		q->to = w->word[1];
	q->from = option_value(w, "from");
	q->across = q->from && snapshot_elsewhere(q->store, q->from);
	if (q->from && !q->across) {
		q->from = snapshot_beside(q->store, q->from, &q->n[1]);
		if (!q->from)
			return EXIT_CANNOT;
	}
	q->origin = option_value(w, "origin");
	q->resume = option_value(w, "resume");
	if (q->resume && !stream_read_token(q->resume, &q->token, &q->position))
		return cannot(q->resume, "this is no token; cowsnap receive --token TARGET prints "
					 "it");
	if (rate && (size_read(rate, &q->rate) || !q->rate))
		return cannot(rate, "this is no rate; 20M is 20 MiB a second");
	return 0;
}

int command_send(const struct words *w)
{
	struct request q;
	int r = read_request(&q, w);

	if (r)
		return r;
	if (isatty(STDOUT_FILENO))
		return cannot("standard output", "it is a terminal; send the stream into a file "
						 "or a pipe");
	catch_signals();
	return send_snapshot(w, &q);
}

// SPDX-License-Identifier: GPL-2.0-only
/* cowsnap receive: a stream from standard input becomes an image, or a newer one. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "receive.h"
#include "receive-stream.h"

const struct option_text receive_options[] = {
	{ "force", 'f', NULL, "write over other contents; take TARGET for the base" },
	{ "snapshot", 0, NULL, "TARGET is an origin; make a snapshot of it when it is the image" },
	{ "state", 0, "FILE", "where to keep what TARGET holds" },
	{ "token", 0, NULL, "print where a stream that was cut goes on, receive nothing" },
	{ "progress", 0, NULL, "say how far it is even if stderr is no terminal" },
	{ NULL },
};

/* ---- may this stream go onto this target? ---- */

static const char *name_of(const struct stream_what *what, bool base, char text[128])
{
	return stream_name(base ? what->from_uuid : what->uuid,
			   base ? what->from_epoch : what->to_epoch,
			   base ? what->from_id : what->to_id, text, 128);
}

static bool same_image(const struct stream_what *has, const struct stream_what *base)
{
	return !memcmp(has->uuid, base->from_uuid, sizeof(has->uuid)) &&
	       has->to_epoch == base->from_epoch && has->to_bytes == base->from_bytes;
}

static int changed_since(const struct receiver *r)
{
	const struct receive_state *state = &r->state;
	char text[128];

	return cannot_because(r->target->path, "it was changed since it became %s; cowsnap "
					       "rollback %s@%u goes back to that",
			      name_of(&state->what, false, text), r->history->origin,
			      state->kept.id);
}

/* Is the target still the image that it has become? */
static int check_image(const struct receiver *r)
{
	const struct receive_state *state = &r->state;
	struct target *t = r->target;
	char text[128];
	u32 sample;

	if (r->history) {
		enum history_answer answer = history_ask(r->history, t, state);

		if (answer != HISTORY_UNKNOWN)
			return answer == HISTORY_SAME ? 0 : changed_since(r);
	}
	if (t->dev.io.bytes < state->what.to_bytes)
		return cannot(t->path, "it is shorter than the image it had; receive a full "
				       "stream with --force");
	if (target_sample(t, state->what.to_bytes, &sample))
		return cannot(t->path, t->error);
	if (sample == state->sample)
		return 0;
	return cannot_because(t->path, "it was changed since it became %s; receive a full stream "
				       "with --force",
			      name_of(&state->what, false, text));
}

/* Nothing is known of the target, or what is known does not fit. */
static int refuse_base(const struct receiver *r)
{
	const struct receive_state *state = &r->state;
	char has[128], wants[128];

	name_of(&r->info.what, true, wants);
	if (!r->target->exists)
		return cannot_because(r->target->path, "there is no such file, and the stream "
						       "needs a copy of %s",
				      wants);
	if (!state->exists)
		return cannot_because(r->target->path, "it is not known what it holds, and the "
						       "stream needs a copy of %s; --force if it "
						       "is one",
				      wants);
	return cannot_because(r->target->path, "it holds %s, and the stream needs a copy of %s",
			      name_of(&state->what, false, has), wants);
}

static int refuse_contents(const struct receiver *r)
{
	char text[128];

	if (!r->state.exists) {
		const char *content = target_content(r->target, text, sizeof(text));

		return content ? cannot_because(r->target->path, "it holds %s; --force writes "
								 "over it",
						content) : 0;
	}
	return cannot_because(r->target->path, "it holds %s; --force writes over it",
			      name_of(&r->state.what, false, text));
}

/* Another stream has stopped half way. */
static int refuse_part(const struct receiver *r)
{
	char text[128], token[STREAM_TOKEN];

	stream_token(&r->state.what, r->state.position, token);
	return cannot_because(r->target->path, "a stream of %s has stopped half way in it; go on "
					       "with cowsnap send --resume %s",
			      name_of(&r->state.what, false, text), token);
}

static bool goes_on(const struct receiver *r)
{
	return r->state.exists && !r->state.whole && stream_same(&r->state.what, &r->info.what) &&
	       r->state.what.to_bytes == r->info.what.to_bytes &&
	       r->state.what.from_bytes == r->info.what.from_bytes;
}

/* Is what has arrived of this stream still there? */
static bool part_is_there(const struct receiver *r)
{
	const struct receive_state *state = &r->state;
	u32 sample;

	if (!state->position)
		return true;
	return r->target->dev.io.bytes >= state->position &&
	       !target_sample(r->target, state->position, &sample) && sample == state->sample;
}

/* The stream is that of which a part is here. */
static int decide_to_go_on(struct receiver *r, bool force)
{
	const char *path = r->target->path;
	bool anew = !r->info.position && !r->info.what.from_epoch;
	char text[128];

	if (r->info.position > r->state.position)
		return cannot_because(path, "the stream goes on at byte %" PRIu64 ", and only %"
					    PRIu64 " are here; see cowsnap receive --token",
				      r->info.position, r->state.position);
	if (part_is_there(r))
		return 0;
	if (!force || !anew)
		return cannot_because(path, "it was changed since a stream of %s stopped half way in "
					    "it; receive a full stream from its start with --force",
				      name_of(&r->state.what, false, text));
	r->state.position = 0;
	return 0;
}

/* 0, or the status to end with. */
static int decide(struct receiver *r, bool force)
{
	const struct stream_what *what = &r->info.what;

	if (target_check_room(r->target, what->to_bytes))
		return cannot(r->target->path, r->target->error);
	if (goes_on(r))
		return decide_to_go_on(r, force);
	if (r->info.position)
		return cannot(r->target->path, "the stream goes on with one of which nothing is "
					       "here; send it from the start");
	if (r->state.exists && !r->state.whole && !(force && !what->from_epoch))
		return refuse_part(r);
	if (!what->from_epoch)
		return force ? 0 : refuse_contents(r);
	if (force && r->target->exists)
		return r->target->dev.io.bytes >= what->from_bytes ? 0 :
		       cannot(r->target->path, "it is shorter than the image that the changes "
					       "were compared with");
	if (!r->state.exists || !r->target->exists || !same_image(&r->state.what, what))
		return refuse_base(r);
	return check_image(r);
}

static bool has_it_already(const struct receiver *r)
{
	const struct stream_what *has = &r->state.what, *what = &r->info.what;

	return r->state.exists && r->state.whole && has->to_epoch == what->to_epoch &&
	       !memcmp(has->uuid, what->uuid, sizeof(has->uuid)) &&
	       has->to_bytes == what->to_bytes;
}

/* To the sender, a stream that nobody reads to its end is an error. */
static void read_to_end(int fd)
{
	char rest[65536];
	ssize_t got;

	do
		got = read(fd, rest, sizeof(rest));
	while (got > 0 || (got < 0 && errno == EINTR));
}

static int say_already(const struct receiver *r)
{
	char text[128];
	int status = check_image(r);

	if (!status)
		fprintf(stderr, "%s: it is %s already; nothing was changed\n", r->target->path,
			name_of(&r->state.what, false, text));
	return status;
}

/* ---- receiving ---- */

/* Whatever waits for the stream finds its end. */
static void interrupted(int signal)
{
	(void)signal;
	dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = interrupted };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	/* A file that must not become longer is a write that fails. */
	signal(SIGXFSZ, SIG_IGN);
}

/* One that was killed before may have made the same. */
static int keep(struct receiver *r)
{
	struct receive_state state = r->state;
	int status;

	if (!r->history || state.kept.epoch)
		return 0;
	status = history_snapshot(r->history, &state);
	if (!status && receive_save(r, &state))
		return cannot(r->target->path, r->error);
	return status;
}

/* It has stopped: what is there is made durable, and where to go on is said. */
static int stopped(struct receiver *r)
{
	char why[STREAM_ERROR], token[STREAM_TOKEN];

	if (!r->begun && !goes_on(r))
		return cannot_because(r->target->path, "%s; nothing was changed", r->error);
	memcpy(why, r->error, sizeof(why));
	/* If that fails, it is known how far it was the last time. */
	if (r->begun)
		receive_checkpoint(r);
	stream_token(&r->state.what, r->state.position, token);
	cannot_because(r->target->path, "%s; go on with cowsnap send --resume %s", why, token);
	return EXIT_DAMAGE;
}

static int receive(struct receiver *r, const struct words *w)
{
	int status = decide(r, option_given(w, "force"));

	if (status)
		return status;
	catch_signals();
	progress_begin(&r->progress, "received", r->info.planned, 0,
		       !option_given(w, "progress") && !isatty(STDERR_FILENO));
	status = receive_records(r);
	progress_end(&r->progress);
	return status ? stopped(r) : keep(r);
}

static int receive_onto(struct receiver *r, const struct words *w)
{
	int status;

	r->fd = STDIN_FILENO;
	if (isatty(r->fd))
		return cannot("standard input", "it is a terminal; feed the stream from a file or "
						"a pipe");
	if (receive_header(r))
		return cannot_because("the stream", "%s; nothing was changed", r->error);
	if (!has_it_already(r) || option_given(w, "force"))
		return receive(r, w);
	status = say_already(r);
	if (!status)
		status = keep(r);
	if (!status)
		read_to_end(r->fd);
	return status;
}

/* ---- --token ---- */

static int print_token(const struct receiver *r)
{
	char token[STREAM_TOKEN];

	if (!r->state.exists || r->state.whole)
		return cannot(r->target->path, "no stream has stopped half way in it");
	stream_token(&r->state.what, r->state.position, token);
	puts(token);
	return EXIT_CLEAN;
}

/* ---- the command line ---- */

static int read_state(struct receiver *r, const struct words *w, char path[PATH_MAX])
{
	const char *given = option_value(w, "state");

	if (given)
		snprintf(path, PATH_MAX, "%s", given);
	else if (receive_state_path(r->target->path, r->target->is_device, path))
		return cannot(r->target->path, strerror(errno));
	r->state_path = path;
	if (!r->target->exists || !receive_state_read(path, &r->state))
		return 0;
	if (errno != EBADMSG)
		return cannot(path, strerror(errno));
	return option_given(w, "force") ? 0 :
	       cannot(path, "it is damaged, so that nobody knows what the target holds; remove "
			    "it, or --force");
}

static int receive_target(struct receiver *r, const struct words *w, const char *target)
{
	char path[PATH_MAX];
	struct target t;
	int status;

	r->target = &t;
	if (target_open(&t, target))
		return cannot(target, t.error);
	status = read_state(r, w, path);
	if (!status)
		status = option_given(w, "token") ? print_token(r) : receive_onto(r, w);
	target_close(&t);
	return status;
}

int command_receive(const struct words *w)
{
	struct receiver r = { 0 };
	struct history history;
	int status;

	if (!option_given(w, "snapshot"))
		return receive_target(&r, w, w->word[0]);
	status = history_open(&history, w->word[0]);
	if (status)
		return status;
	r.history = &history;
	status = receive_target(&r, w, history.device);
	history_close(&history);
	return status;
}

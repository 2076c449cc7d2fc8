// SPDX-License-Identifier: GPL-2.0-only
/* The snapshots of an origin that streams are received into: see receive-history.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "diff-store.h"
#include "lib/handle.h"
#include "lib/item.h"
#include "receive-history.h"
#include "session.h"

/* The longest that the origin's writers have to wait: there should be none. */
#define LIMIT_SECONDS	10
#define COMPARE_BYTES	(1U << 20)

/* ---- which origin ---- */

static int look_at(struct history *h, const char *word)
{
	const struct cowsnap_item *o;
	int r = 0;

	if (cowsnap_open(&h->c) || cowsnap_scan(h->c))
		return say_error(h->c);
	o = need_origin(h->c, word, &r);
	if (!o || refuse_managed(h->c, o, "it without --snapshot, then lvcreate -s"))
		return say_error(h->c);
	if (!cowsnap_get(o, "device") || strcmp(cowsnap_get(o, "state"), "active"))
		return cannot_because(word, "the origin is %s: it cannot be written now",
				      cowsnap_get(o, "state"));
	if (!item_with(o->inside, "type", "persistent"))
		return cannot(word, "it has no persistent store to keep snapshots in; cowsnap "
				    "create makes one");
	snprintf(h->origin, sizeof(h->origin), "%s", cowsnap_get(o, "name"));
	snprintf(h->device, sizeof(h->device), "%s", cowsnap_get(o, "device"));
	return 0;
}

int history_open(struct history *h, const char *word)
{
	int status;

	memset(h, 0, sizeof(*h));
	status = look_at(h, word);
	if (status)
		history_close(h);
	return status;
}

void history_close(struct history *h)
{
	cowsnap_close(h->c);
	h->c = NULL;
}

/* ---- is it what it was? ---- */

static bool is_alike(struct target *t, int snapshot, const struct extent *e, char *old, char *now)
{
	u64 at, n;

	for (at = e->offset; at < e->offset + e->length; at += n) {
		n = e->offset + e->length - at;
		if (n > COMPARE_BYTES)
			n = COMPARE_BYTES;
		if (pread(snapshot, old, n, at) != (ssize_t)n || io_read(&t->dev.io, at, now, n) ||
		    memcmp(old, now, n))
			return false;
	}
	return true;
}

/* What the store takes for changed may have been copied before it was needed. */
static enum history_answer compare(struct target *t, const char *snapshot,
				   const struct extents *changed, u64 bytes)
{
	int fd = open(snapshot, O_RDONLY | O_CLOEXEC);
	char *buffer = malloc(2 * COMPARE_BYTES);
	enum history_answer answer = fd < 0 || !buffer ? HISTORY_UNKNOWN : HISTORY_SAME;
	size_t i;

	for (i = 0; i < changed->nr && answer == HISTORY_SAME; i++) {
		struct extent e = changed->at[i];

		if (e.offset >= bytes)
			break;
		if (e.length > bytes - e.offset)
			e.length = bytes - e.offset;
		if (!is_alike(t, fd, &e, buffer, buffer + COMPARE_BYTES))
			answer = HISTORY_CHANGED;
	}
	free(buffer);
	if (fd >= 0)
		close(fd);
	return answer;
}

/* The snapshot that is noted, and no other that has got its number since. */
static bool is_kept(const struct receive_kept *kept, const struct store *s)
{
	size_t i;

	if (memcmp(kept->uuid, s->super.uuid, sizeof(kept->uuid)))
		return false;
	for (i = 0; i < s->nr_records; i++)
		if (s->record[i].id == kept->id && s->record[i].epoch == kept->epoch)
			return record_live(&s->record[i]);
	return false;
}

/* Beyond the first @bytes an origin that has grown is no part of the image. */
static enum history_answer ask_store(struct diff_store *ds, struct target *t, u32 id, u64 bytes)
{
	enum history_answer answer = HISTORY_UNKNOWN;
	char word[16], path[300];
	struct diff d;

	snprintf(word, sizeof(word), "%u", id);
	if (diff_make(ds, &d, word, "now"))
		return answer;
	if (!d.changed.nr)
		answer = HISTORY_SAME;
	else if (!live_device(&ds->live, id, path))
		answer = compare(t, path, &d.changed, bytes);
	diff_free(&d);
	return answer;
}

enum history_answer history_ask(const struct history *h, struct target *t,
				const struct receive_state *state)
{
	enum history_answer answer = HISTORY_UNKNOWN;
	struct diff_store ds;

	if (!state->kept.epoch || diff_open(&ds, h->origin))
		return answer;
	if (is_kept(&state->kept, &ds.s))
		answer = ask_store(&ds, t, state->kept.id, state->what.to_bytes);
	diff_close(&ds);
	return answer;
}

/* ---- one more ---- */

/* The entry of the snapshot @id, which has just been made. */
static int note(const struct history *h, u32 id, struct receive_kept *kept)
{
	struct diff_store ds;
	struct diff d;
	char word[16];
	int status = diff_open(&ds, h->origin);

	if (status)
		return status;
	snprintf(word, sizeof(word), "%u", id);
	status = diff_make(&ds, &d, word, "now");
	if (!status) {
		kept->id = id;
		kept->epoch = d.a.epoch;
		memcpy(kept->uuid, d.uuid, sizeof(kept->uuid));
		diff_free(&d);
	}
	diff_close(&ds);
	return status;
}

int history_snapshot(struct history *h, struct receive_state *state)
{
	const char *name = h->origin;
	unsigned int id;

	if (cowsnap_snapshot(h->c, &name, 1, LIMIT_SECONDS, &id))
		return say_error(h->c);
	printf("%s@%u\n", h->origin, id);
	return note(h, id, &state->kept);
}

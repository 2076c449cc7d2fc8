// SPDX-License-Identifier: GPL-2.0-only
/*
 * Snapshots of several origins at one instant.
 *
 * All origins are suspended, which freezes their filesystems; then each gets its snapshot;
 * then all are resumed. The guard resumes them if that takes too long, or if this process
 * dies. When it had to, the instant was none, and what was made is deleted.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "guard.h"
#include "handle.h"
#include "item.h"
#include "map.h"
#include "snapshot.h"
#include "sys.h"

#define SECTOR 512
#define MAX_SECONDS 3600

struct member {
	const struct cowsnap_item *origin, *store;
	const char *options;	/* of a transient store that is made with it, or NULL */
	unsigned int nr_options;	/* words */
	unsigned int id;
	bool suspended, made;
};

/*
 * cowsnap.rollback=NAME@NUMBER that is left on the kernel's command line was not about a snapshot
 * of that number that is made later.
 */
static bool is_rolled_back_to(const struct cowsnap_item *store, unsigned int id)
{
	char word[300], name[300];

	snprintf(name, sizeof(name), "%s@%u", cowsnap_get(cowsnap_parent(store), "name"), id);
	return sys_kernel_word("cowsnap.rollback", word, sizeof(word)) && !strcmp(word, name);
}

/* One more than the highest, so that numbers are in the order of time; at the end the least. */
static int choose_id(const struct cowsnap_item *store)
{
	const struct cowsnap_item *snap;
	unsigned int id = 0, other;

	for (snap = store->inside; snap; snap = snap->next) {
		other = cowsnap_number(snap, "id");
		if (other <= SNAPSHOT_MAX_ID && other > id)
			id = other;
	}
	id += is_rolled_back_to(store, id + 1);
	if (id < SNAPSHOT_MAX_ID)
		return id + 1;
	for (id = 1; id <= SNAPSHOT_MAX_ID; id++)
		if (!item_with_number(store->inside, "id", id) && !is_rolled_back_to(store, id))
			return id;
	return -1;
}

/* The one that takes snapshots; of several, the persistent one. */
static const struct cowsnap_item *store_of(const struct cowsnap_item *origin)
{
	const struct cowsnap_item *s = item_with(origin->inside, "type", "persistent");

	return s ? s : origin->inside;
}

static int prepare(struct cowsnap *c, struct member *m, const char *name)
{
	const char *state;
	int id, r = 0;

	m->origin = need_origin(c, name, &r);
	if (!m->origin)
		return r;
	name = cowsnap_get(m->origin, "name");
	r = refuse_managed(c, m->origin, "lvcreate -s");
	if (r)
		return r;
	state = cowsnap_get(m->origin, "state");
	if (strcmp(state, "active"))
		return fail(c, COWSNAP_BUSY, "\"%s\" is %s: no snapshot is made of it now", name,
			    state);
	m->store = store_of(m->origin);
	if (!m->store)
		return fail(c, COWSNAP_NONE, "\"%s\" has no store: cowsnap create %s STORE gives "
					     "it one",
			    name, name);
	id = choose_id(m->store);
	if (id < 0)
		return fail(c, COWSNAP_EXISTS, "\"%s\" has as many snapshots as can be: delete "
			    "some", name);
	m->id = id;
	return 0;
}

static int prepare_all(struct cowsnap *c, struct member *m, const char *const *origins,
		       unsigned int nr)
{
	unsigned int i, j;
	int r = cowsnap_scan(c);

	for (i = 0; i < nr && !r; i++) {
		r = prepare(c, &m[i], origins[i]);
		for (j = 0; j < i && !r; j++)
			if (m[j].origin == m[i].origin)
				r = fail(c, COWSNAP_BAD_NAME, "\"%s\" is named twice", origins[i]);
	}
	return r;
}

/* ---- while they are suspended ---- */

static int make_transient(struct cowsnap *c, const struct member *m)
{
	struct map_line line;
	struct map table;
	char words[512], name[300];

	snprintf(words, sizeof(words), "%s %s N %" PRIu64 " %u id %u create%s",
		 cowsnap_get(m->origin, "below"), cowsnap_get(m->store, "number"),
		 cowsnap_number(m->store, "chunk") / SECTOR, 3 + m->nr_options, m->id,
		 m->options ? m->options : "");
	snprintf(name, sizeof(name), "%s@%u", cowsnap_get(m->origin, "name"), m->id);
	map_one_line(&table, &line, cowsnap_number(m->origin, "size") / SECTOR, "cowsnap", words);
	return map_create(c, name, &table, MAP_HIDDEN);
}

static int make(struct cowsnap *c, const struct member *m)
{
	char message[64];

	if (!strcmp(cowsnap_get(m->store, "type"), "transient"))
		return make_transient(c, m);
	snprintf(message, sizeof(message), "create %u %s", m->id,
		 cowsnap_get(m->store, "number"));
	return map_message(c, cowsnap_get(m->origin, "name"), message);
}

static int freeze_and_make(struct cowsnap *c, struct member *m, unsigned int nr,
			   const struct timespec *limit)
{
	struct timespec now;
	unsigned int i;
	int r = 0;

	for (i = 0; i < nr && !r; i++) {
		r = map_suspend(c, cowsnap_get(m[i].origin, "name"));
		m[i].suspended = !r;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (!r && !c->line && (now.tv_sec > limit->tv_sec ||
				       (now.tv_sec == limit->tv_sec &&
					now.tv_nsec >= limit->tv_nsec)))
			r = COWSNAP_TIMEOUT;
	}
	for (i = 0; i < nr && !r; i++) {
		r = make(c, &m[i]);
		m[i].made = !r;
	}
	return r;
}

static void resume_all(struct cowsnap *c, const struct guard *g, const struct member *m,
		       unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (!m[i].suspended)
			continue;
		if (c->line)
			map_resume(c, cowsnap_get(m[i].origin, "name"));
		else
			guard_resume(g, cowsnap_get(m[i].origin, "name"));
	}
}

/* ---- afterwards ---- */

static void unmake_all(struct cowsnap *c, const struct member *m, unsigned int nr)
{
	char error[sizeof(c->error)], message[64], name[300];
	unsigned int i;

	memcpy(error, c->error, sizeof(error));
	for (i = 0; i < nr; i++) {
		if (!m[i].made)
			continue;
		snprintf(name, sizeof(name), "%s@%u", cowsnap_get(m[i].origin, "name"), m[i].id);
		snprintf(message, sizeof(message), "delete %u %s", m[i].id,
			 cowsnap_get(m[i].store, "number"));
		if (!strcmp(cowsnap_get(m[i].store, "type"), "transient"))
			map_remove(c, name);
		else
			map_message(c, cowsnap_get(m[i].origin, "name"), message);
	}
	memcpy(c->error, error, sizeof(error));
}

/* A signal that ends the program waits until nothing is suspended any more. */
static int make_guarded(struct cowsnap *c, struct member *m, const char *const *names,
			unsigned int nr, unsigned int seconds)
{
	struct timespec limit;
	struct guard g;
	sigset_t all, old;
	bool in_time;
	int r;

	if (!c->line && guard_start(&g, names, nr, seconds))
		return fail(c, COWSNAP_NO_ACCESS, "no process that would watch the origins");
	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += seconds;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	r = freeze_and_make(c, m, nr, &limit);
	resume_all(c, &g, m, nr);
	in_time = c->line || guard_end(&g);
	if (!in_time || r == COWSNAP_TIMEOUT)
		r = fail(c, COWSNAP_TIMEOUT,
			 "after %u s not all snapshots were made: the origins were resumed, "
			 "nothing was kept; "
			 "try again when there is less to write, or allow more with "
			 "--limit", seconds);
	if (r)
		unmake_all(c, m, nr);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return r;
}

int cowsnap_snapshot(struct cowsnap *c, const char *const *origins, unsigned int nr,
		     unsigned int seconds, unsigned int *ids)
{
	struct member *m = calloc(nr, sizeof(*m));
	const char **names = calloc(nr, sizeof(*names));
	unsigned int i;
	int r = m && names ? 0 : fail_no_memory(c);

	/* In milliseconds, as the guard counts, more would be too large a number. */
	if (!r && seconds > MAX_SECONDS)
		r = fail(c, COWSNAP_REFUSED, "%u seconds are too long for origins to stand still: "
			 "use at most %d", seconds, MAX_SECONDS);
	if (!r)
		r = prepare_all(c, m, origins, nr);
	for (i = 0; i < nr && !r; i++) {
		names[i] = cowsnap_get(m[i].origin, "name");
		ids[i] = m[i].id;
	}
	if (!r)
		r = make_guarded(c, m, names, nr, seconds);
	free(m);
	free(names);
	return r;
}

int snapshot_first(struct cowsnap *c, const char *origin, const struct first_store *first,
		   unsigned int seconds)
{
	struct member m = { .options = first->options, .nr_options = first->nr_options, .id = 1 };
	struct cowsnap_item *store, *o;
	const char *name;
	int r = 0;

	m.origin = need_origin(c, origin, &r);
	if (!m.origin)
		return r;
	o = (struct cowsnap_item *)m.origin;
	store = item_add(&o->inside, o, COWSNAP_STORE);
	if (!store || item_set(store, "type", "transient") ||
	    item_set(store, "number", first->store) ||
	    item_set_number(store, "chunk", first->chunk_sectors * SECTOR))
		return fail_no_memory(c);
	m.store = store;
	name = cowsnap_get(m.origin, "name");
	return make_guarded(c, &m, &name, 1, seconds);
}

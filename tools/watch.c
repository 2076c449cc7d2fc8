// SPDX-License-Identifier: GPL-2.0-only
/* watch: what origins and stores do, every few seconds. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "itemjson.h"
#include "progress.h"
#include "session.h"
#include "size.h"
#include "watch.h"

#define SECTOR		512
#define MAX_STORES	256
#define NEVER		UINT64_MAX

const struct option_text watch_options[] = {
	{ "interval", 'i', "SECONDS", "between two lines (default 2)" },
	{ "count", 'c', "NUMBER", "end after so many; 0: never (default)" },
	{ "json", 0, NULL, "print JSON, an object a line" },
	{ NULL },
};

/* A store at one moment. */
struct sample {
	char name[128];		/* the origin's and the store's numbers */
	uint64_t used, copies, written, at;
};

static struct sample before[MAX_STORES];
static int nr_before;

/* What happens in a second. */
struct rates {
	uint64_t used, copies, written;
	uint64_t full;		/* seconds until it is, or NEVER */
};

static void take_sample(struct sample *s, const struct cowsnap_item *o,
			const struct cowsnap_item *store)
{
	snprintf(s->name, sizeof(s->name), "%s %s", cowsnap_get(o, "below"),
		 cowsnap_get(store, "number"));
	s->used = cowsnap_number(store, "used");
	s->copies = cowsnap_number(o, "copies");
	s->written = cowsnap_number(o, "written_sectors") * SECTOR;
	s->at = now_ms();
}

/* The last one of the same store takes this one's place. NULL: there was none. */
static const struct sample *last_of(const struct sample *s)
{
	static struct sample last;
	int i;

	for (i = 0; i < nr_before && strcmp(before[i].name, s->name); i++)
		;
	if (i == MAX_STORES)
		return NULL;
	last = before[i];
	before[i] = *s;
	if (i < nr_before)
		return &last;
	nr_before++;
	return NULL;
}

/* Counters go back when somebody resets them, room when a snapshot is deleted. */
static uint64_t per_second(uint64_t now, uint64_t last, uint64_t ms)
{
	return now > last ? (now - last) * 1000 / ms : 0;
}

static void find_rates(struct rates *r, const struct sample *s, const struct sample *last,
		       uint64_t size)
{
	uint64_t ms = last ? s->at - last->at : 0;

	*r = (struct rates){ .full = NEVER };
	if (!ms)
		return;
	r->used = per_second(s->used, last->used, ms);
	r->copies = per_second(s->copies, last->copies, ms);
	r->written = per_second(s->written, last->written, ms);
	if (r->used)
		r->full = size > s->used ? (size - s->used) / r->used : 0;
}

static void print_text(const struct cowsnap_item *o, const struct cowsnap_item *store,
		       const struct rates *r)
{
	uint64_t size = cowsnap_number(store, "size"), used = cowsnap_number(store, "used");
	char written[16], room[16], full[32] = "-";

	if (r->full != NEVER)
		time_text(r->full, full, sizeof(full));
	printf("%-16s %-16s %8s/s %7" PRIu64 "/s %8s %3.0f%%  %s\n", cowsnap_get(o, "name"),
	       cowsnap_get(store, "device"), size_text(r->written, written, sizeof(written)),
	       r->copies, size_text(size > used ? size - used : 0, room, sizeof(room)),
	       size ? 100.0 * used / size : 0, full);
}

static void print_json(const struct cowsnap_item *o, const struct cowsnap_item *store,
		       const struct rates *r)
{
	json_object *j = json_object_new_object();

	json_object_object_add(j, "origin", json_object_new_string(cowsnap_get(o, "name")));
	json_object_object_add(j, "store", json_object_new_string(cowsnap_get(store, "device")));
	json_object_object_add(j, "size", json_object_new_int64(cowsnap_number(store, "size")));
	json_object_object_add(j, "used", json_object_new_int64(cowsnap_number(store, "used")));
	json_object_object_add(j, "written_per_second", json_object_new_int64(r->written));
	json_object_object_add(j, "copies_per_second", json_object_new_int64(r->copies));
	json_object_object_add(j, "used_per_second", json_object_new_int64(r->used));
	json_object_object_add(j, "seconds_until_full", r->full == NEVER ? NULL :
			       json_object_new_int64(r->full));
	puts(json_object_to_json_string_ext(j, JSON_C_TO_STRING_SPACED));
	json_object_put(j);
}

static void print_origin(const struct words *w, const struct cowsnap_item *o)
{
	const struct cowsnap_item *store;
	struct sample s;
	struct rates r;

	for (store = cowsnap_inside(o); store; store = cowsnap_next(store)) {
		take_sample(&s, o, store);
		find_rates(&r, &s, last_of(&s), cowsnap_number(store, "size"));
		if (option_given(w, "json"))
			print_json(o, store, &r);
		else
			print_text(o, store, &r);
	}
}

/* Are there rates of what was named? A snapshot has none. */
static int look(const struct words *w, struct cowsnap *c)
{
	const struct cowsnap_item *found = w->nr_words ? cowsnap_find(c, w->word[0]) : NULL;

	if (!w->nr_words || (found && cowsnap_kind(found) == COWSNAP_ORIGIN))
		return 0;
	if (!found)
		return cannot(w->word[0], "no origin; cowsnap list shows them");
	return cannot_because(w->word[0], "a snapshot, not an origin; cowsnap watch %s shows what its "
			      "store does",
			      cowsnap_get(cowsnap_parent(cowsnap_parent(found)), "name"));
}

static int print_once(const struct words *w, struct cowsnap *c)
{
	const struct cowsnap_item *o;
	int r = cowsnap_scan(c);

	if (!r)
		r = look(w, c);
	if (r)
		return r;
	for (o = cowsnap_first(c); o; o = cowsnap_next(o))
		if (!w->nr_words || o == cowsnap_find(c, w->word[0]))
			print_origin(w, o);
	fflush(stdout);
	return 0;
}

static int watch(const struct words *w, struct cowsnap *c, unsigned long interval,
		 unsigned long count)
{
	unsigned long n = 0;
	int r = look(w, c);

	if (r)
		return r;
	if (!option_given(w, "json"))
		printf("%-16s %-16s %10s %9s %8s %4s  %s\n", "ORIGIN", "STORE", "WRITTEN",
		       "COPIES", "ROOM", "USED", "FULL IN");
	do {
		r = print_once(w, c);
		if (r || ++n == count)
			break;
		sleep(interval);
	} while (!ferror(stdout));
	return r;
}

int command_watch(const struct words *w)
{
	unsigned long interval = 2, count = 0;
	struct cowsnap *c;

	if (read_number("--interval", option_value(w, "interval"), 1, 3600, &interval) ||
	    read_number("--count", option_value(w, "count"), 0, 1000000000, &count))
		return EXIT_CANNOT;
	c = session_open(w);
	return c ? session_end(c, watch(w, c, interval, count)) : EXIT_CANNOT;
}

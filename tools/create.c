// SPDX-License-Identifier: GPL-2.0-only
/*
 * create: a device becomes an origin with a store.
 *
 * The kernel makes a store when its first snapshot is made, and an origin's table can only
 * name a store that is there. So the first snapshot is one of our own, with the last number,
 * which is deleted as soon as the origin is in force. An interrupted run leaves that snapshot,
 * its device, or the device below an origin, each of which the next run takes for its own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "create.h"
#include "lib/map.h"
#include "lib/parse.h"
#include "lib/snapshot.h"
#include "lib/sys.h"
#include "place.h"
#include "room.h"
#include "session.h"
#include "size.h"
#include "tuning.h"

#define SECTOR		512
#define LIMIT_SECONDS	10

const struct option_text create_options[] = {
	{ "name", 0, "NAME", "name of the new device, /dev/mapper/NAME (default: that of ORIGIN)" },
	{ "chunk", 'c', "SIZE", "unit of copying, a power of two up to 8M (default 4K)" },
	{ "transient", 't', NULL, "a store that is gone with its snapshots; makes the first" },
	{ "existing", 'e', NULL, "open the snapshots that STORE has of ORIGIN" },
	{ "force", 'f', NULL, "overwrite what STORE holds" },
	{ "discard", 0, "WHAT", "what a discard does: skip, preserve or none" },
	TUNING_OPTIONS,
	{ "dry-run", 'n', NULL, "print the dmsetup lines, change nothing" },
	{ NULL },
};

struct create {
	const struct words *w;
	struct cowsnap *c;
	struct place place;
	struct room room;
	char store[300], store_number[16];
	uint64_t chunk_sectors;
	char tuning[300];		/* " word word" */
	int nr_tuning;
	char setup[PLACE_NAME + 8];	/* name of the first snapshot's device */
	uint32_t setup_sectors;		/* chunks of the store that an earlier run has made */
	bool dry, hidden;
};

/* ---- the command line ---- */

int read_chunk(const struct words *w, uint64_t *sectors)
{
	const char *text = option_value(w, "chunk");
	uint64_t bytes = 4096;

	if (text && (size_read(text, &bytes) || bytes < SECTOR || bytes > 8 << 20 ||
		     bytes & (bytes - 1)))
		return cannot_because("--chunk", "\"%s\" is no power of two from 1s to 8M", text);
	*sectors = bytes / SECTOR;
	return 0;
}

static int read_discard(const struct create *k)
{
	const char *word = option_value(k->w, "discard");

	if (!word || !strcmp(word, "skip") || !strcmp(word, "preserve") || !strcmp(word, "none"))
		return 0;
	return cannot_because("--discard", "\"%s\" is none of skip, preserve, none", word);
}

static int read_line(struct create *k)
{
	if (read_chunk(k->w, &k->chunk_sectors) || read_discard(k))
		return EXIT_CANNOT;
	k->nr_tuning = tuning_given(k->w, k->tuning, sizeof(k->tuning));
	if (k->nr_tuning < 0)
		return EXIT_CANNOT;
	if (option_given(k->w, "transient") && option_given(k->w, "existing"))
		return cannot("create", "--transient and --existing contradict each other: "
			      "nothing is left of a transient store");
	if (option_given(k->w, "undo-buffer") && !option_given(k->w, "transient"))
		return cannot("--undo-buffer", "only a --transient store has one");
	k->dry = option_given(k->w, "dry-run");
	return 0;
}

/* ---- looking ---- */

static int find_store(struct create *k)
{
	const char *path = k->w->word[1];

	if (!sys_number(path, k->store_number, sizeof(k->store_number)))
		return cannot(path, "no block device; name one that is to keep the old data");
	sys_path(k->store_number, k->store, sizeof(k->store));
	return 0;
}

/* The origin that is there already, or NULL. */
static const struct cowsnap_item *find_origin(const struct create *k)
{
	char number[16], path[300];
	const struct cowsnap_item *o;

	if (!sys_number(k->w->word[0], number, sizeof(number)))
		return NULL;
	o = cowsnap_find(k->c, sys_path(number, path, sizeof(path)));
	return o && cowsnap_kind(o) == COWSNAP_ORIGIN ? o : NULL;
}

static const struct cowsnap_item *inside_with(const struct cowsnap_item *item, const char *key,
					      const char *value)
{
	const struct cowsnap_item *i;
	const char *has;

	for (i = cowsnap_inside(item); i; i = cowsnap_next(i)) {
		has = cowsnap_get(i, key);
		if (has && !strcmp(has, value))
			return i;
	}
	return NULL;
}

/* What a store has for good is not set to something else by naming it. */
static int look_at_chunk(const struct create *k, uint64_t sectors, const char *remedy)
{
	char has[16], asked[16];

	if (!option_given(k->w, "chunk") || sectors == k->chunk_sectors)
		return 0;
	return cannot_because(k->store, "the store has chunks of %s, --chunk says %s; leave out "
			      "--chunk, or %s", size_text(sectors * SECTOR, has, sizeof(has)),
			      size_text(k->chunk_sectors * SECTOR, asked, sizeof(asked)), remedy);
}

/* The same of the table of an origin that is there. */
static int look_at_discard(const struct create *k, const struct cowsnap_item *o)
{
	const char *asked = option_value(k->w, "discard"), *has = cowsnap_get(o, "discard");

	if (!asked)
		return 0;
	/* Then its table has no such word. */
	if (!strncmp(cowsnap_get(o, "state"), "merg", 4))
		return cannot(k->place.name, "it is being rolled back; leave out --discard, or let "
			      "that end first");
	if (!has)
		has = "skip";
	if (!strcmp(has, asked))
		return 0;
	return cannot_because(k->place.name, "the origin has discard %s, --discard says %s; leave out "
			      "--discard, or take the origin away first, with cowsnap remove%s %s",
			      has, asked, option_given(k->w, "transient") ? "" : " --keep",
			      k->place.name);
}

static int say_room(const struct create *k)
{
	const struct room *r = &k->room;

	if (r->has_snapshots && !option_given(k->w, "existing") && !option_given(k->w, "force"))
		return cannot(k->store, "a store with snapshots; if they are of this origin, "
			      "--existing opens them; --force overwrites them");
	if (r->state == ROOM_OTHER && !option_given(k->w, "force"))
		return cannot_because(k->store, "%s; --force overwrites it", r->content);
	if (!option_given(k->w, "existing"))
		return 0;
	if (r->state != ROOM_STORE && r->state != ROOM_BEGUN)
		return cannot(k->store, "no store: leave out --existing");
	if (r->origin_sectors > k->place.sectors)
		return cannot_because(k->store, "the store of a longer origin: of %" PRIu64
				      " sectors, not %" PRIu64, r->origin_sectors,
				      k->place.sectors);
	return look_at_chunk(k, r->chunk_sectors, "make another store with --force in place of "
			     "--existing");
}

static int look_at_room(struct create *k)
{
	char use[300], uuid[33];
	int status;

	if (!strcmp(k->store_number, k->place.number))
		return cannot(k->store, "origin and store are the same device");
	if (use_of(k->store, k->store_number, use, sizeof(use)))
		return cannot_because(k->store, "%s; a store needs a device of its own", use);
	status = room_look(&k->room, k->store);
	if (!status)
		status = say_room(k);
	if (status || option_given(k->w, "existing") || k->room.way_home ||
	    !room_sealed_by(k->place.path, uuid))
		return status;
	return cannot_because(k->place.path, "it is sealed by the store with uuid %s; open that with "
			      "--existing, or bring home what it has with cowsnap unseal", uuid);
}

/* ---- doing ---- */

static int make_setup(struct create *k)
{
	struct map_line line;
	struct map table, there;
	char words[1200];

	if (!map_read_table(k->c, k->setup, &there)) {
		map_free(&there);
		return 0;
	}
	snprintf(words, sizeof(words), "%s %s P %" PRIu64 " %d id %d create%s", k->place.path,
		 k->store, k->chunk_sectors, 3 + k->nr_tuning, SNAPSHOT_SETUP_ID, k->tuning);
	map_one_line(&table, &line, k->place.sectors, "cowsnap", words);
	return map_create(k->c, k->setup, &table, MAP_HIDDEN);
}

static int make_origin(struct create *k, const char *store)
{
	const char *discard = option_value(k->w, "discard");
	struct map_line line;
	struct map table;
	char words[1200];
	int nr = 2 * !!store + 2 * !!discard;

	snprintf(words, sizeof(words), nr ? "%s %d%s%s%s%s" : "%s", k->place.path, nr,
		 store ? " store " : "", store ? store : "", discard ? " discard " : "",
		 discard ? discard : "");
	map_one_line(&table, &line, k->place.sectors, "cowsnap-origin", words);
	return k->place.home[0] ? map_reload(k->c, k->place.name, &table) :
	       map_create(k->c, k->place.name, &table, k->hidden ? MAP_HIDDEN : 0);
}

/* The first snapshot, with or without its device. */
static int drop_setup(struct create *k)
{
	char message[64];
	struct map m;
	int r = 0;

	if (k->dry || !map_read_table(k->c, k->setup, &m)) {
		if (!k->dry)
			map_free(&m);
		r = map_remove(k->c, k->setup);
	}
	snprintf(message, sizeof(message), "delete %d %s", SNAPSHOT_SETUP_ID, k->store_number);
	return r ? r : map_message(k->c, k->place.name, message);
}

/* A refusal leaves nothing behind. What failed stays the error. */
static void undo(struct create *k)
{
	char error[sizeof(k->c->error)];
	struct map m;

	memcpy(error, k->c->error, sizeof(error));
	if (!map_read_table(k->c, k->setup, &m)) {
		map_free(&m);
		map_remove(k->c, k->setup);
	}
	if (k->place.home[0] && !k->place.home_exists)
		map_remove(k->c, k->place.home);
	memcpy(k->c->error, error, sizeof(error));
}

/* The same once the origin is in force. */
static void undo_origin(struct create *k)
{
	char error[sizeof(k->c->error)];

	memcpy(error, k->c->error, sizeof(error));
	place_undo(&k->place, k->c);
	memcpy(k->c->error, error, sizeof(error));
}

/* What a table has not told the store, since that was there before. */
static int set_tuning(struct create *k)
{
	char name[32], value[32], message[128];
	const char *at = k->tuning;
	int n, r = 0;

	for (; !r && sscanf(at, " %31s %31s%n", name, value, &n) == 2; at += n) {
		snprintf(message, sizeof(message), "set %s %s %s", name, value, k->store_number);
		r = map_message(k->c, k->place.name, message);
	}
	return r;
}

/* @begun: the first snapshot is there, of an earlier run. */
static int make_persistent(struct create *k, bool begun)
{
	bool existing = option_given(k->w, "existing");
	int r = place_prepare(&k->place, k->c);

	if (!r && !existing)
		r = make_setup(k);
	if (!r)
		r = make_origin(k, k->store);
	if (r) {
		undo(k);
		return r;
	}
	if (!existing)
		r = drop_setup(k);
	if (!r && (existing || begun))
		r = set_tuning(k);
	return r;
}

static int clear_room(struct create *k)
{
	if (k->room.state == ROOM_EMPTY || option_given(k->w, "existing"))
		return 0;
	return room_clear(k->store, k->dry);
}

static int make_transient(struct create *k)
{
	struct first_store first = {
		.store = k->store_number, .chunk_sectors = k->chunk_sectors,
		.options = k->tuning, .nr_options = k->nr_tuning,
	};

	return snapshot_first(k->c, k->place.name, &first, LIMIT_SECONDS);
}

static int make_transient_origin(struct create *k)
{
	int r = place_prepare(&k->place, k->c);

	if (!r)
		r = make_origin(k, NULL);
	if (r)
		undo(k);
	/* A dry run has nothing to find. */
	if (!r && k->dry) {
		printf("dmsetup create %s@1 --table \"0 %" PRIu64 " cowsnap %s %s N %" PRIu64
		       " %d id 1 create%s\"\n", k->place.name, k->place.sectors, k->place.path,
		       k->store, k->chunk_sectors, 3 + k->nr_tuning, k->tuning);
		return 0;
	}
	if (r)
		return r;
	r = cowsnap_scan(k->c);
	if (!r)
		r = make_transient(k);
	if (r)
		undo_origin(k);
	return r;
}

/* It is an interrupted run's for this origin and store, not another device of that name. */
static bool is_setup(struct create *k, const struct map *m, const char *origin)
{
	struct parsed_table t;

	if (m->nr_lines != 1 || strcmp(m->line->target, "cowsnap") ||
	    parse_table(&t, m->line->target, m->line->words) ||
	    t.id != SNAPSHOT_SETUP_ID || strcmp(t.below, origin) ||
	    strcmp(t.store, k->store_number))
		return false;
	k->setup_sectors = t.chunk_sectors;
	return true;
}

/*
 * @begun: the first snapshot of an interrupted run is there. If its table is only loaded it still
 * holds the store. 0, EXIT_CANNOT, or a negative enum cowsnap_result.
 */
static int find_setup(struct create *k, const char *origin, bool *begun)
{
	struct map m;
	bool ours;

	*begun = !map_read_table(k->c, k->setup, &m);
	if (!*begun)
		return k->dry ? 0 : map_remove_remains(k->c, k->setup);
	ours = is_setup(k, &m, origin);
	map_free(&m);
	return ours ? 0 : cannot_because(k->setup, "/dev/mapper/%s exists, and is not what an "
					 "interrupted run leaves of this origin in %s; if nothing "
					 "uses it, dmsetup remove %s, and run this again", k->setup,
					 k->store, k->setup);
}

static int look_at_setup(const struct create *k)
{
	char remedy[PLACE_NAME + 64];

	snprintf(remedy, sizeof(remedy), "dmsetup remove %s and make another with --force", k->setup);
	return look_at_chunk(k, k->setup_sectors, remedy);
}

static int create_new(struct create *k)
{
	char origin[16] = "";
	bool begun;
	int status = place_find(&k->place, k->c, k->w->word[0], option_value(k->w, "name")), r;

	if (status)
		return status;
	snprintf(k->setup, sizeof(k->setup), "%s-setup", k->place.name);
	/* None, if the device below is still to be made: then there was no such run. */
	sys_number(k->place.path, origin, sizeof(origin));
	status = find_setup(k, origin, &begun);
	if (status)
		return status;
	/* The store of an interrupted run is in use by its first snapshot. */
	status = begun ? look_at_setup(k) : look_at_room(k);
	if (!status && !begun)
		status = clear_room(k);
	if (status)
		return status;
	r = option_given(k->w, "transient") ? make_transient_origin(k) :
	    make_persistent(k, begun);
	return r;
}

/* Is the store that is there already of the type that was asked for? */
static int look_at_type(const struct create *k, const struct cowsnap_item *store)
{
	const char *type = cowsnap_get(store, "type");

	if (!strcmp(type, "transient") == option_given(k->w, "transient"))
		return 0;
	return cannot_because(k->store, "\"%s\" has it as a %s store already; cowsnap remove %s takes "
			      "it away, so that create can make another", k->place.name, type,
			      k->place.name);
}

/* The store is there, with or without the first snapshot of an interrupted run. */
static int create_again(struct create *k, const struct cowsnap_item *o,
			const struct cowsnap_item *store)
{
	char remedy[PLACE_NAME + 80];
	bool begun;
	int r;

	snprintf(remedy, sizeof(remedy), "take the store away first, with cowsnap remove %s",
		 k->place.name);
	r = look_at_chunk(k, cowsnap_number(store, "chunk") / SECTOR, remedy);
	if (!r)
		r = look_at_discard(k, o);
	if (!r && inside_with(store, "id", "65535")) {
		r = find_setup(k, k->place.number, &begun);
		if (!r)
			r = drop_setup(k);
	}
	return r ? r : set_tuning(k);
}

/* The origin is there, of an earlier run, or without a store. */
static int create_more(struct create *k, const struct cowsnap_item *o)
{
	const struct cowsnap_item *store = inside_with(o, "number", k->store_number);
	const char *name = option_value(k->w, "name");
	int status;

	if (name && strcmp(name, cowsnap_get(o, "name")))
		return cannot_because(k->w->word[0], "it is the device of the origin \"%s\" already; "
				      "leave out --name", cowsnap_get(o, "name"));
	snprintf(k->place.name, sizeof(k->place.name), "%s", cowsnap_get(o, "name"));
	snprintf(k->place.number, sizeof(k->place.number), "%s", cowsnap_get(o, "below"));
	snprintf(k->setup, sizeof(k->setup), "%s-setup", k->place.name);
	status = store ? look_at_type(k, store) : 0;
	if (status)
		return status;
	if (store)
		return create_again(k, o, store);
	if (cowsnap_inside(o))
		return cannot_because(k->w->word[0], "\"%s\" is an origin with the store %s "
						     "already; "
				      "cowsnap remove %s takes it away", k->place.name,
				      cowsnap_get(cowsnap_inside(o), "device"), k->place.name);
	if (!option_given(k->w, "transient"))
		return cannot_because(k->w->word[0], "\"%s\" is an origin without a store already; "
				      "cowsnap remove %s takes it away", k->place.name,
				      k->place.name);
	status = look_at_discard(k, o);
	if (!status)
		status = look_at_room(k);
	if (!status)
		status = clear_room(k);
	return status ? status : make_transient(k);
}

/* It may have been deleted since an earlier run made it. */
static void say_first(const struct create *k)
{
	char name[PLACE_NAME + 8];

	snprintf(name, sizeof(name), "%s@1", k->place.name);
	if (!k->dry && !cowsnap_scan(k->c) && cowsnap_find(k->c, name))
		say_done(k->w, "%s", name);
}

static int create(struct create *k)
{
	const struct cowsnap_item *o;
	int r = find_store(k);

	if (r)
		return r;
	o = find_origin(k);
	r = o && cowsnap_get(o, "device") ? create_more(k, o) : create_new(k);
	if (r)
		return r;
	say_done(k->w, "/dev/mapper/%s", k->place.name);
	if (option_given(k->w, "transient"))
		say_first(k);
	return 0;
}

static int run_create(struct create *k)
{
	if (read_line(k))
		return EXIT_CANNOT;
	k->c = session_open(k->w);
	return k->c ? session_end(k->c, create(k)) : EXIT_CANNOT;
}

int command_create(const struct words *w)
{
	struct create k = { .w = w };

	return run_create(&k);
}

int command_create_hidden(const struct words *w)
{
	struct create k = { .w = w, .hidden = true };

	return run_create(&k);
}

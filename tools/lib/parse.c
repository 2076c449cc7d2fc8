// SPDX-License-Identifier: GPL-2.0-only
/* What the module prints: tables, status lines, lists. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

#define SECTOR		512ULL
#define MAX_WORDS	64

/* Words of a copy of the text. */
struct split {
	char *copy;
	char *word[MAX_WORDS];
	int nr;
};

static int split(struct split *s, const char *text)
{
	char *at, *save = NULL;

	s->nr = 0;
	s->copy = strdup(text);
	if (!s->copy)
		return PARSE_NO_MEMORY;
	for (at = strtok_r(s->copy, " ", &save); at; at = strtok_r(NULL, " ", &save)) {
		if (s->nr == MAX_WORDS)
			break;
		s->word[s->nr++] = at;
	}
	return 0;
}

static bool is_number(const char *word)
{
	return *word && strspn(word, "0123456789") == strlen(word) && strlen(word) < 20;
}

/* Words from the one numbered @from on are keys and values by turns. */
static int set_pairs(struct cowsnap_item *item, const struct split *s, int from)
{
	int i, r = 0;

	if (from > s->nr || (s->nr - from) % 2)
		return PARSE_BAD;
	for (i = from; i < s->nr; i += 2) {
		if (is_number(s->word[i + 1]))
			r |= item_set_number(item, s->word[i],
					     strtoull(s->word[i + 1], NULL, 10));
		else
			r |= item_set(item, s->word[i], s->word[i + 1]);
	}
	return r ? PARSE_NO_MEMORY : 0;
}

int parse_origin_status(struct cowsnap_item *origin, const char *text)
{
	struct split s;
	int r = split(&s, text);

	if (!r)
		r = set_pairs(origin, &s, 0);
	free(s.copy);
	return r;
}

static int parse_room(struct cowsnap_item *store, const char *room, const char *metadata)
{
	uint64_t used, total;
	int end = 0;

	if (sscanf(room, "%" SCNu64 "/%" SCNu64 "%n", &used, &total, &end) != 2 || room[end] ||
	    !is_number(metadata))
		return PARSE_BAD;
	return item_set_number(store, "size", total * SECTOR) ||
	       item_set_number(store, "used", used * SECTOR) ||
	       item_set_number(store, "metadata", strtoull(metadata, NULL, 10) * SECTOR) ?
	       PARSE_NO_MEMORY : 0;
}

/* store <number> <P|N> chunk <sectors> <used>/<total> <metadata> [<option> <value>]... */
static int parse_store(struct cowsnap_item *origin, const struct split *s)
{
	struct cowsnap_item *store;
	int r;

	if (s->nr < 7 || strcmp(s->word[3], "chunk") || !is_number(s->word[4]))
		return PARSE_BAD;
	store = item_add(&origin->inside, origin, COWSNAP_STORE);
	if (!store || item_set(store, "number", s->word[1]) ||
	    item_set(store, "type", *s->word[2] == 'P' ? "persistent" : "transient") ||
	    item_set_number(store, "chunk", strtoull(s->word[4], NULL, 10) * SECTOR))
		return PARSE_NO_MEMORY;
	r = parse_room(store, s->word[5], s->word[6]);
	return r ? r : set_pairs(store, s, 7);
}

/* snapshot <id> <state> epoch <n> sectors <n> time <n> tables <n> */
static int parse_snapshot(struct cowsnap_item *store, const struct split *s)
{
	struct cowsnap_item *snap;
	int r;

	if (!store || s->nr < 3 || !is_number(s->word[1]))
		return PARSE_BAD;
	snap = item_add(&store->inside, store, COWSNAP_SNAPSHOT);
	if (!snap || item_set_number(snap, "id", strtoull(s->word[1], NULL, 10)) ||
	    item_set(snap, "state", s->word[2]))
		return PARSE_NO_MEMORY;
	r = set_pairs(snap, s, 3);
	if (!r && item_set_number(snap, "size", cowsnap_number(snap, "sectors") * SECTOR))
		r = PARSE_NO_MEMORY;
	return r;
}

static struct cowsnap_item *last_of(struct cowsnap_item *item)
{
	while (item && item->next)
		item = item->next;
	return item;
}

static int parse_list_line(struct cowsnap_item *origin, const char *line)
{
	struct split s;
	int r = split(&s, line);

	if (r || !s.nr)
		r = r ? r : 0;
	else if (!strcmp(s.word[0], "store"))
		r = parse_store(origin, &s);
	else if (!strcmp(s.word[0], "snapshot"))
		r = parse_snapshot(last_of(origin->inside), &s);
	/* Other lines are those of a later module. */
	free(s.copy);
	return r;
}

int parse_list(struct cowsnap_item *origin, const char *text)
{
	char *copy = strdup(text), *save = NULL, *line;
	int r = copy ? 0 : PARSE_NO_MEMORY;

	for (line = copy ? strtok_r(copy, "\n", &save) : NULL; line && !r;
	     line = strtok_r(NULL, "\n", &save))
		r = parse_list_line(origin, line);
	free(copy);
	return r;
}

int parse_snapshot_status(struct cowsnap_item *snap, const char *text)
{
	struct split s;
	int r = split(&s, text);

	if (!r && s.nr < 2)
		r = item_set(snap, "state", s.nr && !strcmp(s.word[0], "Overflow") ?
			     "overflowed" : "invalid") ? PARSE_NO_MEMORY : 0;
	else if (!r)
		r = item_set(snap, "state", "live") ? PARSE_NO_MEMORY :
		    parse_room(snap->parent, s.word[0], s.word[1]);
	free(s.copy);
	return r;
}

int parse_merge_left(const char *text, uint64_t *sectors)
{
	uint64_t used, total, metadata;

	if (sscanf(text, "%" SCNu64 "/%" SCNu64 " %" SCNu64, &used, &total, &metadata) != 3 ||
	    used < metadata)
		return PARSE_BAD;
	*sectors = used - metadata;
	return 0;
}

/* ---- tables ---- */

static bool is_device_number(const char *word)
{
	unsigned int major, minor;
	int end = 0;

	return sscanf(word, "%u:%u%n", &major, &minor, &end) == 2 && !word[end] &&
	       strlen(word) < 16;
}

/* The word after @name among the features. */
static const char *feature(const struct split *s, int from, const char *name)
{
	int i;

	for (i = from; i + 1 < s->nr; i++)
		if (!strcmp(s->word[i], name))
			return s->word[i + 1];
	return NULL;
}

static int parse_origin_table(struct parsed_table *t, const struct split *s)
{
	const char *store = feature(s, 2, "store"), *discard = feature(s, 2, "discard");

	if (store && is_device_number(store))
		strcpy(t->store, store);
	if (discard)
		snprintf(t->discard, sizeof(t->discard), "%s", discard);
	return 0;
}

static int parse_snap_table(struct parsed_table *t, const struct split *s)
{
	const char *id = feature(s, 5, "id");

	if (s->nr < 4 || !is_device_number(s->word[1]) || !is_number(s->word[3]))
		return PARSE_BAD;
	strcpy(t->store, s->word[1]);
	t->kind = *s->word[2];
	t->chunk_sectors = strtoul(s->word[3], NULL, 10);
	t->id = id ? strtoul(id, NULL, 10) : 0;
	return t->kind == 'P' || t->kind == 'N' ? 0 : PARSE_BAD;
}

int parse_table(struct parsed_table *t, const char *target, const char *text)
{
	struct split s;
	int r = split(&s, text);

	memset(t, 0, sizeof(*t));
	if (!r && (!s.nr || !is_device_number(s.word[0])))
		r = PARSE_BAD;
	if (!r) {
		strcpy(t->below, s.word[0]);
		r = strstr(target, "-origin") ? parse_origin_table(t, &s) :
		    parse_snap_table(t, &s);
	}
	free(s.copy);
	return r;
}

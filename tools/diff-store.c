// SPDX-License-Identifier: GPL-2.0-only
/* The store that diff and send ask is opened, and asked. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "diff-store.h"
#include "loading.h"
#include "say.h"

#define SECTOR 512

/* A block that is read while it is written is wrong: how often it is read again, and when. */
#define READ_AGAIN	20
#define READ_AGAIN_US	10000

/* ---- names of snapshots ---- */

static const char *after_at(const char *word)
{
	const char *at = strrchr(word, '@');

	return at && at[1] && !at[1 + strspn(at + 1, "0123456789")] ? at + 1 : NULL;
}

/* ORIGIN@NUMBER, both of them, with the same origin? */
static bool same_origin(const char *where, const char *word)
{
	const char *first = after_at(where), *number = after_at(word);

	return first && number && first - where == number - word &&
	       !strncmp(where, word, number - word);
}

static const char *number_text(struct number *n, long id)
{
	snprintf(n->text, sizeof(n->text), "%ld", id);
	return n->text;
}

const char *snapshot_number(const char *word, struct number *n)
{
	const char *number = after_at(word);
	char store[32];
	long id;

	if (number)
		return number;
	id = live_number(word, store);
	return id < 0 ? NULL : number_text(n, id);
}

static const char *other_store(const char *where, const char *word)
{
	cannot_because(word, "this is no snapshot of the same store as %s", where);
	return NULL;
}

/* By the names of their devices, from which nobody sees where they belong. */
static const char *beside_in_use(const char *where, const char *word, struct number *n)
{
	char store[32];
	struct live l;
	bool same;
	long id = live_number(word, store);

	if (id < 0)
		return word;
	if (live_find(&l, where))
		return NULL;
	same = l.c && !strcmp(l.number, store);
	live_close(&l);
	return same ? number_text(n, id) : other_store(where, word);
}

const char *snapshot_beside(const char *where, const char *word, struct number *n)
{
	const char *number = after_at(word);

	if (!number)
		return !strcmp(word, "now") || !word[strspn(word, "0123456789")] ? word :
		       beside_in_use(where, word, n);
	return same_origin(where, word) ? number : other_store(where, word);
}

bool snapshot_elsewhere(const char *where, const char *word)
{
	char store[32];
	struct live a, b;
	bool is = false;

	if (same_origin(where, word) || live_number(where, store) < 0 ||
	    live_number(word, store) < 0)
		return false;
	if (live_find(&a, where) || !a.c)
		return false;
	if (!live_find(&b, word) && b.c) {
		is = !strcmp(a.origin, b.origin) && strcmp(a.number, b.number);
		live_close(&b);
	}
	live_close(&a);
	return is;
}

/* ---- a store in use ---- */

/*
 * A block was half written; or the superblock is older than a slot, which seems not to be; or a
 * zone was left or written to while it was walked through, so that records seem to be missing.
 */
static bool any_bad(const struct store *s)
{
	size_t i;
	u32 block;
	u64 nr;

	if (s->lost_records)
		return true;
	for (nr = 0; nr < s->nr_read; nr++)
		if (s->block[nr].marks & BLOCK_BAD)
			return true;
	for (i = 0; i < s->nr_records_chunks; i++)
		for (block = 0; block < s->geo.chunk_blocks; block++)
			if (s->records[i].marks[block] & BLOCK_BAD)
				return true;
	for (i = 0; i < s->nr_entries; i++)
		if (s->entry[i].marks & (ENTRY_BAD_EPOCH | ENTRY_BAD_CHUNK | ENTRY_BEYOND))
			return true;
	return false;
}

/* What is still wrong after some time is damaged, and the reader says so. */
static int load_again(struct diff_store *ds)
{
	int i;

	for (i = 0; i < READ_AGAIN; i++) {
		store_close(&ds->s);
		if (store_open(&ds->s, &ds->dev.io) == STORE_OK && !store_load(&ds->s) &&
		    !any_bad(&ds->s))
			return 0;
		usleep(READ_AGAIN_US);
	}
	store_close(&ds->s);
	return load_store(&ds->dev, &ds->s, ds->path);
}

static int open_live(struct diff_store *ds)
{
	int r;

	ds->path = ds->live.store;
	if (device_open_shared(&ds->dev, ds->path))
		return cannot(ds->path, ds->dev.error);
	ds->settled = live_commit(&ds->live);
	r = load_again(ds);
	if (r)
		device_close(&ds->dev);
	return r;
}

/* ---- opening ---- */

int diff_open(struct diff_store *ds, const char *word)
{
	int r;

	memset(ds, 0, sizeof(*ds));
	ds->path = word;
	r = live_find(&ds->live, word);
	if (r)
		return r;
	r = ds->live.c ? open_live(ds) : open_store(&ds->dev, &ds->s, word, false);
	if (r)
		live_close(&ds->live);
	return r;
}

void diff_close(struct diff_store *ds)
{
	close_store(&ds->dev, &ds->s);
	live_close(&ds->live);
}

/* ---- asking ---- */

static int find_sides(struct diff_store *ds, struct diff *d, const char *a, const char *b)
{
	if (diff_side(d, &ds->s, b, &d->b) || (a && diff_side(d, &ds->s, a, &d->a)))
		return -1;
	if (d->b.now && ds->live.c)
		d->b.sectors = ds->live.origin_bytes / SECTOR;
	if (d->a.now && ds->live.c)
		d->a.sectors = ds->live.origin_bytes / SECTOR;
	return 0;
}

/* Read once more, with the same two snapshots. */
static int collect_again(struct diff_store *ds, struct diff *d, const char *a, const char *b,
			 struct chunk_list *list)
{
	struct diff_side was_a = d->a, was_b = d->b;

	if (load_again(ds))
		return diff_fail(d, "it cannot be read any more");
	if (find_sides(ds, d, a, b))
		return -1;
	if (was_a.epoch != d->a.epoch || was_b.epoch != d->b.epoch)
		return diff_fail(d, "its snapshots were replaced meanwhile");
	return diff_collect(d, &ds->s, list);
}

/* What differs may move while the tables are read: see diff-live.h. */
static int collect_moved(struct diff_store *ds, struct diff *d, const char *a, const char *b,
			 struct chunk_list *list)
{
	return collect_again(ds, d, a, b, list) ||
	       (ds->live.unsettled && collect_again(ds, d, a, b, list)) ? -1 : 0;
}

static int whole_image(struct diff *d)
{
	return extents_add(&d->changed, 0, d->b.sectors * SECTOR) ?
	       diff_fail(d, "out of memory") : 0;
}

static int ask(struct diff_store *ds, struct diff *d, const char *a, const char *b,
	       struct chunk_list *list)
{
	if (find_sides(ds, d, a, b))
		return -1;
	if (a && diff_collect(d, &ds->s, list))
		return -1;
	if (a && ds->live.c && collect_moved(ds, d, a, b, list))
		return -1;
	if (ds->live.c && (live_check(&ds->live, d, &d->b) ||
			   (a && live_check(&ds->live, d, &d->a))))
		return -1;
	return a ? diff_finish(d, list) : whole_image(d);
}

int diff_make(struct diff_store *ds, struct diff *d, const char *a, const char *b)
{
	struct chunk_list list = { 0 };
	int r;

	memset(d, 0, sizeof(*d));
	d->settled = ds->settled;
	r = ask(ds, d, a, b, &list);
	chunk_list_free(&list);
	return r ? cannot(ds->path, d->error) : 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/* seal and unseal, on an origin and a store that are not in use. */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pair.h"
#include "seal.h"
#include "seal-command.h"
#include "tab.h"

const struct option_text seal_options[] = {
	{ "file", 0, "FILE", "another file than /etc/cowsnaptab, which must not name it by UUID" },
	{ "dry-run", 'n', NULL, "say what would be done, write nothing" },
	{ NULL },
};

const struct option_text unseal_options[] = {
	{ "keep-home", 0, NULL, "the origin was written without its store: what is there counts" },
	{ "keep-store", 0, NULL, "what the store has of its first sectors counts" },
	{ "without-store", 0, NULL, "the store is lost: zeroes in the place of the seal" },
	{ "dry-run", 'n', NULL, "say what would be done, write nothing" },
	{ NULL },
};

static const char *uuid_text(const u8 *uuid, char *text)
{
	size_t i;

	for (i = 0; i < 16; i++)
		sprintf(text + 2 * i, "%02x", uuid[i]);
	return text;
}

/* ---- seal ---- */

/* At the boot it would not be found, and its snapshots would be given up. */
static int look_at_tab(const struct words *w)
{
	const char *file = option_value(w, "file") ? option_value(w, "file") : TAB_FILE;
	const struct tab_line *l;
	struct tab tab;
	int status = tab_read(&tab, file);

	for (l = tab.line; !status && l < tab.line + tab.nr_lines; l++)
		if (tab_stands_on(l->device, w->word[0]))
			status = cannot_because(w->word[0], "line %u of %s calls it %s, which stands in "
						"what a seal takes away; name it by PARTUUID= or its "
						"path in /dev/disk/by-id there", l->number, file,
						l->device);
	tab_free(&tab);
	return status;
}

/*
 * A line may still have to tell the store that its device was used without it. What is sealed is
 * believed to have been sealed by then.
 */
static int look_at_loss(const struct words *w, const struct pair *p)
{
	const char *file = option_value(w, "file") ? option_value(w, "file") : TAB_FILE;
	const struct tab_line *l;
	char uuid[33];
	struct tab tab;
	int status = tab_read(&tab, file);

	uuid_text(p->s.super.uuid, uuid);
	for (l = tab.line; !status && l < tab.line + tab.nr_lines; l++)
		if (!strcmp(l->store_uuid, uuid) && tab_lost(l) && tab_told(l->name) != tab_lost(l))
			status = cannot_because(p->origin_path, "not sealed: line %u of %s says that it "
						"was used without its snapshots, which %s has to be told "
						"first: cowsnap tab start %s", l->number, file,
						p->store_path, l->name);
	tab_free(&tab);
	return status;
}

static int look_before(const struct words *w, struct pair *p)
{
	const char *why;

	if (pair_is_damaged(p))
		return cannot(p->store_path, "it is damaged; cowsnap check says how");
	why = seal_hinders(&p->s, &p->origin.io);
	return why ? cannot_because(p->origin_path, "not sealed with %s: %s", p->store_path, why) :
	       look_at_loss(w, p);
}

static void say_what_is_lost(const struct pair *p)
{
	printf("%s: its first %" PRIu64 " KiB are in %s from now on; should that be lost, so are "
	       "they, and they alone\n", p->origin_path,
	       (uint64_t)cowsnap_seal_sectors(&p->s.geo) / 2, p->store_path);
}

static int seal(const struct words *w, struct pair *p)
{
	const char *why;
	int status = look_before(w, p);

	if (status)
		return status;
	say_what_is_lost(p);
	fflush(stdout);
	if (!p->write)
		return EXIT_CLEAN;
	if (seal_on(&p->s, &p->origin.io, time(NULL), &why))
		return cannot_because(p->origin_path, "not sealed with %s: %s", p->store_path, why);
	printf("%s: sealed\n", p->origin_path);
	return EXIT_CLEAN;
}

int command_seal(const struct words *w)
{
	struct pair p = { .origin_path = w->word[0], .store_path = w->word[1],
			  .write = !option_given(w, "dry-run") };
	int status = look_at_tab(w);

	if (!status)
		status = pair_open(&p);
	if (status)
		return status;
	status = seal(w, &p);
	pair_close(&p);
	return status;
}

/* ---- unseal ---- */

/* With another store's seal, or another generation's, these two do not belong together. */
static int refuse_other(struct pair *p, enum seal_keep keep)
{
	struct cowsnap_seal other;
	char uuid[33];

	if (seal_find(&p->origin.io, &other) <= 0)
		return 0;
	if (memcmp(other.uuid, p->s.super.uuid, sizeof(other.uuid)))
		return cannot_because(p->origin_path, "it is sealed by the store %s, not by %s",
				      uuid_text(other.uuid, uuid), p->store_path);
	if (other.generation != p->s.super.seal_generation && keep != SEAL_KEEP_STORE)
		return cannot_because(p->origin_path, "it has seal %u, %s has seal %u, so that one "
				      "of them is an old copy; --keep-store takes what the store has "
				      "of its first sectors", le32toh(other.generation), p->store_path,
				      le32toh(p->s.super.seal_generation));
	return 0;
}

static int look_before_opening(struct pair *p, enum seal_keep keep)
{
	struct seal_look l;
	const char *why;

	if (pair_is_odd(p))
		return cannot(p->store_path, "it is damaged; cowsnap check says how");
	if (!cowsnap_is_sealed(&p->s.super))
		return cannot_because(p->store_path, "it has no sealed origin");
	if (current_is_there(&p->s) || current_is_lost(&p->s))
		return cannot_because(p->store_path, "it has data of the origin (redirect); cowsnap settle "
				      "brings that home first");
	if (p->origin.io.bytes / 512 < le64toh(p->s.super.origin_sectors))
		return cannot_because(p->origin_path, "%s was made for a longer origin",
				      p->store_path);
	if (refuse_other(p, keep))
		return EXIT_CANNOT;
	if (seal_look(&p->s, &p->origin.io, &l))
		return cannot(p->store_path, "what it has of the origin cannot be read");
	why = seal_hinders_opening(&p->s, &l, keep);
	return why ? cannot_because(p->origin_path, "not opened with %s: %s", p->store_path, why) :
	       0;
}

static int unseal(struct pair *p, enum seal_keep keep)
{
	unsigned int nr = 0;
	const char *why;
	int status = look_before_opening(p, keep);

	if (status)
		return status;
	if (!p->write) {
		printf("%s: would be opened\n", p->origin_path);
		return EXIT_CLEAN;
	}
	if (seal_off(&p->s, &p->origin.io, keep, &nr, &why))
		return cannot_because(p->origin_path, "not opened: %s", why);
	if (nr)
		printf("%s: %u snapshots become invalid\n", p->store_path, nr);
	printf("%s: open\n", p->origin_path);
	return nr ? EXIT_DAMAGE : EXIT_CLEAN;
}

static int take_away(const char *path, struct device *dev, bool write)
{
	struct cowsnap_seal seal;
	char uuid[33];

	if (seal_find(&dev->io, &seal) <= 0)
		return cannot(path, "it has no seal");
	printf("%s: sealed by the store %s; without it the first %u KiB are lost, and what was "
	       "redirected to it\n", path,
	       uuid_text(seal.uuid, uuid), le32toh(seal.sectors) / 2);
	fflush(stdout);
	if (!write)
		return EXIT_CLEAN;
	if (seal_take_away(&dev->io) < 0)
		return cannot(path, "it cannot be read, or written");
	printf("%s: open, with zeroes there\n", path);
	return EXIT_DAMAGE;
}

static int without_store(const struct words *w)
{
	bool write = !option_given(w, "dry-run");
	struct device dev;
	int status;

	if (w->nr_words != 1)
		return cannot("--without-store", "leave out the store");
	if (device_open(&dev, w->word[0], write))
		return cannot(w->word[0], dev.error);
	status = take_away(w->word[0], &dev, write);
	device_close(&dev);
	return status;
}

int command_unseal(const struct words *w)
{
	bool home = option_given(w, "keep-home"), store = option_given(w, "keep-store");
	struct pair p = { .origin_path = w->word[0], .write = !option_given(w, "dry-run") };
	int status;

	if (home + store + option_given(w, "without-store") > 1)
		return cannot("unseal", "--keep-home, --keep-store and --without-store: one of them");
	if (option_given(w, "without-store"))
		return without_store(w);
	if (w->nr_words != 2)
		return cannot("unseal", "the store is missing; --without-store if it is lost");
	p.store_path = w->word[1];
	status = pair_open(&p);
	if (status)
		return status;
	status = unseal(&p, home ? SEAL_KEEP_HOME : store ? SEAL_KEEP_STORE : SEAL_KEEP_NONE);
	pair_close(&p);
	return status;
}

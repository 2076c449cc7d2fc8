// SPDX-License-Identifier: GPL-2.0-only
/* check, dump, restore and repair: the maintenance of a store that is not in use. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "command.h"
#include "device.h"
#include "dump.h"
#include "maintain.h"
#include "repair.h"
#include "restore.h"

struct options {
	bool quiet, verbose, no_data, json, force, dry, invalidate, lose_redirected;
	const char *input, *data_from, *store;
};

/* ---- lines ---- */

static const char *line_name;

static void line_to_stdout(struct report *r, const char *text)
{
	(void)r;
	printf("%s: %s\n", line_name, text);
}

static void line_to_stderr(struct report *r, const char *text)
{
	(void)r;
	fprintf(stderr, "%s: %s\n", line_name, text);
}

static void line_to_nobody(struct report *r, const char *text)
{
	(void)r;
	(void)text;
}

/* Lines are about it from now on. */
static int open_named(struct device *dev, struct store *s, const char *path, bool write)
{
	line_name = path;
	return open_store(dev, s, path, write);
}

/* ---- check ---- */

static void say_snapshots(const struct store *s)
{
	const struct record *r;
	size_t i;

	for (i = 0; i < s->nr_records; i++) {
		r = &s->record[i];
		printf("%s: snapshot %u: %s, epoch %" PRIu64 ", %" PRIu64 " sectors\n",
		       line_name, r->id, record_state_name(r->state), r->epoch, r->sectors);
	}
}

static void say_totals(const struct store *s, unsigned long problems)
{
	struct totals t;

	count_totals(s, &t);
	if (t.unsure && t.doubted)
		printf("%s: a commit had not ended; %zu slots of it do not count if the origin "
		       "still has their data, which the kernel looks at\n", line_name, t.doubted);
	else if (t.unsure && !t.void_current)
		printf("%s: the last commit is not known to have ended; all of it is there\n",
		       line_name);
	if (t.void_current)
		printf("%s: a record had not ended; %zu chunks that were redirected by it do not count\n",
		       line_name, t.void_current);
	if (s->copy[0].state == COPY_OLD || s->copy[1].state == COPY_OLD)
		printf("%s: one superblock is older, the newer one counts\n", line_name);
	if (cowsnap_is_sealed(&s->super) && !s->bad_seal)
		printf("%s: its origin is sealed: the first %u KiB of it are in here%s\n", line_name,
		       cowsnap_seal_sectors(&s->geo) / 2,
		       s->super.seal_state == COWSNAP_SEAL_SEALED ? "" : ", and on their way");
	if (t.current)
		printf("%s: %zu chunks of its origin are in here alone (redirect); cowsnap settle brings "
		       "them home\n", line_name, t.current);
	if (!problems)
		printf("%s: clean, %zu snapshots, %zu chunks for them, %zu to be reused\n",
		       line_name, t.live, t.exceptions, t.dead);
	else
		printf("%s: %lu problems\n", line_name, problems);
}

static int run_check(const struct options *o)
{
	struct report r = { .line = o->quiet ? line_to_nobody : line_to_stdout };
	struct device dev;
	struct store s;
	int status = open_named(&dev, &s, o->store, false);

	if (status)
		return status;
	if (!o->no_data && exceptions_verify(&s)) {
		close_store(&dev, &s);
		return cannot(o->store, "out of memory");
	}
	if (o->verbose)
		say_snapshots(&s);
	check_store(&s, &r);
	if (!o->quiet)
		say_totals(&s, r.lines);
	close_store(&dev, &s);
	return r.lines ? EXIT_DAMAGE : EXIT_CLEAN;
}

/* ---- dump ---- */

static int run_dump(const struct options *o)
{
	struct report r = { .line = line_to_stderr };
	struct device dev;
	struct store s;
	int status = open_named(&dev, &s, o->store, false);

	if (status)
		return status;
	check_store(&s, &r);
	if (dump_store(&s, stdout, o->json))
		status = cannot("the dump", "it cannot be written");
	else if (r.lines)
		status = EXIT_DAMAGE;
	if (status == EXIT_DAMAGE)
		fprintf(stderr, "%s: damaged: only what is valid was dumped\n", o->store);
	close_store(&dev, &s);
	return status;
}

/* ---- restore ---- */

/*
 * The dump says that the first sectors of the origin are in the store, and @dev is to have them.
 * Where it was unsealed since other data may be there.
 */
static int look_at_sealed(const struct dump *d, struct device *dev, const char *path)
{
	const struct cowsnap_super *super = &d->s.super;
	enum store_kind kind;
	struct store old;
	bool has;

	if (super->seal_state == COWSNAP_SEAL_OPEN)
		return 0;
	kind = store_open(&old, &dev->io);
	has = cowsnap_is_sealed(&old.super) && old.super.seal_start == super->seal_start &&
	      old.super.seal_generation == super->seal_generation;
	store_close(&old);
	if (kind == STORE_OK || kind == STORE_SHORT)
		return has ? 0 : cannot(path, "it does not have the first sectors of the sealed origin "
					"that the dump speaks of: it was unsealed since; make a new dump");
	fprintf(stderr, "%s: its superblocks cannot be read, and with them whether it still has the "
		"first sectors of its sealed origin; look at the origin before it is written\n", path);
	return 0;
}

/* Of a store whose superblocks are lost the dump may not say that it redirects by now. */
static bool device_has_current(const struct dump *d, struct device *dev, enum restore_age age)
{
	struct store s;
	bool has = store_open(&s, &dev->io) == STORE_OK ? may_have_current(&s) :
		   d->s.super.seal_state != COWSNAP_SEAL_OPEN;

	store_close(&s);
	return age != RESTORE_NOTHING && has;
}

/* Data of the origin that an old dump has, or lacks, is no data of the origin any more. */
static int refuse_redirected(const struct dump *d, const struct options *o, bool has)
{
	if (o->force || !(has || dump_has_current(d)))
		return 0;
	if (d->lost_redirected)
		return cannot(o->input, "it was made of a damaged store, and may lack data of the origin; "
			      "-f restores it all the same");
	if (!d->outdated)
		return 0;
	return cannot(o->store, "the dump does not know which data of its origin is in there now "
		      "(redirect): it is older, or cut off; -f restores it all the same");
}

/* May it be overwritten? */
static int look_at_target(const struct dump *d, struct device *dev, const struct options *o,
			  enum restore_age age)
{
	enum store_kind kind;
	struct store old;
	char content[32];
	bool other_seal;

	kind = store_open(&old, &dev->io);
	other_seal = kind == STORE_OK && cowsnap_is_sealed(&old.super) &&
		     (old.super.seal_start != d->s.super.seal_start ||
		      old.super.seal_generation != d->s.super.seal_generation);
	store_close(&old);
	if (other_seal && !o->force)
		return cannot(o->store, "it has the first sectors of a sealed origin, of which the dump "
			      "does not know; cowsnap unseal brings them back; -f overwrites them");
	if (o->force || kind == STORE_NEW || kind == STORE_DAMAGED)
		return 0;
	if (kind == STORE_OK || kind == STORE_SHORT)
		return age != RESTORE_NOTHING ? 0 :
		       cannot(o->store, "another store is there; -f overwrites it");
	/* The store itself, without its head; unless somebody has put something else there. */
	if ((kind == STORE_FOREIGN || kind == STORE_UNREADABLE) && age != RESTORE_NOTHING &&
	    !device_content(dev, content, sizeof(content)))
		return 0;
	return say_kind(dev, o->store, kind);
}

/* What was written since the dump was made is not in it, nor what was cut off. */
static int look_at_age(struct dump *d, struct io *io, const struct options *o,
		       enum restore_age *age, u64 *epoch)
{
	if (restore_look(d, io, age, epoch))
		return cannot(o->store, "out of memory");
	d->outdated |= (*age == RESTORE_NEWER || !d->seen_end) && !o->force;
	return 0;
}

static int restore_to(struct dump *d, const struct options *o, struct device *from)
{
	struct report r = { .line = line_to_stderr };
	enum restore_age age, age_from;
	u64 epoch, epoch_from = 0;
	struct device dev;
	int status;

	if (device_open(&dev, o->store, true))
		return cannot(o->store, dev.error);
	line_name = o->store;
	status = look_at_age(d, &dev.io, o, &age, &epoch);
	if (!status)
		status = look_at_target(d, &dev, o, age);
	if (!status && from)
		status = look_at_age(d, &from->io, o, &age_from, &epoch_from);
	if (!status)
		status = refuse_redirected(d, o, device_has_current(d, &dev, age) ||
					   (from && device_has_current(d, from, age_from)));
	d->in_place = age != RESTORE_NOTHING;
	if (!status && (from || d->in_place))
		status = look_at_sealed(d, from ? from : &dev, from ? o->data_from : o->store);
	d->go_on = restore_go_on(d, age, epoch > epoch_from ? epoch : epoch_from);
	if (!status && restore_store(d, &dev.io, from ? &from->io : NULL, &r))
		status = cannot(o->store, d->error);
	device_close(&dev);
	if (!status && r.lines)
		status = EXIT_DAMAGE;
	return status;
}

static int restore_with_data(struct dump *d, const struct options *o)
{
	struct device from;
	int status;

	if (!o->data_from)
		return restore_to(d, o, NULL);
	if (device_open(&from, o->data_from, false))
		return cannot(o->data_from, from.error);
	status = restore_to(d, o, &from);
	device_close(&from);
	return status;
}

static int run_restore(const struct options *o)
{
	struct dump d;
	int status;

	if (!o->input)
		return cannot("restore", "-i DUMP is missing");
	if (dump_read(&d, o->input))
		status = cannot(o->input, d.error);
	else
		status = restore_with_data(&d, o);
	dump_free(&d);
	return status;
}

/* ---- repair ---- */

static int repair_status(const struct options *o, enum repair_result result)
{
	switch (result) {
	case REPAIR_NOTHING:
		printf("%s: clean, nothing to do\n", o->store);
		return EXIT_CLEAN;
	case REPAIR_DONE:
		printf("%s: %s\n", o->store, o->dry ? "not done, only said" : "repaired");
		return EXIT_DAMAGE;
	case REPAIR_LEFT:
		return cannot(o->store, "damaged data is left");
	case REPAIR_FAILED:
		break;
	}
	return cannot(o->store, "not repaired: it cannot be written, or not by this version, or not "
				"without being told");
}

static int run_repair(const struct options *o)
{
	struct repair_options repair = { .dry = o->dry, .invalidate = o->invalidate,
					 .lose_redirected = o->lose_redirected };
	struct report r = { .line = line_to_stdout };
	struct device dev;
	struct store s;
	int status = open_named(&dev, &s, o->store, !o->dry);

	if (status)
		return status;
	if (exceptions_verify(&s))
		status = cannot(o->store, "out of memory");
	else
		status = repair_status(o, repair_store(&s, &repair, &r));
	close_store(&dev, &s);
	return status;
}

/* ---- the command line ---- */

const struct option_text check_options[] = {
	{ "quiet", 'q', NULL, "print nothing, only set the exit status" },
	{ "verbose", 'v', NULL, "list the snapshots too" },
	{ "no-data", 0, NULL, "verify only the metadata, do not read the data" },
	{ NULL },
};

const struct option_text dump_options[] = {
	{ "json", 0, NULL, "print JSON instead of text" },
	{ NULL },
};

const struct option_text restore_options[] = {
	{ "input", 'i', "DUMP", "the dump, text or JSON; - for standard input" },
	{ "data-from", 0, "D", "copy the data chunks from device D" },
	{ "force", 'f', NULL, "overwrite other contents, or a newer store, on the device" },
	{ NULL },
};

const struct option_text repair_options[] = {
	{ "dry-run", 'n', NULL, "print what would be repaired, write nothing" },
	{ "invalidate", 0, NULL, "also invalidate snapshots whose data is damaged" },
	{ "lose-redirected", 0, NULL, "go on even if data of the origin is lost with that" },
	{ NULL },
};

static struct options options_of(const struct words *w)
{
	return (struct options){
		.quiet = option_given(w, "quiet"),
		.verbose = option_given(w, "verbose"),
		.no_data = option_given(w, "no-data"),
		.json = option_given(w, "json"),
		.force = option_given(w, "force"),
		.dry = option_given(w, "dry-run"),
		.invalidate = option_given(w, "invalidate"),
		.lose_redirected = option_given(w, "lose-redirected"),
		.input = option_value(w, "input"),
		.data_from = option_value(w, "data-from"),
		.store = w->word[0],
	};
}

int command_check(const struct words *w)
{
	struct options o = options_of(w);

	return run_check(&o);
}

int command_dump(const struct words *w)
{
	struct options o = options_of(w);

	return run_dump(&o);
}

int command_restore(const struct words *w)
{
	struct options o = options_of(w);

	return run_restore(&o);
}

int command_repair(const struct words *w)
{
	struct options o = options_of(w);

	return run_repair(&o);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lines of /etc/cowsnaptab are started.
 *
 * What cannot be started is given up if its line says "nofail", or the kernel's command line
 * cowsnap=drop: then the device is used as it is, and the snapshots, which nobody keeps any
 * more, are marked invalid in the store; or, where the store is lost, later, when it is back.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "blank.h"
#include "command.h"
#include "create.h"
#include "lib/handle.h"
#include "lib/map.h"
#include "lib/sys.h"
#include "rollback.h"
#include "room.h"
#include "session.h"
#include "tab.h"

static const struct command plain = { .name = "tab" };
static const struct command create = { .name = "create", .options = create_options, .least = 2,
				       .most = 2, .run = command_create_hidden };
static const struct command rollback = { .name = "rollback", .options = rollback_options,
					 .least = 1, .most = 1, .run = command_rollback };

/* What one line is about. */
struct start {
	const struct tab_start *s;
	const struct tab_line *l;
	struct cowsnap *c;
	char device[16], store[16];	/* major:minor; "": not found */
	char device_path[300], store_path[300];
	struct room room;		/* what the store is */
	uint64_t lost;			/* when the snapshots missed writes; 0 */
};

static int run(const struct command *command, char **words)
{
	int n = 0;

	while (words[n])
		n++;
	return command_run(command, n, words);
}

/* ---- the module ---- */

/* The first line of what a program says; 0 if it ends well. */
static int first_line(const char *program, char *text, size_t len)
{
	FILE *out = popen(program, "re");
	char rest[256];

	text[0] = '\0';
	if (!out)
		return -1;
	if (fgets(text, len, out))
		text[strcspn(text, "\n")] = '\0';
	while (fgets(rest, sizeof(rest), out))
		;
	return pclose(out);
}

static int need_module(void)
{
	char text[300];

	if (!access("/sys/module/dm_cowsnap", F_OK) ||
	    !first_line("modprobe dm-cowsnap 2>&1", text, sizeof(text)))
		return 0;
	if (strstr(text, "not found"))
		return cannot("dm-cowsnap", "the module is not there for this kernel; dkms "
			      "autoinstall builds it");
	if (strstr(text, "Key was rejected") || strstr(text, "Required key"))
		return cannot("dm-cowsnap", "this kernel takes signed modules only; enrol the key of "
			      "DKMS with mokutil --import /var/lib/dkms/mok.pub");
	if (strstr(text, "Exec format") || strstr(text, "Invalid module format"))
		return cannot("dm-cowsnap", "the module was built for another kernel; dkms "
			      "autoinstall --force builds it for this one");
	return cannot_because("dm-cowsnap", "the module cannot be loaded: %s", text);
}

/* ---- devices ---- */

static int find_device(struct start *k, const char *spec, const char *what, char *number,
		       size_t len, char *path, size_t path_len)
{
	char why[700];

	if (!tab_resolve(k->c, spec, k->s->wait, number, len, why, sizeof(why))) {
		number[0] = '\0';
		return cannot_because(k->l->name, "%s %s: %s", what, spec, why);
	}
	sys_path(number, path, path_len);
	return 0;
}

static int look_at_store(struct start *k)
{
	const struct tab_line *l = k->l;
	int status = room_look(&k->room, k->store_path);

	if (status)
		return status;
	if (k->room.state == ROOM_EMPTY || k->room.state == ROOM_UNFINISHED)
		return cannot_because(l->name, "store %s is empty, so that its snapshots are lost; "
				      "cowsnap disable -f %s and cowsnap enable begin anew",
				      k->store_path, l->name);
	if (k->room.state == ROOM_OTHER)
		return cannot_because(l->name, "store %s is none: %s; correct the line", k->store_path,
				      k->room.content);
	if (l->store_uuid[0] && strcmp(l->store_uuid, k->room.uuid))
		return cannot_because(l->name, "store %s is another one, with uuid %s; correct the "
				      "line", k->store_path, k->room.uuid);
	if (k->room.origin_sectors > sys_sectors(k->device))
		return cannot_because(l->name, "store %s is of a longer device than %s; correct the "
				      "line", k->store_path, k->device_path);
	return 0;
}

/* Something has it already, as it is: what the store keeps is outdated from then on. */
static bool is_taken(const struct start *k)
{
	char use[300];

	return k->device[0] && use_of(k->device_path, k->device, use, sizeof(use));
}

/* What nobody could tell them they have missed they would show as if it were theirs. */
static int look_at_snapshots(const struct start *k)
{
	if (k->room.has_snapshots && is_taken(k))
		return cannot_because(k->l->name, "%s is in use already, as it is; umount it, and "
				      "start it then", k->device_path);
	if (sys_read_only(k->store))
		return cannot_because(k->l->name, "store %s is read-only, so that what its snapshots "
				      "miss could not be noted", k->store_path);
	return 0;
}

/* ---- starting ---- */

/* The origin, if it is active. */
static const struct cowsnap_item *active(struct cowsnap *c, const char *name)
{
	const struct cowsnap_item *o = c ? cowsnap_find(c, name) : NULL;

	return o && cowsnap_kind(o) == COWSNAP_ORIGIN && cowsnap_get(o, "device") ? o : NULL;
}

static int open_origin(const struct start *k)
{
	const struct tab_line *l = k->l;
	char *words[] = { "create", "--existing", "--name", (char *)l->name, (char *)k->device_path,
			  (char *)k->store_path, l->discard[0] ? "--discard" : NULL,
			  (char *)l->discard, NULL };

	return run(&create, words);
}

/*
 * Then nobody could use it as it is, and writes that went past the store are noticed; but for those
 * that went past one that had died.
 */
static bool was_sealed(const struct start *k)
{
	return !k->l->died && k->room.sealed_since && k->room.sealed_since <= k->lost;
}

static int start_line(struct start *k)
{
	const struct tab_line *l = k->l;
	unsigned int nr;
	int status = find_device(k, l->device, "device", k->device, sizeof(k->device),
				 k->device_path, sizeof(k->device_path));

	if (!status)
		status = find_device(k, l->store, "store", k->store, sizeof(k->store), k->store_path,
				     sizeof(k->store_path));
	if (!status)
		status = need_module();
	if (!status)
		status = look_at_store(k);
	if (!status)
		status = look_at_snapshots(k);
	if (!status && k->lost && !was_sealed(k))
		status = blank_give_up(k->store_path, k->lost, &nr);
	if (!status)
		status = open_origin(k);
	if (!status)
		tab_note_told(l->name, tab_lost(l));
	return status;
}

/* ---- what comes after ---- */

static int roll_back(const char *snapshot)
{
	char *words[] = { "rollback", "--background", "--force", "--quiet", (char *)snapshot, NULL };

	return run(&rollback, words);
}

/* A rollback that the machine's end has interrupted: nobody must see the half of it. */
static int go_on_merging(const struct cowsnap_item *o)
{
	const struct cowsnap_item *store, *s;
	const char *state;
	char name[200];

	for (store = cowsnap_inside(o); store; store = cowsnap_next(store))
		for (s = cowsnap_inside(store); s; s = cowsnap_next(s)) {
			state = cowsnap_get(s, "state");
			snprintf(name, sizeof(name), "%s", cowsnap_get(s, "name"));
			if (!strcmp(state, "merging") || !strcmp(state, "merged"))
				return roll_back(name);
		}
	return 0;
}

/* go_on_merging() has done what there was to do with one that is merging. */
static bool has_content(const struct cowsnap_item *s)
{
	const char *state = cowsnap_get(s, "state");

	return !strcmp(state, "live") || !strncmp(state, "merg", 4);
}

/* One that could not begin has changed nothing: it costs nobody the boot, as no snapshot does. */
static int try_to_roll_back(struct cowsnap *c, const struct tab_line *l, const char *snapshot)
{
	const struct cowsnap_item *o;
	int status = roll_back(snapshot);

	if (!status || cowsnap_scan(c))
		return status;
	o = active(c, l->name);
	if (!o || strcmp(cowsnap_get(o, "state"), "active"))
		return status;
	fprintf(stderr, "cowsnap: %s: not rolled back, %s is as it was: remove cowsnap.rollback from "
		"the kernel's command line\n", snapshot, l->name);
	return 0;
}

static int obey_rollback(struct cowsnap *c, const struct tab_line *l)
{
	const struct cowsnap_item *s;
	size_t n = strlen(l->name);
	char snapshot[200];

	if (!sys_kernel_word("cowsnap.rollback", snapshot, sizeof(snapshot)) ||
	    strncmp(snapshot, l->name, n) || snapshot[n] != '@')
		return 0;
	s = cowsnap_find(c, snapshot);
	if (s && has_content(s))
		return try_to_roll_back(c, l, snapshot);
	fprintf(stderr, "cowsnap: %s: %s: remove cowsnap.rollback from the kernel's command line\n",
		snapshot, s ? "nothing of it is left to go back to" :
		"there is no such snapshot (any more)");
	return 0;
}

/* One that is not there costs nobody the origin. */
static void activate_snapshots(struct cowsnap *c, const struct tab_line *l)
{
	char name[200];
	unsigned int i;

	for (i = 0; i < l->nr_snapshots; i++) {
		snprintf(name, sizeof(name), "%s@%u", l->name, l->snapshot[i]);
		if (cowsnap_activate(c, name, 0))
			say_error(c);
	}
}

/*
 * It was made without links to what is in it, so that nobody mounts it before its rollback: udev
 * remembers that until it gets a table.
 */
static bool is_hidden(const struct cowsnap_item *o)
{
	char path[64], line[256];
	bool hidden = false;
	FILE *in;

	snprintf(path, sizeof(path), "/run/udev/data/b%s", cowsnap_get(o, "number"));
	in = fopen(path, "re");
	while (in && !hidden && fgets(line, sizeof(line), in))
		hidden = !strcmp(line, "E:DM_UDEV_DISABLE_DISK_RULES_FLAG=1\n");
	if (in)
		fclose(in);
	return hidden;
}

/* Its own table, in one step: it is never left suspended. A rollback has shown it already. */
static int show(struct cowsnap *c, const char *name, bool just_started)
{
	const struct cowsnap_item *o;
	struct map m;
	int r;

	if (cowsnap_scan(c))
		return say_error(c);
	o = active(c, name);
	if (!o || !strncmp(cowsnap_get(o, "state"), "merg", 4) || !(just_started || is_hidden(o)))
		return 0;
	r = map_read_table(c, name, &m);
	if (r)
		return say_error(c);
	r = map_reload(c, name, &m);
	map_free(&m);
	return r ? say_error(c) : 0;
}

/* A rollback is for the boot, never for an origin that is in use already. */
static int complete(const struct tab_line *l, bool just_started)
{
	const struct words w = { .command = &plain };
	struct cowsnap *c = session_open(&w);
	const struct cowsnap_item *o;
	int status = 0;

	o = active(c, l->name);
	if (o)
		status = go_on_merging(o);
	if (o && !status && just_started)
		status = obey_rollback(c, l);
	if (o && !status)
		status = show(c, l->name, just_started);
	if (o && !status && !cowsnap_scan(c))
		activate_snapshots(c, l);
	cowsnap_close(c);
	return status;
}

/* ---- giving up ---- */

void tab_tell_udev(const char *number)
{
	char path[64];
	FILE *out;

	snprintf(path, sizeof(path), "/sys/dev/block/%s/uevent", number);
	out = fopen(path, "we");
	if (!out)
		return;
	fputs("change\n", out);
	fclose(out);
}

/*
 * By no clock: what is in the store now was made before. Whatever keeps it from being told, the
 * note remembers; but who is half rolled back stays away.
 */
static int mark_store(struct start *k, struct tab_note *n, unsigned int *nr)
{
	struct room room;
	char why[700];
	int status;

	*nr = 0;
	if (!k->store[0] && !tab_resolve(k->c, k->l->store, 0, k->store, sizeof(k->store), why,
					 sizeof(why)))
		return 0;
	sys_path(k->store, k->store_path, sizeof(k->store_path));
	if (room_look(&room, k->store_path) ||
	    (room.state != ROOM_STORE && room.state != ROOM_BEGUN) ||
	    (k->l->store_uuid[0] && strcmp(k->l->store_uuid, room.uuid)))
		return 0;
	/* Nobody can use it as it is: its snapshots miss nothing. */
	if (room.sealed_since)
		return cannot_because(k->l->name, "store %s has the first sectors of its device, which "
				      "is sealed, so that it is of no use without the store; name the "
				      "device by PARTUUID= or its path in /dev/disk/by-id, or run %s",
				      k->store_path, room.way_home);
	/* One that has never been used has nothing to be told. */
	n->marked = room.state == ROOM_BEGUN;
	if (n->marked)
		return 0;
	status = blank_give_up(k->store_path, UINT64_MAX, nr);
	n->marked = !status;
	return status == BLANK_MERGING ? EXIT_CANNOT : 0;
}

/* Its store need not be there to say so. Nothing is noted: udev would give it its links back. */
static int refuse_sealed(const struct start *k, const char *why)
{
	char path[300], uuid[33];

	if (!k->device[0] || !room_sealed_by(sys_path(k->device, path, sizeof(path)), uuid))
		return 0;
	return cannot_because(k->l->name, "not used, and nothing is changed, since %s is sealed and of "
			      "no use without its store, which has uuid %s; because: %s", path, uuid,
			      why);
}

static int give_up(struct start *k, const char *why)
{
	struct tab_note n = { .time = time(NULL) };
	size_t name = strlen(k->l->name);
	unsigned int nr;
	char text[700];

	/* The name is said anyway. */
	if (!strncmp(why, k->l->name, name) && !strncmp(why + name, ": ", 2))
		why += name + 2;
	snprintf(n.why, sizeof(n.why), "%s", why);
	if (refuse_sealed(k, why) || mark_store(k, &n, &nr) || tab_note_write(k->l->name, &n))
		return EXIT_CANNOT;
	tab_note_told(k->l->name, n.marked ? tab_lost(k->l) : 0);
	tab_tell_udev_of(k->c, k->l->device);
	if (n.marked)
		snprintf(text, sizeof(text), "%s: used without its snapshots, of which %u became "
			 "invalid, because: %s", k->l->name, nr, n.why);
	else
		snprintf(text, sizeof(text), "%s: used without its snapshots, which are invalid, "
			 "though the store was not there to say so, because: %s", k->l->name, n.why);
	cannot_say(text);
	return 0;
}

/* A line that is wrong is nobody's but that device's. */
static int try_to_start(struct start *k)
{
	if (!k->l->wrong)
		return start_line(k);
	find_device(k, k->l->device, "device", k->device, sizeof(k->device), k->device_path,
		    sizeof(k->device_path));
	return cannot_because(k->l->name, "line %u of %s is wrong; cowsnap tab check", k->l->number,
			      k->s->tab->path);
}

static int start_or_give_up(struct start *k)
{
	char why[600];
	int status;

	if (sys_kernel_word("cowsnap=drop", NULL, 0)) {
		tab_resolve(k->c, k->l->device, k->s->wait, k->device, sizeof(k->device), why,
			    sizeof(why));
		return give_up(k, "the kernel's command line has cowsnap=drop");
	}
	status = try_to_start(k);
	if (!status)
		return 0;
	snprintf(why, sizeof(why), "%s", said_last());
	return k->l->nofail || is_taken(k) ? give_up(k, why) : status;
}

/* Given up in this boot, and used since then. If it is free again, it may be started. */
static bool stays_given_up(struct start *k)
{
	struct tab_note n;
	char why[700];

	if (!tab_note_read(k->l->name, &n))
		return false;
	if (k->lost < n.time)
		k->lost = n.time;
	if (tab_resolve(k->c, k->l->device, 0, k->device, sizeof(k->device), why, sizeof(why)))
		sys_path(k->device, k->device_path, sizeof(k->device_path));
	else
		k->device[0] = '\0';
	if (k->device[0] && !is_taken(k)) {
		tab_note_remove(k->l->name);
		return false;
	}
	fprintf(stderr, "cowsnap: %s: used without its snapshots since this boot, because: %s\n",
		k->l->name, n.why);
	return true;
}

int tab_delete_snapshots(struct cowsnap *c, const char *name)
{
	const struct cowsnap_item *o, *store, *s;
	char one[200];

	while ((o = cowsnap_find(c, name))) {
		for (store = cowsnap_inside(o); store && !cowsnap_inside(store);)
			store = cowsnap_next(store);
		s = store ? cowsnap_inside(store) : NULL;
		if (!s)
			break;
		snprintf(one, sizeof(one), "%s", cowsnap_get(s, "name"));
		if (cowsnap_deactivate(c, one) || cowsnap_delete(c, one) || cowsnap_scan(c))
			return say_error(c);
	}
	return 0;
}

/* An initramfs that is older than the line has started it, and believed its snapshots. */
static int tell_late(const struct start *k)
{
	if (tab_delete_snapshots(k->c, k->l->name))
		return EXIT_CANNOT;
	fprintf(stderr, "cowsnap: %s: its snapshots are deleted, since it was used without them; "
		"its initramfs did not know\n", k->l->name);
	tab_note_told(k->l->name, tab_lost(k->l));
	return 0;
}

/* The line need not say what the store knows. One that an initramfs has as well is for settle. */
static int forget_loss(const struct start *k)
{
	const char *path = k->s->tab->path;

	if (!tab_lost(k->l) || k->l->initramfs || tab_told(k->l->name) != tab_lost(k->l) ||
	    access(path, W_OK))
		return 0;
	return tab_forget_loss(path, k->l);
}

static int start_locked(struct start *k)
{
	const struct tab_line *l = k->l;
	bool there, begin;
	struct tab_note n;
	int status = 0;

	if (tab_told(l->name) != tab_lost(l))
		k->lost = tab_lost(l);
	if (cowsnap_open(&k->c) || cowsnap_scan(k->c)) {
		cowsnap_close(k->c);
		k->c = NULL;
	}
	there = active(k->c, l->name);
	begin = !stays_given_up(k) && !there;
	if (begin)
		status = start_or_give_up(k);
	else if (there && k->lost)
		status = tell_late(k);
	cowsnap_close(k->c);
	if (!status)
		status = forget_loss(k);
	return status || tab_note_read(l->name, &n) ? status : complete(l, begin);
}

int tab_start(const struct tab_start *s, const struct tab_line *l)
{
	struct start k = { .s = s, .l = l };
	int lock = tab_lock(l->name), status = start_locked(&k);

	if (lock >= 0)
		close(lock);
	return status;
}

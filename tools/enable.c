// SPDX-License-Identifier: GPL-2.0-only
/*
 * enable, disable: a device gets snapshots from now on, or from the next boot on; or has them no
 * more.
 *
 * enable makes the store, then writes the line of /etc/cowsnaptab, then starts it. Each of these
 * is done or not; a store without a line is nobody's, and a line comes into force when the
 * machine boots. So an interrupted run leaves a machine that boots, and the next one goes on.
 */
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blank.h"
#include "create.h"
#include "enable.h"
#include "lib/handle.h"
#include "lib/sys.h"
#include "room.h"
#include "session.h"
#include "tab.h"

#define INITRAMFS_SCRIPT "/usr/lib/cowsnap/update-initramfs"

const struct option_text enable_options[] = {
	{ "store", 's', "STORE", "the device that is to keep the old data" },
	{ "name", 0, "NAME", "name of the origin, /dev/mapper/NAME (default: that of DEVICE, or root)" },
	{ "chunk", 'c', "SIZE", "unit of copying, a power of two up to 8M (default 4K)" },
	{ "options", 'o', "LIST", "options of the line in /etc/cowsnaptab (default: nofail)" },
	{ "file", 0, "FILE", "another file than /etc/cowsnaptab" },
	{ "force", 'f', NULL, "overwrite what STORE holds" },
	{ "dry-run", 'n', NULL, "print the line, change nothing" },
	{ NULL },
};

const struct option_text disable_options[] = {
	{ "file", 0, "FILE", "another file than /etc/cowsnaptab" },
	{ "force", 'f', NULL, "delete the snapshots too" },
	{ "dry-run", 'n', NULL, "print what would be done, change nothing" },
	{ NULL },
};

struct enable {
	const struct words *w;
	const char *file;
	struct cowsnap *c;
	struct tab tab;
	char number[16], path[300];		/* of the device */
	char store_number[16], store[300];
	char name[PLACE_NAME + 1];
	char where[256];			/* it is mounted there; "" */
	bool system;				/* the initramfs has to do it */
	uint64_t chunk_sectors;
	char uuid[33];
	char line[1200];
	struct tab_line *old;			/* of an earlier run */
	bool same_store;			/* as that line names */
	char sealed_by[33];			/* the device, by the store with that uuid; "" */
};

/* ---- looking ---- */

static int choose_name(struct enable *k)
{
	const char *name = option_value(k->w, "name");

	if (!name)
		name = !strcmp(k->where, "/") ? "root" : strrchr(k->path, '/') + 1;
	snprintf(k->name, sizeof(k->name), "%s", name);
	return place_check_name("enable", name);
}

static int find_devices(struct enable *k)
{
	const char *store = option_value(k->w, "store"), *device = k->w->word[0];

	if (!sys_number(device, k->number, sizeof(k->number)))
		return cannot(device, "no block device; name the device to take snapshots of");
	if (!sys_number(store, k->store_number, sizeof(k->store_number)))
		return cannot(store, "no block device; name one that is to keep the old data");
	if (!strcmp(k->number, k->store_number))
		return cannot(store, "device and store are the same device");
	sys_path(k->number, k->path, sizeof(k->path));
	sys_path(k->store_number, k->store, sizeof(k->store));
	if (sys_mounted(k->number, k->where, sizeof(k->where)))
		k->system = !strcmp(k->where, "/") || !strcmp(k->where, "/usr");
	return choose_name(k);
}

static bool means(struct enable *k, const char *spec, const char *number)
{
	char has[16], why[700];

	return tab_resolve(k->c, spec, 0, has, sizeof(has), why, sizeof(why)) &&
	       !strcmp(has, number);
}

/* Each device has one place in the file, whatever it is called there. */
static int look_at_other_line(struct enable *k, const struct tab_line *l)
{
	if (means(k, l->store, k->store_number))
		return cannot_because(k->store, "line %u of %s has it as the store of %s; each "
				      "origin needs one of its own", l->number, k->tab.path,
				      l->name);
	if (means(k, l->device, k->store_number) || means(k, l->store, k->number))
		return cannot_because(k->path, "line %u of %s has device and store the other way "
				      "round; a device is one or the other", l->number,
				      k->tab.path);
	return 0;
}

/* A line of an earlier run names its store as it is now, or one that is not there. */
static int take_line(struct enable *k, struct tab_line *l)
{
	char number[16], why[700];

	k->same_store = tab_resolve(k->c, l->store, 0, number, sizeof(number), why, sizeof(why));
	if (k->same_store && strcmp(number, k->store_number))
		return cannot_because(k->path, "line %u of %s gives it another store, %s; cowsnap "
				      "disable %s removes that", l->number, k->tab.path, l->store,
				      l->name);
	k->old = l;
	snprintf(k->name, sizeof(k->name), "%s", l->name);
	return 0;
}

static int find_line(struct enable *k)
{
	struct tab_line *l;
	int status;

	for (l = k->tab.line; l < k->tab.line + k->tab.nr_lines; l++) {
		status = means(k, l->device, k->number) ? take_line(k, l) :
			 look_at_other_line(k, l);
		if (status)
			return status;
	}
	l = k->old ? NULL : tab_find(&k->tab, k->name);
	return l ? cannot_because(k->name, "line %u of %s has that name, for %s; --name gives "
				  "another", l->number, k->tab.path, l->device) : 0;
}

/* Would that name still lead to the plain device? */
static bool names_plain(struct enable *k, const char *spec)
{
	if (!strncmp(spec, "UUID=", 5) || !strncmp(spec, "LABEL=", 6) ||
	    !strncmp(spec, "/dev/disk/by-uuid/", 18) || !strncmp(spec, "/dev/disk/by-label/", 19) ||
	    tab_bad_spec(spec))
		return false;
	return means(k, spec, k->number);
}

/* A mount by a name of the device itself would go past the origin. */
static int look_at_fstab(struct enable *k)
{
	FILE *in = setmntent("/etc/fstab", "re");
	char root[256];
	struct mntent *m;
	int status = 0;

	while (in && !status && (m = getmntent(in)))
		if (names_plain(k, m->mnt_fsname))
			status = cannot_because(k->path, "/etc/fstab names it %s, which goes past the "
						"origin; name it by UUID= there",
						m->mnt_fsname);
	if (in)
		endmntent(in);
	if (!status && k->system && sys_kernel_word("root", root, sizeof(root)) &&
	    names_plain(k, root))
		status = cannot_because(k->path, "the kernel's command line has root=%s, which goes "
					"past the origin; give it root=UUID=", root);
	return status;
}

/* Is it the store of the line that the device has already? */
static bool is_ours(const struct enable *k, const struct room *room)
{
	if (!k->old || (room->state != ROOM_STORE && room->state != ROOM_BEGUN))
		return false;
	return k->old->store_uuid[0] ? !strcmp(k->old->store_uuid, room->uuid) : k->same_store;
}

/* The store of an earlier run: never made anew if it may have snapshots. */
static bool can_stay(const struct enable *k, const struct room *room)
{
	uint64_t sectors = sys_sectors(k->number);

	if (k->sealed_by[0])
		return room->origin_sectors <= sectors;
	if (room->state == ROOM_BEGUN && !room->way_home)
		return room->origin_sectors == sectors && room->chunk_sectors == k->chunk_sectors;
	return is_ours(k, room) && room->origin_sectors <= sectors;
}

static int look_at_store(struct enable *k)
{
	bool force = option_given(k->w, "force");
	char use[300];
	struct room room;
	int status;

	if (use_of(k->store, k->store_number, use, sizeof(use)))
		return cannot_because(k->store, "%s; a store needs a device of its own", use);
	status = room_look(&room, k->store);
	if (status)
		return status;
	if (room_sealed_by(k->path, k->sealed_by) && strcmp(k->sealed_by, room.uuid))
		return cannot_because(k->path, "it is sealed by the store with uuid %s, which is not %s; "
				      "name that one, or open it with cowsnap unseal", k->sealed_by,
				      k->store);
	if (is_ours(k, &room) && !k->same_store)
		return cannot_because(k->store, "line %u of %s calls it %s, which is not there; "
				      "correct the line", k->old->number, k->tab.path,
				      k->old->store);
	if (can_stay(k, &room))
		snprintf(k->uuid, sizeof(k->uuid), "%s", room.uuid);
	else if (room.state == ROOM_STORE && !force)
		return cannot(k->store, is_ours(k, &room) ? "the store of a longer device; --force "
			      "overwrites its snapshots" : "a store with snapshots; if they are of "
			      "this device, write the line by hand (cowsnaptab(5)); --force "
			      "overwrites them");
	else if (room.state == ROOM_OTHER && !force)
		return cannot_because(k->store, "%s; --force overwrites it", room.content);
	return 0;
}

static int make_store(struct enable *k)
{
	if (k->uuid[0] || option_given(k->w, "dry-run"))
		return 0;
	return blank_make(k->store, k->number, k->chunk_sectors, k->uuid);
}

/* ---- the line ---- */

/* Its options were chosen already, and it may say what of the store is not to be believed. */
static bool line_stays(const struct enable *k)
{
	return k->old && k->same_store && k->uuid[0] &&
	       (!k->old->store_uuid[0] || !strcmp(k->old->store_uuid, k->uuid));
}

static void make_line(struct enable *k, const char *uuid)
{
	const char *options = option_value(k->w, "options");
	char device[TAB_SPEC], store[TAB_SPEC];

	if (!options)
		options = "nofail";
	tab_lasting_name(k->c, k->path, true, device, sizeof(device));
	tab_lasting_name(k->c, k->store, false, store, sizeof(store));
	snprintf(k->line, sizeof(k->line), "%s\t%s\t%s\t%s%s%sstore-uuid=%s", k->name, device, store,
		 options, *options ? "," : "", k->system ? "initramfs," : "", uuid);
}

/* Before anything is written: a wrong line would be in the way of every command. */
static int try_line(struct enable *k)
{
	struct tab tab;
	int status;

	if (line_stays(k))
		return 0;
	make_line(k, "00000000000000000000000000000000");
	status = tab_read(&tab, k->file);
	if (!status)
		status = tab_try(&tab, k->name, k->line);
	tab_free(&tab);
	return status;
}

static int write_tab(struct enable *k)
{
	if (line_stays(k))
		return 0;
	make_line(k, k->uuid);
	if (!option_given(k->w, "dry-run"))
		return tab_put(k->file, k->name, k->line);
	puts(k->line);
	return 0;
}

/* What was written is read as any other. */
static int read_tab(struct enable *k)
{
	tab_free(&k->tab);
	return tab_read(&k->tab, k->file);
}

/* ---- doing ---- */

static int update_initramfs(bool system_device)
{
	if (!system_device || access(INITRAMFS_SCRIPT, X_OK))
		return 0;
	return system(INITRAMFS_SCRIPT) ? cannot(INITRAMFS_SCRIPT, "the initramfs was not made anew; "
						 "run it again, and then reboot") : 0;
}

static bool starts_now(const struct enable *k)
{
	char name[256], use[300];

	/* In the place of a mapped device of that name, in use or not. */
	if (sys_map_name(k->number, name, sizeof(name)) && !strcmp(name, k->name))
		return true;
	return !use_of(k->path, k->number, use, sizeof(use));
}

static int bring_into_force(struct enable *k)
{
	const struct tab_start s = { .tab = &k->tab };
	const struct tab_line *l = tab_find(&k->tab, k->name);
	int status;

	if (!l)
		return EXIT_CANNOT;
	if (starts_now(k)) {
		status = tab_start(&s, l);
		tab_tell_udev(k->number);
		return status ? status : update_initramfs(k->system);
	}
	status = update_initramfs(k->system);
	if (!status)
		say_done(k->w, "%s is in use: it gets its snapshots at the next boot, as %s",
			 k->path, k->name);
	return status;
}

static bool is_active(const struct enable *k)
{
	const struct cowsnap_item *o = cowsnap_find(k->c, k->path);

	return o && cowsnap_kind(o) == COWSNAP_ORIGIN && cowsnap_get(o, "device");
}

static int enable(struct enable *k)
{
	int status = find_devices(k);

	if (!status)
		status = find_line(k);
	if (!status && k->old && is_active(k))
		return update_initramfs(k->system);
	if (!status)
		status = look_at_fstab(k);
	if (!status)
		status = look_at_store(k);
	if (!status)
		status = try_line(k);
	if (!status)
		status = make_store(k);
	if (!status)
		status = write_tab(k);
	if (status || option_given(k->w, "dry-run"))
		return status;
	status = read_tab(k);
	return status ? status : bring_into_force(k);
}

int command_enable(const struct words *w)
{
	static const struct command plain = { .name = "tab" };
	const struct words silent = { .command = &plain };
	struct enable k = { .w = w };
	int status;

	k.file = option_value(w, "file") ? option_value(w, "file") : TAB_FILE;
	if (!option_given(w, "store"))
		return cannot("enable", "--store is missing; name a device that is to keep the old "
			      "data");
	if (read_chunk(w, &k.chunk_sectors) || tab_read(&k.tab, k.file))
		return EXIT_CANNOT;
	k.c = session_open(&silent);
	status = k.c ? enable(&k) : EXIT_CANNOT;
	cowsnap_close(k.c);
	tab_free(&k.tab);
	return status;
}

/* ---- disable ---- */

struct disable {
	const struct words *w;
	const char *file, *name;
	struct cowsnap *c;
	struct tab tab;
	struct tab_line line;
};

static int refuse_snapshots(const struct disable *k, const char *how_many)
{
	return option_given(k->w, "force") ? 0 :
	       cannot_because(k->name, "it has %s; --force deletes them", how_many);
}

static int count_snapshots(const struct disable *k, const struct cowsnap_item *o)
{
	const struct cowsnap_item *store, *s;
	unsigned int nr = 0;
	char text[40];

	for (store = cowsnap_inside(o); store; store = cowsnap_next(store))
		for (s = cowsnap_inside(store); s; s = cowsnap_next(s))
			nr++;
	snprintf(text, sizeof(text), "%u snapshot%s", nr, nr > 1 ? "s" : "");
	return nr ? refuse_snapshots(k, text) : 0;
}

/* Nor with --force: what is in the store is the device's own. */
static int refuse_sealed(const struct disable *k, const char *store, const char *way_home)
{
	return cannot_because(k->name, "its device is sealed, and of no use without the store %s; first "
			      "stop it with cowsnap tab stop %s, and open it with %s", store, k->name,
			      way_home);
}

static int look_at_seal(const struct disable *k, const struct cowsnap_item *o)
{
	const struct cowsnap_item *store;
	const char *way_home;

	for (store = cowsnap_inside(o); store; store = cowsnap_next(store)) {
		way_home = room_way_home_of(store);
		if (way_home)
			return refuse_sealed(k, cowsnap_get(store, "device"), way_home);
	}
	return 0;
}

/* The store does not say whether it is needed: it is not there, or cannot be read. The device may. */
static int look_for_seal(const struct disable *k)
{
	char number[16], path[300], uuid[33], why[700];

	if (!tab_resolve(k->c, k->line.device, 0, number, sizeof(number), why, sizeof(why)) ||
	    !room_sealed_by(sys_path(number, path, sizeof(path)), uuid))
		return 0;
	return cannot_because(k->name, "%s is sealed by the store with uuid %s, which cannot be found or "
			      "read; bring it back first, or, if it is lost, run cowsnap unseal "
			      "--without-store %s", path, uuid, path);
}

/*
 * Nothing in the store must be taken for a snapshot when the device was used without it. Nobody
 * has the store open: it is looked at itself.
 */
static int end_closed_snapshots(const struct disable *k)
{
	char number[16], path[300], why[700];
	bool force = option_given(k->w, "force");
	struct room room;
	unsigned int nr;

	if (!tab_resolve(k->c, k->line.store, 0, number, sizeof(number), why, sizeof(why)))
		return force ? look_for_seal(k) :
		       cannot_because(k->name, "its store %s cannot be asked for snapshots; --force "
				      "removes the line even so", k->line.store);
	sys_path(number, path, sizeof(path));
	if (room_look(&room, path))
		return force ? look_for_seal(k) : EXIT_CANNOT;
	if (room.state != ROOM_STORE && room.state != ROOM_BEGUN && look_for_seal(k))
		return EXIT_CANNOT;
	if (room.way_home)
		return refuse_sealed(k, path, room.way_home);
	if (!room.has_snapshots ||
	    (k->line.store_uuid[0] && strcmp(k->line.store_uuid, room.uuid)))
		return 0;
	if (refuse_snapshots(k, "snapshots in its store"))
		return EXIT_CANNOT;
	if (option_given(k->w, "dry-run")) {
		printf("# the snapshots in %s become invalid\n", path);
		return 0;
	}
	return blank_give_up(path, UINT64_MAX, &nr);
}

static void print_snapshots(const struct cowsnap_item *o)
{
	const struct cowsnap_item *store, *s;

	for (store = cowsnap_inside(o); store; store = cowsnap_next(store))
		for (s = cowsnap_inside(store); s; s = cowsnap_next(s))
			printf("cowsnap delete %s\n", cowsnap_get(s, "name"));
}

/* All of them or none: one that is in use is found before another is deleted. */
static int end_snapshots(const struct disable *k, const struct cowsnap_item *o)
{
	if (look_at_seal(k, o) || count_snapshots(k, o) || refuse_used_snapshots(k->c, o))
		return EXIT_CANNOT;
	if (!option_given(k->w, "dry-run"))
		return tab_delete_snapshots(k->c, k->name);
	print_snapshots(o);
	return 0;
}

static int dry_disable(const struct disable *k, bool stays)
{
	printf("# %s loses line %u, of %s\n", k->file, k->line.number, k->name);
	if (k->line.initramfs && !access(INITRAMFS_SCRIPT, X_OK))
		puts(INITRAMFS_SCRIPT);
	if (!stays)
		printf("cowsnap tab stop %s\n", k->name);
	return 0;
}

static int disable(struct disable *k)
{
	const struct cowsnap_item *o = cowsnap_find(k->c, k->name);
	char number[32] = "", below[32] = "", use[300], path[200];
	int status;

	snprintf(path, sizeof(path), "/dev/mapper/%s", k->name);

	if (o && cowsnap_kind(o) == COWSNAP_ORIGIN && cowsnap_get(o, "device")) {
		snprintf(number, sizeof(number), "%s", cowsnap_get(o, "number"));
		snprintf(below, sizeof(below), "%s", cowsnap_get(o, "below"));
		status = end_snapshots(k, o);
	} else {
		status = end_closed_snapshots(k);
	}
	if (!status && option_given(k->w, "dry-run"))
		return dry_disable(k, !number[0] || use_of(path, number, use, sizeof(use)));
	if (!status)
		status = tab_remove(k->file, k->name);
	if (!status)
		status = update_initramfs(k->line.initramfs);
	if (status || !number[0])
		return status;
	if (!use_of(path, number, use, sizeof(use))) {
		status = tab_stop(&k->tab, &k->line);
		tab_tell_udev(below);
		return status;
	}
	say_done(k->w, "%s is in use: it is a plain device from the next boot on", k->name);
	return 0;
}

int command_disable(const struct words *w)
{
	static const struct command plain = { .name = "tab" };
	const struct words silent = { .command = &plain };
	struct disable k = { .w = w, .name = w->word[0] };
	const struct tab_line *l;
	int status;

	k.file = option_value(w, "file") ? option_value(w, "file") : TAB_FILE;
	status = tab_read(&k.tab, k.file);
	l = tab_find(&k.tab, k.name);
	if (!status && !l)
		status = cannot_because(k.name, "there is no line of that name in %s", k.file);
	if (!status) {
		k.line = *l;
		k.c = session_open(&silent);
		status = k.c ? disable(&k) : EXIT_CANNOT;
		cowsnap_close(k.c);
	}
	tab_free(&k.tab);
	return status;
}

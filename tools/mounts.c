// SPDX-License-Identifier: GPL-2.0-only
/* mount and umount: a snapshot beside its origin, which has the same UUID. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "device.h"
#include "lib/handle.h"
#include "lib/sys.h"
#include "mounts.h"
#include "session.h"

const struct option_text mount_options[] = {
	{ "rw", 'w', NULL, "writable, which the origin does not see" },
	{ "options", 'o', "LIST", "more options for the filesystem" },
	{ "dry-run", 'n', NULL, "print the lines, change nothing" },
	{ NULL },
};

/* What a filesystem needs so that a snapshot of it can be mounted. */
static const struct filesystem {
	const char *type;
	const char *ro, *rw;
} filesystems[] = {
	/* norecovery: the log cannot be replayed on a device that cannot be written. */
	{ "xfs", "norecovery,nouuid", "nouuid" },
	{ "ext4", "noload", "" },
	{ "ext3", "noload", "" },
};

/* 0, or EXIT_CANNOT after a sentence. */
static int find_type(const char *device, char *type, size_t len)
{
	struct device dev;
	bool found;

	if (device_open(&dev, device, false))
		return cannot(device, dev.error);
	found = device_type(&dev, type, len);
	device_close(&dev);
	if (!found)
		return cannot(device, "no filesystem that is known");
	if (strcmp(type, "btrfs"))
		return 0;
	return cannot(device, "btrfs cannot tell a snapshot from its origin while both are on "
		      "this machine: mount it elsewhere, or clone it");
}

static void choose_options(const struct words *w, const char *type, char *text, size_t len)
{
	const char *more = option_value(w, "options"), *own = "";
	size_t i;

	for (i = 0; i < sizeof(filesystems) / sizeof(*filesystems); i++)
		if (!strcmp(filesystems[i].type, type))
			own = option_given(w, "rw") ? filesystems[i].rw : filesystems[i].ro;
	snprintf(text, len, "%s%s%s", own, *own && more ? "," : "", more ? more : "");
}

static int do_mount(const struct words *w, const char *device, const char *dir)
{
	unsigned long flags = option_given(w, "rw") ? 0 : MS_RDONLY;
	char type[64], options[512];

	if (find_type(device, type, sizeof(type)))
		return EXIT_CANNOT;
	choose_options(w, type, options, sizeof(options));
	if (!mount(device, dir, type, flags, options))
		return 0;
	return cannot_because(dir, "mounting %s (%s, options \"%s\"): %s", device, type, options,
			      strerror(errno));
}

/* Where it is mounted, if the snapshot has a device. */
static bool is_mounted(const struct cowsnap_item *snap, char *where, size_t len)
{
	return cowsnap_get(snap, "device") &&
	       sys_mounted(cowsnap_get(snap, "number"), where, len);
}

static int dry_mount(const struct words *w, struct cowsnap *c)
{
	int r = cowsnap_activate(c, w->word[0], option_given(w, "rw"));

	if (!r)
		printf("mount%s /dev/mapper/%s %s   # XFS: -o nouuid%s\n",
		       option_given(w, "rw") ? "" : " -o ro", w->word[0], w->word[1],
		       option_given(w, "rw") ? "" : ",norecovery");
	return r;
}

static int mount_it(const struct words *w, struct cowsnap *c)
{
	const struct cowsnap_item *snap;
	bool active;
	char device[300];
	int r = 0;

	snap = need_snapshot(c, w->word[0], &r);
	if (!snap)
		return r;
	active = cowsnap_get(snap, "device");
	if (option_given(w, "dry-run"))
		return dry_mount(w, c);
	r = cowsnap_activate(c, w->word[0], option_given(w, "rw"));
	if (!r)
		r = cowsnap_scan(c);
	snap = r ? NULL : need_snapshot(c, w->word[0], &r);
	if (!snap)
		return r;
	snprintf(device, sizeof(device), "%s", cowsnap_get(snap, "device"));
	r = do_mount(w, device, w->word[1]);
	if (r && !active)
		cowsnap_deactivate(c, w->word[0]);
	if (!r)
		say_done(w, "%s on %s", w->word[0], w->word[1]);
	return r;
}

int command_mount(const struct words *w)
{
	struct cowsnap *c;
	struct stat st;

	if (stat(w->word[1], &st) || !S_ISDIR(st.st_mode))
		return cannot(w->word[1], "no directory to mount on; make it with mkdir");
	c = session_open(w);
	return c ? session_end(c, mount_it(w, c)) : EXIT_CANNOT;
}

/* ---- umount ---- */

/* The snapshot that is mounted on a directory, be it the first place or another. */
static const struct cowsnap_item *find_mounted(struct cowsnap *c, const char *where)
{
	const struct cowsnap_item *o, *store, *snap;

	for (o = cowsnap_first(c); o; o = cowsnap_next(o))
		for (store = cowsnap_inside(o); store; store = cowsnap_next(store))
			for (snap = cowsnap_inside(store); snap; snap = cowsnap_next(snap))
				if (cowsnap_get(snap, "device") &&
				    sys_mounts(cowsnap_get(snap, "number"), where))
					return snap;
	return NULL;
}

/* The snapshot that is named, and a place of it; or that on the directory that is named. */
static const struct cowsnap_item *find(const struct words *w, struct cowsnap *c, char *where,
				       size_t len)
{
	const struct cowsnap_item *snap = cowsnap_find(c, w->word[0]);
	char *path;

	if (snap && cowsnap_kind(snap) == COWSNAP_SNAPSHOT)
		return is_mounted(snap, where, len) ? snap : NULL;
	path = realpath(w->word[0], NULL);
	snap = path ? find_mounted(c, path) : NULL;
	if (snap)
		snprintf(where, len, "%s", path);
	free(path);
	return snap;
}

/* Is it mounted elsewhere? In a dry run it still is where it would not be. */
static bool stays_mounted(const struct words *w, const struct cowsnap_item *snap)
{
	return sys_mounts(cowsnap_get(snap, "number"), NULL) >
	       (unsigned int)option_given(w, "dry-run");
}

static int umount_it(const struct words *w, struct cowsnap *c)
{
	char where[4096], name[300];
	const struct cowsnap_item *snap = find(w, c, where, sizeof(where));

	if (!snap)
		return cannot(w->word[0], "no snapshot that is mounted; cowsnap list shows which "
			      "there are");
	snprintf(name, sizeof(name), "%s", cowsnap_get(snap, "name"));
	if (!sys_mounted_on_top(cowsnap_get(snap, "number"), where))
		return cannot_because(where, "something else was mounted there after %s; umount "
				      "takes that away", name);
	if (option_given(w, "dry-run"))
		printf("umount %s\n", where);
	else if (umount(where))
		return cannot_because(where, "%s", errno == EBUSY ?
				      "in use; fuser -m says by whom" : strerror(errno));
	if (keeps_device(snap) || stays_mounted(w, snap))
		return 0;
	/* In a dry run it still is mounted. */
	if (option_given(w, "dry-run")) {
		printf("dmsetup remove %s\n", name);
		return 0;
	}
	return cowsnap_deactivate(c, name);
}

int command_umount(const struct words *w)
{
	struct cowsnap *c = session_open(w);

	return c ? session_end(c, umount_it(w, c)) : EXIT_CANNOT;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * /etc/cowsnaptab: which devices are origins with a store, from boot on. See cowsnaptab(5).
 *
 *   tab.c          lines are read, and every mistake in them is named
 *   tab-edit.c     lines are added, changed and removed, each time in one step
 *   tab-device.c   which device a line means
 *   tab-start.c    origins are started, or given up
 *   tab-end.c      origins are stopped; what the boot has begun is ended
 *   tab-note.c     what this boot has given up
 *   tab-units.c    systemd's units, and udev's question
 *   tab-command.c  cowsnap tab
 */
#ifndef COWSNAP_TOOLS_TAB_H
#define COWSNAP_TOOLS_TAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/cowsnap.h"
#include "place.h"

#define TAB_FILE	"/etc/cowsnaptab"
#define TAB_SPEC	256
#define TAB_SNAPSHOTS	64
#define TAB_TIMEOUT	30	/* seconds that a device is waited for */

struct tab_line {
	unsigned int number;		/* in the file */
	char name[PLACE_NAME + 1];
	char device[TAB_SPEC], store[TAB_SPEC];
	bool nofail, noauto, initramfs;
	bool wrong;			/* something in it is, and was said */
	bool legible;			/* even so it is clear whose line it is */
	unsigned int timeout;
	char store_uuid[33];		/* "": any */
	char discard[16];		/* "": the kernel's choice */
	uint64_t invalid;		/* its snapshots missed what was written then; 0 */
	uint64_t died;			/* the same, though it is sealed: the store died in use */
	uint16_t snapshot[TAB_SNAPSHOTS];	/* those that get a device */
	unsigned int nr_snapshots;
};

struct tab {
	const char *path;
	struct tab_line *line;
	unsigned int nr_lines;
	unsigned int mistakes;
};

/* 0, or EXIT_CANNOT after a sentence for each mistake. A file that is not there has no lines. */
int tab_read(struct tab *t, const char *path);
void tab_free(struct tab *t);
/* By name, or NULL. */
struct tab_line *tab_find(const struct tab *t, const char *name);
/* As if @line stood in the file, instead of the one of that name: EXIT_CANNOT as tab_read(). */
int tab_try(struct tab *t, const char *name, const char *line);
/* When the snapshots of the line missed something at the latest; 0. */
uint64_t tab_lost(const struct tab_line *l);
/* Can @spec name a device? NULL, or why not. */
const char *tab_bad_spec(const char *spec);

/* ---- tab-edit.c: the file is replaced by another, so that a crash leaves one of them ---- */

/* In the place of the line of that name, or at the end. @line without a newline. */
int tab_put(const char *path, const char *name, const char *line);
int tab_remove(const char *path, const char *name);
/* The option WORD=VALUE of a line, in the place of one with that word. */
int tab_set_option(const char *path, const char *name, const char *option);
/* The words of tab_lost(). */
int tab_forget_loss(const char *path, const struct tab_line *l);

/* ---- tab-device.c ---- */

/*
 * The major:minor that @spec means, which is no device of ours. Waits for it. false: none, or
 * several, and @why is the second half of a sentence about that.
 */
bool tab_resolve(struct cowsnap *c, const char *spec, unsigned int seconds, char *number,
		 size_t len, char *why, size_t why_len);
/* Is @spec an UUID or a label that stands on the device, or in the image, @path? */
bool tab_stands_on(const char *spec, const char *path);
/* The same of every device that @spec may mean, so that each gets its links back. */
void tab_tell_udev_of(struct cowsnap *c, const char *spec);
/* A name for a device that it keeps, for a line. */
void tab_lasting_name(struct cowsnap *c, const char *path, bool filesystem, char *spec,
		      size_t len);

/* ---- tab-start.c ---- */

struct tab_start {
	const struct tab *tab;
	unsigned int wait;	/* seconds, for devices */
};

/* 0: it is started, or was, or is given up as it may be. Else EXIT_CANNOT after a sentence. */
int tab_start(const struct tab_start *s, const struct tab_line *l);
int tab_stop(const struct tab *t, const struct tab_line *l);
/* All of an active origin. 0, or EXIT_CANNOT after a sentence. */
int tab_delete_snapshots(struct cowsnap *c, const char *name);
/* So that it looks again which links a device is to have. */
void tab_tell_udev(const char *number);
/* What the boot has begun comes to its end: rollbacks, notes on what was given up. */
int tab_settle(const struct tab *t);

/* ---- tab-note.c ---- */

struct tab_note {
	uint64_t time;
	bool marked;		/* the store says so already */
	char why[400];
};

bool tab_note_read(const char *name, struct tab_note *n);
int tab_note_write(const char *name, const struct tab_note *n);
void tab_note_remove(const char *name);
/* The tab_lost() of a line that its store has been told in this boot; 0. */
uint64_t tab_told(const char *name);
void tab_note_told(const char *name, uint64_t lost);
/*
 * What a discard does to an origin that is being rolled back to @snapshot, for whoever ends that:
 * the table has no word for it meanwhile. "": nothing is to be noted any more.
 */
void tab_note_discard(const char *name, const char *snapshot, const char *discard);
/* @discard stays as it is if nothing was noted. */
void tab_discard(const char *name, const char *snapshot, char *discard, size_t len);
/* One process at a time starts or stops an origin, until it closes this. */
int tab_lock(const char *name);

/* ---- tab-units.c ---- */

int tab_write_units(const struct tab *t, const char *directory);
/* For udev, of the device in the environment: 0 if it is under an origin; prints its links. */
int tab_owns(const struct tab *t);

#endif

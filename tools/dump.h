/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A store as text or JSON, and back.
 *
 * Both forms have the same names in them. In text each line is a value, or a list's
 * name and the fields of one item of it:
 *
 *	cowsnap-dump 1
 *	uuid 6f...
 *	snapshot id 3 state live epoch 4 sectors 2048 time 1700000000
 *	records number 0 place 17
 *	exception kind copied epoch 4 chunk 100 count 2 place 40 crc 0011223344556677
 *
 *	end 3
 *
 * with the crcs of a run written one after the other, without space; "fresh 1" marks what
 * belongs to a commit not known to have ended. In JSON it is
 * one object, without "end", the number of items, and with "snapshots", "records" and "exceptions"
 * as lists of objects.
 */
#ifndef COWSNAP_TOOLS_DUMP_H
#define COWSNAP_TOOLS_DUMP_H

#include <stdio.h>

#include "store.h"

#define DUMP_VERSION	1

/* Chunks in one run of exceptions at most: lines stay short enough to look at. */
#define DUMP_RUN	256

/* 0, or -1 if @out cannot be written. */
int dump_store(const struct store *s, FILE *out, bool json);

/* A dump that was read. The store is as store_load() leaves one, without device. */
struct dump {
	struct store s;
	u64 lost_epoch;		/* snapshots up to here may lack entries */
	u64 lost_redirected;	/* it lacks data of the origin */
	u64 log_series;		/* of the last zone of the log; 0: there was none */
	bool outdated;		/* the store is newer, or the dump cut: no snapshot stays live */
	bool in_place;		/* the device has this store, and so what is sealed of its origin */
	u64 go_on;		/* the last epoch that may have been given out since; 0: its own */
	bool seen_head;
	bool seen_end;		/* nothing is missing at the end */
	u64 items;
	char error[160];
};

/* Has it data of the origin, or may have? */
bool dump_has_current(const struct dump *d);

/* From a file, or with "-" from standard input. */
int dump_read(struct dump *d, const char *path);
void dump_free(struct dump *d);

/* For the readers of the two forms: a value, and an item of a list. */
struct dump_field {
	const char *name;
	const char *value;
};

#define DUMP_MAX_FIELDS	12

int dump_set(struct dump *d, const char *name, const char *value);
int dump_item(struct dump *d, const char *list, const struct dump_field *fields, int count);
int dump_fail(struct dump *d, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int dump_read_json(struct dump *d, FILE *in);
int dump_read_text(struct dump *d, FILE *in);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: options of a store: one row of a table for each */
#ifndef DM_COWSNAP_STORE_OPTIONS_H
#define DM_COWSNAP_STORE_OPTIONS_H

#include <linux/bits.h>
#include <linux/types.h>

struct cowsnap_super;

/* Values of all options; in a persistent store they last, but for undo_buffer. */
struct cow_options {
	unsigned int on_full;		/* enum cowsnap_on_full */
	unsigned int wait_timeout;	/* seconds */
	unsigned int throttle;		/* percent of time */
	unsigned int low_water;		/* percent used; 0: none */
	unsigned int copy_ahead;	/* KiB */
	unsigned int copy_around;	/* KiB, 0 or a power of two */
	unsigned int undo_buffer;	/* KiB */
	unsigned int log;		/* enum cowsnap_log_mode */
	unsigned int redirect;		/* percent of the store for CURRENT versions; 0: none */
	unsigned int settle;		/* enum cowsnap_settle */
};

/* In the order of tables and status lines. */
enum cow_option_id {
	COW_OPTION_ON_FULL,
	COW_OPTION_WAIT_TIMEOUT,
	COW_OPTION_THROTTLE,
	COW_OPTION_LOW_WATER,
	COW_OPTION_COPY_AHEAD,
	COW_OPTION_COPY_AROUND,
	COW_OPTION_UNDO_BUFFER,
	COW_OPTION_LOG,
	COW_OPTION_REDIRECT,
	COW_OPTION_SETTLE,
	COW_NR_OPTIONS,
};

/* What a table or a message gives. */
struct cow_given {
	struct cow_options value;
	unsigned long given;		/* a bit for each enum cow_option_id */
};

#define COW_UNDO_MAX		1048576U
#define COW_AROUND_MIN		32U
#define COW_AROUND_MAX		1024U
#define COW_AHEAD_MAX		65536U

struct cow_option {
	const char *name;
	size_t offset;			/* in struct cow_options */
	unsigned int min, max;		/* as given */
	unsigned int least;		/* that it can be; below @min only where not given */
	unsigned int initial;		/* in a new store, unless a parameter decides */
	size_t disk;			/* offset in struct cowsnap_super; 0: not there */
	bool byte;			/* of one byte there, not four */
	const char * const *words;	/* one for each value; NULL: it is a number */
	unsigned int (*fit)(unsigned int value);	/* nearest that is possible; or NULL */
};

extern const struct cow_option cow_option_table[COW_NR_OPTIONS];

/* The row with this name. NULL: it is no option. Any context. */
const struct cow_option *cow_option_find(const char *name);

/* Where @options has it. */
static inline unsigned int *cow_option_value(const struct cow_option *option,
					     struct cow_options *options)
{
	return (void *)options + option->offset;
}

/* The size of a region that comes nearest to @kib from below; 0 for too little. */
unsigned int cow_around_size(unsigned int kib);

/* Those of a new store, as far as no parameter of the module decides. */
void cow_options_init(struct cow_options *options);

/* What is given replaces what @options has. */
void cow_options_merge(struct cow_options *options, const struct cow_given *given);

/* As the superblock has them, each within its limits; what is not there stays. */
void cow_options_load(struct cow_options *options, const struct cowsnap_super *super);

/* As the superblock will have them. */
void cow_options_save(const struct cow_options *options, struct cowsnap_super *super);

#endif

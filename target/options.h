/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: options, as tables, messages and status lines have them */
#ifndef DM_COWSNAP_TARGET_OPTIONS_H
#define DM_COWSNAP_TARGET_OPTIONS_H

struct cow_given;
struct cow_options;

/* A number of a table or message. 0, or -EINVAL with words in *@error. */
int cow_read_number(char **error, const char *what, const char *word,
		    unsigned int min, unsigned int max, unsigned int *value);

/*
 * An option of the store, in a table or a message. 0, or -EINVAL with words in *@error;
 * -ENOENT: it is none.
 */
int cow_read_option(char **error, const char *name, const char *word,
		    struct cow_given *given);

/* The options that are given, as a table has them. */
void cow_emit_given(const struct cow_given *given, char *result, unsigned int maxlen,
		    unsigned int *size);

/* The options in force, as the status of a snapshot has them. */
void cow_emit_options(const struct cow_options *options, char *result, unsigned int maxlen,
		      unsigned int *size);

#endif

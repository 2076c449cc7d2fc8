// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: options of a store, as tables, messages and status lines have them
 */
#include <linux/module.h>

#include "dm-cowsnap.h"
#include "store/error.h"
#include "store/options.h"
#include "target/options.h"

int cow_read_number(char **error, const char *what, const char *word,
		    unsigned int min, unsigned int max, unsigned int *value)
{
	if (!word)
		cow_fail(error, "%s: the number is missing", what);
	else if (kstrtouint(word, 10, value))
		cow_fail(error, "%s: \"%s\" is not a number", what, word);
	else if (*value < min || *value > max)
		cow_fail(error, "%s: %u is not between %u and %u", what, *value, min, max);
	else
		return 0;
	return -EINVAL;
}

static void refuse_word(char **error, const struct cow_option *option, const char *word)
{
	cow_fail(error, "%s: \"%s\" is none of %s, %s, %s", option->name, word,
		 option->words[0], option->words[1], option->words[2]);
}

static int read_word(char **error, const struct cow_option *option, const char *word,
		     unsigned int *value)
{
	int i = match_string(option->words, option->max + 1, word ?: "");

	if (i < 0) {
		refuse_word(error, option, word ?: "");
		return -EINVAL;
	}
	*value = i;
	return 0;
}

static int read_number(char **error, const struct cow_option *option, const char *word,
		       unsigned int *value)
{
	int r = cow_read_number(error, option->name, word, option->min, option->max, value);

	if (r || !option->fit || option->fit(*value) == *value)
		return r;
	cow_fail(error, "%s: %u is not 0 or 2^n from %u to %u", option->name, *value,
		 COW_AROUND_MIN, COW_AROUND_MAX);
	return -EINVAL;
}

int cow_read_option(char **error, const char *name, const char *word,
		    struct cow_given *given)
{
	const struct cow_option *option = cow_option_find(name);
	unsigned int *value;

	if (!option)
		return -ENOENT;
	given->given |= BIT(option - cow_option_table);
	value = cow_option_value(option, &given->value);
	return option->words ? read_word(error, option, word, value) :
	       read_number(error, option, word, value);
}

/* What @values has of the options in @mask. */
static void emit_options(struct cow_options values, unsigned long mask, char *result,
			 unsigned int maxlen, unsigned int *size)
{
	unsigned int sz = *size;
	unsigned int i;

	for_each_set_bit(i, &mask, COW_NR_OPTIONS) {
		const struct cow_option *option = &cow_option_table[i];
		unsigned int value = *cow_option_value(option, &values);

		if (option->words)
			DMEMIT(" %s %s", option->name, option->words[value]);
		else
			DMEMIT(" %s %u", option->name, value);
	}
	*size = sz;
}

void cow_emit_given(const struct cow_given *given, char *result, unsigned int maxlen,
		    unsigned int *size)
{
	emit_options(given->value, given->given, result, maxlen, size);
}

void cow_emit_options(const struct cow_options *options, char *result, unsigned int maxlen,
		      unsigned int *size)
{
	/* The throttle is the origin's. */
	unsigned long mask = GENMASK(COW_NR_OPTIONS - 1, 0) & ~BIT(COW_OPTION_THROTTLE);

	emit_options(*options, mask, result, maxlen, size);
}

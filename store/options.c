// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: options of a store
 *
 * One row for each: its name, its limits, and where it stands in memory and on disk.
 * Tables, messages and status lines (target/options.c) and the superblock go by this table.
 */
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/stddef.h>
#include <linux/string.h>

#include "dm-cowsnap.h"
#include "store/options.h"

static const char * const on_full_words[] = {
	[COWSNAP_FULL_INVALIDATE] = "invalidate",
	[COWSNAP_FULL_DROP_OLDEST] = "drop_oldest",
	[COWSNAP_FULL_WAIT] = "wait",
};

static const char * const log_words[] = {
	[COWSNAP_LOG_OFF] = "off",
	[COWSNAP_LOG_ON] = "on",
	[COWSNAP_LOG_REDIRECTED] = "redirected",
};

static const char * const settle_words[] = {
	[COWSNAP_SETTLE_IDLE] = "idle",
	[COWSNAP_SETTLE_NOW] = "now",
	[COWSNAP_SETTLE_OFF] = "off",
};

unsigned int cow_around_size(unsigned int kib)
{
	if (kib < COW_AROUND_MIN)
		return 0;
	return min_t(unsigned int, rounddown_pow_of_two(kib), COW_AROUND_MAX);
}

#define OPTION(field) \
	.name = #field, \
	.offset = offsetof(struct cow_options, field)

#define ON_DISK(field) \
	.disk = offsetof(struct cowsnap_super, field)

const struct cow_option cow_option_table[COW_NR_OPTIONS] = {
	[COW_OPTION_ON_FULL] = {
		OPTION(on_full), ON_DISK(on_full),
		.max = COWSNAP_FULL_POLICIES - 1,
		.initial = COWSNAP_FULL_INVALIDATE,
		.words = on_full_words,
	},
	[COW_OPTION_WAIT_TIMEOUT] = {
		OPTION(wait_timeout), ON_DISK(wait_timeout),
		.min = 1, .max = 119, .least = 1, .initial = 60,
	},
	[COW_OPTION_THROTTLE] = {
		OPTION(throttle), ON_DISK(throttle),
		.min = 1, .max = 100, .least = 1, .initial = 100,
	},
	[COW_OPTION_LOW_WATER] = {
		OPTION(low_water), ON_DISK(low_water),
		.min = 1, .max = 100,
	},
	[COW_OPTION_COPY_AHEAD] = {
		OPTION(copy_ahead), ON_DISK(copy_ahead),
		.max = COW_AHEAD_MAX,
	},
	[COW_OPTION_COPY_AROUND] = {
		OPTION(copy_around), ON_DISK(copy_around),
		.max = COW_AROUND_MAX, .fit = cow_around_size,
	},
	[COW_OPTION_UNDO_BUFFER] = {
		OPTION(undo_buffer),
		.max = COW_UNDO_MAX,
	},
	[COW_OPTION_LOG] = {
		OPTION(log), ON_DISK(log),
		.max = COWSNAP_LOG_MODES - 1,
		.words = log_words,
	},
	[COW_OPTION_REDIRECT] = {
		OPTION(redirect), ON_DISK(redirect), .byte = true,
		.max = COWSNAP_MAX_REDIRECT,
	},
	[COW_OPTION_SETTLE] = {
		OPTION(settle), ON_DISK(settle), .byte = true,
		.max = COWSNAP_SETTLE_MODES - 1,
		.initial = COWSNAP_SETTLE_IDLE,
		.words = settle_words,
	},
};

#define END	(cow_option_table + COW_NR_OPTIONS)

const struct cow_option *cow_option_find(const char *name)
{
	const struct cow_option *option;

	for (option = cow_option_table; option < END; option++)
		if (!strcmp(name, option->name))
			return option;
	return NULL;
}

void cow_options_init(struct cow_options *options)
{
	const struct cow_option *option;

	for (option = cow_option_table; option < END; option++)
		*cow_option_value(option, options) = option->initial;
}

void cow_options_merge(struct cow_options *options, const struct cow_given *given)
{
	struct cow_options value = given->value;
	const struct cow_option *option;

	for (option = cow_option_table; option < END; option++)
		if (given->given & BIT(option - cow_option_table))
			*cow_option_value(option, options) = *cow_option_value(option, &value);
}

static unsigned int read_disk(const struct cow_option *option, const struct cowsnap_super *super)
{
	const void *disk = (const void *)super + option->disk;

	return option->byte ? *(const u8 *)disk : le32_to_cpu(*(const __le32 *)disk);
}

static void write_disk(const struct cow_option *option, struct cowsnap_super *super,
		       unsigned int value)
{
	void *disk = (void *)super + option->disk;

	if (option->byte)
		*(u8 *)disk = value;
	else
		*(__le32 *)disk = cpu_to_le32(value);
}

void cow_options_load(struct cow_options *options, const struct cowsnap_super *super)
{
	const struct cow_option *option;

	for (option = cow_option_table; option < END; option++) {
		unsigned int value;

		if (!option->disk)
			continue;
		value = clamp(read_disk(option, super), option->least, option->max);
		*cow_option_value(option, options) = option->fit ? option->fit(value) : value;
	}
}

void cow_options_save(const struct cow_options *options, struct cowsnap_super *super)
{
	struct cow_options value = *options;
	const struct cow_option *option;

	for (option = cow_option_table; option < END; option++)
		if (option->disk)
			write_disk(option, super, *cow_option_value(option, &value));
}

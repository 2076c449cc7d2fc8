// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: tables are read
 *
 *   0 <len> cowsnap-origin <origin_dev> [<#features> <feature>...]
 *   0 <len> cowsnap <origin_dev> <store_dev> <P|PO|N|NO> <chunk_sectors> [<#features> ...]
 *   0 <len> cowsnap-merge <origin_dev> <store_dev> <P|PO> <chunk_sectors> [<#features> ...]
 */
#include <linux/module.h>

#include "dm-cowsnap.h"
#include "admin/snapshots.h"
#include "origin/bio.h"
#include "store/error.h"
#include "target/options.h"
#include "target/table.h"
#include "target/target.h"

/* The count in front of the features; it has to be the number of words that follow. */
static int read_feature_count(struct dm_target *ti, struct dm_arg_set *as)
{
	unsigned int count;
	int r;

	if (!as->argc)
		return 0;
	r = cow_read_number(&ti->error, "Number of features", dm_shift_arg(as), 0, 64, &count);
	if (r)
		return r;
	if (count > as->argc) {
		cow_fail(&ti->error, "Number of features is %u, but only %u words follow",
			 count, as->argc);
		return -EINVAL;
	}
	if (count < as->argc) {
		cow_fail(&ti->error, "Number of features is %u, so \"%s\" is one word too many",
			 count, as->argv[count]);
		return -EINVAL;
	}
	return 0;
}

static int refuse_feature(struct dm_target *ti, const char *word)
{
	cow_fail(&ti->error, "Unknown feature \"%s\"", word);
	return -EINVAL;
}

/* ------------------------------------------------------------- cowsnap-origin */

const char * const cow_discard_words[] = {
	[COW_DISCARD_SKIP] = "skip",
	[COW_DISCARD_PRESERVE] = "preserve",
	[COW_DISCARD_NONE] = "none",
};

static int origin_read_discard(struct dm_target *ti, struct dm_arg_set *as,
			       struct cow_target *ct)
{
	const char *word = as->argc ? dm_shift_arg(as) : "";
	int i = match_string(cow_discard_words, ARRAY_SIZE(cow_discard_words), word);

	if (i < 0) {
		cow_fail(&ti->error,
			 "discard: \"%s\" is none of skip, preserve, none",
			 word);
		return -EINVAL;
	}
	ct->discard = i;
	ct->discard_given = true;
	return 0;
}

static int origin_read_store(struct dm_target *ti, struct dm_arg_set *as, const char **store)
{
	if (!as->argc) {
		ti->error = "store: one device has to follow";
		return -EINVAL;
	}
	if (*store) {
		cow_fail(&ti->error,
			 "store: %s is there already: only once, give the other one a table of its own",
			 *store);
		return -EINVAL;
	}
	*store = dm_shift_arg(as);
	return 0;
}

int cow_read_origin_features(struct dm_target *ti, struct dm_arg_set *as,
			     struct cow_target *ct, const char **store)
{
	int r = read_feature_count(ti, as);

	while (!r && as->argc) {
		const char *word = dm_shift_arg(as);

		if (!ct->claimed && !strcmp(word, "discard"))
			r = origin_read_discard(ti, as, ct);
		else if (!ct->claimed && !strcmp(word, "store"))
			r = origin_read_store(ti, as, store);
		else
			r = refuse_feature(ti, word);
	}
	return r;
}

/* -------------------------------------------------- cowsnap and cowsnap-merge */

static int snap_read_persistence(struct dm_target *ti, const char *word,
				 struct cow_snap_args *args)
{
	bool transient = !strcmp(word, "N") || !strcmp(word, "NO");

	if (strcmp(word, "P") && strcmp(word, "PO") && (!transient || args->merge)) {
		cow_fail(&ti->error, "Persistence \"%s\" is none of %s", word,
			 args->merge ? "P, PO: only what is persistent can be merged" :
			 "P, N, PO, NO");
		return -EINVAL;
	}
	args->persistence = word[0];
	args->overflow_apart = word[1] == 'O';
	return 0;
}

static int snap_read_chunk(struct dm_target *ti, const char *word,
			   struct cow_snap_args *args)
{
	int r = cow_read_number(&ti->error, "Chunk size", word, 0, UINT_MAX, &args->chunk_sectors);

	if (!r && args->chunk_sectors > COWSNAP_MAX_CHUNK_SECTORS) {
		cow_fail(&ti->error,
			 "Chunk size: %u sectors, at most %u can be: take a smaller one",
			 args->chunk_sectors, COWSNAP_MAX_CHUNK_SECTORS);
		return -EINVAL;
	}
	if (!r && !is_power_of_2(args->chunk_sectors)) {
		cow_fail(&ti->error,
			 "Chunk size: %u is not a power of two sectors",
			 args->chunk_sectors);
		r = -EINVAL;
	}
	return r;
}

/* Those that dm-snapshot has as well. */
static bool snap_read_discard(struct cow_target *ct, const char *word)
{
	if (!strcmp(word, "discard_zeroes_cow"))
		ct->discard_zeroes_cow = true;
	else if (!strcmp(word, "discard_passdown_origin"))
		ct->discard_passdown_origin = true;
	else
		return false;
	return true;
}

static int snap_read_feature(struct dm_target *ti, struct dm_arg_set *as,
			     struct cow_target *ct, struct cow_snap_args *args)
{
	const char *word = dm_shift_arg(as);
	int r;

	if (ct->claimed)
		return snap_read_discard(ct, word) ? 0 : refuse_feature(ti, word);
	if (!strcmp(word, "id")) {
		ct->id_given = true;
		return cow_read_number(&ti->error, "id", as->argc ? dm_shift_arg(as) : NULL, 0,
				   COWSNAP_MAX_SNAPSHOTS - 1, &args->id);
	}
	if (args->merge)
		return refuse_feature(ti, word);
	if (!strcmp(word, "create")) {
		args->create = true;
	} else if (!snap_read_discard(ct, word)) {
		r = cow_read_option(&ti->error, word, as->argc ? as->argv[0] : NULL,
				    &ct->options);
		if (r == -ENOENT)
			return refuse_feature(ti, word);
		if (r)
			return r;
		dm_shift_arg(as);
	}
	return 0;
}

/* What does not go together. */
static int check_features(struct dm_target *ti, const struct cow_target *ct,
			  const struct cow_snap_args *args)
{
	if (ct->discard_passdown_origin && !ct->discard_zeroes_cow)
		ti->error = "discard_passdown_origin needs discard_zeroes_cow";
	else if (args->persistence == 'P' && ct->options.given & BIT(COW_OPTION_UNDO_BUFFER))
		cow_fail(&ti->error,
			 "undo_buffer %u is for transient stores (N), the table says P: leave it out",
			 ct->options.value.undo_buffer);
	else if (args->persistence == 'N' && ct->options.given & BIT(COW_OPTION_LOG))
		cow_fail(&ti->error,
			 "log %s is for persistent stores (P), the table says N: leave it out",
			 cow_option_table[COW_OPTION_LOG].words[ct->options.value.log]);
	else
		return 0;
	return -EINVAL;
}

int cow_read_snap_table(struct dm_target *ti, struct dm_arg_set *as,
			struct cow_target *ct, struct cow_snap_args *args)
{
	int r;

	r = snap_read_persistence(ti, dm_shift_arg(as), args);
	if (!r)
		r = snap_read_chunk(ti, dm_shift_arg(as), args);
	if (!r)
		r = read_feature_count(ti, as);
	while (!r && as->argc)
		r = snap_read_feature(ti, as, ct, args);
	return r ?: check_features(ti, ct, args);
}

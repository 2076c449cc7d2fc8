// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: exceptions that are read from tables, gathered and put into the map in order
 *
 * Tables have exceptions in the order in which they were made. To put each into the map where
 * it belongs would change one leaf after the other, many times. So they are gathered, in 16
 * bytes a run, and sorted; whole leaves are then built of them.
 *
 * Memory: twice what is gathered, which is at most 2^20 runs at a time: 32 MiB, and half as much
 * again while that grows. If there is no memory for it, fewer are gathered, at least INTAKE_MIN.
 */
#include <linux/bitops.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "disk/intake.h"

#define INTAKE_MIN	512U
#define INTAKE_MAX	BIT(20)

/* Runs are sorted by so many bits at a time. */
#define DIGIT_BITS	11
#define DIGITS		BIT(DIGIT_BITS)

/* ------------------------------------------------------------------------- order */

/* In which bits of their chunks do the runs differ? 0 also if they are in order already. */
static u64 runs_differ(const struct cow_run *run, size_t nr)
{
	bool ordered = true;
	u64 differ = 0;
	size_t i;

	for (i = 1; i < nr; i++) {
		differ |= run[i].word[0] ^ run[0].word[0];
		ordered = ordered && run[i].word[0] >= run[i - 1].word[0];
	}
	return ordered ? 0 : differ & COW_RUN_CHUNK;
}

/* Runs go from @from to @to, in the order of one digit; those with the same stay in order. */
static void sort_by_digit(const struct cow_run *from, struct cow_run *to, size_t nr,
			  unsigned int shift, u32 *count)
{
	u32 digit, before = 0;
	size_t i;

	memset(count, 0, DIGITS * sizeof(*count));
	for (i = 0; i < nr; i++)
		count[from[i].word[0] >> shift & (DIGITS - 1)]++;
	for (digit = 0; digit < DIGITS; digit++) {
		u32 here = count[digit];

		count[digit] = before;
		before += here;
	}
	for (i = 0; i < nr; i++)
		to[count[from[i].word[0] >> shift & (DIGITS - 1)]++] = from[i];
}

/* Returns where the runs are in order: in @run, or in the room behind @max of them. */
static struct cow_run *sort_runs(struct cow_run *run, size_t nr, size_t max, u32 *count)
{
	struct cow_run *from = run, *to = run + max;
	u64 differ = runs_differ(run, nr);

	while (differ) {
		unsigned int shift = __ffs64(differ);

		sort_by_digit(from, to, nr, shift, count);
		swap(from, to);
		differ &= ~((u64)(DIGITS - 1) << shift);
		cond_resched();
	}
	return from;
}

/* ------------------------------------------------------------------------ memory */

static struct cow_run *alloc_runs(size_t nr, gfp_t gfp)
{
	return kvmalloc_array(2 * nr, sizeof(struct cow_run), gfp);
}

/* Back to what there is in any case. */
static void shrink(struct cow_intake *in)
{
	if (in->run != in->small)
		kvfree(in->run);
	in->run = in->small;
	in->max = INTAKE_MIN;
	in->nr = 0;
}

static bool grow(struct cow_intake *in)
{
	struct cow_run *more;

	if (in->max >= INTAKE_MAX)
		return false;
	more = alloc_runs(2 * in->max, GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);
	if (!more)
		return false;
	memcpy(more, in->run, in->nr * sizeof(*more));
	if (in->run != in->small)
		kvfree(in->run);
	in->run = more;
	in->max *= 2;
	return true;
}

int cow_intake_init(struct cow_intake *in, struct cow_map *map)
{
	memset(in, 0, sizeof(*in));
	in->map = map;
	in->small = alloc_runs(INTAKE_MIN, GFP_KERNEL);
	if (!in->small)
		return -ENOMEM;
	in->run = in->small;
	in->max = INTAKE_MIN;
	return 0;
}

void cow_intake_exit(struct cow_intake *in)
{
	shrink(in);
	kvfree(in->small);
}

/* ------------------------------------------------------------------- in and out */

static int put_into_map(struct cow_intake *in)
{
	u32 *count;
	int r;

	if (!in->nr)
		return 0;
	count = kvmalloc_array(DIGITS, sizeof(*count), GFP_KERNEL);
	if (!count)
		return -ENOMEM;
	r = cow_map_insert_runs(in->map, sort_runs(in->run, in->nr, in->max, count), in->nr);
	kvfree(count);
	if (!r)
		in->nr = 0;
	return r;
}

int cow_intake_add(struct cow_intake *in, const struct cow_run *run)
{
	int r;

	if (in->nr && cow_run_extend(&in->run[in->nr - 1], run))
		return 0;
	if (in->nr == in->max && !grow(in)) {
		r = put_into_map(in);
		if (r)
			return r;
	}
	in->run[in->nr++] = *run;
	return 0;
}

int cow_intake_flush(struct cow_intake *in)
{
	int r = put_into_map(in);

	if (!r)
		shrink(in);
	return r;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: how far behind the last record of the log the next one stands
 *
 * Directly behind the last record the head has been by when the next one comes: it takes a whole
 * turn. Some chunks further on the head is about to come by. How many depends on the disk, the host
 * and on what it does between two records, so it is tried out:
 *
 *   a round:  0 -> 1 -> 2 -> .. until it gets worse ---> the best -- rest --> a round: 0, and the
 *             some records on each rung                  is kept              neighbours
 *                                                        ^   | no better than 0 any more
 *                                                        '---+--> 0 -- rest --> a whole round
 *
 * A gap is room lost, so it has to be worth it: no gap unless it saves a quarter of the time, and
 * no larger one unless that saves another 20th. Rests grow, since a round costs turns and room.
 * Where records take less than a turn without a gap, there is nothing to learn.
 *
 * Nothing here knows of clocks or of disks: tests/gap has it learn from times that are made up.
 */
#include <linux/kernel.h>

#include "disk/gap.h"

/* In chunks. A turn of a disk is one or two MiB. */
static const u16 ladder[COW_GAP_RUNGS] = {
	0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128
};

/*
 * Records on each rung of a round, half as many where all of them miss their turn; during a rest so
 * many are looked at together.
 */
#define TRIES			8U
#define WATCHED			32U

/* Half a turn of the fastest disks: what takes less has not missed its turn. */
#define TURN_LEAST_US		2000U

/* What takes longer than two turns has other reasons. */
#define RECORD_MOST_US		20000U

/* Records of a rest, in whole looks; and how long a gap is kept that was no chance. */
#define PAUSE_LEAST		64U
#define PAUSE_MOST		65536U
#define KEPT_LONG		2048U

static bool is_worth_it(const struct cow_gap *gap, u32 us)
{
	return us <= gap->mean[0] / 4 * 3;
}

static u8 top_rung(u32 most)
{
	u8 rung = COW_GAP_RUNGS - 1;

	while (ladder[rung] > most)
		rung--;
	return rung;
}

static void go_to(struct cow_gap *gap, u8 rung)
{
	gap->rung = rung;
	gap->nr = 0;
	gap->quick = 0;
	gap->sum = 0;
}

static void pause_grows(struct cow_gap *gap)
{
	gap->pause = gap->pause ? min(gap->pause * 4, PAUSE_MOST) : PAUSE_LEAST;
}

static void begin_rest(struct cow_gap *gap, u8 best)
{
	if (best != gap->best)
		gap->kept = 0;
	gap->best = best;
	gap->rests = true;
	gap->rest = gap->pause;
	go_to(gap, best);
}

/* With a gap only its neighbours: the others would cost too much. */
static void begin_round(struct cow_gap *gap, u32 most)
{
	u8 top = top_rung(most);

	gap->rests = false;
	gap->top = max(gap->top, top);
	gap->first = gap->best > 1 ? gap->best - 1 : 1;
	gap->last = gap->best ? min_t(u8, gap->best + 1, top) : top;
	gap->low = RECORD_MOST_US;
	go_to(gap, 0);
}

/* The smallest that is nearly as good as the best, if it is worth it. */
static u8 best_of_round(const struct cow_gap *gap, u8 last)
{
	u8 rung;

	for (rung = gap->first; rung <= last; rung++)
		if (gap->mean[rung] <= gap->low + gap->low / 20)
			return is_worth_it(gap, gap->mean[rung]) ? rung : 0;
	return 0;
}

/* Where a neighbour is better, the next one may be better still. */
static void end_round(struct cow_gap *gap, u8 last)
{
	u8 best = best_of_round(gap, last);

	if (best && gap->best && best != gap->best)
		gap->pause = PAUSE_LEAST;
	else
		pause_grows(gap);
	begin_rest(gap, best);
}

/* Behind a gap that is right, times only grow; one rung that is worse may be chance. */
static bool gets_worse(const struct cow_gap *gap, u8 rung)
{
	return rung > gap->first + 1 && is_worth_it(gap, gap->low) &&
	       min(gap->mean[rung], gap->mean[rung - 1]) > gap->low + gap->low / 20;
}

static void rung_is_tried(struct cow_gap *gap, u32 mean)
{
	u8 rung = gap->rung;

	gap->mean[rung] = mean;
	if (!rung) {
		if (mean < TURN_LEAST_US || gap->first > gap->last)
			end_round(gap, 0);
		else
			go_to(gap, gap->first);
		return;
	}
	gap->low = min(gap->low, mean);
	if (rung >= gap->last || gets_worse(gap, rung))
		end_round(gap, rung);
	else
		go_to(gap, rung + 1);
}

/* What was learned holds no more, or was chance. What changes often is looked at less and less. */
static void give_up(struct cow_gap *gap)
{
	if (gap->kept >= KEPT_LONG)
		gap->pause = 0;
	pause_grows(gap);
	begin_rest(gap, 0);
}

/*
 * Is it time to look again? So it is if a gap that was right for long saves less than half now, and
 * if there is none, but zones allow more than before.
 */
static bool has_rested(struct cow_gap *gap, u32 us, u32 most)
{
	bool was_right = gap->best && gap->kept >= KEPT_LONG && us > gap->mean[0] / 2;
	bool may_more = !gap->best && top_rung(most) > gap->top;

	if (!was_right && !may_more)
		return !gap->rest;
	gap->kept = 0;
	gap->pause = 0;
	return true;
}

static void note_while_resting(struct cow_gap *gap, u32 most)
{
	u32 us = gap->sum / WATCHED;

	if (gap->nr < WATCHED)
		return;
	gap->kept += WATCHED;
	gap->rest -= WATCHED;
	if (gap->best && !is_worth_it(gap, us))
		give_up(gap);
	else if (has_rested(gap, us, most))
		begin_round(gap, most);
	else
		go_to(gap, gap->best);
}

u32 cow_gap_chunks(const struct cow_gap *gap, u32 most)
{
	return min_t(u32, ladder[gap->rung], most);
}

u32 cow_gap_learned(const struct cow_gap *gap)
{
	return ladder[gap->best];
}

void cow_gap_note(struct cow_gap *gap, u32 us, u32 most)
{
	if (!gap->last)
		begin_round(gap, most);
	gap->nr++;
	gap->quick += us < TURN_LEAST_US;
	gap->sum += min(us, RECORD_MOST_US);
	if (gap->rests)
		note_while_resting(gap, most);
	else if (gap->nr == TRIES || (gap->nr == TRIES / 2 && !gap->quick))
		rung_is_tried(gap, gap->sum / gap->nr);
}

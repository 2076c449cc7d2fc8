// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: reads that are under way from places in a store
 *
 * A snapshot's read finds a place in the map, and is sent there. Meanwhile the snapshot may get a
 * version of its own, and the last other one that needed the place may be deleted. The place is
 * not given to other chunks before the read has ended.
 *
 * Reads are counted in two turns, so that those which begin meanwhile do not prolong the wait. A
 * read may be counted in a turn that has just passed: therefore each of the two is waited for.
 */
#include <linux/module.h>

#include "store/readers.h"
#include "store/store.h"

unsigned int cow_readers_enter(struct cow_store *store)
{
	unsigned int turn = READ_ONCE(store->read_turn);

	atomic_inc(&store->nr_reads[turn]);
	/*
	 * First counted, then looking: either this is waited for, or it does not find the place.
	 * Pairs with smp_mb() in cow_readers_await().
	 */
	smp_mb__after_atomic();
	return turn;
}

void cow_readers_leave(struct cow_store *store, unsigned int turn)
{
	if (atomic_dec_and_test(&store->nr_reads[turn]) && wq_has_sleeper(&store->idle))
		wake_up(&store->idle);
}

void cow_readers_await(struct cow_store *store)
{
	unsigned int i, turn;

	/* What was taken out of the map is seen by reads that are counted from here on. */
	smp_mb();
	for (i = 0; i < 2; i++) {
		turn = store->read_turn;
		WRITE_ONCE(store->read_turn, !turn);
		wait_event(store->idle, !atomic_read(&store->nr_reads[turn]));
	}
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the gate of an origin */
#ifndef DM_COWSNAP_ORIGIN_GATE_H
#define DM_COWSNAP_ORIGIN_GATE_H

#include "dm-cowsnap.h"

struct cow_bio;
struct cow_origin;

/*
 * Take admin_lock on behalf of user space. Writers may wait for its holder, or for a device that
 * is suspended until a table is resumed, so memory must not wait for them: no I/O for memory
 * until cow_admin_leave(), which gets what this returns. Context: may sleep.
 */
unsigned int cow_admin_enter(struct cow_origin *origin);
void cow_admin_leave(struct cow_origin *origin, unsigned int noio);

/*
 * Give admin_lock back, by whoever took it by himself: and have the gate count per processor again,
 * if a table left that to its holder. May sleep, without the lock.
 */
void cow_admin_unlock(struct cow_origin *origin);

/*
 * The same for who may have suspended what the holder waits for. False: somebody holds it, and
 * there is nothing to leave. Any context that is a task's.
 */
bool cow_admin_try(struct cow_origin *origin, unsigned int *noio);

/*
 * How long new writes are held back for those that the device does not finish, in jiffies: the
 * module parameter hold_timeout. Any context.
 */
unsigned long cow_hold_timeout(void);

/*
 * Take a reference of the gate. False: it is shut, and @cb waits for it to open and decides
 * again. Context: process.
 */
bool cow_origin_enter(struct cow_bio *cb);

/*
 * What the origin has acknowledged is durable: at home, and in the store of a sealed one. Returns
 * 0, or a negative errno after a line in the log. May sleep. The second one does not ask whether an
 * earlier flush has failed: for who counts those since his own writes (origin/flush.h).
 */
int cow_origin_flush(struct cow_origin *origin);
int cow_origin_flush_devices(struct cow_origin *origin);

/*
 * Shut the gate: new writes are held, those that were sent home have completed and are
 * flushed. Context: may sleep, origin->admin_lock held. -ETIMEDOUT, with the gate open again,
 * if the device does not finish its writes in time.
 */
int cow_origin_freeze(struct cow_origin *origin);

/*
 * The same without the flush, waiting for @timeout jiffies. MAX_SCHEDULE_TIMEOUT: for as
 * long as it takes; then it cannot fail.
 */
int cow_origin_drain(struct cow_origin *origin, unsigned long timeout);
void cow_origin_thaw(struct cow_origin *origin);

/*
 * A table is loaded whose resumption may shut the gate: until it is let go, which the caller owes,
 * writes are counted in one place. Does not wait for that. False: not just now, and nothing is
 * owed; it is done when the gate is shut. Context: a task's.
 */
bool cow_gate_gather(struct cow_origin *origin);

/*
 * The table was resumed, is refused or gone. Count per processor again, if no other one needs else.
 * Who holds admin_lock is not waited for, but does that when he leaves. Context: may sleep.
 */
void cow_gate_let_go(struct cow_origin *origin);

/*
 * Count per processor again, after a merge. A thaw does so, too. Context: may sleep,
 * origin->admin_lock held.
 */
void cow_gate_spread(struct cow_origin *origin);

/* Context: may sleep. 0 or a negative errno. */
int cow_gate_init(struct cow_origin *origin);
void cow_gate_exit(struct cow_origin *origin);

#endif

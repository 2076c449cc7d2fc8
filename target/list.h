/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the message that lists stores and snapshots */
#ifndef DM_COWSNAP_TARGET_LIST_H
#define DM_COWSNAP_TARGET_LIST_H

struct cow_origin;

/*
 * The stores of an origin and the snapshots in them, a line each, as docs/reference.md has
 * them. May sleep.
 */
void cow_origin_list(struct cow_origin *o, char *result, unsigned int maxlen);

#endif

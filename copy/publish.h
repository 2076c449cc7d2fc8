/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: an exception is published, and what waited for it goes on */
#ifndef DM_COWSNAP_COPY_PUBLISH_H
#define DM_COWSNAP_COPY_PUBLISH_H

#include <linux/types.h>

struct cow_origin;
struct cow_pending;

/* The data of @pending is safe: publish it. Or it failed: give it up. Engine's worker. */
void cow_pending_publish(struct cow_pending *pending);

/*
 * Take @pending out of the tree. It is freed, or kept; what waits for it decides again.
 * Engine's worker.
 */
void cow_pending_release(struct cow_pending *pending);

/* Try those that the map had no memory for, when it is time. Engine's worker. */
void cow_pending_map_again(struct cow_origin *origin);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: what an engine's worker does for its origin */
#ifndef DM_COWSNAP_COPY_WORKER_H
#define DM_COWSNAP_COPY_WORKER_H

/* The engine's hook; @context is the origin. Engine's worker. */
void cow_copy_work(void *context);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: what every file of the module shares
 *
 * Everything here is private to the module; docs/reference.md has the tables, status lines
 * and messages that users see. Each subject has a header of its own beside the file that
 * keeps its contracts.
 *
 * Locks, outermost first:
 *
 *   cow_registry_mutex     origins and stores in use; references on origins, stores, snapshots
 *   origin->admin_lock     create, delete, grow, merge, close: one at a time for an origin
 *   store->track_lock      trackers, and what is written of them
 *   store->records_lock    superblocks and records of snapshots on disk
 *   meta->blocks_lock      table blocks in memory
 *   map->writer_lock       changes of the map of completed exceptions
 *   origin->state_lock     pending exceptions, waiting bios, room, states, live epochs
 *   origin->reads_lock     tracked reads, their pace, lists that completions fill (irqs off)
 *   engine->queue_lock     queues and pages of the copy engine (irqs off)
 *   merge->io_lock         requests of a merge in flight (irqs off); taken alone
 *
 * table_mutex (origin/tables.c) and absent_mutex (origin/absent.c) are taken inside
 * cow_registry_mutex or admin_lock, and nothing is taken inside of them.
 *
 * The map of completed exceptions is read under RCU with no lock at all.
 */
#ifndef DM_COWSNAP_H
#define DM_COWSNAP_H

#include <linux/device-mapper.h>

#include "dm-cowsnap-compat.h"
#include "uapi/dm-cowsnap-format.h"

/* The same twice: as text, and as device mapper has it. */
#define COWSNAP_VERSION "0.2.0"
#define COWSNAP_TARGET_VERSION { 0, 2, 0 }

#define DM_MSG_PREFIX "cowsnap"

/* A run of chunks copied as one job is no longer than this unless one chunk is. */
#define COW_RUN_SECTORS		2048U

/* Most chunks in one run: one bit each says which of them are all zero. */
#define COW_RUN_CHUNKS		256U

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests to device mapper by its ioctls, for cowmodel, cownth and cowcrash: a process of
 * dmsetup for each would take a fifth of a second in an emulated machine.
 *
 * Each function returns 0, or a negative error number.
 */
#ifndef COWSNAP_TESTS_DMCTL_H
#define COWSNAP_TESTS_DMCTL_H

#include <linux/dm-ioctl.h>
#include <stddef.h>
#include <sys/ioctl.h>

/* A request, with room for tables of a few targets, or a message, or a status line. */
struct dmctl_request {
	struct dm_ioctl head;
	union {
		struct dm_target_spec target;
		struct dm_target_msg message;
		unsigned char bytes[1024];
	};
};

/* Open the control device now, and not with the first request. */
int dmctl_open(void);

/* @command is DM_DEV_CREATE, ...; @flags are DM_..._FLAG. What @r holds goes along. */
int dmctl(struct dmctl_request *r, unsigned long command, const char *name, unsigned int flags);

/* dmctl() with a request that has nothing but its name and flags. */
int dmctl_plain(unsigned long command, const char *name, unsigned int flags);

/* A new device without a table; @path becomes its node. */
int dmctl_create(const char *name, char *path, size_t size);

/* One target: @table is "START LENGTH TYPE PARAMETERS", as dmsetup takes it. */
int dmctl_load(const char *name, const char *table);

/* DM_SKIP_LOCKFS_FLAG, DM_NOFLUSH_FLAG, or 0. */
int dmctl_suspend(const char *name, unsigned int flags);
int dmctl_resume(const char *name, unsigned int flags);

/* Again while the device is busy: udev may look at it whenever it was closed. */
int dmctl_remove(const char *name);
int dmctl_message(const char *name, const char *text);

/* The first target's line, without start, length and type; "" if there is none. */
int dmctl_status(const char *name, char *line, size_t size);

#endif

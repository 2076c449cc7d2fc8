/* SPDX-License-Identifier: GPL-2.0-only */
/* A file or a device that becomes an image. */
#ifndef COWSNAP_TOOLS_RECEIVE_TARGET_H
#define COWSNAP_TOOLS_RECEIVE_TARGET_H

#include "device.h"
#include "store.h"

struct target {
	const char *path;
	struct device dev;
	bool exists;
	bool made;		/* by us */
	u64 bytes;		/* what was there before; of a file, to the byte */
	bool is_device;
	bool opened;
	bool sync_failed;
	int sync_errno;
	char error[200];
};

/* All return 0, or -1 with words in ->error. */

/* What is there is opened, for nobody else; what is not there is not made. */
int target_open(struct target *t, const char *path);
/* Has it something that nobody meant to be written over? In words, or NULL. */
const char *target_content(struct target *t, char *text, size_t len);
/* Has a device room for so much? */
int target_check_room(struct target *t, u64 bytes);
/* A file that is not there is made; and taken away again. */
int target_make(struct target *t);
void target_unmake(struct target *t);
/* A file is at least so long. */
int target_grow(struct target *t, u64 bytes);
int target_write(struct target *t, u64 offset, const void *data, size_t len);
int target_zero(struct target *t, u64 offset, u64 len);
int target_sync(struct target *t);
/* A file gets this length. */
int target_cut(struct target *t, u64 bytes);
/* A checksum of samples of the first @bytes. */
int target_sample(struct target *t, u64 bytes, u32 *crc);
void target_close(struct target *t);

#endif

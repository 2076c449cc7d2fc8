/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a target holds: a small text file, beside a target that is a file, and below
 * /var/lib/cowsnap for one that is a device. It says from which stream the target was made,
 * how far that has come, and has a checksum of samples of what is there, so that a target that was
 * changed by somebody else, or is another one by now, is not taken for the base of the
 * next stream. It is always replaced as a whole.
 */
#ifndef COWSNAP_TOOLS_RECEIVE_STATE_H
#define COWSNAP_TOOLS_RECEIVE_STATE_H

#include <limits.h>

#include "stream.h"

/* The snapshot that a target with a store got of a whole image. */
struct receive_kept {
	u32 id;
	u64 epoch;		/* 0: there is none */
	u8 uuid[16];		/* of the target's own store */
};

struct receive_state {
	bool exists;
	bool whole;		/* the image is there; else a part of the stream */
	struct stream_what what;
	u64 position;		/* what lies below is durable */
	u32 sample;		/* of a whole image, or of what is durable */
	struct receive_kept kept;	/* of a whole image */
};

/* Where the state of @target is kept. 0, or -1 with errno. */
int receive_state_path(const char *target, bool is_device, char path[PATH_MAX]);
/* 0, also if there is none; -1 with errno, EBADMSG if it is damaged. */
int receive_state_read(const char *path, struct receive_state *state);
/* Durable when it returns. 0, or -1 with errno. */
int receive_state_write(const char *path, const struct receive_state *state);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel makes of a store, modelled from the format's header and the rules of
 * disk/probe.c, load.c, replay.c and super.c. Nothing of tools/ but the crc is used. The model
 * is stricter in one thing: it mends no bit, and calls damaged what the kernel would mend.
 */
#ifndef COWSNAP_FUZZ_KERNEL_H
#define COWSNAP_FUZZ_KERNEL_H

#include "image.h"

struct kernel_slot {
	u64 chunk, epoch, place;
	u32 crc;
	u8 kind;
	bool unsure;		/* not of a durable commit: fresh, and of a commit later than D; or of such a record */
};

struct kernel_snap {
	u16 id;
	u8 state;
	bool written;
	u64 epoch;
};

struct kernel_view {
	const char *refused;	/* why; NULL: it is opened */
	const char *damaged;	/* what the kernel would complain of; NULL: nothing */
	u64 lost_epoch;		/* snapshots up to here trust only their own versions */
	struct kernel_slot *slot;
	size_t nr_slots;
	struct kernel_snap *snap;
	size_t nr_snaps;
};

/*
 * @lost: a byte for each sector of @data, not 0 where it cannot be read; or NULL.
 * @highest_only: doubt only the commit with the highest number, as old kernels do.
 */
void kernel_open(const u8 *data, size_t bytes, const u8 *lost, bool highest_only,
		 struct kernel_view *v);
void kernel_close(struct kernel_view *v);

/* What the snapshot reads for @chunk: a slot, or NULL for the origin. *@error: an error. */
const struct kernel_slot *kernel_read(const struct kernel_view *v,
				      const struct kernel_snap *snap, u64 chunk, bool *error);

/* The same for the origin, of which NULL means home. */
const struct kernel_slot *kernel_read_now(const struct kernel_view *v, u64 chunk);

/*
 * What becomes of the seal when the store @data is activated. @home, of its origin, gets what the
 * kernel writes to it, but after @stop writes the power goes. *@content: where from then on the
 * origin's first sectors are, *@len bytes. NULL, or why the store is refused.
 */
const char *kernel_settle_seal(const u8 *data, size_t bytes, u8 *home, unsigned long stop,
			       const u8 **content, size_t *len);

/* May the origin be used without a store? */
bool kernel_takes_bare(const u8 *home, size_t bytes);

#endif

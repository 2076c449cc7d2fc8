// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: what stands at the start of a device
 *
 * A store is recognised by either of its superblocks. Each is read even if the sector of
 * the other cannot be, and one flipped bit of either is turned back.
 */
#include <linux/crc32c.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap.h"
#include "disk/mend.h"
#include "disk/probe.h"
#include "store/error.h"

/* The first superblock, and the second wherever it may be. */
#define HEAD_BYTES	8192U
#define HEAD_SECTORS	(HEAD_BYTES >> SECTOR_SHIFT)

/* A store that is no longer needed has this much of it zeroed. */
#define ZERO_BYTES	4096U

struct cow_head {
	unsigned int bytes;		/* fewer on a very small device */
	unsigned int unit_bytes;	/* least that can be read */
	DECLARE_BITMAP(unreadable, HEAD_SECTORS);	/* a bit for each unit */
	u8 *data;			/* of a power of two bytes, so aligned for I/O */
};

static bool has_magic(const void *data)
{
	return !memcmp(data, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES);
}

static bool super_is_right(const struct cowsnap_super *super, sector_t sector)
{
	return has_magic(super) && le32_to_cpu(super->crc) == cowsnap_super_crc(super, sector);
}

/* A flipped bit of the uuid changes the seed as well and is not found; the other copy is. */
static bool super_mend(struct cowsnap_super *super, sector_t sector)
{
	struct cowsnap_super mended = *super;
	__le32 stored = super->crc;

	if (super_is_right(super, sector))
		return true;
	mended.crc = 0;
	if (!cow_crc_mend(&mended, sizeof(mended), cowsnap_super_crc(super, sector), &stored))
		return false;
	mended.crc = stored;
	if (!super_is_right(&mended, sector))
		return false;
	*super = mended;
	DMWARN("one bit of the superblock at sector %llu was wrong", (u64)sector);
	return true;
}

static struct cowsnap_super *head_super(struct cow_head *head, unsigned int at)
{
	return (struct cowsnap_super *)(head->data + at);
}

/* Copy B of a store with blocks of @block_bytes. */
static bool second_is_right(struct cow_head *head, unsigned int block_bytes)
{
	struct cowsnap_super *super = head_super(head, block_bytes);

	return block_bytes + COWSNAP_SUPER_BYTES <= head->bytes &&
	       super_mend(super, block_bytes >> SECTOR_SHIFT) &&
	       le32_to_cpu(super->block_bytes) == block_bytes;
}

/*
 * Only copy A knows where B is; without A it may be anywhere. Remains of an earlier store can
 * only be behind the B of the last one, which has written everything in front of it. So the
 * first copy that is whole counts, and none behind one that is there but damaged.
 */
static struct cowsnap_super *choose_second(struct cow_head *head)
{
	unsigned int at;

	for (at = COWSNAP_MIN_BLOCK_BYTES; at <= COWSNAP_MAX_BLOCK_BYTES; at *= 2) {
		if (second_is_right(head, at))
			return head_super(head, at);
		if (has_magic(head_super(head, at)))
			break;
	}
	return NULL;
}

/* The better of the two copies, or NULL. */
static const struct cowsnap_super *choose_super(struct cow_head *head)
{
	struct cowsnap_super *first = head_super(head, 0), *second;
	unsigned int block_bytes;

	if (!super_mend(first, 0))
		return choose_second(head);
	block_bytes = le32_to_cpu(first->block_bytes);
	if (!is_power_of_2(block_bytes) || block_bytes < COWSNAP_MIN_BLOCK_BYTES ||
	    block_bytes > COWSNAP_MAX_BLOCK_BYTES || !second_is_right(head, block_bytes))
		return first;
	second = head_super(head, block_bytes);
	if (memcmp(first->uuid, second->uuid, sizeof(first->uuid)) ||
	    le64_to_cpu(second->sequence) <= le64_to_cpu(first->sequence))
		return first;
	return second;
}

static bool head_is_zero(const struct cow_head *head)
{
	unsigned int bytes = min(head->bytes, ZERO_BYTES);
	unsigned int units = DIV_ROUND_UP(bytes, head->unit_bytes);

	return find_first_bit(head->unreadable, units) == units &&
	       !memchr_inv(head->data, 0, bytes);
}

static bool head_has_magic(struct cow_head *head)
{
	unsigned int at;

	for (at = COWSNAP_MIN_BLOCK_BYTES; at <= COWSNAP_MAX_BLOCK_BYTES; at *= 2)
		if (has_magic(head->data + at))
			return true;
	return has_magic(head->data);
}

static enum cow_content refuse_content(struct block_device *bdev, struct cow_head *head,
				       char **error)
{
	if (!bitmap_empty(head->unreadable, HEAD_SECTORS)) {
		cow_fail(error,
			 "Cannot read the start of store %pg: use another device, or zero its first %u bytes if it is not needed",
			 bdev, HEAD_BYTES);
		return COW_CONTENT_UNREADABLE;
	}
	if (!memcmp(head->data, "SnAp", 4)) {
		cow_fail(error,
			 "Store %pg holds a snapshot of dm-snapshot: let that merge or remove it, or zero 4 KiB",
			 bdev);
		return COW_CONTENT_DM_SNAPSHOT;
	}
	if (head_has_magic(head)) {
		cow_fail(error,
			 "Store %pg: both superblocks are damaged: run cowsnap repair, or zero its first 4 KiB if it is not needed",
			 bdev);
		return COW_CONTENT_DAMAGED;
	}
	cow_fail(error,
		 "Store %pg holds something else: zero its first 4 KiB if it is not needed",
		 bdev);
	return COW_CONTENT_FOREIGN;
}

static enum cow_content probe(struct block_device *bdev, struct cow_head *head,
			      struct cowsnap_super *super, char **error)
{
	const struct cowsnap_super *found;

	head->unit_bytes = bdev_logical_block_size(bdev);
	head->bytes = rounddown(min_t(u64, HEAD_BYTES, bdev_nr_bytes(bdev)),
				head->unit_bytes);
	if (!head->bytes) {
		cow_fail(error,
			 "Store %pg has blocks of %u bytes, at most %u can be: use another device",
			 bdev, head->unit_bytes, HEAD_BYTES);
		return COW_CONTENT_UNREADABLE;
	}
	cow_read_units(bdev, 0, head->data, head->unit_bytes, head->bytes / head->unit_bytes,
		       head->unreadable);
	if (head_is_zero(head))
		return COW_CONTENT_NEW;
	found = choose_super(head);
	if (!found)
		return refuse_content(bdev, head, error);
	*super = *found;
	return COW_CONTENT_STORE;
}

enum cow_content cow_probe(struct block_device *bdev, struct cowsnap_super *super,
			   char **error)
{
	struct cow_head head = { .data = kzalloc(HEAD_BYTES, GFP_KERNEL) };
	enum cow_content content;

	if (!head.data) {
		*error = "Out of memory reading the store: try again";
		return COW_CONTENT_NO_MEMORY;
	}
	content = probe(bdev, &head, super, error);
	kfree(head.data);
	return content;
}

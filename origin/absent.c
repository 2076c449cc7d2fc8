// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: stores that went away while their snapshots lived
 *
 * A persistent store may be closed while its origin stays in use. If the origin is
 * written before the store is opened again, the snapshots in it are no longer whole.
 * This table remembers that, by the uuid of the store, until the module is unloaded.
 */
#include <linux/crc32c.h>
#include <linux/device-mapper.h>
#include <linux/dm-ioctl.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "origin/absent.h"
#include "origin/origin.h"

/*
 * A store that is away. Kept until the module is unloaded; under absent_mutex, except
 * @written.
 */
struct cow_absent {
	struct list_head node;
	u8 uuid[16];
	u64 origin;			/* see cow_origin_identity(); 0: the entry is unused */
	bool written;
};

static LIST_HEAD(absents);

/* Entries are never freed, so writers need no lock; those without origin are reused. */
static struct cow_absent *absent_alloc(void)
{
	struct cow_absent *a;

	list_for_each_entry(a, &absents, node)
		if (!a->origin)
			return a;
	a = kzalloc(sizeof(*a), GFP_KERNEL | __GFP_NOFAIL);
	list_add_tail_rcu(&a->node, &absents);
	return a;
}

/* Guards the list. Taken inside the registry's mutex or origin->admin_lock. */
static DEFINE_MUTEX(absent_mutex);

/*
 * Device mapper gives the number of a removed device to the next one, so a mapped device is
 * known by its uuid as well. All others, and those without a uuid, are known by their number.
 * Never 0. May sleep.
 */
u64 cow_origin_identity(struct block_device *bdev)
{
	struct mapped_device *md = dm_get_md(bdev->bd_dev);
	char name[DM_NAME_LEN], uuid[DM_UUID_LEN] = "";

	if (md) {
		if (dm_copy_name_and_uuid(md, name, uuid))
			uuid[0] = '\0';
		dm_put(md);
	}
	return (u64)crc32c(~0U, uuid, strlen(uuid)) << 32 | bdev->bd_dev;
}

void cow_absent_add(struct cow_origin *o, const u8 *uuid, bool written)
{
	struct cow_absent *a;

	mutex_lock(&absent_mutex);
	a = absent_alloc();
	memcpy(a->uuid, uuid, sizeof(a->uuid));
	WRITE_ONCE(a->written, written);
	WRITE_ONCE(a->origin, o->identity);
	WRITE_ONCE(o->nr_absent, o->nr_absent + 1);
	/* Before the store leaves the origin's list. Pairs with smp_rmb() in go_home(). */
	smp_wmb();
	mutex_unlock(&absent_mutex);
}

bool cow_absent_take(struct cow_origin *o, const u8 *uuid)
{
	struct cow_absent *a;
	bool written = false;

	mutex_lock(&absent_mutex);
	list_for_each_entry(a, &absents, node) {
		if (!a->origin || memcmp(a->uuid, uuid, sizeof(a->uuid)))
			continue;
		written |= READ_ONCE(a->written);
		if (a->origin == o->identity)
			WRITE_ONCE(o->nr_absent, o->nr_absent - 1);
		WRITE_ONCE(a->origin, 0);
	}
	mutex_unlock(&absent_mutex);
	return written;
}

void cow_absent_note_write(struct cow_origin *o)
{
	struct cow_absent *a;

	rcu_read_lock();
	list_for_each_entry_rcu(a, &absents, node)
		if (READ_ONCE(a->origin) == o->identity && !READ_ONCE(a->written))
			WRITE_ONCE(a->written, true);
	rcu_read_unlock();
}

unsigned int cow_absent_count(u64 origin)
{
	struct cow_absent *a;
	unsigned int nr = 0;

	mutex_lock(&absent_mutex);
	list_for_each_entry(a, &absents, node)
		nr += a->origin == origin;
	mutex_unlock(&absent_mutex);
	return nr;
}

void cow_absent_exit(void)
{
	struct cow_absent *a, *next;

	list_for_each_entry_safe(a, next, &absents, node)
		kfree(a);
}

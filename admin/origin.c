// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: origins are made with the first table that names them, and go with the last
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "dm-cowsnap-compat.h"
#include "dm-cowsnap-kcopyd.h"
#include "admin/origin.h"
#include "copy/pending.h"
#include "copy/worker.h"
#include "io/ahead.h"
#include "io/around.h"
#include "io/bio.h"
#include "io/decide.h"
#include "origin/absent.h"
#include "origin/flush.h"
#include "origin/gate.h"
#include "origin/origin.h"
#include "origin/pace.h"
#include "origin/registry.h"
#include "store/error.h"

static void origin_free(struct cow_origin *o)
{
	/* A task that has parked a bio may be on its last lines: they use gate and engine. */
	if (o->room_wq)
		destroy_workqueue(o->room_wq);
	if (o->wq)
		destroy_workqueue(o->wq);
	if (!IS_ERR_OR_NULL(o->engine))
		cow_engine_destroy(o->engine);
	cow_gate_exit(o);
	cow_pieces_exit(&o->pieces);
	cow_pending_free_reserve(o);
	kfree(o->ahead);
	kfree(o->around);
	kfree(o);
}

static void engine_flush_failed(void *context, struct gendisk *disk, blk_opf_t opf,
				blk_status_t status)
{
	cow_flush_failed(context, disk, opf, status);
}

static bool engine_is_waited_for(void *context)
{
	const struct cow_origin *o = context;

	return READ_ONCE(o->nr_waited_for);
}

static const struct cow_engine_ops engine_ops = {
	.hook = cow_copy_work,
	.flush_failed = engine_flush_failed,
	.is_waited_for = engine_is_waited_for,
};

static int origin_init_resources(struct cow_origin *o)
{
	int r;

	r = cow_gate_init(o);
	if (r)
		return r;
	r = cow_pending_reserve(o);
	if (r)
		return r;
	r = cow_pieces_init(&o->pieces);
	if (r)
		return r;
	o->ahead = cow_ahead_alloc();
	o->around = cow_around_alloc();
	if (!o->ahead || !o->around)
		return -ENOMEM;
	o->wq = alloc_workqueue("cowsnap-%u:%u", WQ_MEM_RECLAIM | WQ_UNBOUND, 0,
				MAJOR(o->bdev->bd_dev), MINOR(o->bdev->bd_dev));
	/* Making room shuts the gate, which bios on the other workqueue may hold. */
	o->room_wq = alloc_workqueue("cowsnap-room-%u:%u", WQ_MEM_RECLAIM | WQ_UNBOUND, 0,
				     MAJOR(o->bdev->bd_dev), MINOR(o->bdev->bd_dev));
	if (!o->wq || !o->room_wq)
		return -ENOMEM;
	o->engine = cow_engine_create(o->bdev, &engine_ops, o);
	return PTR_ERR_OR_ZERO(o->engine);
}

static struct cow_origin *origin_create(struct block_device *bdev, char **error)
{
	struct cow_origin *o = kzalloc(sizeof(*o), GFP_KERNEL);

	if (!o) {
		*error = "Out of memory for an origin";
		return ERR_PTR(-ENOMEM);
	}
	o->bdev = bdev;
	o->rotational = bdev_rot(bdev);
	mutex_init(&o->admin_lock);
	INIT_LIST_HEAD(&o->stores);
	INIT_LIST_HEAD(&o->all_stores);
	INIT_LIST_HEAD(&o->flush_stores);
	INIT_LIST_HEAD(&o->tables);
	spin_lock_init(&o->state_lock);
	INIT_LIST_HEAD(&o->held);
	init_waitqueue_head(&o->quiet);
	INIT_LIST_HEAD(&o->deferred);
	spin_lock_init(&o->reads_lock);
	o->reads = RB_ROOT_CACHED;
	INIT_LIST_HEAD(&o->drained);
	INIT_LIST_HEAD(&o->finished);
	INIT_LIST_HEAD(&o->unmapped);
	INIT_LIST_HEAD(&o->meta_work);
	o->identity = cow_origin_identity(bdev);
	o->nr_absent = cow_absent_count(o->identity);
	o->decide_again = cow_bio_run;
	INIT_DELAYED_WORK(&o->decide_work, cow_origin_decide_work);
	INIT_WORK(&o->writeback_work, cow_origin_writeback_work);
	cow_pace_init(&o->pace);
	/* Workqueues have rescuers: a task that is being killed cannot make these. */
	if (origin_init_resources(o)) {
		*error = "No memory for an origin, or the program is being killed";
		origin_free(o);
		return ERR_PTR(-ENOMEM);
	}
	cow_registry_add(o);
	return o;
}

struct cow_origin *cow_origin_get(struct block_device *bdev, char **error)
{
	struct cow_origin *o = cow_origin_find(bdev);

	lockdep_assert_held(&cow_registry_mutex);
	if (o && o->bdev != bdev) {
		cow_fail(error, "Origin %pg was replaced by another device", bdev);
		return ERR_PTR(-EINVAL);
	}
	if (!o && cow_store_find(bdev)) {
		cow_fail(error, "Origin %pg is in use as a store", bdev);
		return ERR_PTR(-EINVAL);
	}
	if (!o)
		o = origin_create(bdev, error);
	if (!IS_ERR(o))
		o->refs++;
	return o;
}

void cow_origin_put(struct cow_origin *o)
{
	lockdep_assert_held(&cow_registry_mutex);
	if (--o->refs)
		return;
	cow_registry_del(o);
	cancel_delayed_work_sync(&o->decide_work);
	cancel_delayed_work_sync(&o->pace.work);
	origin_free(o);
}

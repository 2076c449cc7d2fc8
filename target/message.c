// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: messages
 */
#include <linux/module.h>

#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "admin/snapshots.h"
#include "admin/store.h"
#include "admin/track.h"
#include "admin/tuning.h"
#include "disk/super.h"
#include "io/ahead.h"
#include "io/around.h"
#include "origin/origin.h"
#include "origin/registry.h"
#include "store/options.h"
#include "store/room.h"
#include "store/store.h"
#include "target/device.h"
#include "target/list.h"
#include "target/message.h"
#include "target/options.h"
#include "target/target.h"

static void reset_stats(struct cow_origin *o)
{
	cow_engine_reset_stats(o->engine);
	atomic64_set(&o->held_writes, 0);
	atomic64_set(&o->parked_writes, 0);
	atomic64_set(&o->skipped_discards, 0);
	spin_lock(&o->state_lock);
	cow_ahead_reset_stats(o->ahead);
	cow_around_reset_stats(o->around);
	spin_unlock(&o->state_lock);
	WRITE_ONCE(o->pace.nr_waited, 0);
}

/* The store a message is for: the one that is named, the table's, or the only one. */
static struct cow_store *message_find_store(struct cow_target *ct, const char *name)
{
	struct list_head *stores = &ct->origin->all_stores;
	struct cow_store *store;
	dev_t dev;

	lockdep_assert_held(&cow_registry_mutex);
	if (!name && ct->store)
		return ct->store;
	if (!name)
		return list_is_singular(stores) ?
		       list_first_entry(stores, struct cow_store, all_node) : NULL;
	dev = cow_device_number(name);
	list_for_each_entry(store, stores, all_node)
		if (store->bdev->bd_dev == dev)
			return store;
	return NULL;
}

/* It stays until cow_store_unuse(). */
static struct cow_store *message_get_store(struct cow_target *ct, const char *name)
{
	struct cow_store *store;

	mutex_lock(&cow_registry_mutex);
	store = message_find_store(ct, name);
	if (store)
		cow_store_use(store);
	mutex_unlock(&cow_registry_mutex);
	if (!store)
		DMERR("message: %s%s", name ? "no store of this origin is " :
		      "the origin has no store, or several: name it as the last word",
		      name ?: "");
	return store;
}

static int message_set(struct cow_store *store, char **argv)
{
	struct cow_given options = {};
	char *error = NULL;
	int r = cow_read_option(&error, argv[1], argv[2], &options);

	if (r == -ENOENT) {
		DMERR("message set: \"%s\" is no option of a store", argv[1]);
		return -EINVAL;
	}
	if (r) {
		DMERR("message set %s", error);
		return r;
	}
	return cow_store_set_options(store, &options);
}

static int message_id(char **argv, unsigned int *id)
{
	char *error;
	int r = cow_read_number(&error, argv[0], argv[1], 0, COWSNAP_MAX_SNAPSHOTS - 1, id);

	if (r)
		DMERR("message %s", error);
	return r;
}

static int message_commit(struct cow_store *store)
{
	int r;

	/* All acknowledged writes are committed. This notes it in the superblock. */
	if (!store->meta)
		return 0;
	r = cow_trackers_settle(store);
	return r ?: cow_super_write(store, NULL);
}

static int store_message(struct cow_store *store, char **argv)
{
	unsigned int id;
	int r;

	if (!strcmp(argv[0], "set"))
		return message_set(store, argv);
	if (!strcmp(argv[0], "commit"))
		return message_commit(store);
	if (!strcmp(argv[0], "resize")) {
		cow_store_resize(store);
		return 0;
	}
	r = message_id(argv, &id);
	if (r)
		return r;
	if (!strcmp(argv[0], "create"))
		return cow_store_create_snap(store, id);
	if (!strcmp(argv[0], "track"))
		return cow_store_track_snap(store, id);
	return cow_store_delete_snap(store, id);
}

static const struct {
	const char *word;
	unsigned int argc;
} store_messages[] = {
	{ "set", 3 }, { "create", 2 }, { "delete", 2 }, { "track", 2 }, { "resize", 1 },
	{ "commit", 1 },
};

int cow_target_message(struct dm_target *ti, unsigned int argc, char **argv,
		       char *result, unsigned int maxlen)
{
	struct cow_target *ct = ti->private;
	struct cow_store *store;
	unsigned int i, words;
	int r;

	if (argc == 1 && !strcmp(argv[0], "reset_stats")) {
		reset_stats(ct->origin);
		return 0;
	}
	if (argc == 1 && !strcmp(argv[0], "list")) {
		cow_origin_list(ct->origin, result, maxlen);
		return 1;	/* there is a result */
	}
	/* The throttle is the origin's, so that it needs no store. */
	if (argc == 3 && !strcmp(argv[0], "set") && !strcmp(argv[1], "throttle") &&
	    !ct->store && list_empty(&ct->origin->all_stores)) {
		struct cow_given options = {};
		char *error;

		r = cow_read_option(&error, argv[1], argv[2], &options);
		if (r)
			DMERR("message set %s", error);
		else
			cow_engine_set_throttle(ct->origin->engine, options.value.throttle);
		return r;
	}
	for (i = 0; i < ARRAY_SIZE(store_messages); i++)
		if (!strcmp(argv[0], store_messages[i].word))
			break;
	if (i == ARRAY_SIZE(store_messages)) {
		DMERR("unknown message \"%s\"", argv[0]);
		return -EINVAL;
	}
	words = store_messages[i].argc;
	if (argc != words && argc != words + 1) {
		DMERR("message %s: %u words, not %u", argv[0], argc, words);
		return -EINVAL;
	}
	store = message_get_store(ct, argc > words ? argv[words] : NULL);
	if (!store)
		return -EINVAL;
	r = store_message(store, argv);
	mutex_lock(&cow_registry_mutex);
	cow_store_unuse(store);
	mutex_unlock(&cow_registry_mutex);
	return r;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: messages
 */
#include <linux/module.h>

#include "dm-cowsnap-kcopyd.h"
#include "dm-cowsnap.h"
#include "admin/settle.h"
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
	cow_ahead_reset_stats(o);
	cow_around_reset_stats(o);
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

static int message_create(struct cow_store *store, char **argv)
{
	unsigned int id;
	int r = message_id(argv, &id);

	return r ?: cow_store_create_snap(store, id);
}

static int message_delete(struct cow_store *store, char **argv)
{
	unsigned int id;
	int r = message_id(argv, &id);

	return r ?: cow_store_delete_snap(store, id);
}

static int message_track(struct cow_store *store, char **argv)
{
	unsigned int id;
	int r = message_id(argv, &id);

	return r ?: cow_store_track_snap(store, id);
}

static int message_resize(struct cow_store *store, char **argv)
{
	cow_store_resize(store);
	return 0;
}

static int message_commit(struct cow_store *store, char **argv)
{
	int r;

	/* All acknowledged writes are committed. This notes it in the superblock. */
	if (!store->meta)
		return 0;
	r = cow_trackers_settle(store);
	return r ?: cow_super_write(store, NULL);
}

static int message_settle(struct cow_store *store, char **argv)
{
	return cow_settle_ask(store);
}

static const struct store_message {
	const char *word;
	unsigned int argc;
	int (*run)(struct cow_store *store, char **argv);
} store_messages[] = {
	{ "set", 3, message_set },
	{ "create", 2, message_create },
	{ "delete", 2, message_delete },
	{ "track", 2, message_track },
	{ "resize", 1, message_resize },
	{ "commit", 1, message_commit },
	{ "settle", 1, message_settle },
};

static const struct store_message *find_store_message(const char *word)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(store_messages); i++)
		if (!strcmp(word, store_messages[i].word))
			return &store_messages[i];
	return NULL;
}

/* A message to a store, which may be named as the last word. */
static int message_to_store(struct cow_target *ct, unsigned int argc, char **argv)
{
	const struct store_message *message = find_store_message(argv[0]);
	struct cow_store *store;
	int r;

	if (!message) {
		DMERR("unknown message \"%s\"", argv[0]);
		return -EINVAL;
	}
	if (argc != message->argc && argc != message->argc + 1) {
		DMERR("message %s: %u words, not %u", argv[0], argc, message->argc);
		return -EINVAL;
	}
	store = message_get_store(ct, argc > message->argc ? argv[message->argc] : NULL);
	if (!store)
		return -EINVAL;
	r = message->run(store, argv);
	mutex_lock(&cow_registry_mutex);
	cow_store_unuse(store);
	mutex_unlock(&cow_registry_mutex);
	return r;
}

/* The throttle is the origin's, so that it can be set without a store. */
static bool sets_throttle_alone(const struct cow_target *ct, unsigned int argc, char **argv)
{
	return argc == 3 && !strcmp(argv[0], "set") && !strcmp(argv[1], "throttle") &&
	       !ct->store && list_empty(&ct->origin->all_stores);
}

static int set_throttle(struct cow_origin *o, char **argv)
{
	struct cow_given options = {};
	char *error;
	int r = cow_read_option(&error, argv[1], argv[2], &options);

	if (r)
		DMERR("message set %s", error);
	else
		cow_engine_set_throttle(o->engine, options.value.throttle);
	return r;
}

int cow_target_message(struct dm_target *ti, unsigned int argc, char **argv,
		       char *result, unsigned int maxlen)
{
	struct cow_target *ct = ti->private;

	if (argc == 1 && !strcmp(argv[0], "reset_stats")) {
		reset_stats(ct->origin);
		return 0;
	}
	if (argc == 1 && !strcmp(argv[0], "list")) {
		cow_origin_list(ct->origin, result, maxlen);
		return 1;	/* there is a result */
	}
	if (sets_throttle_alone(ct, argc, argv))
		return set_throttle(ct->origin, argv);
	return message_to_store(ct, argc, argv);
}

// SPDX-License-Identifier: GPL-2.0-only
/* A store is opened and read; what is none is called by what it is. */
#include <inttypes.h>
#include <stdio.h>

#include "loading.h"
#include "say.h"

static const char *kind_trouble(enum store_kind kind)
{
	switch (kind) {
	case STORE_NEW:
		return "no store yet: its first 4 KiB are zero, the kernel will make one";
	case STORE_DM_SNAPSHOT:
		return "a COW device of dm-snapshot, not of dm-cowsnap; nothing done";
	case STORE_NEWER:
		return "made by a newer dm-cowsnap; use the tools of that version";
	case STORE_DAMAGED:
		return "both superblocks are damaged, and with them goes which snapshots there are; "
		       "cowsnap restore makes it anew from a dump";
	case STORE_SHORT:
		return "too short for a store of its sizes; make it as long as it was";
	case STORE_UNREADABLE:
		return "its first sectors cannot be read, and no superblock is left";
	case STORE_NO_MEMORY:
		return "out of memory";
	case STORE_OK:
	case STORE_FOREIGN:
		break;
	}
	return "no store of dm-cowsnap";
}

int say_kind(struct device *dev, const char *path, enum store_kind kind)
{
	char content[32], text[160];

	if (kind == STORE_FOREIGN && dev->io.bytes < 4096)
		snprintf(text, sizeof(text), "no store of dm-cowsnap: it has %" PRIu64
			 " bytes, too few for one", dev->io.bytes);
	else if (kind == STORE_FOREIGN && device_content(dev, content, sizeof(content)))
		snprintf(text, sizeof(text), "no store of dm-cowsnap, it holds %s; nothing done",
			 content);
	else if (kind == STORE_NEW && device_content(dev, content, sizeof(content)))
		snprintf(text, sizeof(text), "no store of dm-cowsnap, it holds %s; since its first "
			 "4 KiB are zero, the kernel would make a store of it", content);
	else
		return cannot(path, kind_trouble(kind));
	return cannot(path, text);
}

int load_store(struct device *dev, struct store *s, const char *path)
{
	enum store_kind kind = store_open(s, &dev->io);

	if (kind != STORE_OK)
		return say_kind(dev, path, kind);
	if (!store_load(s))
		return 0;
	store_close(s);
	return cannot(path, kind_trouble(STORE_NO_MEMORY));
}

int open_store(struct device *dev, struct store *s, const char *path, bool write)
{
	int r;

	if (device_open(dev, path, write))
		return cannot(path, dev->error);
	r = load_store(dev, s, path);
	if (r)
		device_close(dev);
	return r;
}

void close_store(struct device *dev, struct store *s)
{
	store_close(s);
	device_close(dev);
}

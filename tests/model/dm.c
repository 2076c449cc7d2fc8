// SPDX-License-Identifier: GPL-2.0-only
/*
 * The devices of the views. The controller interferes with them often; whatever it asks for
 * must succeed.
 */
#include <stdio.h>
#include <string.h>

#include "dmctl.h"
#include "model.h"

static void must(int ret, const char *what, const struct view *v)
{
	if (ret)
		fail("%s %s: %s", what, v->name, strerror(-ret));
}

void dm_create(struct view *v)
{
	must(dmctl_create(v->name, v->path, sizeof(v->path)), "create", v);
	dm_reload(v);
	dm_resume(v);
}

void dm_remove(const struct view *v)
{
	must(dmctl_remove(v->name), "remove", v);
}

void dm_reload(const struct view *v)
{
	int ret = dmctl_load(v->name, v->table);

	if (ret)
		fail("load '%s' into %s: %s", v->table, v->name, strerror(-ret));
}

void dm_suspend(const struct view *v, u32 flags)
{
	must(dmctl_suspend(v->name, flags), "suspend", v);
}

void dm_resume(const struct view *v)
{
	must(dmctl_resume(v->name, 0), "resume", v);
}

void dm_status(const struct view *v, char *line, size_t size)
{
	must(dmctl_status(v->name, line, size), "status of", v);
}

void dm_message(const struct view *v, const char *message)
{
	int ret = dmctl_message(v->name, message);

	if (ret)
		fail("message '%s' to %s: %s", message, v->name, strerror(-ret));
}

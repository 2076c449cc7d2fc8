// SPDX-License-Identifier: GPL-2.0-only
/* An origin and its store are opened, for commands that change both. */
#include "check.h"
#include "loading.h"
#include "pair.h"
#include "say.h"

static void say_nothing(struct report *r, const char *text)
{
	(void)r;
	(void)text;
}

int pair_open(struct pair *p)
{
	int status;

	if (device_open(&p->origin, p->origin_path, p->write))
		return cannot(p->origin_path, p->origin.error);
	status = open_store(&p->device, &p->s, p->store_path, p->write);
	if (status)
		device_close(&p->origin);
	return status;
}

void pair_close(struct pair *p)
{
	close_store(&p->device, &p->s);
	device_close(&p->origin);
}

bool pair_is_odd(const struct pair *p)
{
	const struct store *s = &p->s;

	return s->bad_epoch || s->super_sequence >= SEQUENCE_LIMIT ||
	       s->durable >= SEQUENCE_LIMIT || s->bad_seal || s->bad_zones;
}

bool pair_is_damaged(struct pair *p)
{
	struct report r = { .line = say_nothing };

	check_store(&p->s, &r);
	return r.lines || pair_is_odd(p);
}

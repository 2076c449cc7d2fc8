// SPDX-License-Identifier: GPL-2.0-only
/* What records of the log have goes into the tables, for good. */
#include <endian.h>

#include "log.h"

/*
 * The block gets slots that are in doubt: it is of a commit that is not known durable from now on,
 * and what else is fresh in it, of earlier ones, is not in doubt.
 */
static void make_unsure(struct store *s, u64 nr)
{
	size_t i;

	if (s->block[nr].marks & BLOCK_UNSURE)
		return;
	for (i = 0; i < s->nr_entries; i++)
		if (!(s->entry[i].marks & ENTRY_LOGGED) && store_block_of(s, s->entry[i].place) == nr)
			s->entry[i].marks &= ~ENTRY_FRESH;
	s->block[nr].marks |= BLOCK_UNSURE;
	s->block[nr].sequence = s->durable + 1;
	if (s->sequence < s->durable + 1)
		s->sequence = s->durable + 1;
}

bool log_into_tables(struct store *s)
{
	bool any = false;
	size_t i;

	for (i = 0; i < s->nr_entries; i++) {
		struct entry *e = &s->entry[i];

		if (!(e->marks & ENTRY_LOGGED) || e->kind == COWSNAP_SLOT_FREE)
			continue;
		/* A table is believed in this: its record had not ended. */
		if (exception_is_current(e) && e->marks & ENTRY_DOUBTED) {
			e->kind = COWSNAP_SLOT_FREE;
			continue;
		}
		if (e->marks & ENTRY_FRESH)
			make_unsure(s, store_block_of(s, e->place));
		store_dirty(s, e->place);
		any = true;
	}
	for (i = 0; i < s->nr_entries; i++)
		s->entry[i].marks &= ~ENTRY_LOGGED;
	for (i = 0; i < COWSNAP_ZONES; i++)
		any |= cowsnap_zone_in_use(&s->super.zone[i]);
	return any;
}

void log_forget_zones(struct store *s)
{
	int i;

	/* No series is given out twice: they stay. */
	for (i = 0; i < (int)COWSNAP_ZONES; i++) {
		s->super.zone[i].start = 0;
		s->super.zone[i].chunks = 0;
		s->super.zone[i].durable = 0;
	}
}

// SPDX-License-Identifier: GPL-2.0-only
/* A store as text or JSON: the same fields in the same order, whatever the form. */
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>

#include "dump.h"
#include "log.h"
#include "track.h"

/* ---- the two forms ---- */

struct writer {
	FILE *out;
	bool json;
	bool comma;		/* something stands before in this object */
	bool item_comma;
	u64 items;
};

static void put_name(struct writer *w, const char *name)
{
	if (!w->json)
		return;
	fprintf(w->out, "%s\"%s\":", w->comma ? "," : "", name);
	w->comma = true;
}

static void put_value(struct writer *w, const char *name, u64 value)
{
	put_name(w, name);
	if (w->json)
		fprintf(w->out, "%" PRIu64, value);
	else
		fprintf(w->out, "%s %" PRIu64 "\n", name, value);
}

static void put_hex(struct writer *w, const char *name, const u8 *bytes, size_t len)
{
	size_t i;

	put_name(w, name);
	if (w->json)
		fputs("\"", w->out);
	else
		fprintf(w->out, "%s ", name);
	for (i = 0; i < len; i++)
		fprintf(w->out, "%02x", bytes[i]);
	fputs(w->json ? "\"" : "\n", w->out);
}

static void begin_list(struct writer *w, const char *name)
{
	if (!w->json)
		return;
	fprintf(w->out, ",\n\"%s\":[", name);
	w->item_comma = false;
}

static void end_list(struct writer *w)
{
	if (w->json)
		fputs("]", w->out);
}

static void begin_item(struct writer *w, const char *name)
{
	if (w->json)
		fputs(w->item_comma ? ",\n{" : "\n{", w->out);
	else
		fputs(name, w->out);
	w->item_comma = true;
	w->comma = false;
	w->items++;
}

static void end_item(struct writer *w)
{
	fputs(w->json ? "}" : "\n", w->out);
}

static void put_field(struct writer *w, const char *name, u64 value)
{
	put_name(w, name);
	if (w->json)
		fprintf(w->out, "%" PRIu64, value);
	else
		fprintf(w->out, " %s %" PRIu64, name, value);
}

static void put_word(struct writer *w, const char *name, const char *word)
{
	put_name(w, name);
	if (w->json)
		fprintf(w->out, "\"%s\"", word);
	else
		fprintf(w->out, " %s %s", name, word);
}

/* ---- what there is to say ---- */

static bool valid(const struct entry *e)
{
	return !(e->marks & (ENTRY_DEAD | ENTRY_BAD_CHUNK | ENTRY_BAD_EPOCH | ENTRY_BEYOND |
			     ENTRY_TWICE));
}

/* Entries that are not valid are not in the dump: snapshots that have them lack them there. */
static u64 lost_epoch(const struct store *s)
{
	u64 lost = exceptions_lost_epoch(s);
	const struct entry *e;
	size_t i;

	for (i = 0; i < s->nr_order; i++) {
		e = &s->entry[s->order[i]];
		if (!valid(e) && !(e->marks & ENTRY_DEAD) && e->epoch > lost)
			lost = e->epoch;
	}
	return lost;
}

static void dump_head(struct writer *w, const struct store *s)
{
	const struct cowsnap_super *super = &s->super;

	if (w->json)
		fputs("{", w->out);
	put_value(w, "cowsnap-dump", DUMP_VERSION);
	put_hex(w, "uuid", super->uuid, sizeof(super->uuid));
	put_value(w, "super_sequence", s->super_sequence);
	put_value(w, "sequence", s->sequence);
	put_value(w, "block_bytes", le32toh(super->block_bytes));
	put_value(w, "chunk_sectors", le32toh(super->chunk_sectors));
	put_value(w, "origin_sectors", le64toh(super->origin_sectors));
	put_value(w, "store_sectors", le64toh(super->store_sectors));
	put_value(w, "blocks", s->blocks);
	put_value(w, "epoch", s->epoch);
	put_value(w, "lost_epoch", lost_epoch(s));
	put_value(w, "merge_id", le32toh(super->merge_id));
	put_value(w, "merge_chunk", le64toh(super->merge_chunk));
	put_value(w, "on_full", le32toh(super->on_full));
	put_value(w, "wait_timeout", le32toh(super->wait_timeout));
	put_value(w, "throttle", le32toh(super->throttle));
	put_value(w, "low_water", le32toh(super->low_water));
	put_value(w, "copy_ahead", le32toh(super->copy_ahead));
	put_value(w, "copy_around", le32toh(super->copy_around));
	/* What older versions do not know is only said of a store that has it. */
	if (super->log)
		put_value(w, "log", le32toh(super->log));
	if (log_series(s))
		put_value(w, "log_series", log_series(s));
	if (super->redirect)
		put_value(w, "redirect", super->redirect);
	if (super->settle)
		put_value(w, "settle", super->settle);
	if (current_is_lost(s))
		put_value(w, "lost_redirected", 1);
	if (super->seal_generation)
		put_value(w, "seal_generation", le32toh(super->seal_generation));
	if (!cowsnap_is_sealed(super) || s->bad_seal)
		return;
	put_value(w, "seal_state", super->seal_state);
	put_value(w, "seal_start", le64toh(super->seal_start));
}

static void dump_records(struct writer *w, const struct store *s)
{
	const struct record *r;
	size_t i;

	begin_list(w, "snapshots");
	for (i = 0; i < s->nr_records; i++) {
		r = &s->record[i];
		/* One that cannot be would only be refused when it is read back. */
		if (r->marks)
			continue;
		begin_item(w, "snapshot");
		put_field(w, "id", r->id);
		/* A dump has no data, and that of a tracker has changed when it is restored. */
		put_word(w, "state", record_state_name(record_is_tracker(r) ?
						       COWSNAP_RECORD_INVALID : r->state));
		put_field(w, "flags", r->flags & COWSNAP_RECORD_WRITTEN);
		put_field(w, "epoch", r->epoch);
		put_field(w, "sectors", r->sectors);
		put_field(w, "time", r->time);
		end_item(w);
	}
	end_list(w);
	begin_list(w, "records");
	for (i = 0; i < s->nr_records_chunks; i++) {
		begin_item(w, "records");
		put_field(w, "number", s->records[i].number);
		put_field(w, "place", s->records[i].place);
		end_item(w);
	}
	end_list(w);
}

/* How many from @at on, in the order of chunks, stand side by side on the store too. */
static size_t run_length(const struct store *s, size_t at)
{
	const struct entry *first = &s->entry[s->order[at]], *e;
	size_t n;

	for (n = 1; n < DUMP_RUN && at + n < s->nr_order; n++) {
		e = &s->entry[s->order[at + n]];
		if (!valid(e) || e->kind != first->kind || e->epoch != first->epoch ||
		    exception_is_unsure(s, e) != exception_is_unsure(s, first) ||
		    e->chunk != first->chunk + n || e->place != first->place + n)
			break;
	}
	return n;
}

static void dump_run(struct writer *w, const struct store *s, size_t at, size_t count)
{
	const struct entry *e = &s->entry[s->order[at]];
	char crcs[DUMP_RUN * 8 + 1];
	size_t i;

	begin_item(w, "exception");
	put_word(w, "kind", kind_name(e->kind));
	put_field(w, "epoch", e->epoch);
	put_field(w, "chunk", e->chunk);
	put_field(w, "count", count);
	put_field(w, "place", e->place);
	if (exception_is_unsure(s, e))
		put_field(w, "fresh", 1);
	if (exception_has_crc(e)) {
		for (i = 0; i < count; i++)
			snprintf(crcs + i * 8, 9, "%08x", s->entry[s->order[at + i]].crc);
		put_word(w, "crc", crcs);
	}
	end_item(w);
}

/* Those of an unfinished commit that only the kernel can judge, one by one. */
static void dump_doubted(struct writer *w, const struct store *s)
{
	const struct entry *e;
	char crc[9];
	size_t i;

	for (i = 0; i < s->nr_entries; i++) {
		e = &s->entry[i];
		/* Of what was redirected the tools know as well as the kernel that it does not count. */
		if (!(e->marks & ENTRY_DOUBTED) || e->epoch > s->epoch || exception_is_current(e))
			continue;
		snprintf(crc, sizeof(crc), "%08x", e->crc);
		begin_item(w, "exception");
		put_word(w, "kind", kind_name(e->kind));
		put_field(w, "epoch", e->epoch);
		put_field(w, "chunk", e->chunk);
		put_field(w, "count", 1);
		put_field(w, "place", e->place);
		put_field(w, "fresh", 1);
		put_word(w, "crc", crc);
		end_item(w);
	}
}

static void dump_exceptions(struct writer *w, const struct store *s)
{
	size_t i, count;

	begin_list(w, "exceptions");
	for (i = 0; i < s->nr_order; i += count) {
		count = 1;
		if (!valid(&s->entry[s->order[i]]))
			continue;
		count = run_length(s, i);
		dump_run(w, s, i, count);
	}
	dump_doubted(w, s);
	end_list(w);
}

int dump_store(const struct store *s, FILE *out, bool json)
{
	struct writer w = { .out = out, .json = json };

	dump_head(&w, s);
	dump_records(&w, s);
	dump_exceptions(&w, s);
	/* JSON that is cut off is none; of text nobody would know. */
	if (json)
		fputs("\n}\n", out);
	else
		put_value(&w, "end", w.items);
	return fflush(out) || ferror(out) ? -1 : 0;
}

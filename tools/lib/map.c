// SPDX-License-Identifier: GPL-2.0-only
/* Mapped devices, through libdevmapper. */
#include <errno.h>
#include <inttypes.h>
#include <libdevmapper.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kmsg.h"
#include "map.h"

/* What libdevmapper complained of last. It has one function for that, not one a handle. */
static __thread char complaint[256];

__attribute__((format(printf, 5, 6)))
static void note_complaint(int level, const char *file, int line, int errnum,
			   const char *format, ...)
{
	va_list args;

	(void)file;
	(void)line;
	(void)errnum;
	if ((level & 7) > 4)
		return;
	va_start(args, format);
	vsnprintf(complaint, sizeof(complaint), format, args);
	va_end(args);
}

int map_init(struct cowsnap *c)
{
	if (geteuid())
		return fail(c, COWSNAP_NO_ACCESS, "only root can look at mapped devices");
	dm_log_with_errno_init(note_complaint);
	return 0;
}

/* ---- tasks ---- */

/* What is done to which device; words for a failure. */
struct step {
	struct cowsnap *c;
	const char *doing;
	const char *name;
	bool makes;		/* a new device */
	bool told;		/* the kernel's log says why it is refused */
};

static int step_failed(const struct step *s, int error, struct kmsg *log)
{
	char why[256];

	if (error == EACCES || error == EPERM)
		return fail(s->c, COWSNAP_NO_ACCESS, "no access to the device mapper");
	/* What others do at the same time is logged as well. */
	if (s->told && kmsg_since(log, why, sizeof(why)))
		return fail(s->c, COWSNAP_REFUSED, "%s \"%s\": the kernel says: %s", s->doing,
			    s->name, why);
	if (error == ENXIO)
		return fail(s->c, COWSNAP_NONE, "there is no device /dev/mapper/%s", s->name);
	if (error == EBUSY && s->makes)
		return fail(s->c, COWSNAP_EXISTS, "there is a device /dev/mapper/%s already", s->name);
	return fail(s->c, error == EBUSY ? COWSNAP_BUSY : COWSNAP_REFUSED, "%s \"%s\": %s",
		    s->doing, s->name, error == EBUSY ? "it is in use" :
		    error ? strerror(error) : complaint);
}

/* Runs the task; frees it if it failed. */
static int run(const struct step *s, struct dm_task *task)
{
	struct kmsg log;
	int error = 0;

	kmsg_mark(&log);
	complaint[0] = '\0';
	if (!dm_task_run(task)) {
		error = dm_task_get_errno(task);
		dm_task_destroy(task);
		error = step_failed(s, error, &log);
	}
	kmsg_close(&log);
	return error;
}

/* NULL: no memory, or no name that a mapped device can have. */
static struct dm_task *new_task(const struct step *s, int type, int *result)
{
	struct dm_task *task;

	complaint[0] = '\0';
	task = dm_task_create(type);
	if (!task) {
		*result = fail(s->c, COWSNAP_NO_ACCESS, "no device mapper: %s", complaint);
		return NULL;
	}
	if (!s->name || dm_task_set_name(task, s->name))
		return task;
	dm_task_destroy(task);
	*result = fail(s->c, COWSNAP_BAD_NAME, "\"%s\" is no name for a mapped device: %s",
		       s->name, complaint[0] ? complaint : "too long, or odd characters");
	return NULL;
}

/* With udev's part in it, which ends before this returns. */
static int run_with_udev(const struct step *s, struct dm_task *task, uint16_t flags)
{
	uint32_t cookie = 0;
	int r;

	if (!dm_task_set_cookie(task, &cookie, flags)) {
		dm_task_destroy(task);
		return fail(s->c, COWSNAP_NO_ACCESS, "%s \"%s\": no semaphore for udev",
			    s->doing, s->name);
	}
	r = run(s, task);
	dm_udev_wait(cookie);
	if (!r)
		dm_task_destroy(task);
	return r;
}

/* ---- reading ---- */

int map_names(struct cowsnap *c, char ***names)
{
	struct step s = { .c = c, .doing = "listing", .name = NULL };
	struct dm_task *task;
	struct dm_names *n;
	size_t nr = 0, bytes = 0;
	char **list, *text;
	int r = 0;

	task = new_task(&s, DM_DEVICE_LIST, &r);
	if (!task)
		return r;
	s.name = "all";
	r = run(&s, task);
	if (r)
		return r;
	n = dm_task_get_names(task);
	for (; n && n->dev; n = n->next ? (void *)((char *)n + n->next) : NULL) {
		nr++;
		bytes += strlen(n->name) + 1;
	}
	list = malloc((nr + 1) * sizeof(*list) + bytes);
	text = (char *)(list + nr + 1);
	nr = 0;
	n = list ? dm_task_get_names(task) : NULL;
	for (; n && n->dev; n = n->next ? (void *)((char *)n + n->next) : NULL) {
		list[nr++] = text;
		text = stpcpy(text, n->name) + 1;
	}
	dm_task_destroy(task);
	if (!list)
		return fail_no_memory(c);
	list[nr] = NULL;
	*names = list;
	return 0;
}

static int add_line(struct map *m, uint64_t start, uint64_t sectors, const char *target,
		    const char *words)
{
	struct map_line *line = realloc(m->line, (m->nr_lines + 1) * sizeof(*line));

	if (!line)
		return -1;
	m->line = line;
	line += m->nr_lines;
	*line = (struct map_line){ start, sectors, strdup(target), strdup(words ? words : "") };
	m->nr_lines++;
	return line->target && line->words ? 0 : -1;
}

static int fill_map(struct cowsnap *c, struct dm_task *task, struct map *m)
{
	const char *uuid = dm_task_get_uuid(task);
	char *target = NULL, *words = NULL;
	struct dm_info info;
	uint64_t start, sectors;
	void *next = NULL;

	if (!dm_task_get_info(task, &info) || !info.exists)
		return fail(c, COWSNAP_NONE, "the device is gone");
	m->major = info.major;
	m->minor = info.minor;
	m->open_count = info.open_count;
	m->suspended = info.suspended;
	m->read_only = info.read_only;
	m->inactive = info.inactive_table;
	snprintf(m->uuid, sizeof(m->uuid), "%s", uuid ? uuid : "");
	do {
		next = dm_get_next_target(task, next, &start, &sectors, &target, &words);
		if (target && add_line(m, start, sectors, target, words))
			return fail_no_memory(c);
	} while (next);
	return 0;
}

static int read_map(struct cowsnap *c, const char *name, int type, struct map *m)
{
	struct step s = { .c = c, .doing = "reading", .name = name };
	struct dm_task *task;
	int r = 0;

	memset(m, 0, sizeof(*m));
	task = new_task(&s, type, &r);
	if (!task)
		return r;
	dm_task_no_flush(task);
	/* So that the key of a volume below is there when its table is moved. */
	dm_task_secure_data(task);
	r = run(&s, task);
	if (r)
		return r;
	r = fill_map(c, task, m);
	dm_task_destroy(task);
	if (r)
		map_free(m);
	return r;
}

/* A device without a table is what a killed program leaves of one that it was making. */
int map_read_table(struct cowsnap *c, const char *name, struct map *m)
{
	int r = read_map(c, name, DM_DEVICE_TABLE, m);

	if (r || m->nr_lines)
		return r;
	map_free(m);
	return fail(c, COWSNAP_NONE, "\"%s\" has no table", name);
}

int map_read_status(struct cowsnap *c, const char *name, struct map *m)
{
	return read_map(c, name, DM_DEVICE_STATUS, m);
}

void map_free(struct map *m)
{
	unsigned int i;

	for (i = 0; i < m->nr_lines; i++) {
		free(m->line[i].target);
		free(m->line[i].words);
	}
	free(m->line);
	m->line = NULL;
	m->nr_lines = 0;
}

void map_one_line(struct map *m, struct map_line *line, uint64_t sectors, const char *target,
		  const char *words)
{
	*line = (struct map_line){ 0, sectors, (char *)target, (char *)words };
	*m = (struct map){ .line = line, .nr_lines = 1 };
}

/* ---- changing ---- */

__attribute__((format(printf, 2, 3)))
static void say(struct cowsnap *c, const char *format, ...)
{
	char text[1200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	c->line(c->data, text);
}

/* A shell's quotes where a name has more than letters. */
static const char *quoted(const char *name, char *text, size_t len)
{
	snprintf(text, len, name[strspn(name, "abcdefghijklmnopqrstuvwxyz"
					      "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@.+:-")] ?
		 "'%s'" : "%s", name);
	return text;
}

/* The lines of a table as dmsetup reads them from its standard input. */
static void say_table(struct cowsnap *c, const char *command, const char *name,
		      const struct map *table, const char *option)
{
	const struct map_line *l = table->line;
	char text[300];
	unsigned int i;

	quoted(name, text, sizeof(text));
	if (table->nr_lines == 1) {
		say(c, "dmsetup %s %s%s --table \"%" PRIu64 " %" PRIu64 " %s %s\"", command, text,
		    option, l->start, l->sectors, l->target, l->words);
		return;
	}
	say(c, "dmsetup %s %s%s <<END", command, text, option);
	for (i = 0; i < table->nr_lines; i++)
		say(c, "%" PRIu64 " %" PRIu64 " %s %s", l[i].start, l[i].sectors, l[i].target,
		    l[i].words);
	say(c, "END");
}

static bool put_table(struct dm_task *task, const struct map *table)
{
	const struct map_line *l = table->line;
	unsigned int i;

	dm_task_secure_data(task);
	for (i = 0; i < table->nr_lines; i++)
		if (!dm_task_add_target(task, l[i].start, l[i].sectors, l[i].target, l[i].words))
			return false;
	return true;
}

/* A device that is nothing yet, and that nobody has open, is in the way of a new one. */
int map_remove_remains(struct cowsnap *c, const char *name)
{
	struct map m;
	bool remains;

	if (read_map(c, name, DM_DEVICE_TABLE, &m))
		return 0;
	remains = !m.nr_lines && !m.open_count;
	map_free(&m);
	return remains ? map_remove(c, name) : 0;
}

int map_create(struct cowsnap *c, const char *name, const struct map *table, int flags)
{
	struct step s = { .c = c, .doing = "making", .name = name, .makes = true,
			  .told = true };
	struct dm_task *task;
	int r = 0;

	if (c->line) {
		say_table(c, "create", name, table, flags & MAP_READ_ONLY ? " --readonly" : "");
		return 0;
	}
	r = map_remove_remains(c, name);
	task = r ? NULL : new_task(&s, DM_DEVICE_CREATE, &r);
	if (!task)
		return r;
	if (!put_table(task, table)) {
		dm_task_destroy(task);
		return fail_no_memory(c);
	}
	if (flags & MAP_READ_ONLY)
		dm_task_set_ro(task);
	return run_with_udev(&s, task, flags & MAP_HIDDEN ? DM_UDEV_DISABLE_DISK_RULES_FLAG |
			     DM_UDEV_DISABLE_OTHER_RULES_FLAG : 0);
}

/* A task that takes no more than a name. */
static int simple(struct cowsnap *c, const char *doing, const char *word, const char *name,
		  int type)
{
	struct step s = { .c = c, .doing = doing, .name = name,
			  .told = type == DM_DEVICE_RESUME };
	struct dm_task *task;
	char text[300];
	int r = 0;

	if (c->line) {
		say(c, "dmsetup %s %s", word, quoted(name, text, sizeof(text)));
		return 0;
	}
	task = new_task(&s, type, &r);
	if (!task)
		return r;
	/* The kernel tells udev nothing of these: who waited for its answer would wait for ever. */
	if (type == DM_DEVICE_SUSPEND || type == DM_DEVICE_CLEAR) {
		r = run(&s, task);
		if (!r)
			dm_task_destroy(task);
		return r;
	}
	if (type == DM_DEVICE_REMOVE)
		dm_task_retry_remove(task);
	return run_with_udev(&s, task, 0);
}

int map_suspend(struct cowsnap *c, const char *name)
{
	return simple(c, "suspending", "suspend", name, DM_DEVICE_SUSPEND);
}

int map_resume(struct cowsnap *c, const char *name)
{
	return simple(c, "resuming", "resume", name, DM_DEVICE_RESUME);
}

int map_remove(struct cowsnap *c, const char *name)
{
	return simple(c, "removing", "remove", name, DM_DEVICE_REMOVE);
}

int map_clear(struct cowsnap *c, const char *name)
{
	return simple(c, "clearing", "clear", name, DM_DEVICE_CLEAR);
}

static int map_load(struct cowsnap *c, const char *name, const struct map *table)
{
	struct step s = { .c = c, .doing = "loading a table into", .name = name, .told = true };
	struct dm_task *task;
	int r = 0;

	if (c->line) {
		say_table(c, "load", name, table, "");
		return 0;
	}
	task = new_task(&s, DM_DEVICE_RELOAD, &r);
	if (!task)
		return r;
	if (!put_table(task, table)) {
		dm_task_destroy(task);
		return fail_no_memory(c);
	}
	r = run(&s, task);
	if (!r)
		dm_task_destroy(task);
	return r;
}

static bool is_same_line(const struct map_line *one, const struct map_line *other)
{
	return one->start == other->start && one->sectors == other->sectors &&
	       !strcmp(one->target, other->target) && !strcmp(one->words, other->words);
}

static bool is_same_table(const struct map *one, const struct map *other)
{
	unsigned int i;

	if (one->nr_lines != other->nr_lines)
		return false;
	for (i = 0; i < one->nr_lines; i++)
		if (!is_same_line(&one->line[i], &other->line[i]))
			return false;
	return true;
}

/*
 * The new table was refused. That may be at the last moment, when it is in force already: then the
 * device is suspended, and stays so until it has a table that can begin.
 */
static void put_back(struct cowsnap *c, const char *name, const struct map *before)
{
	bool is_other = false;
	struct map now;

	map_clear(c, name);
	if (!read_map(c, name, DM_DEVICE_TABLE, &now)) {
		is_other = !is_same_table(&now, before);
		map_free(&now);
	}
	if (is_other && before->nr_lines)
		map_load(c, name, before);
	map_resume(c, name);
}

static int reload(struct cowsnap *c, const char *name, const struct map *table)
{
	char error[sizeof(c->error)];
	struct map before = { 0 };
	int r;

	if (!c->line) {
		/* What a killed command has loaded may hold a snapshot that the new table needs. */
		map_clear(c, name);
		r = read_map(c, name, DM_DEVICE_TABLE, &before);
		if (r)
			return r;
	}
	r = map_load(c, name, table);
	/* The kernel suspends a device that has a table to come, and resumes it with that. */
	if (!r)
		r = map_resume(c, name);
	if (r && !c->line) {
		memcpy(error, c->error, sizeof(error));
		put_back(c, name, &before);
		memcpy(c->error, error, sizeof(error));
	}
	map_free(&before);
	return r;
}

/* A signal that ends the program waits until the device goes on, with one table or the other. */
int map_reload(struct cowsnap *c, const char *name, const struct map *table)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	r = reload(c, name, table);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return r;
}

int map_ask(struct cowsnap *c, const char *name, const char *message, char **answer)
{
	struct step s = { .c = c, .doing = "sending a message to", .name = name, .told = true };
	struct dm_task *task;
	const char *text;
	int r = 0;

	task = new_task(&s, DM_DEVICE_TARGET_MSG, &r);
	if (!task)
		return r;
	if (!dm_task_set_sector(task, 0) || !dm_task_set_message(task, message)) {
		dm_task_destroy(task);
		return fail_no_memory(c);
	}
	r = run(&s, task);
	if (r)
		return r;
	text = dm_task_get_message_response(task);
	*answer = strdup(text ? text : "");
	dm_task_destroy(task);
	return *answer ? 0 : fail_no_memory(c);
}

int map_message(struct cowsnap *c, const char *name, const char *message)
{
	char *answer = NULL, text[300];
	int r;

	if (c->line) {
		say(c, "dmsetup message %s 0 %s", quoted(name, text, sizeof(text)), message);
		return 0;
	}
	r = map_ask(c, name, message, &answer);
	free(answer);
	return r;
}

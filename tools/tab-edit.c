// SPDX-License-Identifier: GPL-2.0-only
/*
 * /etc/cowsnaptab is changed: another file is written, flushed, and renamed. Wherever that is
 * interrupted, the old file is there or the new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "tab.h"

#define BLANKS	" \t"

static const char head[] =
	"# <name> <device> <store> [<option>,...]   see cowsnaptab(5)\n";

struct edit {
	const char *path, *name;
	char new_path[300];
	FILE *in, *out;
	int lock;
	bool found;
};

static bool is_line_of(const char *text, const char *name)
{
	size_t n;

	text += strspn(text, BLANKS);
	n = strcspn(text, BLANKS "\n");
	return n == strlen(name) && !strncmp(text, name, n);
}

/* A renamed directory entry lasts only when the directory is flushed. */
static int sync_directory(const char *path)
{
	char *copy = strdup(path);
	int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, r;

	free(copy);
	r = fd < 0 || fsync(fd) ? -1 : 0;
	if (fd >= 0)
		close(fd);
	return r;
}

/* One writer at a time: the directory is locked, since the file is replaced. */
static int begin(struct edit *e)
{
	char *copy = strdup(e->path);
	struct stat st;

	e->lock = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	free(copy);
	if (e->lock < 0 || flock(e->lock, LOCK_EX))
		return cannot_because(e->path, "%s", strerror(errno));
	snprintf(e->new_path, sizeof(e->new_path), "%s.new", e->path);
	e->in = fopen(e->path, "re");
	if (!e->in && errno != ENOENT)
		return cannot_because(e->path, "%s", strerror(errno));
	e->out = fopen(e->new_path, "we");
	if (!e->out)
		return cannot_because(e->new_path, "%s", strerror(errno));
	fchmod(fileno(e->out), e->in && !fstat(fileno(e->in), &st) ? st.st_mode & 0777 : 0644);
	if (!e->in)
		fputs(head, e->out);
	return 0;
}

static int end(struct edit *e, int r)
{
	if (e->in)
		fclose(e->in);
	if (e->out) {
		if (fflush(e->out) || fsync(fileno(e->out)) || ferror(e->out))
			r = r ? r : cannot_because(e->new_path, "%s", strerror(errno));
		fclose(e->out);
		if (r)
			unlink(e->new_path);
		else if (rename(e->new_path, e->path) || sync_directory(e->path))
			r = cannot_because(e->path, "%s", strerror(errno));
	}
	if (e->lock >= 0)
		close(e->lock);
	return r;
}

/* The line goes through @change, which writes what is to stand there; or @append comes last. */
static int edit(const char *path, const char *name, const char *append,
		void (*change)(FILE *out, char *text, const char *with), const char *with)
{
	struct edit e = { .path = path, .name = name };
	char *text = NULL;
	size_t room = 0;
	int r = begin(&e);

	while (!r && e.in && getline(&text, &room, e.in) >= 0) {
		text[strcspn(text, "\n")] = '\0';
		if (!is_line_of(text, name)) {
			fprintf(e.out, "%s\n", text);
			continue;
		}
		change(e.out, text, with);
		e.found = true;
	}
	free(text);
	if (!r && e.in && ferror(e.in))
		r = cannot_because(path, "%s", strerror(errno));
	if (!r && !e.found && append)
		fprintf(e.out, "%s\n", append);
	return end(&e, r);
}

static void replace(FILE *out, char *text, const char *with)
{
	(void)text;
	fprintf(out, "%s\n", with);
}

static void drop(FILE *out, char *text, const char *with)
{
	(void)out;
	(void)text;
	(void)with;
}

/* WORD=VALUE, or WORD, which takes it away. */
static void put_option(FILE *out, char *text, const char *with)
{
	size_t n = strcspn(with, "=");
	char *field[4] = { NULL }, *word, *rest;
	const char *comma = "";
	int i;

	for (i = 0; i < 4; i++)
		field[i] = strtok(i ? NULL : text, BLANKS);
	rest = field[3] ? strtok(NULL, "") : NULL;
	fprintf(out, "%s\t%s\t%s\t", field[0], field[1] ? field[1] : "", field[2] ? field[2] : "");
	while (field[3] && (word = strsep(&field[3], ","))) {
		if ((!strncmp(word, with, n) && (!word[n] || word[n] == '=')) || !strcmp(word, "-") ||
		    !strcmp(word, "defaults"))
			continue;
		fprintf(out, "%s%s", comma, word);
		comma = ",";
	}
	fprintf(out, "%s%s", with[n] ? comma : *comma ? "" : "-", with[n] ? with : "");
	fprintf(out, "%s%s\n", rest ? " " : "", rest ? rest : "");
}

int tab_put(const char *path, const char *name, const char *line)
{
	return edit(path, name, line, replace, line);
}

int tab_remove(const char *path, const char *name)
{
	return edit(path, name, NULL, drop, NULL);
}

int tab_set_option(const char *path, const char *name, const char *option)
{
	return edit(path, name, NULL, put_option, option);
}

int tab_forget_loss(const char *path, const struct tab_line *l)
{
	int status = l->invalid ? edit(path, l->name, NULL, put_option, "invalid") : 0;

	return status || !l->died ? status : edit(path, l->name, NULL, put_option, "died");
}

// SPDX-License-Identifier: GPL-2.0-only
/* Command lines are taken apart; what is wrong with one is said in a sentence. */
#include <assert.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

/* What getopt_long() returns for the first option of a list. Letters stay below it. */
#define FIRST_OPTION	256
#define OPTION_HELP	(FIRST_OPTION + MAX_OPTIONS)

struct parser {
	struct option longs[MAX_OPTIONS + 2];
	char letters[2 * MAX_OPTIONS + 8];
};

static int nr_options(const struct command *c)
{
	int n = 0;

	while (c->options && c->options[n].name)
		n++;
	assert(n <= MAX_OPTIONS);
	return n;
}

static int option_number(const struct command *c, const char *name)
{
	int i, n = nr_options(c);

	for (i = 0; i < n; i++)
		if (!strcmp(c->options[i].name, name))
			return i;
	return -1;
}

const char *option_value(const struct words *w, const char *name)
{
	int number = option_number(w->command, name);

	return number < 0 ? NULL : w->value[number];
}

bool option_given(const struct words *w, const char *name)
{
	return option_value(w, name);
}

static void parser_init(struct parser *p, const struct command *c)
{
	/* A colon first: what is wrong is returned, not printed. */
	char *letter = p->letters;
	int i, n = nr_options(c);

	memset(p, 0, sizeof(*p));
	*letter++ = ':';
	*letter++ = 'h';
	for (i = 0; i < n; i++) {
		const struct option_text *o = &c->options[i];

		p->longs[i] = (struct option){ o->name, o->arg ? required_argument : no_argument,
					       NULL, FIRST_OPTION + i };
		if (o->letter) {
			*letter++ = o->letter;
			if (o->arg)
				*letter++ = ':';
		}
	}
	p->longs[n] = (struct option){ "help", no_argument, NULL, OPTION_HELP };
}

/* The number of an option, from what getopt_long() returned. */
static int number_of(const struct command *c, int opt)
{
	int i, n = nr_options(c);

	if (opt >= FIRST_OPTION)
		return opt - FIRST_OPTION;
	for (i = 0; i < n; i++)
		if (c->options[i].letter == opt)
			return i;
	return -1;
}

static int bad_option(const struct command *c, int opt, const char *given)
{
	if (opt == ':')
		return cannot_because(c->name, "\"%s\" needs a value; see cowsnap %s --help",
				      given, c->name);
	return cannot_because(c->name, "\"%s\" is no option of it; see cowsnap %s --help",
			      given, c->name);
}

static int bad_count(const struct words *w)
{
	const struct command *c = w->command;

	if (w->nr_words < c->least)
		return cannot_because(c->name, "too few words; usage: cowsnap %s %s", c->name,
				      c->usage);
	return cannot_because(c->name, "\"%s\" is a word too many; usage: cowsnap %s %s",
			      w->word[c->most], c->name, c->usage);
}

int command_run(const struct command *c, int argc, char **argv)
{
	struct words w = { .command = c };
	struct parser p;
	int opt;

	parser_init(&p, c);
	/* A command may run others. */
	optind = 0;
	while ((opt = getopt_long(argc, argv, p.letters, p.longs, NULL)) != -1) {
		if (opt == 'h' || opt == OPTION_HELP) {
			command_help(c);
			return EXIT_CLEAN;
		}
		if (opt == '?' || opt == ':')
			return bad_option(c, opt, argv[optind - 1]);
		w.value[number_of(c, opt)] = optarg ? optarg : "";
	}
	w.word = argv + optind;
	w.nr_words = argc - optind;
	if (w.nr_words < c->least || (c->most >= 0 && w.nr_words > c->most))
		return bad_count(&w);
	return c->run(&w);
}

static void option_help(char letter, const char *name, const char *arg, const char *help)
{
	char left[64], sign[8] = "    ";

	if (letter)
		snprintf(sign, sizeof(sign), "-%c, ", letter);
	snprintf(left, sizeof(left), "%s--%s%s%s", sign, name, arg ? "=" : "", arg ? arg : "");
	printf("  %-24s %s\n", left, help);
}

void command_help(const struct command *c)
{
	int i, n = nr_options(c);

	printf("Usage: cowsnap %s %s\n%s\n\n", c->name, c->usage, c->purpose);
	for (i = 0; i < n; i++)
		option_help(c->options[i].letter, c->options[i].name, c->options[i].arg,
			    c->options[i].help);
	option_help('h', "help", NULL, "print this text");
}

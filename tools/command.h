/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a subcommand of cowsnap is. main.c has the table of all of them; the parser, --help
 * and the tests of the pages go by it.
 */
#ifndef COWSNAP_TOOLS_COMMAND_H
#define COWSNAP_TOOLS_COMMAND_H

#include <stdbool.h>

#include "say.h"

#define MAX_OPTIONS	24

struct option_text {
	const char *name;	/* without its dashes; NULL ends a list */
	char letter;		/* 0: there is none */
	const char *arg;	/* what it takes; NULL: nothing */
	const char *help;	/* one line */
};

struct words;

struct command {
	const char *name;
	const char *usage;	/* what follows the name, in one line */
	const char *purpose;	/* one line, for the list of commands */
	const struct option_text *options;	/* NULL: none but --help */
	int least, most;	/* words that are no options; most < 0: any number */
	int (*run)(const struct words *w);	/* returns an EXIT_ status */
};

/* A command line, taken apart. */
struct words {
	const struct command *command;
	const char *value[MAX_OPTIONS];	/* by option; "" for one that takes nothing */
	char **word;
	int nr_words;
};

/* NULL if it was not given. The last one counts. */
const char *option_value(const struct words *w, const char *name);
bool option_given(const struct words *w, const char *name);

/* Takes @argv apart, where argv[0] is the command's name, and runs it. */
int command_run(const struct command *c, int argc, char **argv);
/* The text of cowsnap COMMAND --help. */
void command_help(const struct command *c);

#endif

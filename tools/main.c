// SPDX-License-Identifier: GPL-2.0-only
/* The cowsnap command: the table of its subcommands. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "diff-command.h"
#include "maintain.h"
#include "receive.h"
#include "send.h"

#define NR(array)	((int)(sizeof(array) / sizeof(*(array))))

/* In the order of --help, of the manual and of the completions. */
static const struct command commands[] = {
	{ "check", "[-q] [-v] [--no-data] STORE", "verify every checksum and every pointer",
	  check_options, 1, 1, command_check },
	{ "dump", "[--json] STORE", "print the metadata of the store as text or JSON",
	  dump_options, 1, 1, command_dump },
	{ "restore", "-i DUMP [--data-from OLDSTORE] [-f] STORE", "write a store from a dump",
	  restore_options, 1, 1, command_restore },
	{ "repair", "[-n] [--invalidate] STORE",
	  "rebuild damaged metadata; invalidate snapshots that lost some",
	  repair_options, 1, 1, command_repair },
	{ "diff", "[--json | --extents] STORE A [B | now]",
	  "list what differs between two snapshots, or since one",
	  diff_options, 2, 3, command_diff },
	{ "send", "[--from A] [OPTION]... STORE B",
	  "write a snapshot, or what has changed since another, as a stream",
	  send_options, 2, 2, command_send },
	{ "receive", "[-f] [OPTION]... TARGET",
	  "make an image, or a newer one, of a stream",
	  receive_options, 1, 1, command_receive },
};

static int help(void)
{
	int i;

	printf("Usage: cowsnap COMMAND [OPTION]... [WORD]...\n"
	       "Snapshots of block devices with dm-cowsnap.\n\n");
	for (i = 0; i < NR(commands); i++)
		printf("  %-11s %s\n", commands[i].name, commands[i].purpose);
	printf("\n"
	       "  -h, --help      print this text; cowsnap COMMAND --help has a command's options\n"
	       "  -V, --version   print the version\n"
	       "\n"
	       "Exit status: 0 done or clean, 1 damage found or repaired, 2 failed.\n"
	       "See cowsnap(8).\n");
	return EXIT_CLEAN;
}

static int version(void)
{
	puts("cowsnap " COWSNAP_VERSION);
	return EXIT_CLEAN;
}

int main(int argc, char **argv)
{
	int i;

	if (argc < 2)
		return cannot("no command", "cowsnap --help lists them");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return help();
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
		return version();
	for (i = 0; i < NR(commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return command_run(&commands[i], argc - 1, argv + 1);
	return cannot_because(argv[1], "there is no such command; cowsnap --help lists them");
}

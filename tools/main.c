// SPDX-License-Identifier: GPL-2.0-only
/* The cowsnap command: the table of its subcommands. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "chart.h"
#include "clone.h"
#include "command.h"
#include "create.h"
#include "diff-command.h"
#include "enable.h"
#include "list.h"
#include "maintain.h"
#include "mounts.h"
#include "receive.h"
#include "remove.h"
#include "rollback.h"
#include "seal-command.h"
#include "send.h"
#include "settle-command.h"
#include "snapshots.h"
#include "tab-command.h"
#include "tune.h"
#include "watch.h"

#define NR(array)	((int)(sizeof(array) / sizeof(*(array))))

/* In the order of --help, of the manual and of the completions. */
static const struct command commands[] = {
	{ "create", "[OPTION]... ORIGIN STORE", "put an origin with a store over a device",
	  create_options, 2, 2, command_create },
	{ "snapshot", "[-g] [--limit=SECONDS] ORIGIN...", "make a snapshot of each origin",
	  snapshot_options, 1, -1, command_snapshot },
	{ "list", "[--json] [ORIGIN|SNAPSHOT]", "list origins, stores and snapshots as a tree",
	  list_options, 0, 1, command_list },
	{ "status", "[--json|--prometheus] [ORIGIN|SNAPSHOT]", "print every counter and option",
	  status_options, 0, 1, command_status },
	{ "watch", "[-i SECONDS] [-c NUMBER] [--json] [ORIGIN]",
	  "print what stores take in, and when they will be full",
	  watch_options, 0, 1, command_watch },
	{ "mount", "[-w] [-o LIST] SNAPSHOT DIRECTORY", "mount a snapshot beside its origin",
	  mount_options, 2, 2, command_mount },
	{ "umount", "[-n] SNAPSHOT|DIRECTORY", "unmount a snapshot", dry_options, 1, 1,
	  command_umount },
	{ "activate", "[-w] SNAPSHOT...", "give snapshots devices in /dev/mapper",
	  activate_options, 1, -1, command_activate },
	{ "deactivate", "[-n] SNAPSHOT...", "take devices from snapshots, which stay",
	  dry_options, 1, -1, command_deactivate },
	{ "delete", "[-t] [-n] SNAPSHOT...", "delete snapshots, or give them up to trackers",
	  delete_options, 1, -1, command_delete },
	{ "rollback", "[-b] [-f] SNAPSHOT", "make the origin what the snapshot shows",
	  rollback_options, 1, 1, command_rollback },
	{ "clone", "[-b] [-f] SNAPSHOT TARGET", "copy a snapshot to a device, a volume of its own",
	  clone_options, 2, 2, command_clone },
	{ "diff", "[--json|--extents] SNAPSHOT [B|now] | STORE A [B|now]",
	  "list what differs between two snapshots, or since one",
	  diff_options, 1, 3, command_diff },
	{ "send", "[--from=A] [OPTION]... SNAPSHOT | STORE B",
	  "write a snapshot, or what has changed since another, as a stream",
	  send_options, 1, 2, command_send },
	{ "receive", "[-f] [OPTION]... TARGET", "make an image, or a newer one, of a stream",
	  receive_options, 1, 1, command_receive },
	{ "set", "[-n] ORIGIN OPTION VALUE [OPTION VALUE]...", "change options of a store",
	  dry_options, 3, -1, command_set },
	{ "resize", "[-n] ORIGIN", "use the room that origin or store have gained",
	  dry_options, 1, 1, command_resize },
	{ "remove", "[-f] [-k] ORIGIN", "take origin and store away; the plain device stays",
	  remove_options, 1, 1, command_remove },
	{ "enable", "[-n] [OPTION]... --store=STORE DEVICE",
	  "give a device snapshots, also one in use, and at each boot",
	  enable_options, 1, 1, command_enable },
	{ "disable", "[-f] [-n] NAME", "give no snapshots any more what enable has given them",
	  disable_options, 1, 1, command_disable },
	{ "tab", "[-w SECONDS] check|start|stop|settle|units|owns [NAME]...",
	  "check, start or stop what /etc/cowsnaptab lists",
	  tab_options, 1, -1, command_tab },
	{ "check", "[-q] [-v] [--no-data] STORE", "verify every checksum and every pointer",
	  check_options, 1, 1, command_check },
	{ "dump", "[--json] STORE", "print the metadata of the store as text or JSON",
	  dump_options, 1, 1, command_dump },
	{ "restore", "-i DUMP [--data-from OLDSTORE] [-f] STORE", "write a store from a dump",
	  restore_options, 1, 1, command_restore },
	{ "repair", "[-n] [--invalidate] [--lose-redirected] STORE",
	  "rebuild damaged metadata; invalidate snapshots that lost some",
	  repair_options, 1, 1, command_repair },
	{ "seal", "[OPTION]... ORIGIN STORE", "keep others from an origin that is used without its store",
	  seal_options, 2, 2, command_seal },
	{ "unseal", "[-n] [OPTION] ORIGIN [STORE]", "take the seal away again",
	  unseal_options, 1, 2, command_unseal },
	{ "settle", "[-n] [-q] [--keep-store] ORIGIN STORE",
	  "bring home what writes have redirected to the store",
	  settle_options, 2, 2, command_settle },
	{ "map", "[-o FILE] STORE", "draw where changed chunks lie, by snapshot, as SVG",
	  map_options, 1, 1, command_map },
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
	       "A SNAPSHOT is ORIGIN@NUMBER, as cowsnap list has it.\n"
	       "Exit status: 0 done or clean, 1 damage or loss found, or repaired, 2 failed.\n"
	       "See cowsnap(8).\n");
	return EXIT_CLEAN;
}

static int version(void)
{
	puts("cowsnap " COWSNAP_VERSION);
	return EXIT_CLEAN;
}

static int run(int argc, char **argv)
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

/*
 * Where a standard descriptor is closed, the next file that is opened would get its number:
 * a store, say, that messages are then written onto. What stands in for it fails as it would.
 */
static bool fill_descriptors(void)
{
	static const int stand_in[] = { O_WRONLY, O_RDONLY, O_WRONLY };
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", stand_in[fd]) != fd)
			return false;
	return true;
}

/* Some filesystems say only at the close that there was no room. */
static bool end_output(void)
{
	bool bad = ferror(stdout);

	errno = 0;
	return !fclose(stdout) && !bad;
}

int main(int argc, char **argv)
{
	int r;

	if (!fill_descriptors())
		return EXIT_CANNOT;
	r = run(argc, argv);
	if (!end_output() && r != EXIT_CANNOT)
		return cannot_because("standard output", "it could not be written%s%s",
				      errno ? ": " : "", errno ? strerror(errno) : "");
	return r;
}

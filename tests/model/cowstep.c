// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stop a program at one of its steps, as a kill or a power cut would.
 *
 * A step is a system call that can change something outside the process: it has just returned when
 * the program is stopped. While it stands still a command may look at what is there. Then the
 * program is killed.
 *
 *	cowstep NUMBER LOOK PROGRAM [ARG...]
 *
 * LOOK goes to the shell; "" for none. Exit status: 0 if the program was stopped, 1 if it had
 * ended before that, 2 if it cannot be done. With the number 0 it runs to its end, and the last line
 * says how many steps it has, then which of them change names. Processes that the program starts are
 * left alone.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static const long steps[] = {
	SYS_write, SYS_pwrite64, SYS_writev, SYS_pwritev, SYS_fsync, SYS_fdatasync, SYS_ioctl,
	SYS_rename, SYS_renameat, SYS_renameat2, SYS_link, SYS_linkat, SYS_symlink, SYS_unlink,
	SYS_unlinkat, SYS_mkdir, SYS_mkdirat, SYS_ftruncate, SYS_fchmod, SYS_wait4,
};

static bool is_step(long number)
{
	size_t i;

	for (i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		if (steps[i] == number)
			return true;
	return false;
}

static bool changes_names(long number)
{
	return number == SYS_rename || number == SYS_renameat || number == SYS_renameat2 ||
	       number == SYS_unlink || number == SYS_unlinkat;
}

static int fail(const char *what)
{
	fprintf(stderr, "cowstep: %s: %s\n", what, strerror(errno));
	return 2;
}

/*
 * Up to the return from step @number; 1: the program has ended, after @seen. The steps that have
 * changed names are in the file @names.
 */
static int go(pid_t pid, long number, long *seen, FILE *names)
{
	struct user_regs_struct regs;
	bool inside = false;
	int status, pass = 0;

	for (;;) {
		if (ptrace(PTRACE_SYSCALL, pid, 0, pass) || waitpid(pid, &status, 0) < 0)
			return fail("ptrace");
		if (WIFEXITED(status) || WIFSIGNALED(status))
			return 1;
		pass = 0;
		if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
			pass = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
			continue;
		}
		inside = !inside;
		if (inside)
			continue;
		if (ptrace(PTRACE_GETREGS, pid, 0, &regs))
			return fail("ptrace");
		if (!is_step(regs.orig_rax))
			continue;
		if (++*seen == number)
			return 0;
		if (changes_names(regs.orig_rax))
			fprintf(names, " %ld", *seen);
	}
}

int main(int argc, char **argv)
{
	long number = argc > 3 ? atol(argv[1]) : -1, seen = 0;
	char *names = NULL;
	size_t len;
	FILE *text = open_memstream(&names, &len);
	int status, r;
	pid_t pid;

	if (number < 0 || !text) {
		fprintf(stderr, "usage: cowstep NUMBER LOOK PROGRAM [ARG...]\n");
		return 2;
	}
	pid = fork();
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execvp(argv[3], argv + 3);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL))
		return fail(argv[3]);
	r = go(pid, number, &seen, text);
	fclose(text);
	if (r == 1 && !number)
		printf("%ld%s\n", seen, names);
	if (r)
		return r;
	if (*argv[2] && system(argv[2]))
		r = 2;
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return r;
}

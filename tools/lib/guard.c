// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guard of suspended devices. It is forked from a program of which nothing is known, so
 * it takes no memory and no lock: it makes the ioctls itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"

static bool resume(int control, const char *name)
{
	struct dm_ioctl io = {
		.version = { DM_VERSION_MAJOR, 0, 0 },
		.data_size = sizeof(io),
		.data_start = sizeof(io),
	};

	strncpy(io.name, name, sizeof(io.name) - 1);
	/* Suspending without the flag that says so is resuming. */
	return !ioctl(control, DM_DEV_SUSPEND, &io);
}

/* Answers the word that all is done, if that comes in time. */
static void watch(int end, int control, const char *const *names, unsigned int nr,
		  unsigned int seconds)
{
	struct pollfd p = { .fd = end, .events = POLLIN };
	char word;
	unsigned int i;

	if (poll(&p, 1, seconds * 1000) == 1 && read(end, &word, 1) == 1) {
		send(end, &word, 1, MSG_NOSIGNAL);
		return;
	}
	for (i = 0; i < nr; i++)
		resume(control, names[i]);
}

int guard_start(struct guard *g, const char *const *names, unsigned int nr,
		unsigned int seconds)
{
	sigset_t all, old;
	int ends[2];

	g->control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	if (g->control < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
		close(g->control);
		return -1;
	}
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	g->pid = fork();
	if (!g->pid) {
		setsid();
		close(ends[1]);
		watch(ends[0], g->control, names, nr, seconds);
		_exit(0);
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	close(ends[0]);
	g->end = ends[1];
	if (g->pid >= 0)
		return 0;
	close(g->control);
	close(g->end);
	return -1;
}

bool guard_resume(const struct guard *g, const char *name)
{
	return resume(g->control, name);
}

bool guard_end(struct guard *g)
{
	bool answered;
	char word;

	/* If it has gone already, there is no answer; a signal about that would end the program. */
	send(g->end, "", 1, MSG_NOSIGNAL);
	answered = recv(g->end, &word, 1, 0) == 1;
	close(g->end);
	close(g->control);
	/* Whoever else has waited for it may have it: the answer has told all. */
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return answered;
}

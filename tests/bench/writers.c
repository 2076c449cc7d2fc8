// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writers with a processor each, for tests/bench/sharing: 4 KiB at random places, O_DIRECT,
 * asynchronous.
 *
 *	writers DEVICE DEPTH STEP GROUP...
 *
 * GROUP is CPU:COUNT:START:LENGTH:TURNS (KiB): writers from that processor on, each with a region
 * of its own, one after the other from START on. Each writes 4 KiB in every STEP of its region, in
 * a random order, so many times; 0: until those of the other groups have ended. Prints how much
 * each group has written.
 *
 * Nothing else is done between the two calls of sethostname() that tell the plugin when.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE		4096
#define MAX_DEPTH	64
#define MAX_WRITERS	64
#define MAX_GROUPS	4

struct writer {
	pthread_t thread;
	unsigned int cpu, group, turns;
	uint64_t start, length;
	uint64_t *place;	/* in the order in which they are written */
	unsigned int nr;
	uint64_t done;
	char *buffer;
	aio_context_t context;
	struct iocb iocb[MAX_DEPTH];
};

static struct writer writers[MAX_WRITERS];
static unsigned int nr_writers, depth;
static uint64_t step;
static int device;
static pthread_barrier_t ready;
static atomic_uint nr_at_work;	/* of those that end by themselves */

/* xorshift: the same on each run. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void prepare(struct writer *w)
{
	uint64_t state = w->start * 2654435761U + 88172645463325252ULL;
	unsigned int i;

	w->nr = w->length / step;
	w->place = calloc(w->nr, sizeof(*w->place));
	w->buffer = aligned_alloc(SIZE, SIZE);
	if (!w->place || !w->buffer)
		errx(1, "no memory");
	for (i = 0; i < SIZE / 8; i++)
		((uint64_t *)w->buffer)[i] = next_random(&state);
	for (i = 0; i < w->nr; i++) {
		unsigned int other = next_random(&state) % (i + 1);

		w->place[i] = w->place[other];
		w->place[other] = w->start + i * step;
	}
	if (syscall(SYS_io_setup, depth, &w->context))
		err(1, "io_setup");
}

static void send_one(struct writer *w, struct iocb *iocb, uint64_t place)
{
	memset(iocb, 0, sizeof(*iocb));
	iocb->aio_lio_opcode = IOCB_CMD_PWRITE;
	iocb->aio_fildes = device;
	iocb->aio_buf = (uintptr_t)w->buffer;
	iocb->aio_nbytes = SIZE;
	iocb->aio_offset = place;
	if (syscall(SYS_io_submit, w->context, 1, &iocb) != 1)
		err(1, "io_submit");
}

static void take_ended(struct writer *w, struct iocb **free, unsigned int *nr_free)
{
	struct io_event events[MAX_DEPTH];
	int i, nr = syscall(SYS_io_getevents, w->context, 1, depth, events, NULL);

	if (nr < 1)
		err(1, "io_getevents");
	for (i = 0; i < nr; i++) {
		if (events[i].res != SIZE)
			errx(1, "a write has failed: %lld", (long long)events[i].res);
		free[(*nr_free)++] = (struct iocb *)(uintptr_t)events[i].obj;
	}
	w->done += nr;
}

static int goes_on(const struct writer *w, uint64_t sent)
{
	return w->turns ? sent < (uint64_t)w->turns * w->nr : atomic_load(&nr_at_work) > 0;
}

static void *write_all(void *data)
{
	struct writer *w = data;
	struct iocb *free[MAX_DEPTH];
	unsigned int nr_free = 0;
	uint64_t sent = 0;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(w->cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "sched_setaffinity");
	prepare(w);
	while (nr_free < depth) {
		free[nr_free] = &w->iocb[nr_free];
		nr_free++;
	}
	pthread_barrier_wait(&ready);
	pthread_barrier_wait(&ready);
	while (goes_on(w, sent)) {
		while (nr_free && goes_on(w, sent))
			send_one(w, free[--nr_free], w->place[sent++ % w->nr]);
		take_ended(w, free, &nr_free);
	}
	while (w->done < sent)
		take_ended(w, free, &nr_free);
	if (w->turns)
		atomic_fetch_sub(&nr_at_work, 1);
	return NULL;
}

static void add_group(unsigned int group, const char *words)
{
	unsigned int cpu, count, turns, i;
	unsigned long long start, length;

	if (sscanf(words, "%u:%u:%llu:%llu:%u", &cpu, &count, &start, &length, &turns) != 5)
		errx(2, "no group: %s", words);
	for (i = 0; i < count && nr_writers < MAX_WRITERS; i++) {
		struct writer *w = &writers[nr_writers++];

		w->cpu = cpu + i;
		w->group = group;
		w->turns = turns;
		w->start = (start + i * length) * 1024;
		w->length = length * 1024;
		nr_at_work += turns > 0;
	}
}

int main(int argc, char **argv)
{
	uint64_t done[MAX_GROUPS] = {};
	unsigned int i;

	if (argc < 5 || argc > 4 + MAX_GROUPS)
		errx(2, "usage: writers DEVICE DEPTH STEP CPU:COUNT:START:LENGTH:TURNS...");
	device = open(argv[1], O_RDWR | O_DIRECT);
	if (device < 0)
		err(1, "%s", argv[1]);
	depth = atoi(argv[2]);
	step = strtoull(argv[3], NULL, 10) * 1024;
	if (!depth || depth > MAX_DEPTH || step < SIZE)
		errx(2, "a depth from 1 to %d, and a step from 4 on", MAX_DEPTH);
	for (i = 4; i < (unsigned int)argc; i++)
		add_group(i - 4, argv[i]);
	pthread_barrier_init(&ready, NULL, nr_writers + 1);
	for (i = 0; i < nr_writers; i++)
		if (pthread_create(&writers[i].thread, NULL, write_all, &writers[i]))
			errx(1, "no thread");
	pthread_barrier_wait(&ready);
	if (sethostname("begin", 5))
		err(1, "sethostname");
	pthread_barrier_wait(&ready);
	for (i = 0; i < nr_writers; i++)
		pthread_join(writers[i].thread, NULL);
	if (sethostname("end", 3))
		err(1, "sethostname");
	for (i = 0; i < nr_writers; i++)
		done[writers[i].group] += writers[i].done;
	for (i = 4; i < (unsigned int)argc; i++)
		printf("%llu\n", (unsigned long long)done[i - 4]);
	return 0;
}

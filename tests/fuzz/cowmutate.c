// SPDX-License-Identifier: GPL-2.0-only
/* cowmutate: damage a store in a file, and say how. */
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mutate.h"

static const char usage[] =
	"Usage: cowmutate --seed N [--count K] IMAGE\n"
	"Damage the store in IMAGE K times (once), as seed N says, and print what was done.\n";

static const struct option options[] = {
	{ "seed", required_argument, NULL, 's' },
	{ "count", required_argument, NULL, 'c' },
	{ NULL, 0, NULL, 0 },
};

static void print(const char *text)
{
	puts(text);
}

static int fail(const char *path)
{
	perror(path);
	return 2;
}

static int damage(const char *path, struct rng *r, unsigned long count)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;
	size_t bytes;
	u8 *data;

	if (fd < 0 || fstat(fd, &st))
		return fail(path);
	bytes = st.st_size;
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return fail(path);
	while (count--)
		bytes = mutate(r, data, bytes, print);
	munmap(data, st.st_size);
	if (bytes != (size_t)st.st_size && ftruncate(fd, bytes))
		return fail(path);
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	struct rng r = { 0 };
	unsigned long count = 1;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 's')
			r.state = strtoull(optarg, NULL, 0);
		else if (opt == 'c')
			count = strtoul(optarg, NULL, 0);
		else
			break;
	}
	if (opt != -1 || optind != argc - 1) {
		fputs(usage, stderr);
		return 2;
	}
	return damage(argv[optind], &r, count);
}

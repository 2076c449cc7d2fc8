// SPDX-License-Identifier: GPL-2.0-only
/* mkstore: a store made up from a seed, as a file. */
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "make.h"

static const char usage[] =
	"Usage: mkstore [OPTION]... FILE\n"
	"Make a store of dm-cowsnap up. FILE is written anew.\n"
	"  --bytes N --block N --chunk SECTORS --origin SECTORS --snapshots N\n"
	"  --exceptions N --seed N --unfinished --logged --sealed --redirected\n"
	"  --plain\n";

static const struct option options[] = {
	{ "bytes", required_argument, NULL, 'b' },
	{ "block", required_argument, NULL, 'B' },
	{ "chunk", required_argument, NULL, 'c' },
	{ "origin", required_argument, NULL, 'o' },
	{ "snapshots", required_argument, NULL, 's' },
	{ "exceptions", required_argument, NULL, 'e' },
	{ "seed", required_argument, NULL, 'S' },
	{ "unfinished", no_argument, NULL, 'u' },
	{ "logged", no_argument, NULL, 'l' },
	{ "sealed", no_argument, NULL, 'a' },
	{ "redirected", no_argument, NULL, 'r' },
	{ "plain", no_argument, NULL, 'p' },
	{ NULL, 0, NULL, 0 },
};

static void set_option(struct make_options *o, size_t *bytes, int opt)
{
	u64 value = optarg ? strtoull(optarg, NULL, 0) : 0;

	switch (opt) {
	case 'b':
		*bytes = value;
		break;
	case 'B':
		o->block_bytes = value;
		break;
	case 'c':
		o->chunk_sectors = value;
		break;
	case 'o':
		o->origin_sectors = value;
		break;
	case 's':
		o->snapshots = value;
		break;
	case 'e':
		o->exceptions = value;
		break;
	case 'S':
		o->seed = value;
		break;
	case 'u':
		o->unfinished = true;
		break;
	case 'l':
		o->logged = true;
		break;
	case 'a':
		o->sealed = true;
		break;
	case 'r':
		o->sealed = true;
		o->redirected = true;
		break;
	case 'p':
		o->plain = true;
		break;
	}
}

static int make_file(const struct make_options *o, const char *path, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	u8 *data;

	if (fd < 0 || ftruncate(fd, bytes)) {
		perror(path);
		return 2;
	}
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED) {
		perror(path);
		return 2;
	}
	if (!make_store(o, data, bytes)) {
		fprintf(stderr, "mkstore: %s: too small, or sizes that cannot be\n", path);
		return 2;
	}
	munmap(data, bytes);
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	struct make_options o = {
		.block_bytes = 4096,
		.chunk_sectors = 16,
		.origin_sectors = 1 << 16,
		.snapshots = 3,
		.exceptions = 200,
		.seed = 1,
	};
	size_t bytes = 4 << 20;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == '?') {
			fputs(usage, stderr);
			return 2;
		}
		set_option(&o, &bytes, opt);
	}
	if (optind != argc - 1) {
		fputs(usage, stderr);
		return 2;
	}
	return make_file(&o, argv[optind], bytes);
}

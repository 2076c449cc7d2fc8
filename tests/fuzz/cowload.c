// SPDX-License-Identifier: GPL-2.0-only
/*
 * cowload: have the kernel open damaged stores, and compare what their snapshots show.
 *
 * The store is a file in memory under a loop device; before each opening it is made
 * whole again and then damaged as the seed says. What a disk does to a store may cost
 * errors, never give wrong data; so may sectors that cannot be read, of which there is one
 * block at each opening, one after the other. After forgeries with right checksums only the end
 * matters: that there is one, and that the kernel has nothing to complain of. Of a store that the
 * kernel refuses, `cowsnap check` has to find something.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../crash/crash.h"
#include "../model/dmctl.h"
#include "mutate.h"

#define CHUNK_BYTES	4096
#define CHUNK_SECTORS	(CHUNK_BYTES / SECTOR_BYTES)
#define NR_SNAPSHOTS	2

static const char usage[] =
	"Usage: cowload --how bits|disk|forge|eio|weak [--seed N] [--count N]\n"
	"               [--from BYTES] [--within BYTES] [--block BYTES] [--private CHUNK]\n"
	"               [--check TOOL] ORIGIN STORE IMAGE1 IMAGE2\n"
	"Open N damaged copies of the file STORE over the device ORIGIN, compare snapshots\n"
	"1 and 2 with their images, and print \"opened refused errors wrong\": how many\n"
	"stores, then chunks. Bits are flipped, and blocks cannot be read, within so many bytes,\n"
	"of which the first is FROM (weak: a block can be read once it was written). CHUNK,\n"
	"written through a snapshot and so without checksum, is not compared. TOOL is the\n"
	"cowsnap command: if the kernel refuses a store and `check` finds nothing, that counts\n"
	"as one wrong chunk.\n";

static const struct option options[] = {
	{ "how", required_argument, NULL, 'h' },
	{ "seed", required_argument, NULL, 's' },
	{ "count", required_argument, NULL, 'c' },
	{ "from", required_argument, NULL, 'f' },
	{ "within", required_argument, NULL, 'w' },
	{ "block", required_argument, NULL, 'b' },
	{ "private", required_argument, NULL, 'p' },
	{ "check", required_argument, NULL, 't' },
	{ }
};

static struct {
	char how;
	u64 seed, count, from, within, private;
	u32 block;
	const char *tool;
} set = { .count = 1, .within = UINT64_MAX, .block = SECTOR_BYTES, .private = UINT64_MAX };

static const char *origin;
static u8 *whole, *image[NR_SNAPSHOTS], *medium, *buffer;
static size_t store_bytes, image_bytes;
static struct loop loop;
static u64 opened, refused, errors, wrong;

void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("cowload: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(2);
}

static u8 *map_file(const char *path, size_t *bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *data;

	if (fd < 0 || fstat(fd, &st))
		fail("%s: %s", path, strerror(errno));
	data = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		fail("%s: %s", path, strerror(errno));
	close(fd);
	*bytes = st.st_size;
	return data;
}

static void flip_bits(struct rng *r)
{
	size_t rest = store_bytes - set.from;
	size_t within = set.within < rest ? set.within : rest;
	u64 nr = 1 + rng_below(r, 8);

	while (nr--)
		medium[set.from + rng_below(r, within)] ^= 1 << rng_below(r, 8);
}

/* What snapshots are made in: the loop device, or what is above it. */
static char store_path[40];

static bool has_lower_device(void)
{
	return set.how == 'e' || set.how == 'w';
}

static int load_unreadable(u64 number)
{
	u32 nr = set.block / SECTOR_BYTES;
	char table[100];

	if (set.how == 'e')
		return dm_load_bad("cowload-store", loop.path, store_bytes / SECTOR_BYTES,
				   number * nr, nr);
	snprintf(table, sizeof(table), "0 %zu dust %s 0 %u", store_bytes / SECTOR_BYTES,
		 loop.path, set.block);
	return dmctl_load("cowload-store", table);
}

static void make_unreadable(u64 number)
{
	char text[40];

	if (load_unreadable(number) || dm_suspend("cowload-store") || dm_resume("cowload-store"))
		fail("no device with a bad block");
	if (set.how == 'e')
		return;
	snprintf(text, sizeof(text), "addbadblock %llu", (unsigned long long)number);
	if (dmctl_message("cowload-store", text) || dmctl_message("cowload-store", "enable"))
		fail("no block that is bad until it is written");
}

static void damage(u64 seed)
{
	struct rng r = { .state = seed };
	size_t left = store_bytes;
	u64 nr;

	memcpy(medium, whole, store_bytes);
	if (has_lower_device()) {
		make_unreadable(set.from / set.block + seed % (set.within / set.block));
		return;
	}
	if (set.how == 'b') {
		flip_bits(&r);
		return;
	}
	for (nr = 1 + rng_below(&r, 2); nr; nr--)
		left = set.how == 'd' ? mutate_as_disk(&r, medium, left, NULL) :
					mutate(&r, medium, left, NULL);
	/* The device does not get shorter; what was cut off reads as zeros. */
	memset(medium + left, 0, store_bytes - left);
}

/* A chunk at a time where not all can be read, or some of it is not right. */
static void compare_chunks(int fd, const u8 *want, u64 seed, u32 id)
{
	u64 chunk, nr_wrong = 0;

	for (chunk = 0; chunk < image_bytes / CHUNK_BYTES; chunk++) {
		u64 at = chunk * CHUNK_BYTES;

		if (chunk == set.private)
			continue;
		if (pread(fd, buffer, CHUNK_BYTES, at) != CHUNK_BYTES)
			errors++;
		else if (set.how != 'f' && memcmp(buffer, want + at, CHUNK_BYTES))
			nr_wrong++;
	}
	if (nr_wrong)
		fprintf(stderr, "seed %llu, snapshot %u: %llu chunks are wrong\n",
			(unsigned long long)seed, id, (unsigned long long)nr_wrong);
	wrong += nr_wrong;
}

static void look_at_snapshot(u64 seed, u32 id)
{
	char path[40];
	int fd;

	if (dm_make("cowload-snap", path, sizeof(path), "%zu cowsnap %s %s P %u 2 id %u",
		    image_bytes / SECTOR_BYTES, origin, store_path, CHUNK_SECTORS, id))
		return;
	fd = open_device(path);
	if (pread(fd, buffer, image_bytes, 0) != (ssize_t)image_bytes ||
	    memcmp(buffer, image[id - 1], image_bytes))
		compare_chunks(fd, image[id - 1], seed, id);
	close(fd);
	dm_remove("cowload-snap");
}

/* Some first writes: room is looked for, and commits are written. */
static void write_origin(const char *path)
{
	int fd = open_device(path);

	memset(buffer, 0, image_bytes / 2);
	if (pwrite(fd, buffer, image_bytes / 2, image_bytes / 3 / CHUNK_BYTES * CHUNK_BYTES) < 0)
		errors++;
	close(fd);
}

/* Was it made for a longer origin? Only the kernel knows how long that is. */
static bool misses_origin(void)
{
	struct image im;
	int copy;

	if (!image_open(&im, medium, store_bytes))
		return false;
	for (copy = 0; copy < 2; copy++)
		if (le64toh(image_super(&im, copy)->origin_sectors) > image_bytes / SECTOR_BYTES)
			return true;
	return false;
}

static int run_check(void)
{
	int status, null;
	pid_t pid;

	/* The medium has changed under the device. */
	if (ioctl(loop.fd, BLKFLSBUF))
		fail("%s: %s", loop.path, strerror(errno));
	pid = fork();
	if (!pid) {
		null = open("/dev/null", O_RDWR);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		execl(set.tool, set.tool, "check", store_path, NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
	    WEXITSTATUS(status) == 127)
		fail("%s check does not end as it should", set.tool);
	return WEXITSTATUS(status);
}

/* Check must not say that all is well with a store that the kernel refuses. */
static void check_refused(u64 seed)
{
	if (!set.tool || misses_origin() || run_check())
		return;
	fprintf(stderr, "seed %llu: refused, and cowsnap check finds nothing\n",
		(unsigned long long)seed);
	wrong++;
}

static void try_store(u64 seed)
{
	char path[40];
	u32 id;

	damage(seed);
	if (dm_make("cowload-origin", path, sizeof(path), "%zu cowsnap-origin %s 2 store %s",
		    image_bytes / SECTOR_BYTES, origin, store_path)) {
		refused++;
		check_refused(seed);
		return;
	}
	opened++;
	for (id = 1; id <= NR_SNAPSHOTS; id++)
		look_at_snapshot(seed, id);
	if (set.how == 'f')
		write_origin(path);
	dm_remove("cowload-origin");
}

static void parse(int argc, char **argv)
{
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		u64 n = optarg && opt != 'h' && opt != 't' ? strtoull(optarg, NULL, 0) : 0;

		switch (opt) {
		case 'h':
			set.how = strchr("bdfew", *optarg) ? *optarg : 0;
			break;
		case 's':
			set.seed = n;
			break;
		case 'c':
			set.count = n;
			break;
		case 'f':
			set.from = n;
			break;
		case 'w':
			set.within = n;
			break;
		case 'b':
			set.block = n;
			break;
		case 'p':
			set.private = n;
			break;
		case 't':
			set.tool = optarg;
			break;
		default:
			set.how = 0;
			optind = argc;
		}
	}
	if (!set.how || argc - optind != 2 + NR_SNAPSHOTS) {
		fputs(usage, stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	u64 i;
	int file;

	parse(argc, argv);
	origin = argv[optind];
	whole = map_file(argv[optind + 1], &store_bytes);
	for (i = 0; i < NR_SNAPSHOTS; i++)
		image[i] = map_file(argv[optind + 2 + i], &image_bytes);
	if (posix_memalign((void **)&buffer, CHUNK_BYTES, image_bytes))
		fail("no memory");
	file = memory_file("store", store_bytes, &medium);
	loop_make(&loop, file, 0, store_bytes, set.block);
	snprintf(store_path, sizeof(store_path), "%s", loop.path);
	if (has_lower_device())
		dm_make("cowload-store", store_path, sizeof(store_path), "%zu linear %s 0",
			store_bytes / SECTOR_BYTES, loop.path);
	for (i = 0; i < set.count; i++)
		try_store(set.seed + i);
	if (has_lower_device())
		dm_remove("cowload-store");
	loop_free(&loop);
	printf("%llu %llu %llu %llu\n", (unsigned long long)opened, (unsigned long long)refused,
	       (unsigned long long)errors, (unsigned long long)wrong);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * cowload: have the kernel open damaged stores, and compare what their snapshots show.
 *
 * The store is a file in memory under a loop device; before each opening it is made
 * whole again and then damaged as the seed says. What a disk does to a store may cost
 * errors, never give wrong data; so may sectors that cannot be read, of which there is one
 * block at each opening, from the start of the store on. After forgeries with right checksums only the end
 * matters: that there is one, and that the kernel has nothing to complain of.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../crash/crash.h"
#include "mutate.h"

#define CHUNK_BYTES	4096
#define CHUNK_SECTORS	(CHUNK_BYTES / SECTOR_BYTES)
#define NR_SNAPSHOTS	2

static const char usage[] =
	"Usage: cowload --how bits|disk|forge|eio [--seed N] [--count N] [--within BYTES]\n"
	"               [--block BYTES] [--private CHUNK] ORIGIN STORE IMAGE1 IMAGE2\n"
	"Open N damaged copies of the file STORE over the device ORIGIN, compare snapshots\n"
	"1 and 2 with their images, and print \"opened refused errors wrong\": how many\n"
	"stores, then chunks. Bits are flipped within so many bytes from the start of the store;\n"
	"CHUNK, written through a snapshot and so without checksum, is not compared.\n";

static const struct option options[] = {
	{ "how", required_argument, NULL, 'h' },
	{ "seed", required_argument, NULL, 's' },
	{ "count", required_argument, NULL, 'c' },
	{ "within", required_argument, NULL, 'w' },
	{ "block", required_argument, NULL, 'b' },
	{ "private", required_argument, NULL, 'p' },
	{ }
};

static struct {
	char how;
	u64 seed, count, within, private;
	u32 block;
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
	size_t within = set.within < store_bytes ? set.within : store_bytes;
	u64 nr = 1 + rng_below(r, 8);

	while (nr--)
		medium[rng_below(r, within)] ^= 1 << rng_below(r, 8);
}

/* What snapshots are made in: the loop device, or what is above it. */
static char store_path[40];

static void make_unreadable(u64 number)
{
	u32 nr = set.block / SECTOR_BYTES;

	if (dm_load_bad("cowload-store", loop.path, store_bytes / SECTOR_BYTES, number * nr, nr) ||
	    dm_suspend("cowload-store") || dm_resume("cowload-store"))
		fail("no device with a bad block");
}

static void damage(u64 seed)
{
	struct rng r = { .state = seed };
	size_t left = store_bytes;
	u64 nr;

	memcpy(medium, whole, store_bytes);
	if (set.how == 'e') {
		make_unreadable(seed % (set.within / set.block));
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

static void try_store(u64 seed)
{
	char path[40];
	u32 id;

	damage(seed);
	if (dm_make("cowload-origin", path, sizeof(path), "%zu cowsnap-origin %s 2 store %s",
		    image_bytes / SECTOR_BYTES, origin, store_path)) {
		refused++;
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
		u64 n = optarg && opt != 'h' ? strtoull(optarg, NULL, 0) : 0;

		switch (opt) {
		case 'h':
			set.how = strchr("bdfe", *optarg) ? *optarg : 0;
			break;
		case 's':
			set.seed = n;
			break;
		case 'c':
			set.count = n;
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
	if (set.how == 'e')
		dm_make("cowload-store", store_path, sizeof(store_path), "%zu linear %s 0",
			store_bytes / SECTOR_BYTES, loop.path);
	for (i = 0; i < set.count; i++)
		try_store(set.seed + i);
	if (set.how == 'e')
		dm_remove("cowload-store");
	loop_free(&loop);
	printf("%llu %llu %llu %llu\n", (unsigned long long)opened, (unsigned long long)refused,
	       (unsigned long long)errors, (unsigned long long)wrong);
	return 0;
}

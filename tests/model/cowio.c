// SPDX-License-Identifier: GPL-2.0-only
/*
 * cowio: what the functional tests do to devices, past the page cache, many
 * steps in one process (starting one takes long in an emulated machine).
 *
 * Random data written to a device can go to a file as well, its image, for the
 * device to be compared with later. "-" stands for no image.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <linux/fs.h>
#include <time.h>
#include <unistd.h>

#define MIB		(1L << 20)
#define MAX_BYTES	(16 * MIB)

static char *buf, *other;
static uint64_t state;

static void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *fmt, ...)
{
	int error = errno;
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(": %s\n", strerror(error));
	exit(1);
}

static char *aligned(size_t bytes)
{
	void *p;

	if (posix_memalign(&p, 4096, bytes))
		die("memory");
	return p;
}

static int open_device(const char *path, int flags)
{
	int fd = open(path, flags | O_DIRECT);

	if (fd < 0)
		die("open %s", path);
	return fd;
}

static int open_image(const char *path, int flags)
{
	int fd;

	if (!strcmp(path, "-"))
		return -1;
	fd = open(path, O_RDWR | O_CREAT | flags, 0600);
	if (fd < 0)
		die("open %s", path);
	return fd;
}

static long device_bytes(int fd, const char *path)
{
	uint64_t bytes;

	if (ioctl(fd, BLKGETSIZE64, &bytes))
		die("size of %s", path);
	return bytes;
}

static long number(const char *word)
{
	char *end;
	long n = strtol(word, &end, 0);

	if (*end || n < 0) {
		printf("not a number: %s\n", word);
		exit(2);
	}
	return n;
}

static long length(const char *word)
{
	long n = number(word);

	if (n > MAX_BYTES) {
		printf("more than %ld bytes at a time: %s\n", MAX_BYTES, word);
		exit(2);
	}
	return n;
}

static void randomize(char *p, long bytes)
{
	uint64_t *word = (uint64_t *)p;
	long i;

	for (i = 0; i < bytes / 8; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		word[i] = state;
	}
}

/* One write(2): a short one is an error of the device. */
static void write_at(int fd, const char *path, long offset, long bytes)
{
	ssize_t done = pwrite(fd, buf, bytes, offset);

	if (done >= 0 && done != bytes)
		errno = ENOSPC;
	if (done != bytes)
		die("write of %ld bytes at %ld of %s", bytes, offset, path);
}

static long read_at(int fd, char *p, const char *path, long offset, long bytes)
{
	ssize_t done = pread(fd, p, bytes, offset);

	if (done < 0)
		die("read of %ld bytes at %ld of %s", bytes, offset, path);
	return done;
}

static void put_random(int fd, int image, const char *path, long offset, long bytes)
{
	randomize(buf, bytes);
	write_at(fd, path, offset, bytes);
	if (image >= 0)
		write_at(image, "the image", offset, bytes);
}

static long piece(long end, long offset, long most)
{
	return end - offset < most ? end - offset : most;
}

/* fill DEV IMAGE */
static int do_fill(int argc, char **argv)
{
	int fd = open_device(argv[0], O_WRONLY);
	int image = open_image(argv[1], O_TRUNC);
	long end = device_bytes(fd, argv[0]);
	long at;

	(void)argc;
	for (at = 0; at < end; at += MIB)
		put_random(fd, image, argv[0], at, piece(end, at, MIB));
	return 0;
}

/* put DEV IMAGE [OFFSET BYTES]...: each pair is one write */
static int do_put(int argc, char **argv)
{
	int fd = open_device(argv[0], O_WRONLY);
	int image = open_image(argv[1], 0);
	int i;

	for (i = 2; i + 1 < argc; i += 2)
		put_random(fd, image, argv[0], number(argv[i]), length(argv[i + 1]));
	return 0;
}

/* letter DEV LETTER [OFFSET BYTES [BYTES_A_WRITE]] */
static int do_letter(int argc, char **argv)
{
	int fd = open_device(argv[0], O_WRONLY);
	long at = argc > 2 ? number(argv[2]) : 0;
	long end = argc > 3 ? at + number(argv[3]) : device_bytes(fd, argv[0]);
	long most = argc > 4 ? length(argv[4]) : argc > 3 ? length(argv[3]) : MIB;

	memset(buf, argv[1][0], MAX_BYTES);
	for (; at < end; at += most)
		write_at(fd, argv[0], at, piece(end, at, most));
	return 0;
}

/* not DEV LETTERS [OFFSET BYTES]: how many bytes are none of these; 0 is \0 */
static int do_not(int argc, char **argv)
{
	int fd = open_device(argv[0], O_RDONLY);
	long at = argc > 2 ? number(argv[2]) : 0;
	long end = argc > 3 ? at + number(argv[3]) : device_bytes(fd, argv[0]);
	char is_one[256] = { 0 };
	long count = 0, got, i;

	for (i = 0; argv[1][i]; i++)
		is_one[argv[1][i] == '0' ? 0 : (unsigned char)argv[1][i]] = 1;
	for (; at < end; at += got) {
		got = read_at(fd, buf, argv[0], at, piece(end, at, MIB));
		if (!got)
			break;
		for (i = 0; i < got; i++)
			count += !is_one[(unsigned char)buf[i]];
	}
	printf("%ld\n", count + end - at);
	return 0;
}

static void report_difference(long at, long bytes)
{
	long first, i, count = 0;

	for (first = 0; buf[first] == other[first]; first++)
		;
	for (i = first; i < bytes; i++)
		count += buf[i] != other[i];
	printf("first difference at byte %ld (sector %ld); %ld bytes differ in this MiB\n",
	       at + first, (at + first) / 512, count);
}

/* same DEV IMAGE */
static int do_same(int argc, char **argv)
{
	int fd = open_device(argv[0], O_RDONLY);
	int image = open_image(argv[1], 0);
	long end = device_bytes(fd, argv[0]);
	long at, bytes;

	(void)argc;
	if (lseek(image, 0, SEEK_END) != end) {
		printf("%s is %ld bytes long, its image is not\n", argv[0], end);
		return 1;
	}
	for (at = 0; at < end; at += bytes) {
		bytes = read_at(fd, buf, argv[0], at, piece(end, at, MIB));
		if (!bytes || read_at(image, other, argv[1], at, bytes) != bytes)
			die("short read at %ld", at);
		if (memcmp(buf, other, bytes)) {
			report_difference(at, bytes);
			return 1;
		}
	}
	return 0;
}

/* image DEV IMAGE: what the device holds now */
static int do_image(int argc, char **argv)
{
	int fd = open_device(argv[0], O_RDONLY);
	int image = open_image(argv[1], O_TRUNC);
	long end = device_bytes(fd, argv[0]);
	long at, bytes;

	(void)argc;
	for (at = 0; at < end; at += bytes) {
		bytes = read_at(fd, buf, argv[0], at, piece(end, at, MIB));
		if (!bytes)
			die("short read at %ld", at);
		write_at(image, argv[1], at, bytes);
	}
	return 0;
}

/* get DEV OFFSET BYTES [BYTES_A_READ]: to standard output */
static int do_get(int argc, char **argv)
{
	int fd = open_device(argv[0], O_RDONLY);
	long at = number(argv[1]);
	long end = at + number(argv[2]);
	long most = argc > 3 ? length(argv[3]) : piece(end, at, MAX_BYTES);
	long got;

	for (; at < end; at += got) {
		got = read_at(fd, buf, argv[0], at, piece(end, at, most));
		if (!got || write(STDOUT_FILENO, buf, got) != got)
			return 1;
	}
	return 0;
}

static ssize_t nowait_io(int fd, char direction, char letter, long offset, long bytes)
{
	struct iovec iov = { buf, bytes };

	memset(buf, letter, bytes);
	if (direction == 'r')
		return preadv2(fd, &iov, 1, offset, RWF_NOWAIT);
	return pwritev2(fd, &iov, 1, offset, RWF_NOWAIT | (direction == 'd' ? RWF_DSYNC : 0));
}

/*
 * nowait DEV IMAGE r|w|d LETTER BYTES OFFSET...: says of each what came of it. What
 * was written goes to the image. d: a write that is to be durable when it ends.
 */
static int do_nowait(int argc, char **argv)
{
	int fd = open_device(argv[0], O_RDWR);
	int image = open_image(argv[1], 0);
	long bytes = length(argv[4]);
	ssize_t done;
	int i;

	for (i = 5; i < argc; i++) {
		done = nowait_io(fd, argv[2][0], argv[3][0], number(argv[i]), bytes);
		if (done == bytes)
			printf("complete\n");
		else
			printf("%s\n", done < 0 ? strerror(errno) : "part");
		if (done == bytes && argv[2][0] != 'r' && image >= 0)
			write_at(image, argv[1], number(argv[i]), bytes);
	}
	return 0;
}

/*
 * twice DEV OFFSET BYTES: one read of two parts, one behind the other, into the same
 * buffer; the buffer to stdout.
 */
static int do_twice(int argc, char **argv)
{
	int fd = open_device(argv[0], O_RDONLY);
	long offset = number(argv[1]), bytes = length(argv[2]);
	struct iovec iov[2] = { { buf, bytes }, { buf, bytes } };

	if (argc != 3 || preadv(fd, iov, 2, offset) != 2 * bytes)
		die("read of %ld bytes twice at %ld of %s", bytes, offset, argv[0]);
	return fwrite(buf, 1, bytes, stdout) != (size_t)bytes;
}

/* pieces DEV LETTER OFFSET BYTES FIRST: one write, of FIRST bytes and the rest; says what came of it */
static int do_pieces(int argc, char **argv)
{
	int fd = open_device(argv[0], O_WRONLY);
	long bytes = length(argv[3]), first = length(argv[4]);
	struct iovec iov[2] = { { buf, first }, { buf + first, bytes - first } };
	ssize_t done;

	if (argc != 5 || first > bytes)
		return 2;
	memset(buf, argv[1][0], bytes);
	done = pwritev(fd, iov, 2, number(argv[2]));
	printf("%s\n", done == bytes ? "complete" : done < 0 ? strerror(errno) : "part");
	return 0;
}

static const struct command {
	const char *name;
	int least;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "fill", 2, do_fill },
	{ "put", 2, do_put },
	{ "letter", 2, do_letter },
	{ "not", 2, do_not },
	{ "same", 2, do_same },
	{ "image", 2, do_image },
	{ "get", 3, do_get },
	{ "nowait", 6, do_nowait },
	{ "twice", 3, do_twice },
	{ "pieces", 5, do_pieces },
};

int main(int argc, char **argv)
{
	size_t i;

	buf = aligned(MAX_BYTES);
	other = aligned(MIB);
	state = time(NULL) * 0x9e3779b97f4a7c15ULL + getpid() * 2654435761ULL + 1;
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (argc > 1 && !strcmp(argv[1], commands[i].name) &&
		    argc - 2 >= commands[i].least)
			return commands[i].run(argc - 2, argv + 2);
	printf("usage: cowio fill|put|letter|not|same|image|get|nowait|twice|pieces DEV ... (see cowio.c)\n");
	return 2;
}

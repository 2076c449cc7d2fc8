// SPDX-License-Identifier: GPL-2.0-only
/* What a target holds, in a file of its own: see receive-state.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc32c.h"
#include "receive-state.h"

#define STATE_DIR	"/var/lib/cowsnap/receive"
#define STATE_BYTES	512

static int make_dirs(void)
{
	static const char *const dirs[] = { "/var/lib/cowsnap", STATE_DIR };
	size_t i;

	for (i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
		if (mkdir(dirs[i], 0755) && errno != EEXIST)
			return -1;
	return 0;
}

/* The name of a device is that by which it is called: what it leads to changes at each boot. */
static int device_path(const char *target, char path[PATH_MAX])
{
	char dir[PATH_MAX] = "", *at = path + sizeof(STATE_DIR);

	if (*target != '/' && !getcwd(dir, sizeof(dir)))
		return -1;
	if (make_dirs())
		return -1;
	if (snprintf(path, PATH_MAX, STATE_DIR "/%s%s%s", dir, *dir ? "/" : "", target) >=
	    PATH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	for (; *at; at++)
		if (*at == '/')
			*at = '!';
	return 0;
}

int receive_state_path(const char *target, bool is_device, char path[PATH_MAX])
{
	if (is_device)
		return device_path(target, path);
	if (snprintf(path, PATH_MAX, "%s.cowsnap", target) < PATH_MAX)
		return 0;
	errno = ENAMETOOLONG;
	return -1;
}

/* ---- text ---- */

static int base_text(const struct stream_what *what, char *text, size_t len)
{
	char uuid[33];

	if (!stream_other_base(what))
		return 0;
	stream_hex(what->from_uuid, sizeof(what->from_uuid), uuid);
	return snprintf(text, len, "base %s\n", uuid);
}

static int kept_text(const struct receive_kept *kept, char *text, size_t len)
{
	char uuid[33];

	if (!kept->epoch)
		return 0;
	stream_hex(kept->uuid, sizeof(kept->uuid), uuid);
	return snprintf(text, len, "snapshot %u epoch %" PRIu64 " store %s\n", kept->id,
			kept->epoch, uuid);
}

static int state_text(const struct receive_state *state, char text[STATE_BYTES])
{
	const struct stream_what *what = &state->what;
	char uuid[33];
	int n;

	stream_hex(what->uuid, sizeof(what->uuid), uuid);
	n = snprintf(text, STATE_BYTES, "cowsnap-received 1\nstore %s\n"
		     "from epoch %" PRIu64 " bytes %" PRIu64 " id %u\n"
		     "to epoch %" PRIu64 " bytes %" PRIu64 " id %u\ntime %" PRIu64 "\n"
		     "whole %u\nposition %" PRIu64 "\nsample %08x\n", uuid,
		     what->from_epoch, what->from_bytes, what->from_id,
		     what->to_epoch, what->to_bytes, what->to_id, what->time,
		     state->whole, state->position, state->sample);
	n += base_text(what, text + n, STATE_BYTES - n);
	n += kept_text(&state->kept, text + n, STATE_BYTES - n);
	return n + snprintf(text + n, STATE_BYTES - n, "crc %08x\n", crc32c(~0U, text, n));
}

/* What does not become the same text again is damaged. */
static void read_base(const char *text, struct stream_what *what)
{
	const char *at = strstr(text, "\nbase ");
	char uuid[33];

	memcpy(what->from_uuid, what->uuid, sizeof(what->uuid));
	if (at && sscanf(at, " base %32[0-9a-f]", uuid) == 1 && strlen(uuid) == 32)
		stream_unhex(uuid, what->from_uuid, sizeof(what->from_uuid));
}

static void read_kept(const char *text, struct receive_kept *kept)
{
	const char *at = strstr(text, "\nsnapshot ");
	char uuid[33];

	if (!at || sscanf(at, " snapshot %" SCNu32 " epoch %" SCNu64 " store %32[0-9a-f]",
			  &kept->id, &kept->epoch, uuid) != 3 ||
	    strlen(uuid) != 32 || !stream_unhex(uuid, kept->uuid, sizeof(kept->uuid)))
		memset(kept, 0, sizeof(*kept));
}

static bool read_text(const char *text, struct receive_state *state)
{
	struct stream_what *what = &state->what;
	char uuid[33], again[STATE_BYTES];
	unsigned int whole;

	if (sscanf(text, "cowsnap-received 1 store %32[0-9a-f] from epoch %" SCNu64 " bytes %"
		   SCNu64 " id %" SCNu32 " to epoch %" SCNu64 " bytes %" SCNu64 " id %" SCNu32
		   " time %" SCNu64 " whole %u position %" SCNu64 " sample %" SCNx32, uuid,
		   &what->from_epoch, &what->from_bytes, &what->from_id, &what->to_epoch,
		   &what->to_bytes, &what->to_id, &what->time, &whole, &state->position,
		   &state->sample) != 11 ||
	    strlen(uuid) != 32 || !stream_unhex(uuid, what->uuid, sizeof(what->uuid)))
		return false;
	state->exists = true;
	state->whole = whole;
	read_base(text, what);
	read_kept(text, &state->kept);
	/* With its crc, or not at all. */
	state_text(state, again);
	return !strcmp(text, again);
}

/* ---- the file ---- */

int receive_state_read(const char *path, struct receive_state *state)
{
	char text[STATE_BYTES] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long n;

	memset(state, 0, sizeof(*state));
	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	n = stream_read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n < 0)
		return -1;
	if (read_text(text, state))
		return 0;
	memset(state, 0, sizeof(*state));
	errno = EBADMSG;
	return -1;
}

static int write_new(const char *path, const char *text, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), r;

	if (fd < 0)
		return -1;
	r = stream_write(fd, text, len) || fsync(fd) ? -1 : 0;
	return close(fd) || r ? -1 : 0;
}

/* A name is durable when its directory is. */
static int sync_directory(const char *path)
{
	char copy[PATH_MAX];
	int fd, r;

	snprintf(copy, sizeof(copy), "%s", path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	r = fsync(fd);
	close(fd);
	return r;
}

int receive_state_write(const char *path, const struct receive_state *state)
{
	char text[STATE_BYTES], new[PATH_MAX];
	int len = state_text(state, text);

	if (snprintf(new, sizeof(new), "%s.new", path) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (write_new(new, text, len) || rename(new, path) || sync_directory(path)) {
		unlink(new);
		return -1;
	}
	return 0;
}

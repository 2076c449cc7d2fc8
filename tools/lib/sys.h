/* SPDX-License-Identifier: GPL-2.0-only */
/* What the system knows of a block device. */
#ifndef LIBCOWSNAP_SYS_H
#define LIBCOWSNAP_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "major:minor" of a block device's node; false: there is none. */
bool sys_number(const char *path, char *number, size_t len);
/* The path that people know it by: /dev/sda2, /dev/mapper/data. @number if there is none. */
const char *sys_path(const char *number, char *path, size_t len);
/* The name of a mapped device; false: it is none. */
bool sys_map_name(const char *number, char *name, size_t len);
bool sys_map_uuid(const char *number, char *uuid, size_t len);
uint64_t sys_sectors(const char *number);
bool sys_read_only(const char *number);
bool sys_rotational(const char *number);
/* A number that the module was loaded with; false: it is not loaded. */
bool sys_module_parameter(const char *name, int *value);
/* Where it is mounted, the first place; false: nowhere. */
bool sys_mounted(const char *number, char *where, size_t len);
/* How many times it is mounted, on @where or, with NULL, anywhere. */
unsigned int sys_mounts(const char *number, const char *where);
/* Is it what was mounted there last? */
bool sys_mounted_on_top(const char *number, const char *where);
/* Does the kernel's command line have this word? With @value: WORD=value, the last. */
bool sys_kernel_word(const char *word, char *value, size_t len);

#endif

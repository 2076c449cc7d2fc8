#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A snapshot of a mounted filesystem in use, ext4 and XFS, mounts and has each
# file as it was, after those files were changed, deleted and replaced.

. "$(dirname "$0")/common.sh"

FILES=300

need mkfs.ext4 mkfs.xfs
plan 14

# make_files DIR PREFIX BYTES: FILES files of BYTES random bytes, in three directories.
make_files()
{
	local dir

	for dir in a b c; do
		mkdir -p "$1/$dir"
		head -c $((FILES * $3 / 3)) /dev/urandom |
			split -b "$3" -a 3 -d - "$1/$dir/$2"
	done
}

sums()
{
	(cd "$1" && find . -type f -print0 | sort -z | xargs -0 md5sum)
}

# Some files are deleted, some written over, new ones made.
change_files()
{
	rm "$1"/a/*[37] "$1"/c/*5 &&
		mv "$1/b" "$1/d" &&
		make_files "$1" file 9000 &&
		make_files "$1" other 20000 &&
		sync -f "$1"
}

mount_view()
{
	mount -t "$1" -o "$2" /dev/mapper/s "$TEST_TMP/view"
}

check_ext4()
{
	e2fsck -fn "$1"
}

check_xfs()
{
	xfs_repair -n "$1"
}

# try TYPE READ_ONLY_OPTIONS READ_WRITE_OPTIONS: seven points.
try()
{
	local type=$1 dir base store

	base=$(mkloop 320M)
	store=$(mkloop 320M)
	origin_up o "$base"
	dir=$(mkmount /dev/mapper/o "$type")
	make_files "$dir" file 17000
	sums "$dir" >"$TEST_TMP/sums"
	# Suspending freezes the filesystem: the snapshot is clean.
	dm suspend o
	snap_up s "$base" "$store" N 32
	dm resume o
	ok "$type: files are changed, deleted, made" change_files "$dir"
	ok "$type: the snapshot mounts read-only" mount_view "$type" "$2"
	is "$(sums "$TEST_TMP/view" | md5sum)" "$(md5sum <"$TEST_TMP/sums")" \
		"$type: each of its $(wc -l <"$TEST_TMP/sums") files is as it was"
	umount "$TEST_TMP/view"
	ok "$type: the snapshot mounts for writing, privately" mount_view "$type" "$3"
	ok "$type: the mounted snapshot is written" change_files "$TEST_TMP/view"
	umount "$TEST_TMP/view"
	ok "$type: the snapshot's filesystem checks clean" "check_$type" /dev/mapper/s
	dmremove s
	_umount "$dir"
	ok "$type: the origin's filesystem checks clean" "check_$type" /dev/mapper/o
	dmremove o
}

mkdir "$TEST_TMP/view"
try ext4 ro rw
try xfs ro,norecovery,nouuid nouuid

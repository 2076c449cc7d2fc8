#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A snapshot of a mounted filesystem in use, ext4 and XFS, mounts and has each
# file as it was, after those files were changed, deleted and replaced.

. "$(dirname "$0")/common.sh"

FILES=300

need mkfs.ext4 mkfs.xfs
plan 12

make_files()
{
	local dir=$1 from=$2 i

	for ((i = from; i < from + FILES; i++)); do
		mkdir -p "$dir/d$((i % 17))"
		head -c $(((i * 7919) % 40000 + 1)) /dev/urandom >"$dir/d$((i % 17))/f$i"
	done
}

sums()
{
	(cd "$1" && find . -type f -print0 | sort -z | xargs -0 md5sum)
}

change_files()
{
	local dir=$1 i

	for ((i = 0; i < FILES; i += 3)); do
		rm "$dir/d$((i % 17))/f$i"
	done
	for ((i = 1; i < FILES; i += 3)); do
		head -c 20000 /dev/urandom >"$dir/d$((i % 17))/f$i"
	done
	make_files "$dir" 1000
	sync -f "$dir"
}

# try TYPE MOUNT_OPTIONS: six points.
try()
{
	local type=$1 options=$2 dir base store

	base=$(mkloop 320M)
	store=$(mkloop 320M)
	origin_up o "$base"
	dir=$(mkmount /dev/mapper/o "$type")
	make_files "$dir" 0
	sums "$dir" >"$TEST_TMP/sums"
	# Suspending freezes the filesystem: the snapshot is clean.
	dm suspend o
	snap_up s "$base" "$store" N 32
	dm resume o
	ok "$type: files are changed, deleted, made" change_files "$dir"
	isnt "$(sums "$dir" | md5sum)" "$(md5sum <"$TEST_TMP/sums")" "$type: the origin is another now"
	ok "$type: the snapshot mounts" mount -t "$type" -o "$options" /dev/mapper/s "$TEST_TMP/view"
	is "$(sums "$TEST_TMP/view" | md5sum)" "$(md5sum <"$TEST_TMP/sums")" \
		"$type: each file in it is as it was"
	umount "$TEST_TMP/view"
	ok "$type: the snapshot's filesystem checks clean" "check_$type" /dev/mapper/s
	dmremove s
	_umount "$dir"
	ok "$type: so does the origin's" "check_$type" /dev/mapper/o
	dmremove o
}

check_ext4()
{
	e2fsck -fn "$1"
}

check_xfs()
{
	xfs_repair -n "$1"
}

mkdir "$TEST_TMP/view"
try ext4 ro
try xfs ro,norecovery,nouuid

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# fio writes and verifies on origin and snapshot over loop devices, RAID10 of
# four of them and dm-stripe, with sectors of 512 and 4096 bytes, and on ext4
# and XFS; the snapshot has the old content each time.

. "$(dirname "$0")/common.sh"

need fio mkfs.ext4 mkfs.xfs

# legs BLOCK: four loop devices.
legs()
{
	local i

	for ((i = 0; i < 4; i++)); do
		mkloop 8M --sector "$1"
	done
}

# The devices under test; each prints the path of one of 16 MiB or about that.
on_loop()
{
	mkloop 16M --sector "$1"
}

on_raid10()
{
	local devices

	mapfile -t devices < <(legs "$1")
	mkmd10 "${devices[@]}"
}

on_stripe()
{
	local devices

	mapfile -t devices < <(legs "$1")
	mkstripe 128 "${devices[@]}"
}

run_fio()
{
	fio --output="$TEST_TMP/fio.log" "$TESTS_DIR/fio/$1.fio" && return
	cat "$TEST_TMP/fio.log"
	return 1
}

# blocks STACK BLOCK CHUNK: four points.
blocks()
{
	local words="$1, $2-byte sectors, chunk $3" base store

	base=$("on_$1" "$2")
	store=$(mkloop 40M --sector "$2")
	fill "$base" "$TEST_TMP/old"
	origin_up o "$base"
	snap_up s "$base" "$store" N "$3"
	export BLOCK=$2 SIZE=4m
	TARGET=/dev/mapper/o ok "$words: the origin verifies" run_fio blocks
	ok "$words: the snapshot has the old data" same /dev/mapper/s "$TEST_TMP/old"
	image /dev/mapper/o "$TEST_TMP/new"
	TARGET=/dev/mapper/s ok "$words: the snapshot verifies" run_fio blocks
	ok "$words: the origin saw nothing of writes to the snapshot" \
		same /dev/mapper/o "$TEST_TMP/new"
	dmremove s
	dmremove o
}

sums()
{
	(cd "$1" && find . -type f -print0 | sort -z | xargs -0 md5sum)
}

# files TYPE BLOCK MOUNT_OPTIONS: three points.
files()
{
	local words="$1, $2-byte sectors" base store dir

	base=$(mkloop 320M --sector "$2")
	store=$(mkloop 320M --sector "$2")
	origin_up o "$base"
	dir=$(mkmount /dev/mapper/o "$1")
	export DIR=$dir
	ok "$words: files verify before there is a snapshot" run_fio files
	sums "$dir" >"$TEST_TMP/sums"
	dm suspend o
	snap_up s "$base" "$store" N 64
	dm resume o
	ok "$words: files verify with a snapshot" run_fio files
	mount -t "$1" -o "$3" /dev/mapper/s "$TEST_TMP/view"
	is "$(sums "$TEST_TMP/view" | md5sum)" "$(md5sum <"$TEST_TMP/sums")" \
		"$words: the snapshot has the files as they were"
	umount "$TEST_TMP/view"
	dmremove s
	_umount "$dir"
	dmremove o
}

plan 36
mkdir "$TEST_TMP/view"
for stack in loop raid10 stripe; do
	blocks "$stack" 512 8
	blocks "$stack" 4096 64
done
files ext4 512 ro
files ext4 4096 ro
files xfs 512 ro,norecovery,nouuid
files xfs 4096 ro,norecovery,nouuid

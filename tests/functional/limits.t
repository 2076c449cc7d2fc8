#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Origin and snapshot have the limits of the devices under them: 512e, 4Kn,
# striped, RAID10; and I/O in the units those limits name is right.

. "$(dirname "$0")/common.sh"

MIB=1048576

# limits DEV: logical and physical block, smallest and best I/O.
limits()
{
	blockdev --getss --getpbsz --getiomin --getioopt "$1" | tr '\n' ' '
}

larger()
{
	echo $(($1 > $2 ? $1 : $2))
}

# A write of one logical block in the middle of a physical one, and a long one.
write_units()
{
	local block

	block=$(block_bytes /dev/mapper/o)
	put /dev/mapper/o "$TEST_TMP/new" "$((MIB + block))" "$block" &&
		put /dev/mapper/o "$TEST_TMP/new" "$((2 * MIB - block))" "$((MIB + 2 * block))"
}

# try WORDS DEV STORE: five points.
try()
{
	local words=$1 base=$2 store=$3

	fill "$base" "$TEST_TMP/old"
	cp "$TEST_TMP/old" "$TEST_TMP/new"
	origin_up o "$base"
	snap_up s "$base" "$store" N 32
	is "$(limits /dev/mapper/o)" "$(limits "$base")" "$words: the origin has its device's limits"
	is "$(block_bytes /dev/mapper/s)" \
		"$(larger "$(block_bytes "$base")" "$(block_bytes "$store")")" \
		"$words: the snapshot's logical block is the larger of the two"
	ok "$words: writes in units of the logical block succeed" write_units
	ok "$words: the origin has those writes" same /dev/mapper/o "$TEST_TMP/new"
	ok "$words: the snapshot has the old data" same /dev/mapper/s "$TEST_TMP/old"
	dmremove s
	dmremove o
}

try_scsi()
{
	local disk

	if ! disk=$(mkscsi dev_size_mb=16 physblk_exp=3); then
		for point in 1 2 3 4 5 6; do
			skip "512e: point $point" "no scsi_debug here"
		done
		return
	fi
	is "$(blockdev --getpbsz "$disk")" 4096 "512e: the disk has physical blocks of 4096 bytes"
	try 512e "$disk" "$store"
}

sizes=(8M 8M 8M 8M)
plan 31
store=$(mkloop 32M)
coarse_store=$(mkloop 32M --sector 4096)
try "512" "$(mkloop 16M)" "$store"
try "4Kn" "$(mkloop 16M --sector 4096)" "$coarse_store"
try "512 with a 4Kn store" "$(mkloop 16M)" "$coarse_store"
legs=()
for size in "${sizes[@]}"; do
	legs+=("$(mkloop "$size")")
done
try "striped" "$(mkstripe 128 "${legs[@]}")" "$store"
legs=()
for size in "${sizes[@]}"; do
	legs+=("$(mkloop "$size")")
done
try "RAID10" "$(mkmd10 "${legs[@]}")" "$store"
try_scsi

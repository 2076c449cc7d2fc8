#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Write-zeroes is a write on both sides: it zeroes what it was asked to and
# nothing else, of any alignment; old chunks of zeros take no room in the store.

. "$(dirname "$0")/common.sh"

MIB=1048576

plan 14

zero()
{
	blkdiscard -z -o "$2" -l "$3" "$1"
}

# The image of a device after zeros at OFFSET.
zero_image()
{
	dd if=/dev/zero of="$1" bs="$3" count=1 seek="$2" oflag=seek_bytes conv=notrunc status=none
}

zero_both()
{
	zero "$1" "$3" "$4" && zero_image "$2" "$3" "$4"
}

has_write_zeroes()
{
	[[ $(<"$(sysfs "$1")/queue/write_zeroes_max_bytes") -gt 0 ]]
}

# A loop device may turn write-zeroes down, and ordinary writes of zeros take its
# place. Where disks do it themselves, it arrives as what it is.
on_disks()
{
	local words="disks that zero themselves"

	if ! base=$(mkscsi dev_size_mb=16 lbpws=1) || ! has_write_zeroes "$base"; then
		for point in 1 2 3 4 5; do
			skip "$words: point $point" "no such disk here"
		done
		return
	fi
	fill "$base" "$TEST_TMP/old"
	cp "$TEST_TMP/old" "$TEST_TMP/new"
	origin_up o "$base"
	snap_up s "$base" "$store" N 8
	ok "$words: zeros over chunks of all sorts" \
		zero_both /dev/mapper/o "$TEST_TMP/new" $((MIB - 1024)) $((3 * MIB))
	ok "$words: zeros over zeros and more" \
		zero_both /dev/mapper/o "$TEST_TMP/new" $MIB $((4 * MIB + 512))
	ok "$words: the origin has the zeros" same /dev/mapper/o "$TEST_TMP/new"
	ok "$words: the snapshot has the old data" same /dev/mapper/s "$TEST_TMP/old"
	zero_both /dev/mapper/s "$TEST_TMP/old" $((2 * MIB + 512)) $((6 * MIB))
	ok "$words: zeros written to the snapshot are there" same /dev/mapper/s "$TEST_TMP/old"
	dmremove s
	dmremove o
}

base=$(mkloop 8M)
store=$(mkloop 24M)
fill "$base" "$TEST_TMP/old"
cp "$TEST_TMP/old" "$TEST_TMP/new"
cp "$TEST_TMP/old" "$TEST_TMP/private"
origin_up o "$base"
snap_up s "$base" "$store" N 32
put /dev/mapper/o "$TEST_TMP/new" $MIB $MIB
ok "zeros over chunks old and new" zero_both /dev/mapper/o "$TEST_TMP/new" $((MIB / 2)) $((2 * MIB))
ok "zeros over parts of chunks" zero_both /dev/mapper/o "$TEST_TMP/new" $((4 * MIB + 512)) 99840
ok "zeros at the end of the device" zero_both /dev/mapper/o "$TEST_TMP/new" $((8 * MIB - 512)) 512
ok "the origin has the zeros" same /dev/mapper/o "$TEST_TMP/new"
ok "the snapshot has the old data" same /dev/mapper/s "$TEST_TMP/old"
zero_both /dev/mapper/s "$TEST_TMP/private" $((MIB / 4)) $((MIB + 1536))
zero_both /dev/mapper/s "$TEST_TMP/private" $((6 * MIB + 1024)) 512
ok "zeros written to the snapshot are there" same /dev/mapper/s "$TEST_TMP/private"
ok "zeros written to the snapshot are not on the origin" same /dev/mapper/o "$TEST_TMP/new"
dmremove s
zero /dev/mapper/o 0 $((8 * MIB))
snap_up s "$base" "$store" N 32
put_letter /dev/mapper/o B 0 $((8 * MIB)) $MIB
ok "a snapshot of zeros reads zeros after an overwrite" all_letter /dev/mapper/s 0
ok "old chunks of zeros take no room" [ "$(used_sectors s)" -lt 1024 ]
dmremove s
dmremove o
on_disks

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Several snapshots of one origin, taken at different times, with different
# chunk sizes and a store each, keep each its own instant; so do the snapshots
# of another origin; removing some harms none of the others.

. "$(dirname "$0")/common.sh"

CHUNKS=(8 32 128 1024)
MIB=1048576

plan 13

# Between two snapshots the origin changes in places old and new.
change_origin()
{
	local round=$1

	put /dev/mapper/o "$TEST_TMP/now" $((round * 3 * MIB)) $((2 * MIB + 512)) \
		$((round * 4096)) 4096 $((round * MIB + 12800)) 66048
}

take_snapshots()
{
	local i store

	for i in "${!CHUNKS[@]}"; do
		store=$(mkloop 24M)
		cp "$TEST_TMP/now" "$TEST_TMP/image$i"
		snap_up "s$i" "$base" "$store" N "${CHUNKS[i]}" || return
		change_origin "$i" || return
	done
}

base=$(mkloop 16M)
base2=$(mkloop 16M)
other=$(mkloop 24M)
fill "$base" "$TEST_TMP/now"
fill "$base2" "$TEST_TMP/second"
origin_up o "$base"
origin_up o2 "$base2"
snap_up t "$base2" "$other" N 16
ok "a snapshot for each chunk size, the origin changing in between" take_snapshots
put_letter /dev/mapper/o2 X 0 $((3 * MIB))
for i in "${!CHUNKS[@]}"; do
	ok "the snapshot with chunk ${CHUNKS[i]} has its instant" same "/dev/mapper/s$i" "$TEST_TMP/image$i"
done
ok "the snapshot of another origin has its instant" same /dev/mapper/t "$TEST_TMP/second"

put /dev/mapper/s1 "$TEST_TMP/image1" 4096 299520
put /dev/mapper/s3 "$TEST_TMP/image3" 8192 512
ok "a snapshot has what was written to it" same /dev/mapper/s1 "$TEST_TMP/image1"
ok "another snapshot has what was written to it" same /dev/mapper/s3 "$TEST_TMP/image3"
ok "a third snapshot sees nothing of writes to the others" same /dev/mapper/s2 "$TEST_TMP/image2"

dmremove s0
dmremove s2
put /dev/mapper/o "$TEST_TMP/now" $((5 * MIB)) $((4 * MIB))
ok "two removed, the first left is whole" same /dev/mapper/s1 "$TEST_TMP/image1"
ok "two removed, the second left is whole" same /dev/mapper/s3 "$TEST_TMP/image3"
dmremove s1
dmremove s3
put /dev/mapper/o "$TEST_TMP/now" 0 $((4 * MIB))
ok "the origin has what was written, all along" same /dev/mapper/o "$TEST_TMP/now"
ok "the origin's own device has what was written" same "$base" "$TEST_TMP/now"

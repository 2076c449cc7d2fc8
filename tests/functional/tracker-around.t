#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Whatever changes the origin is known to its trackers: writes across the ends of regions, large ones,
# discards, zeroes, a merge; with chunks and origins of any size.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/tracker.sh"

tracked_origin 20 16
snapshot_as 1 one
dm message o 0 track 1

write_at 8188 8192
is "$(missed_and_more one o@1)" "0 0" "a write across the end of a region"
write_at 16380 12288 4 4096
is "$(missed_and_more one o@1)" "0 0" "a write into a marked region and one that is not"
write_at $((20 * 1024 - 4)) 4096
is "$(missed_and_more one o@1)" "0 0" "the last chunk"
snapshot_as 2 two
dm message o 0 track 2
write_at 1024 12582912
is "$(missed_and_more two o@2)" "0 0" "a large write over several regions"
is "$(missed one o@1)" 0 "a large write is known to both trackers"
snapshot_as 3 three
dm message o 0 track 3
blkdiscard -z -o 4194304 -l 1048576 /dev/mapper/o
is "$(missed three o@3)" 0 "a tracker knows of zeroes"
blkdiscard -o 12582912 -l 65536 /dev/mapper/o
is "$(missed three o@3)" 0 "a tracker knows of a discard"
again
is "$(missed three o@3)" 0 "a tracker knows of discards after the store was opened again"

# What a merge writes home has changed.
snapshot_as 4 four
write_at 2048 65536 10240 4096
snapshot_as 5 five
dm message o 0 track 5
write_at 300 4096
is "$(missed_and_more five o@5)" "0 0" "a tracker knows of a write before the merge"
dmreload o "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 4"
is_merged()
{
	[[ $(state_of 4) = merged ]]
}
ok "a snapshot is merged" wait_for 60 is_merged
dmreload o "$(origin_table "$base" store "$store")"
dm message o 0 delete 4
image /dev/mapper/o "$TEST_TMP/now"
ok "the origin is what it was" cmp "$TEST_TMP/now" "$TEST_TMP/four"
is "$(missed_and_more five o@5)" "0 1" "a tracker knows what a merge wrote, and one chunk that is as it was"
is "$(missed one o@1)" 0 "the older tracker knows what a merge wrote"

# The origin grows.
truncate -s 24M "$(loop_file "$base")"
losetup -c "$base"
dmreload o "$(origin_table "$base" store "$store")"
write_at 22000 4096
write_at 40 4096
truncate -s 24M "$TEST_TMP/five"
is "$(missed five o@5)" 0 "chunks that the origin has gained count as changed"
for id in 1 2 3 5; do
	dm message o 0 delete $id
done
dmremove o

# Chunks of 512 bytes to 1 MiB, an origin that ends within a region, a block and a chunk.
sizes()
{
	local chunk=$1 kib=$2

	base=$(mkloop "${kib}K")
	store=$(mkloop 24M)
	fill "$base" "$TEST_TMP/unused"
	snap_up first "$base" "$store" P "$chunk"
	origin_up o "$base" store "$store"
	dmremove first
	dm message o 0 delete 0
	snapshot_as 1 one
	write_at 0 4096 8188 8192 $((kib - 4)) 4096
	dm message o 0 track 1
	write_at 4096 65536 $((kib - 64)) 4096
	again
	write_at 4000 4096
}

for size in "1 9220" "16 16388" "128 12292" "2048 17412"; do
	read -r chunk kib <<<"$size"
	sizes "$chunk" "$kib"
	is "$(missed_and_more one o@1)" "0 0" "chunks of $chunk sectors, $kib KiB"
	again
	is "$(missed_and_more one o@1)" "0 0" "after the store was opened again"
	dmremove o
	ok "the store is clean" "$tool" check -q "$store"
done
done_testing

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The two superblocks of a store are never written at once, not even by a commit of slots
# that stand in the same blocks: whatever becomes of one write, the other copy is whole.

. "$(dirname "$0")/common.sh"

MIB=1048576

exact_copies
plan 5

base=$(mkloop 32M --sector 4096)
store=$(mkloop 32M --sector 4096)
fill "$base" "$TEST_TMP/now"
origin_up o "$base"
snap_up s "$base" "$store" P
cp "$TEST_TMP/now" "$TEST_TMP/old"

# Blocks 0 and 1 have 254 slots each: these writes fill both, in commits of many chunks.
trace_start "$store" bio_queue rq_complete || skip_all "no tracing here"
put /dev/mapper/o "$TEST_TMP/now" 0 $((2 * MIB)) $((4 * MIB)) $((2 * MIB))
dmsetup message s 0 commit
dmsetup message s 0 set low_water 50
trace_stop >"$TEST_TMP/trace"

# Writes of sectors 0 to 7 and 8 to 15, and how often one began before the other ended.
awk '
	$2 !~ /W/ || $3 >= 16 || $4 == 0 { next }
	$1 == "bio_queue" {
		if ($3 < 8 && $3 + $4 > 8)
			both++
		else if (flying[$3 >= 8 ? 0 : 1])
			overlaps++
		flying[$3 >= 8 ? 1 : 0]++
		writes[$3 >= 8 ? 1 : 0]++
	}
	$1 == "rq_complete" { flying[$3 >= 8 ? 1 : 0] = 0; if ($3 + $4 > 8) flying[1] = 0 }
	END { print both + 0, overlaps + 0, writes[0] + 0, writes[1] + 0 }' \
	"$TEST_TMP/trace" >"$TEST_TMP/counts"
read -r both overlaps first second <"$TEST_TMP/counts"
diag "writes of A $first, of B $second"
is "$both" 0 "no bio writes both superblocks"
is "$overlaps" 0 "no write of a superblock begins before the other's has ended"
ok "both superblocks have been written several times" test "$first" -gt 2 -a "$second" -gt 2
ok "the snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
dmremove s
snap_up s "$base" "$store" P
ok "the snapshot is right when opened again" same /dev/mapper/s "$TEST_TMP/old"

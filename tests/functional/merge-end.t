#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A merge whose end cannot be written to the record of its snapshot fails and says so. The origin is
# written to meanwhile, and the merge ends once the record can be written, also after a crash.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"

need_target delay
exact_copies
plan 16
MIB=1048576

# merge_table BASE STORE
merge_table()
{
	echo "0 $(sectors "$1") cowsnap-merge $1 $2 P 8 2 id 10"
}

# end_is_noted BASE STORE: a device of the snapshot is refused for that.
end_is_noted()
{
	! dmsetup create y --table "$(snap_table "$1" "$2" P 8 id 10)" 2>/dev/null &&
		kernel_log | tail -n 3 | grep -q 'Snapshot 10 was merged into its origin'
}

base=$(mkloop 16M)
store=$(mkloop 32M)
fill "$base" "$TEST_TMP/now"
dmcreate cow "$(linear_table "$store")"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow P 8 id 1 create
dmreload o "$(origin_table "$base" store /dev/mapper/cow)"
dmremove s
for id in {2..9}; do
	dmsetup message o 0 create "$id"
done
cp "$TEST_TMP/now" "$TEST_TMP/old9"
put /dev/mapper/o "$TEST_TMP/now" $((4 * MIB)) 65536
# It has the tenth record, which is in a chunk of records; a superblock has eight.
dmsetup message o 0 create 10
cp "$TEST_TMP/now" "$TEST_TMP/old10"
put /dev/mapper/o "$TEST_TMP/now" 0 $((2 * MIB)) $((8 * MIB)) $MIB
records=$(store_tool find-place "$(loop_file "$store")" $RECORDS)

# The merge has begun when its table is resumed, and reads nothing before the record is bad. (The
# target error gets no flush, so that all else still can be flushed.)
hold_reads cow "$store"
dmreload o "$(merge_table "$base" /dev/mapper/cow)"
isnt "$(left_of o)" 0 "the merge begins"
swap_table cow "$(partly_table "$store" $((records * 8)) 1 error)"
ok "a write to the origin is acknowledged while the end is tried" \
	put /dev/mapper/o "$TEST_TMP/old10" $((8 * MIB)) 4096
ok "the merge fails" wait_for 60 merge_failed
like "$(kernel_log)" 'merging snapshot 10 into .* failed .* at chunk 4096' \
	"the log says that it failed at its end"
ok "what the snapshot had, and other chunks, are written after that" \
	put /dev/mapper/o "$TEST_TMP/old10" $MIB 4096 $((12 * MIB)) 65536
ok "the origin can be flushed" sync -d /dev/mapper/o
ok "the origin has the snapshot's content and what was written" \
	same /dev/mapper/o "$TEST_TMP/old10"
ok "so has its device" same "$base" "$TEST_TMP/old10"

# A machine that stops now.
cut_base=$(mkloop 16M)
cut_store=$(mkloop 32M)
cp "$(loop_file "$base")" "$(loop_file "$cut_base")"
cp "$(loop_file "$store")" "$(loop_file "$cut_store")"
ok "after a crash the merge goes on" dmcreate x "$(merge_table "$cut_base" "$cut_store")"
ok "after a crash the origin is right" same /dev/mapper/x "$TEST_TMP/old10"
ok "after a crash the merge's end is noted" wait_for 60 end_is_noted "$cut_base" "$cut_store"
dmremove x

swap_table cow "$(linear_table "$store")"
dm suspend o
dmload o "$(merge_table "$base" /dev/mapper/cow)"
ok "with the record good again the table is resumed" dm resume o
ok "the merge ends" wait_for 60 merged
ok "merged, the origin is right" same /dev/mapper/o "$TEST_TMP/old10"
dmremove o
ok "opened again, the snapshot is merged" end_is_noted "$base" /dev/mapper/cow
snap_up s "$base" /dev/mapper/cow P 8 id 9
ok "an earlier snapshot is right" same /dev/mapper/s "$TEST_TMP/old9"
dmremove s
dmremove cow

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Beside a merge: a write to the origin that is under way is not lost to a private copy of its
# chunk, and a merge whose record is lost with a table block is not forgotten.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"

need_target delay
plan 7
exact_copies
MIB=1048576
CHUNK=65536
RECORDS=5		# the kind of a slot that says where records are

# ---- a copy of home beside a write that goes there ----

base=$(mkloop 64M)
store=$(mkloop 96M)
fill_letter "$base" A
dmcreate home "$(delay_table "$base" 0 0)"
dmcreate cow "$(delay_table "$store" 0 0)"
both=$((48 * MIB))	# where chunk c0 begins, then c1: far from where the merge begins
origin_up o /dev/mapper/home
snap_up s /dev/mapper/home /dev/mapper/cow P 128 id 1 create copy_ahead 0 copy_around 0 throttle 1
put_letter /dev/mapper/o X $both $CHUNK
snap_up t /dev/mapper/home /dev/mapper/cow P 128 id 2 create
put_letter /dev/mapper/t M 0 $((24 * MIB))
put_letter /dev/mapper/t M $((60 * MIB)) $((2 * MIB))
dmremove t
dmremove s
dmremove o
dmcreate o "0 $(sectors "$base") cowsnap-merge /dev/mapper/home /dev/mapper/cow P 128 2 id 2"
ok "the merge has begun" wait_for 60 part_is_merged 53240
dmreload cow "$(delay_table "$store" 0 6000)"
dmreload home "$(delay_table "$base" 0 10000)"
put_letter /dev/mapper/o P $((both + CHUNK)) 4096 &
wait_for 20 io_is_in_flight o write
sleep 0.1
put_letter /dev/mapper/o Q $both 4096 &
wait_for 20 io_is_in_flight home write
put_letter /dev/mapper/o R $((both + 4096)) $((2 * CHUNK - 4096))
wait
dmreload cow "$(delay_table "$store" 0 0)"
dmreload home "$(delay_table "$base" 0 0)"
ok "a write that went home beside others is there" all_letter /dev/mapper/o Q $both 4096
ok "what was written after a write that went home is there" \
	all_letter /dev/mapper/o R $((both + 4096)) $((CHUNK - 4096))
dmremove o
dmremove home
dmremove cow

# ---- a table block is lost that says where records are ----

base=$(mkloop 16M)
store=$(mkloop 32M)
fill_letter "$base" A
origin_up o "$base"
snap_up s "$base" "$store" P 8 id 1 create throttle 1
dmreload o "$(origin_table "$base" store "$store")"
dmremove s
for id in 2 3 4 5 6 7 8 9 10; do
	dmsetup message o 0 create "$id"
done
put_letter /dev/mapper/o B 0 $((8 * MIB))
dmremove o
dmcreate o "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 10"
ok "records: a merge is under way" wait_for 60 part_is_merged 16384
dmremove o
blockdev --flushbufs "$store"
ok "records: the table block that says where they are is lost" \
	store_tool spoil-block "$(loop_file "$store")" $RECORDS
not_ok "records: the merge does not go on without its record" \
	dmsetup create o --table "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 10"
not_ok "records: the origin, which is half merged, is not shown" \
	dmsetup create o --table "$(origin_table "$base" store "$store")"
dmsetup remove o 2>/dev/null || true

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Beside a merge the room of a deleted snapshot is not given back while a write to the store
# hangs, and is given back when that has ended.

. "$(dirname "$0")/common.sh"

need_target delay
MIB=1048576
HANGS_MS=300000	# longer than a reclaim waits, by far
FIRST_DATA=8	# where the store's data begins
DELETED=$((MIB / 512))

plan 6
exact_copies

# Superblocks and records are written at once, and flushes too.
data_hangs()
{
	echo "0 $FIRST_DATA linear $store 0"
	echo "$FIRST_DATA $(($(sectors "$store") - FIRST_DATA)) delay $store $FIRST_DATA 0" \
		"$store $FIRST_DATA $HANGS_MS $store $FIRST_DATA 0"
}

store_used()
{
	used_sectors u
}

drain_has_failed()
{
	kernel_log | grep -q 'writes under way did not end within'
}

has_room_back()
{
	(($(store_used) <= before - DELETED))
}

base=$(mkloop 8M)
store=$(mkloop 24M)
fill_letter "$base" A
dmcreate cow "$(linear_table "$store")"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow P 8 id 1 create
put_letter /dev/mapper/o B 0 65536
snap_up t "$base" /dev/mapper/cow P 8 id 3 create
put_letter /dev/mapper/t C $((4 * MIB)) $MIB
dmremove t
snap_up u "$base" /dev/mapper/cow P 8 id 2 create
dmremove s
dmremove o
# A merge that has failed asks for no reclaim, and drains nothing itself.
swap_table cow "$(partly_table "$store" $FIRST_DATA 64 error)"
dmcreate o "0 $(sectors "$base") cowsnap-merge $base /dev/mapper/cow P 8 2 id 1"
ok "the merge fails" wait_for 60 merge_failed
swap_table cow "$(linear_table "$store")"
put_letter /dev/mapper/o P $((6 * MIB)) 4096
before=$(store_used)
swap_table cow "$(data_hangs)"
put_letter /dev/mapper/o Q $((6 * MIB)) 4096 &
wait_for 60 writes_are_delayed cow 1
ok "a snapshot is deleted while a write to the store hangs" dm message o 0 delete 3
ok "the reclaim does not wait for the write without end" wait_for 90 drain_has_failed
is "$(store_used)" "$before" "nothing is given back while the write is under way"
swap_table cow "$(linear_table "$store")"
wait
ok "the room is given back afterwards" wait_for 60 has_room_back
ok "the write is there" all_letter /dev/mapper/o Q $((6 * MIB)) 4096
dmremove u
dmremove o
dmremove cow

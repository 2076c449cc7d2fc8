#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A write waits for a mark of its own, once for many regions, and neither for the blocks of a
# tracker that is being made nor for all those that are made exact.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/tracker.sh"

need_target delay

# store_writes: how many the store's device has completed.
store_writes()
{
	awk '{ print $5 }' "/sys/dev/block/$(stat -L -c %Hr:%Lr "$good")/stat"
}

# wrote COUNT: so many since $before was looked up.
wrote()
{
	(($(store_writes) >= before + $1))
}

# on_slow_store MIB CHUNK: its writes can be delayed.
on_slow_store()
{
	tracked_origin "$1" 32 "$2"
	dmremove o
	good=$store
	dmcreate st "$(linear_table "$good")"
	store=/dev/mapper/st
	origin_up o "$base" store "$store"
}

away()
{
	dmremove o
	dmremove st
}

# ---- the regions of a block ----

# Marks are taken away after some seconds, so it is tried a few times, each time in new chunks and
# without the marks of the last.
third_is_free()
{
	local at before

	for ((at = 64; at < 640; at += 64)); do
		dm message o 0 commit
		write_at $at 4096
		write_at $((8192 + at)) 4096
		before=$(store_writes)
		write_at $((16384 + at)) 4096
		[[ $(store_writes) != "$before" ]] || return 0
	done
	return 1
}

on_slow_store 24 8
snapshot_as 1 one
dm message o 0 track 1
before=$(store_writes)
write_at 4096 4096
isnt "$(store_writes)" "$before" "the first write into a region has it marked on the disk"
ok "after two regions of a block the others need no write of their own" third_is_free
sleep 10
image "$store" "$TEST_TMP/store.crash"
is "$(missed one o@1)" 0 "no write into marked regions is missed"
dmremove o
dd if="$TEST_TMP/store.crash" of="$store" bs=1M oflag=direct conv=notrunc status=none
origin_up o "$base" store "$store"
is "$(missed_and_more one o@1)" "0 0" "after a crash nothing is missed, and regions left alone are exact"
away

# ---- while another tracker is made ----

# In chunks of 512 bytes a block has one region of 1 MiB.
on_slow_store 64 1
snapshot_as 1 one
dm message o 0 create 2
dm message o 0 track 1
swap_table st "$(delay_table "$good" 0 250)"
before=$(store_writes)
dmsetup message o 0 track 2 2>"$TEST_TMP/said" &
# Its room has been announced, and some of its blocks are written.
ok "the blocks of a new tracker are being written" wait_for 60 wrote 16
write_at 9000 4096
after=$(store_writes)
ok "a write that needs the mark of another tracker does not wait for all of these" \
	test $((after - before)) -lt 56
diag "$((after - before)) writes by then"
ok "the snapshot is given up" wait $!
swap_table st "$(linear_table "$good")"
diag "$(($(store_writes) - before)) writes in all"
is "$(missed one o@1)" 0 "the older tracker knows of the write"
isnt "$("$tool" diff --extents o@2)" "" "the newer tracker knows of the write"
away

# ---- while all bits are made exact ----

# Each region has been written; 64 blocks are made exact in one go. Once all of them are.
commit_meanwhile()
{
	local -a pairs=()
	local mib

	for ((mib = 0; mib < 200; mib++)); do
		pairs+=($((mib * 1024 + $1)) 512)
	done
	write_at "${pairs[@]}"
	swap_table st "$(delay_table "$good" 0 50)"
	before=$(store_writes)
	dmsetup message o 0 commit &
	wait_for 60 wrote 2
	write_at $(($1 + 1)) 512
	after=$(store_writes)
	wait $!
	swap_table st "$(linear_table "$good")"
	diag "$((after - before)) writes by then, $(($(store_writes) - before)) in all"
	wrote 190
}

on_slow_store 200 1
snapshot_as 1 one
dm message o 0 track 1
for ((at = 8; at < 40; at += 8)); do
	! commit_meanwhile $at || break
done
ok "message commit makes all bits exact" test $at -lt 40
ok "a write to a region whose mark was taken away does not wait for all of them" \
	test $((after - before)) -lt 150
is "$(missed one o@1)" 0 "no write beside message commit is missed"
away
done_testing

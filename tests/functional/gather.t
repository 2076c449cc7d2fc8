#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Copies that wait for each other, to be written together, do not wait for reads of another
# device that is slow. For writes of home that do not end they wait no longer than half a second,
# for reads of home where nothing has to seek some 50 ms.

. "$(dirname "$0")/common.sh"

need_target delay
MIB=1048576
exact_copies
plan 18

reads_are_delayed()
{
	(($(dmsetup status "$1" | awk '$3 == "delay" { print $4 }') >= $2))
}

all_run()
{
	local reader

	for reader in "${readers[@]}"; do
		kill -0 "$reader" || return
	done
}

base=$(mkloop 16M)
store=$(mkloop 24M)
fill_letter "$base" A
dmcreate cow "$(linear_table "$store")"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow P 8
# Afterwards the table is in memory, and nothing but data has to be read from the store.
put_letter /dev/mapper/o B 0 65536
put_letter /dev/mapper/s C $((4 * MIB)) 512
hold_reads cow "$store"
# Parts of chunks: all of each is read, to be verified.
readers=()
for at in 512 8704 16896 33280; do
	get /dev/mapper/s $at 512 >"$TEST_TMP/read.$at" &
	readers+=("$!")
done
ok "four reads of the store take their time" wait_for 30 reads_are_delayed cow 4
put_letter /dev/mapper/o D $((2 * MIB)) 4096 &
ok "a write to the origin does not wait for them" wait_for 60 has_ended $!
put_letter /dev/mapper/s E $((3 * MIB)) 512 &
ok "a write to the snapshot does not wait for slow reads" wait_for 60 has_ended $!
ok "the slow reads are still under way" all_run
release_reads cow "$store"
ok "the slow reads end" all_end_well "${readers[@]}"
is "$(cat "$TEST_TMP"/read.* | tr -d A | wc -c)" 0 "the slow reads give the old data"
dmremove s
dmremove o
dmremove cow

# Reads of a part of home take their time: more of them than of others.
for mode in P N; do
	fill_letter "$base" A
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	echo 0 >"$(sysfs "$base")/queue/rotational"
	dmcreate home "$(linear_table "$base")"
	origin_up o /dev/mapper/home
	snap_up s /dev/mapper/home "$store" "$mode" 8
	# The first copy may need a table block, which is read or made.
	put_letter /dev/mapper/o B 0 4096
	swap_table home "$(partly_table "$base" 8192 2048 delay "$base" 8192 120000 "$base" 8192 0)"
	writers=()
	for at in 0 65536 131072 262144; do
		put_letter /dev/mapper/o C $((4 * MIB + at)) 4096 &
		writers+=("$!")
	done
	ok "$mode: reads of home take their time" wait_for 60 reads_are_delayed home 4
	put_letter /dev/mapper/o D $MIB 4096 &
	ok "$mode: a copy that has been read does not wait for them" wait_for 60 has_ended $!
	swap_table home "$(linear_table "$base")"
	ok "$mode: the slow reads of home end" all_end_well "${writers[@]}"
	dmremove s
	dmremove o
	dmremove home
done

# A disk that rotates, where copies wait for the writes before them to have gone home. With a cache
# they are not even read before.
echo 1 >"$(sysfs "$base")/queue/rotational"
for cache in "write through" "write back"; do
	echo "$cache" >"$(sysfs "$base")/queue/write_cache"
	store=$(mkloop 24M)
	dmcreate home "$(linear_table "$base")"
	origin_up o /dev/mapper/home
	snap_up s /dev/mapper/home "$store" P 8
	swap_table home "$(delay_table "$base" 0 120000)"
	put_letter /dev/mapper/o F $MIB 4096 &
	writers=("$!")
	ok "$cache: a write to a disk that rotates is on its way home" \
		wait_for 60 writes_are_delayed home 1
	put_letter /dev/mapper/o G $((5 * MIB)) 4096 &
	writers+=("$!")
	ok "$cache: the copy for the next one does not wait until it has ended" \
		wait_for 60 writes_are_delayed home 2
	swap_table home "$(linear_table "$base")"
	ok "$cache: both writes to the rotational disk end" all_end_well "${writers[@]}"
	dmremove s
	dmremove o
	dmremove home
done

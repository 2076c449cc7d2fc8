#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A snapshot is merged into an origin of which the store has data (redirect). Where the snapshot
# sees what is at home nothing is copied: what the origin has got since then is forgotten. Other
# snapshots keep what they see there, also beside writers, and where the merge is interrupted.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/redirect-merge.sh"

need fio

# sectors_of NAME: how many this device has read and written so far.
sectors_of()
{
	awk '{ print $3, $7 }' "$(sysfs "/dev/mapper/$1")/stat"
}

# What has been redirected since the snapshot is gone without any data being read or written.
without_data()
{
	local before words="chunks of $1, log $2"

	begin "$1" "$2"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) $U $((5 * MIB)) $U $((8 * MIB)) $((2 * bytes))
	isnt "$(unsettled)" 0 "$words: chunks are redirected"
	before=$(sectors_of home)
	ok "$words: the merge begins" merge 1
	ok "$words: the merge ends" wait_for 60 merged
	is "$(sectors_of home)" "$before" "$words: home was not read, nor written"
	is "$(unsettled)" 0 "$words: the store has nothing of the origin any more"
	is "$(key_of o copied)" 0 "$words: nothing was copied"
	ok "$words: home is what the origin shows" same /dev/mapper/o "$TEST_TMP/now"
	end_merge
	dm message o 0 delete 1
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) $bytes $((9 * MIB)) $bytes
	crash
	up
	right "$words, after a crash"
	is "$(unsettled)" 0 "$words: nothing has come back"
	snapshot 2
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) $((2 * bytes))
	is "$(unsettled)" 2 "$words: what is written under the next snapshot is redirected"
	right "$words, under the next snapshot" 2
	is_clean "$words"
}

# among_others CHUNK LOG ID...: each of these, of three, is merged: others see what goes, or stays.
among_others()
{
	local id other had words size=$1 log=$2

	shift 2
	for id; do
		begin "$size" "$log"
		for other in 2 3; do
			change "$other"
			snapshot "$other"
		done
		change 4
		snap_up s "$home" "$cow" P "$chunk" id "$id"
		put /dev/mapper/s "$TEST_TMP/old$id" 512 512 $((3 * U)) $bytes $((6 * MIB)) $bytes \
			$((10 * MIB - bytes + 512)) 512
		dmremove s
		had=$(unsettled)
		words="chunks of $size, log $log, snapshot $id merged"
		ok "$words: it begins" merge "$id"
		ok "$words: the origin reads as the snapshot" same /dev/mapper/o "$TEST_TMP/now"
		put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) $bytes $((5 * MIB + 512)) 512 $((8 * MIB)) $bytes
		ok "$words: it ends" end_merge
		case $id in
		1) right "$words" 2 3;;
		2) right "$words" 1 3;;
		3)
			right "$words" 1 2
			ok "$words: what it did not see is gone" [ "$(unsettled)" -lt "$had" ]
			;;
		esac
		ok "$words: it is deleted" dm message o 0 delete "$id"
		put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) $((2 * bytes)) $((7 * MIB)) $U
		crash
		up
		case $id in
		1) right "$words, after a crash" 2 3;;
		2) right "$words, after a crash" 1 3;;
		3) right "$words, after a crash" 1 2;;
		esac
		dm message o 0 settle
		for other in 1 2 3; do
			[[ $other == "$id" ]] || dm message o 0 delete "$other"
		done
		dm message o 0 settle
		ok "$words: all comes home" wait_for 60 unsettled_is 0
		right "$words, settled"
		is_clean "$words"
	done
}

# Chunks of which the store has several versions, dead ones as well.
versions()
{
	local id

	begin 8 "$1"
	for id in 2 3 4 5; do
		put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096 $((id * U + 4 * MIB)) 4096
		snapshot "$id"
	done
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096
	is "$(unsettled)" 9 "log $1: a chunk has five versions"
	ok "log $1: the last snapshot is deleted" dm message o 0 delete 5
	ok "log $1: and one in between" dm message o 0 delete 3
	ok "log $1: one is merged" merge 2
	ok "log $1: the merge of it ends" end_merge
	right "log $1: of several versions" 1 4
	ok "log $1: the latest is deleted" dm message o 0 delete 4
	ok "log $1: the first one is merged" merge 1
	ok "log $1: the merge of that ends" end_merge
	right "log $1: rolled back twice"
	ok "log $1: nothing is in the store" wait_for 25 unsettled_is 0
	crash
	up
	right "log $1: rolled back twice, after a crash"
	is "$(unsettled)" 0 "log $1: no version has come back"
	is_clean "log $1: of several versions"
}

# Zeroes that were redirected without data go, stay for others, or are rolled back to.
zeroes()
{
	local words="zeroes, log $1"

	begin 8 "$1"
	zero $((2 * U)) $U
	zero $((5 * MIB)) $U
	put /dev/mapper/o "$TEST_TMP/now" $((7 * MIB)) $U
	snapshot 2
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) $((U / 2)) $((5 * MIB + 512)) 512
	zero $((7 * MIB)) 8192
	zero $((9 * MIB)) 8192
	snapshot 3
	zero $((2 * U)) 4096
	put /dev/mapper/o "$TEST_TMP/now" $((9 * MIB)) 4096
	right "$words: redirected" 1 2 3
	ok "$words: a snapshot that has some is merged" merge 2
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U + 8192 + 512)) 512 $((5 * MIB)) 8192
	ok "$words: the merge of it ends" end_merge
	right "$words: merged" 1 3
	crash
	up
	right "$words: merged, after a crash" 1 3
	ok "$words: the one before them is merged" merge 1
	ok "$words: the merge of that ends" end_merge
	right "$words: both merged" 3
	dm message o 0 delete 3
	dm message o 0 settle
	ok "$words: all comes home" wait_for 60 unsettled_is 0
	right "$words: settled"
	is_clean "$words"
}

# slowly ID: what is written takes its time, and what is done rests after it, so that there is time
# for something else.
slowly()
{
	dm message o 0 set throttle 30
	swap_table cow "$(delay_table "$store" 0 150)"
	merge "$1"
	left=$(left_of o)
	isnt "$left" 0 "$words: it goes on slowly"
}

half_way()
{
	[[ $(left_of o) -lt $left && $(left_of o) -gt 0 ]]
}

at_full_speed()
{
	swap_table cow "$(linear_table "$store")"
	dm message o 0 set throttle 100
}

# Writers and snapshots that go, while a merge goes on.
beside_users()
{
	local fio left words="beside users"

	begin 8 on
	dm message o 0 set redirect 80
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) $U $((5 * MIB)) $U $((7 * MIB)) $U $((9 * MIB)) $U
	snapshot 2
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) $U $((5 * MIB)) $((2 * U)) $((8 * MIB)) $U $((9 * MIB)) $U
	snapshot 3
	put /dev/mapper/o "$TEST_TMP/now" $((9 * MIB)) $U
	slowly 2
	dm message o 0 set settle now
	fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bsrange=512-32k --iodepth=8 \
		--filename=/dev/mapper/o --allow_file_create=0 --offset=5m --size=3m --io_size=512k \
		--verify=crc32c --do_verify=1 --verify_fatal=1 >"$TEST_TMP/fio.log" 2>&1 &
	fio=$!
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 8192 $((9 * MIB + 512)) 512 $((4 * MIB)) 65536
	ok "beside users: another snapshot is deleted" dm message o 0 delete 3
	ok "beside users: fio reads back what it wrote" wait "$fio"
	image /dev/mapper/o "$TEST_TMP/seen"
	# Only fio knows what it wrote.
	dd if="$TEST_TMP/seen" of="$TEST_TMP/now" bs=1M skip=5 seek=5 count=3 conv=notrunc status=none
	right "beside users" 1
	at_full_speed
	ok "beside users: the merge ends" end_merge
	right "beside users, merged" 1
	ok "beside users: then all comes home" wait_for 60 unsettled_is 0
	right "beside users, settled" 1
	is_clean "beside users"
}

# The machine stops in the middle; the merge goes on under one table or the other.
interrupted()
{
	local left words="log $1, interrupted"

	begin 8 "$1"
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) $U $((5 * MIB)) $U $((9 * MIB)) $U
	snapshot 2
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) $((2 * U)) $((5 * MIB)) $((2 * U)) $((9 * MIB)) $((2 * U))
	slowly 2
	ok "log $1, interrupted: part of it is merged" wait_for 60 half_way
	ok "log $1, interrupted: all of it reads as the snapshot" same /dev/mapper/o "$TEST_TMP/now"
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U + 512)) 512 $((5 * MIB)) 4096 $((9 * MIB)) 4096
	crash
	ok "log $1, interrupted: it goes on" up
	right "log $1, interrupted" 1
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U + 512)) 512 $((9 * MIB)) 8192
	at_full_speed
	dmreload o "$(merge_table 2)"
	ok "log $1, interrupted: it ends" end_merge
	right "log $1, interrupted, merged" 1
	dm message o 0 delete 2
	dm message o 0 delete 1
	dm message o 0 settle
	ok "log $1, interrupted: all comes home" wait_for 60 unsettled_is 0
	is_clean "log $1, interrupted"
}

devices_up
without_data 8 on
without_data 32 off
among_others 8 on 1 2 3
among_others 32 off 1 3
versions on
versions off
zeroes on
zeroes off
beside_users
interrupted on
interrupted off
devices_down
done_testing

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Copies of a transient store on a disk that turns are written many in a row. Where a cache takes
# them at once, which the first copies find out, none waits for others for long.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/log.sh"

need_target delay

# As for log-cached.t: one copy in a few has to be written within 200 µs.
is_quick()
{
	local begin

	begin=$(date +%s%N)
	dd if=/dev/zero of="$1" bs=8k count=256 oflag=direct status=none
	(($(date +%s%N) - begin < 256 * 1000000))
}

writes_done()
{
	awk '{ print $5 }' "$(sysfs "/dev/mapper/$1")/stat"
}

# requests_for FROM TO: how many writes the store gets while these chunks are copied one by one.
requests_for()
{
	local before

	before=$(writes_done cow)
	put_scattered /dev/mapper/o "$TEST_TMP/now" "$1" "$2"
	echo $(($(writes_done cow) - before))
}

nothing_buffered()
{
	[[ $(key_of s buffered) = 0 ]]
}

store=$(mkram 32)
is_quick "$store" || skip_all "writes to memory take too long here"
plan 6
base=$(mkloop 8M)
echo 1 >"$(sysfs "$store")/queue/rotational"

# up WRITE: a snapshot in a store whose writes take so many milliseconds more.
up()
{
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	dmcreate cow "$(delay_table "$store" 0 "$1")"
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/cow N 8 copy_ahead 0 copy_around 0
	# These find out.
	put_scattered /dev/mapper/o "$TEST_TMP/now" 0 60
}

down()
{
	ok "$1: all copies get to the store" wait_for 60 nothing_buffered
	ok "$1: the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
	dmremove s
	dmremove o
	dmremove cow
}

up 2
requests=$(requests_for 60 260)
ok "no cache: 200 copies are written many in a row: $requests requests" [ "$requests" -le 12 ]
down "no cache"

up 0
requests=$(requests_for 60 260)
ok "a cache: hardly any waits for others: $requests requests" [ "$requests" -ge 20 ]
down "a cache"

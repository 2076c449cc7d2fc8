#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I4: a snapshot's read that was sent home is over before the write that changes
# the place: with reads at home made slow, the read begins while the copy for
# the write is being read, ends long after it, and must still give old data.

. "$(dirname "$0")/common.sh"

need_target delay

plan 9

DELAY=4000	# ms: long enough for what is to happen within to be started

read_old()
{
	not_letter /dev/mapper/s A "$1" "$2" >"$TEST_TMP/seen"
}

# try WORDS WRITE_OFFSET WRITE_BYTES READ_OFFSET READ_BYTES: three points. The
# copy is not in the map before its own slow read has ended, so a read that is
# under way while the map is as before was sent home.
try()
{
	local writer reader before

	before=$(key_of s exceptions)
	put_letter /dev/mapper/o B "$2" "$3" &
	writer=$!
	wait_for 60 io_is_in_flight o 2
	read_old "$4" "$5" &
	reader=$!
	wait_for 60 io_is_in_flight s 1
	is "$(key_of s exceptions)" "$before" "$1: the snapshot's read overlaps the copy's"
	wait "$reader" "$writer"
	is "$(<"$TEST_TMP/seen")" 0 "$1: it gives old data"
	is "$(not_letter /dev/mapper/o B "$2" "$3")" 0 "$1: the write came through"
}

# io_is_in_flight NAME 1|2: reads, writes
io_is_in_flight()
{
	[[ $(awk -v field="$2" '{ print $field }' "$(sysfs "/dev/mapper/$1")/inflight") -gt 0 ]]
}

base=$(mkloop 8M)
store=$(mkloop 16M)
fill_letter "$base" A
dmcreate home "0 $(sectors "$base") delay $base 0 $DELAY $base 0 0"
origin_up o /dev/mapper/home
snap_up s /dev/mapper/home "$store" N 8
try "one chunk" 0 4096 0 4096
try "a part of a chunk" $((1048576 + 512)) 512 $((1048576 + 512)) 512
try "a long read, a short write in its end" $((2 * 1048576 + 61440)) 4096 \
	$((2 * 1048576)) 65536

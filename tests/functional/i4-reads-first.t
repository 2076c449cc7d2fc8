#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I4: a snapshot's read that was sent home is over before the write that changes the
# place: the read begins while the copy for the write is still to be stored, it is held
# at home until the copy is published, and must still give old data.

. "$(dirname "$0")/common.sh"

need_target delay

exact_copies
plan 9

read_old()
{
	other_bytes /dev/mapper/s A "$1" "$2" >"$TEST_TMP/seen"
}

copy_is_read()
{
	(($(reads_done home) > home_reads))
}

is_published()
{
	(($(key_of s exceptions) > exceptions))
}

# The copy is published, so that nothing but the read keeps the write. One that does not
# wait for the read goes home at once.
write_waits_for_read()
{
	wait_for 60 is_published && ! wait_for 2 has_ended "$writer" && io_is_in_flight s read
}

# try WORDS WRITE_OFFSET WRITE_BYTES READ_OFFSET READ_BYTES: three points. While the store
# is suspended the copy is not in the map, so that a read is sent home.
try()
{
	local writer reader home_reads exceptions

	home_reads=$(reads_done home)
	exceptions=$(key_of s exceptions)
	dm suspend --noflush --nolockfs cow
	put_letter /dev/mapper/o B "$2" "$3" &
	writer=$!
	wait_for 60 copy_is_read
	hold_reads home "$base"
	read_old "$4" "$5" &
	reader=$!
	wait_for 60 io_is_in_flight s read
	dm resume cow
	ok "$1: the write waits for the snapshot's read" write_waits_for_read
	release_reads home "$base"
	wait "$reader" "$writer"
	is "$(<"$TEST_TMP/seen")" 0 "$1: the read gives old data"
	ok "$1: the write came through" all_letter /dev/mapper/o B "$2" "$3"
}

base=$(mkloop 8M)
store=$(mkloop 16M)
fill_letter "$base" A
dmcreate home "$(linear_table "$base")"
dmcreate cow "$(linear_table "$store")"
origin_up o /dev/mapper/home
snap_up s /dev/mapper/home /dev/mapper/cow N 8
try "one chunk" 0 4096 0 4096
try "a part of a chunk" $((1048576 + 512)) 512 $((1048576 + 512)) 512
try "a long read, a short write in its end" $((2 * 1048576 + 61440)) 4096 \
	$((2 * 1048576)) 65536

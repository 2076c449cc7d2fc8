#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The copy engine's memory comes in steps of 1 MiB, once jobs lack pages. If not all of it is to be
# had, they go on with what there is, and the rest comes when memory does.

. "$(dirname "$0")/common.sh"

need_faults_of_pages
need_command
need_target delay
exact_copies
plan 8

MIB=1048576

has_memory()
{
	[[ $(key_of o copy_memory) == "$1" ]]
}

# writes_at LETTER OFFSET: 4 MiB with one request of a program, more than what there is at first.
# Each copy, or redirected write, takes a while, so that there are several at a time.
writes_at()
{
	put_letter /dev/mapper/o "$1" "$2" $((4 * MIB)) $((4 * MIB))
}

# writes_with KIB: first writes, upon which the engine may ask again.
writes_with()
{
	place=$((place + 4 * MIB))
	writes_at C "$place"
	sleep 1
	has_memory "$1"
}

# short NAME: what comes, and what does not, with the jobs of first writes.
short()
{
	local place=0

	# The first step, and half of the next.
	fail_under engine_rest -1 384
	writes_at B 0
	ok "$1: allocations have failed" wait_for 60 has_failed
	ok "$1: writes go on with what there is" wait_for 60 has_memory 2048
	sleep 2		# it is tried again after a second
	echo 0 >"$FAULT/failed"
	writes_with 2048
	ok "$1: memory is asked for again" wait_for 60 has_failed
	fail_no_more >/dev/null
	ok "$1: the rest comes when there is memory" wait_for 60 writes_with 8192
}

copied()
{
	fill "$base" "$TEST_TMP/old"
	origin_up o "$base"
	snap_up s "$base" "$store" N 8
	short "copies"
	ok "copies: the snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
	dmremove s
	dmremove o
}

# Writes of whole chunks, which are redirected, so that nothing is copied.
redirected()
{
	fill "$base" "$TEST_TMP/old"
	snap_up s "$base" "$store" P 8
	dmremove s
	"$tool" seal "$base" "$store" >/dev/null
	origin_up o "$base" store "$store"
	dm message o 0 set settle off
	dm message o 0 set redirect 60
	# The first ones are copied, while the store is not ready for others.
	put_letter /dev/mapper/o A 0 $MIB
	dmremove o
	origin_up o "$base" store "$store"
	is "$(key_of o copy_memory)" 1024 "redirected: an engine without jobs has 1 MiB"
	writes_at B $((4 * MIB))
	ok "redirected: it gets the rest when it has some" wait_for 60 has_memory 8192
	is "$(key_of o read_sectors)" 0 "redirected: nothing was read to be copied"
	dmremove o
}

base=$(mkloop 96M)
dmcreate home "$(delay_table "$base" 50 0)"
base=/dev/mapper/home
store=$(mkloop 160M)
copied
store=$(mkloop 160M)
dmcreate cow "$(delay_table "$store" 0 50)"
store=/dev/mapper/cow
redirected
dmremove home
dmremove cow

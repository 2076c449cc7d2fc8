#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The copy engine's memory comes in steps of 1 MiB, with the first job. If not all of it is to be
# had, jobs go on with what there is, and the rest comes when memory does.

. "$(dirname "$0")/common.sh"

need_faults_of_pages
need_command
exact_copies
plan 8

MIB=1048576

has_memory()
{
	[[ $(key_of o copy_memory) == "$1" ]]
}

# writes_with KIB: a first write, upon which the engine may ask again.
writes_with()
{
	place=$((place + 4096))
	put_letter /dev/mapper/o C "$place" 4096
	has_memory "$1"
}

# short NAME: what comes, and what does not, with the jobs of first writes.
short()
{
	local place=$((8 * MIB))

	# The first step, and half of the next.
	fail_under engine_rest -1 384
	put_letter /dev/mapper/o B 0 $((4 * MIB))
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
	put_letter /dev/mapper/o B $((4 * MIB)) $MIB
	ok "redirected: it gets the rest when it has some" wait_for 60 has_memory 8192
	is "$(key_of o read_sectors)" 0 "redirected: nothing was read to be copied"
	dmremove o
}

base=$(mkloop 16M)
store=$(mkloop 40M)
copied
store=$(mkloop 40M)
redirected

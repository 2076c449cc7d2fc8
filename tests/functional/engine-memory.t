#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The copy engine's memory comes in steps, the first of 1 MiB, as long as jobs lack pages. If not all
# of it is to be had, they go on with what there is, and the rest comes when memory does.

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

# writes_and COMMAND...: 12 MiB with one request of a program, more than the whole budget. Each
# copy, or redirected write, takes a while, so that there are several at a time, and the engine may
# ask for memory. Then the command.
writes_and()
{
	place=$((place + 12 * MIB))
	put_letter /dev/mapper/o C "$place" $((12 * MIB)) $((12 * MIB))
	sleep 1
	"$@"
}

# short NAME: what comes, and what does not, with the jobs of first writes.
short()
{
	local place=0

	# The first step, and a quarter of the next.
	fail_under engine_rest -1 384
	ok "$1: allocations have failed" wait_for 20 writes_and has_failed
	ok "$1: writes go on with what there is" writes_and has_memory 2048
	echo 0 >"$FAULT/failed"
	ok "$1: memory is asked for again" wait_for 20 writes_and has_failed
	fail_no_more >/dev/null
	ok "$1: the rest comes when there is memory" wait_for 20 writes_and has_memory 8192
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
	local place=0

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
	ok "redirected: it gets the rest when it needs it" wait_for 20 writes_and has_memory 8192
	is "$(key_of o read_sectors)" 0 "redirected: nothing was read to be copied"
	dmremove o
}

base=$(mkloop 256M)
dmcreate home "$(delay_table "$base" 100 0)"
base=/dev/mapper/home
store=$(mkloop 400M)
copied
store=$(mkloop 400M)
dmcreate cow "$(delay_table "$store" 0 100)"
store=/dev/mapper/cow
redirected
dmremove home
dmremove cow

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# While a merge goes on beside users the engine's worker comes before other tasks. It is a task like
# others again when the merge has ended, has failed, or its store has been closed.

. "$(dirname "$0")/common.sh"

MIB=1048576
exact_copies
plan 11

# priorities: of the engine's worker, and, before 6.8, of the thread that a workqueue of the same name
# keeps for when memory is short, which always comes first.
priorities()
{
	cat /proc/[0-9]*/stat 2>/dev/null |
		awk '$2 ~ /^\(cowsnap-[0-9]+:[0-9]+\)$/ { print $19 }' | sort -u
}

comes_first()
{
	[[ $(priorities) = -20 ]]
}

is_like_others()
{
	priorities | grep -qx 0
}

# writer: one write after the other, to what no snapshot has a version of.
writer()
{
	until [[ -e $TEST_TMP/enough ]]; do
		dd if=/dev/zero of=/dev/mapper/o bs=4096 seek=$((31 * 256)) count=16 oflag=direct \
			status=none
	done
}

# begin ID TITLE: snapshot ID is merged beside the writer, slowly.
begin()
{
	dd if=/dev/zero of=/dev/mapper/cow bs=1M count=1 oflag=direct status=none
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/cow P 8 id "$1" create
	put /dev/mapper/o "$TEST_TMP/now" 0 $((16 * MIB)) $((16 * MIB)) $((8 * MIB))
	dmremove s
	dm message o 0 set throttle 1
	rm -f "$TEST_TMP/enough"
	dm suspend o
	writer &
	dmload o "0 $(sectors "$base") cowsnap-merge $base /dev/mapper/cow P 8 2 id $1"
	dm resume o
	ok "$2: the worker comes first" wait_for 30 comes_first
}

# over TITLE: the merge is.
over()
{
	ok "$1: the worker is a task like others" wait_for 30 is_like_others
	: >"$TEST_TMP/enough"
	wait
	dmremove o
}

base=$(mkloop 32M)
store=$(mkloop 48M)
dmcreate cow "$(linear_table "$store")"
fill "$base" "$TEST_TMP/now"

begin 1 "a merge that ends"
dm message o 0 set throttle 100
ok "a merge that ends: it does" wait_for 60 log_says_merged 1
over "a merge that ends"

begin 2 "a merge that fails"
swap_table cow "$(error_table "$store")"
dm message o 0 set throttle 100
ok "a merge that fails: it does" wait_for 60 merge_failed
over "a merge that fails"
swap_table cow "$(linear_table "$store")"

begin 3 "a store that is closed"
not_ok "a store that is closed: it is not yet" log_says_merged 3
dm suspend o
dmload o "$(origin_table "$base")"
dm resume o
over "a store that is closed"

is "$(priorities)" "" "no worker is left"
dmremove cow
ok "the origin can be read" dd if="$base" of=/dev/null bs=1M status=none

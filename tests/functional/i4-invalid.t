#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I4: writes no longer wait for the reads of a snapshot that has become invalid,
# so such a read, still on its way home, fails: it never gives new data as old.

. "$(dirname "$0")/common.sh"

need_target delay

plan 4

DELAY=8000	# ms: the read at home is under way for so long

# dm-delay does not count what it holds back; the snapshot counts its reads.
read_is_under_way()
{
	local reads

	read -r reads _ <"$(sysfs /dev/mapper/s)/inflight"
	((reads))
}

base=$(mkloop 8M)
store=$(mkloop 4K)
fill_letter "$base" A
dmcreate home "0 $(sectors "$base") delay $base 0 $DELAY $base 0 0"
origin_up o /dev/mapper/home
snap_up s /dev/mapper/home "$store" N 8
put_letter /dev/mapper/o B 0 4096
not_letter /dev/mapper/s A 1048576 4096 >"$TEST_TMP/seen" 2>&1 &
reader=$!
wait_for 60 read_is_under_way
put_letter /dev/mapper/o B 1048576 4096
ok "the write overtook the snapshot's read" read_is_under_way
is "$(status s)" Invalid "because the snapshot is invalid"
wait "$reader"
not_ok "the read does not give the new data" [ "$(<"$TEST_TMP/seen")" = 4096 ]
is "$(not_letter /dev/mapper/o B 1048576 4096)" 0 "the origin has it"

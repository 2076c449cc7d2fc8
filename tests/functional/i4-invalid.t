#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I4: writes no longer wait for the reads of a snapshot that has become invalid,
# so such a read, still on its way home, fails: it never gives new data as old.

. "$(dirname "$0")/common.sh"

need_target delay

plan 4

base=$(mkloop 8M)
store=$(mkloop 4K)
fill_letter "$base" A
dmcreate home "$(linear_table "$base")"
origin_up o /dev/mapper/home
snap_up s /dev/mapper/home "$store" N 8

# The store has room for this chunk and no other.
put_letter /dev/mapper/o B 0 4096
hold_reads home "$base"
other_bytes /dev/mapper/s A 1048576 4096 >"$TEST_TMP/seen" 2>&1 &
reader=$!
wait_for 60 io_is_in_flight s read
put_letter /dev/mapper/o B 1048576 4096
ok "the write overtook the snapshot's read" io_is_in_flight s read
is "$(status s)" Invalid "the snapshot is Invalid"
release_reads home "$base"
wait "$reader"
not_ok "the read does not give the new data" [ "$(<"$TEST_TMP/seen")" = 4096 ]
ok "the origin has the new data" all_letter /dev/mapper/o B 1048576 4096

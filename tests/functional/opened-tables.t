#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The tables of a store that has just been opened are in memory: a slot that changes costs no read.

. "$(dirname "$0")/common.sh"

[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"
# More than have their slots beside the superblocks, which are always in memory.
CHUNKS=700
exact_copies
plan 4

base=$(mkloop 16M)
store=$(mkloop 32M)
fill_letter "$base" A
origin_up o "$base"
snap_up s "$base" "$store" P 8 id 1 create
put_letter /dev/mapper/o B 0 $((CHUNKS * 4096))
dmremove s
snap_up s "$base" "$store" P 8 id 1
# The first write to a snapshot has that noted.
put_letter /dev/mapper/s C 0 4096
trace_start "$store" bio_queue
put_letter /dev/mapper/s C $(((CHUNKS - 10) * 4096)) 4096
trace_stop >"$TEST_TMP/trace"
is "$(grep -c '^bio_queue R' "$TEST_TMP/trace")" 0 "a version becomes the snapshot's: nothing is read"
ok "its slot is written, then its data" \
	grep -q '^bio_queue W.*M' "$TEST_TMP/trace"
dmremove s
snap_up s "$base" "$store" P 8 id 1
get /dev/mapper/s $(((CHUNKS - 10) * 4096)) 4096 >"$TEST_TMP/got"
is "$(tr -d C <"$TEST_TMP/got" | wc -c)" 0 "opened again, the snapshot has what was written"
get /dev/mapper/s $(((CHUNKS - 11) * 4096)) 4096 >"$TEST_TMP/got"
is "$(tr -d A <"$TEST_TMP/got" | wc -c)" 0 "and the old data beside it"
dmremove s
dmremove o

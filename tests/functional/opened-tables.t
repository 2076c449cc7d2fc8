#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The tables of a store that is opened for a merge stay in memory: the merge does not read them
# again, nor does a write beside it.

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
dm suspend o
dmload o "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 1"
trace_start "$store" bio_queue
dm resume o
ok "the merge ends" wait_for 60 log_says_merged 1
trace_stop >"$TEST_TMP/trace"
ok "it has read data" grep -q '^bio_queue R ' "$TEST_TMP/trace"
is "$(grep -c '^bio_queue R[A-Z]*M' "$TEST_TMP/trace")" 0 "and no table"
ok "the origin is rolled back" all_letter /dev/mapper/o A
dmremove o

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I4: a snapshot's read on its way home is not overtaken by a second write either,
# one that finds the chunk preserved already: it waits for the read as the first does.

. "$(dirname "$0")/common.sh"

need_target delay

exact_copies
plan 4

copy_is_read()
{
	(($(reads_done home) > home_reads))
}

is_published()
{
	[[ $(key_of s exceptions) = 1 ]]
}

base=$(mkloop 8M)
store=$(mkloop 16M)
fill_letter "$base" A
dmcreate home "$(linear_table "$base")"
dmcreate cow "$(linear_table "$store")"
origin_up o /dev/mapper/home
snap_up s /dev/mapper/home /dev/mapper/cow N 8

# The copy is not published before the store is resumed, so the read is sent home.
home_reads=$(reads_done home)
dm suspend --noflush --nolockfs cow
put_letter /dev/mapper/o B 0 4096 &
first=$!
wait_for 60 copy_is_read
hold_reads home "$base"
other_bytes /dev/mapper/s A 0 4096 >"$TEST_TMP/seen" 2>&1 &
reader=$!
wait_for 60 io_is_in_flight s read
dm resume cow
ok "the chunk is preserved" wait_for 60 is_published
put_letter /dev/mapper/o C 0 4096 &
second=$!
# One that does not wait for the read goes home at once.
wait_for 2 has_ended "$second"
ok "the snapshot's read is still on its way at the second write" io_is_in_flight s read
release_reads home "$base"
wait "$reader" "$first" "$second"
is "$(<"$TEST_TMP/seen")" 0 "the read gives old data"
ok "one of the writes, both under way at once, is the last" all_letter /dev/mapper/o BC 0 4096

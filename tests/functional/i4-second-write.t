#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I4: a snapshot's read on its way home is not overtaken by a second write either,
# one that finds the chunk preserved already: it waits for the read as the first does.

. "$(dirname "$0")/common.sh"

need_target delay

plan 4

DELAY=8000	# ms: a read at home takes so long

# Home is slow, so a read of the snapshot that takes long is on its way there.
read_under_way()
{
	local reads

	read -r reads _ <"$(sysfs /dev/mapper/s)/inflight"
	((reads))
}

published()
{
	[[ $(key_of s exceptions) = 1 ]]
}

base=$(mkloop 8M)
store=$(mkloop 16M)
fill_letter "$base" A
dmcreate home "0 $(sectors "$base") delay $base 0 $DELAY $base 0 0"
origin_up o /dev/mapper/home
snap_up s /dev/mapper/home "$store" N 8
put_letter /dev/mapper/o B 0 4096 &
first=$!
sleep 4			# half of what reading for the copy takes
not_letter /dev/mapper/s A 0 4096 >"$TEST_TMP/seen" 2>&1 &
reader=$!
ok "the chunk is preserved" wait_for 60 published
put_letter /dev/mapper/o C 0 4096 &
second=$!
sleep 0.5
ok "while the read is still on its way" read_under_way
wait "$reader" "$first" "$second"
is "$(<"$TEST_TMP/seen")" 0 "the read gives old data"
is "$(not_letter /dev/mapper/o BC 0 4096)" 0 "one of the writes, both under way at once, is the last"

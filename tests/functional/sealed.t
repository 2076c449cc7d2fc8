#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A table block that changes while a commit writes it reaches the disk as the commit sealed it: a
# power cut before the next commit leaves a block that is right.

. "$(dirname "$0")/common.sh"

need_target delay
exact_copies
plan 7

# Both superblocks name the last commit: nothing of the store's own is to be written any more.
noted()
{
	local at

	for at in 104 616; do
		[[ $(od -An -v -t u8 -N 8 -j "$at" "$(loop_file "$store")" | tr -d ' ') == "$(key_of s commits)" ]] ||
			return
	done
}

base=$(mkloop 8M --sector 512)
store=$(mkloop 16M --sector 512)
fill_letter "$base" A
dmcreate cow "$(linear_table "$store")"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow P 8
put_letter /dev/mapper/o B 0 4096
ok "a first commit is noted" wait_for 60 noted

# One commit writes the block, which the copy for another write changes meanwhile.
swap_table cow "$(delay_table "$store" 0 120000)"
put_letter /dev/mapper/o B 65536 4096 &
first=$!
ok "a commit writes a block and its data" wait_for 60 writes_are_delayed cow 2
put_letter /dev/mapper/o B 131072 4096 &
second=$!
ok "the next copy has its slot in the same block" wait_for 60 writes_are_delayed cow 3

# Suspended, dm-delay lets go what it holds, and what comes later waits, with the flush.
dm suspend --noflush --nolockfs cow
dd if="$store" of="$TEST_TMP/cut" bs=1M iflag=direct status=none
dmload cow "$(linear_table "$store")"
dm resume cow
ok "the first of the two writes ends" wait "$first"
ok "the other ends as well" wait "$second"
dmremove s
dmremove o

# The store as a power cut would have left it then.
dd if="$TEST_TMP/cut" of="$store" bs=1M oflag=direct conv=notrunc status=none
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow P 8
ok "after a cut the store has what was committed before" all_letter /dev/mapper/s A 0 4096
ok "and what this commit wrote" all_letter /dev/mapper/s A 65536 4096
dmremove s
dmremove o
dmremove cow

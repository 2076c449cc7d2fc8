#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# An origin with more chunks than 36 bits count (15 PiB of 4 KiB, as lvcreate --virtualsize
# makes) has persistent snapshots; what is 2^36 chunks apart does not meet.

. "$(dirname "$0")/common.sh"

need_target zero
PIB=$((1 << 50))
APART=$((1 << 48))	# 2^36 chunks

exact_copies
plan 12

# The tool on the store, where one is here.
checked()
{
	local tool

	for tool in "$TOOLS/cowsnap" "$TESTS_DIR/../tools/cowsnap"; do
		if "$tool" --version >/dev/null 2>&1; then
			ok "cowsnap check finds the store clean" "$tool" check "$store"
			return
		fi
	done
	skip "cowsnap check finds the store clean" "no cowsnap command that runs here"
}

chunks_are_apart()
{
	ok "$1: what was written is there" all_letter /dev/mapper/s P $((14 * PIB)) 8192
	ok "$1: what was written 2^36 chunks before it is there" \
		all_letter /dev/mapper/s Q $((14 * PIB - APART)) 4096
	ok "$1: nothing is there 2^36 chunks before that" \
		all_letter /dev/mapper/s 0 $((14 * PIB - 2 * APART)) 8192
}

dmcreate zeroes "0 $((15 * PIB / 512)) zero"
base=/dev/mapper/zeroes
store=$(mkloop 4M)
not_ok "a transient snapshot has no room for such numbers" snap_up s "$base" "$store" N 8
like "$(kernel_log)" 'more than 68719476736 chunks of 8 sectors: take larger chunks' \
	"the log has the number of chunks and the remedy"
origin_up o "$base"
ok "a persistent snapshot is made" snap_up s "$base" "$store" P 8
ok "the persistent snapshot is written" put_letter /dev/mapper/s P $((14 * PIB)) 8192
put_letter /dev/mapper/s Q $((14 * PIB - APART)) 4096
# These copies are of zeroes.
put_letter /dev/mapper/o A $((14 * PIB + APART)) 4096
chunks_are_apart "at once"
is "$(key_of s exceptions)" 4 "each chunk has a version of its own"
dmremove s
dmremove o
checked
snap_up s "$base" "$store" P 8
chunks_are_apart "opened again"

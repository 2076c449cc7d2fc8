#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A snapshot is of one instant: a write on its way home when the snapshot is made
# is over by then, and in the snapshot, instead of changing it later.

. "$(dirname "$0")/common.sh"

need_target delay

plan 2

DELAY=6000	# ms: a write at home takes so long

base=$(mkloop 8M)
store=$(mkloop 16M)
fill_letter "$base" A
dmcreate home "0 $(sectors "$base") delay $base 0 0 $base 0 $DELAY"
origin_up o /dev/mapper/home
put_letter /dev/mapper/o B 0 4096 &
writer=$!
sleep 1
snap_up s /dev/mapper/home "$store" N 8
is "$(not_letter /dev/mapper/s B 0 4096)" 0 "the write under way is in the snapshot"
wait "$writer"
is "$(not_letter /dev/mapper/s B 0 4096)" 0 "which has not changed since"
dmremove s
dmremove o

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A snapshot is of one instant: a write on its way home when the snapshot is made
# is over by then, and in the snapshot, instead of changing it later.

. "$(dirname "$0")/common.sh"

need_target delay

plan 2

DELAY=6000	# ms that a write at home takes; a flush takes none, or it would wait for the write

base=$(mkloop 8M)
store=$(mkloop 16M)
fill_letter "$base" A
dmcreate home "$(delay_table "$base" 0 $DELAY) $base 0 0"
origin_up o /dev/mapper/home
put_letter /dev/mapper/o B 0 4096 &
writer=$!
wait_for 60 io_is_in_flight o write
snap_up s /dev/mapper/home "$store" N 8
ok "the write under way is in the snapshot" all_letter /dev/mapper/s B 0 4096
wait "$writer"
ok "the snapshot has not changed since the write ended" all_letter /dev/mapper/s B 0 4096
dmremove s
dmremove o

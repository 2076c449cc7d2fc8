#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A snapshot is of one instant: a write on its way home when the snapshot is made
# is over by then, and in the snapshot, instead of changing it later. A write that does not end
# holds up others for as long as hold_timeout says; then no snapshot is made.

. "$(dirname "$0")/common.sh"

need_target delay

plan 7

DELAY=6000	# ms that a write at home takes; a flush takes none, or it would wait for the write

ok "the default of hold_timeout is 5 s" test "$(<"$PARAMETERS/hold_timeout")" = 5000
at_exit _write "$PARAMETERS/hold_timeout" 5000
echo 60000 >"$PARAMETERS/hold_timeout"

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
echo 200 >"$PARAMETERS/hold_timeout"
put_letter /dev/mapper/o C 0 4096 &
writer=$!
wait_for 60 io_is_in_flight o write
not_ok "no snapshot is made beside a write that takes longer than hold_timeout" \
	snap_up s /dev/mapper/home "$store" N 8
ok "the write that hindered the snapshot has not ended" kill -0 "$writer"
like "$(kernel_log)" 'writes under way did not end within 200 ms \(parameter hold_timeout\)' \
	"the log says why no snapshot is made beside a slow write"
dmsetup remove s 2>/dev/null || true
dmreload home "$(linear_table "$base")"
wait "$writer"
ok "writes go on" all_letter /dev/mapper/o C 0 4096
dmremove o

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I2: what a snapshot gives out while the store is still taking the data is the
# old data, whole; and what the store refuses in the end is never given out.

. "$(dirname "$0")/common.sh"

need fio
need_target delay flakey

exact_copies
plan 6

base=$(mkloop 8M)
store=$(mkloop 16M)
fill_letter "$base" A
dmcreate cow "$(delay_table "$store" 0 500)"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow N 8

# Reads in the middle of it all; each is over before the writer is.
for ((i = 0; i < 4; i++)); do
	put_letter /dev/mapper/o B $((i * 1048576)) 1048576 &
	other_bytes /dev/mapper/s A 0 $((4 * 1048576)) >>"$TEST_TMP/seen"
	wait $!
done
is "$(sort -u "$TEST_TMP/seen")" 0 "reads while the store is slow give old data"
ok "reads give old data when the store has caught up" all_letter /dev/mapper/s A

# A write to the snapshot, its chunk still on the way into the store.
put_letter /dev/mapper/o B $((5 * 1048576)) 4096 &
put_letter /dev/mapper/s P $((5 * 1048576 + 512)) 512
wait $!
is "$(get /dev/mapper/s $((5 * 1048576)) 4096)" \
	"$(letters A 512)$(letters P 512)$(letters A 3072)" \
	"a write to the snapshot finds its place in the old data"

# The data is in the engine's hands when the store begins to refuse.
put_letter /dev/mapper/o C $((6 * 1048576)) 1048576 &
writer=$!
swap_table cow "$(no_writes_table "$store")"
ok "the store refuses: the origin's write succeeds" wait "$writer"
whole_or_refused()
{
	all_letter /dev/mapper/s A $((6 * 1048576)) 1048576 || is_invalid s
}
put_letter /dev/mapper/o C $((7 * 1048576)) 4096
ok "the snapshot is whole or Invalid" whole_or_refused
is "$(status s)" Invalid "the snapshot is Invalid after one more write"

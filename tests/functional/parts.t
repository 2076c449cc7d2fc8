#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A write that is cut while it waits holds the gate of the origin for none of its parts
# but those under way: a snapshot can be made while one of them waits for a commit.

. "$(dirname "$0")/common.sh"

need_target delay
exact_copies
plan 6

DELAY=1500	# ms that a write to the store takes

# That of chunk 0 is counted when it begins, then that of the mark.
copy_is_committed()
{
	(($(key_of s commits) > before))
}

mark_is_committed()
{
	(($(key_of s commits) >= before + 2))
}

base=$(mkloop 8M)
store=$(mkloop 24M)
fill_letter "$base" A
dmcreate cow "$(linear_table "$store")"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow P

# Chunk 1 is copied, so that a write to it is no more than a mark; 2 to 4 are private.
put_letter /dev/mapper/o B 4096 4096
put_letter /dev/mapper/s C 8192 12288
dmreload cow "$(delay_table "$store" 0 $DELAY)"
before=$(key_of s commits)
# Chunk 0 is copied for this, and other writes to it wait for the copy.
put_letter /dev/mapper/s D 512 512 &
wait_for 30 copy_is_committed
put_letter /dev/mapper/s W 0 20480 &
writer=$!
ok "a part of the write is done, another is being committed" wait_for 30 mark_is_committed
ok "a snapshot is made while a part waits for its commit" dm message s 0 create 5
is "$(kernel_log | grep -c 'writes under way did not end')" 0 \
	"making the snapshot does not wait for the write's other parts"
ok "the write ends" wait "$writer"
wait
dmreload cow "$(linear_table "$store")"
ok "all parts of the write are there" all_letter /dev/mapper/s W 0 20480
ok "the origin is as it was" all_letter /dev/mapper/o AB

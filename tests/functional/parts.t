#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A write that is cut while it waits holds the gate of the origin for none of its parts
# but those under way: a snapshot can be made while one of them waits for a commit.

. "$(dirname "$0")/common.sh"

need_target delay
exact_copies
plan 6

DELAY=1500	# ms: a write to the store takes so long

slow()
{
	echo "0 $(sectors "$store") delay $store 0 0 $store 0 $1"
}

turn()
{
	dm suspend cow && dmload cow "$1" && dm resume cow
}

# That of chunk 0 is counted when it begins, then that of the mark.
mark_is_committed()
{
	(($(key_of s commits) >= before + 2))
}

base=$(mkloop 8M)
store=$(mkloop 24M)
fill_letter "$base" A
dmcreate cow "$(slow 0)"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow P

# Chunk 1 is copied, so that a write to it is no more than a mark; 2 to 4 are private.
put_letter /dev/mapper/o B 4096 4096
put_letter /dev/mapper/s C 8192 12288
turn "$(slow $DELAY)"
before=$(key_of s commits)
# Chunk 0 is copied for this, and whoever writes there waits for it.
put_letter /dev/mapper/s D 512 512 &
sleep 0.5
put_letter /dev/mapper/s W 0 20480 &
writer=$!
ok "a part is done, another is being committed" wait_for 30 mark_is_committed
start=$SECONDS
ok "a snapshot is made meanwhile" dm message s 0 create 5
ok "without waiting for what waits for it ($((SECONDS - start)) s)" \
	[ $((SECONDS - start)) -lt 45 ]
ok "the write ends" wait "$writer"
wait
turn "$(slow 0)"
is "$(not_letter /dev/mapper/s W 0 20480)" 0 "and is there"
is "$(not_letter /dev/mapper/o AB)" 0 "the origin is as it was"

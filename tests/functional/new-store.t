#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A new store gets its first table blocks while its origin is suspended. They are written side by
# side, and if one of them fails there is no snapshot, until it is tried again.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"
. "$(dirname "$0")/log.sh"

need_target delay
exact_copies
plan 18

base=$(mkloop 16M)
store=$(mkloop 24M)
# Table blocks of as many segments are among the first.
SEGMENTS=4
# Where the superblocks are, and behind it.
HEAD=8

# all_but_head WORDS...: what the store has behind its superblocks, as another target.
all_but_head()
{
	echo "0 $HEAD linear $store 0"
	echo "$HEAD $(($(sectors "$store") - HEAD)) $*"
}

fresh()
{
	fill_letter "$base" A
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	dmcreate cow "$(linear_table "$store")"
	origin_up o "$base"
}

down()
{
	dmremove s
	dmremove o
	dmremove cow
}

# new_snapshot: as LVM makes it, with the origin suspended until its end, whatever that is.
new_snapshot()
{
	local rc=0

	dm create s --notable && dmload s "$(snap_table "$base" /dev/mapper/cow P 8)" &&
		dm suspend o && { dm resume s || rc=$?; } && dm resume o
	return $rc
}

shows_old_data()
{
	put_letter /dev/mapper/o B 0 65536
	is "$(get /dev/mapper/s 0 65536 | tr -d A | wc -c)" 0 "$1: the snapshot shows the old data"
	is "$(get /dev/mapper/o 0 65536 | tr -d B | wc -c)" 0 "$1: the origin has the new data"
}

# ---- side by side ----

fresh
# (Flushes are not delayed.)
swap_table cow "$(all_but_head delay "$store" $HEAD 0 "$store" $HEAD 120000 \
	"$store" $HEAD 0)"
new_snapshot &
making=$!
ok "table blocks of several segments are under way at a time" \
	wait_for 60 writes_are_delayed cow $SEGMENTS
ok "the snapshot is not made before they are there" kill -0 $making
swap_table cow "$(linear_table "$store")"
ok "the snapshot is made" all_end_well $making
shows_old_data "side by side"
down
like "$(checked "$store")" 'clean, 1 snapshots' "side by side: the store is sound"

# ---- one of them fails ----

# Of the table blocks the first ones behind the superblocks' chunk, and the last ones.
for at in "$HEAD" 4096; do
	fresh
	swap_table cow "$(partly_table "$store" $at 2048 error)"
	not_ok "error at $at: no snapshot is made" new_snapshot || {
		down
		continue
	}
	is "$(key_of s epoch)" 0 "error at $at: it has no epoch"
	put_letter /dev/mapper/o C 0 4096
	is "$(get /dev/mapper/o 0 4096 | tr -d C | wc -c)" 0 "error at $at: the origin goes on"
	swap_table cow "$(linear_table "$store")"
	put_letter /dev/mapper/o A 0 4096
	dmremove s
	ok "error at $at: then good: a snapshot is made" new_snapshot
	shows_old_data "error at $at, then good"
	down
done

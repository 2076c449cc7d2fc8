#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A new store gets its first table blocks and superblocks when its table is loaded, before its origin
# is suspended. They are written side by side, and if one of them fails the table is refused, until
# it is tried again. Only if somebody else is busy with the origin are they left for the resumption.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"
. "$(dirname "$0")/log.sh"

need_target delay
exact_copies
plan 33

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

snapshot_table()
{
	snap_table "$base" /dev/mapper/cow P 8
}

# made: the snapshot of the table that is loaded, as LVM makes it, with the origin suspended until
# its end, whatever that is.
made()
{
	local rc=0

	dm suspend o && { dm resume s || rc=$?; } && dm resume o
	return $rc
}

shows_old_data()
{
	put_letter /dev/mapper/o B 0 65536
	is "$(get /dev/mapper/s 0 65536 | tr -d A | wc -c)" 0 "$1: the snapshot shows the old data"
	is "$(get /dev/mapper/o 0 65536 | tr -d B | wc -c)" 0 "$1: the origin has the new data"
}

# ---- side by side, when the table is loaded ----

fresh
# (Flushes are not delayed.)
swap_table cow "$(all_but_head delay "$store" $HEAD 0 "$store" $HEAD 120000 \
	"$store" $HEAD 0)"
dm create s --notable
dmload s "$(snapshot_table)" &
loading=$!
ok "table blocks of several segments are under way at a time" \
	wait_for 60 writes_are_delayed cow $SEGMENTS
ok "the table is not loaded before they are there" kill -0 $loading
ok "the origin can be written meanwhile" put_letter /dev/mapper/o A 0 4096
swap_table cow "$(linear_table "$store")"
ok "the table is loaded" all_end_well $loading
# What is on the disk before the origin is suspended need not be written while it is.
swap_table cow "$(all_but_head error)"
ok "the snapshot is made without another table block" made
swap_table cow "$(linear_table "$store")"
shows_old_data "side by side"
down
like "$(checked "$store")" 'clean, 1 snapshots' "side by side: the store is sound"

# ---- one of them fails ----

# Of the table blocks the first ones behind the superblocks' chunk, and the last ones.
for at in "$HEAD" 4096; do
	fresh
	swap_table cow "$(partly_table "$store" $at 2048 error)"
	dm create s --notable
	kernel_refuses 'Store dm-[0-9]+ cannot be written \(error -5\)' \
		"error at $at: the table is refused" dmload s "$(snapshot_table)"
	put_letter /dev/mapper/o C 0 4096
	is "$(get /dev/mapper/o 0 4096 | tr -d C | wc -c)" 0 "error at $at: the origin goes on"
	swap_table cow "$(linear_table "$store")"
	put_letter /dev/mapper/o A 0 4096
	ok "error at $at: then good: the table is loaded" dmload s "$(snapshot_table)"
	ok "error at $at: then good: a snapshot is made" made
	shows_old_data "error at $at, then good"
	down
done

# ---- a table that is given up ----

fresh
dm create s --notable
dmload s "$(snapshot_table)"
dmremove s
like "$(checked /dev/mapper/cow)" 'clean, 0 snapshots' "given up: what it leaves is a store without snapshots"
put_letter /dev/mapper/o A 0 4096
dm create s --notable
ok "given up: the store takes another table" dmload s "$(snapshot_table)"
ok "given up: a snapshot is made" made
shows_old_data "given up"
down

# ---- beside somebody who holds the lock that making a snapshot takes ----

fresh
other=$(mkloop 24M)
dmcreate held "$(linear_table "$other")"
dmcreate first "$(snap_table "$base" /dev/mapper/held P 8)"
swap_table held "0 $(sectors "$other") delay $other 0 0 $other 0 120000 $other 0 0"
dm message o 0 create 1 &
holding=$!
ok "held: somebody makes a snapshot, and waits" wait_for 60 writes_are_delayed held 1
dm create s --notable
rc=0
timeout 100 dmsetup load s --table "$(snap_table "$base" /dev/mapper/cow P 7)" 2> /dev/null || rc=$?
is $rc 1 "held: a table that is refused does not wait for the lock"
rc=0
timeout 100 dmsetup load s --table "$(snapshot_table)" || rc=$?
is $rc 0 "held: nor does a table that is loaded"
is "$(get "$store" 0 4096 | tr -d '\0' | wc -c)" 0 "held: the store is as it was"
dm resume s &
making=$!
swap_table held "$(linear_table "$other")"
ok "held: both snapshots are made" all_end_well $holding $making
shows_old_data "held"
dmremove first
dmremove held
down
like "$(checked "$store")" 'clean, 1 snapshots' "held: the store is sound"

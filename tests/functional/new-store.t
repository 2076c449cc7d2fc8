#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A new store gets its first table blocks and superblocks when its table is loaded, before its origin
# is suspended. They are written side by side, and if one of them fails the table is refused, until
# it is tried again.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"
. "$(dirname "$0")/log.sh"

need_target delay
exact_copies
plan 71

base=$(mkloop 16M)
# Table blocks of as many segments are among the first.
SEGMENTS=4
# Where the superblocks are, whatever the size of blocks.
HEAD=16

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

side_by_side()
{
	local loading

	fresh
	# (Flushes are not delayed.)
	swap_table cow "$(all_but_head delay "$store" $HEAD 0 "$store" $HEAD 120000 \
		"$store" $HEAD 0)"
	dm create s --notable
	dmload s "$(snapshot_table)" &
	loading=$!
	ok "$1: table blocks of several segments are under way at a time" \
		wait_for 60 writes_are_delayed cow $SEGMENTS
	ok "$1: the table is not loaded before they are there" kill -0 $loading
	ok "$1: the origin can be written meanwhile" put_letter /dev/mapper/o A 0 4096
	swap_table cow "$(linear_table "$store")"
	ok "$1: the table is loaded" all_end_well $loading
	# What is on the disk before the origin is suspended need not be written while it is.
	swap_table cow "$(all_but_head error)"
	ok "$1: the snapshot is made without another table block" made
	swap_table cow "$(linear_table "$store")"
	shows_old_data "$1"
	down
	like "$(checked "$store")" 'clean, 1 snapshots' "$1: the store is sound"
}

# ---- one of them fails ----

# one_fails WORDS FROM: of the table blocks those from there on.
one_fails()
{
	fresh
	swap_table cow "$(partly_table "$store" "$2" 8192 error)"
	dm create s --notable
	for _ in once again; do
		kernel_refuses 'Store dm-[0-9]+ cannot be written \(error -5\)' \
			"$1, error at $2: the table is refused" dmload s "$(snapshot_table)"
	done
	put_letter /dev/mapper/o C 0 4096
	is "$(get /dev/mapper/o 0 4096 | tr -d C | wc -c)" 0 "$1, error at $2: the origin goes on"
	swap_table cow "$(linear_table "$store")"
	put_letter /dev/mapper/o A 0 4096
	ok "$1, error at $2, then good: the table is loaded" dmload s "$(snapshot_table)"
	ok "$1, error at $2, then good: a snapshot is made" made
	shows_old_data "$1, error at $2, then good"
	down
}

for block in 512 4096; do
	store=$(mkloop 24M --sector $block)
	side_by_side "blocks of $block"
	# The first ones behind the superblocks' chunk, and the last ones.
	one_fails "blocks of $block" $HEAD
	one_fails "blocks of $block" 4096
done

# ---- a table that is given up ----

fresh
dm create s --notable
dmload s "$(snapshot_table)"
dmremove s
like "$(checked /dev/mapper/cow)" 'clean, 0 snapshots' "given up: what it leaves is a store without snapshots"
small=$(mkloop 8M)
ok "given up: the store takes a table of a smaller origin" \
	dmcreate t "$(snap_table "$small" /dev/mapper/cow P 8 id 3 create)"
dmremove t
dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
dm create s --notable
dmload s "$(snapshot_table)"
dmremove s
put_letter /dev/mapper/o A 0 4096
dm create s --notable
ok "given up: the store takes another table" dmload s "$(snapshot_table)"
ok "given up: a snapshot is made" made
shows_old_data "given up"
down

# ---- a table that is refused ----

fresh
dm create s --notable
not_ok "refused: snapshot 7 cannot be found in a new store" \
	dmload s "$(snap_table "$base" /dev/mapper/cow P 8 id 7)"
is "$(get /dev/mapper/cow 0 65536 | tr -d '\0' | wc -c)" 0 "refused: the store is as it was"
dmremove s
dmremove o
dmremove cow

# ---- an origin that has no size yet: LVM loads its table and the snapshot's, and resumes then ----

fresh
dmremove o
dmcreate real "" --notable
real=$(dmsetup info -c --noheadings --separator : -o major,minor real)
dmload real "$(linear_table "$base")"
dm create s --notable
ok "no size: the table is loaded" \
	dmload s "0 $(sectors "$base") cowsnap $real /dev/mapper/cow P 8"
isnt "$(get /dev/mapper/cow 0 4096 | tr -d '\0' | wc -c)" 0 "no size: the store is made"
dm resume real
dmcreate o "$(origin_table /dev/mapper/real)"
ok "no size: a snapshot is made" made
shows_old_data "no size"
dmremove s
dmremove o
dmremove real
dmremove cow
like "$(checked "$store")" 'clean, 1 snapshots' "no size: the store is sound"

# late_transient ROTATIONAL KIB: it learns then, too, whether the origin is a disk. Until its table is
# in force a device says what it would be with the first one that was loaded.
late_transient()
{
	local words="no size, transient, rotational $1"

	echo "$1" >"$(sysfs "$base")/queue/rotational"
	echo $((1 - $1)) >"$(sysfs "$other")/queue/rotational"
	dmcreate real "" --notable
	real=$(dmsetup info -c --noheadings --separator : -o major,minor real)
	dmload real "$(linear_table "$other")"
	dmload real "$(linear_table "$base")"
	dm create s --notable
	ok "$words: the table is loaded" \
		dmload s "0 $(sectors "$base") cowsnap $real $store N 8"
	dm resume real
	dmcreate o "$(origin_table /dev/mapper/real)"
	ok "$words: a snapshot is made" made
	is "$(key_of s copy_around)" "$2" "$words: so much is read around what is copied"
	dmremove s
	dmremove o
	dmremove real
}

other=$(mkloop 16M)
dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
at_exit _write "$PARAMETERS/copy_around" "$(cat "$PARAMETERS/copy_around")"
echo -1 >"$PARAMETERS/copy_around"
late_transient 1 256
late_transient 0 0
echo 0 >"$PARAMETERS/copy_around"

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
swap_table cow "$(partly_table "$store" $HEAD 8192 error)"
rc=0
timeout 100 dmsetup load s --table "$(snapshot_table)" 2> /dev/null || rc=$?
is $rc 1 "held: a table that is refused does not wait for the lock"
swap_table cow "$(linear_table "$store")"
rc=0
timeout 100 dmsetup load s --table "$(snapshot_table)" || rc=$?
is $rc 0 "held: nor does a table that is loaded"
dm resume s &
making=$!
swap_table held "$(linear_table "$other")"
ok "held: both snapshots are made" all_end_well $holding $making
shows_old_data "held"
dmremove first
dmremove held
down
like "$(checked "$store")" 'clean, 1 snapshots' "held: the store is sound"

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What a message makes: snapshots of two suspended origins are of one instant, and a snapshot is as
# long as its origin, also if that is shorter than its device.

. "$(dirname "$0")/common.sh"

need perl

plan 9

# ---- one instant for two origins ----

# Numbers, each written to a and then to b, one after the other.
count_up()
{
	exec perl "$TESTS_DIR/functional/origin.pl" count-up /dev/mapper/a /dev/mapper/b
}

number_in()
{
	get "$1" 0 512 | tr -d ' \0'
}

counting()
{
	[[ $(number_in /dev/mapper/b) -gt 0 ]]
}

# group ID: a snapshot of each, while both are suspended.
group()
{
	dmsetup suspend a && dmsetup suspend b &&
		dmsetup message a 0 create "$1" && dmsetup message b 0 create "$1" || return
	dmsetup resume b && dmsetup resume a
}

# The first may be one ahead, not more, and never behind.
one_instant()
{
	local a b

	dmsetup create ga --table "$(snap_table "$base" "$store" P 8 id "$1")" &&
		dmsetup create gb --table "$(snap_table "$base2" "$store2" P 8 id "$1")" || return
	a=$(number_in /dev/mapper/ga)
	b=$(number_in /dev/mapper/gb)
	diag "group $1: $a and $b"
	dmsetup remove --retry ga
	dmsetup remove --retry gb
	((a > 0 && a - b >= 0 && a - b <= 1))
}

two_origins()
{
	local base base2 store store2 counter n bad=''

	base=$(mkloop 512K)
	base2=$(mkloop 512K)
	store=$(mkloop 4M)
	store2=$(mkloop 4M)
	fill_letter "$base" 0
	fill_letter "$base2" 0
	origin_up a "$base"
	origin_up b "$base2"
	# Stores have to be there for a message to make snapshots in them.
	snap_up ka "$base" "$store" P 8
	snap_up kb "$base2" "$store2" P 8
	count_up &
	counter=$!
	wait_for 60 counting
	for n in 1 2 3; do
		sleep 1
		ok "group $n of two is made while both origins are suspended" group "$n"
	done
	sleep 1
	kill "$counter"
	wait "$counter" 2>/dev/null
	for n in 1 2 3; do
		one_instant "$n" || bad+="$n "
	done
	is "$bad" "" "each group is of one instant"
}

# ---- an origin shorter than its device ----

shorter_origin()
{
	local base store half

	base=$(mkloop 1M)
	store=$(mkloop 2M)
	half="0 1024 cowsnap-origin $base"
	dmcreate a "$half"
	dmcreate b "0 1024 cowsnap $base $store P 8 1 create"
	dmreload a "$half 2 store $store"
	dmremove b
	ok "a snapshot of an origin shorter than its device is made" dm message a 0 create 2
	ok "a snapshot is as long as its origin" dmcreate b "0 1024 cowsnap $base $store P 8 2 id 2"
	dmremove b
	dmreload a "0 1600 cowsnap-origin $base 2 store $store"
	ok "a snapshot of the grown origin is made" dm message a 0 create 3
	not_ok "a snapshot of the grown origin is not as short as before" \
		dmcreate b "0 1024 cowsnap $base $store P 8 2 id 3"
	ok "a snapshot of the grown origin is as long as that" \
		dmcreate b "0 1600 cowsnap $base $store P 8 2 id 3"
	dmremove b
	dmremove a
}

shorter_origin
two_origins

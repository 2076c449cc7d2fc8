#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Settling leaves alone what writes wait for, brings home all that can come home, in a store without
# much room, beside tables that cannot be read, and says when it will do nothing.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/settle.sh"

# alone: no snapshot needs what is at home.
alone()
{
	dmremove s
	dm message o 0 delete 0
}

# Without a snapshot as well.
unsettled()
{
	dmsetup message o 0 list | tr ' ' '\n' | grep -A1 -x unsettled | sed -n 2p
}

unsettled_at_most()
{
	(($(unsettled) <= $1))
}

# chunks FROM TO: arguments for put, every second chunk of 4 KiB, each a run of its own.
chunks()
{
	local i

	for ((i = $1; i < $2; i += 2)); do
		echo $((i * 4096)) 4096
	done
}

# A write to what has come home already, and one to what is not under way, while one run of those
# that are under way takes its time.
wanted()
{
	begin 8 off
	# shellcheck disable=SC2046
	put /dev/mapper/o "$TEST_TMP/now" $(chunks 64 160)
	is "$(unsettled)" 48 "runs are redirected, each alone"
	alone
	# The 20th of 32.
	swap_table home "$(partly_table "$base" $((102 * 8)) 8 delay "$base" $((102 * 8)) 0 "$base" $((102 * 8)) 120000)"
	dm message o 0 settle
	ok "one of them is slow" wait_for 60 writes_are_delayed home 1
	sleep 1
	ok "a write to one that is home does not wait for it" put /dev/mapper/o "$TEST_TMP/now" $((70 * 4096)) 512
	ok "nor does one to a later one" put /dev/mapper/o "$TEST_TMP/now" $((150 * 4096 + 512)) 1024
	ok "which is still slow" writes_are_delayed home 1
	swap_table home "$(linear_table "$base")"
	ok "all comes home" wait_for 25 unsettled_is 0
	ok "as it was written" same /dev/mapper/o "$TEST_TMP/now"
	ok "and is there" is_home
	all_down
}

# As long as the slot of what is home is on the disk, a power cut would have it count again, and
# what was written to home meanwhile would be lost.
slot_first()
{
	local writer

	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	by_tables
	is "$(unsettled)" 1 "a chunk is redirected, by the tables"
	alone
	swap_table cow "$(delay_table "$store" 0 120000)"
	dm message o 0 settle
	ok "its slot is about to go" wait_for 60 writes_are_delayed cow 1
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096 &
	writer=$!
	sleep 2
	not_ok "a write to it waits for that" has_ended "$writer"
	ok "which is still slow" writes_are_delayed cow 1
	swap_table cow "$(linear_table "$store")"
	ok "then it goes on" wait "$writer"
	ok "the chunk is home" wait_for 25 unsettled_is 0
	crash
	origin_up o "$home" store "$cow"
	ok "and as it was written" same /dev/mapper/o "$TEST_TMP/now"
	all_down
}

read_only()
{
	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 8192
	alone
	blockdev --setro "$home"
	kernel_refuses 'is read-only: make it writable before' "a home that is read-only is not settled" \
		dm message o 0 settle
	dm message o 0 set settle now
	sleep 2
	not_ok "nor is it written for an option" is_home
	blockdev --setrw "$home"
	dm message o 0 settle
	ok "then all comes home" wait_for 25 unsettled_is 0
	ok "and is there" is_home
	all_down
}

# The copies of home take as much room as what comes home gives back.
little_room()
{
	swap_table cow "0 6144 linear $store 0"
	begin 8 off
	dm message o 0 set redirect 80
	put /dev/mapper/o "$TEST_TMP/now" $U $((15 * U))
	is "$(unsettled)" 480 "most of the store has what was redirected"
	dm message o 0 settle
	ok "one message brings all home" wait_for 25 unsettled_is 0
	all_right "in little room"
	all_down
	swap_table cow "$(linear_table "$store")"
}

says_so()
{
	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	alone
	swap_table cow "$(no_writes_table "$store")"
	dm message o 0 settle
	ok "when a table cannot be written writes end with an error" \
		wait_for 25 not_writable $((3 * U))
	swap_table cow "$(linear_table "$store")"
	kernel_refuses 'load its tables again to settle it' "the message says that nothing will come home" \
		dm message o 0 settle
	all_down
}

are_parked()
{
	[[ $(key_of o parked) == "$1" ]]
}

# What has gone with its snapshot does not come home: what is redirected later was not asked for.
gone()
{
	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096 $((5 * U)) 4096
	snap_two
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	is "$(unsettled)" 3 "one chunk is redirected, and another under two snapshots"
	alone
	swap_table home "$(delay_table "$base" 0 120000)"
	dm message o 0 settle
	ok "one is on its way home" wait_for 60 writes_are_delayed home 1
	dmremove s2
	dm message o 0 delete 2
	ok "a version goes with its snapshot" wait_for 60 unsettled_is 2
	# It is left, so that the passes begin anew.
	put /dev/mapper/o "$TEST_TMP/now" $((5 * U)) 512 &
	ok "a write waits for one" wait_for 60 are_parked 1
	swap_table home "$(linear_table "$base")"
	wait $!
	ok "the others come home" wait_for 25 unsettled_is 0
	dm message o 0 create 0
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	snap_up s "$home" "$cow" P 8
	put /dev/mapper/o "$TEST_TMP/now" $((6 * U)) 4096
	sleep 3
	is "$(unsettled)" 1 "what is redirected later does not"
	all_right "gone"
	all_down
}

# Versions behind a table block that cannot be read.
behind_unreadable()
{
	local block

	away_from_start || return
	dm message o 0 set redirect 60
	# shellcheck disable=SC2046
	put /dev/mapper/o "$TEST_TMP/now" $(chunks 130 270)
	is "$(unsettled)" 71 "chunks are redirected after it"
	by_tables
	remove_and_reload s o
	up
	alone
	sleep 1
	swap_table cow "$(block_fails error)"
	dm message o 0 settle
	ok "what other table blocks tell of comes home" wait_for 60 unsettled_at_most 35
	sleep 3
	ok "what this one tells of stays" [ "$(unsettled)" -ge 1 ]
	swap_table cow "$(linear_table "$store")"
	ok "and comes home later" wait_for 25 unsettled_is 0
	ok "as it was written" same /dev/mapper/o "$TEST_TMP/now"
	ok "and is there" is_home
	all_down
}

wanted
slot_first
read_only
little_room
says_so
gone
behind_unreadable
dmremove cow
dmremove home
done_testing

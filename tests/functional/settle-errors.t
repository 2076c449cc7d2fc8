#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Errors of either device while what was redirected comes home in use: nothing is lost, and nothing
# is published that the disk may lack.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/settle.sh"

errors()
{
	local place

	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096 $((5 * U)) 4096
	remove_and_reload s o
	place=$("$tool" dump "$cow" | sed -n "s/.*kind current .* chunk $((3 * U / 4096)) .* place \([0-9]*\).*/\1/p")
	up
	swap_table cow "$(partly_table "$store" $((place * 8)) 8 error)"
	dm message o 0 settle
	ok "what cannot be read stays, the rest comes home" wait_for 25 unsettled_is 1
	sleep 1
	is "$(unsettled)" 1 "and is not given up"
	swap_table cow "$(linear_table "$store")"
	all_right "a version that could not be read"

	# Home does not take it.
	swap_table home "$(partly_table "$base" $((3 * U / 512)) 8 flakey "$base" $((3 * U / 512)) 0 1000 1 error_writes)"
	dm message o 0 settle
	sleep 2
	is "$(unsettled)" 1 "what home does not take stays"
	ok "it can be read" same /dev/mapper/o "$TEST_TMP/now"
	swap_table home "$(linear_table "$base")"
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 1024
	all_right "a chunk that home did not take"

	# Old content of home cannot be written to the store: no snapshot is lost for that.
	put /dev/mapper/o "$TEST_TMP/now" $((6 * U)) 4096
	swap_table cow "$(no_writes_table "$store")"
	dm message o 0 settle
	sleep 2
	swap_table cow "$(linear_table "$store")"
	all_right "a copy that could not be written"
	remove_and_reload s o
	up
	all_right "a copy that could not be written, opened again"

	# Nor can the tables: nothing is published, and nothing is written any more.
	dmremove s
	dm message o 0 delete 0
	put /dev/mapper/o "$TEST_TMP/now" $((6 * U)) 1024
	swap_table cow "$(no_writes_table "$store")"
	dm message o 0 settle
	ok "when a table cannot be written writes end with an error" \
		wait_for 25 not_writable $((6 * U))
	swap_table cow "$(linear_table "$store")"
	ok "the origin can be read" same /dev/mapper/o "$TEST_TMP/now"
	remove_and_reload o
	origin_up o "$home" store "$cow"
	ok "opened again it is right" same /dev/mapper/o "$TEST_TMP/now"
	put /dev/mapper/o "$TEST_TMP/now" $((6 * U)) 8192
	ok "and can be written" same /dev/mapper/o "$TEST_TMP/now"
	all_down
}

is_gone()
{
	! dmsetup info "$1"
}

# The store is open, and not in force: nothing is known of snapshots, or of what is in doubt.
not_in_force()
{
	local before

	begin 8 on
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 8192
	swap_table home "$(no_writes_table "$base")"
	dm message o 0 set settle now
	sleep 1
	remove_and_reload s o
	swap_table home "$(linear_table "$base")"

	dmcreate o "" --notable
	dmload o "$(origin_table "$home" store "$cow")"
	dmcreate s2 "" --notable
	dmload s2 "$(snap_table "$home" "$cow" P 8 id 5 create)"
	before=$(cat "$base" "$store" | md5sum)
	dm clear s2
	sleep 3
	is "$(cat "$base" "$store" | md5sum)" "$before" "a table that is loaded and cleared has nothing come home"
	dmremove s2
	# What waits for an engine without pages waits for ever.
	dmremove o &
	ok "and nothing keeps the store from being closed" wait_for 25 is_gone o
	wait $!
	dmcreate o "" --notable
	dmload o "$(origin_table "$home" store "$cow")"
	swap_table home "$(partly_table "$base" 0 256 error)"
	not_ok "a store whose seal cannot be read is not resumed" dm resume o
	kernel_refuses 'is not in use yet: resume' "nor is it settled" dm message o 0 settle
	before=$(md5sum <"$base")
	dm message o 0 set settle now
	sleep 3
	is "$(md5sum <"$base")" "$before" "nothing comes home for an option"
	swap_table home "$(linear_table "$base")"
	ok "it is resumed" dm resume o
	snap_up s "$home" "$cow" P 8
	ok "then all comes home" wait_for 25 unsettled_is 0
	all_right "in force"
	all_down
}

# A table block that has no slots any more cannot be flushed: the slots are written again.
put_right()
{
	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096 $((5 * U)) 4096
	dmremove s
	dm message o 0 delete 0
	by_tables
	sleep 1
	dmcreate mid "$(linear_table "$store")"
	swap_table cow "$(delay_table /dev/mapper/mid 0 10000)"
	dm message o 0 settle
	ok "a table block is on its way" wait_for 25 writes_are_delayed cow 1
	# It gets there after 10 s, its flush 10 s later, and what puts it right after that.
	sleep 14
	swap_table mid "$(no_writes_table "$store")"
	sleep 9
	swap_table mid "$(linear_table "$store")"
	swap_table cow "$(linear_table "$store")"
	dmremove mid
	ok "when it cannot be flushed writes go on, in place" \
		put /dev/mapper/o "$TEST_TMP/now" $((3 * U + 512)) 512
	crash
	origin_up o "$home" store "$cow"
	ok "they are there after a crash" same /dev/mapper/o "$TEST_TMP/now"
	dm message o 0 settle
	snap_up s "$home" "$cow" P 8 id 7 create
	ok "and come home later" wait_for 25 unsettled_is 0
	ok "what comes home is right" same /dev/mapper/o "$TEST_TMP/now"
	all_down
}

# Nothing is written where it cannot be read, so that nothing is in doubt.
unreadable_table()
{
	local block

	away_from_start || return
	remove_and_reload s o
	up
	dmremove s
	dm message o 0 delete 0
	sleep 1
	swap_table cow "$(block_fails error)"
	dm message o 0 settle
	sleep 3
	swap_table cow "$(linear_table "$store")"
	ok "a table block that cannot be read lets writes go on" \
		put /dev/mapper/o "$TEST_TMP/now" $((100 * 4096 + 512)) 512 $((7 * U)) 4096
	snap_up s "$home" "$cow" P 8 id 7 create
	ok "what it tells of comes home later" wait_for 25 unsettled_is 0
	ok "as it was written" same /dev/mapper/o "$TEST_TMP/now"
	all_down
}

# only_read: a device that is $block, and takes no writes. It has no cache, so that nobody flushes it:
# else the target flakey would fail that as well.
only_read()
{
	local loop

	loop=$(losetup -f --show "$(loop_file "$store")")
	echo "write through" >"/sys/block/${loop#/dev/}/queue/write_cache"
	dmcreate only_read "0 1 flakey $loop $block 0 1000 1 error_writes"
	losetup -d "$loop"
}

# The slot of a dead version, in a block that has others: nobody knows what the disk has of them.
dead_stays()
{
	local block

	away_from_start || return
	snap_two
	put /dev/mapper/o "$TEST_TMP/now" $((100 * 4096)) 4096
	dmremove s2
	only_read
	swap_table cow "$(block_fails linear /dev/mapper/only_read 0)"
	dm message o 0 delete 2
	ok "when a dead slot cannot be freed writes end with an error" \
		wait_for 25 not_writable $((100 * 4096))
	swap_table cow "$(linear_table "$store")"
	dmremove only_read
	ok "the origin can be read" same /dev/mapper/o "$TEST_TMP/now"
	remove_and_reload s o
	up
	all_right "opened again"
	dm message o 0 settle
	ok "then it comes home" wait_for 25 unsettled_is 0
	all_right "after a dead slot"
	all_down
}

# The store takes writes, but its flushes fail.
flushes_fail()
{
	swap_table cow "$(partly_table "$store" $(($(sectors "$store") - 16)) 8 \
		flakey "$store" 0 0 1000 1 error_writes)"
}

flushes_work()
{
	swap_table cow "$(linear_table "$store")"
}

# A device tells of what it has lost once. Where the module has flushed it, users hear of that from
# their next flush.
lost_flush()
{
	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096 $((5 * U)) 4096
	dmremove s
	dm message o 0 delete 0
	by_tables
	sync -d /dev/mapper/o
	flushes_fail
	dm message o 0 settle
	ok "data is brought home while flushes of the store fail" wait_for 25 is_home
	sleep 1
	flushes_work
	not_ok "users are told" sync -d /dev/mapper/o
	ok "and can write, when that is over" \
		put /dev/mapper/o "$TEST_TMP/now" $((3 * U + 512)) 512
	dm message o 0 settle
	snap_up s "$home" "$cow" P 8 id 7 create
	ok "and all comes home" wait_for 25 unsettled_is 0
	ok "as it was written" same /dev/mapper/o "$TEST_TMP/now"
	all_down
}

# place_of CHUNK: where the closed store has what the origin shows there.
place_of()
{
	"$tool" dump "$cow" | awk -v chunk="$1" '/kind current/ && $7 <= chunk && chunk < $7 + $9 {
		print $11 + chunk - $7
	}' | sort -n | head -1
}

kind_of()
{
	store_tool kind "$(loop_file "$store")" "$1"
}

# Of two dead slots in different blocks the first cannot be read: the other leaves the disk.
others_leave()
{
	local block unread other

	away_from_start || return
	dm message o 0 set redirect 60
	put /dev/mapper/o "$TEST_TMP/now" $((12 * U)) $((40 * 4096))
	snap_two
	put /dev/mapper/o "$TEST_TMP/now" $((100 * 4096)) 4096 $((12 * U + 39 * 4096)) 4096
	remove_and_reload s2 s o
	unread=$(place_of 100)
	other=$(place_of $((12 * 32 + 39)))
	ok "the first is in front of the other" test "$unread" -lt "$other"
	up
	swap_table cow "$(block_fails error)"
	dm message o 0 delete 2
	ok "room of two dead chunks is given back" wait_for 25 freed_are 2
	swap_table cow "$(linear_table "$store")"
	all_down
	is "$(kind_of "$unread")" "$CURRENT" "the slot that could not be read is there"
	is "$(kind_of "$other")" "$FREE" "the other is free"
	up
	all_right "a dead slot left"
	dm message o 0 settle
	ok "when it is opened again all comes home" wait_for 25 unsettled_is 0
	all_right "all home"
	all_down
	isnt "$(kind_of "$unread")" "$CURRENT" "all home: it is free as well, or another's"
}

freed_are()
{
	[[ $(key_of s freed) == "$1" ]]
}

errors
not_in_force
put_right
unreadable_table
dead_stays
lost_flush
others_leave
dmremove cow
dmremove home
done_testing

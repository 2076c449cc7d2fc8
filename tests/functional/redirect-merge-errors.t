#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A merge into an origin of which the store has data (redirect) loses nothing where it cannot forget
# what it should: tables that fail, versions that the disk still has, reads that are under way, an
# origin that has grown, a full store. Users do not wait for a reclaim that is at work.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/redirect-merge.sh"

# fails_with WORDS: a merge of snapshot 1 fails, and nothing is lost, or comes home in between.
fails_with()
{
	ok "$1: the merge fails" wait_for 60 merge_failed
	dm message o 0 settle
	sleep 1
	swap_table cow "$(linear_table "$store")"
	ok "$1: the origin reads as the snapshot" same /dev/mapper/o "$TEST_TMP/now"
}

ends_well()
{
	ok "$1: it ends" end_merge
	right "$1, merged"
	is "$(unsettled)" 0 "$1: the store has nothing of the origin"
	crash
	up
	right "$1, after a crash"
	is "$(unsettled)" 0 "$1: nothing has come back"
	is_clean "$1"
}

# away_from_start WORDS PERCENT: chunk 100 is redirected, and so many are copied before, or redirected
# with this percentage, that the table block with its slot is not one that is always in memory.
# $block is where that is.
away_from_start()
{
	begin 8 off
	dm message o 0 set redirect "$2"
	put /dev/mapper/o "$TEST_TMP/now" $((6 * MIB)) $((2 * U))
	dm message o 0 set redirect 60
	dm message o 0 commit
	sleep 1
	cp "$(loop_file "$store")" "$TEST_TMP/before"
	put /dev/mapper/o "$TEST_TMP/now" $((100 * 4096)) 4096
	dm message o 0 set redirect 0
	dm message o 0 commit
	sleep 1
	block=$(lone_block "$TEST_TMP/before")
	like "$block" '^[0-9]+$' "$1: the table block is found"
	[[ $block ]]
}

again()
{
	dm suspend o
	dm resume o
}

# Of two stretches. Data is copied for once, to where the store has it. (A version that was copied
# would have its checksum there.)
unreadable_table()
{
	local words="a table block that cannot be read" block

	away_from_start "$words" 60 || return
	dm message o 0 set redirect 60
	put /dev/mapper/o "$TEST_TMP/now" $((8 * MIB)) 4096
	remove_and_reload o
	exact_copies
	up
	swap_table cow "$(partly_table "$store" "$block" 1 error)"
	merge 1
	ok "$words: the merge ends" end_merge
	isnt "$(unsettled)" 0 "$words: what it tells of stays in the store"
	right "$words"
	is "$(kernel_log | grep -c 'a table block cannot be read: chunk .* is copied')" 1 \
		"$words: the log says so, once"
	swap_table cow "$(linear_table "$store")"
	crash
	up
	right "$words, after a crash"
	dm message o 0 settle
	ok "$words: all comes home" wait_for 60 unsettled_is 0
	right "$words, settled"
	is_clean "$words"
}

# What comes home is asked for while the merge rests between two stretches: what it has not reached
# is only at home.
settle_beside()
{
	local words="settling beside a merge"

	begin 8 off
	change 1
	isnt "$(unsettled)" 0 "$words: the store has something"
	dm message o 0 set throttle 1
	swap_table home "$(delay_table "$base" 0 300)"
	merge 1
	dm message o 0 settle
	sleep 3
	ok "$words: the merge has not ended" [ "$(left_of o)" -gt 0 ]
	swap_table home "$(linear_table "$base")"
	dm message o 0 set throttle 100
	ends_well "$words"
}

# Nobody knows which slots the disk has. Opened again the merge goes on.
torn_table()
{
	local words="a table block that cannot be written" block

	away_from_start "$words" 0 || return
	# It is in memory, and only written.
	swap_table cow "$(partly_table "$store" "$block" 1 error)"
	merge 1
	fails_with "$words"
	not_ok "$words: nothing can be written any more" put_letter /dev/mapper/o Z $((9 * MIB)) 4096
	again
	ok "$words: tried again it fails again" wait_for 60 merge_failed
	remove_and_reload o
	exact_copies
	ok "$words: the store is opened again" up
	ok "$words: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
	put /dev/mapper/o "$TEST_TMP/now" $((100 * 4096 + 512)) 512 $((9 * MIB)) 4096
	dmreload o "$(merge_table 1)"
	ends_well "$words"
}

# A version that is dead, and whose slot the disk still has: data is copied for once.
dead_left()
{
	local words="a dead slot" block

	away_from_start "$words" 0 || return
	snapshot 2
	put /dev/mapper/o "$TEST_TMP/now" $((8 * MIB)) $((2 * U))
	dm message o 0 set redirect 60
	put /dev/mapper/o "$TEST_TMP/now" $((100 * 4096)) 4096
	is "$(unsettled)" 2 "$words: a chunk has two versions"
	remove_and_reload o
	exact_copies
	up
	swap_table cow "$(partly_table "$store" "$block" 1 error)"
	dm message o 0 delete 2
	ok "$words: one is dead" wait_for 25 unsettled_is 1
	like "$(kernel_log)" 'old slots cannot be freed' "$words: and the log says that it stays"
	swap_table cow "$(linear_table "$store")"
	merge 1
	ok "$words: the merge ends" end_merge
	is "$(unsettled)" 1 "$words: the other one is still there"
	right "$words"
	crash
	up
	right "$words, after a crash"
	is_clean "$words"
}

# Another snapshot sees a version, and there is no room for a later one: it is not lost for that.
no_room()
{
	local words="no room"

	dmremove cow
	dmcreate cow "0 6144 linear $store 0"
	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 8192
	snapshot 2
	snap_up s "$home" "$cow" P 8 id 2
	not_ok "$words: the store is filled" put_letter /dev/mapper/s Z $((4 * MIB)) $((4 * MIB)) 4096
	image /dev/mapper/s "$TEST_TMP/old2"
	dmremove s
	merge 1
	ok "$words: the merge fails" wait_for 60 merge_failed
	like "$(kernel_log)" 'give the store room' "$words: the log says what it needs"
	right "$words" 2
	swap_table cow "$(linear_table "$store")"
	dm message o 0 resize
	again
	ok "$words: with room it ends" end_merge
	right "$words, merged" 2
	crash
	up
	right "$words, after a crash" 2
	is_clean "$words"
}

# read_slowly WORDS: a chunk that is redirected, until cow has another table. By another table: that
# of a merge takes the place of the first one.
read_slowly()
{
	local place

	cp "$TEST_TMP/now" "$TEST_TMP/then"
	remove_and_reload o
	exact_copies
	place=$("$tool" dump "$cow" | sed -n "s/.*kind current .* chunk $((3 * U / 4096)) .* place \([0-9]*\).*/\1/p")
	up
	swap_table cow "$(partly_table "$store" $((place * 8)) 8 delay "$store" $((place * 8)) 120000 "$store" $((place * 8)) 0)"
	origin_up p "$home" store "$cow"
	get /dev/mapper/p $((3 * U)) 4096 >"$TEST_TMP/read" &
	reader=$!
	ok "$1: it reads what is in the store" wait_for 25 reads_are_delayed cow 1
}

# A read that found a version in the store ends before its place is room.
under_reader()
{
	local words="a reader" reader

	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	read_slowly "$words"
	merge 1
	sleep 3
	is "$(unsettled)" 1 "$words: the place is no room while it is read"
	# It holds back no longer.
	swap_table cow "$(linear_table "$store")"
	ok "$words: it ends" wait "$reader"
	dmremove p
	ok "$words: with what was there" cmp "$TEST_TMP/read" \
		<(tail -c +$((3 * U + 1)) "$TEST_TMP/then" | head -c 4096)
	ok "$words: the merge ends" end_merge
	is "$(unsettled)" 0 "$words: the place is room"
	right "$words"
	is_clean "$words"
}

# reclaim_waits WORDS: a snapshot is deleted, and what it had is room when a read has ended.
reclaim_waits()
{
	read_slowly "$1"
	ok "$1: a snapshot is deleted" dm message o 0 delete 2
	sleep 1
}

has_ended()
{
	! kill -0 "$1" 2>/dev/null
}

# What is to be forgotten waits until a reclaim has ended, but nobody waits with it.
beside_reclaim()
{
	local words="beside a reclaim" reader writer

	begin 8 off
	snapshot 2
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	reclaim_waits "$words"
	merge 1
	sleep 1
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U + 8192)) 4096 &
	writer=$!
	ok "$words: a write beside what it forgets is done meanwhile" wait_for 20 has_ended "$writer"
	isnt "$(left_of o)" 0 "$words: it is not forgotten yet"
	swap_table cow "$(linear_table "$store")"
	ok "$words: it is written" wait "$writer"
	ok "$words: the read ends" wait "$reader"
	dmremove p
	ok "$words: the merge ends" end_merge
	is "$(unsettled)" 0 "$words: then it is forgotten"
	right "$words"
	is_clean "$words"
}

# Nothing is to be forgotten: then the reclaim is not waited for.
without_reclaim()
{
	local words="without a reclaim" reader

	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	snapshot 2
	snapshot 3
	dm message o 0 set redirect 0
	put /dev/mapper/o "$TEST_TMP/now" $((6 * MIB)) 8192
	reclaim_waits "$words"
	merge 3
	ok "$words: the merge ends" wait_for 30 merged
	swap_table cow "$(linear_table "$store")"
	ok "$words: the read ends" wait "$reader"
	dmremove p
	ok "$words: the table is that of before" end_merge
	right "$words" 1
	is_clean "$words"
}

# The origin has grown within a chunk: what is behind the snapshot's end stays.
grown()
{
	local words="grown within a chunk" end=20475

	all_down
	dm suspend home && dmload home "0 $end linear $base 0" && dm resume home
	begin 8 "$1"
	dmremove o
	swap_table home "$(linear_table "$base")"
	head -c $(((20480 - end) * 512)) <(get "$home" $((end * 512)) $(((20480 - end) * 512))) >>"$TEST_TMP/now"
	up
	put /dev/mapper/o "$TEST_TMP/now" $((10 * MIB - 4096)) 4096 $((5 * MIB)) 8192
	is "$(unsettled)" 3 "log $1, $words: the last chunk is redirected"
	tail -c $(((20480 - end) * 512)) "$TEST_TMP/now" >>"$TEST_TMP/old1"
	ok "log $1, $words: the merge begins" merge 1
	ok "log $1, $words: the origin reads as the snapshot, and its end as it was" \
		same /dev/mapper/o "$TEST_TMP/now"
	ok "log $1, $words: it ends" end_merge
	right "log $1, $words"
	is "$(unsettled)" 1 "log $1, $words: the last chunk is still in the store"
	crash
	up
	right "log $1, $words, after a crash"
	is_clean "log $1, $words"
}

devices_up
unreadable_table
settle_beside
torn_table
dead_left
under_reader
beside_reclaim
without_reclaim
grown on
grown off
no_room
devices_down
done_testing

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What writes have redirected to the store comes home while the origin is in use: when it is idle,
# at once, or when told to. Origin and snapshots show what they should meanwhile and after it, also
# after a crash, and after errors of either device.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/settle.sh"

need fio

works()
{
	local words="chunks of $1, log $2"

	begin "$1" "$2"
	put /dev/mapper/o "$TEST_TMP/now" $U $bytes $((2 * U)) $((4 * bytes)) $((16 * U - bytes)) $bytes
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U + 512)) 512
	is "$(unsettled)" 6 "$words: chunks are redirected"
	not_ok "$words: and are not at home" is_home
	ok "$words: settling is switched on" dm message o 0 set settle now
	ok "$words: all comes home" wait_for 25 unsettled_is 0
	is "$(key_of s settled)" 6 "$words: the status says how much"
	ok "$words: it is there" is_home
	all_right "$words, settled"
	put /dev/mapper/o "$TEST_TMP/now" $U $bytes $((2 * U + 512)) 1024
	is "$(unsettled)" 0 "$words: later writes go home"
	all_right "$words, written after it"
	crash
	up
	all_right "$words, after a crash"
	is "$(unsettled)" 0 "$words: nothing has come back"

	# A chunk that was redirected under two snapshots, and one that was under the second.
	dm message o 0 set settle off
	snap_two
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) $bytes $((4 * U)) $((2 * bytes))
	dm message o 0 create 3
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) $bytes $((5 * U)) $bytes
	is "$(unsettled)" 5 "$words: redirected under two more snapshots"
	dm message o 0 settle
	ok "$words: what one of them sees in the store stays, the rest comes home" \
		wait_for 25 unsettled_is 2
	is "$(key_of s settle)" off "$words: the message leaves the option"
	all_right "$words, settled under three snapshots"
	ok "$words: the third one is deleted" dm message o 0 delete 3
	ok "$words: what it saw goes" wait_for 25 unsettled_is 1
	dm message o 0 settle
	ok "$words: then the chunk comes home" wait_for 25 unsettled_is 0
	all_right "$words, third deleted"
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) $bytes $((4 * U)) $bytes
	crash
	up
	snap_up s2 "$home" "$cow" P "$chunk" id 2
	all_right "$words, after another crash"
	is "$(unsettled)" 0 "$words: nothing has come back from the dead"
	remove_and_reload s s2 o
	is "$("$tool" dump "$cow" | grep -c 'kind current')" 0 "$words: no slot is left"
	ok "$words: check finds nothing" "$tool" check "$cow"

	# Without snapshots nothing is copied.
	up
	dm message o 0 set settle off
	dm message o 0 delete 2
	put /dev/mapper/o "$TEST_TMP/now" $((6 * U)) $((2 * bytes))
	dm message o 0 create 4
	put /dev/mapper/o "$TEST_TMP/now" $((7 * U)) $((3 * bytes))
	dm message o 0 delete 4
	copied=$(key_of s copied)
	dmremove s
	dm message o 0 delete 0
	dm message o 0 settle
	dm message o 0 create 0
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	snap_up s "$home" "$cow" P "$chunk"
	ok "$words: without a snapshot that needs them" wait_for 25 unsettled_is 0
	is "$(key_of s copied)" "$copied" "$words: nothing is copied"
	all_right "$words, settled without snapshots"
	all_down
}

# slots: how many slots of the closed store say that it has data of the origin.
slots()
{
	"$tool" dump "$cow" | grep -c 'kind current'
}

# A version that is dead when the store is opened, and of which nobody is to hear again.
dead_at_opening()
{
	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	snap_two
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	cp "$(loop_file "$base")" "$TEST_TMP/base.cut"
	dmremove s2
	dmremove s
	# Its reclaim has not written anything by then.
	dm message o 0 delete 2 &
	wait $!
	remove_and_reload o
	is "$(slots)" 1 "of two versions the dead one leaves the disk"
	up
	dm message o 0 settle
	ok "the other comes home" wait_for 25 unsettled_is 0
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	crash
	up
	all_right "dead, and opened again"
	all_down
}

# used: somebody reads the origin all the time, until the file is gone. Nobody forks for that.
use_it()
{
	local fio

	fio --name=use --filename=/dev/mapper/o --allow_file_create=0 --rw=randread --bs=4k \
		--direct=1 --size=2M --time_based --runtime=120 --thinktime=10000 \
		>/dev/null 2>&1 &
	fio=$!
	while [[ -e $TEST_TMP/used ]]; do
		sleep 0.05
	done
	kill -INT "$fio"
	wait "$fio"
}

# On a machine that stands still for half a second nobody uses it: then two others are written.
stays_while_used()
{
	local at

	for ((at = 3 * U; at < 3 * U + 40960; at += 8192)); do
		put /dev/mapper/o "$TEST_TMP/now" "$at" 8192
		sleep 2
		[[ $(unsettled) != 2 ]] || return 0
	done
	return 1
}

idle()
{
	local user

	begin 8 on
	is "$(key_of s settle)" off "settling is off"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 8192
	sleep 2
	is "$(unsettled)" 2 "then nothing comes home"
	touch "$TEST_TMP/used"
	use_it &
	user=$!
	dm message o 0 set settle idle
	ok "nor does it while the origin is used" stays_while_used
	rm "$TEST_TMP/used"
	wait "$user"
	dm wait o >"$TEST_TMP/event" 2>&1 &
	ok "when nobody uses it all comes home" wait_for 25 unsettled_is 0
	wait $!
	# All of the share is a chunk in a hundred.
	dm message o 0 set redirect 1
	touch "$TEST_TMP/used"
	use_it &
	user=$!
	put /dev/mapper/o "$TEST_TMP/now" $((4 * U)) $((2 * U))
	ok "or when one write uses up the share" wait_for 25 settled_at_least 30
	rm "$TEST_TMP/used"
	wait "$user"
	ok "and the rest" wait_for 25 unsettled_is 0
	all_right "settled while idle"
	all_down
}

reads_are_delayed()
{
	(($(dmsetup status "$1" | awk '$3 == "delay" { print $4 }') >= $2))
}

# A read that found the version in the store ends before its place is room; writes do not wait.
readers()
{
	local reader

	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	cp "$TEST_TMP/now" "$TEST_TMP/then"
	dmremove s
	dm message o 0 delete 0
	swap_table cow "$(delay_table "$store" 4000 0)"
	dm message o 0 settle
	ok "the version is on its way home" wait_for 25 reads_are_delayed cow 1
	sleep 2
	get /dev/mapper/o $((3 * U)) 4096 >"$TEST_TMP/read" &
	reader=$!
	ok "it is read as well" wait_for 25 reads_are_delayed cow 2
	ok "it is home" wait_for 25 delayed_are cow 1
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	ok "writes go there" reads_are_delayed cow 1
	snap_up s "$home" "$cow" P 8 id 7 create
	is "$(unsettled)" 1 "the place is no room while it is read"
	ok "the read ends" wait "$reader"
	ok "with what was there" cmp "$TEST_TMP/read" <(tail -c +$((3 * U + 1)) "$TEST_TMP/then" | head -c 4096)
	ok "then the place is room" wait_for 25 unsettled_is 0
	swap_table cow "$(linear_table "$store")"
	all_down
}

# A write in place that is under way has ended before the version is read.
in_place()
{
	local writer

	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	dmremove s
	dm message o 0 delete 0
	swap_table cow "$(delay_table "$store" 0 3000)"
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U + 512)) 512 &
	writer=$!
	ok "a write in place is under way" wait_for 25 writes_are_delayed cow 1
	dm message o 0 settle
	ok "it ends" wait "$writer"
	swap_table cow "$(linear_table "$store")"
	dm message o 0 create 0
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	snap_up s "$home" "$cow" P 8
	ok "what it wrote into comes home" wait_for 25 unsettled_is 0
	all_right "written in place beside it"
	all_down
}

delayed_are()
{
	(($(dmsetup status "$1" | awk '$3 == "delay" { print $4 }') == $2))
}

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

# The slot of a dead version, in a block that has others: nobody knows what the disk has of them.
dead_stays()
{
	local block

	away_from_start || return
	snap_two
	put /dev/mapper/o "$TEST_TMP/now" $((100 * 4096)) 4096
	dmremove s2
	swap_table cow "$(block_fails flakey "$store" "$block" 0 1000 1 error_writes)"
	dm message o 0 delete 2
	ok "when a dead slot cannot be freed writes end with an error" \
		wait_for 25 not_writable $((100 * 4096))
	swap_table cow "$(linear_table "$store")"
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

# Many table blocks, each of which takes its time: a write that needs a commit goes on in between.
commits_go_on()
{
	local base=$1 home=/dev/mapper/large all=$((60 * U)) writer

	dmcreate large "$(linear_table "$base")"
	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) "$all"
	dmremove s
	dm message o 0 delete 0
	snap_up s "$home" "$cow" P 8 id 2 create
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	by_tables
	swap_table cow "$(delay_table "$store" 0 60)"
	dm message o 0 settle
	ok "many table blocks are written" wait_for 25 writes_are_delayed cow 1
	put /dev/mapper/o "$TEST_TMP/now" $((63 * U)) 4096
	is "$(key_of s settled)" 0 "a write that needs a commit does not wait for all of them"
	ok "it is not the last" writes_are_delayed cow 1
	swap_table cow "$(linear_table "$store")"
	ok "all comes home" wait_for 25 unsettled_is 0
	all_right "written while slots are freed"
	all_down
	dmremove large
}

# Of two dead slots in different blocks the first cannot be read: the other leaves the disk.
others_leave()
{
	local block before

	away_from_start || return
	dm message o 0 set redirect 60
	put /dev/mapper/o "$TEST_TMP/now" $((12 * U)) $((40 * 4096))
	snap_two
	put /dev/mapper/o "$TEST_TMP/now" $((100 * 4096)) 4096 $((12 * U + 39 * 4096)) 4096
	remove_and_reload s2 s o
	before=$(slots)
	up
	swap_table cow "$(block_fails error)"
	dm message o 0 delete 2
	ok "room of two dead chunks is given back" wait_for 25 freed_are 2
	swap_table cow "$(linear_table "$store")"
	all_down
	is "$(slots)" $((before - 1)) "one slot could not be read, the other is free"
	up
	all_right "a dead slot left"
	dm message o 0 settle
	ok "when it is opened again all comes home" wait_for 25 unsettled_is 0
	all_right "all home"
	all_down
}

freed_are()
{
	[[ $(key_of s freed) == "$1" ]]
}

# What is redirected after a message was not asked for.
message_ends()
{
	local id

	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 12288
	# It is slower than the writes.
	swap_table home "$(delay_table "$base" 0 300)"
	dm message o 0 settle
	for ((id = 10; id < 25; id++)); do
		dm message o 0 create "$id" || break
		put /dev/mapper/o "$TEST_TMP/now" $((5 * U + id * 4096)) 4096
	done
	is "$id" 25 "snapshots are made while a message is carried out"
	ok "what there was comes home" wait_for 25 settled_at_least 3
	sleep 5
	ok "what came later does not" [ "$(unsettled)" -ge 5 ]
	swap_table home "$(linear_table "$base")"
	all_right "the message has ended"
	all_down
}

# Snapshots come and go, and the origin is suspended, while several tasks write.
together()
{
	local id fio

	begin 8 on
	dm message o 0 set redirect 80
	dm message o 0 set settle now
	write_all_sizes /dev/mapper/o &
	fio=$!
	for ((id = 10; id < 30; id++)); do
		dm message o 0 create "$id" || break
		((id == 10)) || dm message o 0 delete $((id - 1)) || break
		dm suspend o || break
		dm resume o || break
	done
	is "$id" 30 "snapshots are made and deleted while others write and all comes home"
	ok "what they write is there" wait "$fio"
	ok "the snapshot is right after that" same /dev/mapper/s "$TEST_TMP/old"
	ok "much was redirected" [ "$(key_of s redirected)" -ge 100 ]
	ok "some of it came home" [ "$(key_of s settled)" -ge 20 ]
	get /dev/mapper/o 0 $((16 * U)) $U >"$TEST_TMP/now"
	crash
	up
	all_right "all together, after a crash"
	dm message o 0 delete 29
	ok "in the end all is home" wait_for 25 unsettled_is 0
	all_right "all together, settled"
	all_down
}

works 8 on
works 32 on
works 8 off
dead_at_opening
idle
readers
in_place
errors
not_in_force
put_right
unreadable_table
dead_stays
lost_flush
others_leave
commits_go_on "$(mkloop 8M)"
message_ends
together
dmremove cow
dmremove home
done_testing

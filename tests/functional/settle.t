#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What writes have redirected to the store comes home while the origin is in use: when it is idle,
# at once, or when told to. Origin and snapshots show what they should meanwhile and after it, also
# after a crash.

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

# Somebody reads the origin all the time, until unused. Nobody forks for that.
used()
{
	local reads

	reads=$(reads_of_origin)
	fio --name=use --filename=/dev/mapper/o --allow_file_create=0 --rw=randread --bs=4k \
		--direct=1 --size=2M --time_based --runtime=600 --thinktime=10000 \
		>"$TEST_TMP/fio" 2>&1 &
	user=$!
	ok "somebody reads the origin" wait_for 60 reads_more_than $((reads + 20))
}

unused()
{
	kill "$user"
	wait "$user"
}

reads_of_origin()
{
	awk '{ print $1 }' "$(sysfs /dev/mapper/o)/stat"
}

reads_more_than()
{
	(($(reads_of_origin) > $1))
}

# On a machine that stands still for half a second nobody uses it: then two others are written.
stays_while_used()
{
	local at had

	for ((at = 3 * U; at < 3 * U + 40960; at += 8192)); do
		had=$(unsettled)
		put /dev/mapper/o "$TEST_TMP/now" "$at" 8192
		sleep 2
		[[ $(unsettled) != $((had + 2)) ]] || return 0
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
	used
	dm message o 0 set settle idle
	ok "nor does it while the origin is used" stays_while_used
	unused
	dm wait o >"$TEST_TMP/event" 2>&1 &
	ok "when nobody uses it all comes home" wait_for 25 unsettled_is 0
	wait $!
	# All of the share is a chunk in a hundred.
	dm message o 0 set redirect 1
	used
	put /dev/mapper/o "$TEST_TMP/now" $((4 * U)) $((2 * U))
	ok "or when one write uses up the share" wait_for 25 settled_at_least 30
	unused
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
	swap_table cow "$(delay_table "$store" 10000 0)"
	dm message o 0 settle
	ok "the version is on its way home" wait_for 25 reads_are_delayed cow 1
	sleep 6
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
	swap_table cow "$(delay_table "$store" 0 150)"
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

# What is redirected after a message was not asked for.
message_ends()
{
	local id came

	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 12288
	# It is slower than the writes, but for flushes, which snapshots wait for.
	swap_table home "$(delay_table "$base" 0 4000) $base 0 0"
	dm message o 0 settle
	for ((id = 10; id < 15; id++)); do
		dm message o 0 create "$id" || break
		put /dev/mapper/o "$TEST_TMP/now" $((5 * U + id * 4096)) 4096
	done
	is "$id" 15 "snapshots are made while a message is carried out"
	came=$(key_of s settled)
	diag "$came of 3 are home"
	ok "what there was comes home" wait_for 25 settled_at_least 3
	swap_table home "$(linear_table "$base")"
	sleep 5
	is "$(unsettled)" 5 "what came later does not"
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
commits_go_on "$(mkloop 8M)"
message_ends
together
dmremove cow
dmremove home
done_testing

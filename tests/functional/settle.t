#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What writes have redirected to the store comes home while the origin is in use: when it is idle,
# at once, or when told to. Origin and snapshots show what they should meanwhile and after it, also
# after a crash, and after errors of either device.

. "$(dirname "$0")/common.sh"

need_command
need_target flakey
need_target error
need_target delay
need fio
exact_copies
expect_log 'blk_update_request|Buffer I/O error|critical .* error|I/O error, dev|lost async page write'

# The origin has 16 of these.
U=131072
cow=/dev/mapper/cow
home=/dev/mapper/home

# begin CHUNK LOG: a sealed origin with a snapshot of it, in use; nothing is settled yet.
begin()
{
	chunk=$1
	bytes=$((chunk * 512))
	all_down
	dd if=/dev/zero of="$store" bs=1M count=16 oflag=direct status=none
	blockdev --flushbufs "$store"
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	snap_up s "$home" "$cow" P "$chunk" log "$2"
	all_down
	"$tool" seal "$home" "$cow" >/dev/null
	blockdev --flushbufs "$base"
	up
	dm message o 0 set settle off
	dm message o 0 set redirect 60
}

# up: origin and snapshot are in use.
up()
{
	origin_up o "$home" store "$cow"
	snap_up s "$home" "$cow" P "$chunk"
}

snap_two()
{
	dm message o 0 create 2
	cp "$TEST_TMP/now" "$TEST_TMP/old2"
	snap_up s2 "$home" "$cow" P "$chunk" id 2
}

unsettled()
{
	key_of s unsettled
}

unsettled_is()
{
	[[ $(unsettled) == "$1" ]]
}

# all_right WORDS: origin and snapshots show what they should.
all_right()
{
	local name

	ok "$1: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
	for name in s s2; do
		[[ -e /dev/mapper/$name ]] || continue
		ok "$1: $name is right" same "/dev/mapper/$name" "$TEST_TMP/old${name#s}"
	done
}

# is_home: behind what is sealed, home has what the origin shows.
is_home()
{
	blockdev --flushbufs "$base"
	cmp <(get "$base" $U $((15 * U)) $U) <(tail -c +$((U + 1)) "$TEST_TMP/now")
}

# crash: what a power cut now would leave, opened again.
crash()
{
	local name

	cp "$(loop_file "$base")" "$TEST_TMP/base.cut"
	cp "$(loop_file "$store")" "$TEST_TMP/store.cut"
	all_down
	remove_and_reload
	dd if="$TEST_TMP/base.cut" of="$base" bs=1M conv=fsync status=none
	dd if="$TEST_TMP/store.cut" of="$store" bs=1M conv=fsync status=none
	blockdev --flushbufs "$base"
	blockdev --flushbufs "$store"
}

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

# used: somebody reads the origin all the time, until the file is gone.
use_it()
{
	while [[ -e $TEST_TMP/used ]]; do
		get /dev/mapper/o $((8 * U)) 4096
		sleep 0.05
	done >/dev/null
}

idle()
{
	local user

	begin 8 on
	is "$(key_of s settle)" off "settling is off"
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 8192
	sleep 2
	is "$(unsettled)" 2 "then nothing comes home"
	touch "$TEST_TMP/used"
	use_it &
	user=$!
	dm message o 0 set settle idle
	sleep 2
	is "$(unsettled)" 2 "nor does it while the origin is used"
	# All of the share is a chunk in a hundred.
	dm message o 0 set redirect 1
	put /dev/mapper/o "$TEST_TMP/now" $((4 * U)) $((2 * U))
	ok "unless the share is used up" wait_for 25 settled_at_least 20
	rm "$TEST_TMP/used"
	wait "$user"
	dm wait o >"$TEST_TMP/event" 2>&1 &
	ok "when nobody uses it all comes home" wait_for 25 unsettled_is 0
	all_right "settled while idle"
	all_down
	wait
}

settled_at_least()
{
	(($(key_of s settled) >= $1))
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
	ok "when a table cannot be written writes end with an error" wait_for 25 not_writable
	swap_table cow "$(linear_table "$store")"
	ok "the origin can be read" same /dev/mapper/o "$TEST_TMP/now"
	remove_and_reload o
	origin_up o "$home" store "$cow"
	ok "opened again it is right" same /dev/mapper/o "$TEST_TMP/now"
	put /dev/mapper/o "$TEST_TMP/now" $((6 * U)) 8192
	ok "and can be written" same /dev/mapper/o "$TEST_TMP/now"
	all_down
}

not_writable()
{
	! "$TOOLS/cowio" put /dev/mapper/o "$TEST_TMP/scratch" $((9 * U)) 4096
}

# Snapshots come and go, and the origin is suspended, while several tasks write.
together()
{
	local id fio

	begin 8 on
	dm message o 0 set redirect 80
	dm message o 0 set settle now
	fio --filename=/dev/mapper/o --allow_file_create=0 --ioengine=libaio --direct=1 --iodepth=8 \
		--rw=randwrite --loops=4 --verify=crc32c --group_reporting --size=512k \
		--name=chunks --bs=4k --offset=0 --name=runs --bs=16k --offset=512k \
		--name=parts --bs=1k --offset=1m --fsync=16 >"$TEST_TMP/fio.log" 2>&1 &
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

base=$(mkloop 2M)
store=$(mkloop 16M)
dmcreate cow "$(linear_table "$store")"
dmcreate home "$(linear_table "$base")"

works 8 on
works 32 on
works 8 off
dead_at_opening
idle
readers
in_place
errors
together
dmremove cow
dmremove home
done_testing

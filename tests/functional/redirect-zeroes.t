#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Zeroes that are written to whole chunks of an origin that redirects are redirected without data:
# nothing is copied, and only slots are written. Origin and snapshots show what they should, also
# after other writes to the same chunks, after a crash, and when it has come home, in use or not.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/settle.sh"

expect_log 'the superblock at sector|no superblock is written'

# Each note of what is durable is one or two sectors.
quiet()
{
	local was

	until was=$(sectors_written cow) && sleep 2 && [[ $(sectors_written cow) == "$was" ]]; do :; done
}

# cheap WORDS OFFSET BYTES SECTORS: zeroes are written there, and no more than so much to the store.
cheap()
{
	local had at_home

	quiet
	had=$(sectors_written cow)
	at_home=$(sectors_written home)
	ok "$1" zero "$2" "$3"
	ok "$1: no data is written to the store" [ $(($(sectors_written cow) - had)) -le "$4" ]
	is "$(sectors_written home)" "$at_home" "$1: nor anything home"
}

# dumped KIND: how many slots of the closed store a dump has.
dumped()
{
	"$tool" dump "$cow" | grep -c "kind $1 "
}

# put_sync OFFSET BYTES: random data, durable when this ends.
put_sync()
{
	local name

	head -c "$2" /dev/urandom >"$TEST_TMP/random"
	for name in /dev/mapper/o "$TEST_TMP/now"; do
		dd if="$TEST_TMP/random" of="$name" bs="$2" seek="$1" oflag=seek_bytes,dsync conv=notrunc \
			status=none || return
	done
}

# feature: what the superblock says of those, beside the rest.
feature()
{
	echo $(($(od -An -tu1 -j 40 -N 1 "$(loop_file "$store")") & 64))
}

# sent ID: what send tells of a snapshot of the closed store.
sent()
{
	rm -f "$TEST_TMP/sent"
	"$tool" send --origin "$home" "$cow" "$1" 2>/dev/null |
		"$tool" receive "$TEST_TMP/sent" >/dev/null
}

works()
{
	local words="chunks of $1, log $2"

	begin "$1" "$2"
	put /dev/mapper/o "$TEST_TMP/now" $U "$bytes"
	is "$(feature)" 0 "$words: a store without zeroes can be used by older versions"
	cheap "$words: the first zeroes" $((2 * U)) $((4 * bytes)) 24
	isnt "$(feature)" 0 "$words: older versions keep off the store now"
	is "$(unsettled)" 5 "$words: they are redirected"
	is "$(key_of s redirected)" 5 "$words: and counted"
	cheap "$words: many chunks" $((4 * U)) $((4 * U)) 200
	is "$(key_of s copied)" 0 "$words: nothing is copied"
	not_ok "$words: home is as it was" is_home
	all_right "$words, zeroed"
	had=$(unsettled)
	cheap "$words: zeroes over zeroes" $((4 * U + 512)) $((2 * U)) 2
	put /dev/mapper/o "$TEST_TMP/now" $((5 * U + 512)) 512 $((6 * U)) "$bytes"
	is "$(unsettled)" "$had" "$words: what is written to zeroes stays in its place"
	all_right "$words, written in part"
	ok "$words: O_SYNC to part of a chunk" put_sync $((7 * U + 512)) 1024
	ok "$words: and to a whole one" put_sync $((7 * U + 4 * bytes)) "$bytes"
	crash
	up
	all_right "$words, after a crash"
	dm message o 0 set settle off
	put /dev/mapper/o "$TEST_TMP/now" $((5 * U + 1024)) 512 $((7 * U - bytes - 512)) $((bytes + 1024))
	cheap "$words: zeroes over redirected data" $((6 * U)) "$bytes" 8
	# In part, over data and over zeroes.
	zero $((5 * U + 512)) 1024
	zero $((U + 512)) 1024
	is "$(unsettled)" "$had" "$words: zeroes over these stay there as well"
	all_right "$words, zeroed again"

	snap_two
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U + 512)) 512 $((2 * U + bytes)) $((2 * bytes))
	cheap "$words: zeroes over what the second snapshot sees" $((5 * U)) "$bytes" 8
	is "$(unsettled)" $((had + 4)) "$words: what the second snapshot sees stays in the store"
	all_right "$words, written under the second snapshot"
	put /dev/mapper/s2 "$TEST_TMP/old2" $((2 * U)) 512 $((2 * U + 3 * bytes + 512)) 512 \
		$((6 * U)) "$bytes"
	all_right "$words, second snapshot written"
	crash
	up
	snap_up s2 "$home" "$cow" P "$1" id 2
	all_right "$words, after another crash"
	remove_and_reload s s2 o
	ok "$words: check finds nothing" "$tool" check "$cow"
	isnt "$(dumped current-zero)" 0 "$words: slots say zeroes"
	sent 0
	ok "$words: send tells of the first snapshot" cmp "$TEST_TMP/sent" "$TEST_TMP/old"
	sent 2
	ok "$words: and of the second" cmp "$TEST_TMP/sent" "$TEST_TMP/old2"
}

# What works() has left comes home: a message, or a command.
settles()
{
	local words="chunks of $1, settled $2"

	works "$1" "$3"
	if [[ $2 == offline ]]; then
		ok "$words: it does" "$tool" settle "$home" "$cow"
		blockdev --flushbufs "$base"
		up
		snap_up s2 "$home" "$cow" P "$1" id 2
	else
		up
		snap_up s2 "$home" "$cow" P "$1" id 2
		all_right "$words, opened"
		dm message o 0 settle
		ok "$words: but for what the second snapshot sees" wait_for 60 unsettled_is 6
		all_right "$words, but for that"
		dmremove s2
		dm message o 0 delete 2
		ok "$words: what that saw is freed" wait_for 60 unsettled_is 3
		dm message o 0 settle
		ok "$words: all of it" wait_for 60 unsettled_is 0
	fi
	ok "$words: it is at home" is_home
	all_right "$words"
	put /dev/mapper/o "$TEST_TMP/now" $((4 * U)) "$bytes"
	zero $((9 * U)) "$bytes"
	crash
	up
	all_right "$words, after a crash"
	all_down
	is "$(dumped current-zero)" 1 "$words: of slots there is but the last"
	ok "$words: check finds nothing" "$tool" check "$cow"
}

# One slot is written in the store, and nobody reads of it any more: nothing is to be lost.
without_snapshots()
{
	begin 8 off
	zero $((2 * U)) $U
	dmremove s
	dm message o 0 delete 0
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U + 512)) 512 $((2 * U + 8192)) 8192
	ok "without snapshots it is right" same /dev/mapper/o "$TEST_TMP/now"
	crash
	ok "after a crash it is opened" origin_up o "$home" store "$cow"
	ok "and right" same /dev/mapper/o "$TEST_TMP/now"
	ok "it is settled" dm message o 0 settle
	ok "and comes home" wait_for 60 is_home
	all_down
}

# The store cannot be written: nothing of what was acknowledged is lost.
broken()
{
	begin 8 off
	zero $((2 * U)) $((2 * U))
	swap_table cow "$(no_writes_table "$store")"
	not_ok "a write to zeroes that cannot become data ends with an error" \
		put_letter /dev/mapper/o Z $((2 * U)) 4096
	all_right "broken"
	swap_table cow "$(linear_table "$store")"
	remove_and_reload s o
	up
	all_right "broken, opened again"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096
	all_right "broken, written again"
	all_down
}

# The superblock cannot say that there are zeroes: they are written as ever, and others later.
unmarked()
{
	begin 8 off
	# What follows is not in the table blocks beside the superblocks.
	dm message o 0 set redirect 0
	put /dev/mapper/o "$TEST_TMP/now" $((10 * U)) $((4 * U))
	dm message o 0 set redirect 60
	put /dev/mapper/o "$TEST_TMP/now" $((4 * U)) 8192
	snap_two
	swap_table cow "$(partly_table "$store" 0 2 error)"
	ok "zeroes of which the superblock cannot tell are written" zero $((2 * U)) $U
	is "$(unsettled)" 2 "unmarked: they are not redirected"
	ok "unmarked: so are those over what a snapshot sees in the store" zero $((4 * U)) 4096
	is "$(unsettled)" 3 "unmarked: which it keeps"
	ok "unmarked: and those over what none sees" zero $((4 * U)) 4096
	all_right "unmarked"
	swap_table cow "$(linear_table "$store")"
	remove_and_reload s s2 o
	is "$(feature)" 0 "unmarked: the store can be used by older versions"
	up
	snap_up s2 "$home" "$cow" P 8 id 2
	all_right "unmarked, opened again"
	cheap "unmarked: later zeroes" $((6 * U)) $U 24
	isnt "$(feature)" 0 "unmarked: of which the superblock tells"
	all_right "unmarked, zeroed again"
	all_down
	ok "unmarked: check finds nothing" "$tool" check "$cow"
}

begin 8 off
[[ $(<"$(sysfs /dev/mapper/o)/queue/write_zeroes_max_bytes") -gt 0 ]] ||
	skip_all "no device here that takes write-zeroes"
unmarked
settles 8 "in use" on
settles 8 offline off
settles 32 "in use" off
settles 32 offline on
without_snapshots
broken
dmremove cow
dmremove home
done_testing

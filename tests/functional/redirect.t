#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# With the option redirect first writes to a sealed origin go to the store: nothing is copied, home
# keeps what snapshots see, and origin and snapshots show what they should, also when snapshots are
# made, written to and deleted meanwhile, after the store was opened anew, and after a crash.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"
. "$(dirname "$0")/log.sh"

need_command
need_target delay
need fio
exact_copies
expect_log 'blk_update_request|Buffer I/O error|critical .* error|I/O error, dev|lost async page write'

# The origin has 16 of these.
U=131072
cow=/dev/mapper/cow

# begin CHUNK [LOG]: a sealed origin with a snapshot of it, in use.
begin()
{
	chunk=$1
	all_down
	dd if=/dev/zero of="$store" bs=1M count=16 oflag=direct status=none
	blockdev --flushbufs "$store"
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	cp "$TEST_TMP/now" "$TEST_TMP/home"
	snap_up s "$base" "$cow" P "$chunk" ${2:+log "$2"}
	all_down
	"$tool" seal "$base" "$cow" >/dev/null
	blockdev --flushbufs "$base"
	origin_up o "$base" store "$cow"
	snap_up s "$base" "$cow" P "$chunk"
	# It stays where it is written.
	dm message o 0 set settle off
}

# unsettled: how many chunks are.
unsettled()
{
	key_of s unsettled
}

# home_has FROM LENGTH: home is as it was there.
home_has()
{
	blockdev --flushbufs "$base"
	cmp <(get "$base" "$1" "$2") <(tail -c +$(($1 + 1)) "$TEST_TMP/home" | head -c "$2")
}

# all_right WORDS: origin and snapshots show what they should.
all_right()
{
	local name

	ok "$1: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
	for name in s s2 s3; do
		[[ -e /dev/mapper/$name ]] || continue
		ok "$1: $name is right" same "/dev/mapper/$name" "$TEST_TMP/old${name#s}"
	done
}

snap_two()
{
	snap_up s2 "$base" "$cow" P "$chunk" id 2
}

# crash: what a power cut now would leave, opened again.
crash()
{
	cp "$(loop_file "$base")" "$TEST_TMP/base.cut"
	cp "$(loop_file "$store")" "$TEST_TMP/store.cut"
	remove_and_reload "$@"
	dd if="$TEST_TMP/base.cut" of="$base" bs=1M conv=fsync status=none
	dd if="$TEST_TMP/store.cut" of="$store" bs=1M conv=fsync status=none
	blockdev --flushbufs "$base"
	blockdev --flushbufs "$store"
}

works()
{
	local c=$1 log=$2 words="chunks of $1, log $2" bytes=$(($1 * 512)) had

	begin "$c" "$log"
	ok "$words: redirect is switched on" dm message o 0 set redirect 60
	is "$(key_of s redirect)" 60 "$words: the status says so"

	# Whole chunks, some in one write.
	put /dev/mapper/o "$TEST_TMP/now" $U $bytes $((2 * U)) $((4 * bytes)) \
		$((16 * U - bytes)) $bytes
	is "$(unsettled)" 6 "$words: whole chunks are redirected"
	is "$(key_of s copied)" 0 "$words: and nothing is copied"
	ok "$words: home keeps what it had" home_has $U $bytes
	ok "$words: so it does further on" home_has $((2 * U)) $((4 * bytes))
	all_right "$words, redirected"
	# Parts of chunks at home are copied as ever; what is sealed, too.
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U + 512)) 512 4096 4096
	is "$(unsettled)" 6 "$words: parts of chunks are not redirected"
	all_right "$words, in part"
	# In place: whole chunks, parts, from home to the store and back.
	put /dev/mapper/o "$TEST_TMP/now" $U $bytes $((2 * U + 512)) 512 \
		$((2 * U - bytes)) $((6 * bytes))
	is "$(unsettled)" 8 "$words: what was redirected is written in place"
	ok "$words: home still has what it had" home_has $((2 * U - bytes)) $((6 * bytes))
	all_right "$words, in place"
	ok "$words: large reads go across" cmp <(get /dev/mapper/o 0 $((16 * U)) $U) "$TEST_TMP/now"

	ok "$words: a second snapshot is made" dm message o 0 create 2
	cp "$TEST_TMP/now" "$TEST_TMP/old2"
	ok "$words: it is opened" snap_two
	all_right "$words, second snapshot"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) $bytes $((2 * U + 2 * bytes + 512)) 1024 \
		$((5 * U)) $bytes
	is "$(unsettled)" 11 "$words: what the second snapshot sees stays in the store"
	all_right "$words, written under the second snapshot"
	put /dev/mapper/s "$TEST_TMP/old" $((2 * U)) 512 $((5 * U)) $bytes
	put /dev/mapper/s2 "$TEST_TMP/old2" $((2 * U)) 512 $((2 * U + bytes)) $bytes 512 1024
	all_right "$words, snapshots written"
	blkdiscard -o $((2 * U)) -l $((2 * bytes)) /dev/mapper/o 2>/dev/null
	all_right "$words, discards leave it alone"
	blkdiscard -z -o $((2 * U + bytes)) -l $((6 * bytes)) /dev/mapper/o
	head -c $((6 * bytes)) /dev/zero |
		dd of="$TEST_TMP/now" bs=512 seek=$(((2 * U + bytes) / 512)) conv=notrunc status=none
	all_right "$words, zeroed"

	crash s s2 o
	ok "$words: after a crash it is opened" origin_up o "$base" store "$cow"
	ok "$words: so is the snapshot" snap_up s "$base" "$cow" P "$c"
	ok "$words: and the second one" snap_two
	all_right "$words, after a crash"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U + 512)) 1024 $((6 * U)) $((2 * bytes))
	all_right "$words, written after the crash"
	remove_and_reload s s2 o
	kernel_refuses 'sealed by store' "$words: without the store the origin is refused" \
		origin_up o "$base"
	ok "$words: with it, it is opened again" origin_up o "$base" store "$cow"
	ok "$words: the snapshot is opened again" snap_up s "$base" "$cow" P "$c"
	ok "$words: the second one is opened again" snap_two
	all_right "$words, opened again"

	had=$(unsettled)
	dmremove s2
	ok "$words: the second snapshot is deleted" dm message o 0 delete 2
	ok "$words: what it alone saw is freed" wait_for 100 is_less "$had"
	all_right "$words, second deleted"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) $((8 * bytes)) $((5 * U + 1024)) 512
	all_right "$words, written after that"
	dmremove s
	ok "$words: the first one is deleted" dm message o 0 delete 0
	all_right "$words, without snapshots"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) $((8 * bytes)) $((9 * U + 1024)) 4096
	all_right "$words, written without snapshots"
	remove_and_reload o
	ok "$words: it is opened without snapshots" origin_up o "$base" store "$cow"
	all_right "$words, opened without snapshots"
	dm message o 0 create 3
	cp "$TEST_TMP/now" "$TEST_TMP/old3"
	ok "$words: a third snapshot is made" snap_up s3 "$base" "$cow" P "$c" id 3
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) $((3 * bytes + 512)) $((9 * U)) $((4 * U))
	all_right "$words, third snapshot"
	all_down
}

is_less()
{
	(($(unsettled) < $1))
}

refusals()
{
	all_down
	dd if=/dev/zero of="$store" bs=1M count=16 oflag=direct status=none
	blockdev --flushbufs "$store"
	fill "$base" "$TEST_TMP/now"
	kernel_refuses 'not sealed' "an origin that is not sealed is not redirected" \
		snap_up s "$base" "$cow" P 8 redirect 50
	kernel_refuses 'transient' "nor is one with a transient store" snap_up s "$base" "$store2" N 8 redirect 50
	begin 8 on
	kernel_refuses 'not between' "more than 90 percent are too many" dm message o 0 set redirect 91
	dm message o 0 create 2
	dm message o 0 track 2
	kernel_refuses 'has trackers' "beside a tracker nothing is redirected" dm message o 0 set redirect 50
	dm message o 0 delete 2
	dm message o 0 set redirect 50
	dm message o 0 create 2
	kernel_refuses 'redirects: settle' "beside redirected writes there is no tracker" \
		dm message o 0 track 2
	all_down
}

# The share of the store is the limit: then writes are copied as ever.
limit()
{
	begin 8 on
	dm message o 0 set redirect 1
	put /dev/mapper/o "$TEST_TMP/now" $((4 * U)) $((8 * U))
	ok "no more than the percent is redirected" [ "$(unsettled)" -le 41 ]
	ok "but that is" [ "$(unsettled)" -gt 20 ]
	ok "the rest is copied" [ "$(key_of s copied)" -gt 150 ]
	all_right "over the limit"
	all_down
}

# The store cannot be written: writes of the origin end with an error, nothing is lost.
broken()
{
	begin 8 on
	dm message o 0 set redirect 60
	put /dev/mapper/o "$TEST_TMP/now" $U 8192
	put /dev/mapper/o "$TEST_TMP/now" $U 8192
	swap_table cow "$(no_writes_table "$store")"
	not_ok "a write that cannot be redirected ends with an error" \
		put_letter /dev/mapper/o Z $((2 * U)) 4096
	not_ok "from then on all do" put_letter /dev/mapper/o Z $((3 * U)) 4096
	all_right "broken"
	swap_table cow "$(linear_table "$store")"
	remove_and_reload s o
	ok "it is opened again" origin_up o "$base" store "$cow"
	snap_up s "$base" "$cow" P 8
	all_right "broken, opened again"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096 $((3 * U)) 4096
	all_right "broken, written again"
	all_down
}

# durable_first: in the trace data is durable when the first slot, no superblock, is written.
durable_first()
{
	awk '$2 ~ /M/ && $3 >= 2 { table = 1; exit }
		$2 ~ /^W[A-Z]*F/ || ($2 ~ /^F/ && written) { durable = 1 }
		$2 ~ /^W/ { written = 1 }
		END { exit !(table && durable) }' "$TEST_TMP/trace" && return
	cat "$TEST_TMP/trace"
	return 1
}

# logged WORDS FROM: are writes from there on committed by records alone?
logged()
{
	local commits records

	commits=$(key_of s commits)
	records=$(key_of s records)
	put /dev/mapper/o "$TEST_TMP/now" "$2" 4096 $(($2 + 8192)) 4096
	isnt "$(key_of s records)" "$records" "$1 go by the log"
	is "$(key_of s commits)" "$commits" "$1 do not go by the tables"
}

# Where nothing turns there is a log as long as writes are redirected, if nobody says otherwise.
default_log()
{
	local turns was given

	turns=$(sysfs "$cow")/queue/rotational
	was=$(<"$turns")
	given=$(<"$PARAMETERS/log")
	echo -1 >"$PARAMETERS/log"
	echo 0 >"$turns"
	begin 8
	is "$(key_of s log)" redirected "not rotational: the log waits for redirect"
	ok "not rotational: no zone is named" has_zones "$store" 0
	dm message o 0 set redirect 60
	ok "not rotational: with redirect zones are named" wait_for 10 has_zones "$store" 2
	logged "not rotational: redirected writes" $((2 * U))
	all_right "not rotational"
	dm message o 0 set redirect 0
	ok "not rotational: without it they are left" wait_for 10 has_zones "$store" 0
	begin 8 off
	dm message o 0 set redirect 60
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096
	is "$(key_of s log) $(key_of s records)" "off 0" "who said off has no log"
	# A turn of zones that has just been asked for would have ended.
	sleep 1
	ok "nor any zone" has_zones "$store" 0
	echo 1 >"$turns"
	begin 8
	is "$(key_of s log)" on "rotational: a new store has a log"
	all_down
	echo "$was" >"$turns"
	echo "$given" >"$PARAMETERS/log"
}

durable()
{
	if ! tracefs >/dev/null; then
		skip "by the tables data is durable before its slot is written" "no traces of block I/O here"
		return
	fi
	begin 8 off
	dm message o 0 set redirect 60
	trace_start "$cow" bio_queue
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096
	trace_stop >"$TEST_TMP/trace"
	is "$(unsettled)" 1 "by the tables, traced: a write is redirected"
	ok "by the tables data is durable before its slot is written" durable_first
	all_down
}

# Slots of the first segment cannot be written. Superblocks can, with their flushes, which flakey
# would fail; data waits.
slots_fail_table()
{
	echo "0 2 linear $store 0"
	echo "2 6 error"
	echo "8 $(($(sectors "$store") - 8)) delay $store 8 0 $store 8 120000 $store 8 0"
}

# A commit of something else fails while the data of a redirected write is under way. No slot of
# this gets to the disk, so nothing is in doubt: it is the only one that fails.
fenced()
{
	local writer

	begin 8 off
	dmremove s
	snap_up s "$base" "$cow" P 8 discard_zeroes_cow
	dm message o 0 set redirect 60
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096
	dm message o 0 create 2
	swap_table cow "$(slots_fail_table)"
	put_letter /dev/mapper/o Z $((4 * U)) 4096 &
	writer=$!
	ok "fenced: data of a redirected write is under way" wait_for 60 writes_are_delayed cow 1
	not_ok "fenced: a commit of another fails" blkdiscard -o $((3 * U)) -l 4096 /dev/mapper/s
	swap_table cow "$(linear_table "$store")"
	not_ok "fenced: the write ends with an error" wait "$writer"
	ok "fenced: what a snapshot sees in the store is written all the same" \
		put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096
	ok "fenced: that costs the snapshots" wait_for 60 is_invalid s
	ok "fenced: where the write failed the next one succeeds" \
		put /dev/mapper/o "$TEST_TMP/now" $((4 * U)) 4096
	ok "fenced: and all others" put /dev/mapper/o "$TEST_TMP/now" $((5 * U)) 8192
	ok "fenced: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
	remove_and_reload s o
	ok "fenced: it is opened again" origin_up o "$base" store "$cow"
	ok "fenced, opened again: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
	all_down
}

# A redirected write is no copy: it does not rest when copies do, and a snapshot that is made does
# not wait for the end of a rest, which is longer than hold_timeout.
throttled()
{
	local writer

	begin 8 off
	dm message o 0 set redirect 60
	dm message o 0 set throttle 1
	swap_table cow "$(delay_table "$store" 0 200)"
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U + 512)) 512
	ok "throttled: copies rest" [ "$(key_of s pauses)" -gt 0 ]
	put_letter /dev/mapper/o Z $((4 * U)) 4096 &
	writer=$!
	wait_for 60 io_is_in_flight o write
	ok "throttled: a snapshot is made beside a redirected write" dm message o 0 create 2
	ok "throttled: the write is redirected" wait "$writer"
	is "$(unsettled)" 1 "throttled: to the store"
	swap_table cow "$(linear_table "$store")"
	all_down
}

# Two versions of one chunk and epoch: which of them is the origin's?
twice()
{
	begin 8 off
	dm message o 0 set redirect 60
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096 $((2 * U + 4096)) 4096
	all_down
	blockdev --flushbufs "$store"
	cp "$(loop_file "$store")" "$TEST_TMP/whole"
	ok "twice: a slot says another chunk" \
		store_tool set-chunk "$(loop_file "$store")" 7 $((2 * U / 4096 + 1)) $((2 * U / 4096))
	blockdev --flushbufs "$store"
	kernel_refuses "has chunk $((2 * U / 4096)) of its origin twice" \
		"a store that has a chunk of its origin twice is refused" \
		origin_up o "$base" store "$cow"
	not_ok "twice: cowsnap check calls it damage" "$tool" check "$cow"
	dd if="$TEST_TMP/whole" of="$store" bs=1M conv=fsync status=none
	blockdev --flushbufs "$store"
	ok "twice: with the right slot it is opened" origin_up o "$base" store "$cow"
	all_right "twice, put right"
	all_down
}

# absent WRITTEN: another store of the origin is away, from before it was sealed until it is not any
# more. What was redirected meanwhile comes home, and nothing else was written there.
absent()
{
	local words=$1

	all_down
	dd if=/dev/zero of="$store" bs=1M count=16 oflag=direct status=none
	dd if=/dev/zero of="$store2" bs=1M count=4 oflag=direct status=none
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	snap_up s "$base" "$cow" P 8
	snap_up t "$base" "$store2" P 8
	dmremove t
	all_down
	"$tool" seal "$base" "$cow" >/dev/null
	blockdev --flushbufs "$base"
	origin_up o "$base" store "$cow"
	snap_up s "$base" "$cow" P 8
	dm message o 0 set redirect 60
	[[ $words != redirected ]] || put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096
	all_down
	ok "away, $words: it is settled" "$tool" settle "$base" "$cow"
	ok "away, $words: and opened" "$tool" unseal "$base" "$cow"
	blockdev --flushbufs "$base"
	ok "away, $words: home is as the origin was" same "$base" "$TEST_TMP/now"
	snap_up t "$base" "$store2" P 8
	if [[ $words == redirected ]]; then
		is "$(status t)" Invalid "away, $words: the snapshot in a store that was away is invalid"
	else
		ok "away, $words: the snapshot in a store that was away is right" \
			same /dev/mapper/t "$TEST_TMP/old"
	fi
	dmremove t
	dd if=/dev/zero of="$store2" bs=1M count=4 oflag=direct status=none
}

# Some kernels let programs write from pieces that are no whole sectors; 6.12 and 7.2.13 do not.
pieces()
{
	local said

	begin 8 off
	dm message o 0 set redirect 60
	said=$("$TOOLS/cowio" pieces /dev/mapper/o Z $((2 * U)) 4096 100)
	if [[ $said == "Invalid argument" ]]; then
		skip "a write from pieces that are no whole sectors is redirected" "this kernel refuses it"
	else
		is "$said" complete "a write from pieces that are no whole sectors ends"
		is "$(unsettled)" 1 "and is redirected"
		ok "what it wrote is there" all_letter /dev/mapper/o Z $((2 * U)) 4096
	fi
	all_down
}

# Snapshots come and go while several tasks write whole chunks and parts of them.
together()
{
	local id fio

	begin 8 on
	dm message o 0 set redirect 80
	write_all_sizes /dev/mapper/o &
	fio=$!
	for ((id = 10; id < 30; id++)); do
		dm message o 0 create "$id" || break
		((id == 10)) || dm message o 0 delete $((id - 1)) || break
	done
	is "$id" 30 "snapshots are made and deleted while others write"
	ok "what they write is there" wait "$fio"
	ok "much of it is redirected" [ "$(key_of s redirected)" -ge 200 ]
	ok "the snapshot is right after that" same /dev/mapper/s "$TEST_TMP/old"
	get /dev/mapper/o 0 $((16 * U)) $U >"$TEST_TMP/now"
	crash s o
	ok "it is opened again after a crash" origin_up o "$base" store "$cow"
	snap_up s "$base" "$cow" P 8
	all_right "all together, after a crash"
	all_down
}

base=$(mkloop 2M)
store=$(mkloop 16M)
store2=$(mkloop 4M)
dmcreate cow "$(linear_table "$store")"

default_log
durable
fenced
throttled
twice
absent "not written"
absent redirected
pieces
works 8 on
works 32 on
works 8 off
refusals
limit
broken
together
dmremove cow
done_testing

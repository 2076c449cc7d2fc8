#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The copy engine's economy, told from its counters: a run of chunks is one job,
# one read serves all stores, zeroes are not written, a throttle makes it rest; what it
# allocated for a store goes when the store is closed.

. "$(dirname "$0")/common.sh"

MIB=1048576
need_target delay
need fio
exact_copies
plan 49

base=$(mkloop 80M)
store=$(mkloop 96M)
store2=$(mkloop 96M)
# The most that an engine gets by itself: 64 MiB, and a 32nd of all memory.
most=$(awk '/^MemTotal:/ { kib = int($2 / 32 / 4) * 4; print kib < 65536 ? kib : 65536 }' /proc/meminfo)

# counted KEY: the counter of the origin's engine.
counted()
{
	key_of o "$1"
}

write_mib()
{
	dd if=/dev/urandom of=/dev/mapper/o bs=1M count="$1" seek="$2" oflag=direct status=none
}

# grows_to KIB MIB: the engine has so much memory while so much is written with one request, and no
# copy's read ends.
grows_to()
{
	local rc=0 writer

	hold_reads home "$loop"
	dd if=/dev/urandom of=/dev/mapper/o bs="$2M" count=1 iflag=fullblock oflag=direct status=none &
	writer=$!
	wait_for 60 has_memory "$1" || rc=$?
	release_reads home "$loop"
	wait "$writer" && return "$rc"
}

runs()
{
	fill_letter "$base" A
	origin_up o "$base"
	snap_up s "$base" "$store" N 8
	write_mib 1 0
	is "$(counted copies)" 1 "a 1 MiB write at chunk 8 is one copy"
	is "$(counted read_sectors)" 2048 "a 1 MiB write is read once for its copy"
	is "$(counted written_sectors)" 2048 "a 1 MiB write's copy is written once"
	write_mib 1 0
	is "$(counted copies)" 1 "a second write of the same 1 MiB copies nothing"
	is "$(counted parked)" 1 "a second write of the same 1 MiB is not parked"
}

one_read()
{
	snap_up s2 "$base" "$store2" N 32
	dm message o 0 reset_stats
	write_mib 2 4
	is "$(counted read_sectors)" 4096 "one read serves stores with chunks of 8 and 32"
	is "$(counted written_sectors)" 8192 "stores with chunks of 8 and 32 get a copy each"
	is "$(other_bytes /dev/mapper/s A) $(other_bytes /dev/mapper/s2 A $((2 * MIB)) $((14 * MIB)))" "0 0" \
		"snapshots with chunks of 8 and 32 have the old data"
	dmremove s2
	dmremove s
	dmremove o
}

zeroes()
{
	dd if=/dev/zero of="$base" bs=1M count=16 oflag=direct status=none
	origin_up o "$base"
	snap_up s "$base" "$store" N 8
	write_mib 2 0
	is "$(counted written_sectors)" 0 "all-zero chunks are not written"
	is "$(used_sectors s)" 0 "all-zero chunks take no room"
	ok "all-zero chunks read back as zeroes" cmp -n $((4 * MIB)) /dev/mapper/s /dev/zero
	dmremove s
	dmremove o
}

throttle()
{
	fill_letter "$base" A
	origin_up o "$base"
	snap_up s "$base" "$store" N 8 throttle 20
	write_mib 16 0
	ok "throttled, the engine rests" [ "$(counted pauses)" -gt 0 ]
	ok "throttled, the engine copies all the same" all_letter /dev/mapper/s A
	dmremove s
	dmremove o
}

# throttled_close: the first copy takes 0.2 s, after which the engine would rest for 10 s.
throttled_close()
{
	local begin took writer

	dmcreate slow "$(delay_table "$store" 0 200)"
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/slow N 8 throttle 1
	write_mib 1 0
	write_mib 1 4 &
	writer=$!
	wait_for 60 is_parked 2
	begin=${EPOCHREALTIME/./}
	dmremove s
	took=$((${EPOCHREALTIME/./} - begin))
	ok "a store is closed in $took us, without a rest" [ "$took" -lt 5000000 ]
	wait "$writer"
	is "$?" 0 "the write that waited for its copy goes on"
	dmremove o
	dmremove slow
}

is_parked()
{
	(($(counted parked) >= $1))
}

mem_available()
{
	awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo
}

has_memory()
{
	[[ $(dmsetup status --noflush o) =~ \ copy_memory\ $1(\ |$) ]]
}

# One snapshot after the other, each with an undo buffer of 8 MiB: what that took is given back
# each time. Few processes, because starting one takes longer than what it does here.
cycles()
{
	local nr=$1 table i

	table=$(snap_table "$base" "$store" N 8)
	for ((i = 0; i < nr; i++)); do
		dmsetup create s --table "$table" &&
			dd if=/dev/zero of=/dev/mapper/o bs=64k count=1 seek=$((i % 256)) \
				oflag=direct status=none || return
		dmsetup remove --retry s
		wait_for 60 has_memory 8192 || { echo "cycle $i: $(counted copy_memory) KiB" && return 1; }
	done >"$TEST_TMP/kept" 2>&1
}

memory()
{
	local before nr

	nr=$(scaled 200)
	origin_up o "$base"
	snap_up s "$base" "$store" N 8
	ok "the engine has all of its budget" grows_to 8192 8
	dmremove s
	echo 8192 >"$PARAMETERS/undo_buffer"
	snap_up s "$base" "$store" N 8
	put_letter /dev/mapper/o C 0 $((4 * MIB)) 65536
	dmremove s
	before=$(mem_available)
	ok "$nr snapshots of one origin are made, written for and removed" cycles "$nr"
	ok "$nr snapshots of one origin cost $((before - $(mem_available))) KiB" \
		[ $((before - $(mem_available))) -lt $((nr * 256 + 16384)) ]
	is "$(<"$TEST_TMP/kept")" "" "the engine has given back the memory of each that was closed"
	snap_up s "$base" "$store" N 8
	dm message s 0 set undo_buffer 32768
	dm message s 0 set undo_buffer 1024
	ok "a smaller undo buffer takes less memory" wait_for 60 has_memory 9216
	dmremove s
	dmremove o
	echo 0 >"$PARAMETERS/undo_buffer"
}

# has_budget NAME CHUNK KIB: so much memory a new engine has for jobs of that size, once they need it.
has_budget()
{
	origin_up o "$base"
	snap_up s "$base" "$store" N "$2"
	ok "$1" grows_to "$3" 72
}

# What is lacking comes, and no more than that in steps.
lacking()
{
	origin_up o "$base"
	snap_up s "$base" "$store" N 1024
	ok "6 MiB at a time bring 8 MiB" grows_to 8192 6
	sleep 1
	is "$(counted copy_memory)" 8192 "and no more, of a larger budget"
	dmremove s
	dmremove o
}

# A snapshot of an origin that is little written, for a while.
seldom_written()
{
	origin_up o "$base"
	snap_up s "$base" "$store" N 1024
	write_mib 2 0
	sleep 1
	is "$(counted copy_memory)" 1024 "an engine that needs no more has 1 MiB"
	dmremove s
	dmremove o
}

# Of two stores it is the larger chunks that count, whichever comes last.
together()
{
	origin_up o "$base"
	snap_up s "$base" "$store" N 1024
	snap_up s2 "$base" "$store2" N 8
	ok "a store with smaller chunks leaves it as it is" grows_to "$most" 72
	dmremove s2
	dmremove s
	dmremove o
}

# unaligned OFFSET: 1 MiB, with one request, is written where chunks of 4 KiB begin, and none of 16.
unaligned()
{
	put_letter /dev/mapper/o D "$1" $MIB $MIB
}

# One read serves two stores, but not with more than the engine has. There are pages of undo buffers,
# too, so none are lacking.
larger_job()
{
	echo 8192 >"$PARAMETERS/undo_buffer"
	origin_up o "$base"
	snap_up s "$base" "$store" N 8
	snap_up s2 "$base" "$store2" N 32
	unaligned 4096
	ok "a job that could be larger brings more memory" wait_for 60 has_memory $((2048 + 2 * 8192))
	unaligned $((4 * MIB + 4096))
	ok "which comes again if that is not enough" wait_for 60 has_memory $((4096 + 2 * 8192))
	dm message o 0 reset_stats
	unaligned $((8 * MIB + 4096))
	is "$(counted read_sectors)" $((2048 + 32)) "then one read serves both stores"
	dmremove s2
	dmremove s
	dmremove o
	echo 0 >"$PARAMETERS/undo_buffer"
}

# holds_on MIB: copies of so much take half a minute, and their memory is there afterwards.
holds_on()
{
	local writer

	hold_reads home "$loop"
	dd if=/dev/urandom of=/dev/mapper/o bs="$1M" count=1 iflag=fullblock oflag=direct status=none &
	writer=$!
	sleep 30
	release_reads home "$loop"
	wait "$writer" && (($(counted copy_memory) >= $1 * 1024))
}

# bursts MIB: copies of so much every few seconds, more often than the engine looks what it needs, and
# with nothing in between. The memory of one is there for the next.
bursts()
{
	local i writer

	for i in {0..5}; do
		((i == 0 || $(counted copy_memory) >= $1 * 1024)) || return 1
		hold_reads home "$loop"
		put_letter /dev/mapper/o B $((i * $1 * MIB)) $(($1 * MIB)) $(($1 * MIB)) &
		writer=$!
		sleep .5
		release_reads home "$loop"
		wait "$writer"
		sleep 4
	done
}

# Its memory follows what it needs, in both directions.
idle()
{
	origin_up o "$base"
	snap_up s "$base" "$store" N 1024
	ok "what a burst needs comes" grows_to "$most" 72
	dmremove s
	snap_up s "$base" "$store" N 1024
	ok "what copies use of it stays" holds_on $((most * 5 / 8 / 1024))
	ok "what none has used is given back, but 8 MiB" wait_for 120 has_memory 8192
	sleep 12
	is "$(counted copy_memory)" 8192 "and no more"
	dmremove s
	snap_up s "$base" "$store" N 1024
	ok "it comes again for the next burst" grows_to "$most" 72
	dmremove s
	dmremove o
	echo 16384 >"$PARAMETERS/kcopyd_budget"
	has_budget "a budget of 16 MiB" 8 16384
	dmremove s
	snap_up s "$base" "$store" N 8
	ok "what is used from time to time stays" bursts 12
	dmremove s
	dmremove o
	echo 0 >"$PARAMETERS/kcopyd_budget"
}

budget()
{
	seldom_written
	lacking
	has_budget "chunks of 4 KiB: 8 MiB" 8 8192
	snap_up s2 "$base" "$store2" N 1024
	ok "a store with larger chunks raises it" grows_to "$most" 72
	dmremove s2
	dmremove s
	dmremove o
	has_budget "chunks of 128 KiB: as much as 128 of them" 256 16384
	dmremove s
	dmremove o
	has_budget "chunks of 8 MiB: no more than $most KiB" 16384 "$most"
	dmremove s
	dmremove o
	together
	at_exit _write "$PARAMETERS/kcopyd_budget" "$(cat "$PARAMETERS/kcopyd_budget")"
	echo 2048 >"$PARAMETERS/kcopyd_budget"
	has_budget "what is set counts, whatever the chunks" 1024 2048
	dmremove s
	dmremove o
}

# Copies from a disk go on in order. Where writes are quick they are not gathered, and while all wait
# for one that is not read, and one more for their memory, the worker rests.
in_order()
{
	local writer i store

	store=$(mkloop 96M)
	echo 1 >"$(sysfs "$loop")/queue/rotational"
	dmcreate late "0 16384 linear $loop 0"
	dmcreate rest "$(delay_table "$loop" 20 0)"
	dmcreate parts "$(printf '%s\n' "0 16384 linear /dev/mapper/late 0" \
		"16384 $(($(sectors "$loop") - 16384)) linear /dev/mapper/rest 16384")"
	echo 1024 >"$PARAMETERS/kcopyd_budget"
	origin_up o /dev/mapper/parts
	snap_up s /dev/mapper/parts "$store" P 16
	# So that the engine knows that reads take longer than writes.
	for ((i = 60; i < 64; i++)); do
		put_letter /dev/mapper/o W $((i * MIB)) 65536
	done
	dm message o 0 reset_stats
	dm suspend --noflush --nolockfs late
	# The first one is not read; 16 at a time have memory.
	fio --name=w --ioengine=libaio --direct=1 --rw=write:960k --bs=64k --iodepth=20 --offset=7m \
		--size=20m --io_size=1280k --filename=/dev/mapper/o --allow_file_create=0 \
		>"$TEST_TMP/fio.log" 2>&1 &
	writer=$!
	ok "what was read goes on without it in the end" wait_for 60 has_copied 16
	dm resume late
	ok "all writes end" wait "$writer"
	isnt "$(counted page_waits)" 0 "one waited for memory"
	ok "the worker looked for it now and then" [ "$(counted page_waits)" -lt 500 ]
	diag "page_waits $(counted page_waits)"
	dmremove s
	dmremove o
	dmremove parts
	dmremove rest
	dmremove late
}

# read_together TURNS: $reads is how many copies 24 writes need, some of whose chunks have places
# apart: tables lie in between.
read_together()
{
	local store i

	store=$(mkloop 96M)
	echo 0 >"$PARAMETERS/kcopyd_budget"
	fill_letter "$loop" A
	echo "$1" >"$(sysfs "$loop")/queue/rotational"
	echo "$1" >"$(sysfs "$store")/queue/rotational"
	origin_up o "$loop"
	snap_up s "$loop" "$store" P 8
	dm message o 0 reset_stats
	for ((i = 0; i < 24; i++)); do
		put_letter /dev/mapper/o W $((i * 3 * MIB)) 524288
	done
	reads=$(counted copies)
	is "$(counted read_sectors) $(counted written_sectors)" "24576 24576" \
		"turns $1: each chunk is copied once"
	ok "turns $1: the snapshot has the old data" all_letter /dev/mapper/s A
	dmremove s
	dmremove o
}

has_copied()
{
	(($(counted copies) >= $1))
}

runs
one_read
zeroes
throttle
throttled_close
loop=$base
dmcreate home "$(linear_table "$loop")"
base=/dev/mapper/home
memory
larger_job
idle
budget
in_order
read_together 0
ok "runs with places apart are read one by one" [ "$reads" -gt 24 ]
read_together 1
is "$reads" 24 "on a disk they are read at once"

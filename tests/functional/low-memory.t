#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What there was no memory for is done later: room that could not be given back comes back, a merge
# forgets what it could not, and a store that could not be opened is opened with the next resume of
# the same tables, with what was redirected to it counted once. Writes go on with the pendings that
# are in reserve. A store that could not be looked at is not written to.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"

need_faults
# The module's own line about the store that it could not look at.
expect_log 'cowsnap: Out of memory reading the store: try again'
exact_copies
need_command
need fio
need_target delay
plan 36

CHUNKS=256
PLACES=600	# chunks that are written, none beside the other: more than a leaf of the map has

used()
{
	used_sectors u
}

has_room_back()
{
	(($(used) <= before - PLACES * 8))
}

# A snapshot is deleted whose copies are in several leaves of the map. There is another, which
# does not need them.
reclaim()
{
	local i before writes=()

	for ((i = 0; i < PLACES; i++)); do
		writes+=($((i * 8192)) 4096)
	done
	fill "$base" "$TEST_TMP/now"
	origin_up o "$base"
	snap_up s "$base" "$store" P 8 id 1 create
	put /dev/mapper/o "$TEST_TMP/now" "${writes[@]}"
	dmremove s
	snap_up u "$base" "$store" P 8 id 2 create
	before=$(used)
	fail_under cow_map_reclaim "$1" "$2"
	ok "reclaim, $3: a snapshot is deleted" dm message o 0 delete 1
	wait_for 60 has_failed
	sleep 2		# it is tried again each second
	ok "reclaim, $3: allocations have failed: $(fail_no_more)" has_failed
	ok "reclaim, $3: the room comes back" wait_for 60 has_room_back
	ok "reclaim, $3: the other snapshot is right" same /dev/mapper/u "$TEST_TMP/now"
	dmremove u
	dmremove o
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
}

# crash: what is left of the store after it is in doubt, if nothing noted the last commits.
crash()
{
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	mark_chunks "$base" 0 0 $((CHUNKS - 1))
	blockdev --flushbufs "$base"
	cp "$(loop_file "$base")" "$TEST_TMP/old"
	dmcreate cow "$(linear_table "$store")"
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/cow P 8 id 1 create
	for ((i = 0; i < CHUNKS; i += 8)); do
		mark_chunks /dev/mapper/o 1 "$i" "$i"
	done
	dm suspend --noflush cow
	cp "$(loop_file "$store")" "$TEST_TMP/store"
	dm resume cow
	dmremove s
	dmremove o
	dmremove cow
	dd if="$TEST_TMP/store" of="$store" bs=1M conv=fsync status=none
	blockdev --flushbufs "$store"
}

# An idle store is noted as durable a second later.
crash_in_doubt()
{
	local tries

	for ((tries = 0; tries < 5; tries++)); do
		crash
		! store_tool in-doubt "$TEST_TMP/store" \
			$(($(find_chunk "$TEST_TMP/store" $((CHUNKS - 8)) 0) / 4096)) || return 0
	done
	bail_out "no crash came in time"
}

# LVM opens a store when its origin has a table, but is not in use yet. Each try gets a little
# further.
early()
{
	local real skip failed=0 tries=0

	crash_in_doubt
	dmcreate real "" --notable
	real=$(dmsetup info -c --noheadings --separator : -o major,minor real)
	dmcreate s "" --notable
	dmload real "0 $(sectors "$base") linear $base 0"
	dmload s "0 $(sectors "$base") cowsnap $real $store P 8 2 id 1"
	dm resume real
	fail_under cow_load_settle -1
	not_ok "early: without memory the store is not opened" dm resume s
	ok "early: allocations have failed" has_failed
	like "$(kernel_log)" 'store .* cannot be opened \(-12\): resume its tables again' \
		"early: the log says what helps"
	for ((skip = 1; skip < 30; skip++)); do
		fail_under cow_load_settle -1 "$skip"
		tries=$((tries + 1))
		! dmsetup resume s 2>/dev/null || break
		failed=$((failed + 1))
	done
	fail_no_more >/dev/null
	diag "resumed after $tries further tries, of which $failed failed"
	is "$((tries - failed))" 1 "early: with memory the same tables are resumed"
	ok "early: the snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
	dmremove s
	dmremove real
}

# written_sectors DEVICE: so far.
written_sectors()
{
	local count

	read -r _ _ _ _ _ _ count _ <"$(sysfs "$1")/stat"
	echo "$count"
}

# The log gets its zones, and tables are made ready for the next ones: nothing is written any more.
is_still()
{
	local before

	before=$(written_sectors "$1")
	sleep 2
	[ "$(written_sectors "$1")" = "$before" ]
}

# redirected WRITES: each a chunk of its own, in records of which none was known to be durable when
# the power went.
redirected()
{
	local nr=$1 base store writer

	base=$(mkloop 8M)
	store=$(mkloop 128M)
	fill "$base" "$TEST_TMP/old"
	dmcreate cow "$(linear_table "$store")"
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/cow P 8 log on
	dmremove s
	dmremove o
	"$tool" seal "$base" /dev/mapper/cow >/dev/null
	blockdev --flushbufs "$base"
	origin_up o "$base" store /dev/mapper/cow
	snap_up s "$base" /dev/mapper/cow P 8
	dm message o 0 set settle off
	dm message o 0 set redirect 60
	# With zones that none of the writes fills.
	dmremove s
	dmremove o
	origin_up o "$base" store /dev/mapper/cow
	snap_up s "$base" /dev/mapper/cow P 8
	wait_for 60 is_still "$store"
	swap_table cow "$(delay_table "$store" 0 120000)"
	fio --name=w --filename=/dev/mapper/o --allow_file_create=0 --ioengine=libaio --direct=1 \
		--iodepth="$nr" --bs=4k --rw=write:4k --offset=1m --io_size=$((nr * 4096)) \
		>"$TEST_TMP/fio.log" 2>&1 &
	writer=$!
	wait_for 60 writes_are_delayed cow 1
	sleep 3		# by then all have been sent
	# No superblock says later that they are durable.
	swap_table cow "$(partly_table "$store" 0 2 flakey "$store" 0 0 1000 1 error_writes)"
	wait "$writer"
	cp "$(loop_file "$store")" "$TEST_TMP/store"
	dmremove s
	dmremove o
	dmremove cow
	dd if="$TEST_TMP/store" of="$store" bs=1M conv=fsync status=none
	blockdev --flushbufs "$store"
	dmcreate o "" --notable
	dmload o "$(origin_table "$base" store "$store")"
	fail_under cow_load_settle -1
	not_ok "redirected: without memory the store is not opened" dm resume o
	ok "redirected: allocations have failed: $(fail_no_more)" has_failed
	ok "redirected: with memory it is" dm resume o
	snap_up s "$base" "$store" P 8
	is "$(key_of s unsettled)" "$nr" "redirected: what is in the store is counted once"
	ok "redirected: the snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
	dmremove s
	dmremove o
}

# rolled_back FUNCTION: where that gets no memory, a merge forgets later what was redirected. Its slot
# is in a table block that is not in memory.
rolled_back()
{
	local store

	store=$(mkloop 32M)
	fill "$base" "$TEST_TMP/old"
	cp "$TEST_TMP/old" "$TEST_TMP/now"
	snap_up s "$base" "$store" P 8 log off
	dmremove s
	"$tool" seal "$base" "$store" >/dev/null
	blockdev --flushbufs "$base"
	origin_up o "$base" store "$store"
	dm message o 0 set settle off
	put /dev/mapper/o "$TEST_TMP/now" $((4 * 1048576)) 262144
	dm message o 0 set redirect 60
	put /dev/mapper/o "$TEST_TMP/now" $((8 * 1048576)) 8192
	remove_and_reload o
	exact_copies
	origin_up o "$base" store "$store"
	fail_under "$1" -1
	dmreload o "0 $(sectors "$base") cowsnap-merge $base $store P 8"
	wait_for 60 has_failed
	sleep 2		# it is tried again each second
	ok "$1: a merge goes on without memory" test "$(left_of o)" -gt 0
	ok "$1: allocations have failed: $(fail_no_more)" has_failed
	ok "$1: with memory it ends" wait_for 60 merged
	dmreload o "$(origin_table "$base" store "$store")"
	ok "$1: the origin is right" same /dev/mapper/o "$TEST_TMP/old"
	is "$("$tool" status o | awk '$1 == "unsettled" { print $2; exit }')" 0 \
		"$1: what was redirected is forgotten"
	dmremove o
	ok "$1: check finds nothing" "$tool" check "$store"
}

# I7: where no pending can be had from the kernel, those in reserve go round.
pendings()
{
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	fill "$base" "$TEST_TMP/old"
	origin_up o "$base"
	snap_up s "$base" "$store" P 8
	fail_under cow_pending_add -1
	fio --name=w --filename=/dev/mapper/o --allow_file_create=0 --ioengine=libaio --direct=1 \
		--iodepth=128 --bs=4k --rw=randwrite --io_size=2m >"$TEST_TMP/fio.log" 2>&1 &
	ok "pendings: without memory for one more, writes come through" wait_for 60 has_ended $!
	ok "pendings: allocations have failed: $(fail_no_more)" has_failed
	wait
	ok "pendings: the snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
	dmremove s
	dmremove o
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
}

# A table says of a persistent store that it is a transient one.
transient()
{
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	fill "$base" "$TEST_TMP/now"
	origin_up o "$base"
	snap_up s "$base" "$store" P 8 id 1 create
	put /dev/mapper/o "$TEST_TMP/now" 0 65536
	dmremove s
	blockdev --flushbufs "$store"
	cp "$(loop_file "$store")" "$TEST_TMP/store"
	fail_under cow_probe -1
	not_ok "transient: without memory to look at the store no snapshot is made" \
		snap_up t "$base" "$store" N 8
	ok "transient: allocations have failed: $(fail_no_more)" has_failed
	# A transient store would get a copy, at its start.
	put /dev/mapper/o "$TEST_TMP/now" 0 65536
	blockdev --flushbufs "$store"
	ok "transient: the persistent store is as it was" cmp "$(loop_file "$store")" "$TEST_TMP/store"
	dmremove o
}

base=$(mkloop 16M)
store=$(mkloop 24M)
reclaim -1 0 "no memory"
reclaim 4 4 "some leaves"
early
redirected 700
rolled_back cow_slots_free
rolled_back cow_map_remove
pendings
transient

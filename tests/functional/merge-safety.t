#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A merge that meets trouble loses nothing and blocks no task for good: flushes reach both
# devices, a note that fails, an activation that fails, a full store, a second store.

. "$(dirname "$0")/common.sh"

need_processors 2
need_target flakey
[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"
MIB=1048576
SIZE=24

exact_copies
len=$((SIZE * 2048))

merge_table()
{
	echo "0 $len cowsnap-merge $home $cow P 8 2 id $1"
}

# The first table block has the superblocks.
supers_fail()
{
	swap_table cow "$(partly_table "$store" 0 8 flakey "$store" 0 0 1000 1 error_writes)"
}

# fast COMMAND...: it ends within some seconds. What waits for I/O cannot be killed.
fast()
{
	local pid

	"$@" &
	pid=$!
	wait_for 30 has_ended "$pid" && wait "$pid"
}

fast_put()
{
	fast "$TOOLS/cowio" put "$@"
}

# all_up CHUNK_MIBS...: one snapshot, of which these MiB are copied (4 KiB each).
all_up()
{
	local mib

	fill "$base" "$TEST_TMP/now"
	dd if=/dev/zero of="$store" bs=4096 count=1 conv=fsync status=none
	dmcreate home "$(linear_table "$base")"
	dmcreate cow "$(linear_table "$store")"
	home=/dev/mapper/home cow=/dev/mapper/cow
	origin_up o "$home"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	snap_up s "$home" "$cow" P 8 id 1 create
	dmreload o "$(origin_table "$home" store "$cow")"
	dmremove s
	for mib; do
		put /dev/mapper/o "$TEST_TMP/now" $((mib * MIB)) 65536
	done
}

all_down()
{
	dmremove o
	dmremove cow
	dmremove home
}

# From the disks, by a module that knows nothing.
again()
{
	dmremove o
	reload_module && exact_copies
	dmcreate o "$(origin_table "$home" store "$cow")"
}

start_merge()
{
	dm suspend o && dmload o "$(merge_table "$1")" && dm resume o
}

# flushes_of DEV COMMAND...: the number of flushes that DEV gets.
flushes_of()
{
	local dev=$1

	shift
	trace_start "$dev" bio_queue
	"$@"
	trace_stop >"$TEST_TMP/trace"
	grep -c '^bio_queue \(F\|W[A-Z]*F\)' "$TEST_TMP/trace"
}

fsync_origin()
{
	sync -d /dev/mapper/o
}

in_place()
{
	put /dev/mapper/o "$TEST_TMP/old" $((18 * MIB)) 512
}

# A commit, or the note of an idle store, may flush meanwhile: so once is enough.
without_flush()
{
	[[ $(flushes_of "$store" in_place) = 0 ]]
}

store_gets_none()
{
	[[ $(flushes_of "$store" fsync_origin) = 0 ]]
}

in_place_fua()
{
	letters B 4096 | dd of=/dev/mapper/o bs=4096 seek=$((18 * MIB)) iflag=fullblock \
		oflag=direct,dsync,seek_bytes conv=nocreat,notrunc status=none
}

# ---- a flush of the origin reaches the store that has taken writes ----

flushes()
{
	all_up 2 8 18
	ok "flush: without a merge the store gets none" wait_for 60 store_gets_none
	# Copies of the second part cannot be read, so the merge stands still there.
	swap_table cow "$(partly_table "$store" 136 128 delay "$store" 136 120000 "$store" 136 0)"
	# A table that does not name the store, beside the merge's.
	dmcreate p "0 $len cowsnap-origin $home"
	start_merge 1
	wait_for 60 part_is_merged 300
	put /dev/mapper/o "$TEST_TMP/old" $((18 * MIB)) 4096
	ok "flush: the last part is not merged yet" [ "$(left_of o)" -gt 0 ]
	ok "flush: a plain write in place flushes nothing" wait_for 60 without_flush
	isnt "$(flushes_of "$store" fsync_origin)" 0 "flush: fsync of the origin flushes the store"
	isnt "$(flushes_of "$base" fsync_origin)" 0 "flush: fsync of the origin flushes its device"
	isnt "$(flushes_of "$store" in_place_fua)" 0 \
		"flush: a synchronous write in place flushes the store"
	isnt "$(flushes_of "$store" sync -d /dev/mapper/p)" 0 \
		"flush: fsync of another table of the origin, without the store, flushes it"
	isnt "$(flushes_of "$base" sync -d /dev/mapper/p)" 0 \
		"flush: and the origin's device"
	dmremove p
	swap_table cow "$(linear_table "$store")"
	ok "flush: the merge ends" wait_for 60 merged
	ok "flush: after the merge the store gets none" wait_for 60 store_gets_none
	all_down
}

# ---- a note of how far the merge has come cannot be written ----

note_fails_at_once()
{
	all_up 2 8 18
	dm message o 0 set throttle 1
	start_merge 1
	wait_for 30 part_is_merged 300
	supers_fail
	dm message o 0 set throttle 100
}

# The log of this test alone: note_recovers() is the first that makes a superblock fail.
note_has_failed()
{
	kernel_log | grep -q 'superblock at sector [0-9]* cannot be written'
}

note_recovers()
{
	note_fails_at_once
	wait_for 30 note_has_failed
	swap_table cow "$(linear_table "$store")"
	# The store could not take it before.
	dm message o 0 set throttle 100
	ok "note, at last: the merge ends" wait_for 60 merged
	ok "note, at last: the origin is right" same /dev/mapper/o "$TEST_TMP/old"
	all_down
}

# A flush of the store that failed is told once: then what was written before is durable or lost.
fsync_in_the_end()
{
	fast fsync_origin || fast fsync_origin
}

# What is written and acknowledged after the failure must be there after all.
try_writes()
{
	local at

	for at in $((8 * MIB)) $((8 * MIB + 8192)) $((2 * MIB)) $((18 * MIB)) $((21 * MIB)); do
		cp "$TEST_TMP/old" "$TEST_TMP/next"
		if fast_put /dev/mapper/o "$TEST_TMP/next" "$at" 4096 && fsync_in_the_end; then
			mv "$TEST_TMP/next" "$TEST_TMP/old"
			nr_written=$((nr_written + 1))
		else
			refused+=("$((at / MIB))")
		fi
	done
}

note_stays_broken()
{
	nr_written=0 refused=()
	note_fails_at_once
	ok "note: the merge fails in the end" wait_for 60 merge_failed
	ok "note: the origin reads as the snapshot" fast "$TOOLS/cowio" same /dev/mapper/o \
		"$TEST_TMP/old"
	swap_table cow "$(linear_table "$store")"
	try_writes
	diag "refused at MiB: ${refused[*]-none}"
	ok "note: writes to what is merged, and to what was not begun, succeed" \
		[ "$nr_written" -ge 3 ]
	ok "note: the origin has what was acknowledged" same /dev/mapper/o "$TEST_TMP/old"
	# A machine that stops now, before anything is noted.
	cp "$(loop_file "$base")" "$(loop_file "$cut_base")"
	cp "$(loop_file "$store")" "$(loop_file "$cut_store")"
	dmcreate x "$(origin_table "$cut_base" store "$cut_store")"
	ok "note: after a crash the origin has what was acknowledged" same /dev/mapper/x "$TEST_TMP/old"
	dmremove x
	ok "note: the origin can be suspended" fast dmsetup suspend o
	ok "note: a superblock is written" dm message o 0 set low_water 99
	dm resume o
	again
	ok "note: the origin opened again has what was acknowledged" \
		same /dev/mapper/o "$TEST_TMP/old"
	dm message o 0 set throttle 100
	dmreload o "$(merge_table 1)"
	ok "note: the merge ends" wait_for 60 merged
	ok "note: the merged origin has what was acknowledged" same /dev/mapper/o "$TEST_TMP/old"
	all_down
}

# Resuming tries again.
note_resumed()
{
	note_fails_at_once
	wait_for 60 merge_failed
	swap_table cow "$(linear_table "$store")"
	dm suspend o
	ok "note, resumed: the origin can be resumed" dm resume o
	ok "note, resumed: the merge ends" wait_for 60 merged
	ok "note, resumed: the origin is right" same /dev/mapper/o "$TEST_TMP/old"
	all_down
}

# ---- the beginning of a merge cannot be written ----

right_or_invalid()
{
	[[ $(status s) = Invalid ]] || same /dev/mapper/s "$TEST_TMP/old"
}

begin_fails()
{
	all_up 2 8 18
	supers_fail
	dm suspend o
	dmload o "$(merge_table 1)"
	not_ok "begin: resume fails" dm resume o
	swap_table cow "$(linear_table "$store")"
	dmload o "$(origin_table "$home" store "$cow")"
	ok "begin: the old table is resumed" dm resume o
	ok "begin: the origin is as it was" same /dev/mapper/o "$TEST_TMP/now"
	again
	ok "begin: the origin is as it was when it is opened again" same /dev/mapper/o "$TEST_TMP/now"
	snap_up s "$home" "$cow" P 8 id 1
	ok "begin: the snapshot is right, or Invalid" right_or_invalid
	dmremove s
	all_down
}

# ---- an activation that fails fails as a whole ----

half_activated()
{
	all_up 2 8 18
	dm message o 0 set throttle 1
	start_merge 1
	wait_for 30 part_is_merged 300
	dmremove o
	# Slots of the first table, behind the superblocks.
	dd if=/dev/urandom of="$store" bs=512 seek=2 count=6 conv=notrunc,fsync status=none
	dmcreate o "" --notable
	dmload o "$(merge_table 1)"
	not_ok "twice: the first resume fails" dm resume o
	dmload o "$(merge_table 1)"
	not_ok "twice: the second resume fails" dm resume o
	dmload o "$(origin_table "$home" store "$cow")"
	not_ok "twice: the resume of another table fails" dm resume o
	not_ok "twice: nothing half merged is shown" get /dev/mapper/o 0 4096
	all_down
}

# ---- other stores ----

two_stores()
{
	all_up 2 8 18
	cp "$TEST_TMP/now" "$TEST_TMP/before"
	snap_up b "$home" "$other" P 8 id 7 create
	dm message o 0 set throttle 1 "$cow"
	start_merge 1
	not_ok "two stores: no snapshot is made in another by a table" snap_up c "$home" "$third" N 8
	like "$(kernel_log | tail -n 20)" 'snapshot 1 of store .* is being merged' \
		"two stores: the log says why no snapshot is made"
	not_ok "two stores: no snapshot is made in another by a message" \
		dm message o 0 create 8 "$other"
	ok "two stores: a snapshot made before is right" same /dev/mapper/b "$TEST_TMP/before"
	put /dev/mapper/o "$TEST_TMP/old" $((18 * MIB)) 4096 $((12 * MIB)) 4096
	dm message o 0 set throttle 100 "$cow"
	ok "two stores: the merge ends" wait_for 60 merged
	ok "two stores: the origin is right" same /dev/mapper/o "$TEST_TMP/old"
	ok "two stores: a snapshot made before is right after the merge" \
		same /dev/mapper/b "$TEST_TMP/before"
	ok "two stores: a snapshot is made after the merge" snap_up c "$home" "$third" N 8
	ok "two stores: the snapshot made after the merge is right" \
		same /dev/mapper/c "$TEST_TMP/old"
	dmremove c
	dmremove b
	all_down
}

# ---- a merge that failed blocks no task ----

# The store: full of the second snapshot's own.
fill_store()
{
	snap_up s "$home" "$cow" P 8 id 2
	dd if=/dev/urandom of=/dev/mapper/s bs=1M oflag=direct status=none 2>/dev/null
	dd if=/dev/urandom of=/dev/mapper/s bs=4k seek=256 oflag=direct status=none 2>/dev/null
	dmremove s
}

full_and_failed()
{
	all_up
	dm message o 0 create 2
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	put /dev/mapper/o "$TEST_TMP/now" $((18 * MIB)) 65536 $((23 * MIB)) 65536
	fill_store
	# The copies of what is at 18 MiB: the first in the store.
	swap_table cow "$(partly_table "$store" 8 64 error)"
	start_merge 1
	ok "full: the merge fails" wait_for 60 merge_failed
	not_ok "full: a write that finds no room ends with an error" \
		fast_put /dev/mapper/o "$TEST_TMP/old" $((23 * MIB)) 512
	ok "full: suspend does not wait" fast dmsetup suspend o
	dm resume o
	swap_table cow "$(linear_table "$store")"
	dm suspend o
	ok "full: resuming tries the merge again" dm resume o
	all_down_fast
}

# What the merge overwrites at home has to be copied for a newer snapshot. For want of room the
# merge ends, and not that snapshot.
full_for_others()
{
	all_up 22 23
	dm message o 0 create 2
	cp "$TEST_TMP/now" "$TEST_TMP/second"
	fill_store
	start_merge 1
	ok "full for others: the merge fails" wait_for 60 merge_failed
	snap_up s "$home" "$cow" P 8 id 2
	ok "full for others: the newer snapshot is as it was" \
		cmp -n 2097152 -i $((22 * MIB)) /dev/mapper/s "$TEST_TMP/second"
	dmremove s
	dm message o 0 delete 2
	dm suspend o
	ok "full for others: with room the merge goes on" dm resume o
	ok "full for others: the merge ends" wait_for 60 merged
	ok "full for others: the origin is right" same /dev/mapper/o "$TEST_TMP/old"
	all_down_fast
}

# While it goes on, a write that needs room waits, but not for the throttle.
full_and_slow()
{
	all_up
	dm message o 0 create 2
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	put /dev/mapper/o "$TEST_TMP/now" $((4 * MIB)) 65536 $((12 * MIB)) 65536 \
		$((23 * MIB)) 65536
	fill_store
	dm message o 0 set throttle 1
	start_merge 1
	ok "full and slow: a write that finds no room is done by the merge" \
		fast_put /dev/mapper/o "$TEST_TMP/old" $((23 * MIB)) 512
	ok "full and slow: the merge ends" wait_for 60 merged
	ok "full and slow: the origin is right" same /dev/mapper/o "$TEST_TMP/old"
	all_down_fast
}

all_down_fast()
{
	ok "all devices can be removed" fast dmsetup remove --retry o
	dmremove cow
	dmremove home
}

# ---- the origin's device takes no flush while the merge is taken away ----

reloaded_away()
{
	all_up 2 8 18
	dm message o 0 set throttle 1
	start_merge 1
	swap_table home "$(no_writes_table "$base")"
	dm suspend o
	dmload o "0 $len cowsnap-origin $home"
	ok "taken away: another table is resumed" dm resume o
	for _ in 1 2 3 4; do
		fast "$TOOLS/cowio" get /dev/mapper/o $((18 * MIB)) 65536 >/dev/null || break
	done
	ok "taken away: the origin is read" fast "$TOOLS/cowio" get /dev/mapper/o 0 65536
	swap_table home "$(linear_table "$base")"
	dm suspend o
	dmload o "$(merge_table 1)"
	ok "taken away: the merge's table comes back" dm resume o
	dm message o 0 set throttle 100
	ok "taken away: the merge ends" wait_for 60 merged
	ok "taken away: the origin is right" same /dev/mapper/o "$TEST_TMP/old"
	all_down
}

base=$(mkloop ${SIZE}M)
store=$(mkloop 12M)
other=$(mkloop 12M)
third=$(mkloop 12M)
cut_base=$(mkloop ${SIZE}M)
cut_store=$(mkloop 12M)
(($#)) || set -- flushes note_recovers note_stays_broken note_resumed begin_fails \
	half_activated two_stores full_and_failed full_for_others full_and_slow reloaded_away
for scenario; do
	"$scenario"
done
done_testing

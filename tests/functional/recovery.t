#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What a crash, a flipped bit or an unreadable sector leaves of a store is opened as what
# it is: an unfinished commit is dropped, a finished one that was damaged gives errors, what is
# lost is lost alone, and nothing that may be a store is written over.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"

CHUNKS=256
expect_log 'blk_update_request|Buffer I/O error|critical .* error'

need_target flakey
exact_copies
plan 78

# The store: chunks of 4096 bytes, blocks of 512.
SUPER_B=512			# where the second superblock begins
IN_SUPER=90			# a byte of a superblock
IN_RECORDS=40			# and of a block of records
IN_BLOCK=100			# and of a block of slots, or of a chunk
LAST=39				# the chunk of the last commit

# place_of FILE CHUNK VERSION: the chunk of the store that has it.
place_of()
{
	echo $(($(find_chunk "$@") / 4096))
}

# flip_byte FILE OFFSET: one bit of that byte.
flip_byte()
{
	flip_bits "$1" $(($2 * 8 + 4))
}

# in_doubt FILE PLACE: is the slot of that place in a block of a commit that is not known to
# be durable?
in_doubt()
{
	store_tool in-doubt "$@"
}

# put_back FILE LOOP: what the device is to hold.
put_back()
{
	dd if="$1" of="$2" bs=1M conv=fsync status=none
	blockdev --flushbufs "$2"
}

# bad_store [--readonly] SECTOR...: these, ascending, can be neither read nor written.
bad_store()
{
	local at=0 sector options=()

	if [[ $1 == --readonly ]]; then
		options=("$1")
		shift
	fi
	for sector; do
		((sector == at)) || echo "$at $((sector - at)) linear $store $at"
		echo "$sector 1 error"
		at=$((sector + 1))
	done >"$TEST_TMP/table"
	echo "$at $(($(sectors "$store") - at)) linear $store $at" >>"$TEST_TMP/table"
	dm suspend cow && dmsetup load cow "${options[@]}" <"$TEST_TMP/table" && dm resume cow
}

clean_store()
{
	dm suspend cow && dmload cow "$(linear_table "$store")" && dm resume cow
}

# open_all ID...: the origin, and these snapshots as s1, ...
open_all()
{
	local id

	origin_up o "$base" store /dev/mapper/cow || return
	for id; do
		snap_up "s$id" "$base" /dev/mapper/cow P 8 id "$id" || return
	done
}

close_all()
{
	local name

	for name in $(dmsetup ls | sed -n 's/^\(s[0-9]*\)\t.*/\1/p') o; do
		! dmsetup info "$name" >/dev/null 2>&1 || dmremove "$name"
	done
}

new_store()
{
	dd if=/dev/zero of="$store" bs=1M count=4 conv=fsync status=none
	mark_chunks "$base" 0 0 $((CHUNKS - 1))
	blockdev --flushbufs "$base"
	cp "$(loop_file "$base")" "$TEST_TMP/old"
	origin_up o "$base"
	snap_up s1 "$base" /dev/mapper/cow P 8 id 1 create
}

# What a crash right after the last commit leaves in $TEST_TMP/store, and of the origin in old
# (the commit had not ended) or new (it had).
crash()
{
	local tries

	for ((tries = 0; tries < 5; tries++)); do
		new_store
		mark_chunks /dev/mapper/o 1 0 20
		mark_chunks /dev/mapper/o 1 $LAST $LAST
		dm suspend --noflush cow
		cp "$(loop_file "$store")" "$TEST_TMP/store"
		cp "$(loop_file "$base")" "$TEST_TMP/new"
		dm resume cow
		close_all
		place=$(place_of "$TEST_TMP/store" $LAST 0)
		! in_doubt "$TEST_TMP/store" "$place" || break
	done
	ok "the crash came before the last commit was named durable" \
		in_doubt "$TEST_TMP/store" "$place"
}

# after_crash ORIGIN [STORE]: these are on the devices.
after_crash()
{
	put_back "$TEST_TMP/$1" "$base"
	put_back "${2:-$TEST_TMP/store}" "$store"
}

last_commit()
{
	crash
	cp "$TEST_TMP/store" "$TEST_TMP/rotten"
	spoil_bytes "$TEST_TMP/rotten" $((place * 4096 + IN_BLOCK)) 1

	after_crash new
	ok "a finished commit: the store is opened" open_all 1
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" "a finished commit: its copy is believed"
	close_all

	after_crash new "$TEST_TMP/rotten"
	ok "damaged since it ended: the store is opened" open_all 1
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "eio $LAST-$LAST " \
		"damaged since it ended: the chunk gives an error"
	like "$(kernel_log)" "wrong checksum, and the origin's $LAST is another" \
		"damaged since it ended: the log says which chunk"
	close_all
	open_all 1
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "eio $LAST-$LAST " \
		"damaged since it ended: opened again the chunk gives an error"
	close_all

	after_crash old "$TEST_TMP/rotten"
	ok "unfinished: the store is opened" open_all 1
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" "unfinished: the snapshot is right"
	mark_chunks /dev/mapper/o 2 30 50
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" \
		"unfinished: the snapshot stays right when the origin is written"
	close_all
	open_all 1
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" \
		"unfinished: the snapshot is right when opened again"
	close_all
}

# Not only the commit with the highest number is in doubt.
later_number()
{
	cp "$TEST_TMP/rotten" "$TEST_TMP/later"
	store_tool renumber "$TEST_TMP/later" 6
	after_crash old "$TEST_TMP/later"
	ok "a block with a later number: the store is opened" open_all 1
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" \
		"a block with a later number: the snapshot is right"
	close_all
}

# number_of NAME: its device number; there is no node before its first resume.
number_of()
{
	dmsetup info -c --noheadings --separator : -o major,minor "$1"
}

# LVM opens a store when its origin has a table, but not in use yet.
early()
{
	local way=$1 want=$2 real

	after_crash "$way" "$TEST_TMP/rotten"
	dmcreate real "" --notable
	real=$(number_of real)
	dmcreate o "" --notable
	dmcreate s1 "" --notable
	dmload real "0 $(sectors "$base") linear $base 0"
	dmload o "0 $(sectors "$base") cowsnap-origin $real 2 store /dev/mapper/cow"
	dmload s1 "0 $(sectors "$base") cowsnap $real /dev/mapper/cow P 8 2 id 1"
	ok "early, $way: the store is opened" eval 'dm resume real && dm resume s1 && dm resume o'
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "$want" \
		"early, $way: the snapshot is as the origin tells"
	close_all
	dmremove real
}

# The first resume fails: what is settled by half is not used by the next.
early_fails()
{
	local real

	after_crash new "$TEST_TMP/rotten"
	swap_table cow "$(no_writes_table "$store")"
	dmcreate real "" --notable
	real=$(number_of real)
	dmcreate s1 "" --notable
	dmload real "0 $(sectors "$base") linear $base 0"
	dmload s1 "0 $(sectors "$base") cowsnap $real /dev/mapper/cow P 8 2 id 1"
	dm resume real
	not_ok "early, not written: the store is not opened" dm resume s1
	like "$(kernel_log)" 'store .* cannot be opened \(-5\): remove its tables and load them' \
		"early, not written: the log says what helps"
	swap_table cow "$(linear_table "$store")"
	not_ok "early, written by half: the store is not opened with the same tables" dm resume s1
	close_all
	dmremove real
	ok "early, its tables loaded again: the store is opened" open_all 1
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "eio $LAST-$LAST " \
		"early, its tables loaded again: the snapshot is as the origin tells"
	close_all
}

# Closed without having been used: nothing is settled, nothing is lost.
early_unused()
{
	local real

	after_crash new "$TEST_TMP/rotten"
	dmcreate real "" --notable
	real=$(number_of real)
	dmload real "0 $(sectors "$base") linear $base 0"
	dmcreate s1 "" --notable
	dmload s1 "0 $(sectors "$base") cowsnap $real /dev/mapper/cow P 8 2 id 1"
	dmremove s1
	dmremove real
	open_all 1
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "eio $LAST-$LAST " \
		"early, not used: the commit is settled later"
	close_all
}

unreadable_suspect()
{
	after_crash old
	bad_store $((place * 8 + 3))
	ok "unfinished, unreadable: the store is opened" open_all 1
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" \
		"unfinished, unreadable: the snapshot is right"
	close_all
	clean_store

	after_crash new
	bad_store $((place * 8 + 3))
	ok "finished, unreadable: the store is opened" open_all 1
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "eio $LAST-$LAST " \
		"finished, unreadable: the chunk gives an error"
	clean_store
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" \
		"finished, readable again: the snapshot is right"
	close_all
}

read_only_store()
{
	after_crash old "$TEST_TMP/rotten"
	blockdev --setro "$store"
	dm suspend cow && dmload cow "$(linear_table "$store")" --readonly && dm resume cow
	ok "read-only: the store is opened" \
		dmcreate s1 "$(snap_table "$base" /dev/mapper/cow P 8 id 1)" --readonly
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" "read-only: the snapshot is right"
	close_all
	ok "read-only: nothing is written to the store" \
		cmp "$(loop_file "$store")" "$TEST_TMP/rotten"
	blockdev --setrw "$store"
	clean_store
}

# Superblocks and tables with a bit wrong, or unreadable.
superblocks()
{
	new_store
	mark_chunks /dev/mapper/o 1 0 20
	close_all
	cp "$(loop_file "$store")" "$TEST_TMP/store"
	cp "$(loop_file "$base")" "$TEST_TMP/new"

	flip_byte "$TEST_TMP/store" $IN_SUPER
	flip_byte "$TEST_TMP/store" $((SUPER_B + IN_SUPER))
	after_crash new
	ok "one bit wrong in each superblock: the store is opened" open_all 1
	close_all

	for sector in 0 1; do
		after_crash new
		bad_store --readonly $sector
		ok "sector $sector unreadable: the store is opened" \
			dmcreate s1 "$(snap_table "$base" /dev/mapper/cow P 8 id 1)" --readonly
		is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" \
			"sector $sector unreadable: the snapshot is right"
		close_all
		clean_store
	done

	after_crash new
	bad_store --readonly 5
	ok "a table block unreadable: the store is opened" \
		dmcreate s1 "$(snap_table "$base" /dev/mapper/cow P 8 id 1)" --readonly
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "eio 21-255 " \
		"a table block unreadable: what is known is right"
	close_all
	clean_store

	after_crash new
	bad_store 0 1
	not_ok "both superblocks unreadable: the store is refused" open_all 1
	not_ok "both superblocks unreadable: the store is not taken for transient" \
		snap_up s1 "$base" /dev/mapper/cow N
	close_all
	clean_store
}

# A store that could be repaired is not written over.
not_written_over()
{
	spoil_bytes "$TEST_TMP/store" $IN_SUPER 3
	spoil_bytes "$TEST_TMP/store" $((SUPER_B + IN_SUPER)) 3
	after_crash new
	not_ok "both superblocks damaged: the store is not taken for transient" \
		snap_up s1 "$base" /dev/mapper/cow N
	ok "both superblocks damaged: nothing is written to the store" \
		cmp "$(loop_file "$store")" "$TEST_TMP/store"
	spoil_bytes "$TEST_TMP/store" 0 16
	after_crash new
	not_ok "only the second superblock's magic is left: the store is not taken for transient" \
		snap_up s1 "$base" /dev/mapper/cow N
	printf 'SnAp' | dd of="$store" conv=notrunc,fsync status=none
	not_ok "a store of dm-snapshot: the store is not taken for transient" \
		snap_up s1 "$base" /dev/mapper/cow N
	fill_letter "$store" A
	ok "something else: the device is taken for transient" snap_up s1 "$base" /dev/mapper/cow N
	close_all
}

# Copy B of an earlier store, further back and with a higher number.
earlier_second()
{
	local other

	other=$(mkloop 4M --sector 4096)
	origin_up o "$base"
	snap_up s1 "$base" "$other" P 8 id 1 create
	for id in 2 3 4; do
		dm message s1 0 create "$id"
	done
	close_all
	new_store
	close_all
	dd if="$(loop_file "$other")" of="$(loop_file "$store")" bs=512 skip=8 seek=8 count=1 \
		conv=notrunc status=none
	spoil_bytes "$(loop_file "$store")" 0 64
	blockdev --flushbufs "$store"
	ok "the second superblock of an earlier store does not count" open_all 1
	is "$(key_of o snapshots)" 1 "the snapshots of an earlier store are not there"
	close_all
}

# 12 snapshots, the last four of them in a chunk of records.
many_records()
{
	local id

	new_store
	for id in 2 3 4 5 6 7 8 9 10 11 12; do
		dm message o 0 create $id
		((id != 11)) || dd if="$store" of="$TEST_TMP/superblock" bs=512 skip=1 count=1 \
			iflag=direct status=none
		((id != 8)) || mark_chunks /dev/mapper/o 1 0 9
	done
	mark_chunks /dev/mapper/o 2 0 29
	close_all
	cp "$(loop_file "$store")" "$TEST_TMP/store"
	cp "$(loop_file "$base")" "$TEST_TMP/new"
	records=$(store_tool find-place "$TEST_TMP/store" 5)
	cp "$TEST_TMP/store" "$TEST_TMP/flipped"
	flip_byte "$TEST_TMP/flipped" $((records * 4096 + IN_RECORDS))
	after_crash new "$TEST_TMP/flipped"
	ok "one bit wrong in records: all snapshots are there" open_all 1 8 9 12
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" "one bit wrong in records: the first is right"
	close_all
}

# lost_records WORDS: those of snapshots 9 to 12.
lost_records()
{
	ok "$1: the store is opened" open_all 1 8
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" "$1: the first snapshot is right"
	like "$(kernel_log)" 'these snapshots are lost' "$1: the log says that snapshots are lost"
	not_ok "$1: the snapshots recorded there are gone" \
		snap_up s9 "$base" /dev/mapper/cow P 8 id 9
	cp "$(loop_file "$base")" "$TEST_TMP/now"
	ok "$1: a new snapshot is made" dm message o 0 create 9
	mark_chunks /dev/mapper/o 3 0 199
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "" "$1: the first snapshot stays right"
	snap_up s9 "$base" /dev/mapper/cow P 8 id 9
	is "$(differences /dev/mapper/s9 "$TEST_TMP/now")" "" "$1: the new snapshot is right"
	clean_store
	close_all
	open_all 1 9
	is "$(differences /dev/mapper/s9 "$TEST_TMP/now")" "" "$1: opened again the new snapshot is right"
	not_ok "$1: opened again the lost snapshots are still gone" \
		snap_up s12 "$base" /dev/mapper/cow P 8 id 12
	close_all
}

# Another block is lost than the last time, and as many.
other_damage()
{
	new_store
	mark_chunks /dev/mapper/o 1 0 30
	close_all
	cp "$(loop_file "$store")" "$TEST_TMP/store"
	spoil_bytes "$(loop_file "$store")" $((2 * 512 + IN_BLOCK)) 4
	blockdev --flushbufs "$store"
	open_all 1
	like "$(differences /dev/mapper/s1 "$TEST_TMP/old")" '^eio' "a damaged table: the snapshot gives errors"
	cp "$(loop_file "$base")" "$TEST_TMP/now"
	snap_up s2 "$base" /dev/mapper/cow P 8 id 2 create
	mark_chunks /dev/mapper/o 2 0 20
	is "$(differences /dev/mapper/s2 "$TEST_TMP/now")" "" "a damaged table: a newer snapshot is right"
	close_all
	dd if="$TEST_TMP/store" of="$(loop_file "$store")" bs=512 skip=2 seek=2 count=1 \
		conv=notrunc status=none
	spoil_bytes "$(loop_file "$store")" $((3 * 512 + IN_BLOCK)) 4
	blockdev --flushbufs "$store"
	open_all 1 2
	not_ok "another table damaged instead: no snapshot is wrong" \
		grep wrong <<<"$(differences /dev/mapper/s2 "$TEST_TMP/now")"
	close_all
}

# Blocks of 4096 bytes: the first two have a superblock each, and slots. The superblock is
# written again with a block whose slots are lost; they stay lost.
lost_beside_superblock()
{
	local large first

	large=$(mkloop 4M --sector 4096)
	origin_up o "$base"
	cp "$(loop_file "$base")" "$TEST_TMP/old"
	snap_up s1 "$base" "$large" P 8 id 1 create
	mark_chunks /dev/mapper/o 1 0 255
	close_all
	spoil_bytes "$(loop_file "$large")" 1000 4
	blockdev --flushbufs "$large"
	ok "slots beside a superblock lost: the store is opened" \
		snap_up s1 "$base" "$large" P 8 id 1
	first=$(differences /dev/mapper/s1 "$TEST_TMP/old")
	like "$first" '^eio [-0-9 ]*$' "slots beside a superblock lost: their chunks give errors"
	ok "slots beside a superblock lost: the superblock is written" \
		dm message s1 0 set low_water 77
	close_all
	ok "slots beside a superblock lost: the store is opened again" \
		snap_up s1 "$base" "$large" P 8 id 1
	is "$(differences /dev/mapper/s1 "$TEST_TMP/old")" "$first" \
		"slots beside a superblock lost: opened again, their chunks give errors"
	close_all
}

base=$(mkloop 1M)
store=$(mkloop 4M)
dmcreate cow "$(linear_table "$store")"
last_commit
later_number
early new "eio $LAST-$LAST "
early old ""
early_fails
early_unused
unreadable_suspect
read_only_store
superblocks
not_written_over
earlier_second
many_records
cp "$TEST_TMP/store" "$TEST_TMP/spoilt"
spoil_bytes "$TEST_TMP/spoilt" $((records * 4096 + IN_RECORDS)) 8
after_crash new "$TEST_TMP/spoilt"
lost_records "damaged records"
# As if the second one had not been written since.
spoil_bytes "$TEST_TMP/spoilt" $IN_SUPER 3
dd if="$TEST_TMP/superblock" of="$TEST_TMP/spoilt" bs=512 seek=1 conv=notrunc status=none
after_crash new "$TEST_TMP/spoilt"
lost_records "damaged records, an older superblock"
after_crash new
bad_store --readonly $((records * 8))
ok "unreadable records: the store is opened" \
	dmcreate s8 "$(snap_table "$base" /dev/mapper/cow P 8 id 8)" --readonly
is "$(differences /dev/mapper/s8 "$TEST_TMP/old")" "" "unreadable records: the eighth snapshot is right"
not_ok "unreadable records: the snapshots recorded there are gone" \
	dmcreate s9 "$(snap_table "$base" /dev/mapper/cow P 8 id 9)" --readonly
close_all
clean_store
other_damage
lost_beside_superblock

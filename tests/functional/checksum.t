#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Bits that flip in a closed store give an error for exactly what they hit, or nothing at
# all, never wrong data; and a store that is not whole, or none, is refused untouched.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"

CHUNKS=256
plan 95

# Bytes of a store whose bits are flipped. The first superblock is at 0; where the second is,
# the blocks' size says. Slots begin behind the superblocks, those of the first blocks are used.
IN_SUPER=50			# a byte of a superblock: of its uuid
IN_CHUNK=1234			# and of a chunk

# flip BIT...: of the store.
flip()
{
	flip_bits "$(loop_file "$store")" "$@"
}

# place_of CHUNK VERSION: the byte in the store where that is kept.
place_of()
{
	find_chunk "$(loop_file "$store")" "$@"
}

# new_devices SECTOR: an origin, marked with version 0, and an empty store.
new_devices()
{
	base=$(mkloop 1M --sector "$1")
	store=$(mkloop 3M --sector "$1")
	mark_chunks "$base" 0 0 $((CHUNKS - 1))
	blockdev --flushbufs "$base"
	cp "$(loop_file "$base")" "$TEST_TMP/old1"
}

# Two snapshots; some of their chunks are shared, some at home.
make_store()
{
	new_devices "$1"
	origin_up o "$base"
	snap_up s1 "$base" "$store" P 8 id 1 create
	mark_chunks /dev/mapper/o 1 0 99
	cp "$(loop_file "$base")" "$TEST_TMP/old2"
	snap_up s2 "$base" "$store" P 8 id 2 create
	mark_chunks /dev/mapper/o 2 50 149
	cp "$(loop_file "$base")" "$TEST_TMP/now"
	is "$(first_differs)$(second_differs)" "" "$1: both snapshots are right at first"
	close_store
	cp "$(loop_file "$store")" "$TEST_TMP/good"
	cp "$(loop_file "$base")" "$TEST_TMP/home"
}

# The store, and the origin, as make_store left them.
restore_store()
{
	dd if="$TEST_TMP/good" of="$(loop_file "$store")" bs=1M conv=notrunc status=none
	dd if="$TEST_TMP/home" of="$(loop_file "$base")" bs=1M conv=notrunc status=none
	blockdev --flushbufs "$store"
	blockdev --flushbufs "$base"
}

open_store()
{
	origin_up o "$base" && snap_up s1 "$base" "$store" P 8 id 1 &&
		snap_up s2 "$base" "$store" P 8 id 2
}

close_store()
{
	dmremove s1
	dmremove s2
	dmremove o
}

first_differs()
{
	differences /dev/mapper/s1 "$TEST_TMP/old1"
}

second_differs()
{
	differences /dev/mapper/s2 "$TEST_TMP/old2"
}

# read_at DEV OFFSET BYTES
read_at()
{
	get "$@" >/dev/null
}

# both_are_right WORDS: two points.
both_are_right()
{
	is "$(first_differs)" "" "$1: the first snapshot is right"
	is "$(second_differs)" "" "$1: the second snapshot is right"
}

# none_wrong DIFFERENCES WORDS: errors there may be.
none_wrong()
{
	is "$(grep -o 'wrong [0-9-]*' <<<"$1" | tr '\n' ' ')" "" "$2"
}

# ---- the data of a chunk ----

flip_copy_of_chunk_10()
{
	flip $((($(place_of 10 0) + IN_CHUNK) * 8 + 5))
}

bad_data()
{
	local words="$1, a bit of data"

	flip_copy_of_chunk_10
	open_store
	is "$(first_differs)" "eio 10-10 " "$words: exactly that chunk gives an error"
	is "$(second_differs)" "" "$words: another snapshot is right"
	like "$(kernel_log)" 'chunk 10 of the origin.*wrong checksum' "$words: the log says which"
	ok "$words: the status counts it" [ "$(key_of s1 bad_checksums)" -gt 0 ]
	not_ok "$words: a large read gives an error" read_at /dev/mapper/s1 0 1048576
	not_ok "$words: a read of a part of the chunk gives an error" \
		read_at /dev/mapper/s1 $((10 * 4096)) "$1"
	ok "$words: the chunks around it are read" read_at /dev/mapper/s1 0 40960
	like "$(status s1)" '^[0-9]+/' "$words: the snapshot lives on"
	mark_chunks /dev/mapper/o 3 10 12
	is "$(first_differs)" "eio 10-10 " \
		"$words: exactly that chunk gives an error when the origin was written"
	is "$(second_differs)" "" "$words: another snapshot is right when the origin was written"
	close_store
	restore_store
}

bad_merge()
{
	local words="$1, a bit of data"

	flip_copy_of_chunk_10
	dmcreate o "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 1"
	ok "$words: the snapshot is not merged" wait_for 60 merge_failed
	is "$(differences /dev/mapper/o "$TEST_TMP/old1")" "eio 10-10 " \
		"$words: the origin reads as the snapshot but for that chunk"
	dmremove o
	restore_store
}

# The table changes under the store while that is in use, so that the map knows better.
foreign_slot()
{
	local words="$1, a slot of another version" before

	open_store
	before=$(key_of s1 bad_checksums)
	ok "$words: the slot is written" store_tool set-epoch "$(loop_file "$store")" 10 2
	is "$(first_differs)" "eio 10-10 " "$words: exactly that chunk gives an error"
	like "$(kernel_log)" 'slot [0-9]+ is of chunk 10, epoch 2, not of 10, epoch 1' \
		"$words: the log says whose it is and whose it should be"
	ok "$words: the status counts it" [ "$(key_of s1 bad_checksums)" -gt "$before" ]
	close_store
	restore_store
}

# ---- tables ----

# one_bit WORDS BIT
one_bit()
{
	flip "$2"
	open_store
	both_are_right "$1"
	is "$(key_of s1 damaged)" 0 "$1: no table is damaged"
	close_store
	restore_store
}

# third_is_right WORDS: a snapshot made after the damage; two points.
third_is_right()
{
	is "$(differences /dev/mapper/s3 "$TEST_TMP/now")" "" "$1: a new snapshot is right"
	none_wrong "$(first_differs)$(second_differs)" "$1: no chunk of the old snapshots is wrong"
}

# several_bits WORDS BIT...: more than can be put right.
several_bits()
{
	local words=$1 seen

	shift
	flip "$@"
	ok "$words: the store is opened" open_store
	seen=$(first_differs)
	like "$seen" 'eio' "$words: some chunks cannot be read"
	none_wrong "$seen" "$words: no chunk of the first is wrong"
	none_wrong "$(second_differs)" "$words: no chunk of the second is wrong"
	is "$(key_of s1 damaged)" 1 "$words: one block is damaged"
	like "$(kernel_log)" 'table at sector [0-9]+ is damaged' "$words: the log says which"
	ok "$words: a new snapshot is made" dm message o 0 create 3
	mark_chunks /dev/mapper/o 3 20 $((CHUNKS - 1))
	snap_up s3 "$base" "$store" P 8 id 3
	third_is_right "$words"
	dmremove s3
	close_store
	open_store
	snap_up s3 "$base" "$store" P 8 id 3
	third_is_right "$words, opened again"
	dmremove s3
	close_store
	restore_store
}

# ---- superblocks ----

# refused WORDS REGEX STORE: with these words, and not a byte of it is changed.
refused()
{
	md5sum <"$(loop_file "$3")" >"$TEST_TMP/sum"
	not_ok "$1: the store is refused" snap_up s1 "$base" "$3" P 8 id 1
	like "$(kernel_log | tail -n 12)" "$2" "$1: the log says why"
	is "$(md5sum <"$(loop_file "$3")")" "$(<"$TEST_TMP/sum")" "$1: nothing is written to it"
}

# bad_supers SECTOR: the second superblock stands in the second block.
bad_supers()
{
	local first=$((IN_SUPER * 8)) second=$((($1 + IN_SUPER) * 8 + 7))

	flip $first
	open_store
	both_are_right "$1, first superblock"
	close_store
	restore_store
	flip $second
	open_store
	both_are_right "$1, second superblock"
	close_store
	restore_store
	flip $first $second
	refused "$1, both superblocks" "both superblocks are damaged: run cowsnap repair" "$store"
	restore_store
}

blocks_of_512()
{
	make_store 512
	bad_data 512
	bad_merge 512
	foreign_slot 512
	# Blocks 2 and 3: the first is that of bytes 1024 to 1535, the checksum in front.
	one_bit "512, a slot's bit" $((1100 * 8 + 3))
	one_bit "512, a checksum's bit" $((1024 * 8 + 30))
	several_bits "512, several bits" $((1600 * 8)) $((1700 * 8 + 1)) $((1800 * 8 + 2))
	bad_supers 512
}

blocks_of_4096()
{
	make_store 4096
	bad_data 4096
	bad_merge 4096
	# Block 0: a superblock, then slots.
	one_bit "4096, a slot's bit" $((700 * 8 + 3))
	several_bits "4096, several bits" $((700 * 8)) $((900 * 8 + 1)) $((1200 * 8 + 2))
	bad_supers 4096
}

# ---- a snapshot's own version is in the block that is lost, the copied one is not ----

own_version()
{
	local base store seen block=$((6 * 512 * 8))

	new_devices 512
	cp "$TEST_TMP/old1" "$TEST_TMP/old2"
	# Chunks copied ahead would take the slots up to block 6.
	exact_copies
	origin_up o "$base"
	snap_up s1 "$base" "$store" P 8 id 1 create
	snap_up s2 "$base" "$store" P 8 id 2 create
	# Blocks 2 to 5 have 34 slots each, so what is written to the snapshot is in block 6.
	mark_chunks /dev/mapper/o 1 0 149
	mark_chunks /dev/mapper/s2 7 5 5
	mark_chunks "$TEST_TMP/old2" 7 5 5
	is "$(second_differs)" "" "own version: the snapshot is right at first"
	close_store
	flip $((block + 900)) $((block + 1900)) $((block + 2900))
	open_store
	seen=$(second_differs)
	like "$seen" 'eio 0-' "own version: what may have had one cannot be read"
	none_wrong "$seen" "own version: the copied one is not shown in its place"
	none_wrong "$(first_differs)" "own version: no chunk of the other snapshot is wrong"
	close_store
	not_ok "own version: the snapshot is not merged" \
		dmsetup create o --table "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 2"
	dmsetup remove o 2>/dev/null
}

# ---- what does not fit, or is none ----

# With the store of blocks_of_4096.
truncated()
{
	local short

	short=$(mkloop 2M)
	dd if="$TEST_TMP/good" of="$(loop_file "$short")" bs=1M count=2 conv=notrunc status=none
	refused "a truncated store" "had $(sectors "$store") sectors and has 4096 now" "$short"
}

another_origin()
{
	local base

	base=$(mkloop 512K --sector 4096)
	refused "another origin" "was made for an origin of 2048 sectors, .* has 1024" "$store"
}

not_a_store()
{
	local other

	other=$(mkloop 1M)
	printf 'SnAp\1\0\0\0' | dd of="$(loop_file "$other")" conv=notrunc status=none
	refused "a store of dm-snapshot" "holds a snapshot of dm-snapshot" "$other"
	mkfs.ext4 -q -F "$other" 2>/dev/null
	blockdev --flushbufs "$other"
	refused "a filesystem" "holds something else: zero its first 4 KiB" "$other"
	printf 'nothing' | dd of="$(loop_file "$other")" bs=1 seek=100 conv=notrunc status=none
	refused "anything" "holds something else: zero its first 4 KiB" "$other"
}

blocks_of_512
blocks_of_4096
own_version
truncated
another_origin
not_a_store

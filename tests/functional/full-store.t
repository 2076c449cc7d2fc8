#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A store that fills costs its snapshot, and nothing else: the origin goes on,
# parked writes are let go, other snapshots stay whole.

. "$(dirname "$0")/common.sh"

need fio
MIB=1048576

exact_copies
plan 18

write_origin()
{
	fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bs=64k --iodepth=16 \
		--filename=/dev/mapper/o --allow_file_create=0 --verify=crc32c --do_verify=1 \
		--verify_fatal=1 --output="$TEST_TMP/fio.log" >/dev/null 2>&1 ||
		{ cat "$TEST_TMP/fio.log" && false; }
}

read_snapshot()
{
	get "$1" 0 $MIB >/dev/null 2>&1
}

fill_by_origin()
{
	local letter=$1 word=$2

	fill "$base" "$TEST_TMP/old"
	origin_up o "$base"
	snap_up s "$base" "$small" "$letter" 8
	snap_up t "$base" "$large" N 32
	ok "$letter: all writes to the origin succeed, and read back" write_origin
	is "$(status s)" "$word" "$letter: the snapshot is $word"
	not_ok "$letter: the snapshot cannot be read" read_snapshot /dev/mapper/s
	not_ok "$letter: the snapshot cannot be written" put_letter /dev/mapper/s P 0 4096
	ok "$letter: a snapshot with room is whole" same /dev/mapper/t "$TEST_TMP/old"
	ok "$letter: the origin goes on" write_origin
	dmremove s
	snap_up s "$base" "$small" "$letter" 8
	ok "$letter: the store serves a new snapshot" read_snapshot /dev/mapper/s
	dmremove s
	dmremove t
	dmremove o
}

# The store has room for less than 4 MiB of private data.
whole_or_invalid()
{
	[[ $(status s) = Invalid ]] && return
	image /dev/mapper/s "$TEST_TMP/now" &&
		cmp "$TEST_TMP/old" "$TEST_TMP/now" --ignore-initial=$((5 * MIB)) &&
		all_letter /dev/mapper/s P 0 $((3 * MIB))
}

fill_by_snapshot()
{
	fill "$base" "$TEST_TMP/old"
	origin_up o "$base"
	snap_up s "$base" "$small" N 8
	not_ok "writes to the snapshot fail when its store is full" \
		put_letter /dev/mapper/s P 0 $((16 * MIB)) $MIB
	ok "a snapshot that filled its own store is Invalid, or as it was but for what was written" \
		whole_or_invalid
	put_letter /dev/mapper/o B $((15 * MIB)) 4096
	is "$(status s)" Invalid "a snapshot whose store is full ends with the next first write"
	ok "the origin goes on when its snapshot has filled the store" \
		put_letter /dev/mapper/o B 0 $MIB
	dmremove s
	dmremove o
}

base=$(mkloop 16M)
small=$(mkloop 4M)
large=$(mkloop 32M)
fill_by_origin N Invalid
fill_by_origin NO Overflow
fill_by_snapshot

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A block of the origin that cannot be read costs a snapshot only if it is about to be
# written: neither copies ahead or around, nor what another store needs, count.

. "$(dirname "$0")/common.sh"

need_target error
KIB=1024
MIB=1048576
BAD=$((4 * MIB))		# where 4 KiB cannot be read
plan 15
echo 0 >"$PARAMETERS/copy_around"
echo 0 >"$PARAMETERS/undo_buffer"

disk=$(mkloop 16M)

# up NAME STORE LETTER CHUNK [FEATURE...]: a snapshot of a good origin.
up()
{
	fill_letter "$disk" A
	dmcreate bad "$(linear_table "$disk")"
	origin_up o /dev/mapper/bad
	snap_up "$1" /dev/mapper/bad "${@:2}"
}

# One block of it cannot be read any more, nor written.
goes_bad()
{
	dmreload bad "$(partly_table "$disk" $((BAD / 512)) 8 error)"
}

down()
{
	local name

	for name in "$@" o bad; do
		dmremove "$name"
	done
}

# whole NAME WORDS: valid, and all that can be read is as it was.
whole()
{
	like "$(status "$1")" '^[0-9]+/' "$2: the snapshot is valid"
	is "$(other_bytes "/dev/mapper/$1" A 0 $BAD) $(other_bytes "/dev/mapper/$1" A \
		$((BAD + 4 * KIB)) $((16 * MIB - BAD - 4 * KIB)))" "0 0" \
		"$2: the snapshot has the old data"
}

fresh()
{
	store=$(mkloop 24M)
}

for mode in N P; do
	fresh
	up s "$store" "$mode" 8
	goes_bad
	put_letter /dev/mapper/o B 0 $((BAD - 16 * KIB)) 4096
	ok "$mode: chunks were copied ahead of the writer ($(key_of o copied_ahead) sectors)" \
		[ "$(key_of o copied_ahead)" -gt 2048 ]
	whole s "$mode, ahead"
	ok "$mode, ahead: all was written" all_letter /dev/mapper/o B 0 $((BAD - 16 * KIB))
	down s
done

fresh
up s "$store" P 8 copy_ahead 0 copy_around 256
goes_bad
put_letter /dev/mapper/o B $((BAD + 64 * KIB)) 4096
put_letter /dev/mapper/o B $((BAD + 128 * KIB)) 4096
whole s "around"
down s

# One read serves both stores; only the second needs the block.
fresh
up s "$store" N 8 copy_ahead 0
large=$(mkloop 24M)
snap_up t /dev/mapper/bad "$large" N 128 copy_ahead 0
goes_bad
put_letter /dev/mapper/o B $((BAD + 8 * KIB)) 4096
whole s "two stores, chunk 8"
is "$(status t)" Invalid "two stores, chunk 128: the snapshot is lost with the block"
ok "two stores: the write goes through" all_letter /dev/mapper/o B $((BAD + 8 * KIB)) 4096
dmremove t

put_letter /dev/mapper/o B $BAD 4096 2>/dev/null
is "$(status s)" Invalid "an unreadable block that is written costs the snapshot"
down s

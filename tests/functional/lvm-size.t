#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A store of the largest size that LVM gives a COW volume holds an overwrite of all of
# its origin: 16 bytes a chunk, and two chunks, are enough for all tables.

. "$(dirname "$0")/common.sh"

plan 58

# most_chunks CHUNKS CHUNK_SECTORS: the size, in chunks.
most_chunks()
{
	echo $(($1 + $1 / ($2 * 32) + 2))
}

# setup SECTOR CHUNK_SECTORS CHUNKS
setup()
{
	local bytes=$(($2 * 512))

	base=$(mkloop $(($3 * bytes)) --sector "$1")
	store=$(mkloop $(($(most_chunks "$3" "$2") * bytes)) --sector "$1")
	fill_letter "$base" A
	origin_up o "$base"
	snap_up s "$base" "$store" P "$2"
}

down()
{
	dmremove s
	dmremove o
}

# whole WORDS LETTERS CHUNK_SECTORS: now, and when the store is opened anew.
whole()
{
	is "$(not_letter /dev/mapper/s "$2")" 0 "$1: the snapshot is right"
	like "$(status s)" '^[0-9]+/' "$1: and has not overflowed"
	diag "$(status s | cut -d' ' -f1,2)"
	down
	snap_up s "$base" "$store" P "$3"
	is "$(not_letter /dev/mapper/s "$2")" 0 "$1: it is right when opened again"
	dmremove s
}

# in_order SECTOR CHUNK_SECTORS CHUNKS
in_order()
{
	local words="$1, $3 chunks of $2"

	setup "$@"
	ok "$words: all of the origin is overwritten" \
		put_letter /dev/mapper/o B 0 "$(($2 * $3 * 512))" 1048576
	whole "$words" A "$2"
}

# The order in which it is written is nobody's business.
at_random()
{
	local words="$1, $3 chunks of $2, at random" i
	local -a places=()

	setup "$@"
	for i in $(seq 0 $(($3 - 1)) | shuf); do
		places+=($((i * $2 * 512)) 4096)
	done
	ok "$words: all of the origin is overwritten" put /dev/mapper/o - "${places[@]}"
	whole "$words" A "$2"
}

# What was written through the snapshot takes no more room than a copy.
both_sides()
{
	local bytes=$(($2 * $3 * 512))
	local words="$1, $3 chunks of $2, both sides"

	setup "$@"
	put_letter /dev/mapper/s P 0 $((bytes / 2)) 1048576
	put_letter /dev/mapper/o B $((bytes / 4)) $((bytes / 2)) 1048576
	put_letter /dev/mapper/s P $((bytes / 2)) $((bytes / 4)) 65536
	ok "$words: all of the origin is overwritten" \
		put_letter /dev/mapper/o C 0 "$bytes" 1048576
	is "$(not_letter /dev/mapper/s P 0 $((bytes * 3 / 4)))" 0 \
		"$words: what was written to the snapshot is there"
	whole "$words" AP "$2"
}

for sector in 512 4096; do
	in_order "$sector" 8 1
	in_order "$sector" 8 1024
	at_random "$sector" 8 777
	in_order "$sector" 64 200
	in_order "$sector" 1024 1
	in_order "$sector" 1024 16
	both_sides "$sector" 8 1024
done

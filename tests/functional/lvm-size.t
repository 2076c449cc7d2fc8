#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A store of the largest size that LVM gives a COW volume holds an overwrite of all of
# its origin and of all of its snapshot, whatever they hold: 16 bytes a chunk, and two chunks,
# are enough for all tables.

. "$(dirname "$0")/common.sh"

need perl
plan 96

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
	ok "$1: the snapshot is right" all_letter /dev/mapper/s "$2"
	like "$(status s)" '^[0-9]+/' "$1: the snapshot has not overflowed"
	diag "$(status s | cut -d' ' -f1,2)"
	down
	snap_up s "$base" "$store" P "$3"
	ok "$1: the snapshot is right when opened again" all_letter /dev/mapper/s "$2"
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

# The same in an order that no store can expect.
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
	ok "$words: what was written to the snapshot is there" \
		all_letter /dev/mapper/s P 0 $((bytes * 3 / 4))
	whole "$words" AP "$2"
}

# some_zeroes CONTENT CHUNK_BYTES CHUNKS: letters, zeroes or a mixture, on the origin.
some_zeroes()
{
	[[ $1 != zeroes ]] || blkdiscard --zeroout "$base"
	[[ $1 = mixture ]] || return 0
	perl -e 'my ($dev, $bytes, $chunks) = @ARGV;
		open(my $o, "+<", $dev) or die "$dev: $!";
		for (my $i = 0; $i < $chunks; $i += 2) {
			sysseek($o, $i * $bytes, 0);
			syswrite($o, "\0" x $bytes) == $bytes or die "write: $!";
		}' "$base" "$2" "$3"
}

# write_snapshot SECTOR CHUNK_BYTES CHUNKS: each chunk of it, a third of them wholly, the
# others in part; what it holds then is in $TEST_TMP/s.
write_snapshot()
{
	local i
	local -a places=()

	for ((i = 0; i < $3; i++)); do
		((i % 3)) && places+=($((i * $2)) "$1") || places+=($((i * $2)) "$2")
	done
	put /dev/mapper/s "$TEST_TMP/s" "${places[@]}"
}

zero_snapshot()
{
	blkdiscard --zeroout /dev/mapper/s && head -c "$1" /dev/zero >"$TEST_TMP/s"
}

# both_whole SECTOR CHUNK_SECTORS CHUNKS CONTENT ORDER: origin and snapshot are overwritten.
both_whole()
{
	local bytes=$(($2 * 512)) step
	local words="$1, $3 chunks of $2, $4, $5"

	base=$(mkloop $(($3 * bytes)) --sector "$1")
	store=$(mkloop $(($(most_chunks "$3" "$2") * bytes)) --sector "$1")
	fill_letter "$base" A
	some_zeroes "$4" "$bytes" "$3"
	image "$base" "$TEST_TMP/s"
	origin_up o "$base"
	snap_up s "$base" "$store" P "$2"
	for step in ${5//-/ }; do
		case $step in
		origin) ok "$words: the origin is overwritten" \
			put_letter /dev/mapper/o B 0 $(($3 * bytes)) $bytes ;;
		snapshot) ok "$words: the snapshot is overwritten" \
			write_snapshot "$1" "$bytes" "$3" ;;
		zeroed) ok "$words: the snapshot is zeroed" zero_snapshot $(($3 * bytes)) ;;
		esac
	done
	ok "$words: the snapshot is right" same /dev/mapper/s "$TEST_TMP/s"
	down
	snap_up s "$base" "$store" P "$2"
	ok "$words: the snapshot is right when opened again" same /dev/mapper/s "$TEST_TMP/s"
	dmremove s
}

for content in letters zeroes mixture; do
	both_whole 512 8 120 "$content" origin-snapshot
	both_whole 512 8 120 "$content" snapshot-origin
done
both_whole 512 8 120 mixture origin-zeroed-snapshot
both_whole 4096 8 120 mixture origin-snapshot
both_whole 4096 16 60 mixture origin-zeroed-snapshot
for sector in 512 4096; do
	in_order "$sector" 8 1
	in_order "$sector" 8 1024
	at_random "$sector" 8 777
	in_order "$sector" 64 200
	in_order "$sector" 1024 1
	in_order "$sector" 1024 16
	both_sides "$sector" 8 1024
done

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Writes of any size and alignment, to the origin and to the snapshot, change
# that side alone: the other keeps every byte, with small and with large chunks.

. "$(dirname "$0")/common.sh"

CHUNKS=(8 32 1024)
SIZES=(512 1024 1536 4096 5120 16384 65536 66048 262144 1048576 2098176 4194304)
LENGTH=$((24 * 1048576 + 40 * 512))	# ends inside a chunk of either size

plan $((${#CHUNKS[@]} * 9))

# Each size at a place of its own: on a chunk's border, and 512 bytes off it.
write_all_sizes()
{
	local at=$3 size writes=()

	for size in "${SIZES[@]}"; do
		writes+=("$at" "$size")
		at=$((at + size + 512))
	done
	put "$1" "$2" "${writes[@]}"
}

write_ends()
{
	put "$1" "$2" 0 512 $((LENGTH - 512)) 512 \
		$((LENGTH - 40 * 512 - 4096)) $((4096 + 40 * 512))
}

# write_parts DEV FILE CHUNK: 512 bytes at a chunk's start, within the next, at the end of a third.
write_parts()
{
	local bytes=$(($3 * 512)) at=$((20 * 1048576))

	put "$1" "$2" $at 512 $((at + bytes + 512)) 512 $((at + 3 * bytes - 512)) 512
}

write_past_end()
{
	put "$1" - "$LENGTH" 512
}

# Through the page cache, in pieces that are no multiple of anything.
write_buffered()
{
	head -c 100001 /dev/urandom >"$TEST_TMP/piece"
	dd if="$TEST_TMP/piece" of="$1" bs=77777 seek=20000001 oflag=seek_bytes \
		conv=notrunc,nocreat,fsync status=none &&
		dd if="$TEST_TMP/piece" of="$2" bs=77777 seek=20000001 oflag=seek_bytes \
			conv=notrunc status=none
}

one_chunk_size()
{
	local chunk=$1 old="$TEST_TMP/old" new="$TEST_TMP/new" private="$TEST_TMP/private"

	fill "$base" "$old"
	cp "$old" "$new"
	cp "$old" "$private"
	origin_up o "$base"
	snap_up s "$base" "$store" N "$chunk"
	ok "chunk $chunk: a new snapshot is its origin" same /dev/mapper/s "$old"
	ok "chunk $chunk: every size is written to the origin" \
		write_all_sizes /dev/mapper/o "$new" 0
	ok "chunk $chunk: both ends of the origin are written" write_ends /dev/mapper/o "$new"
	ok "chunk $chunk: the origin is written through the page cache" \
		write_buffered /dev/mapper/o "$new"
	ok "chunk $chunk: the origin has the new data" same /dev/mapper/o "$new"
	ok "chunk $chunk: the snapshot has the old data" same /dev/mapper/s "$old"
	write_all_sizes /dev/mapper/s "$private" 2048512
	write_ends /dev/mapper/s "$private"
	write_parts /dev/mapper/s "$private" "$chunk"
	ok "chunk $chunk: what is written to the snapshot is there" same /dev/mapper/s "$private"
	ok "chunk $chunk: what is written to the snapshot is not on the origin" \
		same /dev/mapper/o "$new"
	not_ok "chunk $chunk: nothing can be written past the end" write_past_end /dev/mapper/s
	dmremove s
	dmremove o
}

base=$(mkloop "$LENGTH")
store=$(mkloop 40M)
for chunk in "${CHUNKS[@]}"; do
	one_chunk_size "$chunk"
done

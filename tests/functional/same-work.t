#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A first write costs the same with 1, 8 and 64 snapshots in the store, and that is
# little: one chunk of data and one block of a table, and a flush only where the device
# has a cache to flush, and no table is read that nothing stands in yet; counted, not
# measured by a clock.

. "$(dirname "$0")/common.sh"

[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"
MIB=1048576
WRITES=128

exact_copies
plan 43

# What the store's device was asked to write: FLAGS SECTOR COUNT, a line for each bio.
# Flushes have no sectors.
store_writes()
{
	awk '$1 == "bio_queue" && $2 ~ /W|F/ { print $2, $3, $4 }' "$TEST_TMP/trace"
}

writes_with_data()
{
	store_writes | awk '$3' | wc -l
}

store_sectors()
{
	store_writes | awk '{ n += $3 } END { print n + 0 }'
}

# up COUNT: an origin, a new store, so many snapshots in it.
up()
{
	local i

	fill_letter "$base" A
	dd if=/dev/zero of="$store" bs=4096 count=1 conv=fsync status=none
	origin_up o "$base"
	snap_up s "$base" "$store" P 8
	for ((i = 1; i < $1; i++)); do
		dmsetup message o 0 create "$((i * 7))" || return
	done
}

down()
{
	dmremove s
	dmremove o
}

remember()
{
	local status meta

	status=$(status s)
	read -r used meta _ <<<"$status"
	# Of data: tables are counted when the store grows into their segments.
	used=$((${used%%/*} - meta))
	for key in commits table_writes copied exceptions written_sectors; do
		[[ $status =~ " $key "([0-9]+) ]]
		was[$key]=${BASH_REMATCH[1]}
	done
}

# How much more since then: sets more[].
difference()
{
	local -A before=()
	local key used_before=$used

	for key in "${!was[@]}"; do
		before[$key]=${was[$key]}
	done
	remember
	for key in "${!was[@]}"; do
		more[$key]=$((was[$key] - before[$key]))
	done
	more[used]=$((used - used_before))
}

# small COUNT: single chunks, one after the other.
small()
{
	remember
	trace_start "$store" bio_queue
	put_letter /dev/mapper/o B 0 $((WRITES * 4096)) 4096
	trace_stop >"$TEST_TMP/trace"
	difference
	diag "$1: $(store_writes | wc -l) writes and flushes of $(store_sectors) sectors, ${more[commits]} commits"
	is "${more[copied]}" "$WRITES" "$1 snapshots: each write copies one chunk"
	is "${more[exceptions]}" "$WRITES" "$1 snapshots: and is remembered once"
	is "${more[used]}" $((WRITES * 8)) "$1 snapshots: it takes a chunk of the store"
	is "${more[commits]} ${more[table_writes]}" "$WRITES $WRITES" \
		"$1 snapshots: it is one commit of one block"
	is "$(writes_with_data)" $((WRITES * 2)) "$1 snapshots: it is two writes of the store"
	ok "$1 snapshots: no more than a flush each" \
		[ "$(store_writes | wc -l)" -le $((WRITES * 3)) ]
	is "$(store_sectors)" $((WRITES * (8 + block / 512))) "$1 snapshots: as large as they have to be"
}

# large COUNT: how many commits that takes is a matter of time.
large()
{
	remember
	put_letter /dev/mapper/o C $((2 * MIB)) $((2 * MIB)) $((MIB / 2))
	difference
	is "${more[copied]} ${more[used]} ${more[written_sectors]}" "512 4096 4096" \
		"$1 snapshots: large writes store each chunk once"
	remember
	put_letter /dev/mapper/o D $((2 * MIB)) $((2 * MIB)) $((MIB / 2))
	put_letter /dev/mapper/o D 0 $((WRITES * 4096)) 4096
	difference
	is "${more[copied]} ${more[used]} ${more[commits]}" "0 0 0" \
		"$1 snapshots: second writes store nothing"
}

# try WORDS: one chunk, on whatever the store is.
one_chunk()
{
	up 3
	put_letter /dev/mapper/o B 0 4096
	trace_start "$store" bio_queue
	put_letter /dev/mapper/o B 65536 4096
	trace_stop >"$TEST_TMP/trace"
	diag "$1: $(store_writes | tr '\n' ';')"
	ok "$1: at most two writes" [ "$(writes_with_data)" -le 2 ]
	is "$(store_writes | awk '$3 > 8')" "" "$1: none is larger than the chunk"
}

store_reads()
{
	awk '$1 == "bio_queue" && $2 ~ /R/' "$TEST_TMP/trace" | wc -l
}

# copy OFFSET LETTER: two MiB at OFFSET, with a trace of the store.
copy()
{
	trace_start "$store" bio_queue
	put_letter /dev/mapper/o "$2" $(($1 * MIB)) $((2 * MIB)) $((MIB / 2))
	trace_stop >"$TEST_TMP/trace"
}

# A table that nothing stands in yet is known to be empty, from the start and later on.
tables_unread()
{
	up 1
	copy 0 B
	is "$(store_reads)" 0 "a new store: no table is read"
	dmremove s
	snap_up s "$base" "$store" P 8
	copy 2 B
	ok "opened again: at most the last block of the tables is read" [ "$(store_reads)" -le 1 ]
	is "$(not_letter /dev/mapper/s A)" 0 "opened again: the snapshot is right"
	dmremove s
	snap_up s "$base" "$store" P 8
	is "$(not_letter /dev/mapper/s A)" 0 "and once more"
	down
}

# Blocks of tables that did not stay in memory are read again, and not taken for empty.
more_tables_than_kept()
{
	local base store

	base=$(mkloop 76M)
	store=$(mkram 84)
	up 1
	put_letter /dev/mapper/o B 0 $((76 * MIB)) $MIB
	ok "there are more blocks of tables than are kept" \
		[ $((76 * MIB / 4096 / ($(blockdev --getpbsz "$store") / 15))) -gt 512 ]
	is "$(not_letter /dev/mapper/s A)" 0 "more blocks of tables than are kept: the snapshot is right"
	down
}

declare -A was more
base=$(mkloop 4M)
store=$(mkloop 16M)
block=$(blockdev --getpbsz "$store")
((block <= 4096)) || block=4096
for count in 1 8 64; do
	up "$count"
	small "$count"
	large "$count"
	is "$(not_letter /dev/mapper/s A)" 0 "$count snapshots: they are right"
	down
done

tables_unread
more_tables_than_kept

store=$(mkram 16)
one_chunk "no volatile cache"
is "$(store_writes | grep F)" "" "no volatile cache: nothing is flushed"
down
store=$(mkram 16 cache_size=4)
one_chunk "a volatile cache"
isnt "$(store_writes | grep F)" "" "a volatile cache: it is flushed, or written through"
is "$(not_letter /dev/mapper/s A)" 0 "a volatile cache: the snapshot is right"
down

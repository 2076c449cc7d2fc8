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
CHUNK=4096
CHUNK_SECTORS=8
WRITES=128		# of small(), to a chunk each
SLOT_BYTES=15		# a little more than a slot takes in a table
KEPT_BLOCKS=512		# most blocks of tables that stay in memory

exact_copies
plan 43

# ---- what the store's device was asked, out of a trace ----

trace_store()
{
	trace_start "$store" bio_queue
	"$@"
	trace_stop >"$TEST_TMP/trace"
}

# FLAGS SECTOR COUNT, a line for each bio that writes or flushes. Flushes have no sectors. The
# note that both superblocks get once the store has been idle for a second is nobody's copy.
store_writes()
{
	awk -v second=$(($(blockdev --getpbsz "$store") / 512)) '$1 == "bio_queue" && $2 ~ /W|F/ &&
		!($4 && ($3 == 0 || $3 == second)) { print $2, $3, $4 }' "$TEST_TMP/trace"
}

store_flushes()
{
	store_writes | grep F
}

# How many writes and flushes; how many writes; how many sectors.
nr_requests()
{
	store_writes | wc -l
}

nr_writes()
{
	store_writes | awk '$3' | wc -l
}

nr_sectors()
{
	store_writes | awk '{ n += $3 } END { print n + 0 }'
}

nr_reads()
{
	awk '$1 == "bio_queue" && $2 ~ /R/' "$TEST_TMP/trace" | wc -l
}

# ---- what the status counts ----

# counter LINE KEY: of a status line. The key "data" is the room that data takes, without
# that of tables, which are counted when the store grows into their segments.
counter()
{
	if [[ $2 == data ]]; then
		[[ $1 =~ ^([0-9]+)/[0-9]+\ ([0-9]+) ]]
		echo $((BASH_REMATCH[1] - BASH_REMATCH[2]))
	else
		[[ $1 =~ " $2 "([0-9]+) ]]
		echo "${BASH_REMATCH[1]}"
	fi
}

# count COMMAND...: run it; more KEY... then says by how much the counters have grown.
count()
{
	status_before=$(status s)
	"$@"
	status_after=$(status s)
}

more()
{
	local key
	local -a grown=()

	for key; do
		grown+=($(($(counter "$status_after" "$key") - $(counter "$status_before" "$key"))))
	done
	echo "${grown[*]}"
}

# ---- one first write after the other, with many snapshots ----

# up COUNT: an origin, a new store, COUNT snapshots in it.
up()
{
	local i

	fill_letter "$base" A
	dd if=/dev/zero of="$store" bs=4096 count=1 conv=fsync status=none
	origin_up o "$base"
	snap_up s "$base" "$store" P $CHUNK_SECTORS
	for ((i = 1; i < $1; i++)); do
		dmsetup message o 0 create "$((i * 7))" || return
	done
}

down()
{
	dmremove s
	dmremove o
}

write_small()
{
	put_letter /dev/mapper/o "$1" 0 $((WRITES * CHUNK)) $CHUNK
}

write_large()
{
	put_letter /dev/mapper/o "$1" $((2 * MIB)) $((2 * MIB)) $((MIB / 2))
}

write_again()
{
	write_large D && write_small D
}

# small COUNT: single chunks, one after the other.
small()
{
	local words="$1 snapshots"

	count trace_store write_small B
	diag "$words: $(nr_requests) writes and flushes of $(nr_sectors) sectors, $(more commits) commits"
	is "$(more copied)" "$WRITES" "$words: each write copies one chunk"
	is "$(more exceptions)" "$WRITES" "$words: each copy is one exception"
	is "$(more data)" $((WRITES * CHUNK_SECTORS)) "$words: each copy takes a chunk of the store"
	is "$(more commits table_writes)" "$WRITES $WRITES" "$words: each copy is one commit of one block"
	is "$(nr_writes)" $((WRITES * 2)) "$words: each copy is two writes of the store"
	ok "$words: each copy is no more than one flush" [ "$(nr_requests)" -le $((WRITES * 3)) ]
	is "$(nr_sectors)" $((WRITES * (CHUNK_SECTORS + block / 512))) \
		"$words: each copy writes a chunk and a block"
}

# large COUNT: how many commits that takes is a matter of time.
large()
{
	local words="$1 snapshots" sectors=$((2 * MIB / 512))

	count write_large C
	is "$(more copied data written_sectors)" "$((sectors / CHUNK_SECTORS)) $sectors $sectors" \
		"$words: large writes store each chunk once"
	count write_again
	is "$(more copied data commits)" "0 0 0" "$words: second writes store nothing"
}

many_snapshots()
{
	up "$1"
	small "$1"
	large "$1"
	ok "$1 snapshots: the first one has the old data" all_letter /dev/mapper/s A
	down
}

# ---- tables ----

# copy OFFSET LETTER: two MiB at OFFSET.
copy()
{
	put_letter /dev/mapper/o "$2" $(($1 * MIB)) $((2 * MIB)) $((MIB / 2))
}

# A table that nothing stands in yet is known to be empty, from the start and later on.
tables_unread()
{
	up 1
	trace_store copy 0 B
	is "$(nr_reads)" 0 "a new store: no table is read"
	dmremove s
	snap_up s "$base" "$store" P 8
	trace_store copy 2 B
	ok "opened again: at most the last block of the tables is read" [ "$(nr_reads)" -le 1 ]
	ok "opened again: the snapshot is right" all_letter /dev/mapper/s A
	dmremove s
	snap_up s "$base" "$store" P 8
	ok "opened once more: the snapshot is right" all_letter /dev/mapper/s A
	down
}

# Blocks of tables that did not stay in memory are read again, and not taken for empty.
more_tables_than_kept()
{
	local base store bytes=$((76 * MIB)) slots

	base=$(mkloop $bytes)
	store=$(mkram 84)
	up 1
	put_letter /dev/mapper/o B 0 $bytes $MIB
	slots=$(($(blockdev --getpbsz "$store") / SLOT_BYTES))
	ok "there are more blocks of tables than are kept" [ $((bytes / CHUNK / slots)) -gt $KEPT_BLOCKS ]
	ok "more blocks of tables than are kept: the snapshot is right" all_letter /dev/mapper/s A
	down
}

# ---- caches of the store's device ----

# one_chunk WORDS: a single copy, on whatever the store is.
one_chunk()
{
	up 3
	put_letter /dev/mapper/o B 0 $CHUNK
	trace_store put_letter /dev/mapper/o B 65536 $CHUNK
	diag "$1: $(store_writes | tr '\n' ';')"
	ok "$1: a copy is at most two writes" [ "$(nr_writes)" -le 2 ]
	is "$(store_writes | awk -v chunk=$CHUNK_SECTORS '$3 > chunk')" "" \
		"$1: no write is larger than the chunk"
}

no_cache()
{
	local store

	store=$(mkram 16)
	one_chunk "no volatile cache"
	is "$(store_flushes)" "" "no volatile cache: nothing is flushed"
	down
}

volatile_cache()
{
	local store

	store=$(mkram 16 cache_size=4)
	one_chunk "a volatile cache"
	isnt "$(store_flushes)" "" "a volatile cache: it is flushed, or written through"
	ok "a volatile cache: the snapshot is right" all_letter /dev/mapper/s A
	down
}

base=$(mkloop 4M)
store=$(mkloop 16M)
block=$(blockdev --getpbsz "$store")
((block <= 4096)) || block=4096
for nr in 1 8 64; do
	many_snapshots "$nr"
done
tables_unread
more_tables_than_kept
no_cache
volatile_cache

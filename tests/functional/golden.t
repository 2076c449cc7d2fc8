#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Stores made by the first version of the format are opened by every later one, show what
# they showed then, and are written to without harm.

. "$(dirname "$0")/common.sh"

need tar gzip

plan 30

# wrong: ids of the snapshots whose content is not what it was.
wrong()
{
	local id sum

	while read -r id sum; do
		[[ $id != origin ]] || continue
		dmsetup create look --table "$(snap_table "$base" "$store" P 8 id "$id")" || return
		[[ $(md5sum </dev/mapper/look) = "$sum "* ]] || echo "$id"
		dmsetup remove --retry look
	done <"$dir/sums"
}

for image in "$TESTS_DIR"/golden/golden-*.tar.gz; do
	words=$(basename "$image" .tar.gz)
	sector=${words#golden-}
	dir=$TEST_TMP/$words
	mkdir "$dir"
	ok "$words: the archive is unpacked" tar -C "$dir" -xzf "$image"
	base=$(mkloop 2M --sector "$sector")
	store=$(mkloop 2M --sector "$sector")
	cp "$dir/origin" "$(loop_file "$base")"
	cp "$dir/store" "$(loop_file "$store")"
	ok "$words: the store is opened" origin_up o "$base" store "$store"
	is "$(key_of o snapshots)" 10 "$words: all snapshots are there"
	is "origin $(md5sum </dev/mapper/o)" "$(grep origin "$dir/sums")  -" "$words: the origin is right"
	is "$(wrong)" "" "$words: every snapshot is right"
	for id in 4 40000; do
		not_ok "$words: snapshot $id is not there, it was deleted" \
			snap_up s "$base" "$store" P 8 id "$id"
	done
	snap_up s "$base" "$store" P
	is "$(key_of s on_full) $(key_of s wait_timeout) $(key_of s low_water)" "wait 7 90" \
		"$words: the store's options are there"
	is "$(key_of s damaged)" 0 "$words: nothing is damaged"
	ok "$words: a new snapshot is made" dm message o 0 create 40000
	ok "$words: the origin is written" put_letter /dev/mapper/o z 0 786432 65536
	dmremove s
	is "$(wrong)" "" "$words: every snapshot is right after new writes"
	remove_and_reload o
	origin_up o "$base" store "$store"
	is "$(wrong)" "" "$words: every snapshot is right when opened once more"
	is "$(key_of o snapshots)" 11 "$words: the new snapshot is counted"
	snap_up s "$base" "$store" P 8 id 40000
	is "$(md5sum </dev/mapper/s | cut -d' ' -f1)" "$(sed -n 's/^origin //p' "$dir/sums")" \
		"$words: the new snapshot has what the origin had"
	dmremove s
	dmremove o
done

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Damaged stores, opened by the kernel: flipped bits, and sectors that cannot be read, give
# errors or right data, never wrong data; an unreadable sector costs no store; no forged count,
# pointer or record brings the kernel to a fall; and what it refuses `cowsnap check` complains of.
# COWSNAP_MUTATIONS says how many, COWSNAP_SEED which.

. "$(dirname "$0")/common.sh"

COUNT=${COWSNAP_MUTATIONS:-20}
SEED=${COWSNAP_SEED:-$RANDOM}
LOAD=$(dirname "$TOOLS")/fuzz/cowload
expect_log 'blk_update_request|Buffer I/O error|critical .* error'

need_target dust
[[ -x $LOAD ]] || skip_all "no $LOAD"
plan 56
need_command

ORIGIN=$((288 * 4096))	# two copies of it are more than the first segment holds

change()
{
	put /dev/mapper/o "$TEST_TMP/now" 0 "$ORIGIN"
}

# make_store BLOCK [FEATURE...]: all chunks are copied for snapshot 1, then for the others; from the ninth on these have their
# records in a chunk of their own.
make_store()
{
	local id

	base=$(mkloop "$ORIGIN" --sector "$1")
	store=$(mkloop 4M --sector "$1")
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/image1"
	origin_up o "$base"
	snap_up s1 "$base" "$store" P 8 id 1 create "${@:2}"
	# A log gets its zones.
	(($# == 1)) || sleep 1
	change
	put_letter /dev/mapper/s1 S 8192 4096
	image /dev/mapper/s1 "$TEST_TMP/image1"
	image /dev/mapper/o "$TEST_TMP/image2"
	snap_up s2 "$base" "$store" P 8 id 2 create
	for id in 3 4 5 6 7 8 9 10 11 12; do
		dmsetup message o 0 create "$id"
	done
	change
	if (($# > 1)); then
		# Its records are to be known durable: one that is then gone is missed.
		sleep 3
		cp "$(loop_file "$store")" "$TEST_TMP/whole"
	fi
	dmremove s1
	dmremove s2
	dmremove o
	(($# > 1)) || cp "$(loop_file "$store")" "$TEST_TMP/whole"
	records=$("$tool" dump "$TEST_TMP/whole" | awk '$1 == "records" { print $5 }')
}

# damaged HOW BLOCK WORDS [OPTION...]: COUNT of them. What was written to a snapshot has
# no checksum, so chunk 2 is not compared.
damaged()
{
	local how=$1 block=$2 words=$3 opened wrong

	shift 3
	read -r opened refused errors wrong < <("$LOAD" --how "$how" --block "$block" \
		--seed "$SEED" --count "$COUNT" --private 2 --check "$tool" "$@" "$base" "$TEST_TMP/whole" \
		"$TEST_TMP/image1" "$TEST_TMP/image2" 2>"$TEST_TMP/load.err")
	diag "$(cat "$TEST_TMP/load.err")"
	diag "$words: seed $SEED, $opened opened, $refused refused, $errors chunks with errors"
	is "$((opened + refused))" "$COUNT" "$words: all stores were tried"
	is "$wrong" 0 "$words: no chunk is wrong"
}

# unreadable HOW BLOCK FROM WITHIN WORDS: one block after the other, of those within so many bytes.
unreadable()
{
	local words="each block of $2 of $5 in turn unreadable" COUNT=$(($4 / $2)) SEED=0

	damaged "$1" "$2" "$words" --from "$3" --within "$4"
	is "$refused" 0 "$words: all stores are opened"
}

for block in 512 4096; do
	make_store "$block"
	unreadable eio "$block" 0 $((block == 512 ? 24 * 512 : 8 * 4096)) "the first table and chunks"
	# 6 blocks of 34 slots, or 2 of 254, are in front of it.
	unreadable eio "$block" $(((block == 512 ? 205 : 510) * 4096)) 4096 "the second table"
	isnt "$errors" 0 "each block of $block of the second table in turn unreadable: chunks were in it"
	# Those that are lost are written anew, which makes a disk use another sector.
	unreadable weak "$block" $((records * 4096)) 4096 "the records"
	nr=$((4096 / block)) words="each block of $block of the records in turn lost and not writable"
	COUNT=$nr SEED=0 damaged eio "$block" "$words" --from $((records * 4096)) --within 4096
	is "$refused" "$nr" "$words: no store is opened"
	like "$(kernel_log)" 'lost records cannot be written .*: copy it to another device' \
		"$words: the log says what to do"
	damaged bits "$block" "bits flipped in tables and superblocks of $block" \
		--within $((block == 512 ? 8192 : 16384))
	damaged bits "$block" "bits flipped all over, blocks of $block" --within 2300000
	damaged disk "$block" "what disks do, blocks of $block"
	# Of all that is done here only this makes the kernel refuse some.
	COUNT=$((COUNT * 5)) damaged forge "$block" "forgeries, blocks of $block"

	make_store "$block" log on
	damaged bits "$block" "a log: bits flipped all over, blocks of $block" --within 4194304
	damaged disk "$block" "a log: what disks do, blocks of $block"
	COUNT=$((COUNT * 5)) damaged forge "$block" "a log: forgeries, blocks of $block"
done

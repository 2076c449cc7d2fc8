#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Damaged stores, opened by the kernel: flipped bits, and sectors that cannot be read, give
# errors or right data, never wrong data; an unreadable sector costs no store; and no forged
# count, pointer or record brings the kernel to a fall.
# COWSNAP_MUTATIONS says how many, COWSNAP_SEED which.

. "$(dirname "$0")/common.sh"

COUNT=${COWSNAP_MUTATIONS:-20}
SEED=${COWSNAP_SEED:-$RANDOM}
LOAD=$(dirname "$TOOLS")/fuzz/cowload
expect_log 'blk_update_request|Buffer I/O error|critical .* error'

[[ -x $LOAD ]] || skip_all "no $LOAD"
plan 22

make_store()
{
	base=$(mkloop 512K --sector "$1")
	store=$(mkloop 1M --sector "$1")
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/image1"
	origin_up o "$base"
	snap_up s1 "$base" "$store" P 8 id 1 create
	put /dev/mapper/o "$TEST_TMP/now" 0 131072 262144 65536
	put_letter /dev/mapper/s1 S 8192 4096
	image /dev/mapper/s1 "$TEST_TMP/image1"
	image /dev/mapper/o "$TEST_TMP/image2"
	snap_up s2 "$base" "$store" P 8 id 2 create
	put /dev/mapper/o "$TEST_TMP/now" 65536 131072
	dmremove s1
	dmremove s2
	dmremove o
	cp "$(loop_file "$store")" "$TEST_TMP/whole"
}

# damaged HOW BLOCK WORDS [OPTION...]: COUNT of them. What was written to a snapshot has
# no checksum, so chunk 2 is not compared.
damaged()
{
	local how=$1 block=$2 words=$3 opened errors wrong

	shift 3
	read -r opened refused errors wrong < <("$LOAD" --how "$how" --block "$block" \
		--seed "$SEED" --count "$COUNT" --private 2 "$@" "$base" "$TEST_TMP/whole" \
		"$TEST_TMP/image1" "$TEST_TMP/image2" 2>"$TEST_TMP/load.err")
	diag "$(cat "$TEST_TMP/load.err")"
	diag "$words: seed $SEED, $opened opened, $refused refused, $errors chunks with errors"
	is "$((opened + refused))" "$COUNT" "$words: all stores were tried"
	is "$wrong" 0 "$words: no chunk is wrong"
}

# unreadable BLOCK: one block of the tables after the other, or of the first chunks.
unreadable()
{
	local within=$(($1 == 512 ? 24 * 512 : 8 * 4096)) COUNT SEED=0

	COUNT=$((within / $1))
	damaged eio "$1" "each block of $1 in turn unreadable" --within "$within"
	# An `error` target cannot be written either.
	ok "each block of $1 in turn unreadable: the store is opened, but for superblocks perhaps" \
		[ "$refused" -le 2 ]
}

for block in 512 4096; do
	make_store "$block"
	unreadable "$block"
	damaged bits "$block" "bits flipped in tables and superblocks of $block" \
		--within $((block == 512 ? 8192 : 16384))
	damaged bits "$block" "bits flipped all over, blocks of $block" --within 400000
	damaged disk "$block" "what disks do, blocks of $block"
	damaged forge "$block" "forgeries, blocks of $block"
done

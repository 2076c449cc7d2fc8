#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What diff and send read is counted, not timed: of a large origin with few changes, diff reads
# tables alone, and send little more than the chunks that have changed. Where 1 % has changed, since
# a snapshot or a tracker, both read 1.1 % at most.

. "$(dirname "$0")/common.sh"

need_command

plan 15
need_target zero
GIB=$((1 << 30))
ORIGIN=$((64 * GIB))

# bytes_read COMMAND...: from origin and store while it runs. Its output is thrown away.
bytes_read()
{
	local before after

	before=$(read_so_far)
	"$@" >/dev/null || return
	after=$(read_so_far)
	echo $(((after - before) * 512))
}

# In sectors; nothing of the two is in the page cache afterwards.
read_so_far()
{
	blockdev --flushbufs "$base"
	blockdev --flushbufs "$store"
	awk '{ n += $3 } END { printf "%.0f\n", n }' "$(sysfs "$base")/stat" "$(sysfs "$store")/stat"
}

# scattered BYTES COUNT SEED: offsets and lengths for put, all over the origin.
scattered()
{
	local n step=$((ORIGIN / 4096 / $2))

	RANDOM=$3
	for ((n = 0; n < $2; n++)); do
		echo $(((step * n + RANDOM % (step - $1 / 4096)) * 4096)) "$1"
	done
}

# changed EXTENTS: how many bytes they are.
changed()
{
	awk '{ n += $2 } END { printf "%.0f\n", n }' "$1"
}

# costs BYTES COUNT WORDS: changes of so many bytes each, before and after a snapshot that is sent.
costs()
{
	local first second bytes read

	first=$("$tool" snapshot data)
	# shellcheck disable=SC2046  # words
	put /dev/mapper/data - $(scattered "$1" "$2" 1)
	second=$("$tool" snapshot data)
	# Half of what is sent is in the store, the other half still in the origin.
	# shellcheck disable=SC2046
	put /dev/mapper/data - $(scattered "$1" "$2" 1 | awk 'NR % 2')
	"$tool" diff --extents "$first" "$second" >"$TEST_TMP/extents"
	bytes=$(changed "$TEST_TMP/extents")
	is "$bytes" $(($1 * $2)) "$3: diff says exactly what has changed"
	read=$(bytes_read "$tool" diff "$first" "$second")
	diag "$3: of $bytes bytes changed in $ORIGIN diff has read $read"
	ok "$3: diff reads less than a twentieth of what has changed" test $((read * 20)) -lt "$bytes"
	read=$(bytes_read "$tool" send --from "$first" "$second")
	diag "$3: send has read $read"
	ok "$3: send reads at most a tenth more than what has changed" test $((read * 10)) -le $((bytes * 11))
	"$tool" delete "$first" "$second"
}

exact_copies
base=$(mkloop "$ORIGIN")
store=$(mkloop $((GIB / 4)))
"$tool" create --name data --chunk 4K "$base" "$store" >/dev/null
at_exit _dmremove data
costs 4096 4000 "single chunks"
costs 65536 400 "stretches of 64 KiB"
costs 1048576 24 "stretches of 1 MiB"
dmremove data

# ---- zeroes, which keep nothing: only how much is read is of interest ----

# With COWSNAP_SCALE=400 it is 1 TiB.
ORIGIN=$(($(scaled 256) * GIB))
PIECE=$((4 << 20))

# permille BYTES: of the origin, in thousandths that have been begun.
permille()
{
	echo $((($1 * 1000 + ORIGIN - 1) / ORIGIN))
}

# costs_little FROM TO WORDS: diff, and send.
costs_little()
{
	local read

	"$tool" diff --extents "o@$1" "o@$2" >"$TEST_TMP/extents"
	is "$(permille "$(changed "$TEST_TMP/extents")")" 10 "$3: 1 % has changed"
	read=$(bytes_read "$tool" diff "o@$1" "o@$2")
	diag "$3: diff has read $read bytes"
	ok "$3: diff reads less than 0.1 %" test "$(permille "$read")" -le 1
	read=$(bytes_read "$tool" send --from "o@$1" "o@$2")
	diag "$3: send has read $read bytes"
	ok "$3: send reads 1.1 % at most" test "$(permille "$read")" -le 11
}

dmcreate zeroes "0 $((ORIGIN / 512)) zero"
base=/dev/mapper/zeroes
store=$(mkloop $((16 * GIB)))
snap_up first "$base" "$store" P 8
origin_up o "$base" store "$store"
dmremove first
# shellcheck disable=SC2046  # words
put /dev/mapper/o - $(scattered $PIECE $((ORIGIN / 100 / PIECE)) 1)
dm message o 0 create 1
costs_little 0 1 "a snapshot"
dm message o 0 track 0
dm message o 0 delete 1
dm message o 0 create 2
costs_little 0 2 "a tracker"
dmremove o

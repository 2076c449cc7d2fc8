#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A block of a tracker that is damaged, torn or cannot be read makes the tracker lost, which all
# say: nothing is taken from such a block, and nothing else suffers.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/tracker.sh"
. "$(dirname "$0")/store.sh"

KIND_TRACK=6
BLOCK=512

# copy_half FROM TO HALF: one half (0, 1) of the block of tracker 1, from one image to another.
copy_half()
{
	dd if="$1" of="$2" bs=$((BLOCK / 2)) count=1 conv=notrunc status=none \
		skip=$((block * 2 + $3)) seek=$((block * 2 + $3))
}

flipped()
{
	flip_bits "$TEST_TMP/bad" $(((block * BLOCK + 100) * 8 + 4))
}

# Only the first half of the last write has come: the chunk that has changed is in the second.
torn()
{
	copy_half "$TEST_TMP/before" "$TEST_TMP/bad" 1
}

empty()
{
	dd if=/dev/zero of="$TEST_TMP/bad" bs=$BLOCK count=1 seek="$block" conv=notrunc status=none
}

unreadable()
{
	dmreload st "$(partly_table "$good" "$block" 1 error)"
}

# is_lost HOW WORDS: what the store and its origin say.
is_lost()
{
	cp "$TEST_TMP/good" "$TEST_TMP/bad"
	"$1"
	dd if="$TEST_TMP/bad" of="$good" bs=1M oflag=direct conv=notrunc status=none

	like "$("$tool" diff "$store" 1 2>&1 >"$TEST_TMP/out")" "tracker 1 is damaged.* full copy" \
		"$1: diff of the store refuses"
	is "$(<"$TEST_TMP/out")" "" "$1: and lists nothing"
	like "$("$tool" check "$store" 2>&1)" "tracker 1: a block of it is missing or damaged" \
		"$1: check says which"
	is "$(missed_and_more two "$store" 2)" "0 0" "$1: the other tracker is whole"

	origin_up o "$base" store "$store"
	is "$(state_of 1) $(state_of 2)" "invalid tracker" "$1: the tracker is lost, the other is not"
	is "$(key_of o trackers)" 1 "$1: the status counts one"
	like "$(kernel_log)" "block 0 of tracker 1 $2" "$1: the log says why"
	like "$("$tool" diff o@1 2>&1)" "snapshot 1 is invalid.* full copy" "$1: diff of the origin refuses"
	not_ok "$1: so does send" bash -c "$tool send --from o@1 o@3 >/dev/null"
	write_at 4000 4096
	is "$(missed two o@2)" 0 "$1: the other goes on"
	dmremove o
	dmreload st "$(linear_table "$good")"
	ok "$1: the store is clean" "$tool" check -q "$store"
	dd if="$TEST_TMP/origin" of="$base" bs=1M oflag=direct conv=notrunc status=none
}

tracked_origin 16 16
dmremove o
good=$store
dmcreate st "$(linear_table "$good")"
store=/dev/mapper/st
origin_up o "$base" store "$store"
snapshot_as 1 one
write_at 64 4096
dm message o 0 track 1
dmremove o
place=$(store_tool find-place "$good" $KIND_TRACK)
block=$((place * 4096 / BLOCK))
image "$good" "$TEST_TMP/before"
origin_up o "$base" store "$store"
snapshot_as 2 two
dm message o 0 track 2
write_at 7600 4096
dm message o 0 create 3
dmremove o
image "$good" "$TEST_TMP/good"
image "$base" "$TEST_TMP/origin"
is "$(missed_and_more one "$store" 1)" "0 0" "the tracker is right before it is damaged"

is_lost flipped "is damaged"
is_lost torn "is damaged"
is_lost empty "is damaged"
is_lost unreadable "cannot be read"
done_testing

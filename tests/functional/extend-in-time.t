#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Tables grow beside users of a disk that turns, with pauses, but not so slowly that copies have to
# wait for them: once room runs short the rest is written at once.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/metadata.sh"

TRACING=$(tracefs)
[[ $TRACING ]] || skip_all "no tracefs"
need_target delay
exact_copies
plan 5

# So many table blocks does one of the superblocks name.
blocks()
{
	local block=8 first second

	first=$(super 0 112 4)
	second=$(super 1 112 4)
	echo $((first > second ? first : second))
}

# write_at MIB: 14 MiB, one request after the other.
write_at()
{
	dd if=/dev/urandom of=/dev/mapper/o bs=512k count=28 seek=$(($1 * 2)) oflag=direct conv=notrunc \
		status=none
}

writers()
{
	local at pids=()

	for at in {0..98..14}; do
		write_at "$at" &
		pids+=("$!")
	done
	all_end_well "${pids[@]}"
}

base=$(mkloop 128M --sector 4096)
store=$(mkloop 300M --sector 4096)
fill "$base" "$TEST_TMP/old"
echo 1 >"$(sysfs "$store")/queue/rotational"
# Each write of a copy, of a commit and of a piece of the tables takes a while.
dmcreate cow "$(delay_table "$store" 0 100)"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow P 8
: >"$TRACING/trace"
echo 1 >"$TRACING/events/cowsnap/cowsnap_park/enable"
before=$(blocks)
ok "112 MiB are written, by eight at a time" writers
echo 0 >"$TRACING/events/cowsnap/cowsnap_park/enable"
like "$(grep -c 'cowsnap_park: ' "$TRACING/trace")" '^[1-9]' "they wait for copies"
is "$(grep -c 'cowsnap_park: .* waits for store' "$TRACING/trace")" 0 "none waits for tables"
ok "which have grown, from $before blocks to $(blocks)" [ "$(blocks)" -gt "$before" ]
ok "the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
dmremove s
dmremove o
dmremove cow

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A merge closes 1 MiB at a time while users write a rotational disk. It closes 4 MiB if its own
# writes are the only ones, and on a device that does not rotate.

. "$(dirname "$0")/common.sh"

TRACING=$(tracefs)
[[ $TRACING ]] || skip_all "no tracefs"
MIB=1048576
exact_copies
plan 11

# writes FROM COUNT: 4 KiB each, from this block of the origin on.
writes()
{
	dd if=/dev/zero of=/dev/mapper/o bs=4096 seek="$1" count="$2" oflag=direct status=none
}

# writer: writes to the end of the origin, which is merged last. The first is marked in the trace.
writer()
{
	local from=$((96 * 256 - 256))

	writes $from 1
	mark
	until [[ -e $TEST_TMP/enough ]]; do
		writes $from 256
	done
}

mark()
{
	echo written >"$TRACING/trace_marker"
}

# steps: of the merge in chunks, from the mark on, but for the first, which may have begun before it,
# and the last, which goes to the end of the origin.
steps()
{
	awk '/written/ && !/cowsnap/ { marked = 1 }
	     marked && /cowsnap_merge_step/ {
		for (i = 1; i < NF; i++) {
			if ($i == "chunk") to = $(i + 1)
			if ($i == "of") end = $(i + 1)
		}
		if (seen++ && to < end)
			print to - at
		at = to
	     }' "$TRACING/trace"
}

# has_steps CHUNKS: at least one. A machine that is busy with others may hold a writer up for so long
# that not all of them are small.
has_steps()
{
	steps | grep -qx "$1"
}

# merge 0|1 writer|none TITLE small|large: of a device that rotates or not, beside a writer or none,
# and which steps it takes.
merge()
{
	local base store at

	base=$(mkloop 96M)
	store=$(mkloop 128M)
	echo "$1" >"$(sysfs "$base")/queue/rotational"
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	origin_up o "$base"
	snap_up s "$base" "$store" P 8 id "$id" create
	for at in 0 16 32 48; do
		put /dev/mapper/o "$TEST_TMP/now" $((at * MIB)) $((16 * MIB))
	done
	dmremove s
	# What was written until now counts as written lately for half a second.
	sleep 1
	rm -f "$TEST_TMP/enough"
	: >"$TRACING/trace"
	echo 1 >"$TRACING/events/cowsnap/cowsnap_merge_step/enable"
	# Its first write waits for the merge to begin: before that the store is away.
	dm suspend o
	if [[ $2 = writer ]]; then
		writer &
	else
		mark
	fi
	dmload o "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id $id"
	dm resume o
	ok "$3: the merge ends" wait_for 60 log_says_merged "$id"
	: >"$TEST_TMP/enough"
	wait
	echo 0 >"$TRACING/events/cowsnap/cowsnap_merge_step/enable"
	if [[ $4 = small ]]; then
		ok "$3: small steps" has_steps 256
	else
		not_ok "$3: no small steps" has_steps 256
		ok "$3: large steps" has_steps 1024
	fi
	ok "$3: the origin is rolled back" \
		cmp -n $((64 * MIB)) /dev/mapper/o "$TEST_TMP/old"
	dmremove o
	id=$((id + 1))
}

id=1
merge 1 writer "a disk that is written" small
merge 1 none "a disk that is not" large
merge 0 writer "no disk" large

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# While users have the origin in use a merge closes 1 MiB at a time on a rotational disk, 256 KiB on
# others. It closes 4 MiB if its own writes are the only ones.

. "$(dirname "$0")/common.sh"

TRACING=$(tracefs)
[[ $TRACING ]] || skip_all "no tracefs"
MIB=1048576
exact_copies
plan 17

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

# reader: reads the end of the origin.
reader()
{
	mark
	until [[ -e $TEST_TMP/enough ]]; do
		dd if=/dev/mapper/o of=/dev/null bs=4096 skip=$((96 * 256 - 256)) count=256 \
			iflag=direct status=none
	done
}

# merge 0|1 writer|reader|none TITLE STEP: of a device that rotates or not, beside a user or none,
# and how many chunks a step has.
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
	if [[ $2 = none ]]; then
		mark
	else
		"$2" &
	fi
	dmload o "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id $id"
	dm resume o
	ok "$3: the merge ends" wait_for 60 log_says_merged "$id"
	: >"$TEST_TMP/enough"
	wait
	echo 0 >"$TRACING/events/cowsnap/cowsnap_merge_step/enable"
	ok "$3: steps of $4 chunks" has_steps "$4"
	(($4 < 1024)) || not_ok "$3: no small steps" has_steps 256
	ok "$3: the origin is rolled back" \
		cmp -n $((64 * MIB)) /dev/mapper/o "$TEST_TMP/old"
	dmremove o
	id=$((id + 1))
}

id=1
merge 1 writer "a disk that is written" 256
merge 1 reader "a disk that is read" 256
merge 1 none "a disk that is not" 1024
merge 0 writer "no disk, written" 64
merge 0 none "no disk, not written" 1024

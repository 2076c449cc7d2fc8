#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# While users write a rotational disk a merge closes 1 MiB at a time, and else 4 MiB: where its own
# writes are the only ones, and where nothing rotates.

. "$(dirname "$0")/common.sh"

TRACING=$(tracefs)
[[ $TRACING ]] || skip_all "no tracefs"
MIB=1048576
exact_copies
plan 9

# writes: to the end of the origin, which is merged last. The first is marked in the trace.
writes()
{
	until [[ -e $TEST_TMP/enough ]]; do
		dd if=/dev/zero of=/dev/mapper/o bs=4096 count=1 seek=$((96 * 256 - 1)) oflag=direct \
			status=none
		[[ -e $TEST_TMP/written ]] || echo written >"$TRACING/trace_marker"
		: >"$TEST_TMP/written"
	done
}

# is_over ID: by the log, since a status line would look at the map.
is_over()
{
	kernel_log | grep -q "snapshot $1 is merged into"
}

# longest: step of the merge in chunks, from the mark on, but for the first, which may have begun
# before it, and the last, which goes to the end of the origin.
longest()
{
	awk '/tracing_mark_write|written/ && !/cowsnap/ { marked = 1 }
	     marked && /cowsnap_merge_step/ {
		for (i = 1; i < NF; i++) {
			if ($i == "chunk") to = $(i + 1)
			if ($i == "of") end = $(i + 1)
		}
		if (seen++ && to < end && to - at > most)
			most = to - at
		at = to
	     }
	     END { print most + 0 }' "$TRACING/trace"
}

# merge ROTATES WRITER TITLE CHUNKS: how far its longest step goes.
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
	# Beside a writer it rests between its steps, so that most of them come after the mark. Else one
	# follows the other: its own writes are always of late.
	[[ $2 = none ]] || dm message o 0 set throttle 5
	dmremove s
	sleep 1
	rm -f "$TEST_TMP/enough" "$TEST_TMP/written"
	: >"$TRACING/trace"
	echo 1 >"$TRACING/events/cowsnap/cowsnap_merge_step/enable"
	dmreload o "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id $id"
	if [[ $2 = writer ]]; then
		writes &
	else
		echo written >"$TRACING/trace_marker"
	fi
	ok "$3: the merge ends" wait_for 60 is_over "$id"
	: >"$TEST_TMP/enough"
	wait
	echo 0 >"$TRACING/events/cowsnap/cowsnap_merge_step/enable"
	is "$(longest)" "$4" "$3: the longest step, in chunks"
	ok "$3: the origin is rolled back" \
		cmp -n $((64 * MIB)) /dev/mapper/o "$TEST_TMP/old"
	dmremove o
	id=$((id + 1))
}

id=1
merge 1 writer "a disk that is written" 256
merge 1 none "a disk that is not" 1024
merge 0 writer "no disk" 1024

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The first read of a copy may be sent by the task that writes, which never waits for it: what the
# device would have it wait for, or knows no way to refuse, is read by the engine's worker. Told
# from the names of the tasks that submit.

. "$(dirname "$0")/common.sh"

need_target delay
[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"
MIB=1048576
exact_copies
plan 12

# readers: how many reads the worker has sent, and how many other tasks.
readers()
{
	awk '/block_bio_queue: [0-9,]+ R/ {
		if (/\[cowsnap-/) worker++; else others++
	} END { print worker + 0, others + 0 }' "$TRACE/trace"
}

# others_read: has a task that writes sent one?
others_read()
{
	local worker others

	read -r worker others <<<"$(readers)"
	((others > 0))
}

worker_read()
{
	local worker others

	read -r worker others <<<"$(readers)"
	((worker > 0))
}

base=$(mkloop 16M)
echo 0 >"$(sysfs "$base")/queue/rotational"
store=$(mkloop 24M)
dmcreate home "$(linear_table "$base")"
for mode in P N; do
	fill_letter /dev/mapper/home A
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	# A new origin each time: it remembers a device that knows no REQ_NOWAIT.
	origin_up o /dev/mapper/home
	snap_up s /dev/mapper/home "$store" "$mode" 8

	trace_start /dev/mapper/home bio_queue
	put_letter /dev/mapper/o B 0 $((64 * 4096)) 4096
	ok "$mode: a task that writes sends the reads of its copies" others_read
	trace_stop >/dev/null

	# A device that is suspended would have it wait.
	dm suspend --noflush --nolockfs home
	trace_start /dev/mapper/home bio_queue
	put_letter /dev/mapper/o B $MIB 4096 &
	writer=$!
	ok "$mode: what the device has to wait for is read by the worker" wait_for 30 worker_read
	dm resume home
	ok "$mode: the write ends when the device goes on" wait "$writer"
	trace_stop >/dev/null
	isnt "$(status s)" Invalid "$mode: the snapshot lives on"

	# dm-delay knows no REQ_NOWAIT.
	swap_table home "$(delay_table "$base" 1 0)"
	put_letter /dev/mapper/o B $((2 * MIB)) 65536 4096
	swap_table home "$(linear_table "$base")"
	isnt "$(status s)" Invalid "$mode: nor is it lost where all reads may wait"
	put_letter /dev/mapper/o B $((3 * MIB)) 65536 4096
	ok "$mode: the snapshot has the old data" all_letter /dev/mapper/s A
	dmremove s
	dmremove o
done
dmremove home

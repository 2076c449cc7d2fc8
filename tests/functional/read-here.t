#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The first read of a copy may be sent by the task that writes, which never waits for it: what the
# device refuses, because it would have to, is read by the engine's worker. So is all that is read
# through a driver of bios. Told from the names of the tasks that submit.

. "$(dirname "$0")/common.sh"

need_target delay
[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"
MIB=1048576
exact_copies
plan 20

# readers: how many reads the worker has sent, and how many the tasks that write.
readers()
{
	awk '/block_bio_queue: [0-9,]+ R/ {
		worker += /\[cowsnap-/
		writers += /\[cowio\]/
	} END { print worker + 0, writers + 0 }' "$TRACE/trace"
}

writer_read()
{
	local worker writers

	read -r worker writers <<<"$(readers)"
	((writers > 0))
}

worker_read()
{
	local worker writers

	read -r worker writers <<<"$(readers)"
	((worker > 0))
}

# only_worker_read: and no task that writes.
only_worker_read()
{
	worker_read && ! writer_read
}

# read_again: some block was read by a task that writes, and by the worker after that.
read_again()
{
	awk '/block_bio_queue: [0-9,]+ R/ && match($0, / R[A-Z]* [0-9]+ /) {
		at = substr($0, RSTART, RLENGTH)
		sub(/^ R[A-Z]* /, "", at)
		if (/\[cowio\]/)
			sent[at] = 1
		else if (/\[cowsnap-/ && at in sent)
			again = 1
	} END { exit !again }' "$TRACE/trace"
}

# up HOME MODE: origin and snapshot; the origin is made anew, which is when its device is looked at.
up()
{
	fill_letter "$1" A
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	origin_up o "$1"
	snap_up s "$1" "$store" "$2" 8
}

down()
{
	isnt "$(status s)" Invalid "$1: the snapshot lives on"
	ok "$1: the snapshot has the old data" all_letter /dev/mapper/s A
	dmremove s
	dmremove o
}

base=$(mkloop 16M)
echo 0 >"$(sysfs "$base")/queue/rotational"
store=$(mkloop 24M)
# One request at a time, each for a while.
narrow=$(mkram 4 irqmode=2 completion_nsec=300000000 hw_queue_depth=1 submit_queues=1)
echo none >"$(sysfs "$narrow")/queue/scheduler"
for mode in P N; do
	up "$base" "$mode"
	trace_start "$base" bio_queue
	put_letter /dev/mapper/o B 0 $((64 * 4096)) 4096
	ok "$mode: a task that writes sends the reads of its copies" writer_read
	trace_stop >/dev/null
	down "$mode"

	up "$narrow" "$mode"
	trace_start "$narrow" bio_queue
	writers=()
	for at in 0 1 2 3 4 5; do
		put_letter /dev/mapper/o B $((at * 65536)) 4096 &
		writers+=("$!")
	done
	ok "$mode, no request left: the writes end" all_end_well "${writers[@]}"
	ok "$mode, no request left: what was refused is read by the worker" read_again
	trace_stop >/dev/null
	down "$mode, no request left"

	# dm passes REQ_NOWAIT on to what may not know what it means.
	dmcreate home "$(linear_table "$base")"
	up /dev/mapper/home "$mode"
	trace_start /dev/mapper/home bio_queue
	put_letter /dev/mapper/o B 0 $((64 * 4096)) 4096
	ok "$mode, dm: only the worker reads" only_worker_read
	trace_stop >/dev/null
	swap_table home "$(delay_table "$base" 1 0)"
	put_letter /dev/mapper/o B $((2 * MIB)) 65536 4096
	swap_table home "$(linear_table "$base")"
	down "$mode, dm"
	dmremove home
done

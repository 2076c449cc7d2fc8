#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# With few pages for the copy engine, a sequential writer's copies stay in
# ascending order at the disk when jobs go back to the head of the queue, and do
# not when they go to its tail; told from the sequence of I/O, not from a clock.

. "$(dirname "$0")/common.sh"

need_processors 2
need fio
[[ -e $PARAMETERS/kcopyd_requeue && -e $PARAMETERS/kcopyd_budget ]] ||
	skip_all "the module has no kcopyd_requeue and kcopyd_budget"
[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"

# The engine's own reads are the only ones of the origin's device here.
copies()
{
	awk '$1 == "bio_queue" && $2 ~ /^R/ { print $3, $4 }' "$TEST_TMP/trace"
}

# How many of the copies begin before the end of one that came before.
steps_back()
{
	copies | awk '$1 < end { n++ } $1 + $2 > end { end = $1 + $2 } END { print n + 0 }'
}

copied_sectors()
{
	copies | awk '{ n += $2 } END { print n + 0 }'
}

write_sequentially()
{
	fio --name=w --ioengine=libaio --direct=1 --rw=write --bs=1m --iodepth=8 \
		--filename=/dev/mapper/o --allow_file_create=0 --size=16m >/dev/null 2>&1
}

# try HEAD_OR_TAIL CHUNK
try()
{
	local used

	fill_letter "$base" A
	echo "$1" >"$PARAMETERS/kcopyd_requeue"
	origin_up o "$base"
	snap_up s "$base" "$store" N "$2"
	trace_start "$base" bio_queue
	write_sequentially
	trace_stop >"$TEST_TMP/trace"
	ok "$1, chunk $2: the snapshot is whole" all_letter /dev/mapper/s A
	used=$(used_sectors s)
	diag "$1, chunk $2: $(copies | wc -l) reads of $(copied_sectors) sectors, $(steps_back) steps back, $used sectors used"
	dmremove s
	dmremove o
}

restore=$(cat "$PARAMETERS/kcopyd_requeue")
at_exit _write "$PARAMETERS/kcopyd_requeue" "$restore"
at_exit _write "$PARAMETERS/kcopyd_budget" "$(cat "$PARAMETERS/kcopyd_budget")"
echo 1 >"$PARAMETERS/kcopyd_budget"	# the least it takes, whatever that is
base=$(mkloop 16M)
store=$(mkloop 24M)
try head 8
is "$(steps_back)" 0 "head, chunk 8: copies are in ascending order"
is "$(copied_sectors)" $((16 * 2048)) "head, chunk 8: each sector is read once"
try head 128
is "$(steps_back)" 0 "head, chunk 128: copies are in ascending order"
# If the writer is slow the pages suffice, and no job goes back to the queue.
for _ in 1 2 3 4 5; do
	try tail 8
	(($(steps_back) == 0)) || break
done
ok "tail, chunk 8: copies are out of order" [ "$(steps_back)" -gt 0 ]
try tail 128
ok "tail, chunk 128: copies are out of order" [ "$(steps_back)" -gt 0 ]
done_testing

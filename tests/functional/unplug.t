#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Only the engine's worker writes copies, on any device; never a task that writes, which would wait
# in its plug for others. Such a task sends no more reads than one for each plug, where they stay in
# it. Told from the names of the tasks that submit: the worker's is cowsnap-, and the origin's
# workqueue makes table blocks ready.

. "$(dirname "$0")/common.sh"

need fio
[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"
plan 19
exact_copies

# RAM disks: their I/O has ended when it has been submitted.
[[ ! -d /sys/module/brd ]] || rmmod brd
modprobe brd rd_nr=2 rd_size=32768 || skip_all "there is no brd"
at_exit rmmod brd

# writer SECONDS_OR_SIZE WORDS...: several writes in one go, so that there is a plug.
writer()
{
	fio --name=w --thread --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=8 \
		--iodepth_batch_submit=8 --iodepth_batch_complete_min=8 --norandommap=1 \
		--allow_file_create=0 --filename=/dev/mapper/o "$@" >"$TEST_TMP/fio.log" 2>&1
}

# submitters RWBS: how many such bios workers submitted, and how many other tasks.
submitters()
{
	awk -v what="$1" '$0 ~ "block_bio_queue: [0-9,]+ " what {
		if (/\[cowsnap-|\[kworker/) worker++; else others++
	} END { print worker + 0, others + 0 }' "$TEST_TMP/trace"
}

# traced DEV: what the writer makes others do there.
traced()
{
	trace_start "$1" bio_queue
	writer --size=8m --io_size=2m
	echo 0 >"$TRACE/tracing_on"
	cat "$TRACE/trace" >"$TEST_TMP/trace"
	trace_stop >/dev/null
}

# up MODE: origin and snapshot over $base and $store.
up()
{
	fill_letter "$base" A
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	origin_up o "$base"
	snap_up s "$base" "$store" "$1" 8
}

# least, most: so many reads are sent by the tasks that write, in 64 plugs. Of a RAM disk none stays
# in a plug: there is no limit.
memory()
{
	base=/dev/ram0
	store=/dev/ram1
	least=64
	most=
}

# Memory that takes a moment, as a disk does.
disk()
{
	base=$(mkram 16 irqmode=2 completion_nsec=200000)
	store=$(mkram 32 irqmode=2 completion_nsec=200000)
	least=1
	most=72
}

down()
{
	ok "$1: the snapshot has the old data" all_letter /dev/mapper/s A
	dmremove s
	dmremove o
}

# copies MODE WORDS: read at home by the worker, and written by it.
copies()
{
	up "$1"
	traced "$base"
	read -r worker others <<<"$(submitters R)"
	ok "$1, $2: tasks that write send reads ($others)" [ "$others" -ge "$least" ]
	# Of 512 random writes some 450 need a copy.
	[[ ! $most ]] || ok "$1, $2: $most at most, the worker the others ($others, $worker)" \
		[ "$others" -le "$most" -a "$worker" -ge 300 ]
	down "$1, $2, read"

	up "$1"
	traced "$store"
	read -r worker others <<<"$(submitters W)"
	is "$others" 0 "$1, $2: no other task writes the copies"
	ok "$1, $2: the worker writes the copies ($worker)" [ "$worker" -gt 0 ]
	down "$1, $2, written"
}

memory
copies N memory
disk
copies P "a disk"

# Several writers, while snapshots come and go.
memory
up P
writer --size=2m --numjobs=4 --runtime=10 --time_based &
for id in 1 2 3 4 5 6; do
	dmcreate "s$id" "$(snap_table "$base" "$store" P 8 id "$id" create)"
	image "/dev/mapper/s$id" "$TEST_TMP/image.$id"
done
for id in 1 2 3; do
	ok "snapshot $id lasts as it was" same "/dev/mapper/s$id" "$TEST_TMP/image.$id"
	dmremove "s$id"
done
ok "the writers saw no error" wait "$!"
for id in 4 5 6; do
	ok "snapshot $id lasts as it was" same "/dev/mapper/s$id" "$TEST_TMP/image.$id"
	dmremove "s$id"
done
down "several writers"

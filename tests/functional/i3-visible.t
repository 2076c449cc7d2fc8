#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I3: an exception can be seen before its pending twin goes away: readers that
# hammer a snapshot while all its chunks are being preserved never see new
# data. A slow home gives a reader that looks in between time to go wrong.

. "$(dirname "$0")/common.sh"

need fio
need_target delay

plan 4

# Each block of what is read must be the letter it was made of. In the background
# the shell makes way for fio, so that a signal to the one is one to the other.
read_snapshot()
{
	exec fio --name=r --ioengine=libaio --direct=1 --rw=randread --bs="$1" --iodepth=32 \
		--numjobs=2 --filename=/dev/mapper/s --allow_file_create=0 --size=4m \
		--time_based --runtime=600 --verify=pattern --verify_pattern=0x41 \
		--verify_fatal=1 --randrepeat=0 --output="$TEST_TMP/fio.log" 2>&1
}

write_origin()
{
	fio --name=w --ioengine=libaio --direct=1 --rw="$1" --bs="$2" --iodepth=8 \
		--filename=/dev/mapper/o --allow_file_create=0 --size=4m \
		--randrepeat=0 --output=/dev/null
}

# try WORDS RW BLOCK READ_BLOCK: readers from before the first write until after
# the last; a reader that saw new data has ended by itself, with an error.
try()
{
	local readers

	fill_letter "$base" A
	origin_up o /dev/mapper/home
	snap_up s /dev/mapper/home "$store" N 8
	read_snapshot "$4" >/dev/null &
	readers=$!
	wait_for 60 readers_run
	write_origin "$2" "$3"
	kill "$readers" 2>/dev/null
	wait "$readers"
	ok "$1: readers saw old data alone" no_mismatch
	ok "$1: the snapshot is whole" all_letter /dev/mapper/s A
	dmremove s
	dmremove o
}

readers_run()
{
	[[ $(awk '{ print $1 }' "$(sysfs /dev/mapper/s)/stat") -gt 100 ]]
}

no_mismatch()
{
	cat "$TEST_TMP/fio.log"
	! grep -iE 'verify|bad pattern|err= *[1-9]' "$TEST_TMP/fio.log"
}

base=$(mkloop 4M)
store=$(mkloop 16M)
dmcreate home "$(delay_table "$base" 5 0)"
try "random writes" randwrite 4k 4k
try "larger writes" write 256k 64k

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
# Readers are to look while the origin is written, not to make way for the writers.
at_exit _write "$PARAMETERS/read_share" "$(<"$PARAMETERS/read_share")"
echo 100 >"$PARAMETERS/read_share"

# Each block of what is read must be the letter it was made of, until $TEST_TMP/enough is
# there. A run with verify ends after one pass, whatever time_based or loops say.
read_snapshot()
{
	until [[ -e $TEST_TMP/enough ]]; do
		fio --name=r --ioengine=libaio --direct=1 --rw=randread --bs="$1" --iodepth=32 \
			--numjobs=2 --filename=/dev/mapper/s --allow_file_create=0 --size=4m \
			--verify=pattern --verify_pattern=0x41 --verify_fatal=1 --randrepeat=0 \
			--output="$TEST_TMP/fio.log" || return
	done
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
	rm -f "$TEST_TMP/enough"
	read_snapshot "$4" >"$TEST_TMP/readers" 2>&1 &
	readers=$!
	wait_for 60 readers_run
	write_origin "$2" "$3"
	touch "$TEST_TMP/enough"
	ok "$1: readers saw old data alone" no_mismatch "$readers"
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
	wait "$1" || { cat "$TEST_TMP/readers" "$TEST_TMP/fio.log" && false; }
}

base=$(mkloop 4M)
store=$(mkloop 16M)
dmcreate home "$(delay_table "$base" 5 0)"
try "random writes" randwrite 4k 4k
try "larger writes" write 256k 64k

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I6: a flush or FUA on an origin is one on its device, in the block layer's own
# record, for writes that are parked for a copy and for those that pass; on
# a snapshot what was acknowledged before a flush is there after it.

. "$(dirname "$0")/common.sh"

MIB=1048576

[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"
plan 10

# count PATTERN: lines of the trace that ended last.
count()
{
	grep -c "$1" "$TEST_TMP/trace"
}

# Each of these is one user's call; the trace of the device below is what counts.
traced()
{
	trace_start "$base" bio_queue
	"$@"
	trace_stop >"$TEST_TMP/trace"
}

plain_write()
{
	put_letter /dev/mapper/o B "$1" 4096
}

fsync_origin()
{
	sync -d /dev/mapper/o
}

# The kernel turns this into FUA where the device has it, else into a flush.
dsync_write()
{
	letters B 4096 | dd of=/dev/mapper/o bs=4096 seek="$1" iflag=fullblock \
		oflag=direct,dsync,seek_bytes conv=nocreat,notrunc status=none
}

fsync_snapshot()
{
	put /dev/mapper/s "$TEST_TMP/private" $MIB 65536 && sync -d /dev/mapper/s
}

# has_fua DEV
has_fua()
{
	[[ $(cat "$(sysfs "$1")/queue/fua") = 1 ]]
}

flushes()
{
	traced plain_write 0
	is "$(count '^bio_queue W[A-Z]* 0 8$')" 1 "a plain write comes home once"
	is "$(count '^bio_queue F')" 0 "a plain write causes no flush"
	traced fsync_origin
	ok "fsync of the origin flushes its device" [ "$(count '^bio_queue F')" -ge 1 ]
	traced dsync_write $MIB
	ok "a synchronous write, parked for its copy, flushes or is FUA" \
		[ "$(count '^bio_queue \(F\|W[A-Z]*F\)')" -ge 1 ]
	traced dsync_write $MIB
	ok "a synchronous write to a chunk already preserved flushes or is FUA" \
		[ "$(count '^bio_queue \(F\|W[A-Z]*F\)')" -ge 1 ]
	ok "the snapshot is whole" all_letter /dev/mapper/s A
	image /dev/mapper/s "$TEST_TMP/private"
	ok "fsync of the snapshot succeeds" fsync_snapshot
	ok "what was written before the snapshot's fsync is there" \
		same /dev/mapper/s "$TEST_TMP/private"
	dmremove s
	dmremove o
}

fua()
{
	if ! base=$(mkscsi dev_size_mb=16) || ! has_fua "$base"; then
		skip "FUA stays FUA when the write was parked" "no device with FUA here"
		skip "FUA stays FUA when the write passes" "no device with FUA here"
		return
	fi
	fill_letter "$base" A
	origin_up o "$base"
	snap_up s "$base" "$store" N 8
	traced dsync_write 0
	is "$(count '^bio_queue W[A-Z]*F[A-Z]* 0 8$')" 1 "FUA stays FUA when the write was parked"
	traced dsync_write 0
	is "$(count '^bio_queue W[A-Z]*F[A-Z]* 0 8$')" 1 "FUA stays FUA when the write passes"
	dmremove s
	dmremove o
}

base=$(mkloop 8M)
store=$(mkloop 32M)
fill_letter "$base" A
origin_up o "$base"
snap_up s "$base" "$store" N 8
flushes
fua

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I1: no write reaches home before the old content of each chunk it touches has
# been read there; shown from the sequence of I/O at the home device, with a slow
# store and with stores of different chunk sizes. A copy that was begun before a snapshot was
# made does not serve that snapshot.

. "$(dirname "$0")/common.sh"

need fio
need_target delay
[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"

plan 11

# Writes to home, of sectors not all of which had been read completely before.
early_writes()
{
	awk '
		$1 == "bio_complete" && $2 ~ /^R/ { for (i = 0; i < $4; i += 8) old[$3 + i] = 1 }
		$1 == "bio_queue" && $2 ~ /^W/ && $4 {
			for (i = 0; i < $4; i += 8)
				if (!(($3 + i) in old)) { n++; break }
			w++
		}
		END { print n + 0, w + 0 }' "$TEST_TMP/trace"
}

# $home is a dm device: its bios are its own, whatever becomes of them below.
traced_writes()
{
	trace_start /dev/mapper/home bio_queue bio_complete
	fio --name=w --ioengine=libaio --direct=1 "$@" --iodepth=16 --size=8m \
		--filename=/dev/mapper/o --allow_file_create=0 >/dev/null 2>&1
	trace_stop >"$TEST_TMP/trace"
}

# slow STORE MS: writes to it take MS milliseconds.
slow()
{
	local table

	table=$(delay_table "$1" 0 "$2")
	if dmsetup info slow >/dev/null 2>&1; then
		dmreload slow "$table"
	else
		dmcreate slow "$table"
	fi
}

reads_are_delayed()
{
	[[ $(dmsetup status "$1" | awk '$3 == "delay" { print $4 }') -gt 0 ]]
}

base=$(mkloop 8M)
store=$(mkloop 16M)
store2=$(mkloop 16M)
fill_letter "$base" A
dmcreate home "$(linear_table "$base")"
slow "$store" 500
origin_up o /dev/mapper/home
snap_up s /dev/mapper/home /dev/mapper/slow N 8
snap_up t /dev/mapper/home "$store2" N 64

put_letter /dev/mapper/o B 0 65536 &
writer=$!
sleep 0.1
ok "a snapshot read right after a write, the store being slow, has the old data" \
	all_letter /dev/mapper/s A 0 65536
wait "$writer"
slow "$store" 20
traced_writes --rw=randwrite --bs=4k
read -r early all <<<"$(early_writes)"
diag "random: $all writes at home, $early before their copy was read"
ok "random writes came home" [ "$all" -gt 1000 ]
# The 16 chunks written above were read before the trace began.
ok "no random write came home before its copy was read" [ "$early" -le 16 ]
ok "the snapshot is whole" all_letter /dev/mapper/s A
ok "the snapshot with larger chunks is whole" all_letter /dev/mapper/t A
dmremove s
dmremove t
fill_letter /dev/mapper/o A
snap_up s /dev/mapper/home "$store" N 8
traced_writes --rw=write --bs=1m
read -r early all <<<"$(early_writes)"
diag "sequential: $all writes at home, $early before their copy was read"
is "$early" 0 "no sequential write came home before its copy was read"
ok "the snapshot is whole again" all_letter /dev/mapper/s A

dmremove s
fill_letter /dev/mapper/o A
snap_up s /dev/mapper/home "$store" N 8
dmreload home "$(delay_table "$base" 3000 0)"
put_letter /dev/mapper/o B 0 4096 &
writer=$!
wait_for 60 reads_are_delayed home
snap_up t /dev/mapper/home "$store" N 8 id 1 create
ok "a snapshot is made while a write waits for its copy" kill -0 "$writer"
wait "$writer"
dmreload home "$(linear_table "$base")"
ok "the write has come home" all_letter /dev/mapper/o B 0 4096
ok "the new snapshot has a copy of its own" all_letter /dev/mapper/t A 0 4096
ok "the one before has the old data as well" all_letter /dev/mapper/s A 0 4096

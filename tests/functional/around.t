#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Copying around: a region that is written a second time for the first time is copied
# whole, so that a hot file settles soon; what that costs for nothing is bounded.

. "$(dirname "$0")/common.sh"

need fio
MIB=1048576
plan 17
echo 0 >"$PARAMETERS/undo_buffer"

base=$(mkloop 64M)
store=$(mkloop 80M)

up()
{
	fill_letter "$base" A
	origin_up o "$base"
	snap_up s "$base" "$store" "$@"
}

down()
{
	dmremove s
	dmremove o
}

seed=0

# at_random MIB KIB: KIB are written to the first MIB, 4 KiB at a time, each time elsewhere.
at_random()
{
	seed=$((seed + 1))
	fio --name=r --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=1 \
		--size="$1m" --io_size="$2k" --randrepeat=0 --randseed=$seed \
		--filename=/dev/mapper/o --allow_file_create=0 >"$TEST_TMP/fio.log" 2>&1
}

all_old()
{
	ok "$1: the snapshot has the old data" all_letter /dev/mapper/s A
}

up N 8 copy_around 256 copy_ahead 0
put_letter /dev/mapper/o B $((10 * 65536)) 4096
is "$(key_of s copied)" 1 "the first write to a region copies its chunk"
put_letter /dev/mapper/o B $((11 * 65536)) 4096
is "$(key_of s copied)" 64 "the second write to a region copies all of it"
is "$(key_of o copied_around)" $((62 * 8)) "what is copied around the writes is counted"
put_letter /dev/mapper/o B $((9 * 65536)) 4096
is "$(key_of s copied) $(key_of o unused_around)" "64 $((61 * 8))" \
	"what was copied around counts as unused until it is written"
at_random 4 16384
ok "a hot file of 4 MiB settles after few copies: $(key_of o copies)" \
	[ "$(key_of o copies)" -lt 100 ]
ok "a hot file: little more than its 4 MiB is copied: $(key_of s copied) chunks" \
	[ "$(key_of s copied)" -le 1088 ]
ok "a hot file: nearly all that was copied around is used, but for $(key_of o unused_around) sectors" \
	[ "$(key_of o unused_around)" -lt 1024 ]
all_old "a hot file"
down

store=$(mkloop 80M)
up P 8 copy_around 128
at_random 64 8192
ok "writes all over the device: copies for nothing are few: $(key_of o unused_around) sectors" \
	[ "$(key_of o unused_around)" -le $((80 * 2048 / 25)) ]
all_old "all over"
like "$(dmsetup table s)" 'copy_around 128$' "the table shows the copy_around it was given"
down
origin_up o "$base"
snap_up s "$base" "$store" P 8
is "$(key_of s copy_around)" 128 "copy_around lasts when the store is opened again"
all_old "opened again"
not_ok "a copy_around of 100 is refused" dm message s 0 set copy_around 100
dm message s 0 set copy_around 0
before=$(key_of s copied)
put_letter /dev/mapper/o B 0 512 $((MIB / 4 - 512)) 512
ok "copy_around turned off: only what is written is copied" \
	[ "$(key_of s copied)" -le $((before + 2)) ]
down

# Few regions are written twice, and hardly one a third time.
base=$(mkloop 512M)
store=$(mkloop 256M)
origin_up o "$base"
snap_up s "$base" "$store" N 8 copy_around 256
at_random 512 8192
ok "a large device, a large store: what is copied around follows what is used: $(key_of o unused_around) sectors" \
	[ "$(key_of o unused_around)" -le 10240 ]
down

echo 64 >"$PARAMETERS/copy_around"
base=$(mkloop 64M)
store=$(mkloop 8M)
origin_up o "$base"
snap_up s "$base" "$store" N 8
is "$(key_of s copy_around)" 64 "a new store begins with the module's parameter"

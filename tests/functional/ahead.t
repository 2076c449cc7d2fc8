#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Copying ahead: a task that writes one chunk after the other gets many copies for one, a
# task that writes at random does not; what was copied for nothing is counted and stays little.

. "$(dirname "$0")/common.sh"

need fio
plan 31
echo 0 >"$PARAMETERS/copy_around"

base=$(mkloop 64M)
store=$(mkloop 80M)

counted()
{
	key_of o "$1"
}

up()
{
	fill_letter "$base" A
	origin_up o "$base"
	snap_up s "$base" "$store" N 8 "$@"
}

down()
{
	dmremove s
	dmremove o
}

# in_order MIB AT_MIB [KIB]: MIB are written from AT_MIB on, KIB (or 4) at a time.
in_order()
{
	dd if=/dev/urandom of=/dev/mapper/o bs="${3:-4}K" count=$(($1 * 1024 / ${3:-4})) \
		seek=$(($2 * 1024 / ${3:-4})) oflag=direct conv=notrunc status=none
}

all_old()
{
	ok "$1: the snapshot has the old data" all_letter /dev/mapper/s A
}

# ---- one writer, and what it leaves ----

up
in_order 8 2
ok "2048 writes in order take few copies: $(counted copies)" [ "$(counted copies)" -lt 100 ]
ok "most chunks were copied ahead: $(counted copied_ahead) sectors" \
	[ "$(counted copied_ahead)" -gt 12000 ]
ok "copies end at most twice as far as the writer came" \
	[ "$(key_of s copied)" -le $((2 * 2048 + 1)) ]
ok "few of 2048 writes in order waited: $(counted parked)" [ "$(counted parked)" -lt 200 ]
all_old "one writer"
# Eight others, and the first is forgotten with what it had ahead.
for i in 1 2 3 4 5 6 7 8; do
	in_order 1 $((20 + 4 * i)) 512
done
ok "what a forgotten writer left unused is counted: $(counted wasted_ahead) sectors" \
	[ "$(counted wasted_ahead)" -gt 0 ]
ok "no more is counted as wasted than was copied ahead" \
	[ "$(counted wasted_ahead)" -le "$(counted copied_ahead)" ]
dm message o 0 reset_stats
is "$(counted copied_ahead) $(counted wasted_ahead)" "0 0" \
	"reset_stats: both counters of copying ahead start anew"
all_old "all writers"
down

# ---- several at a time ----

up
for i in 0 1 2 3; do
	in_order 4 $((i * 16)) &
	pids+=($!)
done
wait "${pids[@]}"
ok "four writers at a time: $(counted copies) copies for 4096" [ "$(counted copies)" -lt 400 ]
all_old "four writers"
down

# ---- no order at all ----

up
fio --name=r --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=4 --size=64m \
	--io_size=16m --randrepeat=0 --randseed=1 --filename=/dev/mapper/o --allow_file_create=0 \
	>"$TEST_TMP/fio.log" 2>&1
ok "at random next to nothing is copied ahead: $(counted copied_ahead) of $(($(key_of s copied) * 8)) sectors" \
	[ "$(counted copied_ahead)" -lt $(($(key_of s copied) * 8 / 20)) ]
all_old "at random"
down

# ---- off, or bounded ----

up copy_ahead 0
in_order 1 2
is "$(counted copies) $(counted copied_ahead)" "256 0" "copy_ahead 0: a copy for each chunk"
dm message s 0 set copy_ahead 64
in_order 4 8
ok "copy_ahead set to 64 KiB: $(counted copies) copies for 1024 more" \
	[ "$(counted copies)" -lt 512 ]
ok "copy_ahead set to 64 KiB: copies never go further ahead" \
	[ "$(key_of s copied)" -le $((256 + 1024 + 16)) ]
like "$(dmsetup table s)" 'copy_ahead 0$' "the table shows the copy_ahead it was given"
is "$(key_of s copy_ahead)" 64 "the status shows the copy_ahead in force"
not_ok "a copy_ahead of more than 65536 is refused" dm message s 0 set copy_ahead 65537
all_old "bounded"
down

# ---- a store that fills ----

store=$(mkloop 9M)
up
in_order 8 0
like "$(status s)" '^[0-9]+/' "a store of 9 MiB holds the copies of 8 MiB written in order"
all_old "little room"
is "$(key_of s copied)" 2048 "in a store of 9 MiB no more is copied than the writes need"
down

# ---- lasting ----

store=$(mkloop 80M)
fill_letter "$base" A
origin_up o "$base"
snap_up s "$base" "$store" P 8 copy_ahead 256
in_order 4 0
ok "persistent: $(counted copies) copies for 1024" [ "$(counted copies)" -lt 200 ]
all_old "persistent"
down
origin_up o "$base"
snap_up s "$base" "$store" P 8
is "$(key_of s copy_ahead)" 256 "persistent: copy_ahead lasts"
all_old "persistent, opened again"
down
echo 128 >/sys/module/dm_cowsnap/parameters/copy_ahead
store=$(mkloop 16M)
origin_up o "$base"
snap_up s "$base" "$store" P 8
is "$(key_of s copy_ahead)" 128 "a new store begins with the module's parameter"
down
store=$(mkloop 16M)

# ---- by the disk and the chunk ----

# default_of ROTATES CHUNK_SECTORS: copy_ahead of a new store.
default_of()
{
	echo "$1" >"$(sysfs "$base")/queue/rotational"
	head -c 1M /dev/zero >"$store"
	origin_up o "$base"
	snap_up s "$base" "$store" P "$2" >&2
	key_of s copy_ahead
	down >&2
}

echo -1 >/sys/module/dm_cowsnap/parameters/copy_ahead
is "$(default_of 1 512)" 2048 "a disk, chunks of 256 KiB: copied ahead"
is "$(default_of 1 1024)" 0 "a disk, chunks of 512 KiB: not copied ahead"
is "$(default_of 0 1024)" 2048 "nothing rotates, chunks of 512 KiB: copied ahead"

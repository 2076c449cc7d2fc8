#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The undo buffer of a transient store: old data in memory is enough for a write to go
# home, up to the buffer's size; snapshot reads get it, and nothing of it is lost.

. "$(dirname "$0")/common.sh"

need fio
need_target delay flakey
MIB=1048576
plan 56
echo 0 >"$PARAMETERS/copy_around"

base=$(mkloop 32M)
store=$(mkloop 40M)

up()
{
	fill_letter "$base" A
	dmcreate cow "$(linear_table "$store")"
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/cow N 8 "$@"
}

down()
{
	dmremove s
	dmremove o
	dmremove cow
}

buffered()
{
	key_of s buffered
}

nothing_buffered()
{
	[[ $(buffered) = 0 ]]
}

all_old()
{
	ok "$1: the snapshot has the old data" all_letter /dev/mapper/s A
}

# ---- a store that does not answer ----

up undo_buffer 2048
dm suspend --noflush cow
put_letter /dev/mapper/o B 0 $MIB 4096
ok "1 MiB is written though the store stands still" all_letter /dev/mapper/o B 0 $MIB
ok "what was there before is buffered: $(buffered) sectors" [ "$(buffered)" -ge 2048 ]
other_bytes /dev/mapper/s A 0 65536 >"$TEST_TMP/seen" &
reader=$!
put_letter /dev/mapper/s P $((MIB / 2)) 512 &
writer=$!
put_letter /dev/mapper/o C $((2 * MIB)) $((4 * MIB)) 65536 &
large=$!
sleep 2
not_ok "a snapshot read of buffered chunks waits" has_ended "$reader"
not_ok "a snapshot write to a buffered chunk waits" has_ended "$writer"
not_ok "a writer of more than the buffer holds waits" has_ended "$large"
ok "the buffer holds no more than it may: $(buffered) sectors" [ "$(buffered)" -le 4096 ]
dm resume cow
ok "the store goes on: the read ends" wait "$reader"
is "$(<"$TEST_TMP/seen")" 0 "the store goes on: the read gives the old data"
ok "the store goes on: the write to the snapshot ends" wait "$writer"
ok "the store goes on: the large write ends" wait "$large"
is "$(get /dev/mapper/s $((MIB / 2)) 4096)" "$(letters P 512)$(letters A 3584)" \
	"what was written to the snapshot is there"
put_letter /dev/mapper/s A $((MIB / 2)) 512
all_old "afterwards"
put_letter /dev/mapper/o D $((8 * MIB)) 4096
ok "a single buffered chunk is written within seconds" wait_for 60 nothing_buffered
down

# ---- a store that writes late, and reads at once ----

fill_letter "$store" X
up
swap_table cow "$(delay_table "$store" 0 8000)"
put_letter /dev/mapper/o B 0 $MIB
ok "1 MiB is written while the store's writes are late" [ "$(buffered)" -ge 2048 ]
all_old "late writes"
down

# ---- a store that is slow to take what is kept ----

# If a disk is late with 128 KiB or more, nothing is kept for a while.
rotational=$(sysfs "$store")/queue/rotational
was=$(<"$rotational")
echo 1 >"$rotational"
up undo_buffer 2048
swap_table cow "$(delay_table "$store" 0 1000)"
put_letter /dev/mapper/o B 0 262144 4096
ok "slow: a share is kept, and written" wait_for 60 nothing_buffered
swap_table cow "$(linear_table "$store")"
dm suspend --noflush cow
put_letter /dev/mapper/o B $MIB 4096 &
writer=$!
sleep 1
not_ok "slow: then a write waits for the store" has_ended "$writer"
dm resume cow
ok "slow: then it goes on with the store" wait "$writer"
all_old "slow"
down
up undo_buffer 2048
for at in 1 2 3; do
	put_letter /dev/mapper/o B $((at * MIB)) 262144 4096
	wait_for 60 nothing_buffered
done
dm suspend --noflush cow
put_letter /dev/mapper/o B 0 131072 4096
ok "in good time: what follows is kept: $(buffered) sectors" [ "$(buffered)" -ge 256 ]
dm resume cow
all_old "in good time"
down
echo "$was" >"$rotational"

# ---- without ----

up undo_buffer 0
dm suspend --noflush cow
put_letter /dev/mapper/o B 0 4096 &
writer=$!
sleep 1
not_ok "without a buffer a write waits for the store" has_ended "$writer"
dm resume cow
ok "without a buffer a write goes on with the store" wait "$writer"
is "$(buffered)" 0 "without a buffer nothing is buffered"
all_old "without"
down

# ---- many writes, and a reader all along ----

up undo_buffer 512
fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bsrange=512-64k --iodepth=8 --size=32m \
	--io_size="$(scaled 48)m" --filename=/dev/mapper/o --allow_file_create=0 \
	--randrepeat=0 --randseed=1 >"$TEST_TMP/fio.log" 2>&1 &
writer=$!
for _ in 1 2 3 4; do
	other_bytes /dev/mapper/s A >>"$TEST_TMP/all"
done
ok "fio has written" wait "$writer"
is "$(sort -u "$TEST_TMP/all")" 0 "reads beside many writes give only old data"
all_old "many writes"
dm message s 0 set undo_buffer 0
is "$(buffered) $(key_of s undo_buffer)" "0 0" "a buffer that is turned off is written at once"
dm message s 0 set undo_buffer 16384
is "$(key_of s undo_buffer)" 16384 "a buffer can be made larger than before"
like "$(dmsetup table s)" 'undo_buffer 512$' "the table shows the undo_buffer it was given"
dm suspend --noflush cow
put_letter /dev/mapper/o E 0 $((12 * MIB)) 65536
pass "12 MiB more while the store stands still"
dm resume cow
all_old "the large buffer"
down

# ---- two snapshots, one goes ----

up
put_letter /dev/mapper/o B 0 $MIB 4096
snap_up t "$base" /dev/mapper/cow N 8 id 1 create
dm suspend --noflush cow
put_letter /dev/mapper/o C 0 $((2 * MIB)) 4096
ok "two snapshots share the buffer: $(buffered) sectors" [ "$(buffered)" -ge 4096 ]
dm resume cow
all_old "with a second snapshot"
ok "the second snapshot has what was there when it was made" all_letter /dev/mapper/t B 0 $MIB
dmremove s
put_letter /dev/mapper/o D 0 $((4 * MIB)) 4096
is "$(other_bytes /dev/mapper/t B 0 $MIB) $(other_bytes /dev/mapper/t A $MIB $((31 * MIB)))" "0 0" \
	"the second snapshot is right when the first is gone"
dmremove t
dmremove o
dmremove cow

# ---- what fails, and what goes ----

up
swap_table cow "$(no_writes_table "$store")"
put_letter /dev/mapper/o B 0 65536
ok "a store that refuses: the snapshot becomes Invalid" wait_for 60 is_invalid s
not_ok "an Invalid snapshot gives no data" get /dev/mapper/s 0 4096
put_letter /dev/mapper/o C 0 65536
ok "a store that refuses: the origin goes on" all_letter /dev/mapper/o C 0 65536
down
up
put_letter /dev/mapper/o B 0 $MIB
dmremove s
dmremove o
dmremove cow
pass "a snapshot is removed with its copies still buffered"

# ---- the room for it is in whole pages, whatever the steps ----

dmcreate cow "$(linear_table "$store")"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow N 16384 undo_buffer 0
has_ended()
{
	! kill -0 "$1" 2>/dev/null
}
for kib in 3 6 0 3 6 0; do
	dm message s 0 set undo_buffer "$kib"
done
put_letter /dev/mapper/o D 0 4096 &
ok "after odd sizes of the buffer the largest copy has its pages" wait_for 60 has_ended $!
down

# ---- a persistent store has none ----

persistent=$(mkloop 8M)
origin_up o "$base"
dmcreate s "" --notable
not_ok "a table with an undo buffer for a persistent store is not loaded" \
	dmload s "$(snap_table "$base" "$persistent" P 8 undo_buffer 64)"
like "$(kernel_log)" 'undo_buffer 64 is for transient stores' \
	"the log says for which stores an undo buffer is"
dmremove s
snap_up s "$base" "$persistent" P
not_ok "a persistent store that is open takes no undo buffer" dm message s 0 set undo_buffer 64
dmremove s
dmremove o
dmcreate cow "$(linear_table "$store")"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow N 8
kernel_refuses 'cannot redirect: it is transient' "a transient store takes no redirect" \
	dm message s 0 set redirect 0
down

# ---- many at once are written in smaller parts ----

store_writes()
{
	awk '{ print $5 }' "$(sysfs /dev/mapper/cow)/stat"
}

# copies COUNT: so many at once, and all of them written to the store.
copies()
{
	fill_letter "$base" A
	dmcreate cow "$(linear_table "$store")"
	dmcreate home "$(linear_table "$base")"
	origin_up o /dev/mapper/home
	snap_up s /dev/mapper/home /dev/mapper/cow N 8
	hold_reads home "$base"
	fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth="$1" \
		--number_ios="$1" --size=32m --filename=/dev/mapper/o --allow_file_create=0 \
		>"$TEST_TMP/fio.log" 2>&1 &
	writer=$!
	ok "$1 copies are read" wait_for 60 reads_are_delayed home "$1"
	release_reads home "$base"
	ok "$1 writes have ended" wait "$writer"
	ok "$1 copies get to the store" wait_for 60 nothing_buffered
	all_old "$1 copies"
	dmremove s
	dmremove o
	dmremove home
}

# The buffer of other disks is written 64 KiB at a time however many there are.
for disk in "$base" "$store"; do
	echo 1 >"$(sysfs "$disk")/queue/rotational"
done
# The last 8 are too few to be called many: they wait for others as long as they may.
copies 24
ok "24 copies: 16 are written before the others ($(store_writes) writes)" [ "$(store_writes)" -ge 2 ]
dmremove cow
copies 7
is "$(store_writes)" 1 "7 copies are written together"
dmremove cow

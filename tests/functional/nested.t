#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A store whose device is a snapshot in another store: what the one needs while memory is
# short, the other does not take away.

. "$(dirname "$0")/common.sh"

need fio
need_faults
MIB=1048576
exact_copies
plan 7

# The upper store is made on the lower origin. Then a snapshot of that is taken, and home is
# written over: what the upper store holds is now copied to the lower one, in larger chunks.
up()
{
	fill_letter "$upper" A
	origin_up lower_o "$lower"
	origin_up o "$upper"
	snap_up s "$upper" /dev/mapper/lower_o P 8 id 1 create
	put_letter /dev/mapper/o B 0 $((4 * MIB))
	dmremove s
	dmremove o
	snap_up lower_s "$lower" "$lower_store" P 64 id 1 create
	put_letter /dev/mapper/lower_o X 0 "$(blockdev --getsize64 "$lower")" $MIB
	dmcreate o "$(origin_table "$upper" store /dev/mapper/lower_s)"
	snap_up s "$upper" /dev/mapper/lower_s P 8 id 1
}

# Parts of chunks, in both stores: they are read as a whole, and verified.
read_parts()
{
	fio --name=r --ioengine=libaio --direct=1 --rw=randread --bs=512 --iodepth=64 \
		--filename=/dev/mapper/s --allow_file_create=0 --size=4m --io_size=512k \
		>"$TEST_TMP/fio.log" 2>&1
}

upper=$(mkloop 8M)
lower=$(mkloop 24M)
lower_store=$(mkloop 64M)
ok "a store is opened on a snapshot in another store" up
ok "its snapshot is right" all_letter /dev/mapper/s A
ok "its origin is right" all_letter /dev/mapper/o AB
fail_under cow_verify_read -1
read_parts &
reader=$!
ok "without memory parts of chunks are read through both" wait_for 100 has_ended "$reader"
failed=$(fail_no_more)
ok "allocations have failed meanwhile: $failed" [ "$failed" -gt 100 ]
ok "no read has failed" wait "$reader"
put_letter /dev/mapper/o C $((2 * MIB)) $((4 * MIB))
ok "its snapshot is right after further writes" all_letter /dev/mapper/s A
dmremove s
dmremove o
dmremove lower_s
dmremove lower_o

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# When as many copies wait as there may be, a write whose region would be copied around it
# waits as well: it does not go home because the copy in front of it is left out.

. "$(dirname "$0")/common.sh"

need fio
need_target delay
exact_copies
plan 4

MIB=1048576
DELAY=8000	# ms that a write to the store takes

all_wait()
{
	[[ $(key_of o parked) -ge $((before + 64)) ]]
}

base=$(mkloop 80M)
store=$(mkloop 160M)
fill_letter "$base" A
dmcreate cow "$(linear_table "$store")"
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow N
# Every other chunk of 72 MiB, so that each of the others needs a copy of its own.
fio --name=half --ioengine=libaio --iodepth=16 --direct=1 --filename=/dev/mapper/o \
	--rw=write:4k --bs=4k --size=72m --io_size=36m --allow_file_create=0 >"$TEST_TMP/fio.log"
dm message s 0 set copy_around 32
at=$((76 * MIB))
put_letter /dev/mapper/o B $((at + 4096)) 4096
dmreload cow "$(delay_table "$store" 0 $DELAY)"
before=$(key_of o parked)
diag "$(status o)"
fio --name=flood --ioengine=libaio --iodepth=72 --direct=1 --filename=/dev/mapper/o \
	--rw=write --bs=1m --size=72m --allow_file_create=0 >"$TEST_TMP/fio.log" 2>&1 &
flood=$!
ok "64 writes of 128 copies each wait" wait_for 60 all_wait
put_letter /dev/mapper/o C $((at + 8192)) 4096 &
writer=$!
sleep 1
ok "another write does not change the snapshot" all_letter /dev/mapper/s A $((at + 8192)) 4096
ok "all writes that waited for pendings end" wait "$flood" "$writer"
dmreload cow "$(linear_table "$store")"
ok "the snapshot has the old data everywhere" all_letter /dev/mapper/s A

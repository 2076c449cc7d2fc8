#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Exceptions that come one by one, in any order, are all found: as they come, when the map has put
# them in order, and when those of a deleted snapshot have gone. In a row they take no more memory
# than one long run.

. "$(dirname "$0")/common.sh"

need fio
exact_copies
plan 14

# scatter WORDS...: chunks of the origin, each once, in no order.
scatter()
{
	fio --name=w --ioengine=psync --direct=1 --rw=randwrite --bs=4k --filename=/dev/mapper/o \
		--allow_file_create=0 --size=8m "$@" >"$TEST_TMP/fio.log" 2>&1 ||
		{ cat "$TEST_TMP/fio.log" && false; }
}

has_exceptions()
{
	[[ $(key_of "$1" exceptions) == "$2" ]]
}

base=$(mkloop 8M)
store=$(mkloop 48M)
fill "$base" "$TEST_TMP/first"
origin_up o "$base"
snap_up s1 "$base" "$store" P 8 id 1 create
ok "half of the chunks are written" scatter --io_size=4m
is "$(key_of s1 exceptions)" 1024 "each is an exception"
ok "the snapshot has the old data" same /dev/mapper/s1 "$TEST_TMP/first"

image /dev/mapper/o "$TEST_TMP/second"
snap_up s2 "$base" "$store" P 8 id 2 create
ok "all chunks are written, some for the second time" scatter --randrepeat=0 --randseed=7
is "$(key_of s2 exceptions)" 3072 "those have two versions"
ok "the older snapshot has its data" same /dev/mapper/s1 "$TEST_TMP/first"
ok "the newer snapshot has its data" same /dev/mapper/s2 "$TEST_TMP/second"

dmremove s1
dmsetup message o 0 delete 1
ok "what only the older one needed goes" wait_for 60 has_exceptions s2 2048
ok "the newer snapshot still has its data" same /dev/mapper/s2 "$TEST_TMP/second"
dmremove s2
snap_up s2 "$base" "$store" P 8 id 2
is "$(key_of s2 exceptions)" 2048 "the store opened again has as many exceptions"
ok "the store opened again has the data" same /dev/mapper/s2 "$TEST_TMP/second"
dmremove s2

# One after the other they make entries of 64.
dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
image /dev/mapper/o "$TEST_TMP/third"
snap_up s3 "$base" "$store" N 8
put_letter /dev/mapper/o B 0 $((4 * 1048576)) 4096
is "$(key_of s3 exceptions)" 1024 "1024 chunks are written, one after the other"
ok "they take the memory of a few long runs: $(key_of s3 memory)" [ "$(key_of s3 memory)" -le 1024 ]
ok "the snapshot of these has the old data" same /dev/mapper/s3 "$TEST_TMP/third"
dmremove s3
dmremove o

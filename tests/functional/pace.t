#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Reading a snapshot while its origin is written: on a rotational disk the reads rest in
# between, on others and while nothing is written they do not.

. "$(dirname "$0")/common.sh"

need_processors 2
need fio
plan 14
exact_copies
restore=$(cat "$PARAMETERS/read_share")
at_exit _write "$PARAMETERS/read_share" "$restore"

# up ROTATIONAL
up()
{
	base=$(mkloop 64M)
	store=$(mkloop 80M)
	echo "$1" >"$(sysfs "$base")/queue/rotational"
	fill_letter "$base" A
	origin_up o "$base"
	snap_up s "$base" "$store" P 8
}

down()
{
	dmremove s
	dmremove o
}

write_slowly()
{
	fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=1 --size=64m \
		--rate_iops=50 --runtime=600 --time_based --allow_file_create=0 \
		--filename=/dev/mapper/o >"$TEST_TMP/fio.log" 2>&1 &
	writer=$!
	wait_for 60 written
}

written()
{
	[[ $(key_of s copied) != 0 ]]
}

stop_writing()
{
	kill "$writer" && wait "$writer"
}

rests()
{
	key_of o read_rests
}

# Where all reads are quick, or the writer stands still, none has to rest.
have_rested()
{
	(($(rests))) && return
	all_letter /dev/mapper/s A || touch "$TEST_TMP/wrong"
	return 1
}

is "$restore" 50 "the default of read_share is 50"
up 1
is "$(other_bytes /dev/mapper/s A) $(rests)" "0 0" "no read rests while nothing is written"
write_slowly
for i in 1 2 3; do
	ok "read beside a writer, time $i, the snapshot has the old data" all_letter /dev/mapper/s A
done
ok "the reads have rested" wait_for 120 have_rested
diag "$(rests) times"
not_ok "reads that rested have had the old data" test -e "$TEST_TMP/wrong"
other_bytes /dev/mapper/s A >"$TEST_TMP/read" &
reader=$!
ok "a snapshot that is read can be suspended" dm suspend s
dm resume s
wait "$reader"
is "$(<"$TEST_TMP/read")" 0 "the reader of a snapshot that was suspended gets all of it"
dm message o 0 reset_stats
is "$(rests)" 0 "reset_stats: the count of rests begins again"
echo 100 >"$PARAMETERS/read_share"
is "$(other_bytes /dev/mapper/s A) $(rests)" "0 0" "no read rests with a read_share of 100"
echo 1 >"$PARAMETERS/read_share"
ok "reads come to an end with a read_share of 1" get /dev/mapper/s 0 1048576
echo "$restore" >"$PARAMETERS/read_share"
stop_writing
down

up 0
write_slowly
is "$(other_bytes /dev/mapper/s A) $(rests)" "0 0" "no read rests on a disk that is not rotational"
stop_writing
ok "the snapshot on a disk that is not rotational has the old data" all_letter /dev/mapper/s A
down

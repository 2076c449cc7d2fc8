#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Reading a snapshot while its origin is written: on a disk that rotates the reads rest
# in between, elsewhere and when nobody writes they do not.

. "$(dirname "$0")/common.sh"

need fio
plan 13
exact_copies
restore=$(cat "$PARAMETERS/read_share")
at_exit _write "$PARAMETERS/read_share" "$restore"

# up ROTATES
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
		--rate_iops=50 --runtime=60 --time_based --allow_file_create=0 \
		--filename=/dev/mapper/o >"$TEST_TMP/fio.log" 2>&1 &
	writer=$!
	wait_for 10 written
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

is "$restore" 50 "reads have half of the time, unless somebody says otherwise"
up 1
is "$(not_letter /dev/mapper/s A) $(rests)" "0 0" "where nobody writes no read rests"
write_slowly
for i in 1 2 3; do
	is "$(not_letter /dev/mapper/s A)" 0 "read beside a writer, time $i, it has the old data"
done
ok "the reads have rested, $(rests) times" [ "$(rests)" -gt 0 ]
not_letter /dev/mapper/s A >"$TEST_TMP/read" &
reader=$!
ok "a snapshot that is read can be suspended" dm suspend s
dm resume s
wait "$reader"
is "$(<"$TEST_TMP/read")" 0 "and its reader gets the rest"
dm message o 0 reset_stats
is "$(rests)" 0 "the count begins again"
echo 100 >"$PARAMETERS/read_share"
is "$(not_letter /dev/mapper/s A) $(rests)" "0 0" "with all of the time no read rests"
echo 1 >"$PARAMETERS/read_share"
ok "with a hundredth reads come to an end as well" get /dev/mapper/s 0 1048576
echo "$restore" >"$PARAMETERS/read_share"
stop_writing
down

up 0
write_slowly
is "$(not_letter /dev/mapper/s A) $(rests)" "0 0" "where nothing rotates no read rests"
stop_writing
is "$(not_letter /dev/mapper/s A)" 0 "nor is anything wrong"
down

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Errors of a persistent store's device: the origin goes on, byte for byte, and a snapshot
# is right, or says that it is not, now and when it is opened again.

. "$(dirname "$0")/common.sh"

need fio
need_target flakey
MIB=1048576
len=$((8 * 2048))

# Where things stand in a store with blocks of 512 bytes and chunks of 8 sectors, in sectors.
# A segment is a table of a chunk, and a chunk for each of its slots: 34 in a block, of which
# the first segment has six behind the superblocks.
CHUNK=8
BLOCK_SLOTS=34
FIRST_DATA=$CHUNK
TABLE_2=$(((1 + 6 * BLOCK_SLOTS) * CHUNK))
TABLE_3=$((TABLE_2 + (1 + 8 * BLOCK_SLOTS) * CHUNK))
# The two snapshots of all_up have a little over 2 MiB; this is written soon after.
NEXT_DATA=$((3 * 2048))

exact_copies
plan 84

# Two snapshots, some chunks copied.
all_up()
{
	fill "$base" "$TEST_TMP/now"
	dd if=/dev/zero of="$store" bs=4096 count=1 conv=fsync status=none
	dmcreate cow "$(linear_table "$store")"
	origin_up o "$base"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	snap_up s "$base" /dev/mapper/cow P
	put /dev/mapper/o "$TEST_TMP/now" 0 $MIB $((3 * MIB)) 4096
	cp "$TEST_TMP/now" "$TEST_TMP/old2"
	snap_up t "$base" /dev/mapper/cow P 8 id 2 create
	put /dev/mapper/o "$TEST_TMP/now" $((MIB / 2)) $MIB
}

tables_up()
{
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/cow P && snap_up t "$base" /dev/mapper/cow P 8 id 2
}

tables_down()
{
	dmremove t
	dmremove s
	dmremove o
}

all_down()
{
	tables_down
	dmremove cow
}

# read_at DEV OFFSET BYTES
read_at()
{
	get "$@" >/dev/null
}

both_are()
{
	is "$(status s), $(status t)" "$1, $1" "$2"
}

both_are_right()
{
	ok "$1: the first snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
	ok "$1: the second snapshot is right" same /dev/mapper/t "$TEST_TMP/old2"
}

origin_goes_on()
{
	put /dev/mapper/o "$TEST_TMP/now" $((6 * MIB)) $MIB 0 4096
	ok "$1: the origin goes on" same /dev/mapper/o "$TEST_TMP/now"
}

at_load()
{
	all_up
	tables_down
	swap_table cow "$(partly_table "$store" 0 8 error)"
	not_ok "unreadable start: the store is not opened by a snapshot" \
		snap_up s "$base" /dev/mapper/cow P
	not_ok "unreadable start: the store is not opened by an origin" \
		origin_up o "$base" store /dev/mapper/cow
	swap_table cow "$(no_writes_table "$store")"
	not_ok "refuses writes: the store is not opened" snap_up s "$base" /dev/mapper/cow P
	swap_table cow "$(linear_table "$store")"
	ok "once it is whole the store is opened" tables_up
	both_are_right "once it is whole"
	tables_down
	swap_table cow "$(partly_table "$store" $TABLE_2 8 error)"
	ok "unreadable table: the store is opened" tables_up
	not_ok "unreadable table: the second snapshot has lost chunks" \
		same /dev/mapper/t "$TEST_TMP/old2"
	swap_table cow "$(linear_table "$store")"
	cp "$TEST_TMP/now" "$TEST_TMP/old3"
	ok "unreadable table: a new snapshot is made" dm message o 0 create 3
	put /dev/mapper/o "$TEST_TMP/now" 0 $((2 * MIB))
	snap_up u "$base" /dev/mapper/cow P 8 id 3
	ok "unreadable table: the new snapshot is right" same /dev/mapper/u "$TEST_TMP/old3"
	dmremove u
	all_down
}

# at_commit WORDS TABLE: the store has this table while it is written; and afterwards.
at_commit()
{
	all_up
	swap_table cow "$2"
	ok "$1: a write that needs a copy succeeds" \
		put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $((2 * MIB))
	both_are Invalid "$1: the snapshots are Invalid"
	not_ok "$1: the snapshots cannot be read" read_at /dev/mapper/s 0 4096
	origin_goes_on "$1"
	swap_table cow "$(linear_table "$store")"
	both_are Invalid "$1, store back: the snapshots stay Invalid"
	tables_down
	reload_module
	tables_up
	both_are Invalid "$1, opened again: the snapshots stay Invalid"
	not_ok "$1, opened again: the snapshots cannot be read" read_at /dev/mapper/s 0 4096
	all_down
}

# The mark could not be written: as long as the module is there it knows.
closed_dead()
{
	all_up
	swap_table cow "$(no_writes_table "$store")"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $((2 * MIB))
	both_are Invalid "closed while dead: the snapshots are Invalid"
	ok "closed while dead: the store can be closed" tables_down
	swap_table cow "$(linear_table "$store")"
	tables_up
	both_are Invalid "closed while dead: opened again the snapshots are Invalid"
	not_ok "closed while dead: opened again the snapshots cannot be read" \
		read_at /dev/mapper/s $((3 * MIB)) 4096
	all_down
}

at_read()
{
	all_up
	swap_table cow "$(error_table "$store")"
	not_ok "unreadable: a copied chunk gives an error" read_at /dev/mapper/s 4096 4096
	ok "unreadable: a chunk at home is read" read_at /dev/mapper/s $((5 * MIB)) 4096
	swap_table cow "$(linear_table "$store")"
	both_are_right "readable again"
	origin_goes_on "readable again"
	both_are_right "readable again, and written"
	all_down
}

bad_blocks()
{
	all_up
	if have_target dust; then
		swap_table cow "0 $(sectors "$store") dust $store 0 512"
		# The second chunk of data: the copy of the origin's second.
		dm message cow 0 addbadblock $((FIRST_DATA + CHUNK)) >/dev/null
		dm message cow 0 enable
		not_ok "a bad block: its chunk gives an error" read_at /dev/mapper/s 4096 4096
		ok "a bad block: other chunks are read" read_at /dev/mapper/s 8192 $((7 * MIB))
		like "$(status s)" '^[0-9]+/' "a bad block: the snapshot lives on"
		swap_table cow "$(linear_table "$store")"
	else
		skip "a bad block: its chunk gives an error" "no target dust in this kernel"
		skip "a bad block: other chunks are read" "no target dust in this kernel"
		skip "a bad block: the snapshot lives on" "no target dust in this kernel"
	fi
	both_are_right "after a bad block"
	all_down
}

messages()
{
	all_up
	dm message o 0 create 7
	swap_table cow "$(no_writes_table "$store")"
	not_ok "dead: no snapshot is deleted" dm message o 0 delete 7
	not_ok "dead: no option is set" dm message o 0 set wait_timeout 7
	is "$(key_of s wait_timeout)" 60 "dead: the option is not in force"
	swap_table cow "$(linear_table "$store")"
	both_are_right "after failed messages"
	ok "after failed messages: a snapshot is made" dm message o 0 create 5
	cp "$TEST_TMP/now" "$TEST_TMP/old5"
	ok "after failed messages: a snapshot is deleted" dm message o 0 delete 7
	origin_goes_on "after failed messages"
	both_are_right "after failed messages and writes"
	snap_up f "$base" /dev/mapper/cow P 8 id 5
	ok "after failed messages: the new snapshot is right" same /dev/mapper/f "$TEST_TMP/old5"
	dmremove f
	tables_down
	tables_up
	both_are_right "after failed messages, opened again"
	all_down
}

# It is unknown what a failed creation has left on the disk, and the origin goes on: the
# store says that all its snapshots are invalid.
no_creation()
{
	all_up
	swap_table cow "$(no_writes_table "$store")"
	not_ok "no creation: the message fails" dm message o 0 create 5
	wait_for 60 is_invalid s
	both_are Invalid "no creation: the other snapshots become Invalid"
	swap_table cow "$(linear_table "$store")"
	not_ok "no creation: the store is of no use until it is opened again" \
		dm message o 0 create 6
	tables_down
	tables_up
	both_are Invalid "no creation, opened again: the snapshots stay Invalid"
	ok "no creation, opened again: a new snapshot is made" dm message o 0 create 5
	all_down
}

some_are_copied()
{
	[[ $(used_sectors s) -gt 6000 ]]
}

under_load()
{
	all_up
	fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bsrange=4k-64k --iodepth=16 \
		--filename=/dev/mapper/o --allow_file_create=0 --size=7m --verify=crc32c \
		--do_verify=1 --verify_fatal=1 >"$TEST_TMP/fio.log" 2>&1 &
	wait_for 60 some_are_copied
	swap_table cow "$(error_table "$store")"
	ok "dies under load: no write of the origin is lost" wait $!
	put_letter /dev/mapper/o B $((7 * MIB)) $MIB
	both_are Invalid "dies under load: the snapshots are Invalid"
	ok "dies under load: all can be removed" all_down
}

# The first write to a snapshot is noted in its record before anything else.
mark_fails()
{
	all_up
	swap_table cow "$(no_writes_table "$store")"
	not_ok "no mark: the first write to a snapshot fails" put /dev/mapper/s "$TEST_TMP/old" 0 4096
	both_are Invalid "no mark: the snapshots are Invalid"
	origin_goes_on "no mark"
	swap_table cow "$(linear_table "$store")"
	ok "no mark: all can be removed" all_down
}

while_merging()
{
	all_up
	tables_down
	origin_up o "$base" store /dev/mapper/cow
	dm message o 0 set throttle 1
	swap_table cow "$(partly_table "$store" $FIRST_DATA 64 error)"
	dmreload o "0 $len cowsnap-merge $base /dev/mapper/cow P 8 2 id 0"
	ok "merging: an unreadable chunk ends the merge" wait_for 30 merge_failed
	not_ok "merging: the unreadable chunk cannot be read" read_at /dev/mapper/o 0 4096
	swap_table cow "$(linear_table "$store")"
	ok "merging: the origin reads as the snapshot" same /dev/mapper/o "$TEST_TMP/old"
	dmremove o
	dmcreate o "0 $len cowsnap-merge $base /dev/mapper/cow P 8 2 id 0"
	dm message o 0 set throttle 100
	ok "merging: the merge goes on when the store is whole" wait_for 60 merged
	dmremove o
	dmremove cow
	ok "merging: the origin's own device has the old content" same "$base" "$TEST_TMP/old"
}

base=$(mkloop 8M)
store=$(mkloop 24M)
at_load
at_commit "refuses writes" "$(no_writes_table "$store")"
at_commit "dead" "$(error_table "$store")"
at_commit "a part refuses writes" "$(partly_table "$store" $NEXT_DATA 64 \
	flakey "$store" $NEXT_DATA 0 1000 1 error_writes)"
at_commit "a table refuses writes" "$(partly_table "$store" $TABLE_3 $CHUNK \
	flakey "$store" $TABLE_3 0 1000 1 error_writes)"
closed_dead
at_read
bad_blocks
messages
no_creation
under_load
mark_fails
while_merging

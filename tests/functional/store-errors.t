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

exact_copies
plan 84

good()
{
	echo "0 $(sectors "$store") linear $store 0"
}

dead()
{
	echo "0 $(sectors "$store") error"
}

# Writes fail, reads do not.
no_writes()
{
	echo "0 $(sectors "$store") flakey $store 0 0 1000 1 error_writes"
}

# part TABLE_WORDS FROM COUNT: some sectors are otherwise.
part()
{
	local end=$(($2 + $3))

	(($2 == 0)) || printf '0 %d linear %s 0\n' "$2" "$store"
	printf '%d %d %s\n' "$2" "$3" "$1"
	printf '%d %d linear %s %d\n' "$end" $(($(sectors "$store") - end)) "$store" "$end"
}

# While everything above stays in use.
turn()
{
	dm suspend --noflush cow && dmload cow "$1" && dm resume cow
}

# Two snapshots, some chunks copied.
all_up()
{
	fill "$base" "$TEST_TMP/now"
	dd if=/dev/zero of="$store" bs=4096 count=1 conv=fsync status=none
	dmcreate cow "$(good)"
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
	ok "$1: the first is right" same /dev/mapper/s "$TEST_TMP/old"
	ok "$1: the second is right" same /dev/mapper/t "$TEST_TMP/old2"
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
	turn "$(part error 0 8)"
	not_ok "unreadable start: not opened" snap_up s "$base" /dev/mapper/cow P
	not_ok "unreadable start: nor by an origin" origin_up o "$base" store /dev/mapper/cow
	turn "$(no_writes)"
	not_ok "refuses writes: not opened" snap_up s "$base" /dev/mapper/cow P
	turn "$(good)"
	ok "once it is whole it is opened" tables_up
	both_are_right "once it is whole"
	tables_down
	turn "$(part error 1640 8)"
	ok "unreadable table: opened" tables_up
	not_ok "unreadable table: the second has lost chunks" same /dev/mapper/t "$TEST_TMP/old2"
	turn "$(good)"
	cp "$TEST_TMP/now" "$TEST_TMP/old3"
	ok "unreadable table: a new one is made" dm message o 0 create 3
	put /dev/mapper/o "$TEST_TMP/now" 0 $((2 * MIB))
	snap_up u "$base" /dev/mapper/cow P 8 id 3
	ok "unreadable table: the new one is right" same /dev/mapper/u "$TEST_TMP/old3"
	dmremove u
	all_down
}

# at_commit WORDS TABLE: and afterwards.
at_commit()
{
	all_up
	turn "$2"
	ok "$1: a write that needs a copy succeeds" \
		put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $((2 * MIB))
	both_are Invalid "$1: the snapshots are Invalid"
	not_ok "$1: they cannot be read" read_at /dev/mapper/s 0 4096
	origin_goes_on "$1"
	turn "$(good)"
	both_are Invalid "$1, store back: they stay Invalid"
	tables_down
	rmmod dm_cowsnap && insmod "$COWSNAP_KO"
	tables_up
	both_are Invalid "$1, opened again: they stay Invalid"
	not_ok "$1, opened again: they cannot be read" read_at /dev/mapper/s 0 4096
	all_down
}

# The mark could not be written: as long as the module is there it knows.
closed_dead()
{
	all_up
	turn "$(no_writes)"
	put /dev/mapper/o "$TEST_TMP/now" $((2 * MIB)) $((2 * MIB))
	both_are Invalid "closed while dead: the snapshots are Invalid"
	ok "closed while dead: it can be closed" tables_down
	turn "$(good)"
	tables_up
	both_are Invalid "closed while dead: opened again they are Invalid"
	not_ok "closed while dead: and cannot be read" read_at /dev/mapper/s $((3 * MIB)) 4096
	all_down
}

at_read()
{
	all_up
	turn "$(dead)"
	not_ok "unreadable: a kept chunk gives an error" read_at /dev/mapper/s 4096 4096
	ok "unreadable: one at home is read" read_at /dev/mapper/s $((5 * MIB)) 4096
	turn "$(good)"
	both_are_right "readable again"
	origin_goes_on "readable again"
	both_are_right "readable again, and written"
	all_down
}

bad_blocks()
{
	all_up
	if have_target dust; then
		turn "0 $(sectors "$store") dust $store 0 512"
		# The second data chunk: the copy of the origin's second.
		dm message cow 0 addbadblock 16 >/dev/null
		dm message cow 0 enable
		not_ok "a bad block: an error" read_at /dev/mapper/s 4096 4096
		ok "a bad block: others are read" read_at /dev/mapper/s 8192 $((7 * MIB))
		like "$(status s)" '^[0-9]+/' "a bad block: the snapshot lives on"
		turn "$(good)"
	else
		skip "a bad block: an error" "no target dust in this kernel"
		skip "a bad block: others are read" "no target dust in this kernel"
		skip "a bad block: the snapshot lives on" "no target dust in this kernel"
	fi
	both_are_right "after a bad block"
	all_down
}

messages()
{
	all_up
	dm message o 0 create 7
	turn "$(no_writes)"
	not_ok "dead: none is deleted" dm message o 0 delete 7
	not_ok "dead: no option is set" dm message o 0 set wait_timeout 7
	is "$(key_of s wait_timeout)" 60 "dead: nor is it in force"
	turn "$(good)"
	both_are_right "after failed messages"
	ok "after failed messages: one is made" dm message o 0 create 5
	cp "$TEST_TMP/now" "$TEST_TMP/old5"
	ok "after failed messages: one is deleted" dm message o 0 delete 7
	origin_goes_on "after failed messages"
	both_are_right "after failed messages and writes"
	snap_up f "$base" /dev/mapper/cow P 8 id 5
	ok "after failed messages: the new one is right" same /dev/mapper/f "$TEST_TMP/old5"
	dmremove f
	tables_down
	tables_up
	both_are_right "after failed messages, opened again"
	all_down
}

is_invalid()
{
	[[ $(status s) = Invalid ]]
}

# What a failed creation has left on the disk nobody knows, and the origin goes on: the
# store says that all its snapshots are invalid.
no_creation()
{
	all_up
	turn "$(no_writes)"
	not_ok "no creation: it fails" dm message o 0 create 5
	wait_for 10 is_invalid
	both_are Invalid "no creation: nor are the others kept"
	turn "$(good)"
	not_ok "no creation: the store is of no use until it is opened again" \
		dm message o 0 create 6
	tables_down
	tables_up
	both_are Invalid "no creation, opened again: they stay Invalid"
	ok "no creation, opened again: a new one is made" dm message o 0 create 5
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
	turn "$(dead)"
	ok "dies under load: no write of the origin is lost" wait $!
	put_letter /dev/mapper/o B $((7 * MIB)) $MIB
	both_are Invalid "dies under load: the snapshots are Invalid"
	ok "dies under load: all can be removed" all_down
}

# The first write to a snapshot is noted in its record before anything else.
mark_fails()
{
	all_up
	turn "$(no_writes)"
	not_ok "no mark: the first write to a snapshot fails" put /dev/mapper/s "$TEST_TMP/old" 0 4096
	both_are Invalid "no mark: the snapshots are Invalid"
	origin_goes_on "no mark"
	turn "$(good)"
	ok "no mark: all can be removed" all_down
}

merge_failed()
{
	[[ $(status o) = "Merge failed" ]]
}

while_merging()
{
	all_up
	tables_down
	origin_up o "$base" store /dev/mapper/cow
	dm message o 0 set throttle 1
	turn "$(part error 8 64)"
	dmreload o "0 $len cowsnap-merge $base /dev/mapper/cow P 8 2 id 0"
	ok "merging: an unreadable chunk ends it" wait_for 30 merge_failed
	not_ok "merging: it cannot be read" read_at /dev/mapper/o 0 4096
	turn "$(good)"
	ok "merging: the origin reads as the snapshot" same /dev/mapper/o "$TEST_TMP/old"
	dmremove o
	dmcreate o "0 $len cowsnap-merge $base /dev/mapper/cow P 8 2 id 0"
	dm message o 0 set throttle 100
	ok "merging: it goes on when the store is whole" wait_for 60 merge_ended
	dmremove o
	dmremove cow
	ok "merging: the device has it" same "$base" "$TEST_TMP/old"
}

merge_ended()
{
	[[ $(status o) =~ ^([0-9]+)/[0-9]+\ ([0-9]+)\  ]] && ((BASH_REMATCH[1] == BASH_REMATCH[2]))
}

base=$(mkloop 8M)
store=$(mkloop 24M)
at_load
at_commit "refuses writes" "$(no_writes)"
at_commit "dead" "$(dead)"
# What comes next in the store: both snapshots take a little over 2 MiB.
at_commit "a part refuses writes" "$(part "flakey $store 6144 0 1000 1 error_writes" 6144 64)"
# The table that comes next: of the third segment, in front of chunk 479.
at_commit "a table refuses writes" "$(part "flakey $store 3824 0 1000 1 error_writes" 3824 8)"
closed_dead
at_read
bad_blocks
messages
no_creation
under_load
mark_fails
while_merging

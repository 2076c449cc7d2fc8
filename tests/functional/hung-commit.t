#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Each table is suspended, reloaded and removed while a commit hangs in the store's device:
# when that goes on everything comes to its end, and every byte is right.

. "$(dirname "$0")/common.sh"

MIB=1048576

# The store's device queues all I/O while it is suspended.
hang()
{
	dmsetup suspend --noflush --nolockfs below
}

release()
{
	[[ $(dmsetup info -c --noheadings -o suspended below) != Suspended ]] ||
		dmsetup resume below
}

# in_time SECONDS PID: its exit status; 99 if it does not end.
in_time()
{
	local n

	for ((n = 0; n < $1 * 10; n++)); do
		if ! kill -0 "$2" 2>/dev/null; then
			wait "$2"
			return
		fi
		sleep 0.1
	done
	return 99
}

# Two runs of the origin, changed anew in each case.
origin_write()
{
	put /dev/mapper/o "$TEST_TMP/now" $((case_nr * 65536)) 65536 $((2 * MIB + case_nr * 8192)) 12288
}

snap_write()
{
	put /dev/mapper/s "$TEST_TMP/old" $((MIB + case_nr * 65536)) 65536
}

nothing()
{
	return 0
}

# during WORDS WRITER COMMAND...: WRITER waits for a commit that hangs, then comes COMMAND.
during()
{
	local words=$1 writer=$2 write command wrong=''

	shift 2
	case_nr=$((case_nr + 1))
	hang
	"$writer" >"$TEST_TMP/write.log" 2>&1 &
	write=$!
	sleep 0.3
	"$@" >"$TEST_TMP/command.log" 2>&1 &
	command=$!
	sleep 0.5
	! kill -0 "$write" 2>/dev/null || waited=$((waited + 1))
	release
	in_time 60 "$write" || wrong="the writer: $? $(tail -n 1 "$TEST_TMP/write.log")"
	in_time 60 "$command" || wrong+=" the command: $? $(tail -n 1 "$TEST_TMP/command.log")"
	is "$wrong" "" "$words"
}

# both_are_right WORDS: two points.
both_are_right()
{
	ok "$1: the snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
	ok "$1: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
}

again()
{
	dmsetup suspend "$1" && dmsetup resume "$1"
}

reload()
{
	dmsetup suspend "$1" && dmsetup load "$1" --table "$2" && dmsetup resume "$1"
}

# load first, as LVM does: the new table is there while the old one is still at work.
preload()
{
	dmsetup load "$1" --table "$2" && dmsetup suspend "$1" && dmsetup resume "$1"
}

both_up()
{
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	dd if=/dev/zero of=/dev/mapper/below bs=64K count=1 oflag=direct status=none
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/below "$@"
	case_nr=0
}

# tables WORDS ORIGIN_TABLE SNAP_TABLE: suspend and reload of both, beside writes to both.
tables()
{
	local words=$1 o=$2 s=$3 writer

	for writer in origin_write snap_write; do
		during "$words, $writer: the snapshot is suspended" "$writer" again s
		during "$words, $writer: the snapshot is reloaded" "$writer" reload s "$s"
		during "$words, $writer: the snapshot is reloaded, loaded first" "$writer" preload s "$s"
		during "$words, $writer: the origin is suspended" "$writer" again o
		during "$words, $writer: the origin is reloaded" "$writer" reload o "$o"
		during "$words, $writer: the origin is reloaded, loaded first" "$writer" preload o "$o"
	done
	both_are_right "$words"
}

transient()
{
	both_up N 8
	tables "transient" "$(origin_table "$base")" "$(snap_table "$base" /dev/mapper/below N 8)"
	during "transient: the snapshot is removed" origin_write dmsetup remove --retry s
	dmsetup create s --table "$(snap_table "$base" /dev/mapper/below N 8)"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	during "transient: the origin is removed" snap_write dmsetup remove --retry o
	origin_up o "$base"
	both_are_right "transient, both anew"
	dmremove s
	dmremove o
}

persistent()
{
	local o s

	both_up P 8 id 1 create
	o=$(origin_table "$base" store /dev/mapper/below)
	s=$(snap_table "$base" /dev/mapper/below P 8 id 1)
	dmreload o "$o"
	tables "persistent" "$o" "$s"
	during "persistent: a snapshot is made" origin_write dmsetup message o 0 create 2
	during "persistent: that snapshot is deleted, the other's device removed" origin_write \
		eval 'dmsetup message o 0 delete 2 && dmsetup remove --retry s'
	snap_up s "$base" /dev/mapper/below P 8 id 1
	both_are_right "persistent, opened again"
	during "persistent: all devices are removed" nothing \
		eval 'dmsetup message o 0 create 3 && dmsetup message o 0 delete 3 && dmsetup remove --retry s o'
	dmcreate o "$o"
	snap_up s "$base" /dev/mapper/below P 8 id 1
	both_are_right "persistent, closed and opened"
}

# The merge's notes hang.
merge()
{
	local table

	table="0 $(sectors "$base") cowsnap-merge $base /dev/mapper/below P 8 2 id 1"
	dmremove s
	# Places the merge has not come to yet take what is written.
	cp "$TEST_TMP/old" "$TEST_TMP/now"
	dmreload o "$table"
	during "merge: the origin is suspended" origin_write again o
	during "merge: the origin is reloaded" origin_write reload o "$table"
	during "merge: the origin is reloaded, loaded first" origin_write preload o "$table"
	during "merge: the origin is removed" nothing dmsetup remove --retry o
	dmcreate o "$table"
	ok "merge: the merge comes to its end" wait_for 60 merged
	ok "merge: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
}

# hangs PID: it waits for I/O, and goes on doing so.
hangs()
{
	grep -q '^State:.*D' "/proc/$1/status" && sleep 0.5 && grep -q '^State:.*D' "/proc/$1/status"
}

# A message uses the store while its last table goes: that waits, and holds nobody up.
message_beside_removal()
{
	local message remove other

	dmremove o
	both_up P 8 id 1 create
	other=$(mkloop 1M)
	hang
	dmsetup message o 0 create 7 &
	message=$!
	ok "message: it writes to a store that hangs" wait_for 60 hangs "$message"
	dmsetup remove --retry s &
	remove=$!
	wait_for 60 hangs "$remove"
	ok "message: the store's last table waits for it" kill -0 "$remove"
	dmsetup create other --table "$(origin_table "$other")" &
	ok "message: other tables are made meanwhile" in_time 60 $!
	release
	ok "message: it ends well" in_time 60 "$message"
	ok "message: the table is removed" in_time 60 "$remove"
	dmremove other
	snap_up s "$base" /dev/mapper/below P 8 id 7
	ok "message: the snapshot that it has made is right" same /dev/mapper/s "$TEST_TMP/now"
	dmremove s
	dmremove o
}

exact_copies
base=$(mkloop 8M)
store=$(mkloop 40M)
case_nr=0 waited=0
dmcreate below "$(linear_table "$store")"
at_exit release
transient
persistent
merge
message_beside_removal
ok "writers waited for a hung commit $waited times" [ "$waited" -ge 20 ]
done_testing

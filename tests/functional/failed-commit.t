#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A write of whole chunks whose commit fails ends with an error, on a snapshot as well as
# on an origin that is being merged: what was acknowledged is there.

. "$(dirname "$0")/common.sh"

need_target flakey
need_target delay
exact_copies
plan 25

len=$((8 * 2048))

# The slots of the first segment cannot be written, superblocks and data can.
bad_table()
{
	partly_table "$store" 2 6 error
}

# Superblocks, slots and data reach the disk, the flush behind them fails, since flakey fails flushes.
bad_flush()
{
	local near_end=$(($(sectors "$store") - 16))

	partly_table "$store" $near_end 8 flakey "$store" $near_end 0 1000 1 error_writes
}

write_whole()
{
	letters "$3" 4096 | dd of="$1" bs=4096 seek="$2" count=1 iflag=fullblock \
		oflag=direct conv=notrunc status=none
}

# acknowledged_is_there DEV CHUNK LETTER WORDS
acknowledged_is_there()
{
	if write_whole "$1" "$2" "$3" 2>"$TEST_TMP/said"; then
		ok "$4: the write is acknowledged, and is there" \
			all_letter "$1" "$3" $(($2 * 4096)) 4096
	else
		like "$(<"$TEST_TMP/said")" 'Input/output error' "$4: the write ends with an error"
	fi
}

up()
{
	fill_letter "$base" A
	dd if=/dev/zero of="$store" bs=4096 count=1 conv=fsync status=none
	dmcreate cow "$(linear_table "$store")"
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/cow P
	ok "$1: a first write to a part of a chunk succeeds" put_letter /dev/mapper/s B 512 512
}

# letter_of DEV CHUNK: its first byte.
letter_of()
{
	get "$1" $(($2 * 4096)) 512 | head -c 1 | tr -d '\0'
}

# What was written to CHUNK of DEV is noted in acked, if it was acknowledged.
try_write()
{
	acked=
	! write_whole "$1" "$2" "$3" 2>/dev/null || acked=$3
}

base=$(mkloop 8M)
store=$(mkloop 24M)
up snapshot
ok "snapshot: a whole chunk is written" write_whole /dev/mapper/s 2 C
swap_table cow "$(bad_table)"
not_ok "snapshot, the commit fails: the write ends with an error" write_whole /dev/mapper/s 3 D
acknowledged_is_there /dev/mapper/s 4 E "snapshot, after it has failed"
acknowledged_is_there /dev/mapper/s 2 F "snapshot, in place"
swap_table cow "$(linear_table "$store")"
acknowledged_is_there /dev/mapper/s 5 G "snapshot, the store is back"
ok "snapshot: the origin is as it was" all_letter /dev/mapper/o A
dmremove s
dmremove o
dmremove cow

# Writes home that take .3 s and a throttle make the merge slow: after 15 s four of its seven chunks are
# left. So even on a slow machine it goes on when the commit fails: a write to an origin that is not
# merged would succeed, and its snapshot become Invalid. There are no more chunks, since the slots of
# all have to be among those that fail.
loop=$base
dmcreate home "$(linear_table "$loop")"
base=/dev/mapper/home
up merge
dmremove s
# A newer snapshot, so that what is written while merging goes to the store.
snap_up t "$base" /dev/mapper/cow P 8 id 1 create
dm message o 0 set throttle 1
for at in 1 2 3 4 5 6; do
	put_letter /dev/mapper/o H $((at * 1048576)) 4096
done
swap_table home "$(delay_table "$loop" 0 300)"
dmreload o "0 $len cowsnap-merge $base /dev/mapper/cow P 8 2 id 0"
ok "merge: a whole chunk is written" write_whole /dev/mapper/o 1800 I
swap_table cow "$(bad_table)"
not_ok "merge, the commit fails: the write ends with an error" write_whole /dev/mapper/o 1801 K
acknowledged_is_there /dev/mapper/o 1802 L "merge, after it has failed"
ok "merge: the chunk written before keeps its data" all_letter /dev/mapper/o I $((1800 * 4096)) 4096
swap_table cow "$(linear_table "$store")"
acknowledged_is_there /dev/mapper/o 1803 M "merge, the store is back"
ok "merge: it has not ended" [ "$(left_of o)" -gt 0 ]
swap_table home "$(linear_table "$loop")"
dmremove t
dmremove o
dmremove cow
dmremove home
base=$loop

# ---- the slots of the commit that failed are believed when the store is opened again

up reopened
dmremove s
snap_up s "$base" /dev/mapper/cow P 8 discard_zeroes_cow
ok "reopened: a whole chunk is written" write_whole /dev/mapper/s 2 C
swap_table cow "$(bad_flush)"
not_ok "reopened: a discard whose commit fails ends with an error" \
	blkdiscard -o 8192 -l 4096 /dev/mapper/s
swap_table cow "$(linear_table "$store")"
try_write /dev/mapper/s 2 D
is "$acked" "" "reopened: a write in place is refused, for the disk may have the zeroes"
not_ok "reopened: a first write, too" write_whole /dev/mapper/s 3 E
is "$(letter_of /dev/mapper/s 2)" C "reopened: reads go on"
dmremove s
dmremove o
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow P
like "$(letter_of /dev/mapper/s 2)" "^${acked:-C?}\$" "reopened: the chunk is what was acknowledged"

swap_table cow "$(bad_flush)"
not_ok "reopened: a first write whose commit fails ends with an error" write_whole /dev/mapper/s 4 F
swap_table cow "$(linear_table "$store")"
try_write /dev/mapper/s 5 G
dmremove s
dmremove o
origin_up o "$base"
snap_up s "$base" /dev/mapper/cow P
like "$(letter_of /dev/mapper/s 4)" '^[AF]$' "reopened: its place was not given to another chunk"
like "$(letter_of /dev/mapper/s 5)" "^${acked:-[AG]}\$" "reopened: that chunk is right, too"
dmremove s
dmremove o
dmremove cow

pass "all devices can be removed"

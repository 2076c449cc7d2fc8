#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Discards never cost a snapshot its data: the origin's modes skip, preserve and
# none, and the snapshot's discard_zeroes_cow and discard_passdown_origin.

. "$(dirname "$0")/common.sh"

MIB=1048576

plan 31

both_up()
{
	fill_letter "$base" A
	origin_up o "$base" "$@"
	snap_up s "$base" "$store" N 8
}

both_down()
{
	dmremove s
	dmremove o
}

discard()
{
	blkdiscard -o "$2" -l "$3" "$1" 2>/dev/null
}

discard_limit()
{
	cat "$(sysfs "/dev/mapper/$1")/queue/discard_max_bytes"
}

mode_skip()
{
	local used

	both_up "$@"
	put_letter /dev/mapper/o B 0 $MIB
	used=$(used_sectors s)
	ok "skip${*:+ as said}: a discard of the whole origin is taken" discard /dev/mapper/o 0 $((8 * MIB))
	is "$(used_sectors s)" "$used" "skip: the discard takes no room in the store"
	ok "skip: the snapshot keeps everything" all_letter /dev/mapper/s A
	ok "skip: what was preserved is passed down" all_letter /dev/mapper/o 0 0 $MIB
	ok "skip: the rest is left alone" all_letter /dev/mapper/o A $MIB $((7 * MIB))
	both_down
}

mode_preserve()
{
	both_up discard preserve
	put_letter /dev/mapper/o B 0 $MIB
	ok "preserve: a discard is taken" discard /dev/mapper/o $((MIB / 2)) $((2 * MIB))
	ok "preserve: the snapshot keeps everything" all_letter /dev/mapper/s A
	ok "preserve: all of the discard is passed down" \
		all_letter /dev/mapper/o 0 $((MIB / 2)) $((2 * MIB))
	ok "preserve: what is preserved takes room in the store" [ "$(used_sectors s)" -ge 5120 ]
	both_down
}

mode_none()
{
	both_up discard none
	is "$(discard_limit o)" 0 "none: the origin offers no discard"
	not_ok "none: a discard is refused" discard /dev/mapper/o 0 $MIB
	ok "none: the snapshot keeps everything" all_letter /dev/mapper/s A
	both_down
}

no_snapshot()
{
	fill_letter "$base" A
	origin_up o "$base"
	discard /dev/mapper/o 0 $MIB
	ok "without a snapshot discards pass down" all_letter /dev/mapper/o 0 0 $MIB
	dmremove o
}

snapshot_side()
{
	fill_letter "$base" A
	origin_up o "$base"
	snap_up s "$base" "$store" N 8 discard_zeroes_cow
	snap_up t "$base" "$store2" N 8
	not_ok "a snapshot without the feature refuses discards" discard /dev/mapper/t 0 $MIB
	put_letter /dev/mapper/s P 0 $MIB
	ok "discard_zeroes_cow: a discard is taken" discard /dev/mapper/s $((MIB / 2)) $MIB
	ok "discard_zeroes_cow: what was discarded reads zeros" \
		all_letter /dev/mapper/s 0 $((MIB / 2)) $MIB
	discard /dev/mapper/s $((4 * MIB + 512)) 2048
	ok "discard_zeroes_cow: part of a chunk is zeroed or left alone" \
		all_letter /dev/mapper/s A0 $((4 * MIB)) 4096
	ok "discard_zeroes_cow: the origin sees nothing of the discard" all_letter /dev/mapper/o A
	ok "discard_zeroes_cow: another snapshot sees nothing of the discard" \
		all_letter /dev/mapper/t A
	dmremove s
	snap_up s "$base" "$store" N 8 discard_zeroes_cow discard_passdown_origin
	discard /dev/mapper/s 0 $MIB
	ok "discard_passdown_origin: what was discarded reads zeros" \
		all_letter /dev/mapper/s 0 0 $MIB
	ok "discard_passdown_origin: another snapshot keeps its data" all_letter /dev/mapper/t A
	ok "discard_passdown_origin: the origin has its data or zeros" all_letter /dev/mapper/o A0
	dmremove s
	dmremove t
	dmremove o
}

# write_and_discard: the same chunks again and again, whole and in part.
write_and_discard()
{
	for _ in {1..5}; do
		put_letter /dev/mapper/s P 0 $MIB && discard /dev/mapper/s 0 $MIB &&
			put_letter /dev/mapper/s Q $MIB 512 &&
			discard /dev/mapper/s $MIB 4096 || return
	done
}

room_of_discarded()
{
	local letter=$1 used

	fill_letter "$base" A
	origin_up o "$base"
	dd if=/dev/zero of="$store" bs=4096 count=1 conv=notrunc status=none
	snap_up s "$base" "$store" "$letter" 8 discard_zeroes_cow
	put_letter /dev/mapper/s P 0 $MIB
	put_letter /dev/mapper/s P $MIB 512
	used=$(used_sectors s)
	ok "$letter: the same chunks are written and discarded" write_and_discard
	is "$(used_sectors s)" "$used" \
		"$letter: chunks written and discarded again take no more room"
	both_down
}

base=$(mkloop 8M)
store=$(mkloop 16M)
store2=$(mkloop 16M)
mode_skip
mode_skip discard skip
mode_preserve
mode_none
no_snapshot
snapshot_side
room_of_discarded N
room_of_discarded P

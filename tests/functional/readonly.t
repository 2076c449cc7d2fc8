#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Read-only tables (dmsetup create -r): the snapshot can be read and not
# written, and is as whole as any other.

. "$(dirname "$0")/common.sh"

MIB=1048576

plan 8

base=$(mkloop 8M)
store=$(mkloop 16M)
fill "$base" "$TEST_TMP/old"
origin_up o "$base"
ok "a read-only snapshot is made" \
	dmcreate s "$(snap_table "$base" "$store" N 8)" -r
ok "it is the origin" same /dev/mapper/s "$TEST_TMP/old"
not_ok "it cannot be written" put_letter /dev/mapper/s P 0 4096
put_letter /dev/mapper/o B 0 $((4 * MIB)) $MIB
ok "it has the old data after the origin changed" same /dev/mapper/s "$TEST_TMP/old"
dmremove s

blockdev --setro "$store"
ok "a read-only store serves a read-only table" \
	dmcreate s "$(snap_table "$base" "$store" N 8)" -r
put_letter /dev/mapper/o C 0 $MIB
whole_or_invalid()
{
	[[ $(status s) = Invalid ]] || [[ $(not_letter /dev/mapper/s B 0 $MIB) = 0 ]]
}
ok "it is whole or Invalid after the origin changed, never wrong" whole_or_invalid
dmremove s
blockdev --setrw "$store"
dmremove o
ok "a read-only origin is made" dmcreate o "$(origin_table "$base")" -r
not_ok "it cannot be written" put_letter /dev/mapper/o P 0 4096

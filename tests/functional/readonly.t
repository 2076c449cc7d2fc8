#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Read-only tables (dmsetup create -r): the snapshot can be read and not
# written, and is as whole as any other.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"
. "$(dirname "$0")/log.sh"

MIB=1048576

plan 24

base=$(mkloop 8M)
store=$(mkloop 16M)
fill "$base" "$TEST_TMP/old"
origin_up o "$base"
ok "a read-only snapshot is made" \
	dmcreate s "$(snap_table "$base" "$store" N 8)" -r
ok "a new read-only snapshot shows the origin" same /dev/mapper/s "$TEST_TMP/old"
not_ok "a read-only snapshot cannot be written" put_letter /dev/mapper/s P 0 4096
put_letter /dev/mapper/o B 0 $((4 * MIB)) $MIB
ok "a read-only snapshot has the old data after the origin changed" \
	same /dev/mapper/s "$TEST_TMP/old"
dmremove s

blockdev --setro "$store"
ok "a read-only store serves a read-only table" \
	dmcreate s "$(snap_table "$base" "$store" N 8)" -r
put_letter /dev/mapper/o C 0 $MIB
whole_or_invalid()
{
	is_invalid s || all_letter /dev/mapper/s B 0 $MIB
}
ok "a snapshot in a read-only store is whole or Invalid after the origin changed, never wrong" \
	whole_or_invalid
dmremove s
blockdev --setrw "$store"
dmremove o
ok "a read-only origin is made" dmcreate o "$(origin_table "$base")" -r
not_ok "a read-only origin cannot be written" put_letter /dev/mapper/o P 0 4096
dmremove o

# A persistent store that is read-only is not written, whatever happens. What is behind the first
# 6 MiB stays uncopied. The store keeps what holds when its table is first loaded.
exact_copies
store=$(mkloop 16M)
fill "$base" "$TEST_TMP/old"
origin_up o "$base"
dmcreate s "" --notable
dmload s "$(snap_table "$base" "$store" P 8)"
dmsetup message o 0 commit "$store"
dmremove s
like "$(checked "$store")" 'clean, 0 snapshots' \
	"a message to a store that has not been resumed makes no snapshot in it"
dmcreate s "$(snap_table "$base" "$store" P 8)"
put_letter /dev/mapper/o B 0 $((6 * MIB))
dmsetup message s 0 set throttle 1
dmremove s
blockdev --setro "$store"
cp "$(loop_file "$store")" "$TEST_TMP/store"
is_untouched()
{
	cmp "$(loop_file "$store")" "$TEST_TMP/store"
}
dmcreate s "$(snap_table "$base" "$store" P 8)" -r
ok "a read-only persistent store serves a read-only table" same /dev/mapper/s "$TEST_TMP/old"
not_ok "no snapshot is made in a read-only store" dmsetup message s 0 create 7
dmsetup message s 0 commit
put_letter /dev/mapper/o B $((7 * MIB)) 4096
is "$(status s)" Invalid "a snapshot in a read-only store is Invalid when its origin is written"
dmremove s
ok "nothing was written to the read-only store" is_untouched
blockdev --setrw "$store"
dmcreate s "$(snap_table "$base" "$store" P 8)"
is "$(status s)" Invalid "the snapshot is still Invalid when its store can be written again"
dmremove s
dmremove o

# There is nothing in a new one yet, and nothing gets there.
blank=$(mkloop 16M)
blockdev --setro "$blank"
cp "$(loop_file "$blank")" "$TEST_TMP/blank"
origin_up o "$base"
dmcreate s "" --notable
dmload s "$(snap_table "$base" "$blank" P 8)" -r
not_ok "a new store that is read-only is not used" dm resume s
like "$(kernel_log)" 'is new and read-only: make it writable' "the log says what helps"
put_letter /dev/mapper/o B 0 4096
ok "nothing is written to it" cmp "$(loop_file "$blank")" "$TEST_TMP/blank"
dmremove s
blockdev --setrw "$blank"
dmremove o

# A merge cannot go on from one.
store=$(mkloop 16M)
fill "$base" "$TEST_TMP/old"
origin_up o "$base"
dmcreate s "$(snap_table "$base" "$store" P 8)"
put_letter /dev/mapper/o B 0 $((8 * MIB))
dmsetup message s 0 set throttle 1
dmremove s
dmremove o
dmcreate o "0 $(sectors "$base") cowsnap-merge $base $store P 8"
like "$(status o)" '^[1-9]' "a merge is under way"
dmremove o
blockdev --setro "$store"
cp "$(loop_file "$store")" "$TEST_TMP/store"
not_ok "a merge does not go on from a read-only store" \
	dmcreate o "$(origin_table "$base" store "$store")" -r
dmsetup remove o 2>"$TEST_TMP/ignored"
ok "nothing is written to the merge's read-only store" is_untouched
blockdev --setrw "$store"

# A disk that is write-protected cannot even be opened for writing.
WRITE_PROTECT=/sys/module/scsi_debug/parameters/wp

writes_are_refused()
{
	! (: >"$disk") 2>"$TEST_TMP/ignored"
}

if modinfo scsi_debug >/dev/null 2>&1; then
	disk=$(mkscsi dev_size_mb=16) || bail_out "no disk of scsi_debug"
	fill "$base" "$TEST_TMP/old"
	origin_up o "$base"
	snap_up s "$base" "$disk" P
	put_letter /dev/mapper/o B 0 $MIB
	dmremove s
	dmremove o
	echo 1 >"$WRITE_PROTECT"
	echo 1 >"$(sysfs "$disk")/device/rescan"
	ok "a write-protected disk is not opened for writing" writes_are_refused
	ok "a store on it serves a read-only table" dmcreate s "$(snap_table "$base" "$disk" P 8)" -r
	ok "the snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
	dmremove s
	dmcreate s "" --notable
	not_ok "a table that may write is refused" dmload s "$(snap_table "$base" "$disk" P 8)"
	dmsetup remove s
	echo 0 >"$WRITE_PROTECT"
else
	for what in "a write-protected disk is not opened for writing" \
		"a store on it serves a read-only table" "the snapshot is right" \
		"a table that may write is refused"; do
		skip "$what" "no scsi_debug here"
	done
fi

#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A persistent store: what was written to origin and snapshots is there again after all
# tables have gone and come back, and after the module was loaded anew.

. "$(dirname "$0")/common.sh"

plan 35

# away: all tables go, the module too.
away()
{
	local name

	for name; do
		dmremove "$name"
	done
	rmmod dm_cowsnap && insmod "$COWSNAP_KO"
}

base=$(mkloop 16M)
store=$(mkloop 20M)
fill "$base" "$TEST_TMP/now"
cp "$TEST_TMP/now" "$TEST_TMP/old"
origin_up o "$base"
ok "a snapshot in a new store" snap_up s "$base" "$store" P
put /dev/mapper/o "$TEST_TMP/now" 0 4096 1048576 1048576 5000192 512 16773120 4096
ok "it shows the old content" same /dev/mapper/s "$TEST_TMP/old"
ok "a second one in the same store" snap_up s2 "$base" "$store" P 8 id 7 create
cp "$TEST_TMP/now" "$TEST_TMP/old2"
put /dev/mapper/o "$TEST_TMP/now" 0 8192 2097152 65536
put /dev/mapper/s "$TEST_TMP/old" 12288 4096 8388608 1024 1048576 512
put /dev/mapper/s2 "$TEST_TMP/old2" 4096 4096 9437184 1048576
ok "the first" same /dev/mapper/s "$TEST_TMP/old"
ok "the second" same /dev/mapper/s2 "$TEST_TMP/old2"
ok "the origin" same /dev/mapper/o "$TEST_TMP/now"
used=$(used_sectors s)

away s s2 o
ok "the store is opened again" snap_up s "$base" "$store" P
origin_up o "$base"
ok "the first is as it was" same /dev/mapper/s "$TEST_TMP/old"
is "$(used_sectors s)" "$used" "the store is as full as it was"
ok "and the second" snap_up s2 "$base" "$store" P 8 id 7
ok "is as it was" same /dev/mapper/s2 "$TEST_TMP/old2"
put /dev/mapper/o "$TEST_TMP/now" 4194304 524288 12288 4096
ok "protection goes on: the first" same /dev/mapper/s "$TEST_TMP/old"
ok "the second" same /dev/mapper/s2 "$TEST_TMP/old2"

away s s2 o
ok "an origin opens the store itself" origin_up o "$base" store "$store"
put /dev/mapper/o "$TEST_TMP/now" 6291456 262144
ok "a snapshot is made by message" dm message o 0 create 9
cp "$TEST_TMP/now" "$TEST_TMP/old9"
put /dev/mapper/o "$TEST_TMP/now" 6291456 4096 0 4096
ok "the first" snap_up s "$base" "$store" P
ok "is whole although no device was there" same /dev/mapper/s "$TEST_TMP/old"
ok "the one made by message" snap_up s9 "$base" "$store" P 8 id 9
ok "is right" same /dev/mapper/s9 "$TEST_TMP/old9"
not_ok "one in use is not deleted" dm message o 0 delete 9
not_ok "one that is not there neither" dm message o 0 delete 10
not_ok "nor is one made twice" dm message o 0 create 9
dmremove s9
ok "one not in use is" dm message o 0 delete 9
not_ok "and cannot be opened then" snap_up s9 "$base" "$store" P 8 id 9

not_ok "another chunk size is refused" snap_up s9 "$base" "$store" P 16 id 7
not_ok "so is N" snap_up s9 "$base" "$store" N 8 id 7
not_ok "an id that is not there" snap_up s9 "$base" "$store" P 8 id 8
away s o
not_ok "N on a closed P store" snap_up s "$base" "$store" N
ok "all is still there" snap_up s "$base" "$store" P

# What happens to the origin while no table names the store is noticed.
origin_up o "$base"
dmremove s
ok "a store that was away while its origin stayed unwritten" snap_up s "$base" "$store" P
ok "is as it was" same /dev/mapper/s "$TEST_TMP/old"
dmremove s
put /dev/mapper/o "$TEST_TMP/now" 65536 4096
ok "one whose origin was written meanwhile" snap_up s "$base" "$store" P
is "$(status s)" "Invalid" "is invalid"
dmremove s
ok "opened again" snap_up s "$base" "$store" P
is "$(status s)" "Invalid" "it stays so"
dmremove s
dmremove o
